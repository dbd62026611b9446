"""The laws for plug-ins hold for what the package has, and catch what breaks them."""

import copy
import inspect
from dataclasses import replace
from unittest import SkipTest

import pytest
import torch
from gpytorch.kernels import Kernel, RBFKernel

from bandits_torch import kernels, recipes
from bandits_torch.kernels.temporal import TimeKernel
from bandits_torch.models import ArmGP
from bandits_torch.policies import Observation
from bandits_torch.problems import PROBLEMS, problem
from bandits_torch.problems.continuous import ContinuousProblem
from bandits_torch.recipes.registration import REGISTERED
from bandits_torch.state import HasState, copied
from bandits_torch.testing import KernelLaws, ProblemLaws, RecipeLaws
from tests.fuzz import public
from tests.reference import all_recipes


def laws_of(kind):
    return [getattr(kind, name) for name in dir(kind) if name.startswith("test_")]


def name_of(law):
    return law.__name__


LONG = {"r_gp_ucb": {"interval": 100}, "sliding_window_ucb": {"window": 100}}  # arms that are forgotten tie
OF_RESTARTS = (
    "test_a_reset_policy_is_a_fresh_one",
    "test_a_restart_of_some_replicates_begins_anew_there_alone",
)
# What replicates share: units and the pace of time that auto has learned (tests/policies/test_averaging.py), and when
# R-PERP draws its orders.
TOGETHER = {"auto", "auto-cycles", "auto-control", "r_perp"}


@pytest.mark.parametrize(
    "law", [law for law in laws_of(RecipeLaws) if name_of(law) not in OF_RESTARTS], ids=name_of
)
@pytest.mark.parametrize("name", all_recipes.of_every_kind())
def test_every_recipe_obeys(name, law):
    own = {"name": name}
    if law is RecipeLaws.test_the_order_of_arms_does_not_matter:
        own["options"] = LONG.get(name, {})
    law(type("Laws", (RecipeLaws,), own)())


@pytest.mark.sampled(2)
@pytest.mark.parametrize("everywhere", [True, False])
@pytest.mark.parametrize("name", [*recipes.RECIPES, *all_recipes.WITH_SETTINGS])
def test_every_recipe_begins_anew_where_it_is_told_to(name, everywhere):
    class Laws(RecipeLaws):
        # Those without a belief find changes late.
        horizon = 60 if recipes.registered(name.split("-")[0]).belief is None else 40

        def build(self):
            return all_recipes.build(name, 3, 2 * self.horizon, num_arms=5)

    if everywhere or name not in TOGETHER:
        getattr(Laws(), OF_RESTARTS[not everywhere])()


PLAIN = [name for name in PROBLEMS if not problem.REGISTERED[name].needs_data]
OVER_ARMS = [name for name in PLAIN if not issubclass(problem.REGISTERED[name].factory, ContinuousProblem)]


def keep_alike(policy, other):
    """Give ``other`` what a reset of ``policy`` keeps, such as the points from which the next search starts."""
    for name in policy._lasting:
        setattr(other, name, copied(getattr(policy, name)))
    for one, two in zip(policy._leaves(), other._leaves(), strict=True):
        if isinstance(one, HasState):
            keep_alike(one, two)


OVER_POINTS = [name for name, about in REGISTERED.items() if about.points]
OVER_POINTS += [name for name in all_recipes.OF_THEIR_OWN if "-" in name and name != "gp_ucb-learning"]
TOGETHER_OVER_POINTS = {
    "auto",
    "auto-moves",
    "safe_gp_ucb",
}  # units, pace of time, points that a search tries again


@pytest.mark.sampled(4)
@pytest.mark.parametrize("everywhere", [True, False])
@pytest.mark.parametrize("name", OVER_POINTS)
def test_so_it_does_over_points(name, everywhere):
    if not everywhere and name in TOGETHER_OVER_POINTS:
        return

    def play(policy, step, sign=1.0):
        choice = policy.choose(float(step))
        reward = problem.expected(1 + step, choice.arm).detach() * torch.tensor([1.0, -1.0, 0.5]) * sign
        policy.learn(Observation(float(step), choice.arm, reward, choice.why))
        return choice.arm

    (policy, problem), (fresh, _) = (all_recipes.build_over_points(name, 3, 40) for _ in range(2))
    restarted = torch.tensor([True, everywhere, True])
    where = None if everywhere else restarted
    for step in range(5):
        play(policy, step)
    other = copy.deepcopy(policy)
    for one in (policy, fresh):
        one.reset(where)
    for source, target in zip(policy.random_streams(), fresh.random_streams(), strict=True):
        target.load_state_dict(source.state_dict())
    keep_alike(policy, fresh)
    for step in range(5, 10):
        found, new, same = (play(one, step, -1.0) for one in (policy, fresh, other))
        expected = torch.where(restarted.unsqueeze(-1), new, same)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-6, msg=f"step {step}")


