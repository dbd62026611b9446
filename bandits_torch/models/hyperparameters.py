"""Learning hyperparameters from the observations held: learnable kernels, their priors, and BoTorch's fit."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from botorch.exceptions.errors import ModelFittingError
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.utils.gpytorch_modules import get_covar_module_with_dim_scaled_prior
from botorch.settings import validate_input_scaling
from gpytorch.constraints import GreaterThan, Interval, Positive
from gpytorch.kernels import (
    AdditiveKernel,
    ConstantKernel,
    CosineKernel,
    Kernel,
    MaternKernel,
    PeriodicKernel,
    ProductKernel,
    RBFKernel,
    ScaleKernel,
)
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.priors import LogNormalPrior
from linear_operator.utils.errors import NanError, NotPSDError
from torch import Tensor

from bandits_torch import validation
from bandits_torch.kernels import (
    ExponentialForgettingKernel,
    SpatioTemporalKernel,
    StackedKernel,
    WienerKernel,
)
from bandits_torch.kernels.composed import check_sees_all, kernel_of_member, unscaled
from bandits_torch.kernels.temporal import set_value, value_of
from bandits_torch.models.arms.arm_gp import ArmGP
from bandits_torch.models.arms.inputs import SMALLEST_RATIO
from bandits_torch.models.online_model import require_within
from bandits_torch.models.points.botorch_twin import TransformedKernel
from bandits_torch.models.points.online_gp import OnlineGP

_SPREAD = 1.0  # standard deviation, under its prior, of the logarithm of a rate or an outputscale
_SPREAD_OF_TIME = 0.3  # of a length-scale or a period over time; chosen in benchmarks/continuous/PROTOCOL.md
ANISOTROPY = 0.3  # of a length-scale over the geometric mean of all, by default
_SMALLEST_NOISE = 1e-4  # in units of the outputscale; BoTorch's floor
_TINY = 1e-9  # lower bound of outputscales and rates: a log-normal prior has no density at 0
_ROUNDS = 75  # of L-BFGS-B in a fit; few are enough, because a fit begins at the present values
_GAIN = 1e-6  # a fit ends when a round gains less, relatively: with SciPy's 2e-9 it takes a third more rounds


def learnable(
    kernel: Kernel,
    dim: int,
    replicates: int = 1,
    anisotropy: float = ANISOTROPY,
    ranges: Tensor | None = None,
) -> Kernel:
    """A kernel of the same kind with learnable hyperparameters per replicate, and priors on them.

    * Squared exponential and Matern kernels get a length-scale for each of the ``dim`` inputs. It begins at the given
      one (at least 0.03), with BoTorch's prior: log-normal with median exp(sqrt(2)) sqrt(dim) (Hvarfner et al. 2024),
      both in units of ``ranges``. Each length-scale over their geometric mean has a log-normal prior with mode 1, which
      keeps them similar until rewards distinguish them. If only some coordinates matter, raise ``anisotropy``. The
      outputscale has a log-normal prior whose mode is the given value (or 1), not the scale of the rewards: otherwise
      a policy concludes from similar rewards that the function is flat.
    * The rate eps of ``ExponentialForgettingKernel`` gets a log-normal prior on the decay of correlations per unit of
      time, -ln(1 - eps)/2. Its mode is the given value, so eps can collapse neither to 0 nor to 1; a rate below 1e-9
      is not learned. The drift variance of ``WienerKernel`` gets such a prior too.
    * Length-scales and periods over time, also within sums and products, get such a prior with a third of the standard
      deviation, unless they have one. They are fitted in units of the given values, unless they have a constraint.
    * Any other kernel over space or time is copied with its priors, for one replicate only.

    The new kernel has the ``active_dims`` of ``kernel``.

    Args:
        kernel: over space, or a ``SpatioTemporalKernel``. It is not changed.
        dim: number of inputs of space; if the kernel has several length-scales, their number.
        replicates: S; the batch shape is (S,), or () for one.
        anisotropy: standard deviation, under the prior, of the logarithm of a length-scale over their geometric mean;
            infinity: no such prior, as in BoTorch.
        ranges: (dim,), or (S, dim) if replicates differ: the range of each input, rounded to a power of 2; 0 counts as
            1. None: 1, a unit cube.

    Raises ValueError for a ``kernel`` of the wrong type or batch shape, counts that are not integers >= 1, a ``dim``
    that does not fit the kernel, ``active_dims`` of a ``SpatioTemporalKernel``, an ``anisotropy`` that is not positive,
    ``ranges`` of the wrong shape, negative or not finite, and several replicates of a kernel that is copied.
    """
    validation.instance("kernel", kernel, Kernel, "a gpytorch.kernels.Kernel")
    validation.positive_integer("dim", dim)
    validation.positive_integer("replicates", replicates)
    validation.positive_or_infinite("anisotropy", anisotropy)
    units = _powers_of_two(torch.ones(dim) if ranges is None else ranges, dim, replicates)
    batch = torch.Size([replicates] if replicates > 1 else [])
    require_within(batch, kernel.batch_shape, "kernel.batch_shape")
    if isinstance(kernel, SpatioTemporalKernel):
        check_sees_all(kernel)
        space = learnable(kernel.space_kernel, dim, replicates, anisotropy, ranges)
        return SpatioTemporalKernel(space, _learnable_time(kernel.time_kernel, batch))
    base, outputscale = unscaled(kernel)
    seen = kernel.active_dims
    if seen is not None:
        last = int(seen.max())
        validation.require(last < dim, "dim", dim, f"above {last}, the last of the kernel's active_dims")
        dim, units = len(seen), units[..., seen]
    if isinstance(base, RBFKernel | MaternKernel):
        own = base.lengthscale.shape[-1]
        validation.require(own in (1, dim), "dim", dim, f"{own}, the number of the kernel's length-scales")
        squared_exponential = isinstance(base, RBFKernel)
        new = get_covar_module_with_dim_scaled_prior(dim, batch, use_rbf_kernel=squared_exponential).double()
        if isinstance(base, MaternKernel):
            new.nu = base.nu
        if dim > 1 and anisotropy < math.inf:
            alike = _around(torch.ones(()), anisotropy)
            new.register_prior("anisotropy_prior", alike, _anisotropy, _set_anisotropy)
        given = (base.lengthscale.detach().to(units) / units).expand(*batch, 1, dim)
        new.lengthscale = given.clamp_min(0.03)
        if bool((units != 1).any()):
            _rescale_inputs(new, units)
    else:
        validation.require(replicates == 1, "kernel", kernel, "squared exponential or Matern, for several")
        new = copy.deepcopy(base)
    scale = ScaleKernel(
        new,
        active_dims=seen,
        batch_shape=batch,
        outputscale_prior=_around(outputscale.detach().mean()),
        outputscale_constraint=GreaterThan(_TINY, transform=None, initial_value=1.0),
    ).double()
    scale.outputscale = outputscale.detach().double().expand(batch)
    return scale.requires_grad_(True)


def _powers_of_two(ranges: Tensor, dim: int, replicates: int) -> Tensor:
    """``ranges`` rounded to powers of 2, so a change of units is exact: (dim,) or (S, 1, dim). Raises ValueError
    for ``ranges`` of the wrong shape, negative or not finite."""
    shaped = validation.tensor("ranges", ranges).shape in ((dim,), (replicates, dim))
    expected = f"({dim},), one number for each input, or ({replicates}, {dim})"
    validation.require(shaped, "ranges", tuple(ranges.shape), expected)
    right = bool((ranges.isfinite() & (ranges >= 0)).all())
    validation.require(right, "ranges", ranges, "finite, >= 0")
    units = torch.where(ranges > 0, ranges.detach().cpu().double(), 1.0).log2().round().exp2()
    return units.flatten() if replicates == 1 or ranges.dim() == 1 else units.unsqueeze(1)


def _rescale_inputs(kernel: RBFKernel | MaternKernel, factor: Tensor) -> None:
    """Convert length-scales, their prior and their bound to another unit of each input."""
    bound = kernel.raw_lengthscale_constraint.lower_bound * factor
    with torch.no_grad():
        kernel.raw_lengthscale.mul_(factor)  # raw = value: BoTorch's constraint has no transform
    kernel.register_constraint("raw_lengthscale", GreaterThan(bound, transform=None))
    _rescale_prior(kernel, "lengthscale_prior", factor.log())


def _learnable_time(kernel: Kernel, batch: torch.Size) -> Kernel:
    new: Kernel
    if isinstance(kernel, ExponentialForgettingKernel):
        if _is_static(kernel):
            return copy.deepcopy(kernel).double()
        rate = kernel.forgetting_rate.detach().double().squeeze(-1)
        inside = Interval(_TINY, 1 - _TINY)
        new = ExponentialForgettingKernel(rate.expand(batch), None, inside, batch_shape=batch)
        prior = _around(-0.5 * torch.log1p(-rate.mean()))
        new.register_prior("decay_prior", prior, partial(value_of, "decay"), partial(set_value, "decay"))
        return new.double()
    if isinstance(kernel, WienerKernel):
        variance = kernel.drift_variance.detach().double().squeeze(-1)
        prior = _around(variance.mean())
        return WienerKernel(variance.expand(batch), kernel.start, prior, batch_shape=batch).double()
    if isinstance(kernel, RBFKernel | MaternKernel):
        given = {
            "batch_shape": batch,
            "lengthscale_prior": copy.deepcopy(getattr(kernel, "lengthscale_prior", None)),
            "lengthscale_constraint": copy.deepcopy(kernel.raw_lengthscale_constraint),
        }
        new = MaternKernel(kernel.nu, **given) if isinstance(kernel, MaternKernel) else RBFKernel(**given)
        new = new.double()
        new.lengthscale = kernel.lengthscale.detach().double().expand(*batch, 1, 1)
    else:
        expected = "exponential forgetting, Wiener, squared exponential or Matern, for several"
        validation.require(not batch, "kernel.time_kernel", kernel, expected)
        new = copy.deepcopy(kernel).double()
    for part, name in _lengths_of_time(new):
        if not hasattr(part, f"{name}_prior"):
            prior = _around(getattr(part, name).mean(), _SPREAD_OF_TIME)
            part.register_prior(f"{name}_prior", prior, partial(value_of, name))
    return new.requires_grad_(True)


def _is_static(part: torch.nn.Module) -> bool:
    """Whether this is a kernel over time whose rate is not learned."""
    return isinstance(part, ExponentialForgettingKernel) and bool((part.forgetting_rate < _TINY).all())


def _lengths_of_time(kernel: Kernel) -> list[tuple[Kernel, str]]:
    """Each part of a kernel over time that has a length-scale or a period in units of time, with the name of that."""
    lengths = []
    for part in kernel.modules():
        if isinstance(part, PeriodicKernel | CosineKernel):  # its length-scale has no unit
            lengths.append((part, "period_length"))
        elif isinstance(part, Kernel) and part.has_lengthscale:
            lengths.append((part, "lengthscale"))
    return lengths


def _unit_of_time(kernel: Kernel) -> float:
    """The unit of time in which a kernel is fitted: a power of 2 near the length-scales and periods that ``learnable``
    was given; 1 if a part of the kernel, a prior or a constraint cannot be rescaled."""
    lengths = _lengths_of_time(kernel)
    priors: list[Any] = [getattr(part, f"{name}_prior", None) for part, name in lengths]
    known = (AdditiveKernel, ProductKernel, ScaleKernel, ConstantKernel, ExponentialForgettingKernel)
    parts = {part for part in kernel.modules() if isinstance(part, Kernel)} - {part for part, _ in lengths}
    log_normal = all(isinstance(prior, LogNormalPrior) for prior in priors)
    free = all(type(getattr(part, f"raw_{name}_constraint")) is Positive for part, name in lengths)
    if not (lengths and log_normal and free and all(isinstance(part, known) for part in parts)):
        return 1.0
    logarithms = [math.log2(float(prior.mode)) for prior in priors]
    unit = 2.0 ** round(sum(logarithms) / len(logarithms))
    for part in parts:
        if isinstance(part, ExponentialForgettingKernel):
            # Its rate must be free, and inside (0, 1) in this unit too.
            bounds = part.raw_forgetting_rate_constraint
            free = not [*part.named_priors()] and bool((bounds.lower_bound == 0) & (bounds.upper_bound == 1))
            if not (free and bool(((1 - part.forgetting_rate) ** unit > _TINY).all())):
                return 1.0
    return unit


def _around(value: Tensor, spread: float = _SPREAD) -> LogNormalPrior:
    """A log-normal prior with this mode and this standard deviation of the logarithm."""
    return LogNormalPrior(math.log(float(value.detach())) + spread**2, spread)


def _anisotropy(kernel: Kernel) -> Tensor:
    """Each length-scale over the geometric mean of all."""
    logarithms = kernel.lengthscale.log()
    return (logarithms - logarithms.mean(-1, keepdim=True)).exp()


def _set_anisotropy(kernel: Kernel, value: Tensor) -> None:
    kernel.lengthscale = value * kernel.lengthscale.log().mean(-1, keepdim=True).exp()


def held_data(model: ArmGP | OnlineGP, member: int) -> tuple[Tensor, Tensor]:
    """The observations of one member, oldest first: kernel inputs (n, D), and rewards less ``mean_offsets``, (n,)."""
    if isinstance(model, OnlineGP):
        rows = model.data.of(member)
        return rows.inputs, rows.targets
    arm, reward, time, valid = (column[member] for column in model.held())
    X = torch.stack([arm[valid].to(time), time[valid]], -1)[:, : 1 + model.drifts]
    return kernel_inputs(model, X, member), reward[valid] - mean_offsets(model, X, member)


def mean_offsets(model: ArmGP | OnlineGP, X: Tensor, member: int) -> Tensor:
    """Prior means at a model's inputs (n, D) minus the prior mean of the first arm, (n,); 0 over points. A fit learns
    the mean of the first arm, and these differences stay."""
    if isinstance(model, OnlineGP):
        return model.noise_variance.new_zeros(len(X))
    means = model.prior_mean.reshape(-1, model.num_arms)[member]
    return means[X[:, 0].long()] - means[0]


def kernel_inputs(model: ArmGP | OnlineGP, X: Tensor, member: int) -> Tensor:
    """A model's inputs (n, D) with features in place of arm indices, for its kernel."""
    if isinstance(model, OnlineGP):
        return X
    N, d = model.prior.inputs.shape[-2:]
    features = model.prior.inputs.expand(*model.batch_shape, N, d).reshape(-1, N, d)[member]
    return torch.cat([features[X[:, 0].long()], X[:, 1:]], -1)


