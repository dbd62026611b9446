"""Confidence widths over arm x context."""

from __future__ import annotations

from bandits_torch import validation
from bandits_torch.theory.parameters import Parameter
from bandits_torch.theory.prior_widths import SrinivasBayesianWidth


class CGPUCBWidth(SrinivasBayesianWidth):
    """CGP-UCB on N arms under M contexts: width_t = sqrt(2 ln(N M pi^2 t^2 / (6 delta))).

    Source: Krause & Ong 2011, Theorem 1, case 1; equals sqrt(beta_t), with |X| = N M pairs of arm and context.
    Valid for f over the pairs drawn from the model's prior and Gaussian noise of variance lambda, whatever the order
    in which contexts come, even where they are chosen with f in view.

    With ``num_contexts`` 1 the union is over the N pairs of each step's own context: valid for any number of contexts,
    infinitely many too, that do not depend on f once the past observations are given (drawn at random, or by rules
    that look at rewards alone). Then f at these pairs given the past is N(mu_{t-1}, sigma_{t-1}^2), as in Srinivas et
    al. 2010, Lemma 5.1, and the regret bound of Theorem 1 needs no other pairs. Data must be kept: see
    ``prior_widths.py``.

    Args:
        num_arms: N >= 1.
        num_contexts: M >= 1.
        delta: failure probability.

    Raises ValueError for numbers that are no integers >= 1, and unless 0 < ``delta`` < 1.
    """

    def __init__(self, num_arms: int, num_contexts: int, delta: Parameter) -> None:
        validation.positive_integer("num_arms", num_arms)
        self.num_contexts = validation.positive_integer("num_contexts", num_contexts)
        super().__init__(num_arms * num_contexts, delta)
