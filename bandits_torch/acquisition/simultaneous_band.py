"""UCB with the narrowest width that holds at all arms at once."""

from __future__ import annotations

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.acquisition.step_context import StepContext
from bandits_torch.acquisition.upper_confidence_bound import UpperConfidenceBound
from bandits_torch.description import Described
from bandits_torch.models.arms.arm_model import ArmModel
from bandits_torch.theory.prior_widths import rank, simultaneous_width, standardised_draws


class SimultaneousBand(Described):
    """mu + width sigma, the width a quantile of max_x |f(x) - mu(x)| / sigma(x) under the joint posterior.

    Called with a model it is that UCB now; in a policy it takes the step's time and random numbers. The theorem is
    ``simultaneous_width``'s: Bayesian, for f drawn from the model's prior (and drifting as the model does) with
    Gaussian noise of variance lambda; at each step the band holds all arms with probability 1 - delta. ``mean_excess``
    has what follows for the regret.

    Source: Srinivas et al. 2010, Lemma 5.1, with the quantile in place of its union bounds; derived in
    ``theory/simultaneous_widths.py``.

    Args:
        delta: failure probability of a step.
        draws: M; the width errs on the safe side by at most 1/(M + 1) in probability, and varies less with more.

    Cost: that of ``joint_root``, O(N^3) a step under drift, and O(M N^2) for the draws.

    Raises ValueError unless 0 < ``delta`` < 1 and ``draws`` is an integer >= 1/delta - 1.
    """

    def __init__(self, delta: float = 0.1, draws: int = 199) -> None:
        rank(draws, delta)  # is there one?
        self.delta, self.draws = delta, draws

    def __call__(self, model: ArmModel) -> UpperConfidenceBound:
        """With numbers from PyTorch's generator, at the time of the latest observation."""
        return self._at(model, None, None)

    def at_step(self, model: ArmModel, step: StepContext) -> UpperConfidenceBound:
        """With the step's numbers, at its time."""
        return self._at(model, step.time, step.base_samples(self.draws))

    @torch.no_grad()
    def _at(self, model: ArmModel, time: float | None, samples: Tensor | None) -> UpperConfidenceBound:
        validation.instance("model", model, ArmModel, "a model over arms, such as ArmGP")
        root = model.joint_root(time)[1]
        if samples is None:
            samples = torch.randn(
                *root.shape[:-2], self.draws, root.shape[-1], dtype=root.dtype, device=root.device
            )
        drawn, deviation = standardised_draws(root, samples)
        return UpperConfidenceBound(model, simultaneous_width(drawn, deviation, self.delta))
