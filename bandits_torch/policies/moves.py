"""Limits on moves of a setting from step to step, and prices for them, over a domain or between arms."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.acquisition.point_search import PointSearch
from bandits_torch.domain import Domain
from bandits_torch.policies.policy import Choice, Observation, Origin, Pending, Policy, natural_in
from bandits_torch.policies.wrapping import WrappingPolicy


class CostlyMoves(WrappingPolicy):
    """Plays an inner policy whose choice, the setting, may move only a little at a step, or only if the move pays.

    * Limits (``max_move``, over a domain): no coordinate moves further than this at a step. The inner policy chooses
      the best point within reach (``Domain.within``), so constraints, limits of measurements and fixed coordinates
      still hold. Coordinates that are fixed at a step have no limit. A setting outside the policy's domain, which was
      learned from elsewhere, counts as the nearest point of its box.
    * A price (``move_price``): over arms it is paid for every switch; over a domain for a move across the whole range
      of a coordinate, and in proportion for a shorter move. With v = mean + width * deviation of the inner policy, x
      the current setting, and z the inner policy's choice, the policy moves if x is not available or

          stay |v(z) - v(x)| >= price of the move from x to z,

      with stay the mean number of steps per move so far, at least 1: the price is paid once, but the gain lasts as long
      as the setting stays. If the inner policy chooses z although v(z) < v(x), to look again or by a draw, this look
      counts as worth v(x) - v(z).

    Until two rewards differ, a policy that learns the unit of rewards uses 1 as the unit.

    The current setting is that of the latest choice, whether learned, pending (``AskTell``: open) or dropped; if
    observations lack their ``why``, that of the latest learned one. Without ``start_at`` the first move is free.

    Args:
        policy: over arms, or over ``domain``. Limits suit every policy over a domain. A price needs beliefs
            (``marginals``) in units of reward: an ``IndexPolicy`` without context, ``auto``, or one around them, that
            does not need its own choices to be played (``needs_choices``).
        domain: the policy's domain; None over arms.
        max_move: a share of each range, above 0, a number or (d,); infinity: no limit.
        move_price: in units of reward, a number >= 0; over a domain also (d,), one for each coordinate.
        start_at: where the setting is before the first step: an arm, or a point (d,).
        search: that of the policy, if not every point may be played (``MixedSearch``). None: the policy's ``search``.

    Cost: with a price, one prediction a step. ``trace`` adds ``moves``, their number so far.

    Source: Asawa & Teneketzis 1996, who require for known Markov chains that a switch pays off within the stay;
    estimating the stay is ours. No theorem bounds the regret. With fixed prices and adversarial rewards the regret of
    every policy is at least of order T^{2/3} (Dekel et al. 2014).

    Raises ValueError for a policy that cannot have limits or prices, limits over arms, numbers out of range, and a
    ``start_at`` outside the domain. ``choose`` raises it if a step's domain leaves nothing within reach.
    """

    def __init__(
        self,
        policy: Policy,
        domain: Domain | None = None,
        *,
        max_move: float | Tensor | None = None,
        move_price: float | Tensor = 0.0,
        start_at: int | Tensor | None = None,
        search: PointSearch | None = None,
    ) -> None:
        self._around(policy)
        fits = domain is None if self.dim == 0 else isinstance(domain, Domain) and domain.dim == self.dim
        validation.require(fits, "domain", domain, "that of the policy, or None over arms")
        self.domain, self.search = domain, policy.search if search is None else search
        validation.instance("search", self.search, PointSearch, "a PointSearch")
        policy.check_rounding(self.search.rounds_to)
        over_points = max_move is None or domain is not None
        expected = "None over arms, between which there is no distance"
        validation.require(over_points, "max_move", max_move, expected)
        like = torch.zeros((), dtype=torch.float64) if domain is None else domain.bounds[0]
        self.max_move = None if max_move is None else _of_each("max_move", max_move, like)
        above = self.max_move is None or bool((self.max_move > 0).all())
        validation.require(above, "max_move", max_move, "above 0")
        self.move_price = _of_each("move_price", move_price, like)
        finite = bool(((self.move_price >= 0) & self.move_price.isfinite()).all())
        validation.require(finite, "move_price", move_price, "finite, >= 0")
        self._priced = bool((self.move_price > 0).any())
        if self._priced:
            inside: Any = self.innermost
            believes = hasattr(inside, "marginals") and not inside.takes_contexts
            expected = "0 for a policy without beliefs about each choice in units of reward, "
            validation.require(believes, "move_price", move_price, expected + type(inside).__name__)
            why = policy.needs_choices
            validation.require(not why, "move_price", move_price, f"0 around this policy: {why}")
        self.start_at, start = None, cast(Any, start_at)
        if start is not None and domain is None:
            among = validation.natural("start_at", start) < self.num_arms
            validation.require(among, "start_at", start, f"an arm below {self.num_arms}")
            self.start_at = torch.tensor(start)
        elif start is not None and domain is not None:
            validation.finite_tensor("start_at", start)
            fits = start.shape == (self.dim,) and bool(domain.contains(start, 0.0))
            validation.require(fits, "start_at", start, f"({self.dim},), in the domain")
            self.start_at = start.to(domain.bounds)
        settings: dict[str, Any] = {"domain": domain, "max_move": max_move, "move_price": move_price}
        settings |= {"start_at": start_at, "search": search}
        if policy.origin is not None:
            recipe = partial(_around, policy.origin.recipe, settings)
            self.origin = Origin(recipe, policy.origin.setup, policy.origin.options)
        self._begin()

    @property
    def needs_unit(self) -> str:  # type: ignore[override]
        """The reason why the policy needs the unit of rewards: it has a price, or the inner policy has a reason."""
        return "it holds a price in units of reward" if self._priced else super().needs_unit

    @property
    def needs_choices(self) -> str:  # type: ignore[override]
        """That moves are limited, or the reason of the inner policy."""
        return super().needs_choices if self.max_move is None else "its moves are limited"

    # -- one step --------------------------------------------------------------------------------------

    def choose(self, time: float, available: Any = None) -> Choice:
        """The inner policy's choice within reach, or the current setting if a move is not worth its price."""
        domain = self.domain if available is None else available
        within, somewhere = available, bool(self._known(self._last).all())
        if self.max_move is not None and somewhere and isinstance(domain, Domain):
            low, high = cast(Domain, self.domain).bounds
            at, far = self._last.clamp(low, high), self.max_move * (high - low)
            within = domain.within(*self.search.inward(at - far, at + far))
        choice = self.policy.choose(time, within)
        arm = choice.arm if self.domain is None else self.search.values(choice.arm)
        if self._priced and somewhere:
            arm = self._worth_it(arm, time, domain if within is None else within)
        move = {"move": self._number + 1, "left": self._last.clone()}
        return replace(choice, arm=arm, why={**choice.why, **move})

    def _known(self, setting: Tensor) -> Tensor:
        """Whether the setting of each replicate is known, (S,)."""
        return setting >= 0 if self.domain is None else setting.isfinite().all(-1)

    @torch.no_grad()
    def _worth_it(self, arm: Tensor, time: float, available: Any) -> Tensor:
        """``arm``, or the current setting if the move is not worth its price."""
        x, S = self._last.to(arm), self.replicates
        if self.domain is None:
            mean, variance = self.marginals(time)
            at = torch.stack([x, arm], -1)
            can = True if available is None else available.expand(S, -1).gather(-1, at[:, :1]).squeeze(-1)
            price = (x != arm) * self.move_price
        else:
            x = available.fix(x)
            mean, variance = self.marginals(time, torch.cat([x, arm]))
            at = torch.arange(2 * S, device=arm.device).reshape(2, S).mT
            can = available.contains(x, 0.0)
            side = self.domain.bounds[1] - self.domain.bounds[0]
            price = ((arm - x).abs() / side * self.move_price).sum(-1)
        inside: Any = self.innermost
        used, width = getattr(inside, "used_width", None), getattr(inside, "width", None)
        if isinstance(used, Tensor):
            width = used.expand(S).unsqueeze(-1)
        elif not validation.is_number(width):
            width = 1.0
        value = (mean + width * variance.clamp_min(0.0).sqrt()).gather(-1, at)
        stay = (self._steps / (1 + self._moves)).clamp_min(1.0).to(arm.device)
        stays = (stay * value.diff(dim=-1).squeeze(-1).abs() < price) & can
        return torch.where(stays if self.domain is None else stays.unsqueeze(-1), x, arm)

    # -- where the setting is --------------------------------------------------------------------------

    def learn(self, observation: Observation) -> None:
        after = self._where(observation)
        self.policy.learn(observation)
        self._number, self._last, self._moves = after
        self._steps = self._steps + 1

    def expect(self, pending: Pending, time: float) -> None:
        super().expect(pending, time)
        self._number, self._last, self._moves = self._where(pending)

    def dropped(self, pending: Pending) -> None:
        """The reward will never come, but the setting was moved."""
        super().dropped(pending)
        self._number, self._last, self._moves = self._where(pending)

    def _where(self, one: Observation | Pending) -> tuple[int, Tensor, Tensor]:
        """The number of the latest choice, its setting, and the number of moves, after this choice. Without a ``why``
        it is taken for the latest. Raises ValueError for a ``why`` or an arm of the wrong kind."""
        arm = validation.of_shape("arm", one.arm, tuple(self._last.shape))
        number = natural_in(one, "move", self._number)
        left = validation.of_shape("why['left']", one.why.get("left", self._last), tuple(self._last.shape))
        left = left.to(self._last)
        moved = (arm.detach().to(left) != left).reshape(self.replicates, -1).any(-1)
        moved = moved & self._known(left) & ("left" in one.why or number >= self._number)
        moves = self._moves + moved.to(self._moves.device)
        if number < self._number:
            return self._number, self._last, moves
        return number, arm.detach().to(self._last, copy=True), moves

    def trace(self) -> dict[str, Tensor | float]:
        return self.policy.trace() | {"moves": self._moves}

    # -- state -----------------------------------------------------------------------------------------

    _expects = ("policy", "_last", "_number", "_moves")
    _lasting = ("_last", "_number")  # a reset does not move the setting
    _last: Tensor  # the present setting, (S,), -1 if not known, or (S, d), NaN if not known
    _number: int  # of the latest choice
    _steps: Tensor  # rewards learned, (S,)
    _moves: Tensor  # number of moves so far, (S,)

    def _fresh(self) -> dict[str, Any]:
        S = self.replicates
        if self.domain is None:
            at, counts = torch.full((S,), -1), torch.zeros(S, dtype=torch.float64)
        else:
            at = self.domain.bounds.new_full((S, self.dim), torch.nan)
            counts = at.new_zeros(S)
        if self.start_at is not None:
            at = at * 0 + self.start_at if self.domain is None else self.start_at.expand(S, -1).clone()
        return {"_last": at, "_number": 0, "_steps": counts, "_moves": counts.clone()}


def _around(recipe: Any, settings: dict[str, Any], setup: Any, **options: Any) -> CostlyMoves:
    """The policy of a recipe, in a ``CostlyMoves`` with these settings."""
    return CostlyMoves(recipe(setup, **options), **settings)


def _of_each(name: str, value: Any, like: Tensor) -> Tensor:
    """``value`` as a tensor, () or, with one number per coordinate, (d,). Raises ValueError for any other shape."""
    shapes = dict.fromkeys(((), tuple(like.shape)))
    return validation.of_shape(name, validation.numbers(name, value, like), *shapes)
