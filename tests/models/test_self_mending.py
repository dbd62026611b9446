"""Models over arms notice that rounding errors have grown, and rebuild themselves from what they hold."""

import pytest
import torch

from bandits_torch.kernels import ArmCovarianceKernel, ExponentialForgettingKernel, SpatioTemporalKernel
from bandits_torch.models.arms.arm_gp import ArmGP
from bandits_torch.models.arms.covariance_form import column_error, posterior_of_counts
from tests.reference.arm_gp_twins import smooth

N = 12
K = smooth(N, 0.3)
PRIORS = torch.stack([K, smooth(N, 0.2)])
F64 = torch.float64


def play(model, steps, window=None, seed=0, start=0):
    random = torch.Generator().manual_seed(seed)
    for step in range(start, start + steps):
        arm = torch.randint(N, model.batch_shape, generator=random)
        reward = torch.randn(model.batch_shape, generator=random, dtype=F64)
        reward = (model.noise_variance.double().sqrt() * reward).to(model.arms)
        model.observe_arms(arm, reward, float(step))
        if window is not None and step >= window:
            model.forget()


def relearned(model):
    """The same observations in a model of float64 that has never rebuilt itself."""
    kernel = model.prior.kernel
    fresh = ArmGP(
        N, kernel.double(), model.noise_variance.double(), form="covariance", batch_shape=model.batch_shape
    )
    fresh._belief._next_look = 10**9
    X = model.train_inputs[0].double()
    fresh.observe(X, model.train_targets.double().unsqueeze(-1))
    return fresh


def errors(model, other):
    now = model.now
    pairs = zip(model.joint(now), other.joint(now), strict=True)
    found = [float((one.double() - two).abs().max()) for one, two in pairs]
    gain = float((model.information_gain.double() - other.information_gain).abs().max())
    likelihood = model.log_likelihood.double() - other.log_likelihood
    return [*found, gain, float(likelihood.abs().max())]


def spoil(model, member=0):
    """Errors such as rounding makes, only larger."""
    form = model._belief.form
    held = form.covariance[member]
    noise = 1e-3 * torch.randn(held.shape, generator=torch.Generator().manual_seed(3), dtype=F64)
    form.covariance[member] += ((noise + noise.mT) * (held != 0)).to(held)
    form.mean[member] += 1e-3
    form.gain[member] += 1e-2


def drifting():
    return SpatioTemporalKernel(ArmCovarianceKernel(K), ExponentialForgettingKernel(0.01))


CASES = {
    "covariance": lambda: ArmGP(N, K, 0.1, form="covariance", batch_shape=(2,)),
    "covariance, priors": lambda: ArmGP(N, PRIORS, 0.1, form="covariance", batch_shape=(3, 2)),
    "factor": lambda: ArmGP(N, K, 0.1, form="factor", batch_shape=(2,)),
    "factor, priors": lambda: ArmGP(N, PRIORS, 0.1, form="factor", batch_shape=(3, 2)),
    "factor, drift": lambda: ArmGP(N, drifting(), 0.1, form="factor", batch_shape=(2,)),
}


@pytest.mark.parametrize("case", CASES)
def test_a_spoiled_member_is_rebuilt_and_the_others_left_alone(case):
    model = CASES[case]()
    play(model, 30)
    spoil(model, member=-1)
    form = model._belief.form
    others = [value[:-1].clone() for value in (form.mean, form.covariance)]
    assert max(errors(model, relearned(model))) > 1e-3
    model._belief._mend(model.now or 0.0, [True] * len(form.mean))
    assert max(errors(model, relearned(model))) < 1e-9
    for before, after in zip(others, (form.mean, form.covariance), strict=True):
        assert torch.equal(before, after[:-1])


def test_the_root_of_a_covariance_is_rebuilt_with_it():
    model = CASES["covariance"]()
    model.joint_root()  # keeps one from here on
    play(model, 30)
    spoil(model)
    model._belief.form.root[0] *= 1.001
    model._belief._mend(0.0, [True, False])
    _, root = model.joint_root()
    torch.testing.assert_close(root @ root.mT, relearned(model).joint()[1])


def test_a_spoiled_model_of_float32_is_rebuilt_to_its_precision():
    model = ArmGP(N, K, 0.1, form="covariance", dtype=torch.float32)
    play(model, 30)
    spoil(model)
    model._belief._mend(0.0, [True])
    mean, covariance, gain, _ = errors(model, relearned(model))
    assert max(mean, covariance, gain) < 1e-5


@pytest.mark.parametrize("case", CASES)
def test_a_spoiled_model_mends_itself_as_it_learns_and_one_with_its_state_at_the_same_time(case):
    model, other = CASES[case](), CASES[case]()
    play(model, 100)
    spoil(model)
    other.load_state_dict(model.state_dict())
    for start in (100, 150):  # the first looks come after 64 and 192 observations
        for one in (model, other):
            play(one, 50, start=start)
        exactly = {"rtol": 0, "atol": 0, "equal_nan": True}  # what is spoiled may be NaN
        torch.testing.assert_close(model.marginals(), other.marginals(), **exactly)
    assert max(errors(model, relearned(model))) < 1e-9


