"""What a piece of code asks of a device: kernels launched, values the host waits for, memory allocated."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# Operations that say how memory is seen, and launch nothing.
_VIEWS = {
    "alias", "as_strided", "detach", "diagonal", "expand", "lift_fresh", "movedim", "permute", "select", "slice",
    "split", "split_with_sizes", "squeeze", "t", "transpose", "unbind", "unfold", "unsqueeze", "view", "view_as",
    "_reshape_alias", "_unsafe_view", "is_same_size", "resolve_conj", "resolve_neg", "sym_size",
}  # fmt: skip
_EMPTY = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}
# Operations whose result the host has to know, or whose shape depends on values.
_WAITS = {
    "_local_scalar_dense",
    "item",
    "nonzero",
    "masked_select",
    "equal",
    "_unique2",
    "is_nonzero",
    "unique_dim",
}


class CountLaunches(TorchDispatchMode):
    """``with CountLaunches() as asked: ...``; then ``kernels``, ``host_reads`` and ``allocated`` bytes, new memory that
    results were written to, in all.

    A kernel is an operation that is no view, as an eager launch on a GPU would be at least one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.kernels = self.host_reads = self.allocated = 0
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {x.untyped_storage().data_ptr() for x in tree_leaves((args, kwargs)) if _dense(x)}
        out = func(*args, **(kwargs or {}))
        name = func._schema.name.split("::")[1]
        if name in _WAITS:
            self.host_reads += 1
        if name not in _VIEWS and name not in _EMPTY:
            self.kernels += 1
            self.names.append(name)
        for x in tree_leaves(out):
            if _dense(x) and x.untyped_storage().data_ptr() not in given:
                self.allocated += x.untyped_storage().nbytes()
        return out


def _dense(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.layout == torch.strided and x.device.type != "meta"
