"""Widths for choices made while earlier ones have no reward yet."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bandits_torch import validation
from bandits_torch.models.arms.arm_model import ArmModel
from bandits_torch.models.online_model import OnlineModel
from bandits_torch.theory.information_gain import GainProvider
from bandits_torch.theory.widths import Width


class GPBUCBWidth(Width):
    """GP-BUCB: exp(C) base, with C = (B - 1) gamma_n / n, a bound on what B - 1 pending pulls can tell.

    The mean rests on the rewards learned, the deviation sigma_{t-1} on pending pulls too, which lower it by less than
    the mean's error falls: sigma_learned(x) / sigma_{t-1}(x) = exp(I(f(x); pending | learned)) <= exp(C), I the
    conditional mutual information. So if the base covers, |f - mu| <= base sigma_learned, then
    |f - mu| <= exp(C) base sigma_{t-1}, and regret is at most that of one choice at a time, times exp(C).

    Source: Desautels, Krause & Burdick 2014 (JMLR 15), section 4: beta_t = exp(2 C) alpha_fb[t], of which this is the
    root, and their C after uncertainty sampling: each of its n pulls takes the largest variance, so the gains do not
    increase and the last is at most gamma_n / n; later pulls gain no more, each.

    Valid if ``base`` is for what is learned alone (widths are evaluated at the step after the last reward), at most
    B - 1 pulls are pending at a choice, the model holds n observations chosen by ``uncertainty_sampling`` and forgets
    nothing, and the kernel has no time part. With drift or forgetting, or without the first n pulls, no theorem holds.
    For many pulls at once it is large: a number that is measured, such as 1, is common in practice (their section 6).

    Args:
        base: the width for one choice at a time.
        count: B, the number of choices without a reward between them, or of questions open at once.
        initial: n.
        gain: a provider of gamma_n. ``MaximumGain(..., max_points=n, upper_bound=False)`` is the gain of the first n
            pulls themselves, which is all that the argument needs; ``RealisedGain`` follows the data held now and would
            not do.

    Raises ValueError for a ``base`` that is no width, and integers below 1.
    """

    def __init__(self, base: Width, count: int, *, initial: int, gain: GainProvider) -> None:
        validation.instance("base", base, Width, "a Width")
        validation.function("gain", gain, "a provider of information gain, such as MaximumGain(...)")
        self.base, self.gain = base, gain
        self.count = validation.positive_integer("count", count)
        self.initial = validation.positive_integer("initial", initial)

    def bind(self, model: OnlineModel, forgetting: Any) -> Width:
        """Around the base as the policy uses it."""
        base = self.base.bind(model, forgetting)
        if base is self.base:
            return self
        return GPBUCBWidth(base, self.count, initial=self.initial, gain=self.gain)

    def check_bound(self) -> None:
        """The base's."""
        self.base.check_bound()

    def information(self, model: OnlineModel) -> Tensor:
        """C, broadcasting to ``model.batch_shape``."""
        return (self.count - 1) * self.gain(self.initial, model) / self.initial

    def at(self, step: int | Tensor, model: OnlineModel) -> Tensor:
        """exp((B - 1) gamma_n / n) base."""
        return self.information(model).exp().to(model.noise_variance) * self.base.at(step, model)


@torch.no_grad()
def uncertainty_sampling(model: ArmModel, count: int, time: float = 0.0) -> Tensor:
    """``count`` arms, ``count x batch_shape``, each of the largest variance once the ones before it are observed.

    No reward is needed to know them: pull them all, learn, and ``GPBUCBWidth`` holds from then on. The model stays as
    it is. Source: Desautels, Krause & Burdick 2014, section 4. Cost: a step for each.

    Args:
        model: over arms, such as ``ArmGP``.
        count: n >= 1.
        time: of the pulls, for a model that drifts.

    Raises ValueError for a model that is not over arms, and a ``count`` below 1.
    """
    validation.instance("model", model, ArmModel, "a model over arms")
    validation.positive_integer("count", count)
    chosen = []
    with model.provisional():
        for _ in range(count):
            chosen.append(model.marginals(time if model.drifts else None)[1].argmax(-1))
            model.expect_arms(chosen[-1], time)
    return torch.stack(chosen)
