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


class CountFlops(TorchDispatchMode):
    """``with CountFlops() as work: ...; work.flops`` counts multiplications, so that it sees what reading does not:

    a product of matrices n x k x m counts n k m, a triangular solve n^2 m, a factorisation n^3, eigenvectors too; every
    other operation counts the numbers it writes, views none.
    """

    _CUBIC = (
        "linalg_cholesky_ex",
        "_linalg_eigh",
        "linalg_lu_factor_ex",
        "linalg_inv_ex",
        "_linalg_svd",
        "linalg_qr",
    )
    _SOLVES = ("linalg_solve_triangular", "triangular_solve", "cholesky_solve", "_linalg_solve_ex")
    _PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "mv", "addmv", "dot")

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func._schema.name.split("::")[1]
        if name in _NOTHING_MOVES:
            return out
        written = sum(x.numel() for x in tree_leaves(out) if isinstance(x, torch.Tensor))
        matrices = [x for x in args if isinstance(x, torch.Tensor)]
        if name in self._PRODUCTS:
            self.flops += written * matrices[-2 if name not in ("dot",) else 0].shape[-1]
        elif name in self._SOLVES:
            self.flops += written * max(matrices[0].shape[-2:])
        elif name in self._CUBIC:
            self.flops += matrices[0].numel() * matrices[0].shape[-1]
        elif name in _PICK and name.endswith("_"):  # in place: only what is put in is written
            self.flops += max(
                (x.numel() for x in tree_leaves(args[1:]) if isinstance(x, torch.Tensor)), default=0
            )
        else:
            self.flops += written
        return out
