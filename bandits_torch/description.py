"""Descriptions of how objects were built, as plain values by path: to compare two objects, or to rebuild one.

A ``Described`` records its constructor's arguments; a subclass needs no code for this. Its description contains the
arguments of its parts, the structure and hyperparameters of kernels, the values that functions enclose, and the
attributes of other objects. It does not contain what the object learns later.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import inspect
import math
from collections.abc import Iterator, Mapping
from typing import Any

import gpytorch
import numpy as np
import torch
from torch import Tensor

from bandits_torch import validation

_PLAIN = (bool, int, float, str, type(None))
_OWN = (__name__.partition(".")[0], "builtins", "collections", "functools")  # libraries that are not foreign
_WHOLE = 4096  # size of a tensor that is recorded; a larger one is described by digests
_LIST = 32  # length of a list of numbers that is described one by one; a longer one is treated as a tensor
_BITS = 26  # bits of the mantissa in a digest
_ALIKE = 1e-9  # relative tolerance; numbers computed on another machine or by other threads differ by less
_SAID = 8  # number of differences in a message


class BuiltWith:
    """The arguments of a constructor. Kernels are copied, because they may change; copies of the object share it."""

    __slots__ = ("_bound", "_kind")

    def __init__(self, kind: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._kind = kind
        self._bound = [_kept(value) for value in args], {key: _kept(value) for key, value in kwargs.items()}

    def arguments(self, part: Any) -> dict[str, Any]:
        """Arguments by name, with defaults; replaced by a ``Described`` attribute of ``part`` with the same name."""
        args, kwargs = self._bound
        bound = inspect.signature(self._kind).bind(*args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments
        live = {name: getattr(part, name, None) for name in given}
        return {name: live[name] if isinstance(live[name], Described) else given[name] for name in given}

    def anew(self, arguments: Mapping[str, Any]) -> Any:
        """Another object of this kind, built with these arguments by name."""
        bound = inspect.signature(self._kind).bind_partial()
        bound.arguments.update(arguments)
        return self._kind(*bound.args, **bound.kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> BuiltWith:
        return self


def _kept(value: Any) -> Any:
    """The argument, or a copy if it is a kernel, which its owner may change later."""
    is_kernel = isinstance(value, torch.nn.Module) and not isinstance(value, Described)
    return copy.deepcopy(value) if is_kernel else value


class Described:
    """Records its constructor's arguments; the base class of policies and of their parts."""

    built_with: BuiltWith | None = None  # None if no constructor was called

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" not in vars(cls):
            return
        init = cls.__init__

        @functools.wraps(init)
        def recording(self: Any, *args: Any, **kwargs: Any) -> None:
            if self.built_with is None:  # not yet set by a subclass's constructor
                self.__dict__["built_with"] = BuiltWith(type(self), args, kwargs)
            try:
                init(self, *args, **kwargs)
            except TypeError:
                validation.check_names(cls, kwargs)
                validation.check_number(cls, args, kwargs)
                raise

        cls.__init__ = recording  # type: ignore[method-assign]


def description(thing: Any, name: str, *, foreign: bool = True) -> dict[str, Any]:
    """How ``thing`` was built, by path: numbers, words and tensors, and kinds of objects in angle brackets.

    ``foreign=False``: an object of another library, such as a simulator, which may change, is described only by its
    kind, unless it is a container, a function or a module of torch.
    """
    return dict(_walk(thing, name, {}, foreign))


def _walk(
    value: Any, path: str, seen: dict[int, tuple[str, Any]], foreign: bool
) -> Iterator[tuple[str, Any]]:
    leaf = leaf_of(value)
    if leaf is not None or value is None:
        yield path, leaf
        return
    if id(value) in seen:
        yield path, f"<{seen[id(value)][0]}>"
        return
    if not isinstance(value, (tuple, type)):
        seen[id(value)] = path, value  # keeps the value alive, so that no other object gets its id
    yield path, f"<{_name(value)}>"
    library = type(value).__module__.partition(".")[0]
    if foreign or library in _OWN or isinstance(value, torch.nn.Module):
        for key, item in items_of(value):
            yield from _walk(item, f"{path}{key}", seen, foreign)