def fit_hyperparameters(
    model: ArmGP | OnlineGP,
    members: Sequence[int],
    most: int = 500,
    data: Mapping[int, tuple[Tensor, Tensor]] | None = None,
    seconds: float | None = None,
) -> list[int]:
    """Maximise the marginal likelihood times the priors for each member, then rebuild the model once.

    BoTorch's ``fit_gpytorch_mll`` learns kernel, noise variance and a constant prior mean. It begins at the present
    values and fits one member after the other, so replicates do not depend on each other. If arms have different
    prior means, the mean of the first arm is learned, and the differences stay. The noise has BoTorch's log-normal
    prior, with median exp(-4) in units of the outputscale that ``learnable`` was given. For a single model::

        model = OnlineGP(learnable(MaternKernel(), dim=2), noise_variance=0.1, input_dim=2)
        model.observe(X, Y)
        fit_hyperparameters(model, [0])  # do not call fit_gpytorch_mll

    Args:
        model: has batch shape () or (S,) and a ``learnable`` kernel, or (S, P) and a ``StackedKernel`` of P.
        members: indices into the flattened batch.
        most: at most this many of the latest observations are used.
        data: for some members, kernel inputs (n, D) and rewards less ``mean_offsets`` (n,), to fit instead of the
            observations held.
        seconds: limit for all fits together, shared equally. A fit stops after the round in which its share ends, and
            keeps the values found. None: no limit, so the result does not depend on the clock.

    Returns the members fitted. A member whose fit fails, or that has fewer than 2 rewards, does not change.
    Cost: O(n^3) per round for n <= ``most`` observations, up to 75 rounds a member; and a rebuild.

    Raises ValueError for any other type of model, a kernel, noise variance or prior mean that members share, an
    ``OnlineGP`` whose prior mean is not a ``ConstantMean``, rewards with noise variances of their own, ``members`` out
    of range, ``most`` that is not an integer >= 1, and ``seconds`` that are not positive. The model is then as before.
    """
    validation.instance("model", model, (ArmGP, OnlineGP), "an ArmGP or an OnlineGP")
    validation.positive_integer("most", most)
    if seconds is not None:
        validation.positive("seconds", seconds)
    listed = isinstance(members, Sequence) and all(type(m) is int for m in members)
    count = model.batch_shape.numel()
    among = listed and all(0 <= m < count for m in members)
    validation.require(among, "members", members, f"integers from 0 to {count - 1}")
    check_learnable(model)
    kernel = _kernel_of(model)
    before = copy.deepcopy(kernel.state_dict())
    noise = model.noise_variance.expand(model.batch_shape).reshape(count).clone()
    mean = _prior_means(model)
    fitted = []
    for member in members:
        own_data = (data or {}).get(member) or held_data(model, member)
        X, y = (column[-most:] for column in own_data)
        if len(y) < 2:
            continue
        part, index = kernel, member
        if isinstance(kernel, StackedKernel):  # its kernels are the last dimension of the batch
            index, prior = divmod(member, len(kernel.kernels))
            part = kernel.kernels[prior]
        own = _member(part, index)
        share = None if seconds is None else seconds / len(members)
        found = _fit_one(own.to(X.dtype), X, y, noise[member], mean[member], share)
        if found is not None:
            learned, noise[member], mean[member] = found
            with torch.no_grad():
                for ours, theirs in zip(part.parameters(), learned.parameters(), strict=True):
                    (ours if ours.shape == theirs.shape else ours[index]).copy_(theirs)
            fitted.append(member)
    if fitted:
        try:
            model.adopt(noise.reshape(model.batch_shape), mean.reshape(model.batch_shape))
        except ValueError:
            kernel.load_state_dict(before)
            raise
    return fitted


