"""An object built anew with the settings of another description."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from bandits_torch.description import (
    BuiltWith,
    Described,
    description,
    is_structure,
    items_of,
    leaf_of,
    module_items_of,
)
from bandits_torch.differing import alike, differences


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
    leaf = leaf_of(value)
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
    items = {key: _rebuilt(item, f"{path}{key}", wanted, made) for key, item in items_of(value)}
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
        for name, value in list(module_items_of(part)):
            leaf = wanted.get(f"{at}.{name}")
            known = isinstance(value, Tensor) and leaf is not None and not is_structure(leaf)
            if known and not alike(leaf_of(value), leaf):
                _set_hyperparameter(part, name, torch.as_tensor(leaf).to(value))
    return new


def _set_hyperparameter(part: Any, name: str, value: Tensor) -> None:
    stored = dict(part.named_parameters(recurse=False)) | dict(part.named_buffers(recurse=False))
    if name in stored:
        with torch.no_grad():
            stored[name].copy_(value)
    else:
        part.initialize(**{name: value})
