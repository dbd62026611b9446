import math

import pytest
import torch

from bandits_torch.theory.widths import GrowthBound, MaximumGain, RealisedGain
from tests.reference.dense_information_gain import greedy_gain, largest_gain
from tests.reference.simulate_coverage import stand_in

MODEL = stand_in()


def covariance(num_arms: int, seed: int = 0, length_scale: float = 0.3) -> torch.Tensor:
    """Squared-exponential over random points; variances are unequal, so that greedy has no ties."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(num_arms, generator=generator, dtype=torch.float64)
    scale = 0.5 + torch.rand(num_arms, generator=generator, dtype=torch.float64)
    return scale[:, None] * scale * torch.exp(-((x[:, None] - x) ** 2) / (2 * length_scale**2))


def test_realised_gain_is_the_models_whatever_the_points():
    model = stand_in(information_gain=[1.5, 2.5], batch_shape=(2,))
    assert RealisedGain()(7, model).tolist() == [1.5, 2.5]
    assert RealisedGain()(torch.tensor([1, 2]), model).tolist() == [1.5, 2.5]


@pytest.mark.parametrize("noise_variance", [1.0, 0.01])
def test_greedy_gain_equals_the_dense_twin(noise_variance):
    K = covariance(7)
    gain = MaximumGain(K, noise_variance, 9, upper_bound=False)
    expected = [greedy_gain(K, noise_variance, n) for n in range(10)]
    assert [gain(n, MODEL).item() for n in range(10)] == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("seed", range(3))
def test_the_true_maximum_lies_between_greedy_and_its_upper_bound(seed):
    K = covariance(5, seed)
    greedy, bound = (MaximumGain(K, 0.05, 5, upper_bound=upper) for upper in (False, True))
    for n in range(1, 6):
        best = largest_gain(K, 0.05, n)
        assert greedy(n, MODEL).item() <= best * (1 + 1e-12)
        assert best <= bound(n, MODEL).item()
        assert bound(n, MODEL).item() == pytest.approx(greedy(n, MODEL).item() / (1 - math.exp(-1)))


def test_gain_of_thirty_thousand_points_is_that_of_the_counts():
    """Long runs lose no accuracy: the picks' counts, put into one determinant, give the same number."""
    K = covariance(30)
    steps, noise_variance = 30_000, 0.01
    C, counts = K.clone(), torch.zeros(30, dtype=torch.float64)
    for _ in range(steps):
        i = int(C.diagonal().argmax())
        counts[i] += 1
        C = C - C[:, i : i + 1] * C[i] / (C[i, i] + noise_variance)
    root = counts.sqrt() / noise_variance**0.5
    expected = 0.5 * torch.logdet(torch.eye(30, dtype=torch.float64) + root[:, None] * K * root).item()
    found = MaximumGain(K, noise_variance, steps, upper_bound=False)(steps, MODEL).item()
    assert found == pytest.approx(expected, rel=1e-9)


def test_a_batch_of_priors_gives_what_each_gives_alone():
    Ks, noise = (
        torch.stack([covariance(8, 0), covariance(8, 1)]),
        torch.tensor([0.1, 0.5], dtype=torch.float64),
    )
    together = MaximumGain(Ks, noise, 6)
    alone = [MaximumGain(K, float(s), 6) for K, s in zip(Ks, noise, strict=True)]
    expected = torch.stack([gain(4, MODEL) for gain in alone])
    torch.testing.assert_close(together(4, MODEL), expected)
    points = torch.tensor([[0], [4], [6]])  # S = 3 replicates beside P = 2 priors
    found = together(points, MODEL)
    assert found.shape == (3, 2)
    torch.testing.assert_close(found[1], expected)
    assert found[0].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("noise_variance", [0.1, torch.tensor([0.1]), torch.tensor([0.1, 0.1])])
def test_one_noise_variance_serves_a_batch_of_priors(noise_variance):
    Ks = torch.stack([covariance(4, 0), covariance(4, 1)])
    expected = [MaximumGain(K, 0.1, 3)(3, MODEL).item() for K in Ks]
    assert MaximumGain(Ks, noise_variance, 3)(3, MODEL).tolist() == pytest.approx(expected, rel=1e-7)


def test_look_up_follows_the_models_dtype():
    gain = MaximumGain(covariance(5), 0.1, 4)
    model = stand_in(dtype=torch.float32)
    assert gain(2, model).dtype == torch.float32
    assert gain(torch.tensor([2]), model).dtype == torch.float32
    assert GrowthBound("linear", 2)(3, model).dtype == torch.float32
    assert GrowthBound("linear", 2)(torch.tensor([0, 3]), model).dtype == torch.float32


def test_growth_bounds_at_a_hundred_points():
    # ln 100 = 4.60517: 4.60517^4; 100^(2/7) 4.60517^(5/7) at nu = 5/2, d = 2; 3 x 4.60517
    assert GrowthBound("squared_exponential", 3)(100, MODEL).item() == pytest.approx(449.7619771823)
    assert GrowthBound("matern", 2, nu=2.5)(100, MODEL).item() == pytest.approx(11.0962309893)
    assert GrowthBound("linear", 3, constant=0.5)(100, MODEL).item() == pytest.approx(13.8155105580 / 2)


@pytest.mark.parametrize("bound", [GrowthBound("squared_exponential", 1), GrowthBound("matern", 1, nu=1.5)])
def test_growth_bound_starts_at_zero_and_never_falls(bound):
    values = bound(torch.arange(200), MODEL)
    assert values[0] == 0
    assert (values[1:] > 0).all()
    assert (values.diff() >= 0).all()
    assert bound(7, MODEL).item() == pytest.approx(values[7].item(), rel=1e-15)


POINTS = r"points must be between 0 and max_points = 4"
REFUSED = [
    *((POINTS, lambda n=n: MaximumGain(covariance(3), 0.1, 4)(n, MODEL)) for n in (-1, 5)),
    *((POINTS, lambda n=n: MaximumGain(covariance(3), 0.1, 4)(torch.tensor(n), MODEL)) for n in ([0, 5], -1)),
    ("noise_variance must have shape", lambda: MaximumGain(torch.eye(2), torch.tensor([0.1, 0.1]), 4)),
    ("nu must be given only with 'matern'", lambda: GrowthBound("matern", 1)),
    ("nu must be given only with 'matern'", lambda: GrowthBound("linear", 1, nu=1.5)),
    ("points must be an integer >= 0", lambda: GrowthBound("linear", 1)(-1, MODEL)),
]


@pytest.mark.parametrize(("message", "call"), REFUSED)
def test_it_is_refused_by_name(message, call):
    with pytest.raises(ValueError, match=message):
        call()