def check_learnable(model: ArmGP | OnlineGP) -> None:
    """Raise ValueError unless ``fit_hyperparameters`` can fit the model: each member needs hyperparameters of its own,
    because otherwise all would get the values fitted to the rewards of one."""
    kernel, count = _kernel_of(model), model.batch_shape.numel()
    expected = "one without transforms: a model from a SingleTaskGP learns by model.refit()"
    validation.require(not isinstance(kernel, TransformedKernel), "model.kernel", kernel, expected)
    if isinstance(model, OnlineGP):
        constant = isinstance(model.prior_mean, ConstantMean)
        validation.require(constant, "model.prior_mean", model.prior_mean, "a ConstantMean, to be learned")
        numbers = model.noise_variance.numel(), model.prior_mean.constant.numel()
        expected = f"{count} numbers each, one for each member"
        validation.require(
            numbers == (count, count), "model's noise_variance and prior_mean", numbers, expected
        )
    (model if isinstance(model, OnlineGP) else model.belief).check_one_noise()
    replicates = count // len(kernel.kernels) if isinstance(kernel, StackedKernel) else count
    for part in kernel.modules():
        learns = isinstance(part, Kernel) and next(part.parameters(recurse=False), None) is not None
        if learns and not _is_static(part):
            own, shape = part.batch_shape.numel() == replicates, tuple(part.batch_shape)
            expected = f"({replicates},), as from learnable(..., replicates={replicates})"
            validation.require(own, "model's kernel.batch_shape", shape, expected)


