"""Checks at the border: each raises a ValueError that names the argument, its value and what was expected."""

from __future__ import annotations

import functools
import inspect
import math
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeGuard, TypeVar

import torch
from torch import Tensor

from bandits_torch.naming import close_name

Kind = TypeVar("Kind")
_SHOWN_BITS = 100  # of the largest integer that an error message shows


def _shown(value: Any) -> str:
    """A value as an error message shows it: in full if short, else its shape or type."""
    if isinstance(value, Tensor) and value.numel() > 8:
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, Tensor):
        return repr(value.tolist())
    if isinstance(shape := getattr(value, "shape", None), tuple) and math.prod(shape) > 8:
        return f"an array of shape {shape}"
    if isinstance(value, int) and value.bit_length() > _SHOWN_BITS:
        return f"an integer of {value.bit_length()} bits"
    try:
        return re.sub(r" at 0x[0-9a-f]+", "", repr(value))  # an address says nothing
    except ValueError:  # Python refuses to write integers of more than 4 300 digits, also inside a fraction
        return f"a {type(value).__name__} too long to write"


def require(condition: bool, name: str, value: Any, expected: str) -> None:
    """Raise ``ValueError('<name> must be <expected>, got <value>')`` unless the condition holds."""
    if not condition:
        raise ValueError(f"{name} must be {expected}, got {_shown(value)}")


def one_of(name: str, value: Any, *known: str | None) -> None:
    """Raise ValueError unless ``value`` is one of these words."""
    *words, last = map(repr, known)
    require(value in known, name, value, f"{', '.join(words)} or {last}")


def _number(expected: str, holds: Callable[[float], bool]) -> Callable[[str, Any], float]:
    """A function that checks a number with ``holds`` and returns it as a float. NaN fails every check."""

    def check(name: str, value: Any) -> float:
        require(is_number(value) and holds(value), name, value, expected)
        return float(value)

    check.__doc__ = f"{expected[0].upper()}{expected[1:]}, as a float."
    return check


positive = _number("a finite number > 0", lambda value: 0 < value < math.inf)
positive_or_infinite = _number("a number > 0", lambda value: value > 0)
non_negative = _number("a finite number >= 0", lambda value: 0 <= value < math.inf)
at_least_one = _number("a finite number >= 1", lambda value: 1 <= value < math.inf)
below_one = _number("a number in [0, 1)", lambda value: 0 <= value < 1)
positive_share = _number("a number in (0, 1]", lambda value: 0 < value <= 1)
share = _number("a number in [0, 1]", lambda value: 0 <= value <= 1)
probability = _number("a number strictly between 0 and 1", lambda value: 0 < value < 1)
finite_number = _number("a finite number", math.isfinite)


def positive_integer(name: str, value: Any) -> int:
    """An integer >= 1 that fits into a tensor."""
    _require_integer(name, value, 1, 63)
    return value


def natural(name: str, value: int) -> int:
    """An integer >= 0 that fits into a seed."""
    _require_integer(name, value, 0, 64)
    return value


def _require_integer(name: str, value: Any, least: int, bits: int) -> None:
    ok = isinstance(value, int) and not isinstance(value, bool) and value >= least
    require(ok, name, value, f"an integer >= {least}")
    require(value.bit_length() <= bits, name, value, f"an integer from {least} to 2**{bits} - 1")


def instance(name: str, value: Any, kind: type[Kind] | tuple[type[Kind], ...], expected: str) -> Kind:
    """The value. Raises a ValueError that names its type, unless it is of this kind."""
    if not isinstance(value, kind):
        raise ValueError(f"{name} must be {expected}, got {_shown(value)} of type {type(value).__name__}")
    return value


def function(name: str, value: Any, expected: str) -> None:
    """Raise a ValueError unless the value can be called."""
    require(callable(value), name, value, expected)


def by_name(name: str, value: Any, one: str) -> None:
    """Raise a ValueError unless the value is a mapping of names to one thing or more; ``one``: what a thing is."""
    expected = f"a mapping of names to one {one} or more"
    instance(name, value, Mapping, expected)
    require(len(value) > 0, name, dict(value), expected)


