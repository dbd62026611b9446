"""The matrices of a state space in its standard form (Hartikainen & Sarkka 2010): ds = F s dt + noise, f = h^T s."""

import torch


def _of_waves(part, cos, sin):
    """Block-diagonal: [[a, -b], [b, a]] for a wave that rotates, [a] for any other; a of ``cos``, b of ``sin``."""
    blocks = [
        torch.tensor([[a, -b], [b, a]] if turns else [[a]], dtype=part.rate.dtype)
        for a, b, turns in zip(cos.tolist(), sin.tolist(), part.turns, strict=True)
    ]
    return torch.block_diag(*blocks)


def dense(space):
    """F, P and h of a ``StateSpace`` without a batch."""
    drifts, covariances, outputs = [], [], []
    for part in space.components:
        p, m = torch.eye(len(part.measurement)).to(part.rate), torch.eye(part.width).to(part.rate)
        spin = _of_waves(part, torch.zeros_like(part.frequency), part.frequency)
        drifts.append(torch.kron(part.shift - part.rate * p, m) + torch.kron(p, spin))
        covariances.append(torch.kron(part.covariance, part.wave_weights().diag()))
        outputs.append(torch.kron(part.measurement, part.waves(torch.zeros_like(part.rate))))
    return torch.block_diag(*drifts), torch.block_diag(*covariances), torch.cat(outputs)
