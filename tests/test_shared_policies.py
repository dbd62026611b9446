"""A policy that threads, processes and forks share, and savers that are killed: a few rounds of many attacks."""

import copy
import os
import pickle
import sys
import threading

import numpy as np
import pandas as pd
import pytest
import torch
from gpytorch.kernels import RBFKernel

from bandits_torch import AskTell, load_policy, recipes, run, save_policy, threads
from bandits_torch.policies.random import RandomPolicy
from tests.reference import all_recipes, share_a_policy


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", all_recipes.of_every_kind())
def test_eight_threads_are_one_after_the_other(name):
    assert share_a_policy.attack("threads", 1, [name])[2] == {}


@pytest.mark.slow
def test_threads_without_turns_would_be_seen(monkeypatch):
    monkeypatch.setattr(threads.Turn, "__enter__", lambda self: None)
    monkeypatch.setattr(threads.Turn, "__exit__", lambda self, *error: None)
    assert share_a_policy.attack("threads", 4, ["bbkb", "gp_ts"])[2] != {}


@pytest.mark.slow
def test_processes_that_share_a_file_lose_nothing():
    assert share_a_policy.attack("processes", 1, ["gp_ucb"])[2] == {}


@pytest.mark.slow
def test_stale_saves_that_are_accepted_would_be_seen(monkeypatch):
    monkeypatch.setattr("bandits_torch.policy_files._own_save", lambda place, policy: 0)
    assert share_a_policy.attack("processes", 2, ["gp_ucb"])[2] != {}


@pytest.mark.parametrize("kind", ["kills", "damage"])
def test_killed_savers_and_crafted_files_break_nothing(kind):
    assert share_a_policy.attack(kind, 7, share_a_policy.QUICK)[2] == {}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no forks")
def test_forks_are_refused_until_they_load_the_file():
    """In every second round another thread is in its turn while the process forks."""
    assert share_a_policy.attack("forks", 4, ["gp_ucb", "gp_ts"])[2] == {}


@pytest.mark.parametrize("name", all_recipes.of_every_kind())
def test_a_pickled_policy_and_a_deep_copy_go_on_as_the_policy_does(name):
    policy, problem = all_recipes.build(name, 2, 20)
    run(policy, problem, 4)
    copies = copy.deepcopy(policy), pickle.loads(pickle.dumps(policy)), pickle.loads(pickle.dumps(policy))
    pickle.loads(pickle.dumps(AskTell(copies[2]))).ask(5.0)
    expected = policy.choose(5.0).arm
    for copied in copies:
        assert torch.equal(copied.choose(5.0).arm, expected)


def test_copies_take_turns_of_their_own(tmp_path):
    asked = AskTell(RandomPolicy(3))
    with asked._turn:
        for copied in (copy.deepcopy(asked), pickle.loads(pickle.dumps(asked))):
            assert copied._turn is not asked._turn
            assert copied.ask(1.0).id == 0
        save_policy(tmp_path / "file", asked)
        load_policy(tmp_path / "file", asked)  # in one's own turn, too


