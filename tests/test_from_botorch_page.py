"""What the page for users of BoTorch says is so."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from botorch.acquisition.analytic import UpperConfidenceBound as PlainUpperConfidenceBound
from gpytorch.kernels import MaternKernel

from bandits_torch import ArmGP, OnlineGP, UpperConfidenceBound
from tests.reference.arm_gp_twins import smooth

PAGE = (Path(__file__).parents[1] / "docs" / "from_botorch.md").read_text(encoding="utf-8")
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
ARGUMENTS = {"learn_hyperparameters", "fixed_features"}  # of recipes and of optimisers


def arm_gp(kernel=None):
    return ArmGP(5, smooth(5) if kernel is None else kernel, 0.1)


def online_gp(d=2):
    return OnlineGP(MaternKernel(nu=2.5).double(), 1e-3, input_dim=d)


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
    elif name and name not in {*ARGUMENTS, *PLACES, "X", "Y"}:
        modules = [importlib.import_module(place) for place in PLACES]
        anywhere = any(hasattr(thing, name) for thing in [*modules, ArmGP, OnlineGP])
        assert anywhere, span


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
