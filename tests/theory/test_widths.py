"""Widths against numbers by hand; what they read from the policy that they serve; widths over contexts."""

import math

import pytest
import torch
from gpytorch.kernels import RBFKernel
from hypothesis import given
from hypothesis import strategies as st

from bandits_torch import ArmContext, ArmGP, IndexPolicy, OnlineGP, UpperConfidenceBound, recipes
from bandits_torch.models import CandidatePrior
from bandits_torch.policies import (
    KeepEverything,
    LikelihoodWindow,
    Observation,
    PeriodicRestart,
    SlidingWindow,
)
from bandits_torch.theory import (
    CGPUCBWidth,
    ConstantWidth,
    DriftAwareWidth,
    GPTSWidth,
    GrowthBound,
    IGPWidth,
    MaximumGain,
    PriorEliminationContinuousWidth,
    PriorEliminationFiniteWidth,
    RealisedGain,
    RealisedInformationWidth,
    RestartWidth,
    SlidingWindowWidth,
    SrinivasBayesianWidth,
    SrinivasContinuousWidth,
    SrinivasRKHSWidth,
)
from tests.reference.simulate_coverage import stand_in

GAIN = RealisedGain()
B, R, DELTA = 2.0, 1.0, 0.1
NORM, SCALE = (B, DELTA, GAIN), (B, R, DELTA, GAIN)

# At gamma = 3, lambda = 1/4, B = 2, R = 1, delta = 0.1 (so R/sqrt(lambda) = 2), the sum beside each.
BY_HAND = [
    (ConstantWidth(1.5), 1, 1.5),
    (SrinivasRKHSWidth(*NORM), 4, 212.5697190416),  # sqrt(2 x 4 + 300 x 3 x ln(40)^3)
    (IGPWidth(*SCALE), 4, 8.5131160549),  # 2 + 2 sqrt(6 + 2 ln 10)
    (IGPWidth(*SCALE, form="printed"), 4, 5.5503760626),  # 2 + sqrt(2 (3 + 1 + ln 10))
    (GPTSWidth(*SCALE), 4, 8.9257388190),  # 2 + 2 sqrt(6 + 2 ln 20)
    (GPTSWidth(*SCALE, form="printed"), 4, 5.7405166150),  # 2 + sqrt(2 (4 + ln 20))
    (RestartWidth(1, *SCALE), 4, 8.5131160549),  # as IGP
    (RestartWidth(10, *SCALE), 4, 9.8000872744),  # 2 + 2 sqrt(6 + 2 ln 100)
    (SlidingWindowWidth(5, 100, *SCALE), 4, 10.9029232408),  # 2 + 2 sqrt(6 + 2 ln 1000)
    (SlidingWindowWidth(5, 100, *SCALE, form="printed"), 4, 6.6707077149),  # 2 + sqrt(2 (4 + ln 1000))
    (RealisedInformationWidth(B, R, DELTA), 4, 6.8132723961),  # sqrt(4 + 4 (6 + 2 ln 10))
    (RealisedInformationWidth(B, R, DELTA, horizon=100), 4, 9.1248036818),  # sqrt(4 + 4 (6 + 2 ln 1000))
    (DriftAwareWidth(ConstantWidth(1.0), 0.5), 4, 4.0),  # 1 + 0.5 sqrt(9 / 0.25), nine held observations
    (SrinivasBayesianWidth(50, DELTA), 3, 4.2212635498),  # sqrt(2 ln(50 pi^2 9 / 0.6))
    # sqrt(2 ln(2 pi^2 9 / 0.3) + 4 ln(2 x 9 x 1 x 2 sqrt(ln(8 / 0.1))))
    (SrinivasContinuousWidth(2, 1.0, 1.0, 2.0, DELTA), 3, 5.4823997538),
    # b so small that one grid point will do: sqrt(2 ln(2 pi^2 / 0.3))
    (SrinivasContinuousWidth(2, 1.0, 1.0, 1e-3, DELTA), 1, 2.8936412205),
    (PriorEliminationFiniteWidth(50, 200, DELTA), 3, 5.4591203550),  # sqrt(2 ln(200 x 50 pi^2 9 / 0.3))
    # D = 0.05: sqrt(2 ln(pi^2 9 / 0.15) + 4 ln(100 x 2 x 9 x 1 x 2 sqrt(ln(4 / 0.05))))
    (PriorEliminationContinuousWidth(2, 100, 1.0, 1.0, 2.0, DELTA), 3, 6.9625704883),
    # b so small that one grid point will do: sqrt(2 ln(pi^2 / 0.15) + 4 ln(100))
    (PriorEliminationContinuousWidth(2, 100, 1.0, 1.0, 1e-3, DELTA), 1, 5.1762766790),
]
IDS = [f"{type(width).__name__}-{i}" for i, (width, _, _) in enumerate(BY_HAND)]


