"""An approximate Gaussian process over arms, from a dictionary of arms resampled by ridge leverage scores (BKB)."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from botorch.posteriors import GPyTorchPosterior
from gpytorch.kernels import Kernel
from torch import Tensor

from bandits_torch import validation
from bandits_torch.kernels.arms import over_indices
from bandits_torch.models.arms import inputs
from bandits_torch.models.arms.arm_model import StaticArmModel
from bandits_torch.models.online_model import MarginalPosterior, SingleOutputModel, joint_posterior
from bandits_torch.models.sketch.embedding import LeverageSampling
from bandits_torch.models.sketch.sketch import Sketch
from bandits_torch.streams import ReplicateStreams


class SketchedGP(StaticArmModel):
    """BKB's posterior over N arms: DTC on a dictionary of m pulled arms, with m of the order of d_eff.

    Inputs are arms by index, as for ``ArmGP``; ``off_arms()`` returns the same posterior over features. Variances
    are in squared units of reward: lambda times the sigma~^2 that Calandriello et al. (2019) print. The posterior is
    exact if the dictionary contains every pulled arm. Otherwise the variance stays near the prior variance away from
    the dictionary (no variance starvation), and the mean uses the projections of arms onto the dictionary.

    Args:
        arms: ``(N, d)`` features, or N.
        kernel: a static kernel over features (or over indices, or an N x N covariance matrix), one for all replicates.
        noise_variance: lambda > 0, a number or ``batch_shape``; at least 1e-10 of the largest prior variance (1e-5 in
            float32).
        prior_mean: prior mean reward, a number, ``(N,)`` or ``(*batch_shape, N)``.
        sampling: which observations enter the dictionary, and when it is drawn: ``LeverageSampling.theory(...)``
            or ``.practical()`` (the default).
        chunk_size: None stores the embedding of all arms, N x m numbers (or, for a dictionary that lasts one step, up
            to 128 MiB of prior covariances). A number saves this memory: the embedding is computed when it is needed,
            for ``chunk_size`` arms at a time.
        batch_shape: replicates.
        dtype, device: default to those of ``arms`` (float64 on the CPU if ``arms`` is a number).
        seed, first_replicate: for drawing dictionaries. A replicate draws the same alone as in a batch.

    Cost of a step: see ``Sketch``. Replicates advance one after another, because their dictionaries differ in size.

    Raises ValueError on bad input, with nothing changed. It cannot ``forget`` single observations.
    """

    def __init__(
        self,
        arms: Tensor | int,
        kernel: Kernel | Tensor,
        noise_variance: float | Tensor,
        *,
        prior_mean: float | Tensor = 0.0,
        sampling: LeverageSampling | None = None,
        chunk_size: int | None = None,
        batch_shape: tuple[int, ...] | torch.Size = (),
        seed: int = 0,
        first_replicate: int = 0,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        arms = inputs.features_of(arms, dtype, device)
        validation.of_shape("arms", arms, ("N", "d"), note=": replicates share their arms")
        if chunk_size is not None:
            validation.positive_integer("chunk_size", chunk_size)
        validation.natural("first_replicate", first_replicate)
        noise, mean = self._take_settings(arms, kernel, noise_variance, prior_mean, batch_shape)
        static = self.prior.time_kernel is None and self.prior.batch_shape == torch.Size()
        validation.require(static, "kernel", type(kernel).__name__, "one kernel without a time part")
        self.register_buffer("noise_variance", noise)
        self.register_buffer("prior_mean", mean)
        self.prior_mean: Tensor
        self.sampling = LeverageSampling.practical() if sampling is None else sampling
        validation.instance("sampling", self.sampling, LeverageSampling, "a LeverageSampling")
        sketches = []
        for k, one in enumerate(noise.expand(self.batch_shape).reshape(-1)):
            streams = ReplicateStreams(
                seed, purpose="sketch", first=first_replicate + k, dtype=arms.dtype, device=arms.device
            )
            sketches.append(Sketch(self.prior, one.clone(), self.sampling, streams, chunk_size))
        self._hold(sketches)
        largest = self.sketches[0].prior_variance.max()
        self.register_buffer("largest_prior_variance", largest, persistent=False)
        self.largest_prior_variance: Tensor  # kappa^2 = max k(x, x)
        self.eval()

    def _hold(self, sketches: list[Sketch]) -> None:
        """Set the posteriors of the members of the batch, in row-major order."""
        self.sketches = sketches  # a list, because iterating over a ModuleList at every step is slower
        self._members = torch.nn.ModuleList(sketches)  # for ``state_dict`` and ``to``

    def grow_from(self, small: SketchedGP) -> None:  # type: ignore[override]
        """Copy what ``small``, a model of the first of these arms, has learned. A dictionary consists of pulled arms,
        so predictions for new arms are those of a model that always had them. O(m^2) per new arm."""
        for own, other in zip(self.sketches, small.sketches, strict=True):
            own.grow_from(other)

    @property
    def num_observations(self) -> Tensor:
        return self._each([sketch.observations for sketch in self.sketches])

    @property
    def dictionary_size(self) -> Tensor:
        """m of each member, ``batch_shape``."""
        return self._each([sketch.size for sketch in self.sketches])

    @property
    def draws(self) -> Tensor:
        """How many dictionaries each member has drawn, ``batch_shape``."""
        return self._each([sketch.draws for sketch in self.sketches])

    @property
    def information_gain(self) -> Tensor:
        """1/2 log det(I + Z Z^T / lambda) of the projected data, at most the exact gain, ``batch_shape``. O(m^3)."""
        return self._each([sketch.information_gain for sketch in self.sketches])

    @property
    def effective_dimension(self) -> Tensor:
        """sum_s sigma~^2(x_s) / lambda over the observations, ``batch_shape``. O(u) after ``marginals``."""
        return self._each([sketch.effective_dimension for sketch in self.sketches])

    def distance_to_ball(self, radius: Tensor) -> Tensor:
        """The smallest width whose confidence region contains a function of norm at most ``radius``: the minimum of
        ||w~ - w||_V / sqrt(lambda) over |w| <= radius, ``batch_shape``, with V = Z^T Z + lambda I and the weights w~ of
        the mean (minus the prior mean). O(m^3)."""
        each = radius.expand(self.batch_shape).reshape(-1)
        found = [s.distance_to_ball(r) for s, r in zip(self.sketches, each, strict=True)]
        return self._each(found) / self.noise_variance.sqrt()

    def trace(self) -> dict[str, Tensor | float]:
        """Size of the dictionary, size of the last draw (a subset of it), and number of draws."""
        return {
            "dictionary_size": self.dictionary_size.reshape(-1),
            "last_draw": self._each([sketch.last_draw for sketch in self.sketches]).reshape(-1),
            "draws": self.draws.reshape(-1),
        }

    def _each(self, numbers: list[int] | list[Tensor]) -> Tensor:
        """One number per member, ``batch_shape``."""
        each = [torch.as_tensor(number, device=self.arms.device) for number in numbers]
        return torch.stack(each).reshape(self.batch_shape)

    # -- learning --------------------------------------------------------------------------------------

    @property
    def lasting(self) -> tuple[Any, ...]:
        fixed = (self.arms, self.prior_mean, self.noise_variance, self.largest_prior_variance)
        return self.prior, *fixed, *(sketch.prior_variance for sketch in self.sketches)

    def expect_arms(self, arm: Tensor, time: float) -> None:
        """See ``OnlineModel.expect``. A dictionary that is due is drawn and changes the mean. The information gain
        counts the pull."""
        for sketch, index in zip(self.sketches, self._flat_arm(arm).tolist(), strict=True):
            sketch.expect(index)

    def reset(self, where: Tensor | None = None) -> None:
        mask = self._mask(where)
        for k, sketch in enumerate(self.sketches):
            if mask is None or bool(mask[k]):
                sketch.reset()

    def _learn(self, arm: Tensor, reward: Tensor, where: Tensor | None) -> None:
        residual = reward.to(self.arms.dtype) - self._means_of(arm.unsqueeze(-1)).squeeze(-1)
        for k, (sketch, index) in enumerate(zip(self.sketches, arm.tolist(), strict=True)):
            if where is None or bool(where[k]):
                sketch.observe(index, residual[k])

    def prior_mean_of(self, member: int) -> Tensor:
        """Prior mean of one member of the batch, () or (N,)."""
        return self._prior_means()[member] if self.prior_mean.dim() else self.prior_mean

    def _means_of(self, arms: Tensor) -> Tensor:
        """Prior means of arms (b, n)."""
        return self._prior_means().gather(-1, arms) if self.prior_mean.dim() else self.prior_mean

    def _prior_means(self) -> Tensor:
        """(b, N); a view unless the mean has a batch."""
        return self.prior_mean.expand(*self.batch_shape, self.num_arms).reshape(-1, self.num_arms)

    # -- predicting ------------------------------------------------------------------------------------

    def marginals(self, time: float | None = None) -> tuple[Tensor, Tensor]:
        """Posterior mean and variance of every arm, ``batch_shape x N`` each; ``time`` is ignored."""
        shape = (*self.batch_shape, self.num_arms)
        moments = [sketch.moments() for sketch in self.sketches]
        mean, variance = map(torch.stack, zip(*moments, strict=True))
        return mean.reshape(shape) + self.prior_mean, variance.reshape(shape).clamp_min(0.0)

    def joint(self, time: float | None = None) -> tuple[Tensor, Tensor]:
        mean, covariance = moments_at(self.sketches, self.prior.inputs.expand(*self.batch_shape, -1, -1))
        return mean + self.prior_mean, covariance

    def _posterior_at(self, X: Tensor, noise: float | Tensor) -> GPyTorchPosterior:
        """See ``OnlineModel``."""
        if X is not None and X is self._kept():
            mean, variance = self.marginals()
            mean, variance = (part.movedim(-1, 0).unsqueeze(-1) for part in (mean, variance))
            return MarginalPosterior(mean, variance + noise)
        index, _ = inputs.split(X, self.num_arms, False)
        points = inputs.points_of(X, self.batch_shape)
        index, prior_mean = index.expand(*points, X.shape[-2]), self.prior_mean
        if prior_mean.dim():
            prior_mean = prior_mean.expand(*points, self.num_arms).gather(-1, index)
        mean, covariance = moments_at(self.sketches, self.prior.inputs[index])
        return joint_posterior(mean + prior_mean, covariance, noise)

    def off_arms(self) -> OffArms:
        """This posterior as a BoTorch model over features, X ``t_batch x q x d``, on and off the arm set. It follows
        this model. Differentiable in X. Raises ValueError for a kernel over indices and a prior mean per arm."""
        over_features, kind = not over_indices(self.prior.space_kernel), type(self.prior.kernel).__name__
        validation.require(over_features, "kernel", kind, "a kernel over features")
        expected = "one number: off the arms the prior mean is not known"
        validation.require(self.prior_mean.dim() == 0, "prior_mean", self.prior_mean, expected)
        return OffArms(self)

    def widen(self, batch_shape: torch.Size) -> None:
        order = torch.arange(self.batch_shape.numel()).reshape(self.batch_shape)
        super().widen(batch_shape)
        self._hold([copy.deepcopy(self.sketches[k]) for k in order.expand(batch_shape).flatten().tolist()])

    def _load_from_state_dict(self, *args: Any) -> None:
        super()._load_from_state_dict(*args)
        noise = self.noise_variance.expand(self.batch_shape).reshape(-1)
        for sketch, one in zip(self.sketches, noise, strict=True):
            sketch.noise_variance.copy_(one)
            sketch.regression.noise_variance.copy_(one)


class OffArms(SingleOutputModel):
    """A ``SketchedGP`` as a model over features, for any BoTorch acquisition and ``optimize_acqf``."""

    likelihood = None

    def __init__(self, model: SketchedGP) -> None:
        super().__init__()
        self.model = model

    @property
    def batch_shape(self) -> torch.Size:
        """Replicates."""
        return self.model.batch_shape

    @property
    def noise_variance(self) -> Tensor:  # type: ignore[override]
        """As in the model."""
        return self.model.noise_variance

    def _posterior_at(self, X: Tensor, noise: float | Tensor) -> GPyTorchPosterior:
        """X: ``t_batch x q x d`` features."""
        model, d = self.model, self.model.arms.shape[-1]
        validation.shape_is("X", X, X.dim() >= 2 and X.shape[-1] == d, f"t_batch x q x {d}")
        points = torch.broadcast_shapes(X.shape[:-2], model.batch_shape)
        mean, covariance = moments_at(model.sketches, X.expand(*points, *X.shape[-2:]))
        return joint_posterior(mean + model.prior_mean, covariance, noise)


def moments_at(sketches: Sequence[Sketch], inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Mean (*points, q), minus the prior mean, and covariance (*points, q, q) at inputs (*points, q, d). The last
    dimensions of ``points`` are the batch of the sketches."""
    flat = inputs.reshape(-1, len(sketches), *inputs.shape[-2:])
    means, covariances = zip(*(sketch.at(flat[:, k]) for k, sketch in enumerate(sketches)), strict=True)
    shape = inputs.shape[:-1]
    covariance = torch.stack(covariances, 1).reshape(*shape, shape[-1])
    if shape[-1] == 1:  # rounding can make a variance far below the prior variance negative
        covariance = covariance.clamp_min(0.0)
    return torch.stack(means, 1).reshape(shape), covariance
