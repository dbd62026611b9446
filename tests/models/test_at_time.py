"""A model over space and time at one moment: what it predicts, what it learns in a copy, what it refuses."""

import pytest
import torch
from botorch.sampling import SobolQMCNormalSampler

from bandits_torch.models import AtTime
from tests.acquisition.test_botorch_acquisitions import drifting
from tests.reference import botorch_twins as twins

F64 = {"dtype": torch.float64}


@pytest.mark.parametrize("arms", [True, False])
@pytest.mark.parametrize("noisy", [True, False])
@pytest.mark.parametrize("q", [1, 3])
def test_it_is_the_model_with_a_column_of_that_time(arms, noisy, q):
    model = drifting(arms)
    X = torch.arange(q, **F64).reshape(q, 1).expand(4, q, 1) if arms else torch.rand(4, q, 2, **F64)
    ours = AtTime(model, 9.5).posterior(X, observation_noise=noisy)
    with_time = torch.cat([X, torch.full((4, q, 1), 9.5, **F64)], -1)
    theirs = model.posterior(with_time, observation_noise=noisy)
    assert torch.equal(ours.mean, theirs.mean)
    assert torch.equal(ours.variance, theirs.variance)
    assert torch.equal(AtTime(model, 9.5)(X).mean, ours.mean.squeeze(-1))


def test_it_follows_what_the_model_learns_and_lists_inputs_without_their_times():
    model = drifting()
    view = AtTime(model, 9.0)
    before = view.posterior(torch.zeros(1, 1, **F64)).mean
    model.observe(torch.tensor([[0.0, 8.0]], **F64), torch.tensor([[5.0]], **F64))
    assert view.posterior(torch.zeros(1, 1, **F64)).mean > before + 1
    assert view.train_inputs[0].tolist() == [[0.0], [3.0], [0.0]]
    assert view.condition_on_observations(torch.zeros(1, 1, **F64), torch.ones(1, 1, **F64)).time == 9.0
    assert view.train_targets.tolist() == [3.0, 0.1, 5.0]
    assert view.num_outputs == 1
    assert view.batch_shape == ()


@pytest.mark.parametrize("label", ["ArmGP at a time", "OnlineGP at a time"])
def test_fantasies_are_observed_at_that_time(label):
    case = twins.MODELS[label]()
    sampler = SobolQMCNormalSampler(torch.Size([3]), seed=0)
    with torch.no_grad():
        case.twin.posterior(case.choices[:1])  # GPyTorch conditions a model that has predicted
        moments = [
            m.fantasize(case.choices[1:3], sampler).posterior(case.choices[4:7])
            for m in (case.model, case.twin)
        ]
    torch.testing.assert_close(moments[0].mean, moments[1].mean, rtol=0, atol=1e-6)
    torch.testing.assert_close(moments[0].variance, moments[1].variance, rtol=0, atol=1e-6)