def tensor(name: str, value: Any) -> Tensor:
    """A tensor, as it is."""
    converted = f" (torch.tensor(numpy.asarray({name})) makes one)" if hasattr(value, "__array__") else ""
    instance(name, value, Tensor, f"a tensor{converted}")
    return value


def real(name: str, value: Any) -> Tensor:
    """A tensor of real numbers, in float64 on the CPU, without a gradient."""
    require(not tensor(name, value).is_complex(), name, value, "real numbers")
    return value.detach().to("cpu", torch.float64)


def names(name: str, value: Any) -> tuple[str, ...]:
    """Names as text, from a sequence of names or of numbers."""
    require(isinstance(value, Iterable) and not isinstance(value, str), name, value, "a sequence of names")
    return tuple(map(str, value))


def numbers(name: str, value: Any, like: Tensor) -> Tensor:
    """A number or a non-empty tensor of numbers, as a detached tensor of the dtype and device of ``like``."""
    ok = (isinstance(value, Tensor) and value.numel() > 0) or is_number(value)
    require(ok, name, value, "a number or a tensor of numbers")
    return torch.as_tensor(value, dtype=like.dtype, device=like.device).detach()


def finite_tensor(name: str, value: Tensor) -> Tensor:
    """A tensor without NaN or infinity. Reads the values, so it waits for the device."""
    tensor(name, value)
    if value.is_floating_point() and math.isfinite(value.detach().sum()):
        return value  # a sum is finite only if all its terms are, and takes a third of the time
    if not bool(torch.isfinite(value).all()):
        bad = value[~torch.isfinite(value)]
        raise ValueError(f"{name} must be finite, got {bad.numel()} values such as {bad.flatten()[0].item()}")
    return value


# The largest absolute reward, by the dtype that computes with it. Sums of 1e10 squares divided by a noise variance of
# 1e-10 are then finite: 1e280 1e10 / 1e-10 = 1e300. In float32 squares of 1e24 leave a factor of 1e14 for both.
LARGEST_REWARD = {torch.float64: 1e140, torch.float32: 1e12}


def largest_reward(dtype: torch.dtype) -> float:
    """The largest reward that a model with this dtype accepts; for integers, that of float64."""
    return LARGEST_REWARD.get(dtype, 1e140 if not dtype.is_floating_point else 1e12)


