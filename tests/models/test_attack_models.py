"""Random lives of every model beside twins in extended precision (``--full``: ten times as many)."""

import math

import pytest
import torch

from bandits_torch.kernels import ArmCovarianceKernel, SpatioTemporalKernel, WienerKernel
from bandits_torch.models import ArmGP, OnlineGP, SketchedGP
from bandits_torch.models.arms import covariance_form, factor_form
from bandits_torch.models.arms.factor_form import FactorForm
from bandits_torch.models.arms.prior import ArmPrior
from bandits_torch.models.arms.weighted_gp import WeightedGP
from bandits_torch.models.cholesky import independent
from bandits_torch.models.points import growing_cholesky
from bandits_torch.state import differing
from tests.fuzz.living import state_of
from tests.reference import precise
from tests.reference.arm_gp_twins import smooth
from tests.reference.attack_models import MODELS, attack

F64 = torch.float64


@pytest.fixture
def in_small(request, monkeypatch):
    """Where a name says so, rows wait and are folded by fours, points fill little room, and few rows are padded."""
    name = request.node.callspec.params["name"]
    if name == "rows wait":
        monkeypatch.setattr(covariance_form, "WAITS_FROM", 0)
        monkeypatch.setattr(covariance_form, "FOLD", 4)
        return "covariance"
    if name == "little room":
        pack = FactorForm._pack
        monkeypatch.setattr(factor_form, "ROOM", 2)
        monkeypatch.setattr(FactorForm, "_pack", lambda form, now: pack(form, now, 2))
        return "factor"
    if name == "OnlineGP padded":
        monkeypatch.setattr(growing_cholesky, "FROM", 2)
        monkeypatch.setattr(growing_cholesky, "_STEP", 4)
        return "OnlineGP"
    return name


@pytest.mark.skipif(not precise.IS_PRECISE, reason="this machine has no extended precision")
@pytest.mark.parametrize("name", [*MODELS, "rows wait", "little room", "OnlineGP padded"])
def test_nothing_is_found_in_a_few_lives(name, full, in_small):
    checks, wrong = attack(in_small, 60 if full else 10)
    assert checks > 500
    assert not wrong


# By their noise variance.
RATIOS = {
    "covariance": lambda noise: ArmGP(3, smooth(3), noise, form="covariance"),
    "factor": lambda noise: ArmGP(3, smooth(3), noise, form="factor"),
    "SketchedGP": lambda noise: SketchedGP(3, smooth(3), noise),
    "WeightedGP": lambda noise: WeightedGP(3, smooth(3), noise),
    "OnlineGP": lambda noise: OnlineGP(ArmCovarianceKernel(smooth(3)), noise, input_dim=1),
    "OnlineGP in another unit": lambda noise: OnlineGP(
        ArmCovarianceKernel(2.0**40 * smooth(3)), 2.0**40 * noise, input_dim=1
    ),
}


@pytest.mark.parametrize("name", RATIOS)
def test_a_ratio_of_which_float64_leaves_nothing_is_refused_by_name(name):
    RATIOS[name](1.01e-10)
    with pytest.raises(
        ValueError, match=r"noise_variance must be at least 1e-10 of .*prior variance.*1.0e-12"
    ):
        RATIOS[name](1e-12)


def test_members_may_have_units_so_different_that_no_noise_fits_all_priors():
    units = torch.tensor([2.0**40, 1.0], dtype=F64)
    priors = units[:, None, None] * smooth(3)
    model = ArmGP(3, priors, 0.01 * units)
    model.adopt(0.02 * units, torch.zeros(2, dtype=F64))
    OnlineGP(ArmCovarianceKernel(priors), 0.01 * units, input_dim=1, batch_shape=(2,))
    with pytest.raises(ValueError, match="noise_variance must be at least 1e-10"):
        ArmGP(3, priors, 0.01)


@pytest.mark.parametrize("learn", ["observe_arms", "take"])
def test_a_start_too_far_away_for_the_factor_form_is_refused_before_anything_changes(learn):
    kernel = SpatioTemporalKernel(ArmCovarianceKernel(smooth(3)), WienerKernel(1.0))
    model, right = (ArmGP(3, kernel, 1e-6, form=form) for form in ("factor", "covariance"))
    one = torch.ones((), dtype=F64)
    right.observe_arms(torch.tensor(0), one, 1e12)
    with pytest.raises(ValueError, match=r"time must be a time at which noise_variance.*1e-08.*start"):
        getattr(model, learn)(torch.tensor(0), one, 1e12)
    assert model.now is None
    assert int(model.num_observations) == 0


@pytest.mark.parametrize("priors", [1, 2, 3, 4])
@pytest.mark.parametrize("num_arms", [1, 2, 3, 4])
def test_prior_variances_are_read_whole_when_there_are_as_many_priors_as_arms(priors, num_arms):
    variances = torch.rand(priors, num_arms, dtype=F64) + 0.5
    prior = ArmPrior(
        torch.arange(num_arms).double()[:, None], ArmCovarianceKernel(torch.diag_embed(variances))
    )
    assert torch.equal(prior.diagonal(), variances)


def test_rows_within_the_span_of_others_are_left_out_and_no_others():
    x = torch.tensor([0.0, 1.0, 1.0, 2.0, 1.0 + 1e-9, 3.0], dtype=F64)
    K = torch.exp(-0.5 * (x[:, None] - x) ** 2)
    kept, factor = independent(K, 1e-12)
    assert kept == [0, 1, 3, 5]
    torch.testing.assert_close(factor @ factor.mT, K[kept][:, kept], rtol=0, atol=1e-15)
    torch.testing.assert_close(factor, torch.linalg.cholesky(K[kept][:, kept]))


@pytest.mark.parametrize("form", ["covariance", "factor", "OnlineGP"])
@pytest.mark.parametrize(
    ("noise", "mean", "name"),
    [
        (1e-12, 0.0, "noise_variance"),
        (math.nan, 0.0, "noise_variance"),
        (-1.0, 0.0, "noise_variance"),
        (math.inf, 0.0, "noise_variance"),
        (0.1, math.inf, "prior_mean"),
    ],
)
def test_what_the_constructor_refuses_is_not_adopted(form, noise, mean, name):
    model = RATIOS[form](0.1)
    model.observe(torch.tensor([[1.0]], dtype=F64), torch.tensor([[0.3]], dtype=F64))
    before = state_of(model)
    with pytest.raises(ValueError, match=name):
        model.adopt(torch.tensor(noise, dtype=F64), torch.tensor(mean, dtype=F64))
    assert not differing(before, state_of(model))
