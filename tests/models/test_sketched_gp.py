"""SketchedGP, whose formulas ``test_attack_models.py`` has: alike arms, when draws come, pulls placed, and blocks."""

import copy

import pytest
import torch

from bandits_torch.models import LeverageSampling, SketchedGP
from bandits_torch.models.sketch import embedding
from tests.reference.dense_dtc import dtc
from tests.reference.kernels import rbf

N = 80


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(3)


@pytest.fixture
def arms(generator):
    return torch.rand(N, 2, generator=generator, dtype=torch.float64)


@pytest.fixture
def kernel():
    return rbf(0.3).requires_grad_(False)


def pulls(generator, steps, among=30):
    arm = torch.randint(among, (steps,), generator=generator)
    return arm, torch.randn(steps, generator=generator, dtype=torch.float64)


def play(model, arm, reward):
    for a, y in zip(arm, reward, strict=True):
        model.observe_arms(a, y)
        yield


@pytest.mark.parametrize(("noise_variance", "dtype"), [(1e-10, torch.float64), (1e-5, torch.float32)])
def test_it_is_stable_at_any_noise_that_is_taken(arms, kernel, generator, noise_variance, dtype):
    arms = torch.cat([arms, arms[:10] + 1e-9])  # nearly the same arms twice
    model = SketchedGP(arms.to(dtype), kernel, noise_variance, sampling=LeverageSampling.practical(2.0, 1.0))
    arm, reward = pulls(generator, 60, among=len(arms))
    for _ in play(model, arm, reward.to(dtype)):
        mean, variance = model.marginals()
        assert bool(torch.isfinite(mean).all())
        assert bool(((variance >= 0) & (variance <= 1 + 1e-5)).all())


@pytest.mark.parametrize("chunk_size", [None, 17])
def test_a_dictionary_of_one_step_may_hold_nearly_equal_arms(arms, generator, chunk_size):
    arms, kernel = torch.cat([arms[:20], arms[:20] + 1e-9]), rbf(0.15)
    sampling = LeverageSampling.practical(0.5, 1.0, "redrawn")
    model = SketchedGP(arms, kernel, 1e-4, sampling=sampling, chunk_size=chunk_size)
    K, (arm, reward) = kernel(arms).to_dense().detach(), pulls(generator, 60, among=40)
    for t, _ in enumerate(play(model, arm, reward)):
        mean, covariance = dtc(K, arm[: t + 1], reward[: t + 1], model.sketches[0].inducing_arms(), 1e-4)
        torch.testing.assert_close(model.marginals()[0], mean, rtol=0, atol=1e-3)
        torch.testing.assert_close(model.marginals()[1], covariance.diagonal(), rtol=1e-5, atol=1e-8)
    copy.deepcopy(model)  # no graph of gradients grows with the steps


def test_a_draw_is_kept_whole_and_the_dictionary_stays_near_its_size(arms, kernel, generator, monkeypatch):
    model = SketchedGP(arms, kernel, 0.1, sampling=LeverageSampling.practical(0.5, 1.0))
    sketch, drawn, sizes = model.sketches[0], [], []
    draw = type(sketch)._draw

    def watched(self, *args):
        drawn.append(draw(self, *args))
        return drawn[-1]

    monkeypatch.setattr(type(sketch), "_draw", watched)
    arm, reward = pulls(generator, 100, among=N)
    for _ in play(model, arm, reward):
        assert bool(torch.isin(drawn[-1], sketch.dictionary).all())
        assert len(sketch.dictionary) <= 4 * len(drawn[-1])
        sizes.append(len(sketch.dictionary))
    assert len(drawn) == int(model.draws) == 100
    assert int(model.trace()["last_draw"]) == len(drawn[-1])
    assert min(sizes[50:]) < max(sizes[:50]) / 2  # it was built anew, and shrank
    assert max(sizes) < len(sketch.arm)


