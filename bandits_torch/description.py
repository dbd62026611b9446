"""How an object was built, as plain values by path: to tell two of them apart, to say in what, and to build one anew.

A ``Described`` notes the arguments that it is built with, whatever its class; a class that is written tomorrow does
so too. The description walks from there: parts into their arguments, kernels into structure and hyperparameters,
functions into what they enclose, other objects into their attributes. What an object learns later is no part of it.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, ClassVar

import gpytorch
import numpy as np
import torch
from torch import Tensor

_PLAIN = (bool, int, float, str, type(None))
_WHOLE = 4096  # numbers of a tensor that is written down; of a larger one a digest is
_LIST = 32  # numbers of a list that are looked at one by one; a longer one is taken for a tensor
_ALIKE = 1e-9  # relative: numbers computed on another machine or thread count differ by less
_DIGITS = 26  # bits of the mantissa that a digest looks at


class BuiltWith:
    """The arguments of a constructor, kernels as they were then; shared by copies of the object."""

    __slots__ = ("_bound", "_kind")

    def __init__(self, kind: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._kind = kind
        self._bound = [_kept(value) for value in args], {key: _kept(value) for key, value in kwargs.items()}

    @property
    def parameters(self) -> list[inspect.Parameter]:
        """Of the constructor, but for ``self``."""
        return list(inspect.signature(self._kind.__init__).parameters.values())[1:]  # type: ignore[misc]

    def arguments(self, part: Any) -> dict[str, Any]:
        """By name, defaults too. A part that ``part`` holds under the argument's name now stands for the one given."""
        args, kwargs = self._bound
        bound = inspect.Signature(self.parameters).bind(*args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments
        live = {name: getattr(part, name, None) for name in given}
        return {name: live[name] if isinstance(live[name], Described) else given[name] for name in given}

    def __deepcopy__(self, memo: dict[int, Any]) -> BuiltWith:
        return self


def _kept(value: Any) -> Any:
    """An argument as it is now: its owner may change a kernel later."""
    is_kernel = isinstance(value, torch.nn.Module) and not isinstance(value, Described)
    return copy.deepcopy(value) if is_kernel else value


class Described:
    """Notes what it is built with; the base of policies and of the parts they are put together from.

    Attributes:
        changeable: arguments that may differ from those of a state it takes up: nothing in a state is computed with
            them, or ``keep_settings`` computes it anew. None unless a class says so.
        opaque: whether no part below may have such arguments, since this one learns them.
    """

    changeable: ClassVar[tuple[str, ...]] = ()
    opaque: ClassVar[bool] = False
    _built_with: BuiltWith

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            cls.__init__ = _noting(cls.__init__)  # type: ignore[method-assign]

    def keep_settings(self, own: Any) -> None:
        """A state has been taken up; go back to the ``changeable`` arguments of ``own``, a copy of before."""


def _noting(init: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(init)
    def noting(self: Any, *args: Any, **kwargs: Any) -> None:
        if "_built_with" not in self.__dict__:  # else a base's constructor, called by its subclass's
            self.__dict__["_built_with"] = BuiltWith(type(self), args, kwargs)
        init(self, *args, **kwargs)

    return noting


def description(thing: Any, name: str) -> dict[str, Any]:
    """What ``thing`` was built with, by path: numbers, words and tensors, and in angle brackets its structure."""
    return dict(_walk(thing, name, {}))


def _walk(value: Any, path: str, seen: dict[int, tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    leaf = _leaf(value)
    if leaf is not None or value is None:
        yield path, leaf
        return
    if id(value) in seen:
        yield path, f"<{seen[id(value)][0]}>"
        return
    if not isinstance(value, (tuple, type)):
        seen[id(value)] = path, value  # which keeps it alive, and the number its own
    yield path, f"<{_name(value)}>"
    for key, item in _items(value):
        yield from _walk(item, f"{path}{key}", seen)


def _leaf(value: Any) -> Any:
    """A value that is written down as it is; None for one that is looked into."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, (torch.dtype, torch.device)):
        return str(value)
    if (
        isinstance(value, (list, tuple))
        and len(value) > _LIST
        and all(type(x) in (int, float) for x in value)
    ):
        value = torch.tensor(value, dtype=torch.float64)
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        value = torch.from_numpy(value)
    if not isinstance(value, Tensor):
        return None
    if value.dim() == 0:
        return value.item()
    if value.numel() <= _WHOLE:
        return value.detach().cpu().clone()
    return f"<{'x'.join(map(str, value.shape))} {value.dtype} {' '.join(_digests(value.detach().cpu()))}>"


def _digests(value: Tensor) -> list[str]:
    """Of numbers cut to so many bits, on two grids: rounding elsewhere moves a number over a step of one at most."""
    if not value.is_floating_point():
        grids = [value]
    else:
        mantissa, exponent = torch.frexp(value.double())
        steps = mantissa * 2.0**_DIGITS
        grids = [torch.stack([torch.floor(steps + half), exponent.double()]) for half in (0.0, 0.5)]
    return [hashlib.blake2b(g.contiguous().numpy().tobytes(), digest_size=8).hexdigest() for g in grids]


def _name(value: Any) -> str:
    """What kind of thing it is."""
    if isinstance(value, functools.partial):
        return "partial"
    if callable(value) and hasattr(value, "__qualname__"):
        return str(value.__qualname__)
    if isinstance(value, (list, tuple, set, frozenset, Mapping)):
        return f"{type(value).__name__} of {len(value)}"
    return type(value).__qualname__


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    """What is looked into, and its place."""
    if isinstance(value, Described) and "_built_with" in value.__dict__:
        pairs: Any = value._built_with.arguments(value).items()
    elif isinstance(value, torch.nn.Module):
        pairs = _module_items(value)
    elif isinstance(value, Mapping):
        pairs = value.items()
    elif isinstance(value, (list, tuple)):
        yield from ((f"[{i}]", item) for i, item in enumerate(value))
        return
    elif isinstance(value, (set, frozenset)):
        pairs = [("items", sorted(value, key=repr))]
    elif isinstance(value, functools.partial):
        pairs = [("func", value.func), ("args", value.args), ("keywords", value.keywords)]
    elif inspect.isclass(value) or isinstance(value, torch.Generator):
        return
    elif callable(value) and hasattr(value, "__qualname__"):
        pairs = _enclosed(value)
    else:
        pairs = getattr(value, "__dict__", {}).items()
    yield from ((f".{name}", item) for name, item in pairs)


def _module_items(module: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    """Hyperparameters of a GPyTorch module under their own names, not as it stores them; settings; parts."""
    for name, tensor in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
        meant = name.removeprefix("raw_")
        yield meant, getattr(module, meant, tensor)
    for name, value in vars(module).items():
        if (
            not name.startswith("_")
            and name != "training"
            and isinstance(value, (bool, int, float, str, tuple))
        ):
            yield name, value
    for name, child in module.named_children():
        if (
            isinstance(child, gpytorch.Module) or child.state_dict()
        ):  # others are tools that some kernels keep
            yield name, child


def _enclosed(function: Any) -> Iterator[tuple[str, Any]]:
    """What a function knows beside its arguments."""
    if hasattr(function, "__wrapped__"):
        yield from _enclosed(function.__wrapped__)
        return
    if inspect.ismethod(function):
        yield "self", function.__self__
        function = function.__func__
    code = getattr(function, "__code__", None)
    if code is None:
        return
    cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
    for name, cell in cells.items():
        try:
            yield name, cell.cell_contents
        except ValueError:  # not filled: a function that names itself
            continue
    defaults = inspect.signature(function).parameters.values()
    yield from ((p.name, p.default) for p in defaults if p.default is not p.empty)


# -- comparing -----------------------------------------------------------------------------------------


def is_structure(leaf: Any) -> bool:
    """Whether an entry says what kind of thing stands there, not a value."""
    return isinstance(leaf, str) and leaf.startswith("<")


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Paths at which two descriptions differ; where things of other kinds stand, not what is below."""
    found: list[str] = []
    for path in (*one, *(path for path in other if path not in one)):
        below = any(path.startswith((f"{top}.", f"{top}[")) for top in found)
        both = path in one and path in other
        if not below and not (both and alike(one[path], other[path])):
            found.append(path)
    return found


def alike(one: Any, other: Any) -> bool:
    """Whether two entries mean the same: numbers to rounding, digests on either grid."""
    if isinstance(one, Tensor) or isinstance(other, Tensor):
        fits = isinstance(one, Tensor) and isinstance(other, Tensor) and one.shape == other.shape
        return fits and one.dtype == other.dtype and _near(one, other)
    if is_structure(one) and is_structure(other):
        kind, digests = _split_digests(one)
        other_kind, other_digests = _split_digests(other)
        return kind == other_kind and (not digests or any(map(str.__eq__, digests, other_digests)))
    if isinstance(one, bool) or isinstance(other, bool) or not _numbers(one, other):
        return type(one) is type(other) and one == other
    return one == other or math.isclose(one, other, rel_tol=_ALIKE) or (one != one and other != other)


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


def changeable_part(thing: Any, path: str) -> Described | None:
    """The part on the way to ``path``, which begins with a name of ``thing``, that lets the setting there differ."""
    while isinstance(thing, (Described, list, tuple)):
        found = _next(thing, path)
        if found is None:
            return None
        name, part, path = found
        if isinstance(thing, Described) and name in thing.changeable:
            return thing
        if isinstance(thing, Described) and thing.opaque:
            return None
        thing = part
    return None


def _next(thing: Any, path: str) -> tuple[str, Any, str] | None:
    """The item of ``thing`` on the way to a path whose first name is its own; its name, and the path from there."""
    own = re.match(r"\[\d+\]|[^.\[]*", path)
    rest = path[own.end() :] if own else path
    for key, item in _items(thing):
        if rest == key or rest.startswith((f"{key}.", f"{key}[")):
            return key.lstrip("."), item, rest.lstrip(".")
    return None


# -- building anew -------------------------------------------------------------------------------------


def rebuilt(thing: Any, name: str, wanted: Mapping[str, Any]) -> Any:
    """``thing`` built anew with the values of another description of the same structure.

    Raises ValueError that names what cannot be taken: structure, tensors of which there is a digest alone, and what
    is enclosed in functions.
    """
    made = _rebuilt(thing, name, wanted, {})
    left = differences(wanted, description(made, name))
    if left:
        raise ValueError(f"{', '.join(left)} cannot be taken from a file: build the policy that way")
    return made


def _rebuilt(value: Any, path: str, wanted: Mapping[str, Any], made: dict[int, Any]) -> Any:
    leaf = _leaf(value)
    if leaf is not None or value is None:
        new = wanted.get(path, leaf)
        if is_structure(new) or alike(leaf, new):
            return value
        return new.to(value.device) if isinstance(new, Tensor) and isinstance(value, Tensor) else new
    if id(value) not in made:
        made[id(value)] = value, _part_rebuilt(value, path, wanted, made)
    return made[id(value)][1]


def _part_rebuilt(value: Any, path: str, wanted: Mapping[str, Any], made: dict[int, Any]) -> Any:
    if isinstance(value, torch.nn.Module) and not isinstance(value, Described):
        return _module_rebuilt(value, path, wanted)
    items = {key: _rebuilt(item, f"{path}{key}", wanted, made) for key, item in _items(value)}
    if isinstance(value, Described) and "_built_with" in value.__dict__:
        return _called(type(value), value._built_with, {key.lstrip("."): item for key, item in items.items()})
    if isinstance(value, (list, tuple)):
        return type(value)(items.values()) if type(value) in (list, tuple) else value
    if isinstance(value, Mapping):
        return {key: items[f".{key}"] for key in value}
    if is_dataclass(value) and not inspect.isclass(value):
        return type(value)(**{f.name: items[f".{f.name}"] for f in fields(value) if f.init})
    return value


def _called(kind: type, noted: BuiltWith, arguments: dict[str, Any]) -> Any:
    """An object of this class, its arguments given as its signature wants them."""
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for parameter in noted.parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            positional += arguments[parameter.name]
        elif parameter.kind is parameter.VAR_KEYWORD:
            named |= arguments[parameter.name]
        elif parameter.kind is parameter.KEYWORD_ONLY:
            named[parameter.name] = arguments[parameter.name]
        else:
            positional.append(arguments[parameter.name])
    return kind(*positional, **named)


def _module_rebuilt(module: torch.nn.Module, path: str, wanted: Mapping[str, Any]) -> torch.nn.Module:
    """A copy of a kernel or mean with other hyperparameters."""
    new = copy.deepcopy(module)
    for place, part in new.named_modules():
        at = f"{path}.{place}" if place else path
        for name, value in list(_module_items(part)):
            leaf = wanted.get(f"{at}.{name}")
            known = isinstance(value, Tensor) and leaf is not None and not is_structure(leaf)
            if known and not alike(_leaf(value), leaf):
                _set_hyperparameter(part, name, torch.as_tensor(leaf).to(value))
    return new


def _set_hyperparameter(part: Any, name: str, value: Tensor) -> None:
    stored = dict(part.named_parameters(recurse=False)) | dict(part.named_buffers(recurse=False))
    if name in stored:
        with torch.no_grad():
            stored[name].copy_(value)
    else:
        part.initialize(**{name: value})