def model(dtype=torch.float64, batch_shape=()):
    return stand_in(3.0, 0.25, 9, batch_shape, dtype)


@pytest.mark.parametrize(("width", "step", "value"), BY_HAND, ids=IDS)
@pytest.mark.parametrize(("dtype", "rel"), [(torch.float64, 1e-10), (torch.float32, 1e-6)])
def test_width_equals_the_number_computed_by_hand(width, step, value, dtype, rel):
    for batch_shape in [(), (3, 2)]:
        held = model(dtype, batch_shape)
        for when in (step, torch.tensor(step), torch.full((3, 1), step)):
            found = width(when, held)
            assert found.dtype == dtype
            expected = torch.full_like(found, value)
            torch.testing.assert_close(found, expected, rtol=rel, atol=0)
    several = width(torch.tensor([[step], [step + 1], [step + 7]]), held)
    assert torch.broadcast_shapes(several.shape, (3, 2)) == (3, 2)
    with pytest.raises(ValueError, match="step must be an integer >= 1"):
        width(0, held)


@pytest.mark.parametrize(("width", "step", "value"), BY_HAND, ids=IDS)
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_width_on_a_gpu_waits_for_nothing(width, step, value):
    on_gpu = model(batch_shape=(3, 2))
    for name in ("information_gain", "noise_variance", "num_observations"):
        setattr(on_gpu, name, getattr(on_gpu, name).cuda())
    step_there = torch.full((3, 1), step, device="cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        found = [width(when, on_gpu) for when in (step, step_there)]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for answer in found:
        assert answer.cpu().flatten()[0].item() == pytest.approx(value)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_gain_look_up_on_a_gpu_waits_for_nothing_and_marks_what_it_lacks():
    there = stand_in()
    there.noise_variance = there.noise_variance.cuda()
    gain = MaximumGain(torch.eye(2, dtype=torch.float64, device="cuda"), 0.5, 4)
    points = torch.tensor([0, 4, 5, -1], device="cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        found, growth = gain(points, there), GrowthBound("linear", 1)(points, there)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert found.isnan().tolist() == [False, False, True, True]
    assert growth.isfinite().all()


def test_parameters_may_differ_between_priors():
    bounds, scales, deltas = (
        torch.tensor(v, dtype=torch.float64) for v in ([1.0, 2.0], [1.0, 0.5], [0.1, 0.2])
    )
    two = model(batch_shape=(3, 2))
    for make in (
        lambda b, r, d: IGPWidth(b, r, d, GAIN),
        lambda b, r, d: GPTSWidth(b, r, d, GAIN, form="printed"),
        lambda b, r, d: RestartWidth(3, b, r, d, GAIN),
        lambda b, r, d: SlidingWindowWidth(5, 50, b, r, d, GAIN),
        lambda b, r, d: RealisedInformationWidth(b, r, d, horizon=7),
        lambda b, r, d: SrinivasRKHSWidth(b, d, GAIN),
        lambda b, r, d: DriftAwareWidth(ConstantWidth(b), r),
        lambda b, r, d: SrinivasBayesianWidth(9, d),
        lambda b, r, d: PriorEliminationFiniteWidth(9, 5, d),
        lambda b, r, d: PriorEliminationContinuousWidth(2, 9, b, r, b, d),
    ):
        together = make(bounds, scales, deltas)(4, two).expand(3, 2)
        for p in range(2):
            alone = make(bounds[p].item(), scales[p].item(), deltas[p].item())(4, model())
            torch.testing.assert_close(together[:, p], alone.expand(3))
        single = make(bounds.float(), scales.float(), deltas)(4, model(torch.float32))
        assert single.dtype == torch.float32


def test_gain_is_asked_for_the_observations_made():
    asked = []

    def spy(points, model):
        asked.append(points)
        return model.information_gain

    for width in (
        SrinivasRKHSWidth(B, DELTA, spy),
        IGPWidth(B, R, DELTA, spy),
        GPTSWidth(B, R, DELTA, spy),
        RestartWidth(3, B, R, DELTA, spy),
    ):
        width(4, model())
        width(torch.tensor([4]), model())
    assert asked == [3, 3] * 4
    asked.clear()
    window = SlidingWindowWidth(5, 100, B, R, DELTA, spy)
    for step in (4, 9, torch.tensor([4, 9])):
        window(step, model())
    assert asked[:2] == [4, 5]
    assert asked[2].tolist() == [4, 5]


def test_width_takes_the_gain_of_a_table_at_step_minus_one():
    # one arm of variance 1, lambda = 1/4: gamma_1 = 1/2 ln 5, and greedy is exact but for 1/(1 - 1/e)
    gain = MaximumGain(torch.ones(1, 1, dtype=torch.float64), 0.25, 10)
    gamma = 0.5 * math.log(5) / (1 - math.exp(-1))
    found = IGPWidth(0.0, R, DELTA, gain)(2, model()).item()
    assert found == pytest.approx(2 * math.sqrt(2 * gamma + 2 * math.log(10)))


positive = st.floats(1e-3, 1e3)


@given(
    gain=st.floats(0, 1e4),
    noise_variance=positive,
    bound=st.floats(0, 1e3),
    scale=positive,
    delta=st.floats(1e-6, 0.999),
    horizon=st.integers(1, 100_000),
)
def test_realised_information_is_never_wider_than_igp(gain, noise_variance, bound, scale, delta, horizon):
    held = stand_in(gain, noise_variance)
    realised = RealisedInformationWidth(bound, scale, delta)(5, held)
    assert realised <= IGPWidth(bound, scale, delta, GAIN)(5, held) * (1 + 1e-12)
    realised = RealisedInformationWidth(bound, scale, delta, horizon)(5, held)
    assert realised <= SlidingWindowWidth(3, horizon, bound, scale, delta, GAIN)(5, held) * (1 + 1e-12)


@given(
    gain=st.floats(0, 1e4),
    noise_variance=st.floats(1, 1e3),
    bound=st.floats(0, 1e3),
    delta=st.floats(1e-6, 0.99),
)
def test_printed_form_is_the_wider_one_for_noise_variance_at_least_one(gain, noise_variance, bound, delta):
    held = stand_in(gain, noise_variance)
    assert IGPWidth(bound, R, delta, GAIN)(5, held) <= IGPWidth(bound, R, delta, GAIN, form="printed")(
        5, held
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: IGPWidth(B, R, torch.tensor([0.1, 0.0]), GAIN), "delta must be a number strictly"),
        (lambda: IGPWidth(torch.tensor([1.0, math.inf]), R, DELTA, GAIN), "rkhs_bound must be a finite"),
        # delta / (4 d) = 0.0125 at d = 2: there the inner logarithm is 0
        (lambda: PriorEliminationContinuousWidth(2, 10, 1.0, 0.0125, 1.0, DELTA), "a must be above delta"),
        (lambda: SrinivasContinuousWidth(2, 1.0, 0.0125, 1.0, DELTA), "a must be above delta"),
    ],
)
def test_bad_parameters_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_may_be_as_small_as_leaves_the_inner_logarithm_positive():
    PriorEliminationContinuousWidth(2, 10, 1.0, 0.013, 1.0, DELTA)
    SrinivasContinuousWidth(2, 1.0, 0.013, 1.0, DELTA)