def _kernel_of(model: ArmGP | OnlineGP) -> Kernel:
    return model.kernel if isinstance(model, OnlineGP) else model.prior.kernel


def _member(kernel: Kernel, index: int) -> Kernel:
    """A copy of the kernel of one member of the batch, with the priors of that member."""
    one = kernel_of_member(kernel, index)
    for part in (part for part in one.modules() if isinstance(part, Kernel)):
        prior = getattr(part, "lengthscale_prior", None)
        if isinstance(prior, LogNormalPrior) and prior.loc.dim() == 3:  # replicates have different ``ranges``
            _replace_prior(part, "lengthscale_prior", prior.loc[index, 0], prior.scale[index, 0])
            bound = part.raw_lengthscale_constraint.lower_bound[index, 0]
            part.register_constraint("raw_lengthscale", GreaterThan(bound, transform=None))
    return one


def _fit_one(
    kernel: Kernel, X: Tensor, y: Tensor, noise: Tensor, mean: Tensor, seconds: float | None
) -> tuple[Kernel, Tensor, Tensor] | None:
    """Kernel, noise variance and mean learned from (n, D) inputs and (n,) targets; None if the fit failed.

    The fit has the dtype of the inputs, which is float64 if they include a time. The bounds and tolerances of the
    optimiser suit values near 1, so rewards, inputs and time are converted to units in which the outputscale, the
    ranges and the length-scales over time that ``learnable`` was given are near 1."""
    kernel.requires_grad_(True)
    for part in filter(_is_static, kernel.modules()):
        part.requires_grad_(False)
    least, y = SMALLEST_RATIO[y.dtype], y.to(X)
    scale: Any = next((part for part in kernel.modules() if isinstance(part, ScaleKernel)), None)
    prior, square = getattr(scale, "outputscale_prior", None), 1.0
    if isinstance(prior, LogNormalPrior) and not scale.raw_outputscale_constraint.enforced:
        # A kernel of ``learnable``. Scaling by a power of 4, and rewards by its root, is exact.
        square = 4.0 ** round(math.log2(float(prior.mode)) / 2)
    y, mean, noise = y / math.sqrt(square), mean / math.sqrt(square), noise / square
    units, inverse = _units_of(scale), None
    if units is not None:
        units = units.to(X)
        inverse = 1 / units
        columns = slice(len(units)) if scale.active_dims is None else scale.active_dims
        X = X.clone()
        X[:, columns] /= units
    tick = _unit_of_time(kernel.time_kernel) if isinstance(kernel, SpatioTemporalKernel) else 1.0
    if tick != 1:
        X = torch.cat([X[:, :-1], X[:, -1:] / tick], -1)
    _change_units(kernel, scale, 1 / square, inverse, 1 / tick)
    unit = 1.0 if prior is None else float(scale.outputscale_prior.mode)
    likelihood = GaussianLikelihood(
        noise_prior=LogNormalPrior(-4.0 + math.log(unit), 1.0),  # BoTorch's, where the outputscale is 1
        noise_constraint=GreaterThan(_SMALLEST_NOISE * unit, transform=None),
    ).to(y)
    likelihood.noise = noise.clamp_min(1.01 * _SMALLEST_NOISE * unit)
    constant = ConstantMean().to(y)
    constant.constant.data.copy_(mean)
    with validate_input_scaling(False), warnings.catch_warnings(record=True), torch.enable_grad():
        gp = SingleTaskGP(X, y.unsqueeze(-1), None, likelihood, kernel, constant, outcome_transform=None)
        try:
            fit_gpytorch_mll(
                ExactMarginalLogLikelihood(gp.likelihood, gp),
                optimizer_kwargs={"options": {"maxiter": _ROUNDS, "ftol": _GAIN}, "timeout_sec": seconds},
                max_attempts=1,
                warning_handler=lambda warning: True,
            )
        except (ModelFittingError, NotPSDError, NanError):
            return None
    with torch.no_grad():
        prior = kernel(X, diag=True).max()
    if not likelihood.noise >= least * prior:
        return None
    _change_units(kernel, scale, square, units, tick)
    noise = square * likelihood.noise.detach().squeeze()
    return kernel, noise, math.sqrt(square) * constant.constant.detach()


