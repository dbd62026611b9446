"""form="auto" takes the cheaper form, and changes over without changing what is believed."""

import pandas as pd
import pytest
import torch

from bandits_torch import ArmGP, make, recipes, run
from bandits_torch.kernels import ExponentialForgettingKernel, SpatioTemporalKernel, WienerKernel
from bandits_torch.models.arms import belief
from bandits_torch.models.arms.belief import covariance_pays
from bandits_torch.problems.simulated import make_kernel

N = 300
ARMS = torch.linspace(0, 1, N, dtype=torch.float64).unsqueeze(-1)


@pytest.fixture(autouse=True)
def few_launches(monkeypatch):
    """The factor form of these arms is the cheaper one up to some dozens of points."""
    monkeypatch.setattr(belief, "LAUNCHES", 1_000)


def model(form="auto", noise=0.01, members=1, **options):
    return ArmGP(ARMS, make_kernel("matern", 0.02), noise, form=form, batch_shape=(members,), **options)


def pull(models, count, seed=0, window=None):
    """The same distinct arms and rewards to all; forgets what is older than the window."""
    random = torch.Generator().manual_seed(seed)
    members = models[0].batch_shape[0]
    order = torch.stack([torch.randperm(N, generator=random) for _ in range(members)])
    rewards = torch.randn(members, count, generator=random, dtype=torch.float64)
    for t in range(count):
        for one in models:
            one.observe_arms(order[:, t % N], rewards[:, t])
            if window is not None and t >= window:
                one.forget()


def agree(ours, theirs, tolerance=1e-9):
    for name in ("information_gain", "log_likelihood"):
        torch.testing.assert_close(getattr(ours, name), getattr(theirs, name), rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(ours.marginals(), theirs.marginals(), rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(ours.joint()[1], theirs.joint()[1], rtol=0, atol=tolerance)


# At a noise of 1e-4 the factor form itself is 3e-9 off a dense posterior; what it changes over to keeps that error.
@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("noise", "window", "tolerance"),
    [(0.01, None, 1e-9), (1e-4, None, 1e-8), (0.01, 150, 1e-9), (1.0, 150, 1e-9)],
)
def test_it_changes_over_when_so_many_arms_were_pulled_and_believes_the_same(noise, window, tolerance):
    auto, kept = model(noise=noise), model("covariance", noise=noise)
    assert auto._belief.form_name == "factor"
    pull([auto, kept], 170, window=window)
    assert auto._belief.form_name == "covariance"
    agree(auto, kept, tolerance)
    pull([auto, kept], 30, seed=1, window=0 if window is None else None)
    agree(auto, kept, tolerance)


def test_few_arms_pulled_over_and_over_leave_it_in_the_factor_form():
    auto = model()
    for t in range(200):
        auto.observe_arms(torch.tensor([t % 20]), torch.zeros(1, dtype=torch.float64))
    assert auto._belief.form_name == "factor"


def over_time(kernel, rate):
    return SpatioTemporalKernel(kernel, ExponentialForgettingKernel(rate)) if rate else kernel


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-3)])
@pytest.mark.parametrize("rate", [0.0, 0.03])
def test_a_replicate_alone_agrees_with_the_replicate_in_the_batch_though_they_change_at_other_times(
    rate, dtype, tolerance
):
    count = 2 * N if rate else N
    arms = torch.linspace(0, 1, count, dtype=dtype).unsqueeze(-1)
    kernel = over_time(make_kernel("matern", 0.05).to(dtype), rate)
    batch = ArmGP(arms, kernel, 0.1, batch_shape=(3,))
    alone = ArmGP(arms, kernel, 0.1, batch_shape=(1,))
    forms, reference = set(), ArmGP(arms, kernel, 0.1, batch_shape=(3,), form="covariance")
    random = torch.Generator().manual_seed(0)
    for t in range(220):
        arm = torch.randint(0, count, (3,), generator=random)
        arm[2] = arm[2] % 3  # few arms, of which its neighbours in the batch know nothing
        reward = torch.randn(3, generator=random, dtype=dtype)
        time = 2.0**-3 * t
        batch.observe_arms(arm, reward, time)
        reference.observe_arms(arm, reward, time)
        alone.observe_arms(arm[2:], reward[2:], time)
        forms.add((batch._belief.form_name, alone._belief.form_name))
        for a, b, c in zip(batch.marginals(), alone.marginals(), reference.marginals(), strict=True):
            torch.testing.assert_close(a[2:], b, rtol=tolerance, atol=tolerance)
            torch.testing.assert_close(a, c, rtol=tolerance, atol=tolerance)
    assert ("covariance", "factor") in forms
    assert alone._belief.form_name == "factor" or rate
    agree(batch, reference, 100 * tolerance if rate else 50 * tolerance)


