"""Arms that come and go in a live system: the list of all arms, and a new policy over them."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor
from torch.nn.functional import pad

from bandits_torch import border, validation
from bandits_torch.arm_context import ArmContext, mask_of
from bandits_torch.kernels.arms import over_indices
from bandits_torch.policies.policy import Origin, Policy
from bandits_torch.policies.wrapping import SomeArms
from bandits_torch.problems.logs import Log
from bandits_torch.recipes.registration import Setup
from bandits_torch.state import differing


@dataclass(frozen=True, eq=False)
class Roster:
    """The arms of a live system, and how a policy over them is built.

    Attributes:
        origin: the recipe call that made the policy over the first arms; None: no recipe made it.
        first: number of arms at the start.
        retired: (N,) booleans, True for arms that are not asked, unless they are added again.
        names: the names of all arms, or None.
        setup: the recipe's setup over all arms; None: no arm was added.
    """

    origin: Origin | None
    first: int
    retired: Tensor
    names: tuple[str, ...] | None = None
    setup: Setup | None = None

    @property
    def num_arms(self) -> int:
        """N."""
        return len(self.retired)

    def numbers(self, name: str, arms: Any) -> list[int]:
        """The indices of arms given by name or index. Raises ValueError for an unknown or repeated arm, or no arm."""
        listed = list(arms) if isinstance(arms, border.SEQUENCES) else []
        found = [index for arm in listed if (index := self._index(arm)) is not None]
        right = len(listed) == len(found) == len(set(found)) > 0
        words = "" if self.names is None else f"names among {self.names}, or "
        expected = f"a list of different arms: {words}numbers from 0 to {self.num_arms - 1}"
        validation.require(right, name, arms, expected)
        return found

    def _index(self, arm: Any) -> int | None:
        if isinstance(arm, str):
            return self.names.index(arm) if self.names is not None and arm in self.names else None
        whole = hasattr(arm, "__index__") and not isinstance(arm, bool | Tensor)
        return operator.index(arm) if whole and 0 <= operator.index(arm) < self.num_arms else None

    def without(self, arms: Any) -> Roster:
        """The roster with these arms retired. Raises ValueError if no arm would be left, or one is retired already."""
        at = self.numbers("arms", arms)
        again = [arm for arm, k in zip(arms, at, strict=True) if bool(self.retired[k])]
        validation.require(not again, "arms", again, "not retired already")
        retired = self.retired.clone()
        retired[at] = True
        left = not bool(retired.all())
        validation.require(left, "arms", list(arms), "fewer than all arms: one must remain")
        return replace(self, retired=retired)

    def with_arms(self, arms: Any, **given: Any) -> tuple[Roster, list[int]]:
        """The roster with these arms added or brought back, and their indices.

        ``arms``: names; if arms have no names, how many are new, or the indices of retired ones. ``given``: features,
        covariance and prior_mean of ``AskTell.add_arms``. Raises ValueError if they do not fit.
        """
        n, names = self.num_arms, self.names
        if names is not None:
            words = border.is_sequence_of_words(arms) and all(arms) and len(set(arms)) == len(arms)
            validation.require(words, "arms", arms, "a list of different names")
            names = (*names, *(str(arm) for arm in arms if arm not in names))
            at = [names.index(arm) for arm in arms]
        elif isinstance(arms, int) and not isinstance(arms, bool):
            at = list(range(n, n + validation.positive_integer("arms", arms)))
        else:
            at = self.numbers("arms", arms)
        playing = [k if names is None else names[k] for k in at if k < n and not bool(self.retired[k])]
        validation.require(not playing, "arms", playing, "new, or retired")
        new = sum(k >= n for k in at)
        for name, value in given.items():
            validation.require(new > 0 or value is None, name, value, "None: no arm is new")
        retired = torch.cat([self.retired, self.retired.new_zeros(new)])
        retired[at] = False
        setup = self._setup_with(new, given) if new else self.setup
        return replace(self, names=names, retired=retired, setup=setup), at

    def _setup_with(self, new: int, given: Mapping[str, Tensor | None]) -> Setup:
        """The recipe's setup over these arms and ``new`` ones. Raises ValueError for values that do not fit."""
        origin, n, N = self._made_by(), self.num_arms, self.num_arms + new
        history = origin.options.get("history")
        expected = "None: it says nothing about arms added later; give a kernel or a covariance"
        validation.require(history is None, "history", history, expected)
        old: Setup = self.setup or origin.setup
        choices, kernel, mean = old.choices, old.kernel, old.prior_mean
        expected = "over features, or a matrix: a kernel over indices says nothing about new arms"
        validation.require(not _by_index(kernel), "kernel", type(kernel).__name__, expected)
        for prior in old.priors or ():
            one = not isinstance(prior.mean, Tensor) or prior.mean.numel() == 1
            over_features = not isinstance(prior.kernel, Tensor) and not _by_index(prior.kernel) and one
            expected = "kernels over features, each with one mean: others say nothing about new arms"
            validation.require(over_features, "priors", type(prior.kernel).__name__, expected)
        several = isinstance(mean, Tensor) and mean.dim() > 0 and mean.shape[-1] == n > 1
        for name, needed, why, why_not in (
            (
                "features",
                isinstance(choices, Tensor),
                "the other arms have features",
                "the other arms have none",
            ),
            ("covariance", isinstance(kernel, Tensor), "the kernel is a matrix", "no matrix was given"),
            ("prior_mean", several, "the others have one", "all arms share one"),
        ):
            value, expected = given[name], f"given: {why}" if needed else f"None: {why_not}"
            validation.require((value is not None) == needed, name, value, expected)
            if value is not None:
                real = not validation.finite_tensor(name, value).is_complex()
                validation.require(real, name, value.dtype, "real numbers")
        grown: dict[str, Any] = {"choices": N}
        features, covariance, more = (given[name] for name in ("features", "covariance", "prior_mean"))
        if isinstance(choices, Tensor) and features is not None:
            d = choices.shape[-1]
            fits = features.dim() <= choices.dim() and features.shape[-2:] == (new, d)
            validation.shape_is("features", features, fits, f"({new}, {d}), a row for each new arm")
            rows = features.to(choices).expand(*choices.shape[:-2], -1, -1)
            grown["choices"] = torch.cat([choices, rows], -2)
        if isinstance(kernel, Tensor) and covariance is not None:
            fits = covariance.shape == (*kernel.shape[:-2], N, N)
            validation.shape_is("covariance", covariance, fits, f"({N}, {N}), of all arms")
            grown["kernel"] = covariance.to(kernel)
            same = bool(torch.allclose(grown["kernel"][..., :n, :n], kernel))
            validation.require(same, "covariance", covariance, f"as given before for the first {n} arms")
        if isinstance(mean, Tensor) and more is not None:
            fits = 0 < more.dim() <= mean.dim() and more.shape[-1] == new
            validation.shape_is("prior_mean", more, fits, f"({new},), one for each new arm")
            grown["prior_mean"] = torch.cat([mean, more.to(mean).expand(*mean.shape[:-1], -1)], -1)
        return replace(old, grown_from=self.first, **grown)

    def of_those_here(self, available: Any) -> Any:
        """A step's mask of available arms, with retired arms excluded. Raises ValueError if no arm is left."""
        if not bool(self.retired.any()):
            return available
        mask, kept = mask_of(available), ~self.retired
        if isinstance(mask, Tensor) and mask.dtype == torch.bool and mask.shape[-1:] == kept.shape:
            kept = kept.to(mask.device) & mask
            left = bool(kept.any(-1).all())
            validation.require(left, "available", mask, "with at least one arm that is not retired")
        elif mask is not None:
            return available  # a wrong mask, which the policy refuses
        return replace(available, available=kept) if isinstance(available, ArmContext) else kept

    # -- a policy over these arms ----------------------------------------------------------------------

    def policy(self, *, restarts: bool = False) -> Policy:
        """A new policy over all arms, built like the first one; if it ``restarts`` with every change of arms, over the
        arms that are not retired. Raises ValueError if no recipe made the first one."""
        origin, kept = self._made_by(), ~self.retired
        options, setup = {**origin.options}, self.setup or origin.setup
        log = options.pop("log", None)  # the old policy has learned it; only its contexts are settings
        if isinstance(log, Log) and not options.get("context_dim") and options.get("contexts") is None:
            options |= log.context_options
        if isinstance(safe := options.get("safe_arms"), Tensor) and safe.dtype == torch.bool:
            options["safe_arms"] = pad(safe, (0, self.num_arms - self.first))
        if not restarts or bool(kept.all()):
            return origin.recipe(setup, **options)
        expected = "over features, or a matrix, for a policy that restarts with other arms"
        validation.require(not _by_index(setup.kernel), "kernel", type(setup.kernel).__name__, expected)
        return SomeArms(origin.recipe(setup.of_arms(kept), **options), kept)

    def _made_by(self) -> Origin:
        if self.origin is None:
            expected = "made by a recipe, with settings that were not taken from a file"
            raise ValueError(f"policy must be {expected}, got one built otherwise")
        return self.origin

    # -- as plain data ---------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Number of arms at the start, retired arms, names, and the values of the arms added later."""
        names = None if self.names is None else list(self.names)
        state = {"first": self.first, "retired": self.retired, "names": names}
        state |= dict.fromkeys(("features", "covariance", "prior_mean"))
        if self.setup is not None:
            choices, kernel, mean = self.setup.choices, self.setup.kernel, self.setup.prior_mean
            if isinstance(choices, Tensor):
                state["features"] = choices[..., self.first :, :]
            if isinstance(kernel, Tensor):
                state["covariance"] = kernel
            if isinstance(mean, Tensor) and mean.dim() > 0 and mean.shape[-1] == self.num_arms:
                state["prior_mean"] = mean[..., self.first :]
        return state

    def in_state(self, state: Mapping[str, Any]) -> Roster:
        """The roster of the system that saved ``state``. That system must have started with the first arms of this one,
        or with some of them and then added the others. Raises ValueError for the state of another system."""
        own_names = sorted(self.state_dict())
        validation.require(sorted(state) == own_names, "state['arms']", sorted(state), f"with {own_names}")
        first, retired, names = validation.natural("first", state["first"]), state["retired"], state["names"]
        mask = isinstance(retired, Tensor) and retired.dim() == 1 and retired.dtype == torch.bool
        fits = mask and first <= self.first <= len(retired)
        expected = f"of {self.first} arms or more, the number at the start"
        validation.require(fits, "state['arms']", state, expected)
        if names is not None:
            names = border.checked_names(names, len(retired))
        own = None if self.names is None else self.names[: self.first]
        same = (None if names is None else names[: self.first]) == own
        validation.require(same, "names", own, f"the first of {names}")
        start, new = Roster(self.origin, self.first, retired[: self.first]), len(retired) - self.first
        given = {"covariance": state["covariance"]}
        for name, dim in (("features", -2), ("prior_mean", -1)):  # only of arms added after this one's start
            value = state[name]
            if value is not None:
                fits = isinstance(value, Tensor) and value.dim() >= -dim and value.shape[dim] >= new
                validation.require(fits, f"state['arms'][{name!r}]", value, "of all arms added later")
                value = value.narrow(dim, value.shape[dim] - new, new)
            given[name] = value
        setup = start._setup_with(new, given) if new else None
        return replace(start, retired=retired.clone(), names=names, setup=setup)

    def is_over(self, other: Roster, *, restarts: bool = False) -> bool:
        """Whether both have the same arms and values; with ``restarts`` (``policy``), also the same retired arms."""
        if restarts and not torch.equal(self.retired, other.retired):
            return False
        one, two = ({**roster.state_dict(), "retired": roster.num_arms} for roster in (self, other))
        return not differing(one, two)


def _by_index(kernel: Any) -> bool:
    return isinstance(kernel, Kernel) and over_indices(kernel)
