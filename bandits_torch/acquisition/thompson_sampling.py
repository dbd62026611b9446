"""Randomised choices: draws of the posterior over a finite set, and the probability of playing an arm."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, cast

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.models.model import Model
from botorch.posteriors import GPyTorchPosterior
from torch import Tensor

from bandits_torch import validation
from bandits_torch.acquisition.step_context import StepContext, at_arms, built_by_name, over_t_batches
from bandits_torch.acquisition.upper_confidence_bound import width_now
from bandits_torch.description import Described
from bandits_torch.kernels import MarkovTimeKernel
from bandits_torch.models.arms.arm_gp import ArmGP
from bandits_torch.models.arms.arm_model import ArmModel
from bandits_torch.models.cholesky import batched_cholesky
from bandits_torch.theory.widths import Width


class IndependentDraws(AcquisitionFunction, ABC):
    """Evaluates point i of a batch on draw i of the posterior; the draws are independent.

    With m pending points (``set_X_pending``, m x d) the next point is evaluated on draw m. The q points that BoTorch
    chooses sequentially then maximise q independent draws, as in parallel Thompson sampling
    (Kandasamy et al. 2018, Parallelised Bayesian optimisation via Thompson sampling, Algorithm 1). X with q > 1 points
    has the sum of their values, as with BoTorch's ``PathwiseThompsonSampling``.

    Subclasses make the first draw at construction (``_draws``). Each further draw is made at its first use, and kept.

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
        first = 0 if self.X_pending is None else self.X_pending.shape[-2]
        while len(self._draws) < first + X.shape[-2]:
            self._draws.append(self._further_draw(len(self._draws)))
        value = self._value(self._draws[first], X[..., :1, :])
        for i in range(1, X.shape[-2]):
            value = value + self._value(self._draws[first + i], X[..., i : i + 1, :])
        return value


@built_by_name()
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
        root: R, ``model.batch_shape x N x N``, of draws mu + width R z with standard normal z, in place of a root of
            the posterior covariance (``PredictiveSampling``); for an ``ArmGP``.

    Cost: O(N^2) per batch member of a static ``ArmGP`` in the covariance form, which updates a root of its covariance
    with each observation (``joint_root``). Any other model needs a Cholesky factor of the N x N posterior covariance,
    O(N^3), with the smallest sufficient jitter, from 1e-12 of the largest variance upwards, if the factorisation fails.

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
        root: Tensor | None = None,
    ) -> None:
        super().__init__(model)
        self._time = time
        if root is not None:
            of_arms = isinstance(model, ArmModel)
            shape = (*model.batch_shape, model.num_arms, model.num_arms) if of_arms else None
            expected = "of shape batch_shape x N x N with an ArmGP, None with any other model"
            validation.require(validation.tensor("root", root).shape == shape, "root", root, expected)
        self.register_buffer("root", root)
        self.root: Tensor | None
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
        model, choices = self.model, self.choices
        if isinstance(model, ArmModel):
            expected = "None with an ArmGP: its arms are the choices"
            validation.require(choices is None, "choices", choices, expected)
            if self.root is None:
                mean, root = model.joint_root(self._time)
            else:
                mean, root = model.marginals(self._time)[0], self.root
        else:
            validation.require(choices is not None, "choices", choices, "an N x d tensor with this model")
            posterior = cast(GPyTorchPosterior, model.posterior(cast(Tensor, choices)))
            mean = posterior.mean.squeeze(-1)
            root = batched_cholesky(posterior.distribution.covariance_matrix)
        if base_samples is None:
            base_samples = torch.randn_like(mean)
        fits = validation.tensor("base_samples", base_samples).shape == mean.shape
        validation.shape_is("base_samples", base_samples, fits, str(tuple(mean.shape)))
        return self.of(mean, root, base_samples, self._scale)

    @staticmethod
    def of(mean: Tensor, root: Tensor, samples: Tensor, width: Tensor | None) -> Tensor:
        """Draws ``batch x N`` with covariance ``width^2 root root^T`` (width None: 1) about ``mean``, from standard
        normal ``samples``."""
        noise = (samples.to(mean).unsqueeze(-2) @ root.mT).squeeze(-2)
        return mean + (noise if width is None else width.to(mean).unsqueeze(-1) * noise)

    def _further_draw(self, k: int) -> Tensor:
        return self._drawn()

    def _value(self, draw: Tensor, X: Tensor) -> Tensor:
        if self.choices is None:
            return at_arms(draw, X[..., 0, 0].long())
        same = (self.choices == X).all(-1)  # t_batch x N
        validation.require(bool(same.any(-1).all()), "X", X, "rows of the choices the draw was made over")
        return at_arms(draw, same.to(torch.uint8).argmax(-1))