def rewards(name: str, value: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Finite rewards or prior means that are not too large for ``dtype``, by default their own. Waits for the device.

    Small rewards are accepted, although their squares, and so their contributions to a likelihood, may be 0 (below
    1e-150; float32: 1e-20): posterior means are linear in rewards.
    """
    require(tensor(name, value).dtype != torch.bool, name, value, "numbers, not booleans")
    require(not value.is_complex(), name, value, "real numbers")
    dtype = value.dtype if dtype is None else dtype
    most = largest_reward(dtype)
    if value.numel() == 0 or float(value.detach().abs().amax()) <= most:
        return value
    finite_tensor(name, value)
    worst = float(value.detach().abs().amax())
    expected = f"at most {most:g} in size in {dtype}, so that sums of squares are finite"
    require(False, name, worst, expected)
    return value


def own_noise(value: Any, name: str = "noise_variance") -> Tensor:
    """Noise variances of single rewards: real numbers, finite and above 0 (checked on a CPU only)."""
    tensor(name, value)
    require(value.is_floating_point(), name, value.dtype, "real numbers")
    if value.is_cpu:
        finite_tensor(name, value)
        require(bool((value > 0).all()), name, value, "above 0")
    return value


def shape_is(name: str, value: Tensor, ok: bool, expected: str) -> None:
    """Raise a ValueError that shows the tensor's shape and dtype, and what was expected."""
    tensor(name, value)
    if not ok:
        dtype = str(value.dtype).removeprefix("torch.")
        raise ValueError(f"{name} must have shape {expected}, got shape {tuple(value.shape)}, dtype {dtype}")


def of_shape(name: str, value: Any, *shapes: tuple[int | str, ...], note: str = "") -> Tensor:
    """A tensor of one of these shapes, in which a word stands for any size. ``note``: the end of the message."""
    found = tensor(name, value).shape
    alike = (zip(shape, found, strict=True) for shape in shapes if len(shape) == len(found))
    fits = any(all(isinstance(one, str) or one == size for one, size in pairs) for pairs in alike)
    *others, last = (f"({', '.join(map(str, shape))}{',' * (len(shape) == 1)})" for shape in shapes)
    expected = f"{', '.join(others)} or {last}" if others else last
    shape_is(name, value, fits, f"{expected}{note}")
    return value


def covariance(name: str, value: Tensor) -> Tensor:
    """Covariance matrices (..., N, N): finite, symmetric and positive semi-definite up to rounding.

    The tolerance is the square root of the machine epsilon, relative to the largest entry and eigenvalue. Cost: O(N^3).
    """
    tensor(name, value)
    shape_is(name, value, value.dim() >= 2 and value.shape[-1] == value.shape[-2] > 0, "(..., N, N), N >= 1")
    finite_tensor(name, value)
    tolerance = torch.finfo(value.dtype).eps ** 0.5
    C = value.detach()
    asymmetry = float((C - C.mT).abs().amax())
    require(asymmetry <= tolerance * float(C.abs().amax()), name, f"|C - C^T| = {asymmetry}", "symmetric")
    values = torch.linalg.eigvalsh(0.5 * (C + C.mT))
    positive = bool((values[..., 0] >= -tolerance * values[..., -1].abs()).all())
    least = f"a matrix of smallest eigenvalue {values[..., 0].min().item()}"
    require(positive, name, least, "positive semi-definite")
    return value


def gradients() -> torch.enable_grad:
    """A block that records gradients, also within ``torch.no_grad``. Raises ValueError within ``torch.inference_mode``,
    which records none."""
    on = torch.is_inference_mode_enabled()
    require(not on, "torch.inference_mode", on, "off for a search by gradients; torch.no_grad may be on")
    return torch.enable_grad()


def is_number(value: Any) -> TypeGuard[float]:
    """Whether this is a float, or an integer that float64 can hold; NaN and infinity are floats."""
    if isinstance(value, int):
        return not isinstance(value, bool) and -sys.float_info.max <= value <= sys.float_info.max
    return isinstance(value, float)


class ArgumentError(ValueError, TypeError):
    """An argument that a call does not take, or lacks.

    It is both a TypeError, as in Python, and a ValueError, as for every other bad argument in this package.
    """


def known_names(what: str, given: Iterable[str], known: Collection[str]) -> None:
    """Raise an ``ArgumentError`` that names the unknown names and suggests similar ones, if there are unknown names."""
    unknown = sorted(map(str, set(given) - set(known)))
    if not unknown:
        return
    named = [
        f"{name} (did you mean {near}?)" if (near := close_name(name, known)) else name for name in unknown
    ]
    raise ArgumentError(f"{what} must be among {', '.join(known) or 'none'}, got {', '.join(named)}")


Class = TypeVar("Class", bound=type)


def names_arguments(cls: Class) -> Class:
    """Make the constructor of a class or dataclass raise ``ArgumentError`` for arguments that it does not take."""
    init = cls.__init__  # type: ignore[misc]

    @functools.wraps(init)
    def checked(self: Any, *args: Any, **kwargs: Any) -> None:
        check_names(cls, kwargs)  # before the call, because GPyTorch's kernels ignore unknown names
        try:
            init(self, *args, **kwargs)
        except TypeError:
            check_number(cls, args, kwargs)
            raise

    cls.__init__ = checked  # type: ignore[misc]
    return cls


def check_names(cls: type, kwargs: dict[str, Any]) -> None:
    """Raise ``ArgumentError`` for keyword arguments that a constructor does not take."""
    taken: list[str] = []
    for one in cls.__mro__:
        if "__init__" in vars(one):
            _, *own = inspect.signature(vars(one)["__init__"]).parameters.values()
            taken += [p.name for p in own if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
            if not any(p.kind is p.VAR_KEYWORD for p in own) or not one.__module__.startswith(__package__):
                break  # it passes no names on, or it is of another library, which ignores them
    known_names(f"arguments of {cls.__name__}", kwargs, dict.fromkeys(taken))


def check_number(cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise ``ArgumentError`` if a constructor got too few or too many arguments."""
    try:
        inspect.signature(cls).bind(*args, **kwargs)
    except TypeError as error:
        raise ArgumentError(f"{cls.__name__}: {error}") from None
