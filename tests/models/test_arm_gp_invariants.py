"""What must hold of ArmGP whatever is done to it, in any order."""

import hypothesis.strategies as st
import pytest
import torch
from gpytorch.kernels import RBFKernel
from hypothesis import given, settings

from bandits_torch.kernels import ArmCovarianceKernel, ExponentialForgettingKernel, SpatioTemporalKernel
from bandits_torch.models.arms.arm_gp import ArmGP
from tests.reference.arm_gp_twins import isolated, smooth

N, S = 7, 2
COVARIANCES = torch.stack([smooth(N, 0.3), isolated(N, 1.5)])
NOISE = torch.tensor([1e-3, 0.5], dtype=torch.float64)
few = settings(max_examples=60, deadline=None, derandomize=True)

arms = st.tuples(*[st.integers(0, N - 1)] * S)
rewards = st.tuples(*[st.floats(-3, 3)] * S)
some_masks = st.tuples(*[st.booleans()] * S)
masks = st.none() | some_masks
gaps = st.sampled_from([0.0, 0.5, 1.0, 30.0])
observations = st.lists(st.tuples(arms, rewards), min_size=1, max_size=12)
moves = st.lists(
    st.tuples(st.just("observe"), arms, rewards, masks, gaps)
    | st.tuples(st.just("forget"), some_masks)
    | st.tuples(st.just("reset"), masks),
    max_size=25,
)


def static(form):
    return ArmGP(N, COVARIANCES, NOISE, form=form, prior_mean=torch.arange(N) / 5)


def drifting(form):
    time = ExponentialForgettingKernel(torch.tensor([0.05, 0.6]).double(), batch_shape=(S,))
    return ArmGP(N, SpatioTemporalKernel(ArmCovarianceKernel(COVARIANCES), time), NOISE, form=form)


def tensor(mask):
    return None if mask is None else torch.tensor(mask)


def observe(model, arm, reward, mask=None, time=0.0):
    model.observe_arms(torch.tensor(arm), torch.tensor(reward).double(), time, tensor(mask))


def live(model, sequence):
    """Do to a model what the sequence says; returns the time it is then."""
    now = 0.0
    for name, *what in sequence:
        if name == "observe":
            arm, reward, mask, gap = what
            now += gap
            observe(model, arm, reward, mask, now)
        elif name == "forget":
            model.forget(1, tensor(what[0]))
        else:
            model.reset(tensor(what[0]))
    return now


