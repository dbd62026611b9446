"""CPU threads: one within a small step, as many as before after it, and never another number than the user's."""

import json
import os
import subprocess
import sys
import threading
from contextlib import nullcontext

import pytest
import torch
from gpytorch.kernels import RBFKernel

from bandits_torch import AskTell, Domain, Policy, load_policy, recipes, run, save_policy, threads
from bandits_torch.experiments.engines import play
from bandits_torch.models import CandidatePrior
from bandits_torch.policies import RandomPolicy, StandardisedPolicy
from bandits_torch.state_files import read_state
from tests.cli.shell import call
from tests.reference.stubs import TableProblem

ALL = 3  # what PyTorch takes here by default


@pytest.fixture(autouse=True)
def nobody_set_a_number(monkeypatch):
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(threads, "DEFAULT", ALL)
    # It takes long to draw.
    monkeypatch.setattr("bandits_torch.cli.play.page", lambda *given: "<html></html>")
    before = torch.get_num_threads()
    torch.set_num_threads(ALL)
    yield
    torch.set_num_threads(before)


class Watched(RandomPolicy):
    """Notes on how many threads it is called."""

    def __init__(self, num_arms=5):
        super().__init__(num_arms)
        self.seen = []

    def choose(self, time, available=None):
        self.seen.append(torch.get_num_threads())
        return super().choose(time, available)

    def learn(self, observation):
        self.seen.append(torch.get_num_threads())
        super().learn(observation)


def of_a_run(policy):
    run(policy, TableProblem(torch.rand(1, 4, policy.num_arms).double()), 4)


def of_asking(policy):
    live = AskTell(policy)
    one, *several = live.ask(0.0), *live.ask(1.0, count=2)
    live.tell(one.id, 0.5)
    live.tell_many([q.id for q in several], [0.1, 0.2])


BOTH = pytest.mark.parametrize("used", [of_a_run, of_asking])


@BOTH
@pytest.mark.parametrize("large", [False, True])
def test_a_small_step_takes_one_thread_a_large_one_all_and_both_leave_as_many_as_before(used, large):
    policy = Watched()
    if large:
        policy.numbers_per_step = lambda observations: threads.SHARED_FROM
    used(policy)
    assert set(policy.seen) == {ALL if large else 1}
    assert torch.get_num_threads() == ALL


@BOTH
@pytest.mark.parametrize(
    "way", ["OMP_NUM_THREADS", "MKL_NUM_THREADS", "torch", "exactly", "before the import"]
)
def test_a_number_that_somebody_set_stays(used, way, monkeypatch):
    policy, number = Watched(), ALL
    if way == "torch":
        number = 2
        torch.set_num_threads(number)
    elif way == "before the import":
        monkeypatch.setattr(threads, "DEFAULT", None)
    elif way != "exactly":
        monkeypatch.setenv(way, str(ALL))
    with threads.exactly(ALL) if way == "exactly" else nullcontext():
        used(policy)
    assert set(policy.seen) == {number}
    assert torch.get_num_threads() == number


class Fault(Exception):
    """Raised on purpose."""


@BOTH
@pytest.mark.parametrize("call", ["choose", "learn"])
def test_threads_are_back_after_an_error(used, call):
    def fails(*arguments):
        assert torch.get_num_threads() == 1
        raise Fault

    policy = Watched()
    setattr(policy, call, fails)
    with pytest.raises(Fault):
        used(policy)
    assert torch.get_num_threads() == ALL


def test_a_number_set_within_a_step_stays():
    policy = Watched()
    policy.learn = lambda observation: torch.set_num_threads(2)
    of_asking(policy)
    assert torch.get_num_threads() == 2


def test_predictions_files_and_blocks_of_calls_take_one_thread_too(tmp_path):
    live = AskTell(recipes.gp_ucb(torch.rand(6, 2).double(), RBFKernel().double(), 0.1))
    seen, marginals = [], live.policy.marginals

    def watched(*arguments):
        seen.append(torch.get_num_threads())
        return marginals(*arguments)

    live.policy.marginals = watched
    live.predict(1.0)
    with live.alone():
        live.predict(1.0)
        seen.append(torch.get_num_threads())
    del live.policy.marginals
    save_policy(tmp_path / "live.state", live)
    content = read_state(tmp_path / "live.state", "policy")
    assert content["versions"]["threads"] == "1"
    load_policy(tmp_path / "live.state", live)  # a warning, of another number of threads, would be an error
    assert seen == [1, 1, 1]
    assert torch.get_num_threads() == ALL


