"""Thompson sampling over a finite set, from the joint posterior."""

from __future__ import annotations

from typing import Any, cast

import torch
from botorch.acquisition.input_constructors import acqf_input_constructor
from botorch.models.model import Model
from botorch.posteriors import GPyTorchPosterior
from torch import Tensor

from bandits_torch import validation
from bandits_torch.acquisition.independent_draws import IndependentDraws
from bandits_torch.acquisition.step_context import StepContext
from bandits_torch.acquisition.upper_confidence_bound import width_now
from bandits_torch.models.algebra.cholesky import batched_cholesky
from bandits_torch.models.arms.arm_model import ArmModel
from bandits_torch.theory.widths import Width


class ThompsonSampling(IndependentDraws):
    """One draw f ~ GP(mu, width^2 k) of the whole function over a finite set, used as the index.

    The draw is made at construction, jointly over all choices: independent draws of the marginals would ignore the
    correlation of neighbouring arms and explore far too much. With ``ArmGP`` the choices are its arms, each batch
    member has its own draw, and X are arm indices. With any other model X must be rows of ``choices``.
    Batches of q > 1 points are the maximisers of q independent draws (``set_X_pending``, ``IndependentDraws``).

    Args:
        model: an ``ArmGP``, or any single-output BoTorch model together with ``choices``.
        width: v_t of GP-TS (Chowdhury & Gopalan 2017, Algorithm 2), which scales the posterior standard
            deviation; 1 is plain Thompson sampling. A number, a tensor of ``model.batch_shape`` or a ``Width``.
        base_samples: standard normal numbers, ``model.batch_shape x N``, of the first draw; by default from PyTorch's
            generator, as those of further draws (for pending points) always are.
        choices: ``N x d`` inputs, for a model other than ``ArmGP``.
        time: when the arms will be pulled, for a drifting ``ArmGP`` (default: its latest observation).
        X_pending: points chosen and not yet observed, ``m x d``, as ``set_X_pending`` takes them.

    Cost: O(N^2) per batch member of a static ``ArmGP`` in the covariance form, which updates a root of its covariance
    with each observation (``joint_root``). Any other model needs a Cholesky factor of the N x N posterior covariance,
    O(N^3). If the factorisation fails, it uses the smallest sufficient jitter, from 1e-12 of the largest variance
    upwards.

    Raises ValueError for ``base_samples`` of another shape, and for superfluous or missing
    ``choices``.
    """

    def __init__(
        self,
        model: Model,
        width: float | Tensor | Width = 1.0,
        *,
        base_samples: Tensor | None = None,
        choices: Tensor | None = None,
        time: float | None = None,
        X_pending: Tensor | None = None,
    ) -> None:
        super().__init__(model)
        self._time = time
        self.register_buffer("choices", choices)
        self.choices: Tensor | None
        self.register_buffer("_scale", width_now(width, model))
        self._scale: Tensor
        self._draws = [self._drawn(base_samples)]
        self.set_X_pending(X_pending)

    @classmethod
    def at_step(cls, model: Model, step: StepContext) -> ThompsonSampling:
        """The draw of one step of a policy, from its random numbers."""
        width = 1.0 if step.width is None else step.width
        return cls(model, width, base_samples=step.base_samples(), choices=step.choices(), time=step.time)

    @torch.no_grad()
    def _drawn(self, base_samples: Tensor | None = None) -> Tensor:
        """A draw over all choices, ``model.batch_shape x N``."""
        mean, root = self._moments()
        if base_samples is None:
            base_samples = torch.randn_like(mean)
        validation.shape_is(
            "base_samples", base_samples, base_samples.shape == mean.shape, str(tuple(mean.shape))
        )
        noise = (base_samples.to(mean).unsqueeze(-2) @ root.mT).squeeze(-2)
        return mean + self._scale.to(mean).unsqueeze(-1) * noise

    def _moments(self) -> tuple[Tensor, Tensor]:
        """Posterior mean over all choices and a root of their covariance."""
        model, choices = self.model, self.choices
        if isinstance(model, ArmModel):
            validation.require(
                choices is None, "choices", choices, "None with an ArmGP: its arms are the choices"
            )
            return model.joint_root(self._time)
        validation.require(choices is not None, "choices", choices, "an N x d tensor with this model")
        posterior = cast(GPyTorchPosterior, model.posterior(cast(Tensor, choices)))
        return posterior.mean.squeeze(-1), batched_cholesky(posterior.distribution.covariance_matrix)

    def _value(self, k: int, X: Tensor) -> Tensor:
        while len(self._draws) <= k:
            self._draws.append(self._drawn())
        if self.choices is not None:
            same = (self.choices == X).all(-1)  # t_batch x N
            validation.require(bool(same.any(-1).all()), "X", X, "rows of the choices the draw was made over")
            index = same.to(torch.uint8).argmax(-1)
        else:
            index = X[..., 0, 0].long()
        shape = torch.broadcast_shapes(index.shape, self.model.batch_shape)
        draw = self._draws[k].expand(*shape, self._draws[k].shape[-1])
        return draw.gather(-1, index.expand(shape).unsqueeze(-1)).squeeze(-1)


@acqf_input_constructor(ThompsonSampling)
def _inputs_of_thompson_sampling(
    model: Model,
    width: float | Tensor | Width = 1.0,
    choices: Tensor | None = None,
    X_pending: Tensor | None = None,
    **_unused: Any,
) -> dict[str, Any]:
    return {"model": model, "width": width, "choices": choices, "X_pending": X_pending}
