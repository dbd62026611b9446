"""Nested state (dicts, lists, tensors, plain values) as a file that is read without executing anything.

The file is a NumPy archive: ``np.load`` reads it. Each tensor is an array, named by its path in the state, such as
``policy/state/model/mean``. The array ``header`` holds JSON as bytes: the kind of the file, and all that is not a
tensor. The archive's checksums detect damage, which ``torch.load`` does not.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.files import atomic_write, interrupts_held_back

FORMAT, FORMAT_VERSION = "bandits_torch state", 7
_PLAIN = (bool, int, float, str, type(None))


def write_state(
    path: str | os.PathLike[str], kind: str, content: Mapping[str, Any], *, compressed: bool = False
) -> None:
    """Write ``content`` to ``path`` atomically (``write_to``)."""
    with interrupts_held_back(), atomic_write(path) as file:
        write_to(file, kind, content, compressed=compressed)


def write_to(file: BinaryIO, kind: str, content: Mapping[str, Any], *, compressed: bool = False) -> None:
    """Write values by name: tensors and plain values, also in nested dicts, lists and tuples.

    ``read_state`` refuses a file of another ``kind``. Raises TypeError, before writing, for any other value.
    """
    tensors: dict[str, np.ndarray] = {}
    tree = {name: _packed(value, name, f"{kind}/{name}", tensors) for name, value in content.items()}
    text = json.dumps({**_identity(kind), "content": tree})
    arrays: dict[str, Any] = {"header": np.frombuffer(text.encode(), dtype=np.uint8), **tensors}
    (np.savez_compressed if compressed else np.savez)(file, **arrays)


def read_state(path: str | os.PathLike[str], kind: str) -> dict[str, Any]:
    """The content of a file that ``write_state`` wrote. Tensors return to the device they were on.

    Raises FileNotFoundError, and ValueError for a file that is truncated, damaged, or of another kind or format
    version, and for tensors of a device that is missing.
    """
    if not os.path.exists(path):
        raise FileNotFoundError(f"no {kind} file at {os.fspath(path)!r}")
    with whole_or_refused(os.fspath(path), kind), open(path, "rb") as file:
        return read_from(file, kind)


def read_from(file: BinaryIO, kind: str) -> dict[str, Any]:
    """The content that ``write_to`` wrote. Anything else raises some exception."""
    if not zipfile.is_zipfile(file):
        raise ValueError("it is truncated, or of another kind")
    with zipfile.ZipFile(file) as entries:  # NumPy does not check whole arrays
        damaged = entries.testzip()
    if damaged is not None:
        raise ValueError(f"{damaged} is damaged")
    file.seek(0)
    with np.load(file, allow_pickle=False) as archive:
        arrays = {key: archive[key] for key in archive.files}
    header = json.loads(arrays.pop("header").tobytes())
    for name, wanted in _identity(kind).items():
        expected = (
            f"{wanted!r}; another version of the package wrote it" if name == "version" else repr(wanted)
        )
        validation.require(header.get(name) == wanted, f"its {name}", header.get(name), expected)
    return {name: _unpacked(tree, arrays) for name, tree in header["content"].items()}


def read_plain(path: str | os.PathLike[str], kind: str) -> dict[str, Any]:
    """The content of a file as ``read_state`` returns it, but only the numbers and words, whose reading is fast."""
    with whole_or_refused(os.fspath(path), kind), open(path, "rb") as file:
        with np.load(file, allow_pickle=False) as archive:
            content = json.loads(archive["header"].tobytes())["content"]
        return {name: value for name, value in content.items() if isinstance(value, _PLAIN)}


def _identity(kind: str) -> dict[str, Any]:
    return {"format": FORMAT, "version": FORMAT_VERSION, "kind": kind}


@contextmanager
def whole_or_refused(name: str, kind: str) -> Iterator[None]:
    """Within the block, any error becomes a ValueError that names the file."""
    try:
        yield
    except Exception as error:  # a crafted file makes its readers fail in many ways
        said = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{name!r} cannot be loaded as a {kind} file: {said}") from error


def check_kinds(state: Any, mine: Any, where: str) -> None:
    """Raise ValueError if ``state`` has another kind of value than ``mine`` at some path, or a tensor of another dtype.

    The object of ``mine`` may have learned more or less. So sizes may differ, a value may be None in one of them, and a
    count may be a number in one and a tensor in the other.
    """
    kinds = dict(_described_kinds(state, where))
    for place, kind in _described_kinds(mine, where):
        found = kinds.get(place, kind)
        if kind is None or found is None or found == kind:
            continue
        if not (kind[0] == found[0] == "number" and "" in (kind[1], found[1])):
            raise ValueError(f"{place} must be a {' '.join(kind).strip()}, got a {' '.join(found).strip()}")


def _described_kinds(value: Any, where: str) -> Iterator[tuple[str, tuple[str, str] | None]]:
    """By path: group, number or word, with the dtype of tensors; None for None."""
    if isinstance(value, (Mapping, list, tuple)):
        yield where, ("group", "")
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, item in items:
            yield from _described_kinds(item, f"{where}[{key!r}]")
    elif isinstance(value, Tensor):
        yield where, ("number", str(value.dtype))
    else:
        yield where, None if value is None else ("word" if isinstance(value, str) else "number", "")


def _packed(value: Any, where: str, name: str, tensors: dict[str, np.ndarray]) -> Any:
    """``value`` for JSON. Tensors, tuples and dicts become objects with the key ``tensor``, ``tuple`` or ``dict``; the
    arrays of tensors are added to ``tensors``."""
    if isinstance(value, Mapping):
        pairs = [
            [_packed(key, where, name, tensors), _packed(item, f"{where}[{key!r}]", f"{name}/{key}", tensors)]
            for key, item in value.items()
        ]
        return {"dict": pairs}
    if isinstance(value, (list, tuple)):
        items = [_packed(item, f"{where}[{i}]", f"{name}/{i}", tensors) for i, item in enumerate(value)]
        return {"tuple": items} if isinstance(value, tuple) else items
    if not isinstance(value, Tensor):
        if not isinstance(value, _PLAIN):
            raise TypeError(f"{where} must be a tensor or a plain value, got {type(value).__name__}")
        return value
    while name in tensors:  # keys 1 and "1" have the same name
        name += "'"
    try:
        tensors[name] = array = value.detach().cpu().numpy()
    except TypeError as error:
        raise TypeError(f"{where} must be of a dtype that NumPy has, got {value.dtype}") from error
    # Dimensions in the order of memory, slowest first. With another layout sums may differ in the last bits.
    strides, order = value.stride(), list(range(value.dim()))
    by_stride = sorted(order, key=lambda k: (-strides[k], k))
    order = by_stride if value.permute(by_stride).is_contiguous() else order
    return {"tensor": [name, array.dtype.name, list(value.shape), str(value.device), order]}


def _unpacked(tree: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    if isinstance(tree, list):
        return [_unpacked(item, arrays) for item in tree]
    if not isinstance(tree, dict):
        return tree
    ((tag, content),) = tree.items()
    if tag == "tuple":
        return tuple(_unpacked(item, arrays) for item in content)
    if tag == "dict":
        return {_unpacked(key, arrays): _unpacked(item, arrays) for key, item in content}
    if tag != "tensor":
        raise ValueError(f"unknown entry {tag!r}")
    name, dtype, shape, device, order = content
    array = arrays[name]
    found = [array.dtype.name, list(array.shape), sorted(order)]
    if found != [dtype, shape, list(range(len(shape)))]:
        raise ValueError(f"{name} must be {dtype} of shape {shape} in the order {order}, got {found}")
    as_it_lay = torch.from_numpy(array).permute(order).clone(memory_format=torch.contiguous_format)
    return as_it_lay.permute([order.index(k) for k in range(len(shape))]).to(device)


def described(value: Any, where: str = "") -> dict[str, Any]:
    """The plain values of a nested state by path, and summaries of its tensors: their shape and a checksum, or sums to
    six digits, which seldom depend on the last bits."""
    if isinstance(value, (Mapping, list, tuple)):
        if isinstance(value, Mapping):
            items = [(f"{where}.{key}", item) for key, item in value.items()]
        else:
            items = [(f"{where}[{i}]", item) for i, item in enumerate(value)]
        return {path: leaf for place, item in items for path, leaf in described(item, place).items()}
    if not isinstance(value, Tensor):
        return {where: value}
    shape = "x".join(map(str, value.shape)) or "()"
    if not value.is_floating_point():
        digest = hashlib.sha256(value.cpu().contiguous().numpy().tobytes()).hexdigest()
        return {where: f"{shape} {digest[:12]}"}
    value = value.detach().nan_to_num().double()
    size = float(value.abs().sum())
    share = round(float(value.sum()) / size, 6) if size else 0.0
    return {where: f"{shape} {size:.6g} {share + 0.0}"}