def assert_same(one, other, time=0.0):
    for a, b in zip(one.joint(time), other.joint(time), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(one.information_gain, other.information_gain, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(one.log_likelihood, other.log_likelihood, rtol=1e-8, atol=1e-8)
    assert torch.equal(one.num_observations, other.num_observations)


@few
@given(moves)
def test_both_forms_agree_whatever_is_observed_forgotten_and_reset(sequence):
    one, other = static("covariance"), static("factor")
    for model in (one, other):
        live(model, sequence)
    assert_same(one, other)


@few
@given(moves)
def test_both_forms_agree_under_drift_too(sequence):
    """ "auto" is the covariance form until it must forget."""
    one, other = drifting("auto"), drifting("factor")
    now = live(one, sequence)
    live(other, sequence)
    assert one.now == other.now
    assert_same(one, other, now)
    assert_same(one, other, now + 2.5)


@few
@given(observations, st.randoms(use_true_random=False))
@pytest.mark.parametrize("form", ["covariance", "factor"])
def test_order_of_observations_does_not_matter(form, data, random):
    one, other = static(form), static(form)
    shuffled = random.sample(data, len(data))
    for model, order in ((one, data), (other, shuffled)):
        for arm, reward in order:
            observe(model, arm, reward)
    assert_same(one, other)


@few
@given(observations, observations)
@pytest.mark.parametrize("form", ["covariance", "factor"])
def test_observing_then_forgetting_is_the_identity(form, first, second):
    model, expected, prior = static(form), static(form), static(form)
    for arm, reward in first + second:
        observe(model, arm, reward)
    for arm, reward in second:
        observe(expected, arm, reward)
    model.forget(len(first))
    assert_same(model, expected)
    model.forget(len(second))
    assert_same(model, prior)


@few
@given(observations)
@pytest.mark.parametrize("form", ["covariance", "factor"])
def test_variance_never_grows_and_information_never_shrinks_when_observing(form, data):
    model = static(form)
    for arm, reward in data:
        variance, gain = model.marginals()[1].clone(), model.information_gain.clone()
        observe(model, arm, reward)
        assert (model.marginals()[1] <= variance + 1e-12).all()
        assert (model.information_gain >= gain).all()


@pytest.mark.every(2)
@few
@given(moves, some_masks, arms, rewards)
@pytest.mark.parametrize(
    "build", [lambda: static("covariance"), lambda: static("factor"), lambda: drifting("auto")]
)
def test_members_left_out_stay_exactly_as_they_were(build, sequence, mask, arm, reward):
    model = build()
    now = live(model, sequence)
    mean, variance = (value.clone() for value in model.marginals(now))
    gain, held = model.information_gain.clone(), model.num_observations.clone()
    observe(model, arm, reward, mask, now)
    out = ~torch.tensor(mask)
    assert torch.equal(model.marginals(now)[0][out], mean[out])
    assert torch.equal(model.marginals(now)[1][out], variance[out])
    assert torch.equal(model.information_gain[out], gain[out])
    assert torch.equal(model.num_observations[out], held[out])
    assert (model.num_observations - held)[~out].eq(1).all()


@few
@given(moves)
@pytest.mark.parametrize("form", ["covariance", "factor"])
def test_a_batch_is_its_members_run_alone(form, sequence):
    batch = static(form)
    live(batch, sequence)
    for k in range(S):
        alone = ArmGP(N, COVARIANCES[k], NOISE[k], form=form, prior_mean=torch.arange(N) / 5)
        for name, *what in sequence:
            mask = what[0] if name != "observe" else what[2]
            if mask is not None and not mask[k]:
                continue
            if name == "observe":
                alone.observe_arms(torch.tensor(what[0][k]), torch.tensor(what[1][k]).double())
            elif name == "reset":
                alone.reset()
            elif alone.num_observations > 0:
                alone.forget(1)
        torch.testing.assert_close(batch.marginals()[0][k], alone.marginals()[0], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(batch.marginals()[1][k], alone.marginals()[1], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("form", ["covariance", "factor"])
def test_observing_a_block_is_observing_one_by_one(form):
    one, other = static(form), static(form)
    X, Y = torch.randint(N, (S, 9, 1)), torch.randn(S, 9, 1).double()
    one.observe(X.double(), Y)
    for k in range(9):
        other.observe_arms(X[:, k, 0], Y[:, k, 0])
    assert_same(one, other)
    assert torch.equal(one.train_inputs[0], X.double())
    assert torch.equal(one.train_targets, Y.squeeze(-1))


def test_a_block_of_observations_at_several_times_is_observed_in_their_order():
    one, other = drifting("auto"), drifting("factor")
    arm, time = torch.randint(N, (S, 5)), torch.tensor([0.0, 0.0, 1.5, 2.0, 9.0]).double()
    Y = torch.randn(S, 5, 1).double()
    one.observe(torch.stack([arm.double(), time.expand(S, 5)], -1), Y)
    for k in range(5):
        other.observe_arms(arm[:, k], Y[:, k, 0], float(time[k]))
    assert one.now == other.now == 9.0
    assert_same(one, other, 9.0)


@pytest.mark.parametrize("build", [static, drifting])
@pytest.mark.parametrize("form", ["covariance", "factor"])
def test_observing_nothing_changes_nothing(form, build):
    model = build(form)
    model.observe(torch.zeros(S, 0, 2 if model.drifts else 1).double(), torch.zeros(S, 0, 1).double())
    assert model.num_observations.eq(0).all()
    assert_same(model, build(form), 1.0)


@pytest.mark.parametrize("form", ["covariance", "factor", "auto"])
def test_rebuild_reads_the_kernel_again(form):
    space, time = ArmCovarianceKernel(COVARIANCES), ExponentialForgettingKernel(torch.tensor(0.5).double())
    model = ArmGP(N, SpatioTemporalKernel(space, time), NOISE, form=form)
    expected = ArmGP(
        N,
        SpatioTemporalKernel(space, ExponentialForgettingKernel(torch.tensor(0.1, dtype=torch.float64))),
        NOISE,
    )
    for step in range(1, 9):
        for m in (model, expected):
            observe(m, (step % N, 1), (1.0, -1.0), (True, step % 3 > 0), float(step))
    model.prior.kernel.time_kernel.forgetting_rate = 0.1  # the model's own copy
    model.rebuild()
    assert_same(model, expected, 8.0)
    assert_same(model, expected, 11.0)


def test_numbers_of_arms_and_noise_may_be_anything_that_broadcasts():
    features = torch.rand(3, N, 2).double()  # arms of their own in each of 3 replicates
    kernel = RBFKernel().double()
    model = ArmGP(features, kernel, torch.tensor([[0.1], [0.2]]), prior_mean=torch.ones(1, 3, N))
    assert model.batch_shape == (2, 3)
    model.observe_arms(torch.randint(N, (2, 3)), torch.randn(2, 3).double())
    for i in range(2):
        for j in range(3):
            alone = ArmGP(features[j], kernel, 0.1 * (i + 1), prior_mean=1.0)
            alone.observe(model.train_inputs[0][i, j], model.train_targets[i, j].unsqueeze(-1))
            torch.testing.assert_close(model.marginals()[0][i, j], alone.marginals()[0])
            torch.testing.assert_close(model.marginals()[1][i, j], alone.marginals()[1])
