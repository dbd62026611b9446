"""A width for batches of arms that are chosen without their rewards and pulled in random order, under drift."""

from __future__ import annotations

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.models.online_model import OnlineModel
from bandits_torch.theory.parameters import Parameter, checked, checked_scale, like, log, scale_of
from bandits_torch.theory.widths import Width


class PermutationWidth(Width):
    """width = B + sqrt((R^2 + V^2)/lambda) sqrt(2 ln(2 N M/delta)), for the average function of a batch.

    Theorem. Let n arms be fixed, pulled in a uniformly random order, and f_t have averages f over the batch with
    ||f|| <= B and |f_s(x) - f_t(x)| <= V for all arms and all s, t in the batch. With the posterior of the batch alone,
    |f(x) - mu(x)| <= width sigma(x) for N arms and M batches at once, with probability at least 1 - delta.

    Proof. mu(x) = sum_j a_j y_j. The part of f is off by at most B sigma(x). The noise is sub-Gaussian with
    R^2 |a|^2. The rest, sum_j a_j (f_{tau(j)}(x_j) - f(x_j)), tau the random order, has mean 0; uncover tau(j) in
    descending order of |a_j|: two values of one tau(j) are coupled by a swap with a later one and change the sum by at
    most 2 V |a_j|, so by Azuma and Hoeffding it is sub-Gaussian with V^2 |a|^2. Both are independent, and
    lambda |a|^2 <= sigma^2(x). Without the random order drift costs V sqrt(n/lambda) (``DriftAwareWidth``).

    Source: the idea, and that such a bound holds, Iwazaki & Takeno 2024 (arXiv 2410.16052); constants derived here.
    No information gain is in it, since the arms of a batch do not depend on its rewards.

    Args:
        num_arms, batches: N and M >= 1.
        rkhs_bound, noise_scale, delta: B, R (None: sqrt(lambda)) and delta.
        drift: V >= 0; 2 B max_x sqrt(k(x, x)) always is one.

    Raises ValueError unless N and M are integers >= 1, B >= 0, R > 0, V >= 0 and 0 < delta < 1.
    """

    def __init__(
        self,
        num_arms: int,
        batches: int,
        rkhs_bound: Parameter = 1.0,
        noise_scale: Parameter | None = None,
        delta: Parameter = 0.1,
        drift: Parameter = 0.0,
    ) -> None:
        self.num_arms = validation.positive_integer("num_arms", num_arms)
        self.batches = validation.positive_integer("batches", batches)
        self.rkhs_bound = checked(validation.non_negative, "rkhs_bound", rkhs_bound)
        self.noise_scale = checked_scale(noise_scale)
        self.delta = checked(validation.probability, "delta", delta)
        self.drift = checked(validation.non_negative, "drift", drift)

    def at(self, step: int | Tensor, model: OnlineModel) -> Tensor:
        """B + sqrt((R^2 + V^2)/lambda) sqrt(2 ln(2 N M/delta)), whatever the step."""
        noise = model.noise_variance
        B, V, delta = (like(noise, p) for p in (self.rkhs_bound, self.drift, self.delta))
        R = scale_of(noise, self.noise_scale)
        events = torch.ones_like(noise) * log(2 * self.num_arms * self.batches / delta)
        return B + torch.sqrt((R**2 + V**2) / noise * 2 * events)
