"""Models that expect pending pulls: variances of a dense posterior with them, the mean and all else without."""

import pytest
import torch
from gpytorch.kernels import MaternKernel

from bandits_torch.checkpoint import described
from bandits_torch.kernels import ExponentialForgettingKernel, SpatioTemporalKernel, WienerKernel
from bandits_torch.models import ArmGP, LeverageSampling, OnlineGP, PointMembers, SketchedGP
from bandits_torch.models.arms.weighted_gp import WeightedGP
from tests.reference.dense_arm_gp import DenseArmGP
from tests.reference.dense_gp import dense_posterior
from tests.reference.plain_points import Process

N = 9
ARMS = torch.linspace(0, 1, N).double().unsqueeze(-1)
SPACE = MaternKernel(2.5).double()
SPACE.lengthscale = 0.4
KERNELS = {
    "static": SPACE,
    "forgetting": SpatioTemporalKernel(SPACE, ExponentialForgettingKernel(0.1)),
    "wiener": SpatioTemporalKernel(SPACE, WienerKernel(0.05, start=-3.0)),
}
LEARNED = [(0.0, 3, 0.4), (1.0, 7, -1.0), (1.5, 3, 0.9), (4.0, 0, 0.3)]
PENDING = [(4.5, 5), (5.0, 5), (6.0, 1)]  # by time; those before 4.0 count as made then over arms that drift


def points(pulls, drifts):
    """Inputs n x 1, or n x 2 with time."""
    X = torch.stack([ARMS[arm] for _, arm, *_ in pulls])
    times = torch.tensor([[time] for time, *_ in pulls]).double()
    return torch.cat([X, times], -1) if drifts else X


def twin(kernel, drifts, noise, now, pending, mean=0.0):
    """Dense mean and variance of all arms now, given what is learned and the posterior mean at what is pending."""
    X, y = points(LEARNED, drifts), torch.tensor([reward for *_, reward in LEARNED]).double()
    every = points([(now, arm) for arm in range(N)], drifts)
    learned = dense_posterior(kernel, X, y, noise, every, mean)
    if not pending:
        return learned.mean, learned.covariance.diagonal()
    Z = points(pending, drifts)
    guess = dense_posterior(kernel, X, y, noise, Z, mean).mean
    both = dense_posterior(kernel, torch.cat([X, Z]), torch.cat([y, guess]), noise, every, mean)
    torch.testing.assert_close(both.mean, learned.mean)  # what hallucination means: the mean stays
    return both.mean, both.covariance.diagonal()


@pytest.mark.parametrize("form", ["covariance", "factor"])
@pytest.mark.parametrize("name", KERNELS)
def test_arms_agree_with_the_dense_posterior_of_posterior_means(name, form):
    kernel, drifts = KERNELS[name], name != "static"
    model = ArmGP(ARMS, kernel, 0.1, prior_mean=0.7, form=form, batch_shape=(2,))
    for time, arm, reward in LEARNED:
        model.observe_arms(torch.tensor(arm), torch.tensor(reward).double(), time)
    kept, gain, likelihood = described(model.state_dict()), model.information_gain, model.log_likelihood
    before = model.marginals(7.0 if drifts else None)
    with model.provisional():
        for k, (time, arm) in enumerate(PENDING):
            model.expect_arms(torch.tensor(arm), time)
            mean, variance = model.marginals(7.0 if drifts else None)
            right = twin(kernel, drifts, 0.1, 7.0, PENDING[: k + 1], 0.7)
            torch.testing.assert_close(mean[1], right[0], rtol=0, atol=1e-10)
            torch.testing.assert_close(variance[1], right[1], rtol=0, atol=1e-10)
        assert model.num_observations.tolist() == [4, 4]
        assert torch.equal(model.information_gain, gain)
        assert torch.equal(model.log_likelihood, likelihood)
    assert described(model.state_dict()) == kept
    torch.testing.assert_close(model.marginals(7.0 if drifts else None), before, rtol=0, atol=0)