def _units_of(scale: ScaleKernel | None) -> Tensor | None:
    """The ``ranges`` of a ``learnable`` kernel, (dim,), from the prior of its length-scales; None: a unit cube, or
    another prior."""
    space = getattr(scale, "base_kernel", None)
    prior = getattr(space, "lengthscale_prior", None)
    if not (isinstance(space, RBFKernel | MaternKernel) and isinstance(prior, LogNormalPrior)):
        return None
    if not prior.loc.dim() or space.raw_lengthscale_constraint.enforced:
        return None
    dim = len(prior.loc)
    return ((prior.loc - math.sqrt(2) - math.log(dim) / 2) / math.log(2)).round().exp2()


def _change_units(kernel: Any, scale: Any, square: float, inputs: Tensor | None, time: float) -> None:
    """Convert a kernel of ``learnable``, whose ``ScaleKernel`` is ``scale``, to other units: multiply its numbers by
    those of squared rewards, of each input and of time."""
    if square != 1:
        scale.outputscale = square * scale.outputscale.detach()
        _rescale_prior(scale, "outputscale_prior", math.log(square))
    if inputs is not None:
        _rescale_inputs(scale.base_kernel, inputs)
    if time != 1:
        for part, name in _lengths_of_time(kernel.time_kernel):
            setattr(part, name, time * getattr(part, name).detach())
            _rescale_prior(part, f"{name}_prior", math.log(time))
        for part in kernel.time_kernel.modules():
            if isinstance(part, ExponentialForgettingKernel):
                part.decay = part.decay.detach() / time


def _rescale_prior(kernel: Kernel, name: str, log_factor: Tensor | float) -> None:
    """Convert a log-normal prior to another unit, or to one unit for each input."""
    prior = getattr(kernel, name)
    loc = prior.loc + log_factor
    _replace_prior(kernel, name, loc, prior.scale.expand(loc.shape))


def _replace_prior(kernel: Kernel, name: str, loc: Tensor, scale: Tensor) -> None:
    closures = next(own for key, _, _, *own in kernel.named_priors() if key == name)
    kernel.register_prior(name, LogNormalPrior(loc, scale), *closures)


def _prior_means(model: ArmGP | OnlineGP) -> Tensor:
    """The prior mean of each member, (b,); over arms the mean of the first arm."""
    if isinstance(model, ArmGP):
        return model.prior_mean.reshape(-1, model.num_arms)[:, 0].clone()
    constant = model.prior_mean(model.data.inputs.new_zeros(*model.batch_shape, 1, model.input_dim))
    return constant.detach().reshape(-1).clone()