NOISE = 0.04
KERNEL = torch.eye(4, dtype=torch.float64) + 0.5


def policy(width, forgetting):
    model = ArmGP(4, KERNEL, NOISE, batch_shape=(2,))
    return IndexPolicy(model, UpperConfidenceBound, width=width, forgetting=forgetting)


def gain_of(n):
    return lambda points, model: model.noise_variance.new_tensor(float(points))


def test_a_window_is_read_from_the_rule():
    width = SlidingWindowWidth(horizon=100, gain=gain_of(1))
    for window in (3, 5):
        played = policy(width, SlidingWindow(window))
        expected = 1 + math.sqrt(2 * window + 2 * math.log(100 / 0.1))
        width_now = played.width(50, played.model)
        assert width_now.tolist() == pytest.approx([expected] * len(width_now))
    assert width.window is None  # one width serves both
    assert policy(width, LikelihoodWindow((4, 9))).width.window == 9
    around = policy(DriftAwareWidth(width, 0.3), SlidingWindow(3)).width
    assert around.base.window == 3
    assert around.drift == 0.3


def test_an_interval_is_read_from_the_rule():
    played = policy(RestartWidth(horizon=100), PeriodicRestart(30))
    assert played.width.num_intervals == 4
    told = policy(RestartWidth(4), PeriodicRestart(30))
    assert torch.equal(played.width(1, played.model), told.width(1, told.model))


