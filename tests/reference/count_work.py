"""How much work a piece of code is, counted operation by operation: a clock that does not jitter."""

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
_CUBIC = {
    "linalg_cholesky_ex", "_linalg_eigh", "linalg_lu_factor_ex", "linalg_inv_ex", "_linalg_svd", "linalg_qr",
}  # fmt: skip
_SOLVES = {"linalg_solve_triangular", "triangular_solve", "cholesky_solve", "_linalg_solve_ex"}
_PRODUCTS = {"mm", "bmm", "addmm", "baddbmm", "mv", "addmv", "dot"}


def _sizes(values: Any) -> list[int]:
    return [x.numel() for x in tree_leaves(values) if isinstance(x, torch.Tensor)]


class CountWork(TorchDispatchMode):
    """``with CountWork() as work: ...`` counts two things.

    ``work.numbers``: how many numbers went in and out of the operations.
    ``work.flops``: multiplications, so that it sees what reading does not: a product of matrices n x k x m counts
    n k m, a triangular solve n^2 m, a factorisation n^3, eigenvectors too; every other operation counts the numbers it
    writes, views none.
    """

    def __init__(self) -> None:
        super().__init__()
        self.numbers = self.flops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func._schema.name.split("::")[1]
        if name not in _NOTHING_MOVES:
            picked, written = max(_sizes((args[1:], kwargs)), default=0), sum(_sizes(out))
            matrices = [x for x in args if isinstance(x, torch.Tensor)]
            in_place = name in _PICK and name.endswith("_")  # only what is put in is written
            if name in _PICK:
                self.numbers += 2 * picked + (written if name == "scatter" else 0)
            else:
                self.numbers += sum(_sizes((args, kwargs))) + written
            if name in _PRODUCTS:
                self.flops += written * matrices[0 if name == "dot" else -2].shape[-1]
            elif name in _SOLVES:
                self.flops += written * max(matrices[0].shape[-2:])
            elif name in _CUBIC:
                self.flops += matrices[0].numel() * matrices[0].shape[-1]
            else:
                self.flops += picked if in_place else written
        return out
