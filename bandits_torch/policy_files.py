"""Files that move policies between processes: they hold a policy's state and a description of how it was built."""

from __future__ import annotations

import copy
import inspect
import os
import uuid
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.ask_tell import AskTell
from bandits_torch.checkpoint import versions_here, warn_of_versions
from bandits_torch.description import (
    Described,
    alike,
    description,
    differences,
    is_structure,
    items_of,
    leaf_of,
    module_items_of,
    said_differences,
)
from bandits_torch.files import locked, remove_parts
from bandits_torch.history import name_of
from bandits_torch.policies.policy import Policy
from bandits_torch.state import unchanged_on_error
from bandits_torch.state_files import check_kinds, read_plain, read_state, whole_or_refused, write_state

_SAVED = "a policy, or an AskTell around one"
# The mark of the save that a policy loaded or wrote last, by policy and path; after a save that was interrupted or
# failed also its mark, because the file may have been replaced.
_saved_as: WeakKeyDictionary[Any, dict[str, set[str]]] = WeakKeyDictionary()


def save_policy(path: str | os.PathLike[str], policy: Policy | AskTell, *, overwrite: bool = False) -> None:
    """Write a policy (or an ``AskTell`` around one) to a file: its state and how it was built.

    An existing file must be the one that this policy loaded or saved last. Otherwise another process has saved in the
    meantime, and its state would be lost: load the file and repeat the calls made since. A symbolic link stays one, and
    a file keeps its mode.

    A lock of the file's folder makes check and write one step: a save waits for another in the folder, and for a race
    or sweep that writes into it to end. On Windows, and on file systems without locks, two saves within the same
    milliseconds may both be accepted.

    Args:
        path: the file to write, atomically.
        policy: to save.
        overwrite: replace any existing file.

    Raises ValueError, with nothing written, for a stale save and a file of the wrong kind; TypeError for a policy
    whose state holds more than tensors and plain values.
    """
    validation.instance("policy", policy, (Policy, AskTell), _SAVED)
    place = os.path.realpath(path)
    # The policy first: a thread that saves within ``AskTell.alone`` holds it already.
    with _alone(policy), locked(Path(place).parent) as alone:
        number = 0
        if os.path.exists(place) and not overwrite:
            number = _own_save(place, policy)
        if alone:
            remove_parts(path)
        mark = uuid.uuid4().hex
        content: dict[str, Any] = {"policy": name_of(policy), "save": number + 1, "mark": mark}
        content |= {"built": description(policy, "policy"), "state": policy.state_dict()}
        content["versions"] = versions_here()
        marks = _saved_as.setdefault(policy, {})
        marks[place] = {*marks.get(place, ()), mark}
        write_state(path, "policy", content)
        marks[place] = {mark}  # before another thread may save the same policy


def _alone(policy: Any) -> AbstractContextManager[Any]:
    """Within the block, calls of other threads wait; only an ``AskTell`` can be shared by threads."""
    return policy.alone() if isinstance(policy, AskTell) else nullcontext()


def _own_save(place: str, policy: Policy | AskTell) -> int:
    """The number of the save at ``place``. Raises ValueError unless it is the one that this policy loaded or saved
    last."""
    try:
        file = read_plain(place, "policy")
    except ValueError as error:
        raise ValueError(
            f"path must be of a policy's file, or of a new file, got {place!r}: {error}"
        ) from error
    known = _saved_as.get(policy, {}).get(place, set())
    if str(file.get("mark")) not in known:
        last = "loaded or saved an earlier one" if known else "never loaded or saved it"
        raise ValueError(
            f"path must be of a file that this policy loaded or saved last, got {place!r}: it holds save "
            f"{file.get('save')} of {file.get('policy')}, and this policy {last}. Load it and repeat the calls "
            "made since (at the command line: run the command again), or save with overwrite=True, which loses what "
            "others learned"
        )
    return int(file["save"])


