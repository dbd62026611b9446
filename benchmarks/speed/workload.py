"""The task that every benchmark plays: GP-UCB over arms in a cube, Matern-5/2 prior, everything known and fixed."""

from dataclasses import dataclass
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bandits_torch.acquisition import UpperConfidenceBound
from bandits_torch.models import ArmGP, OnlineGP, OnlineModel
from bandits_torch.models.arms.factor_form import FactorForm
from bandits_torch.policies import IndexPolicy, Observation, Policy, SlidingWindow
from bandits_torch.problems.simulated import make_kernel, place_arms
from bandits_torch.theory import ConstantWidth
from benchmarks.speed.measuring import clock

DIM = 3
LENGTHSCALE = 0.2
NOISE_VARIANCE = 0.01
WIDTH = 2.0
_BUMPS = 30
_LONGEST = 20_000


def prior() -> Kernel:
    """Matern-5/2, variance 1, in double precision, nothing to fit."""
    return make_kernel("matern", LENGTHSCALE)


@dataclass(frozen=True)
class Task:
    """Functions (S, N) on N arms (N, d) and the noise of every step (steps, S), laid out beforehand."""

    arms: Tensor
    functions: Tensor
    noise: Tensor

    @property
    def device(self) -> str:
        return self.arms.device.type

    def reward(self, step: int, arm: Tensor) -> Tensor:
        """Rewards (S,) of the arms (S,)."""
        return self.functions.gather(-1, arm.unsqueeze(-1)).squeeze(-1) + self.noise[step]


def make_task(
    num_arms: int, device: str, *, replicates: int = 1, noise_variance: float = NOISE_VARIANCE
) -> Task:
    """Each function is a sum of kernel bumps of random height: smooth as the prior has it, at any N in O(N)."""
    arms = place_arms("uniform", num_arms, DIM, seed=0)
    random = torch.Generator().manual_seed(0)
    centres = torch.rand(_BUMPS, DIM, generator=random, dtype=torch.float64)
    heights = torch.randn(replicates, _BUMPS, generator=random, dtype=torch.float64)
    noise = torch.randn(_LONGEST, replicates, generator=random, dtype=torch.float64) * noise_variance**0.5
    with torch.no_grad():
        functions = heights @ prior()(centres, arms).to_dense()
    return Task(arms.to(device), functions.to(device), noise.to(device))


def ucb_over(model: OnlineModel, **options: Any) -> IndexPolicy:
    """GP-UCB of constant width over a model."""
    return IndexPolicy(model, UpperConfidenceBound, width=ConstantWidth(WIDTH), **options)


def ucb_on_points(task: Task, window: int) -> IndexPolicy:
    """The same over an ``OnlineGP`` that holds the latest ``window`` observations; the task's arms are its points."""
    shape, device = (len(task.functions),), task.arms.device
    model = OnlineGP(prior(), NOISE_VARIANCE, input_dim=DIM, batch_shape=shape, device=device)
    return ucb_over(model, forgetting=SlidingWindow(window), choices=task.arms)


def ucb_on_arms(
    task: Task, *, kernel: Kernel | None = None, noise_variance: float = NOISE_VARIANCE, **options: Any
) -> IndexPolicy:
    """The same over an ``ArmGP``; ``forgetting`` is the policy's, other options the model's."""
    forgetting, dtype = options.pop("forgetting", None), options.pop("dtype", torch.float64)
    batch_shape = (len(task.functions),)
    arms = task.arms.to(dtype)
    model = ArmGP(arms, kernel or prior(), noise_variance, batch_shape=batch_shape, **options)
    return ucb_over(model, forgetting=forgetting)


def play(policy: Policy, task: Task, step: int, forced: Tensor | None = None) -> tuple[Tensor, Tensor, float]:
    """One step: the arms (S,), the rewards (S,) and the seconds that choosing and learning took. ``forced`` arms (S,)
    are learned in place of those chosen, which are still chosen and timed."""
    start = clock(task.device)
    choice = policy.choose(float(step))
    seconds = clock(task.device) - start
    arm = choice.arm if forced is None else forced
    reward = task.reward(step, arm)
    start = clock(task.device)
    policy.learn(Observation(float(step), arm, reward, choice.why))
    return arm, reward, seconds + clock(task.device) - start


def play_on(policy: Policy, task: Task, first: int, count: int, order: Tensor | None = None) -> None:
    """Choose, pull and learn, with nobody waiting for the result; the arms of ``order`` (n, S), again and again, are
    learned in place of those chosen."""
    for step in range(first, first + count):
        chosen = policy.choose(float(step)).arm
        arm = chosen if order is None else order[step % len(order)]
        policy.learn(Observation(float(step), arm, task.reward(step, arm)))


def held(policy: IndexPolicy) -> tuple[str, int, int]:
    """What an ``ArmGP`` holds: (form, u, n); u prior rows and n points of the fullest member, 0 in covariance form."""
    form = policy.model._belief.form
    if not isinstance(form, FactorForm):
        return "covariance", 0, 0
    return "factor", int(form.rows.used), int((form.point_count > 0).sum(-1).max())


def bytes_of_step(policy: IndexPolicy) -> int:
    """Bytes that one step of all replicates cannot avoid moving. Covariance form: a replicate's C read and written.
    Factor form: the u prior rows read once, and each one's covariance among its points read and written (n of the
    fullest)."""
    (form, u, n), N, S = held(policy), policy.num_arms, policy.replicates
    matrices = S * 2 * N * N if form == "covariance" else u * N + S * 2 * n * n
    return (matrices + S * 4 * N) * policy.model.noise_variance.element_size()
