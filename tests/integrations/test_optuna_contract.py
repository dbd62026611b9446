"""The tests that Optuna ships for samplers, on ours."""

import pytest

pytest.importorskip("optuna", reason='Optuna is not installed: pip install ".[optuna]"')
pytest.importorskip("optuna.testing.pytest_samplers", reason="this Optuna ships no tests of samplers")

from optuna.testing import pytest_samplers as shipped

from bandits_torch.integrations.optuna import BanditSampler

pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")


def ours():
    return BanditSampler(seed=0)


class TestBasic(shipped.BasicSamplerTestCase):
    @pytest.fixture
    def sampler(self):
        return ours


class TestRelative(shipped.RelativeSamplerTestCase):
    @pytest.fixture
    def sampler(self):
        return ours


class TestOneObjective(shipped.SingleOnlySamplerTestCase):
    @pytest.fixture
    def sampler(self):
        return ours