def test_draws_come_when_due_for_all_pulls_at_the_variances_of_before(arms, kernel, generator, monkeypatch):
    """Due once 1 + sum sigma~^2 / lambda > C = 3, summed since the last draw at the variances it left behind."""
    model, coins = SketchedGP(arms, kernel, 0.1, sampling=LeverageSampling.practical(2.0, 3.0)), []
    probabilities = LeverageSampling.probabilities

    def watched(self, leverage, count):
        coins.append((leverage, count))
        return probabilities(self, leverage, count)

    monkeypatch.setattr(LeverageSampling, "probabilities", watched)
    sketch, K, (arm, reward) = model.sketches[0], kernel(arms).to_dense(), pulls(generator, 60)
    spent, at_draw = 0.0, K
    for t in range(60):
        dictionary, draws = sketch.inducing_arms(), len(coins)
        model.observe_arms(arm[t], reward[t])
        spent += float(at_draw[arm[t], arm[t]]) / 0.1
        assert len(coins) - draws == (draws == 0 or 1 + spent > 3)
        if len(coins) == draws:
            continue
        leverage, count = coins[-1]
        _, before = dtc(K, arm[:t], reward[:t], dictionary, 0.1) if t else (None, K)
        torch.testing.assert_close(leverage, before.diagonal()[sketch.arm] / 0.1)
        assert torch.equal(count.long(), torch.bincount(arm[: t + 1], minlength=N)[sketch.arm])
        _, at_draw = dtc(K, arm[: t + 1], reward[: t + 1], sketch.inducing_arms(), 0.1)
        spent = 0.0
    assert 5 < len(coins) < 60


def test_an_arm_that_is_certain_is_no_reason_to_draw():
    model = SketchedGP(3, torch.diag(torch.tensor([0.0, 1.0, 1.0], dtype=torch.float64)), 0.1)
    one = torch.ones((), dtype=torch.float64)
    model.observe_arms(torch.tensor(0), one)
    assert int(model.draws) == 0
    model.observe_arms(torch.tensor(1), one)
    assert int(model.draws) == 1
    torch.testing.assert_close(model.marginals()[0], torch.tensor([0.0, 1 / 1.1, 0.0], dtype=torch.float64))


@pytest.mark.parametrize(("growth", "dictionary"), [(1.0, "redrawn"), (1.5, "kept"), (1e9, "kept")])
def test_a_pending_pull_counts_for_the_variance_alone(arms, kernel, generator, growth, dictionary):
    sampling = LeverageSampling.practical(5.0, growth, dictionary)
    model = SketchedGP(arms, kernel, 0.01, sampling=sampling)
    arm, reward = pulls(generator, 20)
    for _ in play(model, arm, reward):
        pass
    before, K, later = model.marginals()[0], kernel(arms).to_dense(), torch.tensor([40, 41, 40])
    with model.provisional():
        for a in later:
            model.expect_arms(a, 0.0)
        expected = model.marginals()
        _, covariance = dtc(
            K, torch.cat([arm, later]), torch.zeros(23), model.sketches[0].inducing_arms(), 0.01
        )
    torch.testing.assert_close(expected[1], covariance.diagonal(), rtol=1e-6, atol=1e-9)
    if growth > 1.5:  # with the same dictionary the mean stays
        torch.testing.assert_close(expected[0], before, rtol=1e-9, atol=1e-9)


def test_off_its_arms_it_is_the_posterior_of_its_arms(arms, kernel, generator):
    model = SketchedGP(
        arms, kernel, 0.01, prior_mean=0.5, batch_shape=(2,), sampling=LeverageSampling.practical(1.0)
    )
    for _ in play(model, *pulls(generator, 40)):
        pass
    mean, variance = model.marginals()
    posterior = model.off_arms().posterior(arms.reshape(N, 1, 1, 2))
    torch.testing.assert_close(posterior.mean.squeeze(), mean.T)
    torch.testing.assert_close(posterior.variance.squeeze(), variance.T)
    X = arms[:3, None, None].clone().requires_grad_()
    off = model.off_arms().posterior(X)
    assert torch.autograd.grad(off.mean.sum() + off.variance.sum(), X)[0].abs().min() > 0
    joint = model.posterior(torch.tensor([[[1.0], [2.0], [3.0]]]), observation_noise=True)
    expected = model.joint()[1][:, 1:4, 1:4] + 0.01 * torch.eye(3)
    torch.testing.assert_close(
        joint.distribution.covariance_matrix, expected.expand_as(joint.distribution.covariance_matrix)
    )


def test_more_arms_than_are_worked_on_at_once(arms, kernel, generator, monkeypatch):
    """Features and kernels of many arms are computed, and kept, piece by piece: the same posterior."""
    sampling = LeverageSampling.practical(0.5, 1.0)
    models = [SketchedGP(arms, kernel, 0.01, sampling=sampling) for _ in range(2)]
    arm, reward = pulls(generator, 100, among=N)
    for _ in play(models[0], arm, reward):
        pass
    monkeypatch.setattr(embedding, "_ARMS_AT_ONCE", 13)
    monkeypatch.setattr(embedding, "_ONE_PIECE", 0)
    for _ in play(models[1], arm, reward):
        pass
    torch.testing.assert_close(models[1].marginals(), models[0].marginals(), rtol=1e-9, atol=1e-9)
