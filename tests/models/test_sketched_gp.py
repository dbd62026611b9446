"""SketchedGP: agreement with the dense formulas and the exact posterior, a few arms watched, and rows in blocks."""

import copy

import pytest
import torch

from bandits_torch.models import LeverageSampling, SketchedGP
from bandits_torch.models.sketch import embedding
from bandits_torch.models.sketch.embedding import GrowingRows
from bandits_torch.models.sketch.sketch import WatchedArms
from bandits_torch.problems import GPDraws
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


@pytest.mark.sampled(5)
@pytest.mark.parametrize("chunk_size", [None, 17])
@pytest.mark.parametrize("growth", [1.0, 2.0, 20.0])
@pytest.mark.parametrize("noise_variance", [1e-6, 0.01, 10.0])
def test_marginals_equal_the_dense_formulas(arms, kernel, generator, chunk_size, growth, noise_variance):
    sampling = LeverageSampling.practical(2.0, growth)
    model = SketchedGP(arms, kernel, noise_variance, sampling=sampling, chunk_size=chunk_size)
    K, (arm, reward) = kernel(arms).to_dense(), pulls(generator, 60)
    for t, _ in enumerate(play(model, arm, reward)):
        if t % 6:
            continue
        dictionary = model.sketches[0].inducing_arms()
        seen = arm[: t + 1]
        mean, covariance = dtc(K, seen, reward[: t + 1], dictionary, noise_variance)
        got_mean, got_variance = model.marginals()
        torch.testing.assert_close(got_mean, mean, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(got_variance, covariance.diagonal(), rtol=1e-5, atol=1e-8)
        torch.testing.assert_close(model.joint()[1], covariance, rtol=1e-5, atol=1e-8)
        leverage = covariance.diagonal()[seen].sum() / noise_variance
        torch.testing.assert_close(model.effective_dimension, leverage, rtol=1e-4, atol=1e-6)
    assert int(model.num_observations) == 60


@pytest.mark.parametrize(
    ("noise_variance", "dtype"),
    [(1e-10, torch.float64), (1e-5, torch.float32)]
    + [(v, d) for v in (1.0, 1e8) for d in (torch.float64, torch.float32)],
)
def test_it_is_stable_at_any_noise_that_is_taken(arms, kernel, generator, noise_variance, dtype):
    arms = torch.cat([arms, arms[:10] + 1e-9])  # nearly the same arms twice
    model = SketchedGP(arms.to(dtype), kernel, noise_variance, sampling=LeverageSampling.practical(2.0, 1.0))
    arm, reward = pulls(generator, 60, among=len(arms))
    for _ in play(model, arm, reward.to(dtype)):
        mean, variance = model.marginals()
        assert bool(torch.isfinite(mean).all())
        assert bool(((variance >= 0) & (variance <= 1 + 1e-5)).all())


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


def test_an_arm_pulled_before_it_joined_the_dictionary_keeps_its_rewards():
    """Arms that tell nothing of each other: new features have no product with old ones, but with themselves."""
    model = SketchedGP(4, torch.eye(4, dtype=torch.float64), 2.0)
    for arm, reward in [(0, 1.0)] + 4 * [(1, 10.0)]:
        model.observe_arms(torch.tensor(arm), torch.tensor(reward, dtype=torch.float64))
    assert 1 in model.sketches[0].inducing_arms()
    mean, variance = model.marginals()
    torch.testing.assert_close(mean, torch.tensor([1 / 3, 20 / 3, 0, 0], dtype=torch.float64))
    torch.testing.assert_close(variance, torch.tensor([2 / 3, 1 / 3, 1, 1], dtype=torch.float64))


def test_an_arm_that_is_certain_is_no_reason_to_draw():
    model = SketchedGP(3, torch.diag(torch.tensor([0.0, 1.0, 1.0], dtype=torch.float64)), 0.1)
    one = torch.ones((), dtype=torch.float64)
    model.observe_arms(torch.tensor(0), one)
    assert int(model.draws) == 0
    model.observe_arms(torch.tensor(1), one)
    assert int(model.draws) == 1
    torch.testing.assert_close(model.marginals()[0], torch.tensor([0.0, 1 / 1.1, 0.0], dtype=torch.float64))


def test_an_arm_enters_with_the_probability_of_one_of_its_observations(generator):
    sampling, leverage, count = (
        LeverageSampling(2.0),
        torch.tensor([0.01, 0.2, 0.6]),
        torch.tensor([40.0, 3.0, 1.0]),
    )
    wanted = [1 - (1 - 0.02) ** 40, 1 - (1 - 0.4) ** 3, 1.0]
    torch.testing.assert_close(sampling.probabilities(leverage, count), torch.tensor(wanted))


def test_the_theory_preset_has_the_constants_of_theorem_1():
    sampling = LeverageSampling.theory(1000, delta=0.1, epsilon=0.5)
    assert sampling.alpha == pytest.approx(3)
    assert sampling.oversampling == pytest.approx(6 * 3 * torch.log(torch.tensor(4e4)).item() / 0.25)
    assert sampling.growth == 1


def test_a_replicate_of_a_batch_is_the_replicate_alone(arms, kernel, generator):
    noise = torch.tensor([0.1, 0.01, 1.0], dtype=torch.float64)
    batch = SketchedGP(arms, kernel, noise, seed=5)
    alone = SketchedGP(arms, kernel, 0.01, seed=5, first_replicate=1)
    for _ in range(40):
        arm, reward = (
            torch.randint(N, (3,), generator=generator),
            torch.randn(3, generator=generator).double(),
        )
        batch.observe_arms(arm, reward)
        alone.observe_arms(arm[1], reward[1])
    for got, wanted in zip(batch.marginals(), alone.marginals(), strict=True):
        assert torch.equal(got[1], wanted)
    assert batch.dictionary_size.shape == (3,)


@pytest.mark.parametrize(("growth", "dictionary"), [(1.0, "redrawn"), (1.5, "kept"), (1e9, "kept")])
def test_a_pull_placed_before_its_reward_counts_for_the_variance_alone(
    arms, kernel, generator, growth, dictionary
):
    sampling = LeverageSampling.practical(5.0, growth, dictionary)
    model = SketchedGP(arms, kernel, 0.01, sampling=sampling)
    arm, reward = pulls(generator, 20)
    for _ in play(model, arm, reward):
        pass
    before, K, later = model.marginals()[0], kernel(arms).to_dense(), torch.tensor([40, 41, 40])
    for a in later:
        model.place(a)
    every_arm = torch.cat([arm, later])
    placed = model.marginals()
    _, covariance = dtc(K, every_arm, torch.zeros(23), model.sketches[0].inducing_arms(), 0.01)
    torch.testing.assert_close(placed[1], covariance.diagonal(), rtol=1e-6, atol=1e-9)
    if growth > 1.5:  # with the same dictionary the mean stays
        torch.testing.assert_close(placed[0], before, rtol=1e-9, atol=1e-9)
    model.reward(later[[2, 1]], torch.ones(2, dtype=torch.float64))
    model.reward(later[[0]], torch.ones(1, dtype=torch.float64))
    every_reward = torch.cat([reward, torch.ones(3, dtype=torch.float64)])
    mean, _ = dtc(K, every_arm, every_reward, model.sketches[0].inducing_arms(), 0.01)
    torch.testing.assert_close(model.marginals()[0], mean, rtol=1e-6, atol=1e-7)


def test_posterior_by_index_and_off_the_arms_agree_with_the_marginals(arms, kernel, generator):
    model = SketchedGP(
        arms, kernel, 0.01, prior_mean=0.5, batch_shape=(2,), sampling=LeverageSampling.practical(1.0)
    )
    for _ in play(model, *pulls(generator, 40)):
        pass
    mean, variance = model.marginals()
    cached = model.posterior(model.candidates())
    torch.testing.assert_close(cached.mean.squeeze(), mean.T)
    index = torch.arange(N, dtype=torch.float64).reshape(N, 1, 1, 1)
    for posterior in (model.posterior(index), model.off_arms().posterior(arms.reshape(N, 1, 1, 2))):
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
    """Features and kernels of many arms are computed piece by piece: the same posterior."""
    sampling = LeverageSampling.practical(2.0, 1.0)
    models = [SketchedGP(arms, kernel, 0.01, sampling=sampling) for _ in range(2)]
    arm, reward = pulls(generator, 30, among=N)
    for _ in play(models[0], arm, reward):
        pass
    monkeypatch.setattr(embedding, "_ARMS_AT_ONCE", 13)
    for _ in play(models[1], arm, reward):
        pass
    torch.testing.assert_close(models[1].marginals(), models[0].marginals(), rtol=1e-9, atol=1e-9)


@pytest.fixture
def sketch():
    problem = GPDraws(num_arms=60, dim=2, lengthscale=0.2, noise_scale=0.1, seed=4)
    model = SketchedGP(
        problem.arms, problem.knowledge.kernel, 0.01, sampling=LeverageSampling.practical(2.0, 3.0)
    )
    return model.sketches[0]


def expected(sketch, arms):
    """The variance of all arms anew, from a copy that is brought up to date."""
    other = copy.deepcopy(sketch)
    other.marginals.settle(False)
    return other.moments()[1][arms].clamp_min(0.0)


def events(sketch, count, seed=0):
    """Pulls at random, with a pass over all arms now and then; yields after each."""
    generator = torch.Generator().manual_seed(seed)
    for k in range(count):
        arm = int(torch.randint(60, (), generator=generator))
        sketch.observe(arm, torch.randn((), generator=generator, dtype=torch.float64))
        if k % 7 == 6:
            sketch.moments()
        yield k


def test_they_follow_pulls_passes_over_all_arms_and_dictionaries(sketch):
    watched, draws = WatchedArms(sketch, torch.tensor([5, 17, 2])), set()
    for k in events(sketch, 60):
        draws.add(sketch.draws)
        if k == 30:
            watched.join(torch.tensor([40, 3]))
        if k % 3:  # so that several pulls are taken up at once
            close = expected(sketch, watched.arms)
            torch.testing.assert_close(watched.variance(), close, rtol=0, atol=1e-10)
    assert watched.arms.tolist() == [5, 17, 2, 40, 3]
    assert len(watched) == 5
    assert len(draws) > 5


@pytest.fixture(params=[0, 10_000, 2**26])
def limit(request, monkeypatch):
    """How many bytes may stand in one piece: no row, some, all."""
    monkeypatch.setattr(embedding, "_ONE_PIECE", request.param)
    return request.param


def test_products_and_columns_are_those_of_one_matrix(limit):
    generator = torch.Generator().manual_seed(0)
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    rows, plain = GrowingRows(draw(0, 50)), draw(0, 50)
    for height in (1, 30, 3, 40, 2, 7):
        more = draw(height, 50)
        rows.append(more)
        plain = torch.cat([plain, more])
        left, index = draw(3, len(plain)), torch.tensor([4, 0, 49])
        assert rows.size == len(plain)
        assert torch.equal(rows.columns(index), plain[:, index])
        torch.testing.assert_close(rows.product(left), left @ plain)
    assert (len(rows._blocks) > 1) == (limit < 2**26)
    other = GrowingRows(draw(0, 50))
    other.load_state_dict(copy.deepcopy(rows.state_dict()))
    for each in (rows, other):
        each.append(plain[:5])
    assert torch.equal(rows.columns(slice(None)), other.columns(slice(None)))
    assert [len(block) for block in rows._blocks] == [len(block) for block in other._blocks]
    for height in (60, 20, 200):
        rows.start(height)
        values = draw(height, 50)
        for columns in (slice(0, 30), slice(30, 60)):
            rows.assign(columns, values[:, columns])
        assert torch.equal(rows.columns(slice(None)), values)
