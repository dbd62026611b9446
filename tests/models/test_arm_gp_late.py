"""Observations that arrive late, and arms that arrive late: as if they had been there in time."""

import pytest
import torch

from bandits_torch.kernels import ExponentialForgettingKernel, SpatioTemporalKernel, WienerKernel
from bandits_torch.models.arms.arm_gp import ArmGP
from tests.reference.dense_arm_gp import DenseArmGP, forgetting, wiener
from tests.reference.kernels import rbf

N, NOISE = 7, 0.1
ARMS = torch.linspace(0, 1, N).double().unsqueeze(-1)
MORE = torch.tensor([[0.05], [1.3]], dtype=torch.float64)
SPACE = rbf(0.3)
KERNELS = {
    "static": (SPACE, None),
    "fading": (SpatioTemporalKernel(SPACE, ExponentialForgettingKernel(0.1)), forgetting(0.1)),
    "wandering": (SpatioTemporalKernel(SPACE, WienerKernel(0.2)), wiener(0.2)),
}
# arm, reward, time, in the order of arrival: late ones, one older than all, two of one time, the same again
ARRIVALS = [
    (0, 0.3, 2.0),
    (3, -1.0, 4.0),
    (3, 0.5, 1.0),
    (6, 0.2, 4.0),
    (1, 1.1, 3.0),
    (1, 1.1, 3.0),
    (5, 0.0, 9.5),
    (2, -0.7, 4.0),
]


def told(model, arrivals):
    for arm, reward, time in arrivals:
        model.observe_arms(torch.tensor(arm), torch.tensor(reward, dtype=torch.float64), time, late=True)
    return model


def twin(kind, arrivals, arms=ARMS, mean=0.0):
    dense = DenseArmGP(SPACE(arms).to_dense().detach(), NOISE, mean, KERNELS[kind][1])
    for arrival in arrivals:
        dense.observe(*arrival)
    return dense


def assert_agree(model, dense, time):
    answers = dense.answers(time)
    mean, covariance = model.joint(time if model.drifts else None)
    torch.testing.assert_close(mean, answers.mean, rtol=0, atol=1e-10)
    torch.testing.assert_close(covariance, answers.covariance, rtol=0, atol=1e-10)
    assert float(model.information_gain) == pytest.approx(answers.information_gain, abs=1e-10)
    assert float(model.log_likelihood) == pytest.approx(answers.log_likelihood, abs=1e-9)


# -- more arms -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["auto", "factor"])
@pytest.mark.parametrize("kind", KERNELS)
def test_new_arms_are_as_if_they_had_always_been_there(kind, form):
    model = told(ArmGP(ARMS, KERNELS[kind][0], NOISE, prior_mean=0.4, form=form), ARRIVALS)
    wider = model.with_arms(MORE)
    everything = torch.cat([ARMS, MORE])
    assert torch.equal(wider.arms, everything)
    dense = twin(kind, ARRIVALS, everything, mean=0.4)
    assert_agree(wider, dense, 9.5)
    told(wider, [(8, 2.0, 11.0), (2, 0.1, 12.0)])
    for arrival in ((8, 2.0, 11.0), (2, 0.1, 12.0)):
        dense.observe(*arrival)
    assert_agree(wider, dense, 13.0)
    assert_agree(model, twin(kind, ARRIVALS, mean=0.4), 9.5)  # which stays what it was


def test_new_arms_have_prior_means_of_their_own():
    means = torch.arange(N).double()
    model = ArmGP(ARMS, SPACE, NOISE, prior_mean=means, batch_shape=(2,))
    wider = model.with_arms(MORE, torch.tensor([7.0, 8.0]))
    assert wider.marginals()[0].tolist() == [list(range(N + 2))] * 2
    with pytest.raises(
        ValueError, match="prior_mean must be given, because the present arms have different means"
    ):
        model.with_arms(MORE)


def test_new_arms_join_the_arms_of_every_member():
    own = torch.stack([ARMS, 2 * ARMS])
    wider = told(ArmGP(own, SPACE, NOISE), ARRIVALS).with_arms(MORE)
    for k in range(2):
        everything = torch.cat([own[k], MORE])
        assert torch.equal(wider.arms[k], everything)
        answers = twin("static", ARRIVALS, everything).answers(0.0)
        torch.testing.assert_close(wider.joint()[0][k], answers.mean)
        torch.testing.assert_close(wider.joint()[1][k], answers.covariance)


def test_arms_of_several_features_are_joined_by_others():
    own, more = torch.rand(5, 2).double(), torch.rand(3, 2).double()
    assert torch.equal(ArmGP(own, SPACE, NOISE).with_arms(more).arms, torch.cat([own, more]))


def test_a_lone_arm_is_joined_by_others():
    wider = told(ArmGP(ARMS[:1], SPACE, NOISE, prior_mean=0.4), ARRIVALS[:1]).with_arms(MORE)
    assert_agree(wider, twin("static", ARRIVALS[:1], torch.cat([ARMS[:1], MORE]), mean=0.4), 0.0)


def test_a_model_that_had_to_change_form_to_forget_forgets_on():
    model = told(ArmGP(ARMS, KERNELS["fading"][0], NOISE), [(1, 0.5, 1.0), (2, 0.7, 2.0), (1, 0.1, 3.0)])
    model.forget(1)
    wider = model.with_arms(MORE)
    wider.forget(1)
    assert_agree(wider, twin("fading", [(1, 0.1, 3.0)], torch.cat([ARMS, MORE])), 3.0)
    wider.forget(1)
    assert wider.with_arms(MORE + 1).now == 3.0  # which it still knows to be over