def test_a_pull_before_the_latest_reward_counts_as_made_with_it():
    early, late = (ArmGP(ARMS, KERNELS["forgetting"], 0.1) for _ in range(2))
    for model, time in ((early, 1.0), (late, 4.0)):
        for then, arm, reward in LEARNED:
            model.observe_arms(torch.tensor(arm), torch.tensor(reward).double(), then)
        with model.provisional():
            model.expect_arms(torch.tensor(5), time)
            model.found = model.marginals(5.0)
    assert torch.equal(early.found[1], late.found[1])
    torch.testing.assert_close(late.found[1], twin(KERNELS["forgetting"], True, 0.1, 5.0, [(4.0, 5)])[1])


@pytest.mark.parametrize("name", ["static", "forgetting"])
def test_points_agree_with_the_dense_posterior_at_any_time(name):
    kernel, drifts = KERNELS[name], name != "static"
    model = OnlineGP(kernel, 0.1, input_dim=1 + drifts, batch_shape=(2,))
    for pull in LEARNED:
        model.observe(points([pull], drifts), torch.tensor([[pull[2]]]).double())
    kept, gain, likelihood = described(model.state_dict()), model.information_gain, model.log_likelihood
    pending = [(0.5, 5), *PENDING]  # one of the past, exactly
    every = points([(7.0, arm) for arm in range(N)], drifts)[:, None, None]
    with model.provisional():
        for pull in pending:
            model.expect(points([pull], drifts))
        found = model.posterior(every)
        mean, variance = found.mean[:, 1, 0, 0], found.variance[:, 1, 0, 0]
        right = twin(kernel, drifts, 0.1, 7.0, pending)
        torch.testing.assert_close(mean, right[0], rtol=0, atol=1e-10)
        torch.testing.assert_close(variance, right[1], rtol=0, atol=1e-10)
        assert model.num_observations.tolist() == [4, 4]
        assert torch.equal(model.information_gain, gain)
        assert torch.equal(model.log_likelihood, likelihood)
    assert described(model.state_dict()) == kept


def test_a_weighted_model_expects_with_weight_one_and_its_mean_stays():
    model = WeightedGP(ARMS, SPACE, 0.1, discount=0.9, prior_mean=0.3)
    index = torch.arange(N).double().reshape(-1, 1, 1)
    for _, arm, reward in LEARNED:
        model.observe(torch.tensor([[float(arm)]]).double(), torch.tensor([[reward]]).double())
    kept, before, gain = described(model.state_dict()), model.posterior(index), model.information_gain
    with model.provisional():
        model.expect(torch.tensor([[5.0]]).double())
        after = model.posterior(index)
        torch.testing.assert_close(after.mean, before.mean)
        # regression with weights w and squares v, written out
        w, v = model.weight.clone(), model.square.clone()
        K = model.prior_covariance
        V = torch.linalg.inv(torch.linalg.inv(K + 1e-13 * torch.eye(N)) + torch.diag(w) / 0.1)
        right = V @ (torch.linalg.inv(K + 1e-13 * torch.eye(N)) + torch.diag(v) / 0.1) @ V
        torch.testing.assert_close(after.variance.flatten(), right.diagonal(), rtol=0, atol=1e-6)
        assert torch.equal(model.information_gain, gain)
        assert bool((after.variance <= before.variance + 1e-12).all())
        assert float(w[5]) == 1.0
        assert [float(w[arm]) for arm in (0, 7)] == pytest.approx([1.0, 0.81])  # none of the others faded
    assert described(model.state_dict()) == kept


