"""Blocks are plain calls in these tests, as on a machine without numba, but where a test says otherwise; and a stand-in
for CUDA graphs."""

from collections import defaultdict

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from bandits_torch.captured.blocks import PlainCalls


@pytest.fixture(autouse=True)
def plain_calls(monkeypatch):
    monkeypatch.setattr("bandits_torch.captured.blocks.compiled_blocks", lambda steps, device: None)


class Operations(TorchDispatchMode):
    """Records the operations within, and plays them again on other inputs, without the Python between them."""

    def __init__(self):
        super().__init__()
        self.all = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.all.append((func, args, kwargs or {}, out))
        return out

    def again(self, inputs, others, results):
        """Results for ``others`` in place of ``inputs``."""
        now = {id(one): other for one, other in zip(inputs, others, strict=True)}

        def present(value):
            return tree_map_only(torch.Tensor, lambda tensor: now.get(id(tensor), tensor), value)

        for func, args, kwargs, out in self.all:
            made = func(*present(args), **present(kwargs))
            now.update((id(old), new) for old, new in zip(tree_leaves(out), tree_leaves(made), strict=True))
        return present(results)


class Replayed(PlainCalls):
    """Blocks whose operations are recorded and played again, as a CUDA graph is: on the tensors that they had then."""

    block_steps, blind = 8, True

    def __init__(self):
        self.recorded, self.again = {}, defaultdict(int)

    def __call__(self, key, block, given):
        names, steps = sorted(given), block.args[0]
        inputs = [given[name] for name in names]
        key = key, *((name, given[name].shape) for name in names)
        if key in self.recorded:
            operations, before, rows = self.recorded[key]
            self.again[getattr(steps, "takes_all", None)] += 1
            return operations.again(before, inputs, dict(rows))
        with Operations() as operations:
            rows = block(given)
        self.recorded[key] = operations, inputs, dict(rows)
        return rows


@pytest.fixture
def replayed(monkeypatch):
    launched = Replayed()
    monkeypatch.setattr("bandits_torch.captured.blocks.launcher", lambda device: launched)
    return launched
