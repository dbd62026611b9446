"""Hidden risers: arms, or a region of a domain, that become best while nobody looks at them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bandits_torch.domain import Domain
from bandits_torch.experiments.engines import Block
from bandits_torch.kernels import ArmCovarianceKernel
from bandits_torch.problems.continuous import ContinuousProblem
from bandits_torch.problems.problem import Knowledge, Problem
from bandits_torch.problems.simulated import make_kernel
from benchmarks.auto.environments import Scripted, _arms, _draws, _gaussian, _generators

AFTER = 500  # steps after the change, on which regret is counted
QUIET = (100, 500, 2_000)
SHAPES = ("one-of-8", "some-of-30", "region-of-100")
DOMAINS = ("domain-1", "domain-2")  # inputs
RISERS = tuple(f"{shape} after {quiet}" for shape in (*SHAPES, *DOMAINS) for quiet in QUIET)
_UNIT, _MEAN, _GAUSSIAN_NOISE = 2_000.0, 10_000.0, 500.0  # of arms that are unrelated
_REACH = 1 / 6  # half of the region's width
_HILL = 0.15  # deviation of a domain's hills, in its sides


class Rise(NamedTuple):
    """What the arms earn before and after, (S, N) each, and after how many quiet steps each replicate changes, (S,)."""

    before: Tensor
    after: Tensor
    quiet: Tensor


@dataclass(frozen=True)
class Riser:
    """An environment of the family by its name.

    The quiet time is drawn uniformly in [q, 1.2 q], so that no rival's schedule of restarts meets it by luck.
    """

    name: str

    @property
    def shape(self) -> str:
        """Which arms rise."""
        return self.name.split(" after ")[0]

    @property
    def quiet(self) -> int:
        """The shortest quiet time."""
        return int(self.name.split(" after ")[1])

    @property
    def horizon(self) -> int:
        """Steps, to the end of the last replicate's time after the change."""
        return math.ceil(1.2 * self.quiet) + AFTER

    def __call__(self, block: Block) -> Problem:
        """The problem of these replicates."""
        if self.shape in DOMAINS:
            return Hills(int(self.shape[-1]), self.changes(block), block, self.horizon)
        rise, (arms, kernel, noise, mean) = self.rise(block), self._told(block)
        steps = torch.arange(1, self.horizon + 1)
        risen = (steps.unsqueeze(-1) > rise.quiet).unsqueeze(-1)  # (T, S, 1)
        knowledge = Knowledge(kernel, noise**2, prior_mean=mean, forgetting_rate=0.01)
        return Scripted(arms, torch.where(risen, rise.after, rise.before), knowledge, _gaussian(noise))

    def history(self, block: Block) -> Tensor:
        """Rewards of every arm of the first replicate in 200 steps like the quiet ones, (200, N)."""
        rise, (_, _, noise, _) = self.rise(block), self._told(block)
        drawn = torch.randn(
            200, rise.before.shape[-1], generator=_generators(block, 60)[0], dtype=torch.float64
        )
        return rise.before[0] + noise * drawn

    def counted(self, regret: Tensor, block: Block) -> Tensor:
        """Regret (S, T) summed over the 500 steps after each replicate's change, (S,)."""
        quiet, steps = self.changes(block).unsqueeze(-1), torch.arange(1, regret.shape[-1] + 1)
        return torch.where((steps > quiet) & (steps <= quiet + AFTER), regret, 0.0).sum(-1)

    def changes(self, block: Block) -> Tensor:
        """After how many steps each replicate changes, (S,)."""
        return self._times(_generators(block, 61))

    def _times(self, generators: list[torch.Generator]) -> Tensor:
        most = self.quiet // 5 + 1
        return torch.tensor([self.quiet + int(torch.randint(0, most, (), generator=g)) for g in generators])

    def rise(self, block: Block) -> Rise:
        """What changes, and when; not over a domain."""
        generators = _generators(block, 61)
        quiet = self._times(generators)
        before, after = (
            _region(block) if self.shape == "region-of-100" else _unrelated(self.shape, generators)
        )
        return Rise(before, after, quiet)

    def _told(self, block: Block) -> tuple[Tensor, Kernel, float, float]:
        """Arms, kernel, noise's scale and prior mean."""
        if self.shape == "region-of-100":
            arms, kernel, _ = _arms(block)
            return arms, kernel, 0.1, 0.0
        n = int(self.shape.split("-")[-1])
        covariance = _UNIT**2 * torch.eye(n, dtype=torch.float64)
        arms = torch.arange(n, dtype=torch.float64).unsqueeze(-1)
        return arms, ArmCovarianceKernel(covariance), _GAUSSIAN_NOISE, _MEAN


