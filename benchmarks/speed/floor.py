"""How much of a step is the recursion itself?"""

from dataclasses import dataclass, field

import pandas as pd
import torch
from torch import Tensor

from bandits_torch.kernels import ExponentialForgettingKernel, SpatioTemporalKernel
from bandits_torch.models.arms.covariance_form import PASSES, WAITS_FROM
from bandits_torch.policies import Observation, Policy, SlidingWindow
from benchmarks.pages import say
from benchmarks.speed.measuring import at_work, median
from benchmarks.speed.page import Settings
from benchmarks.speed.workload import NOISE_VARIANCE, WIDTH, Task, make_task, prior, ucb_on_arms

_RATE, _WINDOW, _FOLD = 0.01, 100, 32
_SIZES = [(100, 1), (100, 25), (1_000, 1), (1_000, 25)]


@dataclass
class Bare:
    """UCB over arms with the recursion of ``CovarianceForm``, of a window or a rate, and nothing else, in PyTorch
    calls: the least that PyTorch needs for one step at a time."""

    K: Tensor
    replicates: int
    window: int | None = None
    rate: float = 0.0
    held: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    def __post_init__(self) -> None:
        S, N = self.replicates, len(self.K)
        self.C, self.mean = self.K.repeat(S, 1, 1), self.K.new_zeros(S, N)
        self.prior_variance = self.K.diagonal().clone()
        # Whether C itself changes at every step, as in ``CovarianceForm``.
        self.few = self.window is not None or self.C.numel() < WAITS_FROM // PASSES
        of_C = self.C.diagonal(dim1=-2, dim2=-1)
        self.variance = of_C if self.few else of_C.clone()
        self.rows, self.weight, self.filled = self.K.new_zeros(S, _FOLD, N), self.K.new_zeros(_FOLD), 0
        self.kept, self.gained = 1.0, 0.0
        self.members = torch.arange(S)

    def choose(self) -> Tensor:
        if self.window is None:
            a2 = 1 - self.rate
            self.mean.mul_(a2**0.5)
            if self.few:
                self.C.mul_(a2).add_(self.K, alpha=1 - a2)
            else:
                self.variance.mul_(a2).add_(self.prior_variance, alpha=1 - a2)
                self.kept, self.gained = self.kept * a2, self.gained * a2 + 1 - a2
                self.weight.mul_(a2)
        return self.variance.sqrt().mul_(WIDTH).add_(self.mean).argmax(-1)

    def learn(self, arm: Tensor, reward: Tensor) -> None:
        if self.window is None and not self.few:
            self._learn_rows(arm, reward)
            return
        self._rank_one(arm, reward, 1)
        if self.window is not None:
            self.held.append((arm, reward))
            if len(self.held) > self.window:
                self._rank_one(*self.held.pop(0), -1)

    def _rank_one(self, arm: Tensor, reward: Tensor, sign: int) -> None:
        at, column = arm.unsqueeze(-1), self.C[self.members, arm]
        own = column.gather(-1, at)
        total = own.mul(sign).add_(NOISE_VARIANCE)
        unit = column * total.rsqrt()
        step = (reward.unsqueeze(-1) - self.mean.gather(-1, at)) / total
        self.mean.addcmul_(column, step, value=sign)
        self.C.baddbmm_(unit.unsqueeze(-1), unit.unsqueeze(-2), alpha=-sign)

    def _learn_rows(self, arm: Tensor, reward: Tensor) -> None:
        at, rows = arm.unsqueeze(-1), self.rows[:, : self.filled]
        column = self.C[self.members, arm].mul_(self.kept).add_(self.K[arm], alpha=self.gained)
        weight = (self.rows[self.members, :, arm] * self.weight)[:, : self.filled]
        column = torch.baddbmm(column.unsqueeze(-2), weight.unsqueeze(-2), rows, alpha=-1).squeeze(-2)
        total = self.variance.gather(-1, at).add_(NOISE_VARIANCE)
        unit = column * total.rsqrt()
        step = (reward.unsqueeze(-1) - self.mean.gather(-1, at)) / total
        self.mean.addcmul_(column, step)
        self.variance.addcmul_(unit, unit, value=-1)
        self.rows[:, self.filled] = unit
        self.weight[self.filled] = 1.0
        self.filled += 1
        if self.filled == _FOLD:
            self.C.mul_(self.kept).add_(self.K, alpha=self.gained)
            rows = self.rows * self.weight.sqrt().unsqueeze(-1)
            self.C.baddbmm_(rows.mT, rows, alpha=-1)
            self.weight.zero_()
            self.filled, self.kept, self.gained = 0, 1.0, 0.0


def both(task: Task, drifts: bool) -> tuple[Policy, Bare]:
    """Our policy, and the same without anything around the recursion."""
    S, K = len(task.functions), prior()(task.arms).to_dense().detach()
    if drifts:
        kernel = SpatioTemporalKernel(prior(), ExponentialForgettingKernel(_RATE))
        return ucb_on_arms(task, kernel=kernel, form="covariance"), Bare(K, S, rate=_RATE)
    policy = ucb_on_arms(task, forgetting=SlidingWindow(_WINDOW), form="covariance")
    return policy, Bare(K, S, window=_WINDOW)


def steps(policy: Policy, bare: Bare, task: Task, number: int) -> tuple[list[float], list[float], float]:
    """Seconds of each step of both, and the share of choices that are the same. Both learn what the policy chose."""
    ours, theirs, same = [], [], 0.0
    for step in range(number):
        start = at_work(task.device)
        choice = policy.choose(float(step))
        chosen = at_work(task.device) - start
        reward = task.reward(step, choice.arm)
        observation = Observation(float(step), choice.arm, reward, choice.why)
        start = at_work(task.device)
        policy.learn(observation)
        ours.append(chosen + at_work(task.device) - start)
        start = at_work(task.device)
        arm = bare.choose()
        bare.learn(choice.arm, reward)
        theirs.append(at_work(task.device) - start)
        same += float((arm == choice.arm).double().mean()) / number
    return ours, theirs, same


def measure(settings: Settings) -> pd.DataFrame:
    """Median step of both, in turns, after the window is full."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    rows = []
    number, skipped = (40, 20) if settings.fast else (1_000, 200)
    for drifts in (True, False):
        for arms, replicates in _SIZES[:2] if settings.fast else _SIZES:
            say(f"{'drift' if drifts else 'window'}, {arms} arms, {replicates} replicates")
            task = make_task(arms, settings.device, replicates=replicates)
            with torch.no_grad():
                ours, bare, same = steps(*both(task, drifts), task, number)
            rows.append(
                {
                    "model": f"drift, rate {_RATE}" if drifts else f"window of {_WINDOW}",
                    "arms": arms,
                    "replicates": replicates,
                    "step": median(ours[skipped:]),
                    "bare": median(bare[skipped:]),
                    "same": same,
                }
            )
    torch.set_num_threads(threads)
    return pd.DataFrame(rows)
