"""Recipes told the seconds since 1970: in float32 they play what they play from a clock that begins at 0."""

import functools

import pytest
import torch
from gpytorch.kernels import MaternKernel, PeriodicKernel, RBFKernel

from bandits_torch import ArmContext, AskTell, Domain, UpperConfidenceBound, load_policy, recipes, save_policy
from bandits_torch.kernels import (
    ExponentialForgettingKernel,
    MaternTimeKernel,
    PeriodicTimeKernel,
    PeriodKernel,
    QuasiPeriodicKernel,
    SpatioTemporalKernel,
    WienerKernel,
)
from bandits_torch.models import CandidatePrior, OnlineGP
from bandits_torch.policies import IndexPolicy, Observation

F32, F64 = torch.float32, torch.float64
CLOCK, MINUTE = 1.7e9, 60.0  # there float32 keeps every 128th second
RATE = 0.002  # per second: after a minute a correlation of .94
NOISE, N = 0.1, 9
SEARCH = {"num_restarts": 2, "raw_samples": 8, "options": {"maxiter": 5}}
# Whose kernel has no part over time, or brings it.
STATIC = {"auto", "ui_gp_ucb", "r_perp", "a_gp_ucb", "lb_gp_ucb", "cgp_ucb", "bkb", "bbkb", "w_gp_ucb"}
STATIC |= {"ada_opkb_calibrated"}


def space(dtype, lengthscale=0.3):
    kernel = RBFKernel().to(dtype)
    kernel.lengthscale = lengthscale
    return kernel.requires_grad_(False)


def choices(over, dtype, dim=1):
    if over == "points":
        return Domain(torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=dtype))
    return torch.rand(N, dim, generator=torch.Generator().manual_seed(0), dtype=F64).to(dtype)


def build(name, over, dtype, start, **told):
    """A policy of the recipe, over rewards that drift if it may be told so."""
    about = recipes.registered(name)
    options = {"forgetting_rate": RATE, "horizon": 30, "start": start} | {
        "search": SEARCH if over == "points" else None,
        "context_dim": int(over == "contexts"),
        "context_kernel": space(dtype, 0.5) if over == "contexts" else None,
    }
    options = dict(about.quick) | {key: value for key, value in options.items() if key in about.options}
    kernel = space(dtype)
    if name not in STATIC and "forgetting_rate" not in about.options:
        kernel = SpatioTemporalKernel(kernel, ExponentialForgettingKernel(RATE))
    priors = [CandidatePrior(space(dtype, scale), forgetting_rate=RATE) for scale in (0.2, 0.5)]
    belief = {None: (), "kernel": (kernel, NOISE), "priors": (priors, NOISE), "prior": (priors[0], NOISE)}
    # Of fewer features float32 finds the kernel of a network not positive semi-definite.
    dim = 3 if "opnn" in name else 1
    if "time_kernel" in told:
        told["time_kernel"] = told["time_kernel"](start)
    told = {key: value.to(dtype) if isinstance(value, torch.Tensor) else value for key, value in told.items()}
    return about.call(choices(over, dtype, dim), *belief[about.belief], **options | told)


def context_of(over, step, dtype):
    return ArmContext(torch.tensor([step % 3 / 4], dtype=dtype)) if over == "contexts" else None


def reward(arm, step):
    place = arm if arm.dim() == 1 else 4 * arm.sum(-1)
    return torch.sin(1.7 * place.double() + 0.3 * step)


def predicted(live, over, time, step, dtype):
    """Mean and deviation of all arms, or of five points, a minute and ten minutes later; None: it predicts nothing."""
    if not hasattr(getattr(live.policy, "innermost", live.policy), "marginals"):
        return None
    drawn = torch.rand(5, 2, generator=torch.Generator().manual_seed(0)).to(dtype)
    told = {"points": drawn if over == "points" else None, "context": context_of(over, step, dtype)}
    return torch.stack([torch.stack(live.predict(time + late, **told)) for late in (MINUTE, 10 * MINUTE)])


def gpytorchs(cls, **settings):
    kernel = cls().double()
    kernel.initialize(**settings)
    return kernel.requires_grad_(False)


