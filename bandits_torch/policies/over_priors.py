"""Policies for an unknown prior: UCB or draws over candidate priors or length-scales, and elimination of candidates."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from botorch.acquisition import AcquisitionFunction
from torch import Tensor

from bandits_torch import validation
from bandits_torch.acquisition.over_priors import (
    BayesianOverPriors,
    LikeliestPrior,
    OptimisticOverPriors,
    OverPriors,
)
from bandits_torch.acquisition.point_search import PointSearch
from bandits_torch.acquisition.thompson_sampling import ThompsonSampling
from bandits_torch.acquisition.upper_confidence_bound import UpperConfidenceBound
from bandits_torch.domain import Domain
from bandits_torch.models.arms.arm_gp import ArmGP
from bandits_torch.models.online_model import require_within
from bandits_torch.models.points.online_gp import OnlineGP
from bandits_torch.policies.choices import choices_over
from bandits_torch.policies.choices.choices import ModelChoices
from bandits_torch.policies.policy import Choice, Observation, Pending, Policy
from bandits_torch.streams import ReplicateStreams
from bandits_torch.theory.prior_widths import elimination_xi, xi_at
from bandits_torch.theory.widths import ConstantWidth, Width, checked

_ROUNDING = 1e-9


class UnknownPriorPolicy(Policy):
    """Scores each choice by UCB or a draw under every candidate prior, and reduces these to one value per choice. Every
    prior learns every reward.

    Args:
        model: has batch shape (S, P), replicates and candidate priors: an ``ArmGP`` (``arm_gp_over_priors``), or an
            ``OnlineGP`` (``online_gp_over_priors``) over the inputs of ``choices``.
        width: may differ between priors.
        choices: None for an ``ArmGP``; a ``Domain`` for an ``OnlineGP``.
        search: options of the search over a domain, see ``IndexPolicy``.
        seed, first_replicate: for the search and for draws, see ``IndexPolicy``.
        draws: True to score arms by a draw f^p ~ GP(mu^p, k^p) under every prior p (Thompson sampling) instead of
            UCB. Only over arms.

    A step costs one batched step of the model, and with ``draws`` a root of every prior's covariance
    (``ThompsonSampling``). ``trace`` records the prior played. Ties between arms go to the smallest index, ties between
    priors to the first. An index that is NaN counts as -inf. Rewards of a static model may arrive in any order; if an
    ``ArmGP`` drifts, a late reward is a ValueError. Draws ignore pending choices.

    Raises ValueError for a model of the wrong kind or batch shape, and ``draws`` over a domain.
    """

    needed: tuple[str, ...] = ("prior",)  # names in ``Choice.why`` that ``learn`` reads
    learns_late = False  # whether an ``ArmGP`` that drifts learns late rewards
    _may_draw = True

    def __init__(
        self,
        model: ArmGP | OnlineGP,
        width: Width,
        *,
        choices: Domain | None = None,
        search: PointSearch | None = None,
        seed: int = 0,
        first_replicate: int = 0,
        draws: bool = False,
    ) -> None:
        validation.instance("model", model, (ArmGP, OnlineGP), "an ArmGP, or an OnlineGP over a domain")
        validation.instance("width", width, Width, "a Width, such as ConstantWidth(2.0)")
        two = len(model.batch_shape) == 2
        validation.require(two, "model.batch_shape", tuple(model.batch_shape), "(S, P): replicates, priors")
        if choices is not None:
            validation.instance("choices", choices, Domain, "a Domain")
        own = choices_over(model, choices, search=search, seed=seed, first_replicate=first_replicate)
        self.model, self.width, self.choices = model, width.bind(model, None), own
        self.replicates, self.num_priors = self._batch_shape = model.batch_shape
        validation.natural("first_replicate", first_replicate)
        validation.instance("draws", draws, bool, "True or False")
        may_draw = self._may_draw and choices is None
        validation.require(may_draw or not draws, "draws", draws, "False over a domain or to balance regret")
        self._streams: ReplicateStreams | None = None
        own.conditions = not draws
        if draws:
            self._streams = ReplicateStreams(
                seed, self.replicates, purpose="policy", first=first_replicate, like=model.noise_variance
            )
        self.num_arms, self.dim = self.choices.num_arms, self.choices.dim
        self._begin()

    @abstractmethod
    def _over(self, base: AcquisitionFunction) -> OverPriors:
        """The acquisition function that reduces the scores under the priors to one."""

    @torch.no_grad()
    def choose(self, time: float, available: Tensor | Domain | None = None) -> Choice:
        """The best available choice of each replicate, (S,) arms or (S, d) points, and the prior that chose it."""
        self.choices.check_available(available)
        width = self.width.at(self._step(1), self.model).expand(self._batch_shape)
        if self._streams is None:
            base: AcquisitionFunction = UpperConfidenceBound(self.model, width)
        else:
            base = ThompsonSampling.at_step(self.model, self.choices.step(time, None, self._streams))
        arm, prior = self.choices.best_under(self._over(base), time, available)
        return Choice(arm, {"prior": prior, "width": width.gather(-1, prior.unsqueeze(-1)).squeeze(-1)})

    def numbers_per_step(self, observations: int) -> int:
        return super().numbers_per_step(observations) * self.num_priors

    _expects: ClassVar[tuple[str, ...]] = ("choices",)

    def expect(self, pending: Pending, time: float) -> None:
        """The model conditions on pending pulls under every prior. Widths and the priors' records do not change."""
        self.choices.expect(pending.arm, pending.time)

    @torch.no_grad()
    def learn(self, observation: Observation) -> None:
        self.check(observation)
        self.learn_checked(observation)

    def check(self, observation: Observation) -> None:
        """Raise ValueError unless the policy can learn the observation; ``why["prior"]`` (S,): numbers of priors."""
        self.choices.check(observation, *self.needed)
        prior = observation.why["prior"]
        right = prior.dtype == torch.long
        right = right and (not prior.is_cpu or bool(((prior >= 0) & (prior < self.num_priors)).all()))
        validation.require(right, "why['prior']", prior, f"int64 from 0 to {self.num_priors - 1}")

    def learn_checked(self, observation: Observation) -> None:
        """``learn`` for an observation that ``choices.check`` has accepted, without another check."""
        self.choices.observe(observation.arm, observation.reward, observation.time, late=self.learns_late)
        self._clock = self._clock + 1
        self._prior = observation.why["prior"]

    def predicted(self, observation: Observation) -> tuple[Tensor, Tensor]:
        """Posterior mean and deviation of an observation's choice at its time under the prior that chose it, (S,) each;
        its reward is ignored."""
        mean, deviation = self.choices.predict(observation.arm, observation.time)
        at = observation.why["prior"].unsqueeze(-1)
        return mean.gather(-1, at).squeeze(-1), deviation.gather(-1, at).squeeze(-1)

    def _step(self, ahead: int = 0) -> int | Tensor:
        """The number of learned steps plus ``ahead``, an integer or (S, 1)."""
        clock = self._clock + ahead
        return clock.unsqueeze(-1) if isinstance(clock, Tensor) else clock

    def trace(self) -> dict[str, Tensor | float]:
        return {"prior": self._prior}

    @property
    def _parts(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("choices",) if self._streams is None else ("choices", "_streams")

    _clock: int | Tensor  # observations since the start or reset, (S,) once replicates differ
    _prior: Tensor  # the prior played last, (S,)
    _lasting = ("_prior",)
    _clocks = ("_clock",)

    def _fresh(self) -> dict[str, Any]:
        first = torch.zeros(self.replicates, dtype=torch.long, device=self.model.noise_variance.device)
        return {"_clock": 0, "_prior": first}


class LikeliestPriorPolicy(UnknownPriorPolicy):
    """GP-UCB under the prior with the largest marginal likelihood (type II maximum likelihood).

    Source: the type II likelihood baseline of Ziomek et al. 2024, section 7. Arguments: see ``UnknownPriorPolicy``.
    """

    def _over(self, base: AcquisitionFunction) -> OverPriors:
        return LikeliestPrior(base)


class BayesianPriorPolicy(UnknownPriorPolicy):
    """Mean UCB over the priors, weighted by their posterior probabilities (equal before the first reward).

    Source: the fully Bayesian baseline of Ziomek et al. 2024, section 7. Arguments: see ``UnknownPriorPolicy``.
    """

    def _over(self, base: AcquisitionFunction) -> OverPriors:
        return BayesianOverPriors(base)


class SampledPriorPolicy(UnknownPriorPolicy):
    """HP-GP-TS: draw a prior from its posterior, then a function under that prior, and play the function's best arm.

    p_t ~ P(p | D), proportional to P(D | p) because all priors are equally probable at first; f_t ~ GP(mu^{p_t},
    k^{p_t}); x_t = argmax f_t. So it is Thompson sampling for an f whose prior was drawn uniformly from the candidates.
    p_t is the prior with the largest log P(D | p) + G_p, G_p independent standard Gumbel numbers.

    Args:
        model, seed, first_replicate: see ``UnknownPriorPolicy``; an ``ArmGP``.

    Source: Sandberg & Haghir Chehreghani 2025 (arXiv 2502.01226), HP-GP-TS, written from the abstract and introduction;
    their regret bound was not read, and none is claimed. Costs and errors: see ``UnknownPriorPolicy``.
    """

    def __init__(self, model: ArmGP, *, seed: int = 0, first_replicate: int = 0) -> None:
        super().__init__(model, ConstantWidth(1.0), seed=seed, first_replicate=first_replicate, draws=True)

    def _over(self, base: AcquisitionFunction) -> OverPriors:
        assert self._streams is not None
        uniform = self._streams.uniform(self.num_priors).clamp_min(torch.finfo(torch.float32).tiny)
        return LikeliestPrior(base, self.model.log_likelihood - (-uniform.log()).log())


class _TestedPriors(UnknownPriorPolicy):
    """Base class: tests priors with xi_t of Ziomek et al. 2024, Theorem 4.1; arguments: see ``PriorElimination``."""

    surviving: Tensor  # (S, P) booleans
    _bounds: Tensor  # sums of width sigma over the steps at which a prior was played, (S, P)
    _plays: Tensor  # their number, (S, P)

    def __init__(
        self,
        model: ArmGP | OnlineGP,
        width: Width,
        *,
        choices: Domain | None = None,
        search: PointSearch | None = None,
        seed: int = 0,
        first_replicate: int = 0,
        draws: bool = False,
        delta: float = 0.1,
        noise_scale: float | Tensor | None = None,
        xi: str = "two-sided",
    ) -> None:
        random: dict[str, Any] = {"seed": seed, "first_replicate": first_replicate, "draws": draws}
        super().__init__(model, width, choices=choices, search=search, **random)
        self.delta, self.xi = validation.probability("delta", delta), xi
        usual = model.noise_variance.sqrt()
        scale = validation.numbers("noise_scale", usual if noise_scale is None else noise_scale, usual)
        require_within(model.batch_shape, scale.shape, "noise_scale")
        self._noise_scale = checked(validation.positive, "noise_scale", scale).expand(model.batch_shape)
        elimination_xi(1, self.num_priors, self._noise_scale, self.delta, xi)  # ValueError for another ``xi``
        self._sides = 2 if xi == "two-sided" else 1

    def _xi(self) -> Tensor:
        """xi_t of this step, (S, P)."""
        xi = xi_at(self._step(), self.num_priors, self._noise_scale, self.delta, self._sides)
        return torch.as_tensor(xi)

    def _records(self, *sums: str) -> dict[str, Tensor]:
        """Initial records: all priors survive, and their ``sums`` are 0."""
        zeros = self.model.noise_variance.new_zeros(self.model.batch_shape)
        return {"surviving": zeros == 0, **{name: zeros.clone() for name in ("_bounds", "_plays", *sums)}}


class PriorElimination(_TestedPriors):
    """PE-GP-UCB: play the largest UCB of any surviving prior; drop a prior whose predictions are poor.

    (x_t, p_t) = argmax over arms and surviving priors of mu^p_{t-1} + width^p_t sigma^p_{t-1}. With
    eta_t = y_t - mu^{p_t}_{t-1}(x_t) and S the steps when p_t was played, p_t is dropped if

        |sum_{i in S} eta_i| > sqrt(xi_t |S|) + sum_{i in S} width_i sigma^{p_t}_{i-1}(x_i).

    Source: Ziomek et al. 2024, Algorithm 1, with two corrections. The paper prints sigma_i, but its proof needs
    sigma_{i-1}, the deviation before the observation; with sigma_i the true prior is rejected in most runs
    (tests/claims). The printed xi_t lacks a factor 2, which only normal noise does not need (``elimination_xi``).

    With ``draws`` it is PE-GP-TS of Sandberg & Haghir Chehreghani 2025 (arXiv 2502.01226): (x_t, p_t) = argmax of
    f^p(x) over arms and surviving priors, f^p ~ GP(mu^p, k^p). Only their abstract and introduction were read; the
    maximum over priors and the test are our reading, and no theorem is claimed.

    Args:
        model, choices, search, seed, first_replicate, draws: see ``UnknownPriorPolicy``.
        width: the theorem's are ``PriorEliminationFiniteWidth`` over arms, and ``PriorEliminationContinuousWidth``.
        delta: failure probability.
        noise_scale: R, a number or a tensor that broadcasts to (S, P); default: sqrt(lambda).
        xi: ``"two-sided"`` or ``"printed"``, the form of xi_t.

    The last surviving prior is never dropped. ``trace`` records the prior played, the number of survivors, the
    prior dropped at this step (-1: none), and ``all_refuted``, whether the last survivor has ever failed the test. If
    an ``ArmGP`` drifts, a late reward is a ValueError, because it cannot be predicted.

    Raises ValueError unless 0 < ``delta`` < 1, ``noise_scale`` > 0 and ``xi`` is one of the two.
    """

    _JUDGED = ("surviving", "_errors", "_bounds", "_plays", "_dropped", "_refuted")
    _errors: Tensor  # sums of eta, (S, P)
    _dropped: Tensor  # the prior dropped at this step, (S,)
    _refuted: Tensor  # whether the last survivor has failed the test, (S,)

    def _fresh(self) -> dict[str, Any]:
        own = super()._fresh()
        dropped = torch.full_like(own["_prior"], -1)
        judged = {"_dropped": dropped, "_refuted": torch.zeros_like(dropped).bool()}
        return own | self._records("_errors") | judged

    def _over(self, base: AcquisitionFunction) -> OverPriors:
        over = OptimisticOverPriors(base)
        over.surviving = self.surviving  # needs no check: at least one survives
        return over

    def learn_checked(self, observation: Observation) -> None:
        """Let every prior observe the reward; then test the prior played by its prediction."""
        mean, deviation = self.predicted(observation)
        super().learn_checked(observation)
        error, bound = observation.reward.to(mean) - mean, observation.why["width"] * deviation
        at = self._prior.unsqueeze(-1)
        self._errors.scatter_add_(-1, at, error.unsqueeze(-1))
        self._bounds.scatter_add_(-1, at, bound.unsqueeze(-1))
        self._plays.scatter_add_(-1, at, torch.ones_like(bound).unsqueeze(-1))
        threshold = torch.sqrt(self._xi() * self._plays) + self._bounds
        failed = (self._errors.abs() > threshold).gather(-1, at).squeeze(-1)
        last = self.surviving.sum(-1) == 1
        drop = failed & ~last
        self.surviving.scatter_(-1, at, self.surviving.gather(-1, at) & ~drop.unsqueeze(-1))
        self._dropped = torch.where(drop, self._prior, -1)
        self._refuted = self._refuted | (failed & last)

    def trace(self) -> dict[str, Tensor | float]:
        judged = {"dropped": self._dropped, "all_refuted": self._refuted}
        return super().trace() | {"surviving": self.surviving.sum(-1), **judged}

    @property
    def restarts(self) -> Tensor:
        """Number of restarts, (S,): always 0."""
        return torch.zeros_like(self._prior)

    def refitted(self, where: Tensor) -> None:
        """Called after the hyperparameters have changed in the replicates with ``where`` (S,) True. All priors are then
        other priors: all survive, with empty records."""
        self._renew(where, *self._JUDGED)

    needed = ("prior", "width")


class RegretBalancing(_TestedPriors):
    """Regret balancing: play by the prior that was followed least, and drop priors with too little reward.

    With S_p the steps when p was followed, the surviving prior with the smallest |S_p| + 1 chooses (suspected
    regret R^p(t) = t). Once all survivors have been followed, with

        L(p) = sum_{i in S_p} y_i / |S_p| - sqrt(xi_t / |S_p|),

    p stays if L(p) + sum_{i in S_p} width_i sigma^p_{i-1}(x_i) / |S_p| >= max over survivors of L.

    Source: Ziomek et al. 2024, Algorithm 2, as printed, with xi_t of their Theorem 4.1 (``elimination_xi``). The
    test compares rewards of different steps, so it is valid for functions and arm sets that do not change. The prior
    with the largest L always stays. Rewards may arrive in any order: the deviation of a choice is computed from the
    rewards learned before it was made. ``trace`` records the prior followed and the number of survivors.

    Arguments: those of ``PriorElimination``; ``draws`` must be False. Raises ValueError unless 0 < ``delta`` < 1,
    ``noise_scale`` > 0 and ``xi`` is one of the two.
    """

    needed = ("prior", "bound")
    learns_late = True
    _may_draw = False

    _before_pending: ModelChoices | None = None  # a copy of the choices without pending pulls, if any
    _expects = ("choices", "_plays", "_before_pending")
    _rewards: Tensor  # sums over the steps at which a prior was followed, (S, P)

    def _fresh(self) -> dict[str, Any]:
        return super()._fresh() | self._records("_rewards")

    def in_play(self) -> Tensor:
        """Which priors may be followed, (S, P)."""
        return self.surviving

    def suspected(self) -> Tensor:
        """R^p after the coming step, if p is followed, (S, P)."""
        return self._plays + 1

    def followed(self) -> Tensor:
        """The prior in play with the least suspected regret, (S,); ties go to the first."""
        return self.suspected().masked_fill(~self.in_play(), torch.inf).argmin(-1)

    def _over(self, base: AcquisitionFunction) -> OverPriors:
        return _under_one(base, self.followed())

    @torch.no_grad()
    def choose(self, time: float, available: Tensor | Domain | None = None) -> Choice:
        """The best choice under the prior that is followed; ``why["bound"]`` is width_i sigma^p_{i-1}(x_i), (S,)."""
        choice = super().choose(time, available)
        prior, learned = choice.why["prior"], self._before_pending or self.choices
        deviation = learned.predict(choice.arm, time)[1].gather(-1, prior.unsqueeze(-1)).squeeze(-1)
        return Choice(choice.arm, {"prior": prior, "bound": choice.why["width"] * deviation})

    def expect(self, pending: Pending, time: float) -> None:
        """A pending pull also counts as a play of the prior that was followed."""
        self.check(Observation(pending.time, pending.arm, torch.zeros(self.replicates), pending.why))
        if self._before_pending is None:
            self._before_pending = copy.deepcopy(self.choices)
        super().expect(pending, time)
        self._plays.scatter_add_(-1, pending.why["prior"].unsqueeze(-1), torch.ones_like(self._plays[:, :1]))

    def learn_checked(self, observation: Observation) -> None:
        """Let every prior observe the reward; then compare the records of the priors in play."""
        at, playing = observation.why["prior"].unsqueeze(-1), self.in_play()
        super().learn_checked(observation)
        self._rewards.scatter_add_(-1, at, observation.reward.to(self._rewards).unsqueeze(-1))
        self._bounds.scatter_add_(-1, at, observation.why["bound"].unsqueeze(-1))
        self._plays.scatter_add_(-1, at, torch.ones_like(self._plays[:, :1]))
        mean, xi = self._rewards / self._plays, self._xi()
        best = (mean - torch.sqrt(xi / self._plays)).masked_fill(~playing, -torch.inf).amax(-1, keepdim=True)
        all_followed = ((self._plays > 0) | ~playing).all(-1, keepdim=True)
        self.surviving &= ~((mean + self._reach(xi) < best) & playing & all_followed)

    def _reach(self, xi: Tensor) -> Tensor:
        """How far a prior's mean reward may lie below the largest (mean reward - sqrt(xi / n)) in play, (S, P)."""
        return self._bounds / self._plays - torch.sqrt(xi / self._plays)

    def trace(self) -> dict[str, Tensor | float]:
        return super().trace() | {"surviving": self.in_play().sum(-1)}


class ShrinkingLengthScale(UnknownPriorPolicy):
    """A-GP-UCB: UCB under the length-scale theta_0 / g(t), which shrinks with time; the width uses its norm bound.

    Source: Berkenkamp, Schoellig & Krause 2019, Algorithm 1, with b(t) = 1 and g(t) = max(1, t^shrink) rounded up to
    the next of ``factors``; they allow any g that grows without bound. Valid once g(t) >= theta_0 / theta, with theta
    the true length-scale: each member's width with probability 1 - delta, so all P with 1 - P delta.

    Args:
        model: has batch shape (S, P), member p with length-scale theta_0 / factors[p].
        width: with a norm bound for each member.
        factors: P ascending numbers, the first 1.
        shrink: exponent of g, in (0, 1); after the largest factor the length-scale stays.

    Late rewards: see ``UnknownPriorPolicy``. Raises ValueError for other ``factors``, and unless 0 < ``shrink`` < 1.
    """

    def __init__(self, model: ArmGP, width: Width, factors: Sequence[float], shrink: float = 0.25) -> None:
        super().__init__(model, width)
        self._factors, self._shrink = _checked_factors(factors, shrink, model)

    def followed(self) -> Tensor:
        """The member of the coming step, (S,)."""
        growth = torch.as_tensor(self._step(1), device=self._factors.device).to(self._factors) ** self._shrink
        passed = (self._factors < growth - _ROUNDING).sum(-1)
        return passed.clamp(max=self.num_priors - 1).expand(self.replicates)

    def _over(self, base: AcquisitionFunction) -> OverPriors:
        return _under_one(base, self.followed())


class LengthScaleBalancing(RegretBalancing):
    """LB-GP-UCB: follow the length-scale with the least regret bound, and drop those with too little reward.

    A member enters when t^shrink reaches its factor, and stays until it is dropped. With n_p the number of steps at
    which member p was followed, the member in play with the least R_p(n_p + 1) chooses,

        R_p(n) = sqrt(n gamma) (sqrt(gamma) + B),    gamma = (factor_p / theta_0)^d ln(n + 1)^{d+1}.

    Once all members in play have been followed, p is dropped if

        mean reward of p + sqrt(xi_t / n_p) + 2 sum_{i in S_p} width_i sigma^p_{i-1}(x_i) / n_p
            < max_q (mean reward of q - sqrt(xi_t / n_q)),    xi_t = 2 R^2 ln(2 P pi^2 t^2 / (3 delta)).

    A member whose width holds is never dropped: f* <= f(x_i) + 2 width sigma, and no mean reward exceeds f* by more
    than the noise. Valid for functions and arm sets that do not change.

    Source: Ziomek, Adachi & Osborne 2024 (arXiv 2410.10384), length-scale balancing; the growth bound for squared
    exponential kernels, scaled by the length-scale. Written from the abstract and the authors' published code. The code
    has one width sigma in the test, but the argument above needs two; and ln n, which is 0 for n = 1.

    Args:
        model, width, factors, shrink: as for ``ShrinkingLengthScale``; the width has one norm bound B for all.
        lengthscale: theta_0.
        dim: d.
        rkhs_bound: B of R_p, a number or (S, 1).
        delta, noise_scale: as for ``PriorElimination``.

    Raises ValueError as ``ShrinkingLengthScale``, and unless ``lengthscale`` > 0, ``dim`` >= 1, B >= 0, R > 0 and
    0 < ``delta`` < 1.
    """

    def __init__(
        self,
        model: ArmGP,
        width: Width,
        factors: Sequence[float],
        shrink: float = 0.25,
        *,
        lengthscale: float,
        dim: int,
        rkhs_bound: float | Tensor = 1.0,
        delta: float = 0.1,
        noise_scale: float | Tensor | None = None,
    ) -> None:
        super().__init__(model, width, delta=delta, noise_scale=noise_scale)
        self._factors, self._shrink = _checked_factors(factors, shrink, model)
        validation.positive("lengthscale", lengthscale)
        self.dim_of_arms = validation.positive_integer("dim", dim)
        noise = model.noise_variance
        bound = validation.numbers("rkhs_bound", rkhs_bound, noise)
        self._bound = checked(validation.non_negative, "rkhs_bound", bound)
        self._density = (self._factors.to(noise) / lengthscale) ** dim

    def in_play(self) -> Tensor:
        growth = torch.as_tensor(self._step(1), device=self._factors.device).to(self._factors) ** self._shrink
        return self.surviving & (self._factors <= growth + _ROUNDING)

    def suspected(self) -> Tensor:
        """R_p(n_p + 1), (S, P)."""
        n = self._plays + 1
        gamma = self._density * torch.log(n + 1) ** (self.dim_of_arms + 1)
        return torch.sqrt(n * gamma) * (torch.sqrt(gamma) + self._bound)

    def _reach(self, xi: Tensor) -> Tensor:
        return torch.sqrt(xi / self._plays) + 2 * self._bounds / self._plays


def _checked_factors(factors: Sequence[float], shrink: float, model: ArmGP) -> tuple[Tensor, float]:
    """The factors, (P,), and ``shrink``."""
    given, P = list(factors), model.batch_shape[-1]
    validation.probability("shrink", shrink)
    right = sorted(set(given)) == given and given[:1] == [1.0] and len(given) == P
    validation.require(right, "factors", given, f"{P} ascending numbers from 1 on")
    return torch.tensor(given, dtype=torch.float64, device=model.noise_variance.device), shrink


def _under_one(base: AcquisitionFunction, prior: Tensor) -> OverPriors:
    """Uses only the scores under ``prior``, (S,)."""
    over = OptimisticOverPriors(base)
    over.surviving = torch.nn.functional.one_hot(prior, over.num_priors).bool()
    return over
