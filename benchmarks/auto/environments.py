"""Simulated environments of the protocol beside the leaderboard's, and hidden risers: arms, or a region of a domain,
that become best while nobody looks at them."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bandits_torch import Domain
from bandits_torch.experiments import Block
from bandits_torch.kernels import ArmCovarianceKernel
from bandits_torch.problems import ContinuousProblem, Knowledge, Problem, Replay, RewardTable
from bandits_torch.problems.simulated import make_kernel
from bandits_torch.streams import ReplicateStreams
from benchmarks.leaderboard import settings
from benchmarks.leaderboard.environments import Record, RecordSetting

_ARMS, _NOISE = 100, 0.1


class Scripted(Problem):
    """Expected ``rewards`` (T, S, N) laid out beforehand; ``noise`` of step, expected rewards (S,) of the arms pulled
    and streams, (S,); ``available`` (T, N), None for all."""

    def __init__(
        self,
        arms: Tensor,
        rewards: Tensor,
        knowledge: Knowledge,
        noise: Callable[[int, Tensor, ReplicateStreams], Tensor],
        available: Tensor | None = None,
    ) -> None:
        self.arms, self.knowledge, self.horizon = arms, knowledge, len(rewards)
        self.replicates = rewards.shape[1]
        self._rewards, self._noise, self._available = rewards, noise, available

    def expected_rewards(self, step: int) -> Tensor:
        """(S, N)."""
        self.check_step(step)
        return self._rewards[step - 1]

    def noise(self, step: int, arm: Tensor, streams: ReplicateStreams) -> Tensor:
        expected = self._rewards[step - 1].expand(len(arm), -1).gather(-1, arm.unsqueeze(-1)).squeeze(-1)
        return self._noise(step, expected, streams)

    def available(self, step: int) -> Tensor | None:
        return None if self._available is None else self._available[step - 1]


def _generators(block: Block, salt: int) -> list[torch.Generator]:
    first, seed = block.first_replicate, block.seed
    return [
        torch.Generator().manual_seed(1_000_003 * seed + 1_009 * salt + k)
        for k in range(first, first + block.replicates)
    ]


def _arms(block: Block) -> tuple[Tensor, Kernel, Tensor]:
    """100 arms uniform in [0, 1], the kernel (SE, length-scale 0.2), a root of its matrix."""
    generator = torch.Generator().manual_seed(7_919 * block.seed + 17)
    arms = torch.rand(_ARMS, 1, generator=generator, dtype=torch.float64)
    kernel = make_kernel("se", 0.2)
    values, vectors = torch.linalg.eigh(kernel(arms).to_dense())
    return arms, kernel, vectors * values.clamp_min(0.0).sqrt()


def _draws(block: Block, salt: int, count: int, root: Tensor) -> Tensor:
    """(count, S, N) independent draws."""
    n = len(root)
    drawn = [torch.randn(count, n, generator=g, dtype=torch.float64) for g in _generators(block, salt)]
    return torch.stack([normal @ root.T for normal in drawn], 1)


def _gaussian(scale: float) -> Callable[[int, Tensor, ReplicateStreams], Tensor]:
    return lambda step, expected, streams: scale * streams.normal()


def _pieces(draws: Tensor, horizon: int) -> Tensor:
    """Piece after piece, of equal length: (T, S, N)."""
    which = torch.arange(horizon) * len(draws) // horizon
    return draws[which]


def _drift(block: Block, salt: int, root: Tensor, rates: list[float]) -> Tensor:
    """f <- sqrt(1 - eps) f + sqrt(eps) g with the eps of each step."""
    first, *draws = _draws(block, salt, len(rates), root)
    path = [first]
    for eps, draw in zip(rates[1:], draws, strict=True):
        path.append(math.sqrt(1 - eps) * path[-1] + math.sqrt(eps) * draw)
    return torch.stack(path)


def _heavy_tails(block: Block) -> Problem:
    """Two switches; noise of scale 0.1, and one reward in twenty off by a Cauchy number."""
    arms, kernel, root = _arms(block)

    def noise(step: int, expected: Tensor, streams: ReplicateStreams) -> Tensor:
        far = torch.tan(math.pi * (streams.uniform() - 0.5)).clamp(-50, 50)
        return _NOISE * streams.normal() + torch.where(streams.uniform() < 0.05, far, 0.0)

    rewards = _pieces(_draws(block, 1, 3, root), block.horizon)
    return Scripted(arms, rewards, Knowledge(kernel, _NOISE**2, forgetting_rate=0.01), noise)


def _partial_switches(block: Block) -> Problem:
    """Four times the function changes on a random third of the interval, smoothly blended."""
    arms, kernel, root = _arms(block)
    draws = _draws(block, 2, 5, root)
    for piece in range(1, 5):
        for s, g in enumerate(_generators(block, 20 + piece)):
            centre = torch.rand(1, generator=g, dtype=torch.float64)
            changed = torch.sigmoid((1 / 6 - (arms[:, 0] - centre).abs()) / 0.02)
            draws[piece, s] = changed * draws[piece, s] + (1 - changed) * draws[piece - 1, s]
    knowledge = Knowledge(kernel, _NOISE**2, forgetting_rate=0.01)
    return Scripted(arms, _pieces(draws, block.horizon), knowledge, _gaussian(_NOISE))


def _drift_stops(block: Block) -> Problem:
    """Still for a third, drifting at rate 0.05 for a third, still for a third."""
    arms, kernel, root = _arms(block)
    T = block.horizon
    rates = [0.05 if T // 3 <= step < 2 * T // 3 else 0.0 for step in range(T)]
    knowledge = Knowledge(kernel, _NOISE**2, forgetting_rate=0.017)
    return Scripted(arms, _drift(block, 3, root, rates), knowledge, _gaussian(_NOISE))


def _bernoulli(block: Block) -> Problem:
    """Forty arms without features, success probabilities uniform on [0, 1], drawn anew four times."""
    g = _generators(block, 4)
    p = torch.stack([torch.rand(5, 40, generator=x, dtype=torch.float64) for x in g], 1)
    knowledge = Knowledge(ArmCovarianceKernel(torch.eye(40, dtype=torch.float64) / 12), 1 / 6, 0.5)

    def noise(step: int, expected: Tensor, streams: ReplicateStreams) -> Tensor:
        return (streams.uniform() < expected).to(expected) - expected

    arms = torch.arange(40, dtype=torch.float64).unsqueeze(-1)
    return Scripted(arms, _pieces(p, block.horizon), knowledge, noise)


def _noise_changes(block: Block) -> Problem:
    """Drift at rate 0.01; the noise's scale is 0.03, then 1, then 0.1."""
    arms, kernel, root = _arms(block)
    T = block.horizon
    rewards = _drift(block, 5, root, [0.01] * T)
    scales = (0.03, 1.0, 0.1)

    def noise(step: int, expected: Tensor, streams: ReplicateStreams) -> Tensor:
        return scales[min(2, 3 * (step - 1) // T)] * streams.normal()

    return Scripted(arms, rewards, Knowledge(kernel, _NOISE**2, forgetting_rate=0.01), noise)


def _daily_cycle(block: Block) -> Problem:
    """f(x) + cos(w t) g(x) + sin(w t) h(x) with a period of 48 steps."""
    arms, kernel, root = _arms(block)
    f, g, h = _draws(block, 6, 3, root) / math.sqrt(2)
    angle = 2 * math.pi * torch.arange(block.horizon, dtype=torch.float64)[:, None, None] / 48
    rewards = f + angle.cos() * g + angle.sin() * h
    return Scripted(arms, rewards, Knowledge(kernel, _NOISE**2, forgetting_rate=0.03), _gaussian(_NOISE))


def _arms_come_and_go(block: Block) -> Problem:
    """Slow drift; every 50 steps another random half of the arms can be pulled."""
    arms, kernel, root = _arms(block)
    T = block.horizon
    rewards = _drift(block, 7, root, [0.003] * T)
    g = torch.Generator().manual_seed(block.seed + 31)
    masks = torch.rand(T // 50 + 1, _ARMS, generator=g) < 0.5
    available = masks[torch.arange(T) // 50]
    knowledge = Knowledge(kernel, _NOISE**2, forgetting_rate=0.003)
    return Scripted(arms, rewards, knowledge, _gaussian(_NOISE), available)


def _misleading_history(block: Block) -> Problem:
    """The kernel that is given is that of other arms: right variances, the wrong neighbours; slow drift."""
    arms, kernel, root = _arms(block)
    g = torch.Generator().manual_seed(block.seed + 41)
    order = torch.randperm(_ARMS, generator=g)
    wrong = kernel(arms).to_dense()[order][:, order]
    rewards = _drift(block, 8, root, [0.003] * block.horizon)
    given = ArmCovarianceKernel(wrong, active_dims=(0,))
    index = torch.arange(_ARMS, dtype=torch.float64).unsqueeze(-1)
    knowledge = Knowledge(given, _NOISE**2, forgetting_rate=0.003)
    return Scripted(torch.cat([index, arms], -1), rewards, knowledge, _gaussian(_NOISE))


SIMULATED: dict[str, Callable[[Block], Problem]] = {
    "heavy-tails": _heavy_tails,
    "partial-switches": _partial_switches,
    "drift-stops": _drift_stops,
    "bernoulli": _bernoulli,
    "noise-changes": _noise_changes,
    "daily-cycle": _daily_cycle,
    "arms-come-and-go": _arms_come_and_go,
    "misleading-history": _misleading_history,
}


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
    """An environment of the family by its name. The quiet time is drawn uniformly in [q, 1.2 q], so that no rival's
    schedule of restarts meets it by luck."""

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
        if self.shape in DOMAINS:
            return Hills(int(self.shape[-1]), self.changes(block), block, self.horizon)
        rise, (arms, kernel, noise, mean) = self.rise(block), self._given(block)
        steps = torch.arange(1, self.horizon + 1)
        risen = (steps.unsqueeze(-1) > rise.quiet).unsqueeze(-1)  # (T, S, 1)
        knowledge = Knowledge(kernel, noise**2, prior_mean=mean, forgetting_rate=0.01)
        return Scripted(arms, torch.where(risen, rise.after, rise.before), knowledge, _gaussian(noise))

    def history(self, block: Block) -> Tensor:
        """Rewards of every arm of the first replicate in 200 steps like the quiet ones, (200, N)."""
        rise, (_, _, noise, _) = self.rise(block), self._given(block)
        generator, arms = _generators(block, 60)[0], rise.before.shape[-1]
        drawn = torch.randn(200, arms, generator=generator, dtype=torch.float64)
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
        changed = _region(block) if self.shape == "region-of-100" else _unrelated(self.shape, generators)
        return Rise(*changed, quiet)

    def _given(self, block: Block) -> tuple[Tensor, Kernel, float, float]:
        """Arms, kernel, noise's scale and prior mean."""
        if self.shape == "region-of-100":
            arms, kernel, _ = _arms(block)
            return arms, kernel, 0.1, 0.0
        n = int(self.shape.split("-")[-1])
        covariance = _UNIT**2 * torch.eye(n, dtype=torch.float64)
        arms = torch.arange(n, dtype=torch.float64).unsqueeze(-1)
        return arms, ArmCovarianceKernel(covariance), _GAUSSIAN_NOISE, _MEAN


def _unrelated(shape: str, generators: list[torch.Generator]) -> tuple[Tensor, Tensor]:
    """Rewards before and after (S, N): the best earns 13 000, others 11 500 at most. One mediocre arm of 8, or the
    three worst of 30, rise to 16 000 or, one of the three, to 14 000 and 12 000."""
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
    """A hill of height 1 in the unit cube of d inputs, and from each replicate's change, after ``quiet`` (S,) steps,
    one of height 2 far away."""

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


_MID_JUNE_2013, _NEW_YEAR_2014 = 1_371_254_400, 1_388_534_400


UNSEEN = ("cmu-light", "molene-rain", "beijing-o3")  # nothing was developed on these
_EARLY: dict[str, tuple[str, dict[str, Any], int]] = {
    "light-early": ("intel-light", {"day": "2004-03-06", "days": 5}, 288),
    "humidity-early": ("intel-humidity", {"day": "2004-03-06", "days": 5}, 288),
    "pm25-early": ("beijing-pm25", {"start": "2013-09-01"}, 500),
    "molene-temperature": ("molene-temperature", {}, 240),
}
DEVELOPED_ON = (*_EARLY, "o3-early", "cmu-light-training")


class CleanTable(Replay):
    """A table of one replicate whose rewards without noise are known, ``_clean`` (T, N): regret is counted in these."""

    _clean: Tensor

    def expected_rewards(self, step: int) -> Tensor:
        """The rewards without their noise, NaN where missing, (1, N)."""
        table = super().expected_rewards(step)
        return torch.where(table.isnan(), table, self._clean[step - 1])

    def noise(self, step: int, arm: Tensor, streams: ReplicateStreams) -> Tensor:
        """What the table has beyond that."""
        return (self.table[step - 1] - self._clean[step - 1])[arm]


class FirmTable(CleanTable):
    """A table such as a firm would have: 40 arms in five groups, a season of 24 hours, drift, a jump, irregular times,
    3 % missing, noise of 15 % of the variance, rewards in thousands, two constant arms. The first fifth is history."""

    def __init__(self, seed: int, rows: int = 625) -> None:
        g = np.random.default_rng(seed)
        n = 40
        hours = np.cumsum(g.exponential(1.0, rows) * np.where(g.random(rows) < 0.03, 12.0, 1.0))
        group = g.integers(5, size=n)
        level, season = g.normal(0, 0.7, 5)[group] + g.normal(0, 0.5, n), g.normal(0, 0.5, 5)[group]
        phase = g.uniform(0, 2 * np.pi, 5)[group] + g.normal(0, 0.2, n)
        walk = np.cumsum(g.normal(0, 0.05, (rows, 5)), 0)[:, group]
        walk = walk + np.cumsum(g.normal(0, 0.02, (rows, n)), 0)
        jump = np.where(np.arange(rows)[:, None] >= int(rows * g.uniform(0.4, 0.8)), g.normal(0, 1.0, n), 0.0)
        clean = level + season * np.cos(2 * np.pi * hours[:, None] / 24 + phase) + walk + jump
        clean = 5.0 + clean
        clean[:, :2] = 5.0
        noise = g.normal(0, math.sqrt(0.15 * clean[:, 2:].var()), (rows, n))
        noise[:, :2] = 0.0
        table = 1000 * (clean + noise)
        table[g.random((rows, n)) < 0.03] = np.nan
        super().__init__(RewardTable(torch.from_numpy(table), torch.from_numpy(3600.0 * hours)))
        self._clean = 1000 * torch.from_numpy(clean[-len(self.table) :])
        assert len(self.table) == self.horizon


def record(name: str, block: Block, data: Path) -> Record:
    """One of ``UNSEEN``, from as many evenly spread starts as on the leaderboard, or of ``DEVELOPED_ON``, from ten: the
    protocol has their rows, and how many of them are history."""
    starts, history = settings.REPLICATES if name in UNSEEN else 10, None
    if name in _EARLY:
        problem, options, steps = _EARLY[name]
        return RecordSetting(problem, options, str(data), steps, starts)(block)
    if name == "molene-rain":
        (table, arms), steps = _arrays(data / "molene_weather.npz", "rain", "rain_xy_km"), 240
    elif name in ("beijing-o3", "o3-early"):
        ozone, time, arms = _arrays(data / "beijing_air.npz", "o3", "time", "latlon_approx")
        first = int((time < (_NEW_YEAR_2014 if name == "beijing-o3" else _MID_JUNE_2013)).sum())
        table, history, steps = ozone[first : first + 1000], ozone[max(first - 90 * 24, 0) : first], 500
    else:
        table, history, arms = _arrays(data / "cmu_light.npz", "test", "train", "xy")
        if name == "cmu-light-training":
            table, history = history[301:], history[:301]
        steps = 144
    replay = Replay(table, arms=arms, history=history)
    return Record(replay, min(steps, block.horizon), starts, block.first_replicate, block.replicates)


def _arrays(file: Path, *names: str) -> list[Tensor]:
    with np.load(file, allow_pickle=False) as arrays:
        return [torch.from_numpy(arrays[name].astype(np.float64)) for name in names]