TIME_KERNELS = {
    "Matern": lambda start: MaternTimeKernel(300.0, 1.5),
    "periodic": lambda start: PeriodicTimeKernel(500.0),
    "quasi-periodic": lambda start: QuasiPeriodicKernel(500.0, memory=3000.0, order=2),
    "cycle and drift": lambda start: PeriodicTimeKernel(500.0) + MaternTimeKernel(900.0),
    "Wiener": lambda start: WienerKernel(0.001, start=start),
    "GPyTorch's Matern": lambda start: gpytorchs(MaternKernel, lengthscale=300.0),
    "GPyTorch's periodic": lambda start: gpytorchs(PeriodicKernel, period_length=500.0),
    "GPyTorch's squared exponential": lambda start: gpytorchs(RBFKernel, lengthscale=300.0),
    "Wiener and Matern": lambda start: WienerKernel(0.001, start=start) + MaternTimeKernel(300.0),
}
STATELESS = ("GPyTorch's squared exponential", "Wiener and Matern")  # not over arms
OF_TIME = (("tv_gp_ucb", "arms"), ("tv_gp_ucb", "points"), ("tv_cgp_ucb", "contexts"))
FITS = {"first": 2, "every": 3}
OPTIONS = {
    "W-DBO": ("tv_gp_ucb", "points", {"stale": "wasserstein"}),
    "stale": ("tv_gp_ucb", "points", {"forgetting_rate": 0.02, "stale": 0.1}),
    "stale, contexts": ("tv_cgp_ucb", "contexts", {"forgetting_rate": 0.02, "stale": 0.1}),
    "listed contexts": ("tv_cgp_ucb", "contexts", {"contexts": torch.tensor([[0.0], [0.25], [0.5]])}),
    "learned, arms": ("tv_gp_ucb", "arms", {"learn_hyperparameters": FITS}),
    "learned, points": ("tv_gp_ucb", "points", {"learn_hyperparameters": FITS}),
    "learned, restarts": ("et_gp_ucb", "points", {"learn_hyperparameters": FITS}),
    "learned priors": ("pe_gp_ucb", "points", {"learn_hyperparameters": FITS}),
    "likelihood window, arms": ("sw_gp_ucb", "arms", {"window": {"candidates": (2, 4), "every": 2}}),
    "likelihood window, points": ("sw_gp_ucb", "points", {"window": {"candidates": (2, 4), "every": 2}}),
    "incumbent reward": ("gp_ei", "points", {"incumbent": "reward"}),
    "factor": ("tv_gp_ucb", "arms", {"form": "factor"}),
    "replicates": ("gp_ei", "points", {"replicates": 2}),
}