def torn_copies(count):
    """How many of ``count`` copies, made while four threads ask and tell, are not of one moment."""
    arms = torch.linspace(0, 1, 6).double().unsqueeze(-1)
    asked, stop, faults = AskTell(recipes.gp_ucb(arms, RBFKernel().double(), 0.1)), threading.Event(), []

    def ask_and_tell():
        while not stop.is_set():
            asked.tell(asked.ask(0.0).id, 1.0)

    threads = [threading.Thread(target=ask_and_tell) for _ in range(4)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for k in range(count):
            try:
                copied = copy.deepcopy(asked) if k % 2 else pickle.loads(pickle.dumps(asked))
            except RuntimeError as error:  # a dictionary changed size
                faults.append(error)
                continue
            answered = copied._asked - len(copied.open)
            if not answered == copied.policy.model.num_observations == copied.policy.clock:
                faults.append(answered)
    finally:
        stop.set()
        sys.setswitchinterval(interval)
        for thread in threads:
            thread.join()
    return len(faults)


def test_copies_of_what_threads_are_using_are_of_one_moment():
    assert torn_copies(20) == 0


@pytest.mark.slow
def test_torn_copies_would_be_seen(monkeypatch):
    monkeypatch.delattr(AskTell, "__deepcopy__")
    monkeypatch.delattr(AskTell, "__getstate__")
    assert any(torn_copies(60) for _ in range(30))  # how often depends on the machine


def test_numbers_of_numpy_and_torch_are_numbers():
    asked = AskTell(recipes.gp_ucb(4, torch.eye(4).double(), 0.1, width=1.0))
    rewards = 1, np.float64(1), np.float32(1), np.int64(1), np.array(1), torch.tensor(1), torch.tensor(1.0)
    arrays = (
        np.array([1.0]),
        np.array([1.0, 2.0])[::-1][1:],
        pd.Series([1.0], ["north"]),
        pd.Series([1.0], [7]),
    )
    for id, reward in enumerate((*rewards, torch.tensor([1.0]), *arrays, [1.0])):
        asked.ask(1.0)
        assert asked.tell((int, np.int64, np.uint8)[id % 3](id), reward)
    assert asked.policy.model.train_targets.tolist() == [[1.0] * 13]


def in_threads(*works):
    """What went wrong where these run at once, changing in the middle of calls."""
    faults, before = [], sys.getswitchinterval()

    def kept(work):
        try:
            work()
        except Exception as error:
            faults.append(f"{type(error).__name__}: {error}")

    threads = [threading.Thread(target=kept, args=(work,)) for work in works]
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    return faults


def test_threads_that_save_one_policy_are_not_refused_for_each_other_s_saves(tmp_path):
    shared = AskTell(RandomPolicy(3))

    def save():
        for _ in range(12):
            shared.tell(shared.ask(1.0).id, 1.0)
            save_policy(tmp_path / "file", shared)

    assert in_threads(*[save] * 6) == []
    other = AskTell(RandomPolicy(3))
    load_policy(tmp_path / "file", other)
    assert other.asked == shared.asked == 72
    save_policy(tmp_path / "file", shared)


def live(noise_variance=0.1):
    arms = torch.linspace(0, 1, 5, dtype=torch.float64).unsqueeze(-1)
    return AskTell(recipes.gp_ucb(arms, RBFKernel().double(), noise_variance, width=1.0))


def test_a_file_is_loaded_between_the_calls_of_threads_not_within(tmp_path):
    """Its settings too, for which the policy is built anew."""
    save_policy(tmp_path / "file", live(0.3))
    shared, ended = live(), threading.Event()

    def load():
        for _ in range(6):
            load_policy(tmp_path / "file", shared, on_difference="file")
        ended.set()

    def work():
        while not ended.is_set():
            shared.ask(1.0)
            shared.drop(before=float("inf"))

    turn = shared._turn
    assert in_threads(load, work, work, work) == []
    assert shared._turn is turn
    assert float(shared.policy.model.noise_variance.max()) == 0.3
    assert shared.ask(2.0).id == shared.asked - 1


def test_a_load_that_fails_loses_nothing_that_others_learn_meanwhile(tmp_path, monkeypatch):
    saved, shared = live(), live()
    save_policy(tmp_path / "file", saved)
    question = shared.ask(1.0)
    told = threading.Thread(target=lambda: shared.tell(question.id, 1.0))

    def fails(*wrong):
        told.start()
        told.join(0.2)  # it waits, or has been told by now and is forgotten
        raise ValueError("damaged")

    monkeypatch.setattr("bandits_torch.policy_files.check_kinds", fails)
    with pytest.raises(ValueError, match="damaged"):
        load_policy(tmp_path / "file", shared)
    told.join()
    assert int(shared.policy.model.num_observations) == 1
    assert shared.open == ()
