"""What the author of an ``ArmPolicy`` writes is enough: for the policy of CONTRIBUTING.md and the classical ones."""

import importlib
import re
import sys
from pathlib import Path

import pytest
import torch

from bandits_torch import make, recipes, run
from bandits_torch.captured.blocks import captured_steps
from bandits_torch.experiments import race
from bandits_torch.policies import ArmPolicy, Choice, Observation
from bandits_torch.policies.classical import EXP3S, GLRKLUCB, SlidingWindowUCB
from bandits_torch.recipes.registration import RECIPES, REGISTERED
from bandits_torch.state import differing
from tests import test_policy_files, test_reproducible, test_resume_bits, test_testing
from tests.captured.test_captured_blocks import Blocks, same_rows
from tests.captured.test_captured_runs import never_looks

OWN, N, S, T = "boltzmann_gumbel", 8, 3, 60
FIXED = [OWN, "ucb1", "discounted_ucb", "sliding_window_ucb", "exp3_s", "epsilon_greedy"]
CONTRIBUTING = Path(__file__).parents[2] / "CONTRIBUTING.md"


@pytest.fixture(autouse=True)
def own(tmp_path, monkeypatch):
    """The file of CONTRIBUTING.md, imported; and what it registers, gone afterwards."""
    text = CONTRIBUTING.read_text(encoding="utf-8")
    code = re.search(r"^## Add a policy\n.*?^```python\n(.*?)^```", text, re.S | re.M)[1]
    (tmp_path / f"{OWN}.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module(OWN)
    yield code
    for held in (sys.modules, RECIPES, REGISTERED):
        held.pop(OWN)


def problem(replicates=S, first=0):
    return make("switching", horizon=T, num_arms=N, replicates=replicates, seed=3, first_replicate=first)


def built(name, replicates=S, first=0):
    world = problem(replicates, first)
    quick = dict(recipes.registered(name).quick)
    first = {"first_replicate": first} if first else {}
    return recipes.build(name, world, replicates=replicates, horizon=T, seed=5, **quick, **first), world


def assert_same(ours, theirs, replicate=None):
    at = slice(None) if replicate is None else slice(replicate, replicate + 1)
    assert torch.equal(ours.arms, theirs.arms[at])
    assert torch.equal(ours.rewards, theirs.rewards[at])
    assert ours.trace.keys() == theirs.trace.keys()
    for name, value in theirs.trace.items():
        assert torch.equal(ours.trace[name], value[at]), name


def test_a_new_policy_is_one_short_file_that_races_and_beats_chance(own):
    assert len(own.splitlines()) <= 60
    world = make("switching", horizon=300, num_arms=N, replicates=S, seed=3)
    options = {OWN: {"scale": 0.1, "discount": 0.98}, "random": {}}
    policies = {
        name: recipes.build(name, world, replicates=S, horizon=300, **of) for name, of in options.items()
    }
    histories = race(policies, world, horizon=300)
    assert histories[OWN].mean_cumulative_regret < 0.8 * histories["random"].mean_cumulative_regret


@pytest.mark.parametrize("value", ["three", None, 0.0, 1.5])
def test_its_settings_are_checked_as_those_of_the_package_are(value):
    with pytest.raises(ValueError, match=r"^discount must be a number in \(0, 1\], got "):
        recipes.RECIPES[OWN](N, discount=value)


def test_it_chooses_by_the_formula_of_the_paper():
    policy, world = built(OWN)
    run(policy, world, 30)
    count, total = (policy.state[name].clone() for name in ("count", "sum"))
    streams = policy.streams.state_dict()
    chosen = policy.choose(31.0)
    policy.streams.load_state_dict(streams)
    u = policy.streams.uniform(N)
    for s in range(S):
        index = [
            float(total[s, i] / count[s, i])
            - torch.log(-torch.log(u[s, i])).item() / float(count[s, i]) ** 0.5
            for i in range(N)
        ]
        assert int(chosen.arm[s]) == max(range(N), key=index.__getitem__)


def test_it_obeys_the_laws_of_all_recipes(tmp_path, monkeypatch):
    """Once it is imported they are what it is checked by: tests/test_testing.py, and so on."""
    for everywhere in (True, False):
        test_testing.test_every_recipe_begins_anew_where_it_is_told_to(OWN, everywhere)
    test_reproducible.test_a_replicate_of_25_is_the_replicate_alone(OWN)
    test_resume_bits.test_every_recipe_resumes_bit_for_bit_at_every_stop(OWN, False, tmp_path, monkeypatch)
    test_policy_files.test_a_file_takes_a_policy_back_to_where_it_was_saved(OWN, tmp_path)


@pytest.mark.parametrize("name", FIXED)
def test_a_captured_run_is_the_plain_run_to_the_last_bit(name, monkeypatch):
    never_looks(monkeypatch)
    (plain, world), (policy, again) = built(name), built(name)
    theirs, ours = run(plain, world, T), run(policy, again, T, capture=7)
    assert_same(ours, theirs)
    assert differing(policy.state, plain.state) == []
    assert torch.equal(policy.choose(T + 1.0).arm, plain.choose(T + 1.0).arm)  # streams too


def test_a_mask_of_arms_is_kept_when_captured():
    histories = []
    for capture in (False, True):
        world = make("variance-starvation", replicates=S, num_arms=N, seed=3)
        policy = recipes.build(OWN, world, replicates=S, horizon=T, seed=5)
        histories.append(run(policy, world, T, capture=capture))
    assert_same(*histories)


@pytest.mark.parametrize("name", FIXED)
def test_captured_steps_read_nothing_and_allocate_no_more_with_time(name):
    blocks = Blocks(*built(name), k=1)
    assert len({blocks.counted().allocated for _ in range(10)}) == 1


@pytest.mark.parametrize("name", [OWN, pytest.param("sliding_window_ucb", marks=pytest.mark.slow)])
def test_captured_steps_are_one_graph(name):
    plain, compiled = Blocks(*built(name), k=2), Blocks(*built(name), k=2, compiled=True)
    for _ in range(2):
        same_rows(plain, compiled)


@pytest.mark.parametrize(
    "policy",
    [GLRKLUCB(N, horizon=T), recipes.discounted_ts(N, horizon=T)],
    ids=["its state grows", "it computes on the host"],
)
def test_what_is_not_fixed_is_refused(policy):
    with pytest.raises(ValueError, match=f"{type(policy).__name__} cannot be captured: its steps"):
        captured_steps(policy)


class Swapping(ArmPolicy):
    def init(self):
        zeros = self.zeros()
        return {"last": zeros, "before": zeros}

    def choice(self, state, time, available, streams):
        arm = (10 * (2 * state["last"] + state["before"])).long() % self.num_arms
        return Choice(arm.clamp(0, self.num_arms - 1))

    def learned(self, state, observation):
        return {"before": state["last"], "last": observation.reward}


def test_tensors_that_change_places_are_captured_too():
    histories = [run(Swapping(N, S), problem(), T, capture=capture) for capture in (False, 5)]
    assert_same(*histories)
    assert len(histories[0].arms.unique()) > 2


def test_settings_are_arguments_and_names_are_checked():
    policy = SlidingWindowUCB(N, S, window=5)
    assert (policy.window, policy.exploration, policy.replicates) == (5, 0.5, S)
    for wrong in ({"widow": 5}, {}):
        with pytest.raises(TypeError, match="window"):
            SlidingWindowUCB(N, S, **wrong)


def test_rewards_of_float32_are_learned_in_float64():
    one, other = (EXP3S(N, S, horizon=T, reward_range=(0.0, 1.0)) for _ in range(2))
    arm, reward, why = torch.zeros(S, dtype=torch.long), torch.rand(S), {"probability": torch.full((S,), 0.1)}
    one.learn(Observation(1.0, arm, reward, why))
    other.learn(Observation(1.0, arm, reward.double(), why))
    assert differing(one.state, other.state) == []
