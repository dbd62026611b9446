"""Every width's claim: mu_{t-1} +- width sigma_{t-1} holds f at all steps and arms in 1 - delta of the runs.

200 runs side by side, each a UCB run that the width itself drives. Every test also shows what breaks the
claim: half the width, or the paper's print where that is wrong.
"""

import math

import pytest
import torch

from bandits_torch.theory import (
    ConstantWidth,
    DriftAwareWidth,
    GPTSWidth,
    IGPWidth,
    MaximumGain,
    PriorEliminationFiniteWidth,
    RealisedGain,
    RealisedInformationWidth,
    RestartWidth,
    SlidingWindowWidth,
    SrinivasBayesianWidth,
    SrinivasRKHSWidth,
)
from tests.reference.simulate_coverage import (
    CovarianceGP,
    assert_tight,
    coverage,
    draws_of,
    functions_of_norm,
    kernel,
    moving_bumps,
    normal,
    width_needed,
)

RUNS, ARMS, STEPS, WINDOW = 200, 50, 120, 30
DELTA, B, R = 0.1, 5.0, 0.5
GAIN = RealisedGain()
X = torch.linspace(0, 1, ARMS, dtype=torch.float64)
K = kernel(X, X)
NO_FUNCTION = torch.zeros(RUNS, ARMS, dtype=torch.float64)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(7)


def needed_for(width, f, noise, noise_variance=R**2, **options):
    """``width_needed`` for a function that stands still."""
    return width_needed(width, lambda t: f, CovarianceGP(K, noise_variance, RUNS), noise, **options)


