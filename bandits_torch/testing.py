"""Laws that every recipe, problem and kernel obeys, as base classes for a plug-in's tests.

For pytest, write a subclass named ``Test...`` that sets ``name``, or that defines ``build`` for a kernel::

    from bandits_torch.testing import RecipeLaws

    class TestMine(RecipeLaws):
        name = "my_recipe"
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar
from unittest import SkipTest

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bandits_torch import problems, recipes
from bandits_torch.kernels import MarkovTimeKernel
from bandits_torch.loop import run
from bandits_torch.policies.policy import Observation, Policy
from bandits_torch.problems.problem import Problem
from bandits_torch.state import differing


class RecipeLaws:
    """Laws of a recipe over arms: a choice changes nothing, a resumed run loses nothing, replicates share nothing.

    Attributes:
        name: the recipe's name, for ``recipes.build``.
        options: its options in these tests, in addition to its ``quick`` ones.
        horizon: number of steps of a run.
        together: why the laws about restarts are skipped: what replicates share or a reset keeps.
        ordered: why the law about the order of arms is skipped, as for recipes that draw random numbers.
        scaled: why the law about the unit of rewards is skipped, as for recipes that are not ``scale_free``.
    """

    name: ClassVar[str]
    options: ClassVar[Mapping[str, Any]] = {}
    horizon: ClassVar[int] = 20
    together: ClassVar[str] = ""
    ordered: ClassVar[str] = ""
    scaled: ClassVar[str] = ""

    def build(self, replicates: int = 3, first: int = 0) -> tuple[Policy, Problem]:
        """The policy and a problem for it, with replicates from ``first`` onwards. Override it for another problem."""
        about = recipes.registered(self.name)
        common: dict[str, Any] = {"replicates": replicates, "seed": 3, "first_replicate": first}
        if about.belief in (None, "kernel"):
            problem = problems.make("switching", horizon=max(self.horizon, 4), num_arms=12, **common)
        else:
            problem = problems.make("hills", num_arms=21, **common)
        numbered = {"first_replicate": first} if "first_replicate" in about.options else {}
        options = {"horizon": self.horizon, **about.quick, **numbered, **self.options}
        return recipes.build(self.name, problem, replicates=replicates, seed=3, **options), problem

    def test_a_choice_changes_nothing(self) -> None:
        """Two calls of ``choose`` give the same choice, and change no state except that of random numbers."""
        policy, problem = self.build()
        seeded = recipes.registered(self.name).seeded
        for step in range(1, self.horizon + 1):
            before = copy.deepcopy(policy.state_dict())
            first = policy.choose(float(step))
            if seeded:
                policy.load_state_dict(before)
            second = policy.choose(float(step))
            assert torch.equal(first.arm, second.arm), f"step {step}: {first.arm}, then {second.arm}"
            changed = [] if seeded else differing(before, policy.state_dict())
            assert not changed, f"step {step}: choose changed {changed}"
            policy.learn(Observation(float(step), first.arm, _reward(problem, first.arm, step), first.why))

    def test_a_run_that_was_killed_goes_on_as_if_it_had_not_been(self) -> None:
        """A new policy that loads the state in the middle of a run chooses like the policy that continues."""
        (policy, problem), (fresh, _), half = self.build(), self.build(), self.horizon // 2
        for step in range(1, half):
            _play(policy, problem, step)
        fresh.load_state_dict(copy.deepcopy(policy.state_dict()))
        for step in range(half, self.horizon + 1):
            arm, again = _play(policy, problem, step), _play(fresh, problem, step)
            assert torch.equal(arm, again), f"step {step}: {arm}, resumed {again}"

    def test_a_replicate_alone_plays_as_in_the_batch(self) -> None:
        """Replicate 1 of three makes the same choices as when it is the only one."""
        together = run(*self.build(3), self.horizon, seed=2)
        alone = run(*self.build(1, first=1), self.horizon, seed=2, first_replicate=1)
        assert torch.equal(together.arms[1], alone.arms[0]), f"{together.arms[1]}, alone {alone.arms[0]}"

    def test_a_reset_policy_is_a_fresh_one(self) -> None:
        """After ``reset`` the policy behaves like a new one that has drawn as many random numbers."""
        _skip_for(self.together)
        self._begins_anew(None)

    def test_a_restart_of_some_replicates_begins_anew_there_alone(self) -> None:
        """After ``reset(where)`` these replicates continue as in a new policy, and the others as before."""
        _skip_for(self.together)
        self._begins_anew(torch.tensor([True, False, True]))

    def _begins_anew(self, where: Tensor | None) -> None:
        """Play, reset, and continue with negated rewards, so policies that detect changes find some."""
        (policy, problem), (fresh, _) = self.build(), self.build()
        for step in range(1, self.horizon + 1):
            _play(policy, problem, step)
        other, both = copy.deepcopy(policy), (policy, fresh)
        _draw_alike(policy, fresh)
        for one in both:
            one.reset(where)
        _draw_alike(policy, other)  # the reset may have drawn numbers
        restarted = torch.ones(policy.replicates, dtype=torch.bool) if where is None else where
        for step in range(self.horizon + 1, 2 * self.horizon + 1):
            found, new, same = (_play(one, problem, step, -1.0) for one in (*both, other))
            expected = torch.where(restarted, new, same)
            assert torch.equal(found, expected), f"step {step}: {found}, expected {expected}"
        for name in policy.trace():
            traces = (torch.as_tensor(one.trace()[name]).double() for one in (*both, other))
            found, new, same = (value.expand(policy.replicates) for value in traces)
            expected = torch.where(restarted, new, same)
            close = torch.allclose(found, expected, rtol=1e-7, atol=1e-7, equal_nan=True)
            assert close, f"trace {name}: {found}, expected {expected}"

    def test_rewards_in_another_unit_are_the_same(self) -> None:
        """Rewards times 8 lead to the same choices. If prior knowledge is optional, the recipe gets none."""
        free = recipes.registered(self.name).scale_free
        _skip_for(self.scaled if free else f"{self.name} does not declare scale_free")
        policy, problem = self.build()
        if recipes.registered(self.name).optional and policy.origin is not None:
            nothing = {"kernel": None, "noise_variance": None, "prior_mean": 0.0}
            origin = policy.origin
            policy = origin.recipe(replace(origin.setup, **nothing), **origin.options)
        other = copy.deepcopy(policy)
        for step in range(1, self.horizon + 1):
            one, two = _play(policy, problem, step), _play(other, problem, step, 8.0)
            assert torch.equal(one, two), f"step {step}: {one}, of rewards times 8 {two}"

    def test_the_order_of_arms_does_not_matter(self) -> None:
        """Once every arm has been played, and there are no ties, the order of the arms does not change the choices."""
        draws = f"{self.name} draws" if recipes.registered(self.name).seeded else ""
        _skip_for(self.ordered or draws)
        policy, problem = self.build()
        N = policy.num_arms
        order = torch.randperm(N, generator=torch.Generator().manual_seed(0))
        origin, places = policy.origin, order.argsort()
        if origin is None:
            raise SkipTest("no recipe made the policy, so it cannot be built with its arms in another order")
        of_arms = {
            name: value[..., order]
            for name, value in origin.options.items()
            if isinstance(value, Tensor) and value.shape[-1:] == order.shape
        }
        other = origin.recipe(origin.setup.of_arms(order), **{**origin.options, **of_arms})
        for step in range(1, N + 1):  # each arm once
            arm = torch.full((policy.replicates,), step - 1)
            _play(policy, problem, step, only=arm, sees=torch.arange(N))
            _play(other, problem, step, only=places[arm], sees=order)
        for step in range(N + 1, N + self.horizon + 1):
            one, two = _play(policy, problem, step), _play(other, problem, step, sees=order)
            assert torch.equal(one, order[two]), f"step {step}: {one}, in another order {order[two]}"


class ProblemLaws:
    """Laws of a problem: the seed determines it, reading changes nothing, and every reward is finite.

    Attributes:
        name: the problem's name, for ``make``.
        options: its options in these tests, in addition to its ``quick`` ones.
        horizon: number of steps tested.
    """

    name: ClassVar[str]
    options: ClassVar[Mapping[str, Any]] = {}
    horizon: ClassVar[int] = 10

    def build(self, seed: int = 0) -> Problem:
        """The problem, two replicates."""
        options = {**problems.registered(self.name).quick, **self.options}
        return problems.make(self.name, **{"replicates": 2, "horizon": self.horizon, "seed": seed} | options)

    def test_expected_rewards_are_numbers_that_asking_does_not_change(self) -> None:
        """Two problems with one seed agree at every step, in any order of steps, with a finite reward for each arm."""
        one, other = self.build(), self.build()
        steps = range(1, self.horizon + 1)
        backwards = {step: other.expected_rewards(step).clone() for step in reversed(steps)}
        for step in steps:
            found = one.expected_rewards(step)
            assert found.shape == (2, len(one.arms)), f"step {step}: shape {tuple(found.shape)}"
            assert bool(torch.isfinite(found).all()), f"step {step}: {found}"
            assert torch.equal(found, backwards[step]), f"step {step}: another value at a second call"

    def test_the_same_seed_is_the_same_run(self) -> None:
        """Random play of two problems with one seed gets the same rewards."""
        runs = []
        for _ in range(2):
            problem = self.build(seed=5)
            policy = recipes.build("random", problem, replicates=2, horizon=self.horizon, seed=1)
            runs.append(run(policy, problem, self.horizon, seed=2))
        assert torch.equal(runs[0].rewards, runs[1].rewards)
        assert bool(torch.isfinite(runs[0].rewards).all())


class KernelLaws:
    """Laws of a kernel: its matrix is symmetric and positive semidefinite, ``diag=True`` gives the diagonal, and a
    ``MarkovTimeKernel`` is Markov.

    Attributes:
        dim: number of input columns.
    """

    dim: ClassVar[int] = 1

    def build(self) -> Kernel:
        """The kernel, to be overridden."""
        raise NotImplementedError

    def _inputs(self) -> Tensor:
        return 10 * torch.rand(20, self.dim, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    @torch.no_grad()
    def test_its_matrix_is_symmetric_and_positive_semidefinite(self) -> None:
        """No eigenvalue is below -1e-8 times the largest."""
        matrix = self.build().double()(self._inputs()).to_dense()
        assert torch.allclose(matrix, matrix.mT)
        values = torch.linalg.eigvalsh(matrix)
        assert float(values[0]) >= -1e-8 * float(values[-1]), f"smallest eigenvalue {float(values[0]):g}"

    @torch.no_grad()
    def test_its_diagonal_is_that_of_its_matrix(self) -> None:
        """``diag=True`` gives the diagonal of the matrix."""
        kernel, X = self.build().double(), self._inputs()
        diagonal = kernel(X, diag=True)
        diagonal = diagonal if isinstance(diagonal, Tensor) else diagonal.to_dense()
        assert torch.allclose(diagonal, kernel(X).to_dense().diagonal())

    @torch.no_grad()
    def test_a_markov_kernel_is_markov(self) -> None:
        """k(r, t) k(s, s) = k(r, s) k(s, t) for r <= s <= t, if it is a ``MarkovTimeKernel``."""
        kernel = self.build().double()
        if not isinstance(kernel, MarkovTimeKernel):
            raise SkipTest("it is no MarkovTimeKernel")
        r, s, t = self._inputs()[:18, 0].sort().values.unflatten(0, (3, 6))
        k = kernel.covariance
        assert torch.allclose(k(r, t) * k(s, s), k(r, s) * k(s, t)), f"it has more memory at {r}, {s}, {t}"


def _skip_for(reason: str) -> None:
    if reason:
        raise SkipTest(reason)


def _draw_alike(policy: Policy, other: Policy) -> None:
    """Make ``other`` continue with the random numbers of ``policy``."""
    for source, target in zip(policy.random_streams(), other.random_streams(), strict=False):
        target.load_state_dict(source.state_dict())


def _play(
    policy: Policy,
    problem: Problem,
    step: int,
    scale: float = 1.0,
    only: Tensor | None = None,
    sees: Tensor | None = None,
) -> Tensor:
    """Choose at a step and learn the reward times ``scale``; returns the arms (S,). ``only``: (S,), the one available
    arm; ``sees``: (N,), the problem's index of each of the policy's arms."""
    mask = None if only is None else torch.nn.functional.one_hot(only, policy.num_arms).bool()
    choice = policy.choose(float(step), mask)
    arm = choice.arm if sees is None else sees[choice.arm]
    reward = scale * _reward(problem, arm, 1 + (step - 1) % 4)
    policy.learn(Observation(float(step), choice.arm, reward, choice.why))
    return choice.arm


def _reward(problem: Problem, arm: Tensor, step: int) -> Tensor:
    """The reward of arms (S,) at a step, without noise."""
    return problem.expected_rewards(step).gather(-1, arm.unsqueeze(-1)).squeeze(-1)