class PredictiveSampling(Described):
    """Predictive sampling: plays the best arm of the mean of f(t) given the past and a draw of all future rewards.

    Thompson sampling draws f(t) from its posterior. So it explores even what will have changed before the information
    can be used. Predictive sampling draws the rewards of all arms at t + d, t + 2d, ... from the posterior, and plays
    the best arm of E[f(t) | the past, these rewards]. Information about the present that says nothing about the future
    counts for nothing. The definition is the source's. The future of all arms and the closed form below are ours.

    Between steps f(t + d) = a f(t) + an independent GP of covariance c K (``MarkovTimeKernel.transition``). Let J be
    the information (inverse covariance) about f(t + d) in the rewards from t + d on, each with noise variance lambda.
    One reward of every arm gives I / lambda, and the information of later rewards about f(t + 2d) passes through one
    more transition:

        J = I / lambda + a^2 (c K + J^{-1})^{-1}.

    J is a function of K, so for an eigenvalue k of K the eigenvalue v of J^{-1} solves a quadratic equation:

        v^2 - v (lambda (1 - a^2) - c k) - lambda c k = 0,    v >= 0.

    The future is thus one observation of a f(t) with noise covariance B = c K + J^{-1}. With C the posterior covariance
    of f(t) its conditional mean given that observation is Gaussian, about the posterior mean, with covariance

        R R^T = a^2 C (a^2 C + B)^{-1} C,    R = a C L^{-T},    L L^T = a^2 C + B.

    If nothing is forgotten (a = 1, c = 0), v = 0 and R R^T = C: this is Thompson sampling. If everything is forgotten
    (a = 0), R = 0: the arm with the largest posterior mean is played.

    Args:
        model: an ``ArmGP``, static or with a stationary Markov kernel over time (``ExponentialForgettingKernel``).
        interval: d, the time between rewards.

    Cost: O(N^3) once for the eigenvectors of each K, and O(N^3) per batch member and draw.

    Source: Liu, Van Roy & Xu 2022 (arXiv 2205.01970), whose abstract and introduction were read; the derivation is this
    package's, and no theorem is claimed. Raises ValueError for a model of another kind, and ``interval`` <= 0.
    """

    is_draw = True  # see ``IndependentDraws``

    def __init__(self, model: ArmGP, interval: float = 1.0) -> None:
        self.interval = validation.positive("interval", interval)
        self._check(model)
        # A model, its hyperparameters, and B of them.
        self._future_of: tuple[ArmGP, list[Tensor], Tensor] | None = None

    def __call__(
        self,
        model: ArmGP,
        width: float | Tensor | Width = 1.0,
        *,
        base_samples: Tensor | None = None,
        time: float | None = None,
    ) -> ThompsonSampling:
        """The draw as an acquisition over arm indices; arguments as for ``ThompsonSampling``."""
        root = self.root(model, time)
        return ThompsonSampling(model, width, base_samples=base_samples, time=time, root=root)

    def at_step(self, model: ArmGP, step: StepContext) -> ThompsonSampling:
        """The draw of one step of a policy."""
        width = 1.0 if step.width is None else step.width
        return self(model, width, base_samples=step.base_samples(), time=step.time)

    @torch.no_grad()
    def root(self, model: ArmGP, time: float | None = None) -> Tensor:
        """R, ``batch_shape x N x N``, at ``time`` (default: the latest observation)."""
        self._check(model)
        if not model.drifts:
            return model.joint_root()[1]
        covariance = model.joint(time)[1]
        flat = covariance.reshape(-1, *covariance.shape[-2:])
        kept = model.prior.drift(0.0, self.interval)[0].unsqueeze(-1).to(flat)
        factor = batched_cholesky(kept.square() * flat + self._noise(model).to(flat))
        return torch.linalg.solve_triangular(factor, kept * flat, upper=False).mT.reshape(covariance.shape)

    def _noise(self, model: ArmGP) -> Tensor:
        """B of each member of the flat batch, or one for all, (b or 1, N, N), float64. Kept while the hyperparameters
        are what they were: they may be learned."""
        now, before = [model.noise_variance, *model.prior.kernel.state_dict().values()], self._future_of
        same = before is not None and before[0] is model and all(map(torch.equal, before[1], now))
        if before is not None and same:
            return before[2]
        told = model.noise_variance, model.prior.matrix(), *model.prior.drift(0.0, self.interval)
        noise, K, kept, gained = (part.double() for part in told)
        b, noise = noise.numel(), noise.reshape(-1, 1)
        if bool((noise == noise[0]).all()):
            noise = noise[:1]
        values, vectors = torch.linalg.eigh(K)
        if len(K) > 1:  # member m has K number m % q
            values, vectors = values.repeat(b // len(K), 1), vectors.repeat(b // len(K), 1, 1)
        fresh = gained * values.clamp_min(0.0)
        lead = noise * (1 - kept.square()) - fresh
        root = (lead.square() + 4 * noise * fresh).sqrt()
        v = torch.where(lead > 0, (lead + root) / 2, 2 * noise * fresh / (root - lead).clamp_min(1e-300))
        future = (vectors * (fresh + v).unsqueeze(-2)) @ vectors.mT
        self._future_of = model, [part.clone() for part in now], future
        return future

    def _check(self, model: ArmGP) -> None:
        validation.instance("model", model, ArmGP, "an ArmGP")
        over_time = model.prior.time_kernel
        markov = over_time is None or (isinstance(over_time, MarkovTimeKernel) and over_time.is_stationary)
        expected = "a stationary MarkovTimeKernel, such as ExponentialForgettingKernel, or none"
        validation.require(markov, "model's kernel over time", type(over_time).__name__, expected)


@built_by_name()
class PlayingProbability(AcquisitionFunction):
    """P(x), the probability with which a randomised policy (the OPKB family) pulls arm x next.

    Args:
        model: a model whose inputs are arm indices (``ArmGP``); it is stored but not evaluated.
        probabilities: ``N`` or ``batch x N``, such as ``policy.playing_distribution``.
        X_pending: None; see ``set_X_pending``.

    Called with X, ``t_batch x 1 x d`` with arm indices in the first column, it returns ``t_batch`` values, broadcast
    with the batch of ``probabilities``. Its maximiser is the most probable arm, which need not be the next one.
    Source: Hong, Li & Tewari 2023, Algorithms 2 and 3.

    Raises ValueError unless ``probabilities`` are finite, non-negative and sum to 1.
    """

    X_pending: Any = None  # a tensor or None; BoTorch declares a tensor

    def __init__(self, model: Model, probabilities: Tensor, X_pending: Tensor | None = None) -> None:
        self.set_X_pending(X_pending)
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
        none = X_pending is None
        validation.require(none, "X_pending", X_pending, "None: draw q arms from the probabilities instead")

    @over_t_batches(expected_q=1, any_output=True)
    def forward(self, X: Tensor) -> Tensor:
        return at_arms(self.probabilities, X[..., 0, 0].long())