def leaf_of(value: Any) -> Any:
    """The entry for a plain value or a tensor; None for an object whose contents are described."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, (torch.dtype, torch.device)):
        return str(value)
    long = isinstance(value, (list, tuple)) and len(value) > _LIST
    if long and all(type(x) in (int, float) for x in value):
        value = torch.tensor(value, dtype=torch.float64)
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        value = torch.from_numpy(value)
    if not isinstance(value, Tensor):
        return None
    if value.dim() == 0:
        return value.item()
    value = value.detach().cpu()
    if value.numel() <= _WHOLE:
        return value.clone()
    grids = [value]
    if value.is_floating_point():
        # Numbers cut to 26 bits, on two grids half a step apart: a rounding error changes at most one digest.
        mantissa, exponent = torch.frexp(value.double())
        steps = mantissa * 2.0**_BITS
        grids = [torch.stack([torch.floor(steps + half), exponent.double()]) for half in (0.0, 0.5)]
    digests = [hashlib.blake2b(g.contiguous().numpy().tobytes(), digest_size=8).hexdigest() for g in grids]
    return f"<{'x'.join(map(str, value.shape))} {value.dtype} {' '.join(digests)}>"


def _name(value: Any) -> str:
    if isinstance(value, functools.partial):
        return "partial"
    if callable(value) and hasattr(value, "__qualname__"):
        return str(value.__qualname__)
    if isinstance(value, (list, tuple, set, frozenset, Mapping)):
        return f"{type(value).__name__} of {len(value)}"
    return type(value).__qualname__


def items_of(value: Any) -> Iterator[tuple[str, Any]]:
    """The contents of an object, each with its part of the path."""
    if isinstance(value, Described) and value.built_with is not None:
        pairs: Any = value.built_with.arguments(value).items()
    elif isinstance(value, torch.nn.Module):
        pairs = module_items_of(value)
    elif isinstance(value, Mapping):
        pairs = value.items()
    elif isinstance(value, (list, tuple)):
        yield from ((f"[{i}]", item) for i, item in enumerate(value))
        return
    elif isinstance(value, (set, frozenset)):
        pairs = [("items", sorted(value, key=repr))]
    elif isinstance(value, functools.partial):
        pairs = [("func", value.func), ("args", value.args), ("keywords", value.keywords)]
    elif isinstance(value, slice):
        pairs = [("start", value.start), ("stop", value.stop), ("step", value.step)]
    elif inspect.isclass(value) or isinstance(value, torch.Generator):
        return
    elif callable(value) and hasattr(value, "__qualname__"):
        pairs = _enclosed(value)
    else:
        pairs = getattr(value, "__dict__", {}).items()
    yield from ((f".{name}", item) for name, item in pairs)


def module_items_of(module: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    """Hyperparameters of a GPyTorch module, transformed and without ``raw_`` in their names; settings; parts."""
    for name, tensor in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
        name = name.removeprefix("raw_")
        yield name, getattr(module, name, tensor)
    for name, value in vars(module).items():
        setting = not name.startswith("_") and name != "training"
        if setting and isinstance(value, (bool, int, float, str, tuple)):
            yield name, value
    for name, child in module.named_children():
        if isinstance(child, gpytorch.Module) or child.state_dict():  # other children hold no setting
            yield name, child


def _enclosed(function: Any) -> Iterator[tuple[str, Any]]:
    """The values that a function encloses: its closure and defaults."""
    if hasattr(function, "__wrapped__"):
        yield from _enclosed(function.__wrapped__)
        return
    if inspect.ismethod(function):
        yield "self", function.__self__
        function = function.__func__
    code = getattr(function, "__code__", None)
    if code is None:
        return
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # an empty cell, of a function that is still being defined
            continue
    defaults = inspect.signature(function).parameters.values()
    yield from ((p.name, p.default) for p in defaults if p.default is not p.empty)


def is_structure(leaf: Any) -> bool:
    """Whether an entry names a kind of object and not a value."""
    return isinstance(leaf, str) and leaf.startswith("<")


# --- differences of two descriptions ---


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Paths at which two descriptions differ, without the paths below another one."""
    found: list[str] = []
    for path in (*one, *(path for path in other if path not in one)):
        below = any(path.startswith((f"{top}.", f"{top}[")) for top in found)
        both = path in one and path in other
        if not below and not (both and alike(one[path], other[path])):
            found.append(path)
    return found


def said_differences(was: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """``differences`` in words: the first eight, and how many more there are; empty if there are none."""
    found, none = differences(was, now), "<nothing>"
    said = [
        f"{path} was {shown(was.get(path, none))} and is {shown(now.get(path, none))}"
        for path in found[:_SAID]
    ]
    more = [f"and {len(found) - _SAID} more differences"] if len(found) > _SAID else []
    return "; ".join(said + more)


def alike(one: Any, other: Any) -> bool:
    """Whether two entries are equal: integers exactly, others up to a relative 1e-9, digests on one of the grids."""
    if isinstance(one, Tensor) or isinstance(other, Tensor):
        fits = isinstance(one, Tensor) and isinstance(other, Tensor) and one.shape == other.shape
        if not fits or one.dtype != other.dtype or not one.is_floating_point():
            return fits and one.dtype == other.dtype and torch.equal(one, other)
        scale = float(one.nan_to_num().abs().max()) if one.numel() else 0.0
        return torch.allclose(one, other, rtol=_ALIKE, atol=_ALIKE * scale, equal_nan=True)
    if is_structure(one) and is_structure(other):
        kind, digests = _split_digests(one)
        other_kind, other_digests = _split_digests(other)
        agree = [a == b for a, b in zip(digests, other_digests, strict=False)]
        return kind == other_kind and (not digests or any(agree))
    if type(one) is type(other) and not isinstance(one, float):  # exactly: close large seeds are different
        return one == other
    if not (validation.is_number(one) and validation.is_number(other)):
        return False
    return math.isclose(one, other, rel_tol=_ALIKE) or (math.isnan(one) and math.isnan(other))


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