@pytest.mark.parametrize(
    ("width", "forgetting", "message"),
    [
        (
            SlidingWindowWidth(50, 1000, noise_scale=0.7),
            SlidingWindow(200),
            "window of the width must be 200, .* got 50",
        ),
        (SlidingWindowWidth(50, 1000), LikelihoodWindow((4, 9)), "window of the width must be 9"),
        (
            SlidingWindowWidth(50, 1000),
            KeepEverything(),
            "window of the width must come from a forgetting rule",
        ),
        (SlidingWindowWidth(horizon=1000), None, "window of the width must come from a forgetting rule"),
        (
            DriftAwareWidth(SlidingWindowWidth(50, 1000), 0.1),
            SlidingWindow(20),
            "window of the width must be 20",
        ),
        (RestartWidth(3, horizon=100), PeriodicRestart(30), "num_intervals of the width must be 4, .* got 3"),
        (RestartWidth(horizon=100), SlidingWindow(30), "must come from a forgetting rule with an interval"),
    ],
)
def test_a_contradiction_is_refused_when_the_policy_is_built(width, forgetting, message):
    with pytest.raises(ValueError, match=message):
        policy(width, forgetting)


@pytest.mark.parametrize("width", [SlidingWindowWidth(horizon=9), RestartWidth(horizon=9)])
def test_a_width_that_was_told_nothing_says_so_alone(width):
    with pytest.raises(ValueError, match="must be given, or the width bound"):
        width(1, ArmGP(4, KERNEL, NOISE))


@pytest.mark.parametrize(
    "make",
    [
        lambda scale: IGPWidth(2.0, scale, 0.1, RealisedGain()),
        lambda scale: GPTSWidth(2.0, scale, 0.1, RealisedGain()),
        lambda scale: RestartWidth(2, 2.0, scale),
        lambda scale: SlidingWindowWidth(7, 20, 2.0, scale),
        lambda scale: RealisedInformationWidth(2.0, scale, 0.1),
    ],
)
def test_the_noise_scale_is_read_from_the_model_unless_told(make):
    model = ArmGP(4, KERNEL, NOISE)
    torch.testing.assert_close(make(None)(3, model), make(math.sqrt(NOISE))(3, model))
    assert float(make(0.7)(3, model)) > float(make(None)(3, model)) + 1


