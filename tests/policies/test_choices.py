"""Choices: arms by index, arms by features and points of a domain answer the same questions, of any model."""

import pytest
import torch
from botorch.acquisition import UpperConfidenceBound as BoTorchUCB

from bandits_torch import ArmGP, Domain, OnlineGP
from bandits_torch.acquisition import StepContext, ThompsonSampling, UpperConfidenceBound
from bandits_torch.kernels import ExponentialForgettingKernel, SpatioTemporalKernel
from bandits_torch.policies import IndexPolicy
from bandits_torch.policies.choices import choices_of, choices_over
from bandits_torch.streams import ReplicateStreams
from bandits_torch.theory import ConstantWidth
from tests.reference.kernels import rbf

ARMS = torch.linspace(0, 1, 7, dtype=torch.float64).unsqueeze(-1)
LINE = Domain(torch.tensor([[0.0], [1.0]], dtype=torch.float64))
S = 2


def kernel():
    return rbf(0.3).requires_grad_(False)


def drifting():
    return SpatioTemporalKernel(kernel(), ExponentialForgettingKernel(0.2))


def three(batch=(S,), made=kernel):
    """The same prior and data, asked by index, by features and by points; and each one's choice of arms 2 and 5."""
    index, places = torch.tensor([2, 5])[: len(batch) + 1 if not batch else S], ARMS[torch.tensor([2, 5])]
    columns = 1 if made is kernel else 2
    chosen = [
        choices_over(ArmGP(ARMS, made(), 0.1, batch_shape=batch)),
        choices_over(OnlineGP(made(), 0.1, input_dim=columns, batch_shape=batch), ARMS),
        choices_over(OnlineGP(made(), 0.1, input_dim=columns, batch_shape=batch), LINE),
    ]
    return list(zip(chosen, (index, index, places[: len(index)]), strict=True))


@pytest.mark.parametrize("made", [kernel, drifting])
@pytest.mark.parametrize("batch", [(), (S,)])
def test_arms_by_index_by_features_and_as_points_learn_and_predict_alike(batch, made):
    found = []
    for choices, arm in three(batch, made):
        reward = torch.tensor([1.0, -0.5], dtype=torch.float64)[: len(arm)]
        choices.observe(arm, reward, 1.0)
        choices.observe(arm.flip(0), reward, 2.0)
        mean, deviation = choices.predict(arm, 3.0)
        assert mean.shape == deviation.shape == (choices.replicates,)
        found.append(torch.stack([mean, deviation]))
        shown = choices.marginals(3.0, ARMS)
        found.append(torch.stack([moment.gather(-1, three(batch)[0][1].unsqueeze(-1)) for moment in shown]))
    for other in (found[2], found[4]):
        torch.testing.assert_close(other, found[0], rtol=0, atol=1e-10)
    for other in (found[3], found[5]):
        torch.testing.assert_close(other, found[1], rtol=0, atol=1e-10)


def test_a_model_s_own_arms_and_listed_ones_have_the_same_best():
    arms, listed = (choices for choices, _ in three()[:2])
    values = []
    for choices in (arms, listed):
        choices.observe(torch.tensor([1, 6]), torch.tensor([1.0, 2.0], dtype=torch.float64), 1.0)
        mask = torch.tensor([True, True, True, True, True, False, False])
        arm, value = choices.best(UpperConfidenceBound(choices.model, 0.1), 2.0, mask)
        assert bool((arm <= 4).all())
        values.append((arm, value))
    assert torch.equal(values[0][0], values[1][0])
    torch.testing.assert_close(values[0][1], values[1][1], rtol=0, atol=1e-10)


@pytest.mark.parametrize("bad", [0, 2.5, True, "three", None, torch.zeros(3)])
def test_what_is_nothing_to_choose_from_is_refused(bad):
    with pytest.raises(ValueError, match="choices"):
        choices_of(bad)


def test_the_step_s_context_draws_nothing_until_it_is_asked():
    choices = choices_over(ArmGP(ARMS, kernel(), 0.1, batch_shape=(S,)))
    streams, other = (ReplicateStreams(3, S, purpose="policy", dtype=torch.float64) for _ in range(2))
    step = choices.step(2.0, torch.ones(S), streams)
    assert step.time == 2.0
    assert step.seeds() is None
    assert step.choices() is None
    assert torch.equal(step.base_samples(), other.normal(len(ARMS)))  # the first draw of all
    with pytest.raises(AttributeError):
        step.time = 3.0


def test_a_plain_botorch_class_or_function_knows_nothing_of_a_step():
    asked = []

    def with_width(model, width):
        asked.append(width)
        return BoTorchUCB(model, beta=float(width) ** 2)

    model = ArmGP(ARMS, kernel(), 0.1)
    plain = IndexPolicy(model, lambda model: BoTorchUCB(model, beta=4.0))
    assert plain.choose(1.0).arm.shape == (1,)
    wide = IndexPolicy(model, with_width, width=ConstantWidth(2.0))
    assert torch.equal(wide.choose(1.0).why["index"], plain.choose(1.0).why["index"])
    assert [float(width) for width in asked] == [2.0]


def test_an_acquisition_that_wants_more_is_told_time_and_width():
    seen = []

    class Spy(ThompsonSampling):
        @classmethod
        def at_step(cls, model, step):
            seen.append(step)
            return super().at_step(model, step)

    IndexPolicy(ArmGP(ARMS, kernel(), 0.1), Spy, width=ConstantWidth(1.5)).choose(4.0)
    assert isinstance(seen[0], StepContext)
    assert (seen[0].time, float(seen[0].width)) == (4.0, 1.5)