def load_policy(
    path: str | os.PathLike[str], policy: Policy | AskTell, *, on_difference: str = "error"
) -> None:
    """Load a state that ``save_policy`` wrote into a policy.

    The file describes, part by part, how the saved policy was built: classes, numbers, arms, kernels before learning.

    Args:
        path: a file that ``save_policy`` wrote.
        policy: built in the same way; its state is replaced. If it is an ``AskTell``, calls of other threads wait.
        on_difference: what to do if ``policy`` was built otherwise. ``"error"``: a ValueError lists the differences.
            ``"file"``: the policy takes the file's settings, but no other structure (classes, arms, functions). It is
            rebuilt with all its parts and continues exactly as the saved one; references to its former parts become
            invalid.

    Raises FileNotFoundError, and ValueError for a file that is damaged, of the wrong kind or format, or of a policy
    that differs; the policy then stays unchanged. Warns if package versions or the number of threads differ.
    """
    validation.one_of("on_difference", on_difference, "error", "file")
    validation.instance("policy", policy, (Policy, AskTell), _SAVED)
    name = os.fspath(path)
    content = read_state(path, "policy")
    with whole_or_refused(name, "policy"):
        built, state, mark = dict(content["built"]), content["state"], str(content["mark"])
        made_by = dict(content["versions"])
    with _alone(policy):
        target: Any = policy
        if isinstance(policy, AskTell):
            with whole_or_refused(name, "policy"):
                target = policy.with_arms_of(state)
        found = said_differences(built, description(target, "policy"))
        if found:
            said = (
                f"{name!r} must be of a policy built in the same way: {found} "
                "(on_difference='file' takes the file's settings, where it can)"
            )
            if on_difference == "error":
                raise ValueError(said)
            target = _as_in_file(said, target, built)
        with whole_or_refused(name, "policy"), unchanged_on_error(policy):
            check_kinds(state, target.state_dict(), "state")
            target.load_state_dict(state)
        if target is not policy and isinstance(policy, AskTell):
            policy.take_over(target)
        elif target is not policy:
            vars(policy).clear()
            vars(policy).update(vars(target))
    _saved_as.setdefault(policy, {})[os.path.realpath(path)] = {mark}
    with _alone(policy):  # sets the number of threads that its steps use
        warn_of_versions(name, made_by)


# --- a policy rebuilt with the settings of a file ---


def _as_in_file(said: str, policy: Policy | AskTell, built: Mapping[str, Any]) -> Any:
    """``policy`` rebuilt with the values of another description of the same structure.

    Raises ValueError with ``said`` and what cannot be taken over: structure, sizes, tensors of which the file holds
    only digests, and values enclosed in functions.
    """
    try:
        made = _value_rebuilt(policy, "policy", built, {})
        left = differences(built, description(made, "policy"))
        if left:
            raise ValueError(f"{', '.join(left)} cannot be taken from a file: build the policy that way")
        sizes, same = (
            tuple(getattr(one, name, None) for name in ("replicates", "num_arms", "dim"))
            for one in (made, policy)
        )
        validation.require(sizes == same, "replicates and arms", sizes, "the same")
        return made
    except Exception as error:  # a crafted file may ask for any settings
        raise ValueError(f"{said}; these cannot be taken from the file: {error}") from error


def _value_rebuilt(value: Any, path: str, wanted: Mapping[str, Any], made: dict[int, Any]) -> Any:
    leaf = leaf_of(value)
    if leaf is not None or value is None:
        new = wanted.get(path, leaf)
        if is_structure(new) or alike(leaf, new):
            return value
        return new.to(value.device) if isinstance(new, Tensor) and isinstance(value, Tensor) else new
    if id(value) in made:
        return made[id(value)][1]
    rebuilt: Any = value
    if isinstance(value, torch.nn.Module) and not isinstance(value, Described):
        rebuilt = _module_rebuilt(value, path, wanted)
    else:
        items = {key: _value_rebuilt(item, f"{path}{key}", wanted, made) for key, item in items_of(value)}
        if isinstance(value, Described) and value.built_with is not None:
            rebuilt = value.built_with.anew({place.removeprefix("."): item for place, item in items.items()})
        elif type(value) in (list, tuple):
            rebuilt = type(value)(items.values())
        elif isinstance(value, Mapping):
            rebuilt = {key: items[f".{key}"] for key in value}
        elif is_dataclass(value) and not inspect.isclass(value):
            rebuilt = type(value)(**{f.name: items[f".{f.name}"] for f in fields(value) if f.init})
    made[id(value)] = value, rebuilt
    return rebuilt


def _module_rebuilt(module: torch.nn.Module, path: str, wanted: Mapping[str, Any]) -> torch.nn.Module:
    """A copy of a kernel or mean with other hyperparameters."""
    new = copy.deepcopy(module)
    for place, part in new.named_modules():
        at = f"{path}.{place}" if place else path
        for name, value in list(module_items_of(part)):
            leaf = wanted.get(f"{at}.{name}")
            known = isinstance(value, Tensor) and leaf is not None and not is_structure(leaf)
            if known and not alike(leaf_of(value), leaf):
                stored = dict(part.named_parameters(recurse=False)) | dict(part.named_buffers(recurse=False))
                if name in stored:
                    with torch.no_grad():
                        stored[name].copy_(torch.as_tensor(leaf).to(value))
                else:
                    part.initialize(**{name: torch.as_tensor(leaf).to(value)})
    return new