def test_recipes_leave_the_noise_to_the_model():
    """So a noise variance that is learned on the way is the width's, too."""
    played = recipes.sw_gp_ucb(4, KERNEL, NOISE, horizon=50, window=5)
    before = float(played.width(1, played.model))
    assert played.width.noise_scale is None
    assert played.width.window == 5
    assert before == float(
        recipes.sw_gp_ucb(4, KERNEL, 4 * NOISE, horizon=50, window=5).width(1, played.model)
    )


@pytest.mark.parametrize(
    "build",
    [
        lambda **own: recipes.pe_gp_ucb(4, [CandidatePrior(KERNEL)] * 2, NOISE, horizon=20, **own),
        lambda **own: recipes.bbkb(torch.rand(4, 1).double(), RBFKernel().double(), NOISE, **own),
    ],
)
def test_policies_that_forget_nothing_take_no_width_of_a_window(build):
    with pytest.raises(ValueError, match="window of the width must come from a forgetting rule"):
        build(width=SlidingWindowWidth(5, 20))


def test_a_width_that_comes_with_more_arms_is_bound_too():
    features = torch.linspace(0, 1, 4).double().unsqueeze(-1)
    model = ArmGP(features, RBFKernel().double(), NOISE)
    played = IndexPolicy(
        model, UpperConfidenceBound, width=SlidingWindowWidth(horizon=9), forgetting=SlidingWindow(3)
    )
    played.add_arms(torch.tensor([[2.0]]).double(), width=SlidingWindowWidth(horizon=99))
    assert played.width.window == 3


@pytest.mark.parametrize(
    "width",
    [
        DriftAwareWidth(SrinivasBayesianWidth(4, 0.1), 0.2),
        IGPWidth(1.0, 0.1, 0.1, gain=MaximumGain(torch.eye(4).double(), NOISE, 9)),
    ],
)
def test_a_width_made_for_the_present_arms_is_not_kept_for_more(width):
    features = torch.linspace(0, 1, 4).double().unsqueeze(-1)
    played = IndexPolicy(ArmGP(features, RBFKernel().double(), NOISE), UpperConfidenceBound, width=width)
    with pytest.raises(ValueError, match=r"width must be given: \w+ was made for the present arms, got None"):
        played.add_arms(torch.tensor([[2.0]]).double())
    assert played.num_arms == 4


def test_it_is_the_formula_over_pairs() -> None:
    model = OnlineGP(RBFKernel().double(), 0.1, input_dim=1)
    width = CGPUCBWidth(20, 40, 0.1)
    for step in (1, 7, 2000):
        expected = math.sqrt(2 * math.log(20 * 40 * step**2 * math.pi**2 / (6 * 0.1)))
        assert float(width(step, model)) == pytest.approx(expected, rel=1e-12)
        assert float(CGPUCBWidth(20, 1, 0.1)(step, model)) == float(
            SrinivasBayesianWidth(20, 0.1)(step, model)
        )


