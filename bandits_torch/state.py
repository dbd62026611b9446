"""State that observations change. A class declares it once. It can then be saved, loaded, extended to more arms, reset
in some replicates, and restored after provisional changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import fields, is_dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.streams import ReplicateStreams


class HasState:
    """Base class of objects that observations change. Their state consists of values, attributes that ``_fresh`` names,
    and of parts: attributes that are themselves objects with a state. The constructor calls ``_begin``.

    A value is a tensor, a number, a word, None, or a dictionary, list or tuple of these. A dataclass among them is
    saved as the dictionary of its fields, and ``state_changed`` must convert it back. A part is a ``HasState``, a
    model, any other object with ``state_dict`` and ``load_state_dict`` (and ``reset``, if a reset changes it), None,
    or a list, tuple or dictionary of these.

    Attributes:
        _parts: names of the attributes that are parts.
        _lasting: names in ``_fresh`` whose values a reset does not change.
        _clocks: names in ``_fresh`` of counts that start at 0 and become tensors (S,) once some replicates restart.
        _expects: names of the values and parts that a pending pull changes; None: all.
    """

    _parts: ClassVar[tuple[str, ...]] = ()
    _lasting: ClassVar[tuple[str, ...]] = ()
    _clocks: ClassVar[tuple[str, ...]] = ()
    _expects: ClassVar[tuple[str, ...] | None] = None

    # -- to be overridden ------------------------------------------------------------------------------

    def _fresh(self) -> dict[str, Any]:
        """Initial values by the attribute's name. The first dimension of a tensor is the replicates; dimensions that
        grow have length 0."""
        return {}

    def state_changed(self) -> None:
        """Hook: all values may have changed, so values computed from them are no longer valid."""

    def _restarted(self, where: Tensor | None) -> None:
        """Hook, called after a reset, before ``state_changed``. ``where`` (S,): the replicates reset; None: all."""

    def _make_room(self, state: Mapping[str, Any]) -> None:
        """Hook, called before this state is loaded: create the parts that it needs and that do not exist yet."""

    # -- provided --------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Set the initial values, but not the parts. The constructor must call it."""
        names = sorted(map(_key, (*self.state_names, *self._parts)))
        validation.require(len(set(names)) == len(names), "names of the state", names, "different without _")
        self._put(self._fresh())

    def _put(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            setattr(self, name, value)
        self.state_changed()

    @property
    def state_names(self) -> tuple[str, ...]:
        """Names of the values, without the parts."""
        return tuple(self._fresh())

    def reset(self, where: Tensor | None = None) -> None:
        """Return to the initial state, parts included; with ``where`` (S,), only in the replicates where it is True.

        Random streams continue. With ``where``, only tensors with their initial shape are reset, also in dictionaries:
        a number, a list or None belongs to all replicates together, and stays.
        """
        for part in (part for part in self._leaves() if hasattr(part, "reset")):
            within: Any = where
            if where is not None and isinstance(part, torch.nn.Module):  # it may also have a batch of members
                batch: Any = part.batch_shape
                within = where.reshape((*batch[:1], *[1] * (len(batch) - 1))).expand(batch)
            part.reset(within)
        self._renew(where, *(name for name in self.state_names if name not in self._lasting))
        if where is not None:
            for name in self._clocks:
                setattr(self, name, torch.where(where, 0, getattr(self, name)))
        self._restarted(where)
        self.state_changed()

    def _renew(self, where: Tensor | None, *names: str) -> None:
        """Reset some values, as ``reset`` does."""
        fresh = self._fresh()
        for name in names:
            now = fresh[name] if where is None else _restored(getattr(self, name), fresh[name], where)
            setattr(self, name, now)

    def state_dict(self) -> dict[str, Any]:
        """Copies of everything that observations change, by name."""
        own = {_key(name): copied(getattr(self, name)) for name in self.state_names}
        return own | {_key(name): _state_of(getattr(self, name)) for name in self._parts}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from ``state``. Raises ValueError, with nothing changed, if it lacks a name, has a tensor of another
        shape, or does not fit a part."""
        before = self.state_dict()
        try:
            self._check_has(state, "state")
            self._make_room(state)
            self._take_state(state)
        except Exception as error:
            self._make_room(before)
            self._take_state(before)
            raise ValueError(
                f"state must be of a {type(self).__name__} built like this one, got one that does not fit: {error}"
            ) from error

    def _take_state(self, state: Mapping[str, Any]) -> None:
        for name in self._parts:
            for part, own in _with_states(getattr(self, name), state[_key(name)], _key(name)):
                part.load_state_dict(own)
        self._put({name: copied(state[_key(name)]) for name in self.state_names})

    def grow_from(self, small: Any) -> None:
        """Adopt what ``small`` has learned: an object built like this one, but over only the first of its arms. New
        arms start without observations.

        Dimensions whose initial length is larger here than in ``small`` are taken to be arms. Raises ValueError for a
        part that cannot adopt what its counterpart learned; this object is then unusable.
        """
        self._make_room(small.state_dict())
        there, here = small._fresh(), self._fresh()
        for name in self.state_names:
            setattr(self, name, _grown(getattr(small, name), there[name], here[name], _key(name)))
        for part, other in zip(self._leaves(), small._leaves(), strict=True):
            if hasattr(part, "grow_from"):
                part.grow_from(other)
            else:
                part.load_state_dict(_state_of(other))
        self.state_changed()

    def random_streams(self) -> Iterator[ReplicateStreams]:
        """The random streams of this object and of its parts, in order."""
        for part in self._leaves():
            if isinstance(part, HasState):
                yield from part.random_streams()
            elif isinstance(part, torch.nn.Module):
                values = [value for module in part.modules() for value in vars(module).values()]
                yield from (value for value in values if isinstance(value, ReplicateStreams))
            elif isinstance(part, ReplicateStreams):
                yield part

    @property
    def snapshot(self) -> dict[str, Tensor]:
        """The current tensors by name, for an object that replaces its tensors and never changes them in place."""
        own = {name: getattr(self, name) for name in self.state_names}
        return {name: value for name, value in own.items() if isinstance(value, Tensor)}

    @contextmanager
    def put_aside(self) -> Iterator[None]:
        """Undo, at the end of the block, every change to the values and parts named by ``_expects``, exactly. Random
        streams continue. Within the block, change models only by ``expect``."""
        names = (*self.state_names, *self._parts) if self._expects is None else self._expects
        kept = {name: getattr(self, name) for name in names if name not in self._parts}
        with ExitStack() as stack:
            for part in _leaves([getattr(self, name) for name in names if name in self._parts]):
                stack.enter_context(getattr(part, "put_aside", getattr(part, "provisional", nullcontext))())
            try:
                self._put({name: copied(value) for name, value in kept.items()})
                yield
            finally:
                self._put(kept)

    def _check_has(self, state: Any, where: str) -> None:
        validation.instance(where, state, Mapping, f"the state of a {type(self).__name__}")
        names = {_key(name) for name in (*self.state_names, *self._parts)}
        expected = f"those of a {type(self).__name__}, {sorted(names)}"
        validation.require(names == set(state), f"names in {where}", sorted(map(str, state)), expected)
        for name, fresh in self._fresh().items():
            _check_like(state[_key(name)], fresh, f"{where}[{_key(name)!r}]")

    def _leaves(self) -> Iterator[Any]:
        return _leaves([getattr(self, name) for name in self._parts])


@contextmanager
def only_where(where: Tensor | None, *parts: HasState) -> Iterator[None]:
    """At the end of the block, restore ``parts`` in the replicates where ``where`` (S,) is False; None: in none.

    The parts must replace their tensors and never change them in place (``snapshot``).
    """
    before = [] if where is None else [(part, part.snapshot) for part in parts]
    yield
    if where is not None:
        for part, was in before:
            part._put({name: _restored(getattr(part, name), one, ~where) for name, one in was.items()})


@contextmanager
def unchanged_on_error(*parts: Any) -> Iterator[None]:
    """If the block raises an exception or is interrupted, the parts return to their states before it."""
    before = [_state_of(part) for part in parts]
    try:
        yield
    except BaseException:
        for part, state in zip(parts, before, strict=True):
            part.load_state_dict(state)
        raise


def copied(value: Any) -> Any:
    """A copy of a value, its tensors copied too. A dataclass becomes the dictionary of its fields."""
    if isinstance(value, Tensor):
        return value.clone()
    if isinstance(value, Mapping):
        return {key: copied(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = [copied(item) for item in value]
        return tuple(items) if isinstance(value, tuple) else items
    if is_dataclass(value):
        return {field.name: copied(getattr(value, field.name)) for field in fields(value)}
    return value


def writes(tensor: Tensor) -> object:
    """PyTorch's private count of writes to the tensor's memory. Tensors made in inference mode have none: the result is
    new at each call, so they always appear to have been written to."""
    return object() if tensor.is_inference() else tensor._version


def differing(one: Any, other: Any, where: str = "state") -> list[str]:
    """The places where two states differ in any bit; NaN equals NaN."""
    if isinstance(one, Mapping) and isinstance(other, Mapping) and one.keys() == other.keys():
        pairs = [(key, one[key], other[key]) for key in one]
    elif isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        pairs = list(zip(range(len(one)), one, other, strict=True))
    else:
        if isinstance(one, Tensor) and isinstance(other, Tensor):
            fits = one.shape == other.shape and one.dtype == other.dtype
            same = fits and bool(((one == other) | ((one != one) & (other != other))).all())
        else:
            same = type(one) is type(other) and (one == other or (one != one and other != other))
        return [] if same else [where]
    return [place for key, a, b in pairs for place in differing(a, b, f"{where}[{key!r}]")]


def _key(name: str) -> str:
    """The name of an attribute in a state."""
    return name.lstrip("_")


def _check_like(value: Any, fresh: Any, where: str) -> None:
    """Raise ValueError unless ``value`` has the tensors of ``fresh`` in the same shapes. A dimension that is empty in
    ``fresh`` may have any length."""
    if isinstance(fresh, Tensor):
        shape = validation.tensor(where, value).shape
        fits = len(shape) == fresh.dim() and all(
            first in (0, size) for first, size in zip(fresh.shape, shape, strict=True)
        )
        sizes = ["any" if first == 0 else str(first) for first in fresh.shape]
        validation.shape_is(where, value, fits, f"({', '.join(sizes)})")
    elif isinstance(fresh, dict):
        for key, one in fresh.items():
            validation.require(isinstance(value, Mapping) and key in value, where, value, f"with {key!r}")
            _check_like(value[key], one, f"{where}[{key!r}]")


def _restored(now: Any, fresh: Any, where: Tensor) -> Any:
    """``fresh`` in the replicates with ``where`` True, else ``now``."""
    if isinstance(fresh, dict):
        return {key: _restored(now[key], value, where) for key, value in fresh.items()}
    if not isinstance(fresh, Tensor) or fresh.shape != now.shape:
        return now
    return torch.where(where.reshape((*fresh.shape[:1], *[1] * (fresh.dim() - 1))), fresh, now)


def _grown(now: Any, there: Any, here: Any, name: str) -> Any:
    """``now``, whose initial value was ``there``, extended where the initial value ``here`` is longer: with the entries
    of ``here``, or with zeros if other dimensions have grown."""
    if isinstance(here, dict) and isinstance(there, dict):
        extra = {key: value for key, value in now.items() if key not in here}
        return copied(extra) | {key: _grown(now[key], there[key], here[key], f"{name}.{key}") for key in here}
    if not isinstance(here, Tensor) or not isinstance(there, Tensor) or there.shape == here.shape:
        return copied(now)
    fits = now.dim() == here.dim() and all(
        first == last or (size == first <= last)
        for first, size, last in zip(there.shape, now.shape, here.shape, strict=True)
    )
    validation.require(fits, name, tuple(now.shape), f"of its first shape, {tuple(there.shape)}, to grow")
    sizes = [
        size if first == last else last
        for first, size, last in zip(there.shape, now.shape, here.shape, strict=True)
    ]
    grown = here.clone() if list(here.shape) == sizes else here.new_zeros(sizes)
    grown[tuple(slice(size) for size in now.shape)] = now
    return grown


# -- parts -----------------------------------------------------------------------------------------------


def _leaves(part: Any) -> Iterator[Any]:
    """The parts in nested lists, tuples and dictionaries."""
    return (one for one, _ in _with_states(part, part, ""))


def _state_of(part: Any) -> Any:
    if isinstance(part, dict):
        return {key: _state_of(one) for key, one in part.items()}
    if isinstance(part, list | tuple):
        return [_state_of(one) for one in part]
    if part is None:
        return None
    return copied(part.state_dict()) if isinstance(part, torch.nn.Module) else part.state_dict()


def _with_states(part: Any, state: Any, where: str) -> Iterator[tuple[Any, Any]]:
    """The parts in nested lists, tuples and dictionaries, each with its state, found at this place."""
    if isinstance(part, dict | list | tuple):
        kind = Mapping if isinstance(part, dict) else list | tuple
        places = list(part) if isinstance(part, dict) else list(range(len(part)))
        fits = isinstance(state, kind) and len(state) == len(part)
        validation.require(fits, where, state, f"of {len(part)} parts, {places}")
        for place in places:
            yield from _with_states(part[place], state[place], f"{where}[{place!r}]")
    elif part is None:
        validation.require(state is None, where, state, "None: there is no such part")
    elif state is not None:
        yield part, state