@pytest.mark.parametrize("law", laws_of(ProblemLaws), ids=name_of)
@pytest.mark.parametrize("name", OVER_ARMS)
def test_problems_over_arms_obey(name, law):
    law(type("Laws", (ProblemLaws,), {"name": name})())


OVER_TIME = [
    name
    for name in kernels.__all__
    if isinstance(kind := getattr(kernels, name), type)
    and issubclass(kind, TimeKernel)
    and not inspect.isabstract(kind)
]


@pytest.mark.parametrize("law", laws_of(KernelLaws), ids=name_of)
@pytest.mark.parametrize("name", OVER_TIME)
def test_every_kernel_over_time_obeys(name, law):
    def build(self):
        return getattr(kernels, name)(**public.valid(f"kernels.{name}"))

    try:
        law(type("Laws", (KernelLaws,), {"build": build})())
    except SkipTest:
        assert not issubclass(getattr(kernels, name), kernels.MarkovTimeKernel)


class Distance(Kernel):
    """No covariance: |x - x'|."""

    def forward(self, x1, x2, diag=False, **params):
        return self.covar_dist(x1, x2, diag=diag)


class LongMemory(kernels.MarkovTimeKernel):
    """The rational quadratic kernel, which is not Markov."""

    def covariance(self, s, t):
        return 1 / (1 + (torch.as_tensor(s) - t).square() / 800)


def test_a_kernel_that_is_not_markov_is_caught():
    laws = type("Laws", (KernelLaws,), {"build": lambda self: LongMemory()})()
    with pytest.raises(AssertionError, match="more memory"):
        laws.test_a_markov_kernel_is_markov()
    arms = torch.zeros(2, 1).double()
    with pytest.raises(ValueError, match=r"^kernel\.time_kernel must be Markov, .*, got 'LongMemory'"):
        ArmGP(arms, kernels.SpatioTemporalKernel(RBFKernel().double(), LongMemory()), 0.1)


def test_a_kernel_that_is_none_is_caught():
    laws = type("Laws", (KernelLaws,), {"build": lambda self: Distance()})()
    with pytest.raises(AssertionError, match="smallest eigenvalue"):
        laws.test_its_matrix_is_symmetric_and_positive_semidefinite()


class Spoilt(RecipeLaws):
    """GP-UCB, changed by ``spoil``."""

    name = "gp_ucb"

    def build(self, replicates=3, first=0):
        policy, made = super().build(replicates, first)
        self.spoil(policy)
        return policy, made

    def counts_its_choices(self, policy):
        choose, calls = policy.choose, []

        def counting(time, *arguments):
            calls.append(time)
            choice = choose(time, *arguments)
            return choice if len(calls) % 2 else type(choice)((choice.arm + 1) % 12, choice.why)

        policy.choose = counting

    def forgets_what_it_loads(self, policy):
        policy.load_state_dict = lambda state: None

    def restarts_all(self, policy):
        reset = policy.reset
        policy.reset = lambda where=None: reset()

    def restarts_none(self, policy):
        reset = policy.reset
        policy.reset = lambda where=None: None if where is not None else reset()

    def prefers_arm_3(self, policy):
        choose, recipe = policy.choose, policy.origin.recipe

        def three(time, available=None):
            choice = choose(time, available)
            return choice if available is not None else type(choice)(0 * choice.arm + 3, choice.why)

        def stubborn(*given, **options):
            one = recipe(*given, **options)
            self.prefers_arm_3(one)
            return one

        policy.choose, policy.origin = three, replace(policy.origin, recipe=stubborn)


def test_a_unit_that_matters_is_caught(monkeypatch):
    laws = type("Laws", (RecipeLaws,), {"name": "gp_ucb"})()
    with pytest.raises(SkipTest, match="gp_ucb does not declare"):
        laws.test_rewards_in_another_unit_are_the_same()
    monkeypatch.setitem(REGISTERED, "gp_ucb", replace(REGISTERED["gp_ucb"], scale_free=True))
    with pytest.raises(AssertionError, match="of rewards times 8"):
        laws.test_rewards_in_another_unit_are_the_same()


RESTARTS = RecipeLaws.test_a_restart_of_some_replicates_begins_anew_there_alone


@pytest.mark.parametrize(
    ("spoil", "law", "said"),
    [
        (Spoilt.counts_its_choices, RecipeLaws.test_a_choice_changes_nothing, "step 1"),
        (Spoilt.restarts_all, RESTARTS, r"step \d+: .*, expected"),
        (Spoilt.restarts_none, RESTARTS, r"step \d+: .*, expected"),
        (Spoilt.prefers_arm_3, RecipeLaws.test_the_order_of_arms_does_not_matter, "in another order"),
        (
            Spoilt.forgets_what_it_loads,
            RecipeLaws.test_a_run_that_was_killed_goes_on_as_if_it_had_not_been,
            "resumed",
        ),
    ],
)
def test_a_recipe_that_breaks_a_law_is_caught(spoil, law, said):
    with pytest.raises(AssertionError, match=said):
        law(type("Laws", (Spoilt,), {"spoil": spoil})())