def test_threads_of_a_service_have_their_own_number_before_and_after_and_one_within():
    policy = Watched()
    live, faults, ready = AskTell(policy), [], threading.Barrier(6)

    def worker():
        torch.get_num_threads()  # PyTorch tells a thread its number when it is first used there
        ready.wait()
        for k in range(20):
            if torch.get_num_threads() != ALL:
                faults.append(torch.get_num_threads())
            live.tell(live.ask(float(k)).id, 0.5)

    others = [threading.Thread(target=worker) for _ in range(6)]
    for other in others:
        other.start()
    for other in others:
        other.join()
    assert faults == []
    assert set(policy.seen) == {1}
    assert torch.get_num_threads() == ALL


def test_a_thread_that_first_uses_torch_within_a_step_of_another_has_the_default(request):
    """PyTorch gives it the number that was set last, by whichever thread."""
    policy, found, on = Watched(), [], threading.Event()
    request.addfinalizer(on.set)
    waiting = threading.Thread(target=on.wait)  # a process of several threads, as a service is
    waiting.start()

    def learn(observation):
        new = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
        new.start()
        new.join()

    policy.learn = learn
    of_asking(policy)
    of_a_run(policy)
    assert found == [ALL] * len(found)
    assert len(found) > 4


RACE = ["race", "--policies", "random,gp_ucb", "--horizon", 12, "--replicates", 2]


@pytest.mark.parametrize(("arguments", "expected"), [([], 1), (["--threads", "2"], 2)])
def test_a_race_takes_one_thread_or_those_told_and_its_record_says_so(arguments, expected, tmp_path):
    call(*RACE, "--out", tmp_path, *arguments)
    assert json.loads((tmp_path / "run.json").read_text())["threads"] == expected
    assert torch.get_num_threads() == ALL


def test_a_race_leaves_the_number_that_the_environment_says(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", str(ALL))
    call(*RACE, "--out", tmp_path)
    assert json.loads((tmp_path / "run.json").read_text())["threads"] == ALL


def test_a_cell_of_a_sweep_takes_those_it_is_told():
    class Cell:
        def run(self):
            policy = Watched()
            of_a_run(policy)
            return set(policy.seen)

    assert [play(Cell(), number) for number in (1, ALL, 2)] == [{1}, {ALL}, {2}]
    assert torch.get_num_threads() == ALL


@pytest.mark.slow
@pytest.mark.parametrize(("before", "known"), [("", True), ("import torch; torch.set_num_threads(7)", False)])
def test_what_was_set_before_the_import_is_known_where_it_is_no_number_of_cores(before, known):
    code = f"{before}\nimport torch, bandits_torch as b\nprint(b.threads.DEFAULT == torch.get_num_threads())"
    free = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    said = subprocess.run(
        [sys.executable, "-c", code], env=free, capture_output=True, text=True, check=True
    ).stdout
    assert said.strip() == str(known)


def test_what_a_step_passes_over():
    arms, kernel = torch.rand(200, 2).double(), RBFKernel().double()
    box = Domain(torch.tensor([[0.0, 0.0], [1.0, 1.0]]).double())
    numbers = Policy.numbers_per_step
    for policy, observations, expected in (
        (recipes.gp_ucb(arms, kernel, 0.1, replicates=3), 50, 3 * 200**2),
        (recipes.gp_ucb(box, kernel, 0.1, replicates=3), 50, 3 * 50**2),
        (recipes.auto(box), 5000, 0),
    ):
        assert policy.numbers_per_step(observations) == expected
    auto = recipes.auto(arms, replicates=2)
    assert auto.numbers_per_step(9) == numbers(auto, 9) * auto.num_members // 10
    assert StandardisedPolicy(recipes.gp_ucb(arms, kernel, 0.1)).numbers_per_step(9) == 200**2
    priors = [CandidatePrior(kernel), CandidatePrior(RBFKernel().double()), CandidatePrior(kernel)]
    several = recipes.pe_gp_ucb(arms, priors=priors, noise_variance=0.1, replicates=2, horizon=9)
    assert several.numbers_per_step(9) == 3 * 2 * 200**2
