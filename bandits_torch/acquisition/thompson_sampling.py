"""Randomised choices: joint draws of the posterior over a finite set; pathwise draws (a draw of the prior, corrected by
the data) over large sets of arms or the points of a domain; and the probability of playing an arm."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.models.model import Model
from botorch.posteriors import GPyTorchPosterior
from botorch.sampling.pathwise import gen_kernel_features
from botorch.utils.sampling import manual_seed
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel
from linear_operator import to_dense
from torch import Tensor

from bandits_torch import validation
from bandits_torch.acquisition.step_context import StepContext, at_arms, built_by_name, over_t_batches
from bandits_torch.acquisition.upper_confidence_bound import width_now
from bandits_torch.description import Described
from bandits_torch.kernels import MarkovTimeKernel, SpatioTemporalKernel
from bandits_torch.kernels.composed import check_sees_all, kernel_of_member, unscaled
from bandits_torch.models.arms.arm_gp import ArmGP
from bandits_torch.models.arms.arm_model import ArmModel
from bandits_torch.models.arms.prior import ArmPrior
from bandits_torch.models.cholesky import batched_cholesky, safe_cholesky, solve_lower
from bandits_torch.models.online_model import with_time
from bandits_torch.models.points.botorch_twin import TransformedKernel
from bandits_torch.models.points.online_gp import OnlineGP
from bandits_torch.theory.widths import Width

_EXACT_UP_TO = 2000  # arms, up to which a pathwise draw uses an exact root
_NEGLIGIBLE = 1e-12  # observations with a smaller covariance over time with the present are left out


class IndependentDraws(AcquisitionFunction, ABC):
    """Evaluates point i of a batch on draw i of the posterior; the draws are independent.

    With m pending points (``set_X_pending``, m x d) the next point is evaluated on draw m. The q points that BoTorch
    chooses sequentially then maximise q independent draws, as in parallel Thompson sampling
    (Kandasamy et al. 2018, Parallelised Bayesian optimisation via Thompson sampling, Algorithm 1). The value of X with
    q > 1 points is the sum of their values, as in BoTorch's ``PathwiseThompsonSampling``.

    Subclasses make the first draw at construction (``_draws``). Each further draw is made when it is first needed.

    Attributes:
        is_draw: True: while pulls are pending, a policy draws from the posterior without them.
    """

    is_draw = True
    X_pending: Any = None  # a tensor or None; BoTorch declares a tensor
    _draws: list[Any]

    @abstractmethod
    def _draw(self, k: int) -> Any:
        """Draw k = 0, 1, ..."""

    @abstractmethod
    def _value(self, draw: Any, X: Tensor) -> Tensor:
        """Values ``t_batch`` of a draw at X, ``t_batch x 1 x d``."""

    @over_t_batches()
    def forward(self, X: Tensor) -> Tensor:
        first = 0 if self.X_pending is None else self.X_pending.shape[-2]
        while len(self._draws) < first + X.shape[-2]:
            self._draws.append(self._draw(len(self._draws)))
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
        base_samples: standard normal numbers, ``model.batch_shape x N``, for the first draw; by default, and for
            further draws (for pending points) always, they come from PyTorch's global generator.
        choices: ``N x d`` inputs, for a model other than ``ArmGP``.
        time: when the arms will be pulled, for a drifting ``ArmGP`` (default: its latest observation).
        X_pending: points chosen and not yet observed, ``m x d``, as ``set_X_pending`` takes them.
        root: R, ``model.batch_shape x N x N``, of draws mu + width R z with standard normal z, instead of a root of
            the posterior covariance (``PredictiveSampling``); for an ``ArmGP``.

    Cost: O(N^2) per batch member of a static ``ArmGP`` in the covariance form, which updates a root of its covariance
    with each observation (``joint_root``). Any other model needs a Cholesky factor of the N x N posterior covariance,
    O(N^3), with a jitter of 1e-12 (float32: 1e-6) of the largest variance, or more if the factorisation fails.

    Raises ValueError for ``base_samples`` of the wrong shape, and for superfluous or missing ``choices``.
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
        self._draws = [self._draw(0, base_samples)]
        self.set_X_pending(X_pending)

    @classmethod
    def at_step(cls, model: Model, step: StepContext) -> ThompsonSampling:
        """The draw of one step of a policy, from the policy's random numbers."""
        width = 1.0 if step.width is None else step.width
        return cls(model, width, base_samples=step.base_samples(), choices=step.choices(), time=step.time)

    @torch.no_grad()
    def _draw(self, k: int, base_samples: Tensor | None = None) -> Tensor:
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

    def _value(self, draw: Tensor, X: Tensor) -> Tensor:
        if self.choices is None:
            return at_arms(draw, X[..., 0, 0].long())
        same = (self.choices == X).all(-1)  # t_batch x N
        validation.require(bool(same.any(-1).all()), "X", X, "rows of the choices the draw was made over")
        return at_arms(draw, same.to(torch.uint8).argmax(-1))


