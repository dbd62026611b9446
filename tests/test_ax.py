"""Our time kernel and acquisition in Ax's modular BoTorch generator, built by name, with time a fixed parameter."""

import math

import pytest

pytest.importorskip("ax", reason='Ax is not installed: pip install ".[ax]"')

from ax.adapter.registry import Generators
from ax.api.client import Client
from ax.api.configs import RangeParameterConfig
from ax.generation_strategy.generation_strategy import GenerationStep, GenerationStrategy
from ax.generators.torch.botorch_modular.surrogate import SurrogateSpec
from ax.generators.torch.botorch_modular.utils import ModelConfig
from botorch.models import SingleTaskGP
from gpytorch.kernels import MaternKernel

from bandits_torch.acquisition import UpperConfidenceBound
from bandits_torch.kernels import ExponentialForgettingKernel, SpatioTemporalKernel
from bandits_torch.models.hyperparameters import learnable

pytestmark = pytest.mark.filterwarnings("ignore")  # Ax's and its dependencies' own


def test_an_ax_client_follows_a_moving_optimum_with_our_time_kernel_and_acquisition(monkeypatch):
    widths, build = [], UpperConfidenceBound.__init__

    def spy(self, model, width, *args, **kwargs):
        widths.append(width)
        build(self, model, width, *args, **kwargs)

    monkeypatch.setattr(UpperConfidenceBound, "__init__", spy)
    space = MaternKernel(nu=2.5).double()
    space.lengthscale = 0.3
    kernel = SpatioTemporalKernel(space, ExponentialForgettingKernel(0.9))
    kernel = learnable(kernel, 1)  # with priors, since Ax fits it
    spec = SurrogateSpec(
        model_configs=[
            ModelConfig(
                botorch_model_class=SingleTaskGP,
                covar_module_class=SpatioTemporalKernel,
                covar_module_options={"space_kernel": kernel.space_kernel, "time_kernel": kernel.time_kernel},
            )
        ]
    )
    strategy = GenerationStrategy(
        nodes=[
            GenerationStep(generator=Generators.SOBOL, num_trials=4, generator_kwargs={"seed": 0}),
            GenerationStep(
                generator=Generators.BOTORCH_MODULAR,
                num_trials=-1,
                generator_kwargs={
                    "surrogate_spec": spec,
                    "botorch_acqf_class": UpperConfidenceBound,
                    "botorch_acqf_options": {"width": 2.0},
                },
            ),
        ]
    )
    client = Client(random_seed=0)
    client.configure_experiment(
        parameters=[
            RangeParameterConfig(name="x", parameter_type="float", bounds=(0.0, 1.0)),
            RangeParameterConfig(name="t", parameter_type="float", bounds=(0.0, 1.0)),
        ]
    )
    client.configure_optimization(objective="reward")
    client.set_generation_strategy(strategy)
    values = []
    for step in range(16):
        now = step / 20
        ((index, parameters),) = client.get_next_trials(1, fixed_parameters={"t": now}).items()
        assert parameters["t"] == pytest.approx(now)
        top = 0.2 + 0.8 * now
        values.append(math.exp(-20 * (parameters["x"] - top) ** 2))
        client.complete_trial(index, raw_data={"reward": values[-1]})
    model = client._generation_strategy.adapter.generator.surrogate.model
    assert isinstance(model.covar_module, SpatioTemporalKernel)
    assert isinstance(model.covar_module.time_kernel, ExponentialForgettingKernel)
    assert widths == [2.0] * 12
    anywhere = math.sqrt(math.pi / 20)  # about what a point at random is worth
    assert sum(values[-6:]) / 6 > 1.5 * anywhere