@pytest.mark.sampled(4)
@pytest.mark.parametrize("life", ["grows", "window", "reset"])
@pytest.mark.parametrize("case", CASES)
def test_a_sound_model_is_never_touched(case, life, monkeypatch):
    model, alone = CASES[case](), CASES[case]()
    monkeypatch.setattr(alone._belief, "_mend", lambda *_: None)
    for one in (model, alone):
        if life == "reset":
            play(one, 10)
            one.reset(torch.arange(one.batch_shape.numel()).reshape(one.batch_shape) == 0)
            play(one, 10, start=10)
            one.forget(3)
        else:
            play(one, 300, 20 if life == "window" else None)
    assert torch.equal(model.marginals()[0], alone.marginals()[0])
    if life != "reset":
        assert set(model._belief._pauses) == {256}  # doubled at each look: 64, 192, 448


@pytest.mark.parametrize("form", ["covariance", "factor"])
def test_an_outlier_that_leaves_the_window_is_reason_for_one_rebuild(form, monkeypatch):
    model = ArmGP(N, K, 0.1, form=form)
    play(model, 30, 20)
    rebuild, rebuilt = model._belief.form._rebuild, []
    monkeypatch.setattr(
        model._belief.form, "_rebuild", lambda *given: rebuilt.append(given[0]) or rebuild(*given)
    )
    model.observe_arms(torch.tensor(3), torch.tensor(1e5, dtype=F64))
    play(model, 60, 20, start=31)
    assert rebuilt == [0]


@pytest.mark.parametrize("form", ["covariance", "factor"])
def test_the_units_of_the_rewards_do_not_matter(form):
    model = ArmGP(N, 1e8 * K, 1e7, form=form)
    play(model, 300)
    assert model._belief._pauses == [256]


def test_looks_become_rarer_while_all_is_well_and_more_frequent_when_it_is_not():
    model = CASES["covariance"]()
    play(model, 200)
    pauses = [list(model._belief._pauses)]
    for _ in range(3):
        spoil(model)  # the first of the two members
        model._belief._mend(0.0, [True, True])
        pauses.append(list(model._belief._pauses))
    assert pauses == [[256, 256], [64, 512], [16, 1000], [16, 1000]]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("window", [None, 20])
@pytest.mark.parametrize("form", ["covariance", "factor"])
def test_float32_keeps_its_figures_for_a_thousand_steps(form, window):
    model = ArmGP(N, K, 0.01, form=form, dtype=torch.float32)
    play(model, 1000, window)
    mean, covariance, gain, _ = errors(model, relearned(model))
    assert max(mean, covariance) < 3e-5
    assert gain < 1e-3


@pytest.mark.sampled(5)
@pytest.mark.parametrize("noise_variance", [1e-10, 1e-6, 1e6])
@pytest.mark.parametrize("form", ["covariance", "factor"])
def test_windows_stay_exact_whatever_the_noise(form, noise_variance):
    """Without rebuilding the factor form is off by many powers of ten at 1e-10."""
    model = ArmGP(N, smooth(N, 0.1), noise_variance, form=form)
    play(model, 400, window=10)
    mean, covariance, gain, _ = errors(model, relearned(model))
    assert max(mean, covariance) < 1e-6
    assert gain < 1e-5


def test_column_error_is_the_error_of_a_column():
    count = torch.arange(N, dtype=F64)
    noise = torch.tensor(0.2, dtype=F64)
    exact = posterior_of_counts(K, count, torch.zeros(N, dtype=F64), noise)
    C = exact.among()[1].unsqueeze(0)
    off = 1e-5 * torch.randn(N, generator=torch.Generator().manual_seed(0), dtype=F64)
    column = C[:, 3] + off
    found = column_error(K[None, 3], K.unsqueeze(0), column, C, (count / noise).unsqueeze(0))
    torch.testing.assert_close(found[0], -off, rtol=1e-6, atol=1e-12)


def test_a_covariance_rounded_to_float32_is_projected():
    """Its smallest eigenvalues are below zero, and many pulls would make them count."""
    x = torch.linspace(0, 1, 40)
    rounded = torch.exp(-((x[:, None] - x) ** 2) / 2).double()
    assert torch.linalg.eigvalsh(rounded)[0] < 0
    count = torch.full((40,), 1e9, dtype=F64)
    exact = posterior_of_counts(rounded, count, count, torch.tensor(0.01, dtype=F64))
    mean, covariance = exact.among()
    assert torch.isfinite(mean).all()
    assert covariance.diagonal().min() > 0


@pytest.mark.parametrize("replicates", [1, 2])
def test_points_dropped_as_faint_are_no_reason_to_rebuild(replicates):
    """What they said of other faint points is lost to a rebuild, so there is none, and looks become rarer."""
    fast = SpatioTemporalKernel(ArmCovarianceKernel(K), ExponentialForgettingKernel(0.5))
    model = ArmGP(N, fast, 0.1, form="factor", batch_shape=(replicates,))
    play(model, 300)
    form = model._belief.form
    assert form._dropped_any
    assert set(model._belief._pauses) == {256}


def test_a_model_that_forgets_keeps_faint_points_and_learns_nothing_again(monkeypatch):
    fast = SpatioTemporalKernel(ArmCovarianceKernel(K), ExponentialForgettingKernel(0.5))
    model = ArmGP(N, fast, 0.1, form="factor")
    play(model, 5, 4)
    monkeypatch.setattr(model._belief, "relearn", lambda form: pytest.fail("learns everything again"))
    play(model, 400, 150, start=5)
    assert max(errors(model, relearned(model))) < 1e-9