class PredictiveSampling(Described):
    """Predictive sampling: plays the best arm of the mean of f(t) given the past and a draw of all future rewards.

    Thompson sampling draws f(t) from its posterior, so it also explores what will change before the information can be
    used. Predictive sampling draws the rewards of all arms at t + d, t + 2d, ... from the posterior, and plays the best
    arm of E[f(t) | the past, these rewards]. It ignores information about the present that says nothing about the
    future. The definition is that of the source; rewards of all arms and the closed form below are ours.

    Between steps f(t + d) = a f(t) + an independent GP of covariance c K (``MarkovTimeKernel.transition``). Let J be
    the information (inverse covariance) about f(t + d) in the rewards from t + d on, each with noise variance lambda.
    One reward of every arm gives I / lambda, and the information of later rewards passes through one more transition:

        J = I / lambda + a^2 (c K + J^{-1})^{-1}.

    J is a function of K, so for an eigenvalue k of K the eigenvalue v of J^{-1} solves a quadratic equation:

        v^2 - v (lambda (1 - a^2) - c k) - lambda c k = 0,    v >= 0.

    The future is thus one observation of a f(t) with noise covariance B = c K + J^{-1}. With C the posterior covariance
    of f(t) its conditional mean given that observation is Gaussian, about the posterior mean, with covariance

        R R^T = a^2 C (a^2 C + B)^{-1} C,    R = a C L^{-T},    L L^T = a^2 C + B.

    If nothing is forgotten (a = 1, c = 0), R R^T = C: this is Thompson sampling. If everything is forgotten (a = 0),
    R = 0: the arm with the largest posterior mean is played.

    Args:
        model: an ``ArmGP``, static or with a stationary Markov kernel over time (``ExponentialForgettingKernel``).
        interval: d, the time between rewards.

    Cost: O(N^3) once for the eigenvectors of each K, and O(N^3) per batch member and draw. Source: Liu, Van Roy & Xu
    2022 (arXiv 2205.01970), whose abstract and introduction were read; the derivation is this package's, and no theorem
    is claimed. Raises ValueError for a model of the wrong kind, and ``interval`` <= 0.
    """

    is_draw = True  # see ``IndependentDraws``

    def __init__(self, model: ArmGP, interval: float = 1.0) -> None:
        self.interval = validation.positive("interval", interval)
        self._check(model)
        self.model = model  # so that a copy of a policy is described by its own model
        # A model, its hyperparameters, and B for these.
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
        """B of each member of the flat batch, or one for all, (b or 1, N, N), float64. Cached until the hyperparameters
        change, which may be learned."""
        now, before = [model.noise_variance, *model.prior.kernel.state_dict().values()], self._future_of
        same = before is not None and before[0] is model and all(map(torch.equal, before[1], now))
        if before is not None and same:
            return before[2]
        parts = model.noise_variance, model.prior.matrix(), *model.prior.drift(0.0, self.interval)
        noise, K, kept, gained = (part.double() for part in parts)
        b, noise = noise.numel(), noise.reshape(-1, 1)
        if bool((noise == noise[0]).all()):
            noise = noise[:1]
        values, vectors = torch.linalg.eigh(K)
        if len(K) > 1:  # member m has K[m % len(K)]
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


