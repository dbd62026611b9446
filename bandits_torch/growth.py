"""Arms that come and go in a live system: who is there, and a policy over more arms that knows what another learned."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor
from torch.nn.functional import pad

from bandits_torch import border, validation
from bandits_torch.arm_context import ArmContext, mask_of
from bandits_torch.kernels import ArmCovarianceKernel
from bandits_torch.policies.policy import Origin, Policy

_NAMES = ("first", "names", "retired", "features", "covariance", "prior_mean")


@dataclass(frozen=True, eq=False)
class Roster:
    """The arms of a live system: those it began with, and what was told of those that came later.

    Attributes:
        first: how many there were at first.
        retired: (N,) booleans, arms that are never asked again.
        names: of all, or None.
        features: (N - first, d) or (S, N - first, d) of those that came later; None where arms have none.
        covariance: (N, N) or (S, N, N) of all, where the kernel told is a matrix.
        prior_mean: (N - first,) of those that came later, where arms have several.
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
        """The numbers of arms that are here, by name or number. ValueError for others, twice the same and none."""
        listed = list(arms) if isinstance(arms, Sequence) and not isinstance(arms, str) else None
        found = [] if listed is None else [self._number(one) for one in listed]
        right = bool(found) and None not in found and len(set(found)) == len(found)
        known = "" if self.names is None else f" among {self.names}, or numbers"
        expected = f"a list of different arms{known}" + ("" if known else f", 0 to {self.num_arms - 1}")
        validation.require(right, name, arms, expected)
        return [number for number in found if number is not None]

    def _number(self, arm: Any) -> int | None:
        if isinstance(arm, str):
            return self.names.index(arm) if self.names is not None and arm in self.names else None
        whole = hasattr(arm, "__index__") and not isinstance(arm, bool | Tensor)
        return int(arm) if whole and 0 <= int(arm) < self.num_arms else None

    def without(self, arms: Any) -> Roster:
        """These arms are retired. ValueError where none would be left, and for one that is retired already."""
        at = self.numbers("arms", arms)
        gone = [one for one, k in zip(arms, at, strict=True) if bool(self.retired[k])]
        validation.require(not gone, "arms", gone, "not retired already")
        retired = self.retired.clone()
        retired[at] = True
        validation.require(not bool(retired.all()), "arms", list(arms), "fewer than all: one must stay")
        return replace(self, retired=retired)

    def with_arms(self, arms: Any, **told: Any) -> tuple[Roster, list[int]]:
        """These arms too, and their numbers: names, some of them perhaps of retired arms, or how many.

        ``told``: features, covariance, prior_mean, of ``AskTell.add_arms``. ValueError for what does not fit.
        """
        if isinstance(arms, int) and not isinstance(arms, bool):
            validation.require(self.names is None, "arms", arms, "names, as the other arms have")
            count, back = validation.positive_integer("arms", arms), []
            at = list(range(self.num_arms, self.num_arms + count))
            given: list[Any] = [None] * count
        else:
            words = border.is_sequence_of_words(arms)
            whole = isinstance(arms, Sequence) and len(arms) > 0 and self.names is None and not words
            validation.require(
                (words and self.names is not None) or whole,
                "arms",
                arms,
                "a list of names" if self.names else "how many, or the numbers of arms that are retired",
            )
            given = list(arms)
            if whole:
                self.numbers("arms", given)
            known = [one for one in given if self._number(one) is not None]
            back = self.numbers("arms", known) if known else []
            new = [one for one in given if one not in known]
            at = [self.num_arms + new.index(one) if one in new else self._number(one) for one in given]  # type: ignore[misc]
            here = [one for one, k in zip(known, back, strict=True) if not bool(self.retired[k])]
            validation.require(not here, "arms", here, "new, or retired")
            count = len(new)
        retired = torch.cat([self.retired, self.retired.new_zeros(count)])
        retired[back] = False
        names = self.names
        if names is not None:
            names = border.checked_names([*names, *(one for one in given if one not in names)], len(retired))
        rows = [row for row, k in enumerate(at) if k >= self.num_arms]
        return replace(self, names=names, retired=retired, **self._told(len(at), rows, told)), at

    def _told(self, count: int, new: list[int], told: Mapping[str, Any]) -> dict[str, Tensor | None]:
        """What is told of ``count`` arms, of which those in these rows are ``new``, after what was told before."""
        n, made = self.num_arms, {}
        for name, dim in (("features", -2), ("prior_mean", -1)):
            before, value = getattr(self, name), told[name]
            if value is not None:
                validation.finite_tensor(name, value)
                fits = value.dim() >= -dim and value.shape[dim] == count
                validation.shape_is(name, value, fits, f"a row for each of the {count} arms")
                value = value.index_select(dim, torch.tensor(new, dtype=torch.long, device=value.device))
            if not new:
                made[name] = before
                continue
            came = n > self.first
            validation.require((before is None) == (value is None) or not came, name, value, "as told before")
            made[name] = (
                value if before is None or value is None else torch.cat([before, value.to(before)], dim)
            )
        covariance = told["covariance"]
        if covariance is not None:
            validation.finite_tensor("covariance", covariance)
            N = n + len(new)
            validation.shape_is(
                "covariance", covariance, covariance.shape[-2:] == (N, N), f"({N}, {N}), of all arms"
            )
        made["covariance"] = self.covariance if covariance is None and not new else covariance
        return made

    def of_those_here(self, available: Any) -> Any:
        """The mask of a step without the arms that are retired. ValueError where that leaves none."""
        if not bool(self.retired.any()):
            return available
        mask, here = mask_of(available), ~self.retired
        if isinstance(mask, Tensor) and mask.dtype == torch.bool and mask.shape[-1:] == here.shape:
            here = here.to(mask.device) & mask
            left = bool(here.any(-1).all())
            validation.require(left, "available", mask, "with at least one arm that is not retired")
        elif mask is not None:
            return available  # no mask of these arms: the policy says so
        return replace(available, available=here) if isinstance(available, ArmContext) else here

    # -- a policy over these arms ----------------------------------------------------------------------

    def policy(self, origin: Origin | None, before: Policy) -> Policy:
        """A policy over all arms that has learned what ``before`` has, and is otherwise made as that of the first was.

        Raises ValueError for one that cannot take up more arms and says why, and for what must be told and is not, or
        does not fit.
        """
        name = type(before).__name__
        validation.require(
            origin is not None, "policy", name, "made by a recipe, whose settings are not another file's"
        )
        assert origin is not None
        options = {
            key: value for key, value in origin.options.items() if key != "log"
        }  # which it has learned
        told = options.get("history")
        expected = "None: of arms that come later it says nothing; tell a kernel or a covariance"
        validation.require(told is None, "history", told, expected)
        if isinstance(safe := options.get("safe_arms"), Tensor) and safe.dtype == torch.bool:
            options["safe_arms"] = pad(safe, (0, self.num_arms - self.first))
        setup = replace(origin.setup, **self._setup(origin.setup))
        made = origin.recipe(setup, **options)
        try:
            made.grow_from(before)
        except (RuntimeError, KeyError) as error:
            raise ValueError(f"policy must be one that can take up more arms, got {name}: {error}") from error
        return made

    def _setup(self, setup: Any) -> dict[str, Any]:
        """The fields of a setup of the first arms that are others for all."""
        choices, kernel, mean = setup.choices, setup.kernel, setup.prior_mean
        grown: dict[str, Any] = {"grown_from": self.first}
        has_features = isinstance(choices, Tensor)
        expected = "given: the other arms have some" if has_features else "None: the other arms have none"
        validation.require((self.features is not None) == has_features, "features", self.features, expected)
        if has_features:
            assert self.features is not None
            own, d = self.features.to(choices), choices.shape[-1]
            fits = own.shape[-1] == d and own.dim() <= choices.dim()
            validation.shape_is("features", own, fits, f"rows of {d} numbers")
            grown["choices"] = torch.cat([choices, own.expand(*choices.shape[:-2], -1, d)], -2)
        else:
            grown["choices"] = self.num_arms
        by_matrix = isinstance(kernel, Tensor)
        expected = "of all arms, as the kernel told is a matrix" if by_matrix else "None: no matrix was told"
        validation.require(
            (self.covariance is not None) == by_matrix, "covariance", self.covariance, expected
        )
        if by_matrix:
            assert self.covariance is not None
            block, n = self.covariance.to(kernel)[..., : self.first, : self.first], self.first
            same = block.shape == kernel.shape and bool(torch.allclose(block, kernel))
            validation.require(
                same, "covariance", self.covariance, f"that told before, for the first {n} arms"
            )
            grown["kernel"] = self.covariance.to(kernel)
        elif isinstance(kernel, Kernel):
            indexed = any(isinstance(part, ArmCovarianceKernel) for part in kernel.modules())
            expected = "over features, or a matrix: of new arms a kernel over indices says nothing"
            validation.require(not indexed, "kernel", type(kernel).__name__, expected)
        several = isinstance(mean, Tensor) and mean.dim() > 0 and mean.shape[-1] == self.first > 1
        expected = "of each new arm: the others have one each" if several else "None: all arms share one"
        validation.require((self.prior_mean is not None) == several, "prior_mean", self.prior_mean, expected)
        if several:
            assert self.prior_mean is not None
            new = self.prior_mean.to(mean).expand(*mean.shape[:-1], -1)
            grown["prior_mean"] = torch.cat([mean, new], -1)
        for prior in setup.priors or ():
            one = not isinstance(prior.mean, Tensor) or prior.mean.numel() == 1
            over_features = not isinstance(prior.kernel, Tensor) and one
            expected = "kernels over features, with one mean each: of new arms others say nothing"
            validation.require(over_features, "priors", type(prior.kernel).__name__, expected)
        return grown

    # -- as plain data ---------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """All of it."""
        own = {name: getattr(self, name) for name in _NAMES}
        return own | {"names": None if self.names is None else list(self.names)}

    def joined(self, state: Mapping[str, Any] | None) -> Roster:
        """The arms of the system that gave ``state``: of one that began with these arms, or with the first of them.

        ValueError for another's.
        """
        if state is None:  # of a version in which arms neither came nor went
            return self
        validation.require(set(state) == set(_NAMES), "state['arms']", sorted(state), f"with {_NAMES}")
        first, retired = validation.natural("state['arms']['first']", state["first"]), state["retired"]
        mask = isinstance(retired, Tensor) and retired.dim() == 1 and retired.dtype == torch.bool
        fits = mask and first <= self.first <= len(retired) and self.num_arms <= len(retired)
        expected = f"of {self.num_arms} arms or more, {self.first} of them at first"
        validation.require(fits, "state['arms']", state, expected)
        names = state["names"]
        if names is not None:
            names = border.checked_names(names, len(retired))
        same = (names is None) == (self.names is None)
        same = same and (names is None or names[: self.num_arms] == self.names)
        validation.require(same, "names", self.names, f"the first of {names}")
        skipped = self.first - first  # arms that came later there are here from the start
        told: dict[str, Any] = {}
        for name, dim in (("features", -2), ("prior_mean", -1)):
            value = state[name]
            if value is not None:
                validation.finite_tensor(f"state['arms'][{name!r}]", value)
                value = value.narrow(dim, skipped, len(retired) - self.first)
                value = value.clone() if len(retired) > self.first else None
            told[name] = value
        covariance = state["covariance"]
        told["covariance"] = copy.deepcopy(covariance) if len(retired) > self.first else None
        return Roster(self.first, retired.clone(), names, **told)