RKHS_WIDTHS = {
    "IGP, realised gain": lambda lam: IGPWidth(B, R, DELTA, GAIN),
    "IGP, maximum gain": lambda lam: IGPWidth(B, R, DELTA, MaximumGain(K, lam, STEPS)),
    "GP-TS": lambda lam: GPTSWidth(B, R, DELTA, GAIN),
    "realised information": lambda lam: RealisedInformationWidth(B, R, DELTA),
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("noise_variance", [R**2, 0.1, 1.0])
@pytest.mark.parametrize("make", RKHS_WIDTHS.values(), ids=RKHS_WIDTHS.keys())
def test_width_covers_a_function_of_known_norm(make, noise_variance, generator):
    f, noise = functions_of_norm(B, X, RUNS, generator), R * normal(generator, STEPS, RUNS)
    needed = needed_for(make(noise_variance), f, noise, noise_variance)
    assert_tight(needed, DELTA)


def test_srinivas_rkhs_width_covers_under_bounded_noise(generator):
    f = functions_of_norm(B, X, RUNS, generator)
    noise = R * (2 * torch.rand(STEPS, RUNS, generator=generator, dtype=torch.float64) - 1)
    width = SrinivasRKHSWidth(B, DELTA, MaximumGain(K, R**2, STEPS))
    needed = needed_for(width, f, noise)
    assert_tight(needed, DELTA)


@pytest.mark.parametrize("width", [IGPWidth(0.0, R, DELTA, GAIN), RealisedInformationWidth(0.0, R, DELTA)])
@pytest.mark.parametrize("noise_variance", [R**2, 0.1])
def test_width_covers_when_noise_is_all_there_is(width, noise_variance, generator):
    noise = R * normal(generator, STEPS, RUNS)
    needed = needed_for(width, NO_FUNCTION, noise, noise_variance)
    assert_tight(needed, DELTA)


@pytest.mark.parametrize("make", [IGPWidth, GPTSWidth])
def test_printed_form_fails_below_noise_variance_one(make, generator):
    """With lambda = R^2 = 0.01 the print is ten times too narrow in its noise part."""
    scale = 0.1
    noise = scale * normal(generator, STEPS, RUNS)
    held = {}
    for form in ("theory", "printed"):
        width = make(0.0, scale, DELTA, GAIN, form)
        held[form] = coverage(needed_for(width, NO_FUNCTION, noise, scale**2))
    assert held["theory"] >= 1 - DELTA
    assert held["printed"] < 0.5


WINDOW_WIDTHS = [
    SlidingWindowWidth(WINDOW, STEPS, B, R, DELTA, GAIN),
    SlidingWindowWidth(WINDOW, STEPS, B, R, DELTA, MaximumGain(K, R**2, WINDOW)),
    RealisedInformationWidth(B, R, DELTA, horizon=STEPS),
]


@pytest.mark.parametrize("width", WINDOW_WIDTHS)
def test_window_width_covers_a_function_that_stands_still(width, generator):
    f, noise = functions_of_norm(B, X, RUNS, generator), R * normal(generator, STEPS, RUNS)
    needed = needed_for(width, f, noise, window=WINDOW)
    assert_tight(needed, DELTA)


def test_window_needs_every_step_to_be_an_event_of_its_own(generator):
    """A window of one observation sees fresh noise at every step: ln(1/delta) fails, ln(T/delta) holds."""
    noise_variance = 0.1
    scale = math.sqrt(noise_variance)
    noise = scale * normal(generator, STEPS, RUNS)
    held = [
        coverage(needed_for(width, NO_FUNCTION, noise, noise_variance, window=1))
        for width in (
            IGPWidth(0.0, scale, DELTA, GAIN),
            SlidingWindowWidth(1, STEPS, 0.0, scale, DELTA, GAIN),
        )
    ]
    assert held[0] < 1 - DELTA
    assert held[1] >= 1 - DELTA


def test_restarts_need_every_interval_to_be_an_event_of_its_own(generator):
    """The paper's ln(1/delta) holds in one interval, and over sixty of them fails; ln(60/delta) holds."""
    noise_variance = 0.1
    scale = math.sqrt(noise_variance)
    noise = scale * normal(generator, STEPS, RUNS)
    printed, corrected = (RestartWidth(m, 0.0, scale, DELTA, GAIN) for m in (1, STEPS // 2))
    for width, steps, holds in ((printed, 2, True), (printed, STEPS, False), (corrected, STEPS, True)):
        needed = needed_for(width, NO_FUNCTION, noise[:steps], noise_variance, restart_every=2)
        assert (coverage(needed) >= 1 - DELTA) == holds


DRIFTER_SCALE = 0.1
BASE_WIDTHS = [
    SlidingWindowWidth(WINDOW, STEPS, B, DRIFTER_SCALE, DELTA, GAIN),
    SlidingWindowWidth(WINDOW, STEPS, B, DRIFTER_SCALE, DELTA, MaximumGain(K, DRIFTER_SCALE**2, WINDOW)),
    RealisedInformationWidth(B, DRIFTER_SCALE, DELTA, horizon=STEPS),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("base", BASE_WIDTHS)
def test_drift_aware_width_covers_a_drifting_function(base, generator):
    """Without the drift term the same width misses the function in most runs."""
    f, noise = (
        moving_bumps(B, X, RUNS, STEPS, 0.01, generator),
        DRIFTER_SCALE * normal(generator, STEPS, RUNS),
    )
    drift = max(float((f[lag:] - f[:-lag]).abs().max()) for lag in range(1, WINDOW + 1))
    without, aware = (
        width_needed(width, lambda t: f[t - 1], CovarianceGP(K, DRIFTER_SCALE**2, RUNS), noise, window=WINDOW)
        for width in (base, DriftAwareWidth(base, drift))
    )
    assert coverage(without) < 0.5
    assert coverage(aware) >= 1 - DELTA


def test_drift_term_bounds_the_bias_and_is_nearly_reached(generator):
    """|mu| <= V sqrt(n/lambda) sigma when f is 0 now and n rewards were off by V, with the worst signs."""
    noise_variance, drift, n = 0.1, 0.7, 20
    width = DriftAwareWidth(ConstantWidth(0.0), drift)
    arms = torch.randint(ARMS, (n, RUNS), generator=generator)
    arms[:, 0] = ARMS // 2  # one run pulls one arm throughout: the bound is then V sqrt(n/(n + lambda))
    first = CovarianceGP(K, noise_variance, RUNS)
    for arm in arms:
        first.observe(arm, torch.zeros(RUNS, dtype=torch.float64))
    weights = first.C[torch.arange(RUNS), ARMS // 2].gather(-1, arms.T)  # of each reward in mu at this arm
    model = CovarianceGP(K, noise_variance, RUNS)
    for s, arm in enumerate(arms):
        model.observe(arm, drift * weights[:, s].sign())
    ratio = model.mean.abs() / (width(n + 1, model)[:, None] * model.sigma)
    assert ratio.max() <= 1
    assert ratio[0, ARMS // 2] > 0.99


BAYESIAN_WIDTHS = [SrinivasBayesianWidth(ARMS, DELTA), PriorEliminationFiniteWidth(ARMS, STEPS, DELTA)]


@pytest.mark.parametrize("width", BAYESIAN_WIDTHS)
def test_bayesian_width_covers_a_draw_of_the_prior(width, generator):
    f, noise = draws_of(K, generator, RUNS), R * normal(generator, STEPS, RUNS)
    needed = needed_for(width, f, noise)
    assert_tight(needed, DELTA)


def test_bayesian_width_covers_a_function_that_drifts_as_the_model_says(generator):
    rate = 0.05
    f, fresh = [draws_of(K, generator, RUNS)], draws_of(K, generator, STEPS, RUNS)
    for t in range(1, STEPS):
        f.append((1 - rate) ** 0.5 * f[-1] + rate**0.5 * fresh[t])
    noise = R * normal(generator, STEPS, RUNS)
    width, model = SrinivasBayesianWidth(ARMS, DELTA), CovarianceGP(K, R**2, RUNS)
    needed = width_needed(width, lambda t: f[t - 1], model, noise, drift_rate=rate)
    assert_tight(needed, DELTA)