@validation.names_arguments
class PathwiseThompsonSampling:
    """Builds, once per step, one draw f ~ GP(mu, width^2 k) over all arms of an ``ArmGP``, without an N x N matrix.

    For width 1, with draws g of the prior minus its mean m and e of the noise (Matheron's rule; Wilson et al. 2020),

        f(x, now) = m(x) + g(x, now) + k((x, now), data) (K_t + lambda I)^{-1} (y - m - g(data) - e).

    g(x, t) = a(x)^T w(t) with rows a(x) of a root A, A A^T = K over the arms, and w(t) independent Gauss-Markov
    paths with the time kernel's covariance, drawn exactly at the times of the data and now. The draw is exact if A is:
    for an exact ``root``, and by default for up to 2 000 arms. For more arms, A consists of BoTorch's random Fourier
    features (squared exponential and Matern kernels, scaled or not). The covariance of g then differs from the kernel
    by at most about 2 sqrt(ln(N) / features) k(x, x) at all pairs of arms; the correction by the data stays exact. Pass
    it to ``IndexPolicy`` as the acquisition.

    Args:
        model: the ``ArmGP`` of later calls, with one kernel, which is read at construction.
        seed: seed of the draws.
        features: number of random Fourier features, even.
        root: A, ``N x r``.

    Cost of a draw: O(N r + u N + t^3 + t r), with t observations of u distinct arms. The draws of batch members are
    independent. Raises ValueError for a kernel without such features and more than 2 000 arms, and for a kernel over
    time that is not a ``MarkovTimeKernel``: paths of a state space have several numbers, and are not drawn here. A draw
    raises it for a model of another number of arms.
    """

    is_draw = True  # see ``IndependentDraws``

    def __init__(
        self, model: ArmGP, *, seed: int = 0, features: int = 2048, root: Tensor | None = None
    ) -> None:
        validation.require(isinstance(model, ArmGP), "model", type(model).__name__, "an ArmGP")
        over_time = model.prior.time_kernel
        for shape in (model.prior.batch_shape, torch.Size() if over_time is None else over_time.batch_shape):
            validation.require(shape.numel() == 1, "model", tuple(shape), "one kernel for the whole batch")
        markov = over_time is None or isinstance(over_time, MarkovTimeKernel)
        expected = "a MarkovTimeKernel: over time with a state space, use ThompsonSampling"
        validation.require(markov, "model's kernel over time", type(over_time).__name__, expected)
        even = validation.positive_integer("features", features) % 2 == 0
        validation.require(even, "features", features, "an even number")
        self._generator = torch.Generator().manual_seed(validation.natural("seed", seed))
        if root is not None:
            self.root = validation.of_shape("root", root, (model.num_arms, "r"))
        elif model.num_arms <= _EXACT_UP_TO:
            values, vectors = torch.linalg.eigh(model.prior.matrix()[0])
            kept = values > 1e-14 * values[-1]
            self.root = vectors[:, kept] * values[kept].sqrt()
        else:
            inputs = model.prior.inputs
            with manual_seed(int(torch.randint(2**62, (), generator=self._generator))):
                self.root = _features(model.prior.space_kernel, inputs.shape[-1], features, inputs)(inputs)

    def __call__(
        self, model: ArmGP, width: float | Tensor | Width = 1.0, time: float | None = None
    ) -> AcquisitionFunction:
        """The draw as an acquisition over arm indices, which makes further draws for pending points."""
        scale = width_now(width, model).to(model.arms).expand(model.batch_shape).reshape(-1, 1)

        @torch.no_grad()
        def draw() -> Tensor:
            paths = self.paths(model, time)
            mean = model.marginals(time)[0].reshape(paths.shape)
            return (mean + scale * (paths - mean)).reshape(*model.batch_shape, -1)

        return _ArmDraw(model, draw)

    def at_step(self, model: ArmGP, step: StepContext) -> AcquisitionFunction:
        """The draw of one step of a policy."""
        return self(model, 1.0 if step.width is None else step.width, step.time)

    @torch.no_grad()
    def paths(self, model: ArmGP, time: float | None = None) -> Tensor:
        """Draws of the posterior over all arms at ``time`` (default: the latest observation), (b, N)."""
        if model.num_arms != len(self.root):
            expected = f"one of {len(self.root)} arms, as the draws were built for"
            validation.require(False, "model", model.num_arms, expected)
        now = (model.now or 0.0) if time is None else float(time)
        arm, reward, moments, valid = model.held()
        members = enumerate(zip(arm, reward, moments, valid, strict=True))
        return torch.stack([self._path(model, k, a[v], r[v], m[v], now) for k, (a, r, m, v) in members])

    def state_dict(self) -> dict[str, Tensor]:
        """The state of the random number generator."""
        return {"generator": self._generator.get_state()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Continue with the random numbers that follow ``state``."""
        self._generator.set_state(state["generator"].clone())

    def _path(
        self, model: ArmGP, member: int, arm: Tensor, reward: Tensor, moments: Tensor, now: float
    ) -> Tensor:
        prior, prior_mean = model.prior, model.prior_mean.reshape(-1, model.num_arms)[member]
        noise = model.noise_variance.expand(model.batch_shape).reshape(-1)[member]
        to_now = self._over_time(prior, moments, now)
        near = to_now.abs() >= _NEGLIGIBLE
        arm, reward, moments, to_now = arm[near], reward[near], moments[near], to_now[near]
        times, which = torch.unique(moments, return_inverse=True)
        weights = self._weights(prior, [*times.tolist(), now])  # one row per time, the present last
        path = self.root @ weights[-1] + prior_mean
        if not len(arm):
            return path
        drawn = (self.root[arm] * weights[which]).sum(-1)
        drawn = drawn + noise.sqrt() * self._normal(len(arm)).to(reward)
        pulled, place = torch.unique(arm, return_inverse=True)
        rows = prior.rows(pulled)[0]  # u x N
        among = rows[:, arm][place]
        among = among * self._over_time(prior, moments.unsqueeze(-1), moments.unsqueeze(0))
        factor = safe_cholesky(among + noise * torch.eye(len(arm), dtype=reward.dtype, device=reward.device))
        residual = reward - prior_mean[arm] - drawn
        v = torch.cholesky_solve(residual.unsqueeze(-1), factor).squeeze(-1) * to_now
        return path + torch.zeros(len(pulled), dtype=v.dtype, device=v.device).scatter_add(0, place, v) @ rows

    def _weights(self, prior: ArmPrior, times: list[float]) -> Tensor:
        """Paths w(t) at increasing times, len(times) x r."""
        rank, before = self.root.shape[1], None
        rows: list[Tensor] = []
        for moment in times:
            fresh = self._normal(rank).to(self.root)
            if prior.time_kernel is None:
                rows.append(rows[0] if rows else fresh)
            elif before is None:
                rows.append(fresh * prior.over_time(moment, moment).reshape(()).sqrt())
            else:
                kept, gained = (part.reshape(()) for part in prior.drift(before, moment))
                rows.append(kept * rows[-1] + gained.clamp_min(0).sqrt() * fresh)
            before = moment
        return torch.stack(rows)

    @staticmethod
    def _over_time(prior: ArmPrior, s: Tensor, t: Tensor | float) -> Tensor:
        if prior.time_kernel is None:
            return prior.inputs.new_ones(torch.broadcast_shapes(s.shape, torch.as_tensor(t).shape))
        other = torch.as_tensor(t, dtype=s.dtype, device=s.device)
        one, two = torch.broadcast_tensors(s, other)
        value = prior.time_kernel.covariance(one.reshape(-1), two.reshape(-1)).reshape(one.shape)
        return value.to(prior.inputs.dtype)

    def _normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self._generator, dtype=torch.float64)


class _ArmDraw(IndependentDraws):
    """Draws over the arms, evaluated at arm indices; ``draw`` makes the next one."""

    def __init__(self, model: Model, draw: Callable[[], Tensor]) -> None:
        super().__init__(model)
        self._next, self._draws = draw, [draw()]

    def _draw(self, k: int) -> Tensor:
        return self._next()

    def _value(self, draw: Tensor, X: Tensor) -> Tensor:
        return at_arms(draw, X[..., 0, 0].long())


@built_by_name()
class PathwisePointDraw(IndependentDraws):
    """One draw f ~ GP(mu, width^2 k) at one time per batch member, as a differentiable function of the points.

    For width 1, with draws g of the prior minus its mean m and e of the noise (Matheron's rule; Wilson et al. 2020),

        f(x) = m(x) + g(x, now) + k((x, now), data) (K_t + lambda I)^{-1} (y - m - g(data) - e).

    g(x, t) = phi(x)^T w(t): phi are BoTorch's random Fourier features of the kernel over space, and w(t) Gaussian
    paths with the time kernel's covariance, drawn exactly at the times of the data and now, for any time
    kernel. Only the prior term is approximate; the correction by the data is exact.

    Args:
        model: an ``OnlineGP`` of batch shape () or (S,), whose kernel over space is squared exponential or Matern,
            scaled or not; with a ``SpatioTemporalKernel`` time is the last input. Its observations must not have
            their own noise variances.
        width: as for ``ThompsonSampling``.
        time: the time of the draw, if inputs have a time column; the time in X is ignored.
        seeds: one per batch member; they determine the draws. Batches of q > 1 points are the
            maximisers of q independent draws (``set_X_pending``, ``IndependentDraws``).
        features: number of random Fourier features, even.
        X_pending: points chosen and not yet observed, ``m x d``, as ``set_X_pending`` takes them.

    Cost: with n observations, O(n^3 + n^2 features) per draw and O(n + features) per evaluated point.

    Raises ValueError for a model or kernel of the wrong kind, and arguments that do not fit it.
    """

    def __init__(
        self,
        model: OnlineGP,
        width: float | Tensor | Width = 1.0,
        *,
        time: float | None = None,
        seeds: Sequence[int] = (0,),
        features: int = 1024,
        X_pending: Tensor | None = None,
    ) -> None:
        fits = isinstance(model, OnlineGP) and len(model.batch_shape) <= 1
        validation.require(fits, "model", model, "an OnlineGP of batch shape () or (S,)")
        model.check_one_noise()
        super().__init__(model)
        members = model.batch_shape.numel()
        listed = isinstance(seeds, Sequence) and all(type(seed) is int and seed >= 0 for seed in seeds)
        fits = listed and len(seeds) == members
        validation.require(fits, "seeds", seeds, f"{members} integers >= 0, one for each member")
        kernel = model.kernel
        fitted = kernel.base_kernel if isinstance(kernel, TransformedKernel) else kernel
        self._over_time = isinstance(fitted, SpatioTemporalKernel)
        fits = not self._over_time or time is not None
        validation.require(fits, "time", time, "a number, since the kernel has a time part")
        self.time = None if time is None else validation.finite_number("time", time)
        self.seeds, self.features = list(seeds), features
        scale = width_now(width, model).to(model.noise_variance).expand(model.batch_shape).reshape(members)
        self.register_buffer("_scale", scale)
        self._scale: Tensor
        self._draws = [self._draw(0)]
        self.set_X_pending(X_pending)

    @classmethod
    def at_step(cls, model: OnlineGP, step: StepContext) -> PathwisePointDraw:
        """The draws of one step of a policy, from the policy's seeds."""
        width = 1.0 if step.width is None else step.width
        return cls(model, width, time=step.time, seeds=step.seeds() or ())

    @torch.no_grad()
    def _draw(self, k: int) -> list[_PointDraw]:
        """A draw of every member."""
        seeds = self.seeds
        if k > 0:
            streams = [torch.Generator().manual_seed(seed) for seed in seeds]
            seeds = [int(torch.randint(2**62, (k,), generator=stream)[-1]) for stream in streams]
        model, members = cast(OnlineGP, self.model), enumerate(zip(self._scale, seeds, strict=True))
        return [_PointDraw(model, s, scale, self.time, seed, self.features) for s, (scale, seed) in members]

    def _value(self, draw: list[_PointDraw], X: Tensor) -> Tensor:
        """X: ``t_batch x 1 x D`` (``t_batch`` ends in S, or broadcasts with it, for S members)."""
        X = X.squeeze(-2)
        if self._over_time and self.time is not None:
            X = with_time(X[..., :-1], self.time)
        if not self.model.batch_shape:
            return draw[0](X)
        X = X.expand(*torch.broadcast_shapes(X.shape[:-1], self.model.batch_shape), X.shape[-1])
        return torch.stack([of_member(X[..., s, :]) for s, of_member in enumerate(draw)], -1)


class _PointDraw:
    """A draw of one member: maps points (..., D) at the draw's time to values (...)."""

    def __init__(
        self, model: OnlineGP, member: int, width: Tensor, time: float | None, seed: int, features: int
    ) -> None:
        whole = kernel_of_member(model.kernel, member) if len(model.kernel.batch_shape) else model.kernel
        kernel, scale, self._transform = whole, width.new_ones(()), lambda X: X
        if isinstance(whole, TransformedKernel):
            kernel, scale, self._transform = whole.base_kernel, whole.scale, whole.inputs
        space, temporal = kernel, None
        if isinstance(kernel, SpatioTemporalKernel):
            check_sees_all(kernel)
            space, temporal = kernel.space_kernel, kernel.time_kernel
        rows = model.data.of(member)
        upper, whitened = (part.to(rows.inputs) for part in (rows.corner, rows.whitened))
        self._kernel, self._inputs = whole, rows.inputs
        transformed, d = self._transform(rows.inputs), model.input_dim - (temporal is not None)
        self._mean = lambda X: (
            model.prior_mean(X).expand(*model.batch_shape, len(X)).reshape(-1, len(X))[member]
        )
        noise = model.noise_variance.expand(model.batch_shape).reshape(-1)[member].to(rows.inputs)
        with manual_seed(seed):
            self._phi = _features(space, d, features, rows.inputs)
            now = None
            if time is not None and temporal is not None:
                now = self._transform(with_time(rows.inputs.new_zeros(1, d), time))[:, -1]
            weights, which = self._weights(temporal, transformed, now, features)
            drawn = scale * (self._phi(transformed[:, :d]) * weights[which]).sum(-1)
            noisy = drawn + noise.sqrt() * torch.randn(len(drawn), dtype=torch.float64).to(drawn)
        self._path = width * scale * weights[-1]
        # (K + lambda I)^{-1} (y - m) for the mean, and (K + lambda I)^{-1} (g + e) for the draw.
        of_mean = torch.linalg.solve_triangular(upper, whitened.unsqueeze(-1), upper=True).squeeze(-1)
        half = solve_lower(upper.mT, noisy.unsqueeze(-1))
        of_draw = torch.linalg.solve_triangular(upper, half, upper=True).squeeze(-1)
        self._coefficients = of_mean - width * of_draw
        self._d = d

    @staticmethod
    def _weights(
        temporal: Kernel | None, inputs: Tensor, now: Tensor | None, features: int
    ) -> tuple[Tensor, Tensor]:
        """w at every distinct time of the data and, last, now; and the index of each observation's time."""
        if temporal is None or now is None:
            one = torch.randn(1, features, dtype=torch.float64).to(inputs)
            return one, torch.zeros(len(inputs), dtype=torch.long, device=inputs.device)
        times, which = torch.unique(torch.cat([inputs[:, -1], now]), return_inverse=True)
        root = safe_cholesky(to_dense(temporal(times.unsqueeze(-1))), 1e-12)
        w = root @ torch.randn(len(times), features, dtype=torch.float64).to(inputs)
        return torch.cat([w, w[which[-1:]]]), which[:-1]

    def __call__(self, X: Tensor) -> Tensor:
        flat = X.reshape(-1, X.shape[-1])
        values = self._mean(flat) + self._phi(self._transform(flat)[:, : self._d]) @ self._path
        if len(self._inputs):
            values = values + to_dense(self._kernel(flat, self._inputs)) @ self._coefficients
        return values.reshape(X.shape[:-1])


def _features(space: Kernel, d: int, features: int, like: Tensor) -> Callable[[Tensor], Tensor]:
    """BoTorch's random Fourier features of a kernel over space: a map from n x d to n x ``features``."""
    base, _ = unscaled(space)
    known = isinstance(base, RBFKernel | MaternKernel)
    expected = (
        "RBFKernel or MaternKernel, scaled or not, alone or as the space_kernel of a SpatioTemporalKernel"
    )
    shown = " of ".join(type(part).__name__ for part in dict.fromkeys((space, base)))
    validation.require(known, "kernel", shown, expected)
    even = validation.positive_integer("features", features) % 2 == 0
    validation.require(even, "features", features, "an even number")
    phi = gen_kernel_features(space, num_inputs=d, num_outputs=features).to(like)
    return lambda X: phi(X)
