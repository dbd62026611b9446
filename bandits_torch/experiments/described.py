"""What a policy was told beforehand, as plain values for a record."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from gpytorch.kernels import Kernel
from torch import Tensor

from bandits_torch.models.candidate_prior import CandidatePrior
from bandits_torch.problems.problem import Knowledge

_LONGEST = 1000  # numbers of a tensor that are written out; of a longer one, a matrix say, its shape


def described_knowledge(knowledge: Knowledge) -> dict[str, Any]:
    """A problem's knowledge as numbers and lists; for a kernel, its class, parts and hyperparameters.

    Tensors of more than 1000 numbers, and matrices, are described by their shape.
    """
    return {field.name: _described(getattr(knowledge, field.name)) for field in fields(knowledge)}


def _described(value: Any) -> Any:
    if isinstance(value, Tensor):
        small = value.numel() <= _LONGEST and value.squeeze().dim() <= 1
        return value.squeeze().tolist() if small else {"shape": list(value.shape)}
    if isinstance(value, Kernel):
        return _described_kernel(value)
    if isinstance(value, CandidatePrior):
        return {field.name: _described(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, (list, tuple)):
        return [_described(item) for item in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else repr(value)


def _described_kernel(kernel: Kernel) -> dict[str, Any]:
    """Its class and, by the path of the part that holds them, its hyperparameters in their own units."""
    values: dict[str, Any] = {"kernel": type(kernel).__name__}
    for name, parameter, constraint in kernel.named_parameters_and_constraints():
        value = parameter.detach() if constraint is None else constraint.transform(parameter.detach())
        values[name.replace("raw_", "")] = _described(value)
    for name, part in kernel.named_modules():
        if name and isinstance(part, Kernel):
            values[f"{name} is"] = type(part).__name__
    for name, buffer in kernel.named_buffers():
        if "constraint" not in name and "active_dims" not in name and "prior" not in name:
            values[name] = _described(buffer)
    return values
