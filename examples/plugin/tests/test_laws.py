"""The laws of bandits_torch hold for this package: python -m pytest"""

from seesaw_bandits import FadingKernel

from bandits_torch.testing import KernelLaws, ProblemLaws, RecipeLaws


class TestHalving(RecipeLaws):
    name = "halving_gp_ucb"


class TestSeesaw(ProblemLaws):
    name = "seesaw"


class TestFading(KernelLaws):
    def build(self):
        return FadingKernel()
