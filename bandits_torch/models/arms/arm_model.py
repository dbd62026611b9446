"""What models over a finite set of arms share: inputs are indices, and all arms are scored from cached marginals."""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor

from bandits_torch.models.algebra.cholesky import batched_cholesky
from bandits_torch.models.online_model import OnlineModel


class ArmModel(OnlineModel):
    """An ``OnlineModel`` whose inputs are arms by index, ``X[..., 0] = 0, ..., N - 1`` (and time, if it drifts).

    Attributes:
        arms: ``(*arms_batch, N, d)`` features.
        drifts: whether inputs have a time column.
    """

    arms: Tensor
    drifts: bool = False

    @property
    def num_arms(self) -> int:
        """N."""
        return self.arms.shape[-2]

    @abstractmethod
    def candidates(self, time: float | None = None) -> Tensor:
        """Inputs of all arms: ``N x 1 x d``, with a 1 for each batch dimension in between. ``posterior`` answers
        this very tensor from the marginals."""

    @abstractmethod
    def marginals(self, time: float | None = None) -> tuple[Tensor, Tensor]:
        """Posterior mean and variance of every arm, ``batch_shape x N`` each."""

    @abstractmethod
    def joint(self, time: float | None = None) -> tuple[Tensor, Tensor]:
        """Posterior mean ``batch_shape x N`` and covariance ``batch_shape x N x N`` of all arms."""

    def joint_root(self, time: float | None = None) -> tuple[Tensor, Tensor]:
        """Posterior mean ``batch_shape x N`` and a root ``batch_shape x N x N`` of the covariance, root root^T.

        Here a Cholesky factor, O(N^3); a model that has a cheaper root overrides this.
        """
        mean, covariance = self.joint(time)
        return mean, batched_cholesky(covariance)

    @abstractmethod
    def observe_arms(
        self, arm: Tensor, reward: Tensor, time: float | None = None, where: Tensor | None = None
    ) -> None:
        """Observe one reward of one arm per member: integers and numbers that broadcast to ``batch_shape``."""

    def take(self, arm: Tensor, reward: Tensor, time: float, *, late: bool = False) -> None:
        """``observe_arms`` in every member, of what a policy has checked; ``late``: of a past time too, if it can."""
        self.observe_arms(arm, reward, time)