def test_a_draw_takes_the_form_that_keeps_a_root():
    problem = make("gp", replicates=1, num_arms=N, seed=1)
    policy = recipes.build("gp_ts", problem, replicates=1, horizon=20)
    assert policy.model._belief.form_name == "factor"
    run(policy, problem, 3)
    assert policy.model._belief.form_name == "covariance"
    expected = recipes.build("gp_ts", problem, replicates=1, horizon=20, form="covariance")
    arms = run(expected, problem, 10).arms
    policy = recipes.build("gp_ts", problem, replicates=1, horizon=20)
    assert torch.equal(run(policy, problem, 10).arms, arms)


def test_under_drift_it_changes_over_exactly_and_not_once_it_forgets():
    arms = torch.linspace(0, 1, 2 * N, dtype=torch.float64).unsqueeze(-1)
    kernel = over_time(make_kernel("matern", 0.02), 0.03)
    for noise in (1.0, 1e-2, 1e-6):
        auto, kept, sliding, factor = (
            ArmGP(arms, kernel, noise, batch_shape=(1,), form=form)
            for form in ("auto", "covariance", "auto", "factor")
        )
        random = torch.Generator().manual_seed(1)
        for t in range(100):
            arm = torch.randint(0, len(arms), (1,), generator=random)
            reward = torch.randn(1, generator=random, dtype=torch.float64)
            for one in (auto, kept, sliding, factor):
                one.observe_arms(arm, reward, float(t))
            assert sliding._belief.form_name == "factor"
            for one in (sliding, factor):
                if t >= 40:
                    one.forget()
        assert auto._belief.form_name == "covariance"
        agree(auto, kept)
        agree(sliding, factor)


@pytest.mark.parametrize(("arms", "form"), [(N, "covariance"), (1_501, "factor")])
def test_a_variance_that_grows_with_time_goes_by_the_number_of_arms_for_good(arms, form):
    kernel = SpatioTemporalKernel(make_kernel("matern", 0.02), WienerKernel())
    auto = ArmGP(torch.linspace(0, 1, arms).double().unsqueeze(-1), kernel, 0.01, batch_shape=(1,))
    for t in range(70):
        auto.observe_arms(torch.tensor([t]), torch.zeros(1, dtype=torch.float64), float(t))
    assert auto._belief.form_name == form


@pytest.fixture
def pays(monkeypatch):
    """``covariance_pays`` by b, N, whether the model drifts, n and u, on a CPU in float64 unless told."""
    monkeypatch.undo()

    def told(members, arms, drifts, points, rows, **options):
        mean = torch.empty((), **{"dtype": torch.float64} | options).expand(members, arms)
        return covariance_pays(mean, drifts, points, rows)

    return told


@pytest.mark.parametrize("drifts", [False, True])
def test_few_arms_take_the_covariance_form_and_very_many_the_factor_form(pays, drifts):
    for dtype in (torch.float64, torch.float32):
        for members, arms in ((1, 100), (3, 40), (25, 100), (1, 1_000)):
            assert pays(members, arms, drifts, 1, 1, dtype=dtype)
        for members, arms in ((1, 10_000), (25, 2_500)):
            assert not pays(members, arms, drifts, 30, 30, dtype=dtype)


@pytest.mark.parametrize("drifts", [False, True])
def test_what_the_factor_form_holds_more_never_speaks_for_it(pays, drifts):
    for members in (1, 7, 60):
        for arms in (300, 1_000, 2_000, 4_000):
            told = torch.tensor(
                [
                    [pays(members, arms, drifts, n, u) for n in (1, 30, 90, 270, 800)]
                    for u in (1, 40, 160, 640)
                ]
            ).int()
            assert bool((told.diff(dim=0) >= 0).all())
            assert bool((told.diff(dim=1) >= 0).all())


def test_matrices_that_are_too_large_are_never_made(pays):
    for device in ("cpu", "meta"):
        for dtype, most in ((torch.float64, 2**14), (torch.float32, int(2**14.5))):
            assert pays(1, most, False, 10**5, 10**5, dtype=dtype, device=device)
            assert not pays(1, most + 1, False, 10**5, 10**5, dtype=dtype, device=device)
            assert not pays(4, most // 2 + 1, True, 10**5, 10**5, dtype=dtype, device=device)


def test_beside_a_cpu_the_covariance_form_is_taken_wherever_it_fits(pays):
    assert not pays(1, 9_000, False, 1, 1)
    assert pays(1, 9_000, False, 1, 1, device="meta")


def test_the_rule_takes_the_form_that_was_measured_to_be_faster_or_nearly_so(pays):
    """On the page of sizes that did not choose the rule. It is off by 1.17 and 1.21 at two, of 50 replicates."""
    frame = pd.read_csv("benchmarks/speed/results/cpu/form_choice.csv")
    over, forms = [], set()
    for row in frame.to_dict("records"):
        size = row["replicates"], row["arms"], row["drifts"], row["room"], row["rows"]
        form = "covariance" if pays(*size, dtype=getattr(torch, row["dtype"])) else "factor"
        over.append(row[f"{form}_seconds"] / min(row["covariance_seconds"], row["factor_seconds"]))
        forms.add(form)
    assert forms == {"covariance", "factor"}
    assert sum(each > 1.15 for each in over) <= 2
    assert max(over) < 1.25
