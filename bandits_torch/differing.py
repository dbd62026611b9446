"""In what two descriptions differ, and how an error message says it."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from bandits_torch.description import is_structure

_ALIKE = 1e-9  # relative: numbers computed on another machine or thread count differ by less
_SAID = 8


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Paths at which two descriptions differ; where things of other kinds stand, not what is below."""
    found: list[str] = []
    for path in (*one, *(path for path in other if path not in one)):
        below = any(path.startswith((f"{top}.", f"{top}[")) for top in found)
        both = path in one and path in other
        if not below and not (both and alike(one[path], other[path])):
            found.append(path)
    return found


def said_differences(was: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """``differences`` in words: the first of them, and how many more there are; empty where there is none."""
    found, none = differences(was, now), "<nothing>"
    said = [
        f"{path} was {shown(was.get(path, none))} and is {shown(now.get(path, none))}"
        for path in found[:_SAID]
    ]
    more = [f"and {len(found) - _SAID} more differences"] if len(found) > _SAID else []
    return "; ".join(said + more)


def alike(one: Any, other: Any) -> bool:
    """Whether two entries mean the same: whole numbers exactly, others to rounding, digests on either grid."""
    if isinstance(one, Tensor) or isinstance(other, Tensor):
        fits = isinstance(one, Tensor) and isinstance(other, Tensor) and one.shape == other.shape
        return fits and one.dtype == other.dtype and _near(one, other)
    if is_structure(one) and is_structure(other):
        kind, digests = _split_digests(one)
        other_kind, other_digests = _split_digests(other)
        return kind == other_kind and (not digests or any(map(str.__eq__, digests, other_digests)))
    if isinstance(one, bool) or isinstance(other, bool) or not _numbers(one, other):
        return type(one) is type(other) and one == other
    if isinstance(one, int) and isinstance(other, int):  # of large seeds, each is its own
        return one == other
    return math.isclose(one, other, rel_tol=_ALIKE) or (one != one and other != other)


def _numbers(*values: Any) -> bool:
    return all(isinstance(value, (int, float)) for value in values)


def _near(one: Tensor, other: Tensor) -> bool:
    if not one.is_floating_point():
        return torch.equal(one, other)
    scale = float(one.nan_to_num().abs().max()) if one.numel() else 0.0
    return torch.allclose(one, other, rtol=_ALIKE, atol=_ALIKE * scale, equal_nan=True)


def _split_digests(leaf: str) -> tuple[str, list[str]]:
    words = leaf.strip("<>").split(" ")
    if len(words) >= 3 and words[1].startswith("torch."):
        return " ".join(words[:2]), words[2:]
    return leaf, []


def shown(leaf: Any) -> str:
    """An entry as an error message shows it."""
    if not isinstance(leaf, Tensor):
        return leaf.strip("<>") if is_structure(leaf) else repr(leaf)
    if leaf.numel() <= 6:
        return repr(leaf.tolist())
    return f"a tensor of shape {tuple(leaf.shape)}, {hashlib.sha256(leaf.numpy().tobytes()).hexdigest()[:6]}"
