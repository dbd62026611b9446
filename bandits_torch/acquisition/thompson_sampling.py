"""Randomised choices: draws of the posterior over a finite set, and the probability of playing an arm."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, cast

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.input_constructors import acqf_input_constructor
from botorch.models.model import Model
from botorch.posteriors import GPyTorchPosterior
from torch import Tensor

from bandits_torch import validation
from bandits_torch.acquisition.step_context import StepContext, at_arms, over_t_batches
from bandits_torch.acquisition.upper_confidence_bound import width_now
from bandits_torch.models.arms.arm_model import ArmModel
from bandits_torch.models.cholesky import batched_cholesky
from bandits_torch.theory.widths import Width


class IndependentDraws(AcquisitionFunction, ABC):
    """Evaluates point i of a batch on draw i of the posterior; the draws are independent.

    With m pending points (``set_X_pending``, m x d) the next point is evaluated on draw m. The q points that BoTorch
    chooses sequentially then maximise q independent draws, as in parallel Thompson sampling
    (Kandasamy et al. 2018, Parallelised Bayesian optimisation via Thompson sampling, Algorithm 1). X with q > 1 points
    has the sum of their values, as with BoTorch's ``PathwiseThompsonSampling``.

    Subclasses make the first draw at construction (``_draws``). Each further draw is made from the posterior at its
    first use, and then kept.

    Attributes:
        is_draw: True: a policy's choices with others pending are draws from the posterior as it is.
    """

    is_draw = True
    X_pending: Any = None  # a tensor or None; BoTorch declares a tensor
    _draws: list[Any]

    @abstractmethod
    def _further_draw(self, k: int) -> Any:
        """Draw k >= 1."""

    @abstractmethod
    def _value(self, draw: Any, X: Tensor) -> Tensor:
        """Values ``t_batch`` of a draw at X, ``t_batch x 1 x d``."""

    @over_t_batches()
    def forward(self, X: Tensor) -> Tensor:
        """Values of X, ``t_batch x q x d``: the draws' at their points, summed."""
        first = 0 if self.X_pending is None else self.X_pending.shape[-2]
        while len(self._draws) < first + X.shape[-2]:
            self._draws.append(self._further_draw(len(self._draws)))
        value = self._value(self._draws[first], X[..., :1, :])
        for i in range(1, X.shape[-2]):
            value = value + self._value(self._draws[first + i], X[..., i : i + 1, :])
        return value


class ThompsonSampling(IndependentDraws):
    """One draw f ~ GP(mu, width^2 k) of the whole function over a finite set, used as the index.

    The draw is made at construction, jointly over all choices: independent draws of the marginals would ignore the
    correlation of neighbouring arms and explore far too much. With ``ArmGP`` the choices are its arms, each batch
    member has a separate draw, and X are arm indices. With any other model X must be rows of ``choices``.
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

    Raises ValueError for ``base_samples`` of another shape, and for superfluous or missing ``choices``.
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
        return self.of(mean, root, base_samples, self._scale)

    @staticmethod
    def of(mean: Tensor, root: Tensor, samples: Tensor, width: Tensor | None) -> Tensor:
        """Draws ``batch x N`` of what has this mean, and the covariance ``width^2 root root^T`` (None: 1), by standard
        normal ``samples``."""
        noise = (samples.to(mean).unsqueeze(-2) @ root.mT).squeeze(-2)
        return mean + (noise if width is None else width.to(mean).unsqueeze(-1) * noise)

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

    def _further_draw(self, k: int) -> Tensor:
        return self._drawn()

    def _value(self, draw: Tensor, X: Tensor) -> Tensor:
        if self.choices is None:
            return at_arms(draw, X[..., 0, 0].long())
        same = (self.choices == X).all(-1)  # t_batch x N
        validation.require(bool(same.any(-1).all()), "X", X, "rows of the choices the draw was made over")
        return at_arms(draw, same.to(torch.uint8).argmax(-1))


@acqf_input_constructor(ThompsonSampling)
def _inputs_of_thompson_sampling(
    model: Model,
    width: float | Tensor | Width = 1.0,
    choices: Tensor | None = None,
    X_pending: Tensor | None = None,
    **_unused: Any,
) -> dict[str, Any]:
    return {"model": model, "width": width, "choices": choices, "X_pending": X_pending}


class PlayingProbability(AcquisitionFunction):
    """P(x), the probability with which a randomised policy (the OPKB family) pulls arm x next.

    Args:
        model: a model whose inputs are arm indices (``ArmGP``); it is stored but not evaluated.
        probabilities: ``N`` or ``batch x N``, such as ``policy.playing_distribution``.

    Called with X, ``t_batch x 1 x d`` with arm indices in the first column, it returns ``t_batch`` values, broadcast
    with the batch of ``probabilities``. Its maximiser is the most probable arm, which need not be the next one.
    Source: Hong, Li & Tewari 2023, Algorithms 2 and 3.

    Raises ValueError unless ``probabilities`` are finite, non-negative and sum to 1.
    """

    X_pending: Any = None  # a tensor or None; BoTorch declares a tensor

    def __init__(self, model: Model, probabilities: Tensor) -> None:
        validation.instance("model", model, Model, "a BoTorch model")
        super().__init__(model=model)
        validation.finite_tensor("probabilities", probabilities)
        total = probabilities.sum(-1)
        proper = bool((probabilities >= 0).all()) and torch.allclose(total, torch.ones_like(total))
        validation.require(proper, "probabilities", probabilities, "non-negative numbers with sum 1")
        self.register_buffer("probabilities", probabilities)
        self.probabilities: Tensor

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Raises ValueError for pending points: they do not change the probabilities."""
        _none_pending(X_pending)

    @over_t_batches(expected_q=1, any_output=True)
    def forward(self, X: Tensor) -> Tensor:
        """P of the arms X, ``t_batch x 1 x d``."""
        return at_arms(self.probabilities, X[..., 0, 0].long())


def _none_pending(X_pending: Tensor | None) -> None:
    none = X_pending is None
    validation.require(none, "X_pending", X_pending, "None: draw q arms from the probabilities instead")


@acqf_input_constructor(PlayingProbability)
def _inputs_of_playing_probability(
    model: Model, probabilities: Tensor, X_pending: Tensor | None = None, **_unused: Any
) -> dict[str, Any]:
    _none_pending(X_pending)
    return {"model": model, "probabilities": probabilities}
