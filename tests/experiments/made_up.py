"""Histories whose every number is known."""

import torch

from bandits_torch.history import History


def history(arms, *, rewards=None, expected=None, best=None, trace=None, **meta):
    """One of these arms (S, T), or points (S, T, d): 0 wherever nothing is said."""
    arms = torch.as_tensor(arms)
    zeros = torch.zeros(arms.shape[:2], dtype=torch.float64)
    parts = [zeros if one is None else torch.as_tensor(one).double() for one in (rewards, expected, best)]
    steps = torch.arange(1.0, arms.shape[1] + 1, dtype=torch.float64)
    return History(arms, *parts, steps, zeros[0], trace or {}, meta)
