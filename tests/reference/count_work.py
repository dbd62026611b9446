"""How many numbers a piece of code reads and writes, counted operation by operation: a clock that does not jitter."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_NOTHING_MOVES = {
    "alias", "as_strided", "detach", "diagonal", "empty", "expand", "permute", "select", "slice", "split",
    "squeeze", "t", "transpose", "unbind", "unsqueeze", "view", "_reshape_alias", "_unsafe_view",
    "empty_like", "new_empty", "lift_fresh", "is_same_size",
}  # fmt: skip
# These visit as many entries of their first tensor as there are in the largest of the others.
_PICK = {"gather", "index", "index_put", "index_put_", "index_select", "scatter", "scatter_", "scatter_add_"}


class CountWork(TorchDispatchMode):
    """``with CountWork() as work: ...; work.numbers`` is how many numbers went in and out of the operations."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func._schema.name.split("::")[1]
        if name not in _NOTHING_MOVES:
            sizes = [x.numel() for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
            if name in _PICK:
                in_place = name.endswith("_") or name == "index_put"
                sizes = sizes[1:]
                self.numbers += 2 * max(sizes, default=0)
                if not in_place and name == "scatter":
                    self.numbers += out.numel()
            else:
                written = [x.numel() for x in tree_leaves(out) if isinstance(x, torch.Tensor)]
                self.numbers += sum(sizes) + sum(written)
        return out