def _unrelated(shape: str, generators: list[torch.Generator]) -> tuple[Tensor, Tensor]:
    """Rewards before and after (S, N): the best earns 13 000, others about 10 000 to 11 500 at most.

    One mediocre arm of 8, or the three worst of 30, rise to 16 000 or, one of the three, to 14 000 and 12 000.
    """
    n = int(shape.split("-")[-1])
    drawn = torch.stack([torch.randn(n, generator=g, dtype=torch.float64) for g in generators])
    before = (_MEAN + 1_000 * drawn).clamp(max=11_500.0)
    before.scatter_(-1, drawn.argmax(-1, keepdim=True), 13_000.0)
    order, after = drawn.argsort(-1), before.clone()
    if n == 8:
        after.scatter_(-1, order[:, n // 2 : n // 2 + 1], 16_000.0)
    else:
        rises = torch.tensor([16_000.0, 14_000.0, 12_000.0], dtype=torch.float64)
        after.scatter_(-1, order[:, :3], rises.expand(len(order), -1))
    return before, after


def _region(block: Block) -> tuple[Tensor, Tensor]:
    """Rewards before and after (S, 100): a region away from the best arm rises to one above it, smoothly blended."""
    arms, _, root = _arms(block)
    before = _draws(block, 62, 1, root)[0]
    after, x = before.clone(), arms[:, 0]
    for s, g in enumerate(_generators(block, 63)):
        best = x[before[s].argmax()]
        far = x[(x - best).abs() > 2 * _REACH]
        centre = far[torch.randint(0, len(far), (), generator=g)]
        risen = torch.sigmoid((_REACH - (x - centre).abs()) / 0.02)
        after[s] = (1 - risen) * before[s] + risen * (before[s].max() + 1 - (x - centre).square())
    return before, after


class Hills(ContinuousProblem):
    """A hill of height 1 in the unit cube of d inputs, and from each replicate's change on one of height 2 far away.

    Args:
        dim: d.
        quiet: (S,), steps before the change.
        block: the replicates; places of hills are drawn for each.
        horizon: steps.
    """

    functions_differ = True

    def __init__(self, dim: int, quiet: Tensor, block: Block, horizon: int) -> None:
        domain = Domain(torch.tensor([[0.0] * dim, [1.0] * dim], dtype=torch.float64))
        super().__init__(domain, block.replicates, 0.1, horizon)
        self.knowledge = Knowledge(make_kernel("matern", 0.2), 0.01, forgetting_rate=0.01)
        self.quiet, drawn = quiet, []
        for g in _generators(block, 64):
            places = 0.1 + 0.8 * torch.rand(1_000, 2, dim, generator=g, dtype=torch.float64)
            far = (places[:, 0] - places[:, 1]).square().sum(-1).sqrt() > 3 * _HILL
            drawn.append(places[far][0])
        self.first, self.second = torch.stack(drawn, 1)  # (S, d) each

    def expected(self, step: int, X: Tensor) -> Tensor:
        """The higher of the hills at points ``... x S x d``."""
        first, second = (
            (-(X - at).square().sum(-1) / (2 * _HILL**2)).exp() for at in (self.first, self.second)
        )
        return torch.where(step > self.quiet, torch.maximum(first, 2 * second), first)

    def best(self, step: int) -> Tensor:
        """The height of the higher hill, (S,)."""
        return torch.where(step > self.quiet, 2.0, 1.0).double()
