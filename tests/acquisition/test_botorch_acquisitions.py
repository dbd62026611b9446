"""BoTorch's acquisition functions on our models: the table of the documentation, and what it leaves open."""

import inspect

import botorch.acquisition
import pytest
import torch
from botorch.acquisition import (
    AcquisitionFunction,
    multi_objective,
    qLowerBoundMaxValueEntropy,
    qMaxValueEntropy,
)
from botorch.optim import optimize_acqf_discrete
from botorch.posteriors import GPyTorchPosterior
from gpytorch.distributions import MultivariateNormal

from bandits_torch.kernels import ArmCovarianceKernel, SpatioTemporalKernel
from bandits_torch.models import ArmGP, AtTime, OnlineGP
from bandits_torch.models.online_model import MarginalPosterior
from tests.reference import acquisition_table as table
from tests.reference import botorch_twins as twins
from tests.reference.arm_gp_twins import smooth

F64 = {"dtype": torch.float64}


ADVICE = "run python -m tests.reference.acquisition_table"
# A run tries each acquisition on one model over arms, the quickest, and on one over points.
FIRST = {"WeightedGP": (), "OnlineGP": ()}


@pytest.mark.parametrize(
    "label", [pytest.param(label, marks=FIRST.get(label, pytest.mark.slow)) for label in twins.MODELS]
)
def test_the_table_of_the_documentation_is_what_is_found_today(label):
    names, written = list(table.found()), table.written()[label]
    assert {name: written[name] for name in names} == table.column(label, names), ADVICE


def test_the_page_of_the_table_has_every_model_and_acquisition():
    written = table.written()
    assert list(written) == list(twins.MODELS)
    assert table.PAGE.read_text(encoding="utf-8") == table.page(written), ADVICE


def test_nothing_that_botorch_exports_is_left_out():
    exported = {
        name
        for module in (botorch.acquisition, multi_objective)
        for name in module.__all__
        if inspect.isclass(thing := getattr(module, name)) and issubclass(thing, AcquisitionFunction)
        if not inspect.isabstract(thing)
    }
    assert len(exported) > 35
    assert exported <= set(table.found())


def widened(posterior):
    """A posterior whose variance is 2 % larger."""

    def wider(*args, **options):
        found = posterior(*args, **options)
        if isinstance(found, MarginalPosterior):
            return MarginalPosterior(found.mean.squeeze(-1), 1.02 * found.variance.squeeze(-1))
        mvn = found.distribution
        return GPyTorchPosterior(MultivariateNormal(mvn.mean, 1.02 * mvn.lazy_covariance_matrix))

    return wider


@pytest.mark.parametrize("label", ["ArmGP, factor", pytest.param("OnlineGP", marks=pytest.mark.slow)])
def test_the_table_sees_a_model_whose_variance_is_wrong_by_2_percent(label):
    fooled = set()
    for name, cls in table.found().items():
        case = twins.MODELS[label]()
        case.model.posterior = widened(case.model.posterior)
        if table.attempt(name, cls, case) == table.YES:
            fooled.add(name)
    # these ask for the mean alone, or draw without asking for a posterior
    assert fooled == {"PosteriorMean", "ScalarizedPosteriorMean", "PathwiseThompsonSampling"}


@pytest.mark.parametrize("label", [label for label in twins.MODELS if "OnlineGP" not in label])
@pytest.mark.parametrize("entropy", [qMaxValueEntropy, qLowerBoundMaxValueEntropy])
def test_three_arms_by_entropy_are_those_chosen_on_a_botorch_model(entropy, label):
    case = twins.MODELS[label]()
    chosen = []
    for model in (case.model, case.twin):
        torch.manual_seed(3)
        acquisition = entropy(model, case.choices, train_inputs=case.observed)
        chosen.append(optimize_acqf_discrete(acquisition, q=3, choices=case.choices))
    torch.testing.assert_close(chosen[0][0], chosen[1][0])
    torch.testing.assert_close(chosen[0][1], chosen[1][1], rtol=0, atol=1e-5)
    assert len(chosen[0][0].unique()) == 3


def drifting(arms=True):
    time = twins.time_kernel()
    if arms:
        model = ArmGP(6, SpatioTemporalKernel(ArmCovarianceKernel(smooth(6, 0.3)), time), 0.05)
        model.observe(torch.tensor([[0.0, 0.0], [3.0, 4.0]], **F64), torch.tensor([[3.0], [0.1]], **F64))
        return model
    X, Y, space = twins.points()
    model = OnlineGP(SpatioTemporalKernel(space, time), 0.05, input_dim=3)
    model.observe(torch.cat([X, torch.arange(5, **F64).unsqueeze(-1)], -1), Y)
    return model


def test_the_largest_value_of_a_drifting_function_is_that_of_its_present():
    """A reward of 3 long ago is no candidate for the maximum now; BoTorch would count it, ArmGP refuses."""
    model = drifting()
    late = 60.0
    with pytest.raises(ValueError, match="at or after the latest observation"):
        qMaxValueEntropy(model, model.candidates(late).squeeze(-2))
    arms = torch.arange(6, **F64).unsqueeze(-1)
    entropy = qMaxValueEntropy(AtTime(model, late), arms, num_mv_samples=200)
    mean, variance = model.marginals(late)
    assert entropy.posterior_max_values.max() < mean.max() + 5 * variance.max().sqrt()
    given = qMaxValueEntropy(
        model, model.candidates(late).squeeze(-2), num_mv_samples=200, train_inputs=torch.zeros(0, 2, **F64)
    )
    assert given.posterior_max_values.max() < mean.max() + 5 * variance.max().sqrt()
