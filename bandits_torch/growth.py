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
from bandits_torch.state import differing


@dataclass(frozen=True, eq=False)
class Roster:
    """The arms of a live system, and the arguments given for arms added after the start.

    Attributes:
        first: number of arms at the start.
        retired: (N,) booleans, True for arms that are not asked, unless they are added again.
        names: the names of all arms, or None.
        features: (N - first, d) or (S, N - first, d), features of the added arms; None if arms have no features.
        covariance: (N, N) or (S, N, N), covariance of all arms, if the given kernel is a matrix.
        prior_mean: (N - first,), prior means of the added arms, if each arm has its own.
    """

    first: int
    retired: Tensor
    names: tuple[str, ...] | None = None
    features: Tensor | None = None
    covariance: Tensor | None = None
    prior_mean: Tensor | None = None

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
        retired = torch.cat([self.retired, self.retired.new_zeros(new)])
        retired[at] = False
        grown = replace(self, names=names, retired=retired)
        if new or any(one is not None for one in given.values()):
            grown = replace(grown, **self._values_of(new, given))
        return grown, at

    def _values_of(self, new: int, given: Mapping[str, Tensor | None]) -> dict[str, Any]:
        """The covariance, and the values for all added arms: those given now appended to those given before."""
        covariance, N = given["covariance"], self.num_arms + new
        if covariance is not None:
            validation.finite_tensor("covariance", covariance)
            fits = new > 0 and covariance.shape[-2:] == (N, N)
            validation.shape_is("covariance", covariance, fits, f"({N}, {N}), of all arms, if some are new")
        made = {"covariance": covariance}
        for name, dim in (("features", -2), ("prior_mean", -1)):
            before, value = getattr(self, name), given[name]
            if value is not None:
                real = not validation.finite_tensor(name, value).is_complex()
                validation.require(real, name, value.dtype, "real numbers")
                dims = (2, 3) if name == "features" else (1,)
                fits = value.dim() in dims and new > 0 and value.shape[dim] == new
                validation.shape_is(name, value, fits, f"a row for each of the {new} new arms")
            alike = self.num_arms == self.first or (before is None) == (value is None)
            validation.require(alike, name, value, "given, as for the arms added before")
            both = [one for one in (before, value) if one is not None]
            made[name] = torch.cat([one.to(both[0]) for one in both], dim) if both else None
        return made

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

    def policy(self, origin: Origin | None, *, restarts: bool = False) -> Policy:
        """A new policy over all arms, built like the first one; if it ``restarts`` with every change of arms, over the
        arms that are not retired. Raises ValueError if no recipe made the first one, and for values that do not fit."""
        expected = "made by a recipe, with settings that were not taken from a file"
        validation.require(origin is not None, "policy", "one built otherwise", expected)
        assert origin is not None
        options = {**origin.options}
        log = options.pop("log", None)  # the old policy has learned it; only its contexts are settings
        if isinstance(log, Log) and not options.get("context_dim") and options.get("contexts") is None:
            options |= log.context_options
        setup, kept = origin.setup, ~self.retired
        if self.num_arms > self.first:
            history = options.get("history")
            expected = "None: it says nothing about arms added later; give a kernel or a covariance"
            validation.require(history is None, "history", history, expected)
            if isinstance(safe := options.get("safe_arms"), Tensor) and safe.dtype == torch.bool:
                options["safe_arms"] = pad(safe, (0, self.num_arms - self.first))
            setup = replace(setup, **self._setup(setup))
        if not restarts or bool(kept.all()):
            return origin.recipe(setup, **options)
        expected = "over features, or a matrix, for a policy that restarts with other arms"
        validation.require(not _by_index(setup.kernel), "kernel", type(setup.kernel).__name__, expected)
        return SomeArms(origin.recipe(setup.of_arms(kept), **options), kept)

    def _setup(self, setup: Any) -> dict[str, Any]:
        """The fields in which a setup of all arms differs from a setup of the first arms."""
        choices, kernel, mean = setup.choices, setup.kernel, setup.prior_mean
        grown: dict[str, Any] = {"grown_from": self.first}
        own, has_features = self.features, isinstance(choices, Tensor)
        expected = "given: the other arms have features" if has_features else "None: the other arms have none"
        validation.require((own is not None) == has_features, "features", own, expected)
        grown["choices"] = self.num_arms
        if own is not None:
            own, d = own.to(choices), choices.shape[-1]
            fits = own.shape[-1] == d and own.dim() <= choices.dim()
            validation.shape_is("features", own, fits, f"rows of {d} numbers")
            grown["choices"] = torch.cat([choices, own.expand(*choices.shape[:-2], -1, d)], -2)
        C, by_matrix, none = self.covariance, isinstance(kernel, Tensor), "None: no matrix was given"
        expected = "given for all arms: the kernel is a matrix" if by_matrix else none
        validation.require((C is not None) == by_matrix, "covariance", C, expected)
        if C is not None:
            n, C = self.first, C.to(kernel)
            same = C[..., :n, :n].shape == kernel.shape and bool(torch.allclose(C[..., :n, :n], kernel))
            validation.require(same, "covariance", C, f"as given before for the first {n} arms")
            grown["kernel"] = C
        expected = "over features, or a matrix: a kernel over indices says nothing about new arms"
        validation.require(not _by_index(kernel), "kernel", type(kernel).__name__, expected)
        several = isinstance(mean, Tensor) and mean.dim() > 0 and mean.shape[-1] == self.first > 1
        expected = "given for each new arm: the others have one" if several else "None: all arms share one"
        new = self.prior_mean
        validation.require((new is not None) == several, "prior_mean", new, expected)
        if new is not None:
            grown["prior_mean"] = torch.cat([mean, new.to(mean).expand(*mean.shape[:-1], -1)], -1)
        for prior in setup.priors or ():
            one = not isinstance(prior.mean, Tensor) or prior.mean.numel() == 1
            over_features = not isinstance(prior.kernel, Tensor) and not _by_index(prior.kernel) and one
            expected = "kernels over features, each with one mean: others say nothing about new arms"
            validation.require(over_features, "priors", type(prior.kernel).__name__, expected)
        return grown

    # -- as plain data ---------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """All attributes."""
        return {**vars(self), "names": None if self.names is None else list(self.names)}

    def in_state(self, state: Mapping[str, Any]) -> Roster:
        """The roster of the system that saved ``state``. That system must have started with the first arms of this one,
        or with some of them and then added the others. Raises ValueError for the state of another system."""
        own_names = sorted(vars(self))
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
        if len(retired) == self.first:
            return Roster(self.first, retired.clone(), names)
        given = {"covariance": state["covariance"]}
        for name, dim in (("features", -2), ("prior_mean", -1)):  # only of arms added after this one's start
            value, known = state[name], self.first - first
            if value is not None:
                fits = isinstance(value, Tensor) and value.dim() >= -dim and value.shape[dim] > known
                validation.require(fits, f"state['arms'][{name!r}]", value, "of all arms added later")
                value = value.narrow(dim, known, value.shape[dim] - known).clone()
            given[name] = value
        return Roster(self.first, retired.clone(), names, **given)

    def is_over(self, other: Roster, *, restarts: bool = False) -> bool:
        """Whether both have the same arms and values; with ``restarts`` (``policy``), also the same retired arms."""
        if restarts and not torch.equal(self.retired, other.retired):
            return False
        one, two = ({**vars(roster), "retired": roster.num_arms} for roster in (self, other))
        return not differing(one, two)


def _by_index(kernel: Any) -> bool:
    return isinstance(kernel, Kernel) and over_indices(kernel)