def test_a_sketch_with_all_arms_in_its_dictionary_is_exact_and_is_put_back():
    model = SketchedGP(ARMS, SPACE, 0.1, sampling=LeverageSampling(1e6), batch_shape=(2,))
    for _, arm, reward in LEARNED:
        model.observe_arms(torch.tensor([arm, arm]), torch.tensor([reward, reward]).double())
    before, kept = model.marginals(), described(model.state_dict())
    with model.provisional():
        for _, arm in PENDING:
            model.expect(torch.tensor([[[float(arm)]]] * 2).double())
        mean, variance = model.marginals()
        right = twin(SPACE, False, 0.1, 7.0, PENDING)
        torch.testing.assert_close(mean[0], right[0], rtol=0, atol=1e-9)
        torch.testing.assert_close(variance[0], right[1], rtol=0, atol=1e-9)
    assert described(model.state_dict()) == kept
    assert all(torch.equal(a, b) for a, b in zip(model.marginals(), before, strict=True))


def test_points_of_members_that_hold_different_rows_are_not_counted_while_they_are_pending():
    """Some rows of the second member came last, where those of the pending pulls stood for the first."""
    model, X = OnlineGP(SPACE, 0.1, input_dim=1, batch_shape=(2,)), ARMS[:4]
    model.observe(X, torch.sin(9 * X))
    model.reset(torch.tensor([True, False]))
    model.forget(2, where=torch.tensor([False, True]))
    said = "num_observations", "information_gain", "log_likelihood"
    before = [getattr(model, name) for name in said]
    assert before[0].tolist() == [0, 2]
    with model.provisional():
        for k in range(6):
            model.expect(ARMS[k : k + 1])
            for name, value in zip(said, before, strict=True):
                torch.testing.assert_close(getattr(model, name), value, rtol=1e-12, atol=0)


def test_it_is_put_back_after_an_error_too():
    model = ArmGP(ARMS, SPACE, 0.1)
    kept = described(model.state_dict())

    def fails():
        with model.provisional():
            model.expect_arms(torch.tensor(1), 0.0)
            model.expect_arms(torch.tensor(99), 0.0)

    with pytest.raises((IndexError, RuntimeError)):
        fails()
    assert described(model.state_dict()) == kept


def forgetting(K, noise, eps):
    return DenseArmGP(K, noise, 0.0, lambda s, t: (1 - eps) ** ((s.unsqueeze(-1) - t).abs() / 2))


def test_covariances_between_points_of_members_are_dense():
    bounds = torch.tensor([[0.0, -1.0], [2.0, 1.0]]).double()
    ones = torch.ones(2).double()
    members = PointMembers(
        bounds, 0.4 * ones, 0.1 * ones, 0.1 * ones, torch.tensor([torch.inf, 5.0]).double()
    )
    torch.manual_seed(0)
    X, t = torch.rand(6, 2).double() * 2 - torch.tensor([0.0, 1.0]).double(), torch.arange(6).double()
    for k in range(6):
        members.observe(
            X[k : k + 1], torch.zeros(1, 2).double(), float(t[k]), 0.5 * torch.ones(1, 2).double()
        )
    A, B = torch.rand(1, 3, 2).double(), torch.rand(1, 4, 2).double()
    at, then = torch.tensor([[6.0, 7.0, 8.0]]).double(), torch.tensor([[6.0, 6.0, 5.5, 9.0]]).double()
    found = members.between(A, at, B, then)[0]
    cube = lambda x: ((x - bounds[0]) / (bounds[1] - bounds[0])).tolist()  # noqa: E731
    processes = (Process([0.4, 0.4], 0.1, rate=0.1), Process([0.4, 0.4], 0.1, timescale=5.0))
    for p, process in enumerate(processes):
        held = [(cube(x), float(s)) for x, s in zip(X, t, strict=True)]
        left = [(cube(x), float(s)) for x, s in zip(A[0], at[0], strict=True)]
        right = [(cube(x), float(s)) for x, s in zip(B[0], then[0], strict=True)]
        k = lambda a, b, of=process: torch.tensor([[of.covariance(u, v) for v in b] for u in a]).double()  # noqa: E731
        dense = k(left, right) - k(left, held) @ torch.linalg.solve(process.matrix(held), k(held, right))
        torch.testing.assert_close(found[p], dense, rtol=0, atol=1e-6)
