"""What the page for users of BoTorch says is so."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from botorch.acquisition import qUpperConfidenceBound as PlainQUpperConfidenceBound
from botorch.acquisition.analytic import UpperConfidenceBound as PlainUpperConfidenceBound
from botorch.sampling import SobolQMCNormalSampler
from gpytorch.kernels import MaternKernel, RBFKernel

from bandits_torch import ArmGP, IndexPolicy, OnlineGP, recipes
from bandits_torch.acquisition import UpperConfidenceBound, qUpperConfidenceBound
from bandits_torch.kernels import ArmCovarianceKernel, ExponentialForgettingKernel, SpatioTemporalKernel
from bandits_torch.models import AtTime, fit_hyperparameters, learnable
from tests.reference.arm_gp_twins import smooth

PAGE = (Path(__file__).parents[1] / "docs" / "from_botorch.md").read_text(encoding="utf-8")
F64 = {"dtype": torch.float64}
PLACES = [
    "bandits_torch",
    "bandits_torch.models",
    "bandits_torch.acquisition",
    "botorch.models",
    "botorch.acquisition",
    "botorch.acquisition.thompson_sampling",
    "botorch.fit",
    "botorch.cross_validation",
    "botorch.generation",
    "botorch.optim",
    "botorch.optim.optimize",
]
ARGUMENTS = {"learn_hyperparameters", "fixed_features"}  # of recipes and of optimisers: tested below


def arm_gp(kernel=None):
    return ArmGP(5, smooth(5) if kernel is None else kernel, 0.1)


def online_gp(d=2):
    return OnlineGP(MaternKernel(nu=2.5).double(), 1e-3, input_dim=d)


def drifting():
    time = ExponentialForgettingKernel(0.1)
    return arm_gp(SpatioTemporalKernel(ArmCovarianceKernel(smooth(5)), time))


def spans():
    text = re.sub(r"^```.*?^```", "", PAGE, flags=re.S | re.M)
    return sorted(set(re.findall(r"`([^`]+)`", text)))


@pytest.mark.parametrize("span", spans())
def test_every_name_on_the_page_is_there(span):
    name = re.match(r"[A-Za-z_.]*", span)[0].strip(".")
    if name.startswith("model."):
        owners = (arm_gp(), online_gp())
        found = []
        for owner in owners:
            for part in name.split(".")[1:]:
                owner = getattr(owner, part, None)
            found.append(owner is not None)
        assert any(found), span
    elif name and name not in ARGUMENTS | {"X", "Y"}:
        modules = [importlib.import_module(place) for place in PLACES]
        anywhere = any(hasattr(thing, name) for thing in [*modules, ArmGP, OnlineGP])
        assert anywhere, span


def test_the_kernels_to_change_before_a_rebuild_are_where_the_page_says():
    X, Y = torch.rand(4, 2, **F64), torch.rand(4, 1, **F64)
    points = online_gp()
    points.observe(X, Y)
    points.kernel.lengthscale = 0.2
    points.rebuild()
    afresh = OnlineGP(points.kernel, 1e-3, input_dim=2)
    afresh.observe(X, Y)
    torch.testing.assert_close(points.posterior(X).mean, afresh.posterior(X).mean)
    arms = ArmGP(X, RBFKernel().double(), 0.1)
    arms.observe(torch.arange(4.0, **F64).unsqueeze(-1), Y)
    before = arms.marginals()[0].clone()
    assert not hasattr(arms, "kernel")
    arms.prior.kernel.lengthscale = 0.2
    arms.rebuild()
    same = ArmGP(X, arms.prior.kernel, 0.1)
    same.observe(torch.arange(4.0, **F64).unsqueeze(-1), Y)
    torch.testing.assert_close(arms.marginals()[0], same.marginals()[0])
    assert not torch.allclose(arms.marginals()[0], before)


def test_conditioning_returns_a_copy_and_observing_changes_the_model():
    for model, X in ((arm_gp(), torch.ones(1, 1, **F64)), (online_gp(), torch.rand(1, 2, **F64))):
        copy = model.condition_on_observations(X, torch.ones(1, 1, **F64))
        fantasy = model.fantasize(X, SobolQMCNormalSampler(torch.Size([2])))
        assert model.num_observations == 0
        assert copy.num_observations == 1
        assert fantasy.num_observations.tolist() == [1, 1]
        model.observe(X, torch.ones(1, 1, **F64))
        assert model.num_observations == 1
        model.forget()
        model.reset()
        assert model.num_observations == 0


def test_width_is_the_root_of_beta():
    model, X = online_gp(), torch.rand(5, 1, 2, **F64)
    model.observe(X[:, 0], X[:, 0, :1])
    X = torch.rand(5, 1, 2, **F64)
    torch.testing.assert_close(
        UpperConfidenceBound(model, 3.0)(X), PlainUpperConfidenceBound(model, beta=9.0)(X)
    )
    sampler = SobolQMCNormalSampler(torch.Size([16]), seed=0)
    torch.testing.assert_close(
        qUpperConfidenceBound(model, 3.0, sampler)(X), PlainQUpperConfidenceBound(model, 9.0, sampler)(X)
    )


def test_the_policy_gives_the_arm_s_index_and_masks_what_is_not_available():
    model = arm_gp()
    model.observe(torch.tensor([[2.0]], **F64), torch.tensor([[5.0]], **F64))
    policy = IndexPolicy(model, lambda m: UpperConfidenceBound(m, 0.0))
    assert policy.choose(1.0).arm.tolist() == [2]
    assert policy.choose(1.0, torch.arange(5) != 2).arm.tolist() != [2]


def test_inputs_of_arms_are_index_and_time():
    assert arm_gp().candidates().squeeze(-2).tolist() == [[0], [1], [2], [3], [4]]
    assert drifting().candidates(7.0).squeeze(-2).tolist() == [[k, 7] for k in range(5)]


def test_an_arm_gp_that_drifts_takes_observations_in_order_of_time_and_an_online_gp_any():
    model = drifting()
    model.observe(torch.tensor([[0.0, 5.0]], **F64), torch.ones(1, 1, **F64))
    early = torch.tensor([[1.0, 4.0]], **F64)
    with pytest.raises(ValueError, match="time must be finite and at or after the latest"):
        model.observe(early, torch.ones(1, 1, **F64))
    with pytest.raises(ValueError, match="time must be finite and at or after the latest"):
        model.posterior(early)
    model.observe_arms(torch.tensor(1), torch.tensor(1.0, **F64), 4.0, late=True)
    assert model.num_observations == 2
    points = online_gp(3)
    for time in (5.0, 4.0):
        points.observe(torch.tensor([[0.5, 0.5, time]], **F64), torch.ones(1, 1, **F64))
    assert points.num_observations == 2
    assert AtTime(model, 6.0).posterior(torch.ones(1, 1, **F64)).mean.shape == (1, 1)


def test_hyperparameters_are_learned_where_asked_for():
    arms = torch.rand(5, 2, **F64)
    policy = recipes.gp_ucb(arms, RBFKernel(), 0.1, learn_hyperparameters=True)
    assert policy.marginals(1.0)[0].shape == (1, 5)
    model = ArmGP(arms, learnable(RBFKernel(), 2, 1), 0.1, batch_shape=(1,))
    model.observe(torch.arange(5.0, **F64).unsqueeze(-1), torch.rand(5, 1, **F64))
    before = model.log_likelihood.clone()
    fit_hyperparameters(model, [0])
    assert (model.log_likelihood != before).all()


def test_botorch_s_analytic_acquisitions_move_the_model_to_the_dtype_of_their_inputs_and_ours_do_not():
    for make, dtype in ((PlainUpperConfidenceBound, torch.float32), (UpperConfidenceBound, torch.float64)):
        model = online_gp()
        assert model.noise_variance.dtype == torch.float64
        make(model, 2.0)(torch.rand(3, 1, 2))
        assert model.noise_variance.dtype == dtype


def test_botorch_changes_the_size_up_to_which_gpytorch_is_exact():
    script = "import gpytorch; size = gpytorch.settings.max_cholesky_size; print(size.value())"
    script += "; import botorch.models; print(size.value())"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    before, after = map(int, run.stdout.split())
    assert before == 800
    assert after > 800