@pytest.mark.parametrize("nature", ["random", "where it has failed"])
def test_it_covers_at_all_pairs_even_where_contexts_are_chosen_against_it(nature) -> None:
    """400 draws over 4 arms x 5 contexts, delta .5, 25 steps: shares of draws with any failure at any pair. An
    adversary shows, at every step, the context of the largest error in standard deviations."""
    S, N, M, T, delta, noise = 400, 4, 5, 25, 0.5, 0.25
    draw = torch.Generator().manual_seed(0)
    arms, contexts = torch.rand(N, 1, generator=draw).double(), torch.rand(M, 1, generator=draw).double()
    kernel, width = RBFKernel().double(), CGPUCBWidth(N, M, delta)
    kernel.lengthscale = torch.tensor(0.3).double()
    pairs = torch.cat([arms.repeat_interleave(M, 0), contexts.repeat(N, 1)], -1)
    K = kernel(pairs[:, :1]).to_dense() * kernel(pairs[:, 1:]).to_dense()
    root = torch.linalg.cholesky(K.detach() + 1e-10 * torch.eye(N * M).double())
    f = torch.randn(S, N * M, generator=draw, dtype=torch.float64) @ root.T
    options = {"context_dim": 1, "context_kernel": kernel, "num_contexts": M, "delta": delta, "replicates": S}
    policy = recipes.cgp_ucb(arms, kernel, noise, **options)
    failed, narrow = torch.zeros(S, dtype=torch.bool), torch.zeros(S, dtype=torch.bool)
    for step in range(1, T + 1):
        moments = [policy.marginals(float(step), ArmContext(z)) for z in contexts]
        mean, deviation = (torch.stack(parts, -1).flatten(1) for parts in zip(*moments, strict=True))
        ratio = (f - mean).abs() / deviation.sqrt()
        failed |= (ratio > width(step, policy.model)).any(-1)
        narrow |= (ratio > 0.4 * width(step, policy.model)).any(-1)
        worst = ratio.reshape(S, N, M).amax(1).argmax(-1)
        number = worst if nature != "random" else torch.randint(M, (S,), generator=draw)
        choice = policy.choose(float(step), ArmContext(contexts[number]))
        reward = f[torch.arange(S), choice.arm * M + number]
        reward = reward + noise**0.5 * torch.randn(S, generator=draw, dtype=torch.float64)
        policy.learn(Observation(float(step), choice.arm, reward, choice.why))
    assert failed.double().mean() <= delta
    assert narrow.double().mean() > delta  # or the test sees nothing


def test_the_bias_of_precise_rewards_is_within_the_drift_aware_width():
    """Two rewards of a noise variance of their own, a hundredth of the model's, of a function that fell by 1 since."""
    model = ArmGP(1, torch.ones(1, 1, dtype=torch.float64), 1.0)
    for noise in (0.01, 0.04):
        reward = torch.ones((), dtype=torch.float64)
        model.observe_arms(torch.tensor(0), reward, noise_variance=torch.tensor(noise, dtype=torch.float64))
    mean, variance = model.marginals()
    width = DriftAwareWidth(ConstantWidth(0.0), 1.0)(3, model)
    assert float(mean) <= float(width * variance.sqrt())
    assert float(width) == pytest.approx(math.sqrt(1 / 0.01 + 1 / 0.04))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("igp_ucb", {}),
        ("gp_ts", {}),
        ("r_gp_ucb", {"horizon": 9, "interval": 5}),
        ("sw_gp_ucb", {"horizon": 9, "window": 5}),
        ("bbkb", {}),
        ("r_perp", {"horizon": 9, "interval": 5}),
    ],
)
def test_numbers_of_other_replicates_are_refused_where_the_policy_is_built(name, options):
    arms = torch.linspace(0, 1, 4, dtype=torch.float64).unsqueeze(-1)
    told = {"rkhs_bound": torch.ones(3).double(), "replicates": 1} | options
    with pytest.raises(
        ValueError, match=r"rkhs_bound must be a shape that broadcasts to batch_shape \(1,\), got \(3,"
    ):
        getattr(recipes, name)(arms, RBFKernel(), 0.1, **told)


def test_so_is_one_around_it():
    model = ArmGP(4, torch.eye(4, dtype=torch.float64), 0.1, batch_shape=(2,))
    width = DriftAwareWidth(IGPWidth(torch.ones(3).double(), R, DELTA, GAIN), 0.5)
    with pytest.raises(
        ValueError, match=r"rkhs_bound must be a shape that broadcasts to batch_shape \(2,\), got \(3,"
    ):
        IndexPolicy(model, UpperConfidenceBound, width=width)
