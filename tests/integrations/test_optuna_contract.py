"""The tests that Optuna ships for samplers, on ours."""

import pytest

pytest.importorskip("optuna", reason='Optuna is not installed: pip install ".[optuna]"')
pytest.importorskip("optuna.testing.pytest_samplers", reason="this Optuna ships no tests of samplers")

from optuna.testing import pytest_samplers as shipped

from bandits_torch.integrations.optuna import BanditSampler

pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")


class Ours:
    @pytest.fixture
    def sampler(self):
        return lambda: BanditSampler(seed=0)


class TestBasic(Ours, shipped.BasicSamplerTestCase):
    pass


class TestRelative(Ours, shipped.RelativeSamplerTestCase):
    pass


class TestOneObjective(Ours, shipped.SingleOnlySamplerTestCase):
    pass
