"""A recipe, a problem and a kernel of one's own, as a package that bandits_torch finds."""

import torch
from gpytorch.kernels import RBFKernel
from torch import Tensor

from bandits_torch import Policy, UpperConfidenceBound
from bandits_torch.kernels import MarkovTimeKernel
from bandits_torch.models import OnlineModel
from bandits_torch.policies import ForgettingRule
from bandits_torch.problems import Knowledge, SimulatedProblem, named
from bandits_torch.recipes import Setup
from bandits_torch.recipes.parts import as_width, model_over, policy_over
from bandits_torch.recipes.registration import GP, recipe


class FadingKernel(MarkovTimeKernel):
    """k(t, t') = exp(-|t - t'| / scale)."""

    is_stationary = True

    def __init__(self, scale: float = 20.0) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor([scale]).double())

    def covariance(self, s: Tensor | float, t: Tensor | float) -> Tensor:
        return torch.exp(-(torch.as_tensor(s) - t).abs() / self.scale)


class Halving(ForgettingRule):
    """Drops the older half of the observations whenever there are ``most``."""

    def __init__(self, most: int) -> None:
        self.most = most

    def check(self, model: OnlineModel) -> None:
        if not model.can_forget:
            raise ValueError("Halving needs a model that can forget")

    def after(self, model: OnlineModel, clock: int | Tensor) -> bool:
        full = model.num_observations >= self.most
        if bool(full.any()):
            model.forget((self.most + 1) // 2, where=full)
        return False


@named("seesaw", quick={"num_arms": 9})
class Seesaw(SimulatedProblem):
    """A slope over [-1, 1] that turns over every ``period`` steps."""

    def __init__(
        self, *, num_arms: int = 50, period: int = 100, noise_scale: float = 0.1, replicates: int = 1
    ) -> None:
        self.period = period
        super().__init__(torch.linspace(-1, 1, num_arms).double().unsqueeze(-1), replicates, noise_scale)
        kernel = RBFKernel().double()
        kernel.lengthscale = 1.0
        self.knowledge = Knowledge(kernel.requires_grad_(False), noise_scale**2)

    def expected_rewards(self, step: int) -> Tensor:
        self.check_step(step)
        sign = -1.0 if (step - 1) // self.period % 2 else 1.0
        return (sign * self.arms[:, 0]).expand(self.replicates, -1)


@recipe(takes=GP, points=True, quick={"most": 8})
def halving_gp_ucb(setup: Setup, *, most: int = 60, width: float = 2.0) -> Policy:
    """GP-UCB that drops the older half of its observations whenever it holds ``most`` (no paper)."""
    return policy_over(
        setup, model_over(setup), UpperConfidenceBound, width=as_width(width), forgetting=Halving(most)
    )
