"""The laws for plug-ins hold for what the package has, and catch what breaks them."""

import pytest
from gpytorch.kernels import Kernel

from bandits_torch.kernels import ExponentialForgettingKernel, WienerKernel
from bandits_torch.problems import PROBLEMS, problem
from bandits_torch.testing import KernelLaws, ProblemLaws, RecipeLaws
from tests.reference.all_recipes import of_every_kind


def laws_of(kind):
    return [getattr(kind, name) for name in dir(kind) if name.startswith("test_")]


@pytest.mark.parametrize("law", laws_of(RecipeLaws), ids=lambda law: law.__name__)
@pytest.mark.parametrize("name", of_every_kind())
def test_every_recipe_obeys(name, law):
    law(type("Laws", (RecipeLaws,), {"name": name})())


PLAIN = [name for name in PROBLEMS if not problem.REGISTERED[name].needs_data]
OVER_ARMS = [name for name in PLAIN if name in ("gp", "switching", "tv-gp", "cosine", "hills")]


@pytest.mark.parametrize("law", laws_of(ProblemLaws), ids=lambda law: law.__name__)
@pytest.mark.parametrize("name", OVER_ARMS)
def test_problems_over_arms_obey(name, law):
    law(type("Laws", (ProblemLaws,), {"name": name})())


@pytest.mark.parametrize("law", laws_of(KernelLaws), ids=lambda law: law.__name__)
@pytest.mark.parametrize(
    "kernel", [ExponentialForgettingKernel(0.1), WienerKernel(0.2)], ids=["forgetting", "wiener"]
)
def test_kernels_obey(kernel, law):
    law(type("Laws", (KernelLaws,), {"build": lambda self: kernel})())


class Distance(Kernel):
    """No covariance: |x - x'|."""

    def forward(self, x1, x2, diag=False, **params):
        return self.covar_dist(x1, x2, diag=diag)


def test_a_kernel_that_is_none_is_caught():
    laws = type("Laws", (KernelLaws,), {"build": lambda self: Distance()})()
    with pytest.raises(AssertionError, match="smallest eigenvalue"):
        laws.test_its_matrix_is_symmetric_and_positive_semidefinite()


class Counting(RecipeLaws):
    """A recipe whose choices are counted, which is a change."""

    name = "gp_ucb"

    def build(self, replicates=3, first=0):
        policy, made = super().build(replicates, first)
        choose = policy.choose
        calls = []

        def counting(time, *arguments):
            calls.append(time)
            choice = choose(time, *arguments)
            return choice if len(calls) % 2 else type(choice)((choice.arm + 1) % 12, choice.why)

        policy.choose = counting
        return policy, made


def test_a_choice_that_changes_something_is_caught():
    with pytest.raises(AssertionError, match="step 1"):
        Counting().test_a_choice_changes_nothing()


class Forgetful(RecipeLaws):
    """A recipe that loses its state when it is loaded."""

    name = "gp_ucb"

    def build(self, replicates=3, first=0):
        policy, made = super().build(replicates, first)
        policy.load_state_dict = lambda state: None
        return policy, made


def test_a_state_that_is_lost_is_caught():
    with pytest.raises(AssertionError, match="resumed"):
        Forgetful().test_a_run_that_was_killed_goes_on_as_if_it_had_not_been()