CASES = OPTIONS | {
    f"{name}, {over}": (name, over, {})
    for name in recipes.RECIPES
    for over in ("arms", "points", "contexts")
    if over == "arms" or getattr(recipes.registered(name), over)
}
CASES |= {
    f"{kernel}, {over}": (name, over, {"time_kernel": made})
    for kernel, made in TIME_KERNELS.items()
    for name, over in OF_TIME
    if over != "arms" or kernel not in STATELESS
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("label", CASES)
def test_in_float32_a_recipe_plays_from_any_clock_what_it_plays_from_0(label, tmp_path):
    """Asked and told from a clock of 0 and from one of seconds since 1970, which is saved and taken up on the way: the
    same choices, the same predictions, and those of float64 of the same rewards."""
    name, over, told = CASES[label]
    steps, tolerance = (6, 2e-3) if label in OPTIONS else (4, 1e-3)
    tolerance = 1.0 if "learn" in label else tolerance  # fits of float32 and of float64 end in other places
    near, far = AskTell(build(name, over, F32, 0.0, **told)), AskTell(build(name, over, F32, CLOCK, **told))
    reference = build(name, over, F64, 0.0, **told)
    for step in range(steps):
        if step == steps // 2:
            save_policy(tmp_path / "far", far)
            far = AskTell(build(name, over, F32, CLOCK, **told))
            load_policy(tmp_path / "far", far)
        time, context = step * MINUTE, context_of(over, step, F32)
        one, other = near.ask(time, context), far.ask(CLOCK + time, context)
        torch.testing.assert_close(one.arm, other.arm, rtol=0, atol=1e-6)
        own = reference.choose(time, context_of(over, step, F64))
        why = dict(own.why)
        if "inputs" in why:  # of the arm that is told
            why["inputs"] = near._open[one.id].why["inputs"].double()
        earned = reward(one.arm, step)
        reference.learn(Observation(time, one.arm.to(own.arm.dtype), earned, why))
        near.tell(one.id, earned)
        far.tell(other.id, earned)
    said = predicted(near, over, time, step, F32)
    if said is not None:
        torch.testing.assert_close(predicted(far, over, CLOCK + time, step, F32), said, rtol=0, atol=1e-6)
        right = predicted(AskTell(reference), over, time, step, F64)
        torch.testing.assert_close(said.double(), right, rtol=0, atol=tolerance)


@pytest.mark.parametrize("drifts", [False, True])
def test_periods_named_by_the_seconds_in_which_they_begin_stay_apart(drifts):
    """Offsets of 5 and -5 of two periods a minute apart, which float32 would take for one."""
    told = {"context_dim": 1, "context_kernel": PeriodKernel(100.0), "combine": "sum"}
    told |= {"forgetting_rate": 1e-6} if drifts else {}
    build = recipes.tv_cgp_ucb if drifts else recipes.cgp_ucb
    live = AskTell(build(choices("arms", F32), space(F32), 0.01, **told))
    periods = [ArmContext(torch.tensor([CLOCK + late], dtype=F64)) for late in (0.0, MINUTE)]
    for step in range(6):
        question = live.ask(CLOCK + MINUTE * (step // 3), periods[step // 3])
        live.tell(question.id, 5.0 if step < 3 else -5.0)
    for period, offset in zip(periods, (5.0, -5.0), strict=True):
        mean, _ = live.predict(CLOCK + MINUTE, context=period)
        assert (mean - offset).abs().max() < 0.5


def test_listed_contexts_that_float32_takes_for_one_are_refused():
    contexts = torch.tensor([[CLOCK], [CLOCK + MINUTE]], dtype=F64)
    told = {"context_dim": 1, "context_kernel": PeriodKernel(100.0), "contexts": contexts}
    assert recipes.cgp_ucb(choices("arms", F64), space(F64), 0.1, **told).num_arms == N
    with pytest.raises(ValueError, match=r"contexts must be different from each other in torch\.float32"):
        recipes.cgp_ucb(choices("arms", F32), space(F32), 0.1, **told)


@pytest.mark.parametrize("over", ["arms", "points"])
def test_an_acquisition_of_botorch_leaves_the_dtype_of_the_policy_s_model(over):
    """They move the model that they hold to the dtype of their inputs, whose times are in float64."""
    policy = build("gp_ei", over, F32, 0.0)
    for step in range(3):
        choice = policy.choose(step * MINUTE)
        policy.learn(Observation(step * MINUTE, choice.arm, torch.ones(1), choice.why))
        assert policy.model.noise_variance.dtype == F32
        assert over == "arms" or choice.arm.dtype == policy.model.train_targets.dtype == F32


@pytest.mark.parametrize("over", ["arms", "points"])
def test_a_kernel_over_time_that_is_no_part_of_a_spatiotemporal_one_is_refused_where_float32_is_too_short(
    over,
):
    """Columns that are multiplied in float32, as GPyTorch's own products are."""

    def policy(dtype):
        kernel = RBFKernel(active_dims=[0]) * RBFKernel(active_dims=[1])
        kernel.kernels[1].lengthscale = 600.0
        model = OnlineGP(kernel.requires_grad_(False), NOISE, input_dim=2, dtype=dtype)
        domain = Domain(torch.tensor([[0.0], [1.0]], dtype=dtype))
        ucb = functools.partial(UpperConfidenceBound, width=2.0)
        return IndexPolicy(model, ucb, choices=domain if over == "points" else choices("arms", dtype))

    for dtype, start in ((F32, 0.0), (F64, CLOCK)):
        one = policy(dtype)
        for step in range(2):
            arm = one.choose(start + step * MINUTE).arm
            one.learn(Observation(start + step * MINUTE, arm, torch.ones(1)))
    one, arm = policy(F32), arm.float() if over == "points" else arm
    for refused in (
        lambda: one.choose(CLOCK),
        lambda: one.learn(Observation(CLOCK, arm, torch.ones(1))),
        lambda: one.predict(arm, CLOCK),
    ):
        with pytest.raises(ValueError, match=r"time must be at most 2\^24 for a model of float32"):
            refused()
    assert int(one.model.num_observations.max()) == 0


@pytest.mark.parametrize("lengthscale", [0.3, 5.0])
def test_widths_over_float32_rest_on_differences_of_float64(lengthscale):
    """The steepest derivative under the prior, by a difference a millionth as large as the covariances, or less."""
    widths = []
    for dtype in (F32, F64):
        policy = recipes.gp_ucb(choices("points", dtype), space(dtype, lengthscale), NOISE)
        policy.choose(0.0)
        widths.append(float(policy.trace()["width"]))
    assert widths[0] == pytest.approx(widths[1], rel=1e-5)
