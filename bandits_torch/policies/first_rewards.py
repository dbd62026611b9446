"""The first rewards, held until the origin and the unit of rewards are settled by them."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from bandits_torch.models.arms.arm_gp import ArmGP
from bandits_torch.models.arms.members import MembersOverArms
from bandits_torch.policies.member_scale import MemberScale
from bandits_torch.policies.reward_frame import RewardFrame
from bandits_torch.state import HasState, only_where

HELD = 5  # first rewards, of which the median is the origin


class FirstRewards(HasState):
    """The first five rewards; with the last of them ``RewardFrame.settle`` sets origin and unit anew: the median, from
    which those far away are brought nearer. What members in the frame hold becomes, exactly, what they would hold had
    they learned the five from there.

    Nothing is settled where no member is in the frame, and where the model cannot set its mean anew.

    Args:
        model: of batch shape (S, P).
        scale: of its members; ``learn_offset`` says which are in the frame.
        frame: origin and unit.

    Attributes:
        settled: (S,), True where the frame stays as it is.
    """

    settled: Tensor
    _held: list[tuple[Tensor, Tensor, float]]  # arms, rewards and the model's times

    def __init__(self, model: ArmGP | MembersOverArms, scale: MemberScale, frame: RewardFrame) -> None:
        self.model, self.scale, self.frame = model, scale, frame
        self._begin()

    def _fresh(self) -> dict[str, Any]:
        settles = self.model.can_condition_mean and bool(self.scale.learn_offset.any())
        device = self.model.noise_variance.device
        return {"settled": torch.full((self.frame.replicates,), not settles, device=device), "_held": []}

    def _restarted(self, where: Tensor | None) -> None:
        """Replicates that start anew among others leave the frame as it is."""
        if where is not None:
            self.settled = self.settled | where

    def hold(self, arm: Tensor, reward: Tensor, time: float) -> None:
        """Hold one of the first rewards, NaN where it is not believed; with the last of them settle the frame."""
        self._held.append((arm.clone(), reward.clone(), time))
        if len(self._held) == HELD:
            arms, rewards, times = zip(*self._held, strict=True)
            if not bool(self.settled.all()):
                self._settle(torch.stack(arms, -1), torch.stack(rewards, -1), list(times))
            self.settled, self._held = torch.ones_like(self.settled), []

    def _settle(self, arms: Tensor, rewards: Tensor, times: list[float]) -> None:
        """Members in the frame learn the rewards held (S, K) again, from the new origin."""
        model, where = cast(MembersOverArms, self.model), ~self.settled
        seen = self.frame.settle(rewards, where)
        scale, weights = _learned_again(model, self.scale, arms, seen, times)
        members = where.unsqueeze(-1) & self.scale.learn_offset
        model.condition_mean(members, arms, times, weights)
        self.scale.take(scale, members)


def _learned_again(
    model: MembersOverArms, scale: MemberScale, arms: Tensor, rewards: Tensor, times: list[float]
) -> tuple[MemberScale, Tensor]:
    """What members learn of K rewards, had they met them first: the scale then, and the weights (S, P, K) of the
    posterior means on the prior covariances with those observations (``condition_mean``).

    With L L^T = K_AA + lambda I over the observations, mu_j = sum_{k < j} L_jk z_k is what is predicted of the j-th,
    L_jj^2 its variance, z_j = (what is learned) / L_jj, and the weights are L^-T z.

    Args:
        model: the members; their state is not looked at.
        scale: its rules.
        arms, rewards, times: (S, K), (S, K) in the frame, NaN where nothing is learned, K numbers.
    """
    believed = rewards.isfinite()
    seen = rewards.nan_to_num().unsqueeze(1) - model.prior_mean[:, arms].transpose(0, 1)  # (S, P, K)
    noise = model.noise_variance.expand(model.batch_shape).unsqueeze(-1)
    both = (believed.unsqueeze(-1) & believed.unsqueeze(-2)).unsqueeze(1)
    L = torch.linalg.cholesky(
        model.prior_between(arms, times) * both + torch.diag_embed(noise.expand(seen.shape))
    )
    scale, z = scale.anew(), torch.zeros_like(seen)
    for j in range(len(times)):
        predicted, deviation = (L[..., j, :] * z).sum(-1), L[..., j, j]
        with only_where(believed[:, j], scale):
            _, learned = scale.update(seen[..., j] - predicted, deviation.square())
        z[..., j] = (learned / deviation).where(believed[:, j : j + 1], 0.0)
    return scale, torch.linalg.solve_triangular(L.mT, z.unsqueeze(-1), upper=True).squeeze(-1)
