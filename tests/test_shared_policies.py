"""A policy that threads, processes and forks share, and savers that are killed: a few rounds of many attacks."""

import copy
import os
import pickle
import sys
import threading

import pytest
import torch
from gpytorch.kernels import RBFKernel

from bandits_torch import AskTell, ask_tell, load_policy, recipes, save_policy
from bandits_torch.policies.random import RandomPolicy
from tests.reference import share_a_policy


@pytest.mark.parametrize("name", recipes.RECIPES)
def test_eight_threads_are_one_after_the_other(name):
    assert share_a_policy.attack("threads", 1, [name])[2] == {}


def test_threads_without_turns_would_be_seen(monkeypatch):
    monkeypatch.setattr(ask_tell._Turn, "__enter__", lambda self: None)
    monkeypatch.setattr(ask_tell._Turn, "__exit__", lambda self, *error: None)
    assert share_a_policy.attack("threads", 4, ["bbkb", "gp_ts"])[2] != {}


def test_processes_that_share_a_file_lose_nothing():
    assert share_a_policy.attack("processes", 1, ["gp_ucb"])[2] == {}


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
            if not answered == copied.policy.model.num_observations == copied.policy._clock:
                faults.append(answered)
    finally:
        stop.set()
        sys.setswitchinterval(interval)
        for thread in threads:
            thread.join()
    return len(faults)


def test_copies_of_what_threads_are_using_are_of_one_moment():
    assert torn_copies(20) == 0


def test_torn_copies_would_be_seen(monkeypatch):
    monkeypatch.delattr(AskTell, "__deepcopy__")
    monkeypatch.delattr(AskTell, "__getstate__")
    assert torn_copies(60) > 0


@pytest.mark.parametrize(
    "reward", [None, "1", "one", b"1", 10**400, -(10**400), 1j, float("nan"), object, {}, [None]]
)
def test_a_reward_that_is_no_number_is_refused_by_name(reward):
    asked = AskTell(RandomPolicy(3))
    question = asked.ask(1.0)
    with pytest.raises(ValueError, match=r"^reward must be "):
        asked.tell(question.id, reward)
    assert asked.open == (0,)


def test_numbers_of_numpy_and_torch_are_numbers():
    np = pytest.importorskip("numpy")
    rewards = [
        1,
        1.0,
        np.float64(1),
        np.float32(1),
        np.int64(1),
        np.array(1),
        torch.tensor(1),
        torch.tensor(1.0),
    ]
    rewards += [torch.tensor([1.0]), np.array([1.0]), [1.0]]
    for id, reward in zip((0, np.int64(1), np.uint8(2), 3, 4, 5, 6, 7, 8, 9, 10), rewards, strict=True):
        if id == 0:
            asked = AskTell(recipes.gp_ucb(4, torch.eye(4).double(), 0.1, width=1.0))
        asked.ask(1.0)
        assert asked.tell(id, reward), reward
    assert asked.policy.model.train_targets.tolist() == [[1.0] * 11]
