"""Hyperparameters learned: towards the truth, as BoTorch would, each member its own, and the model rebuilt exactly."""

import math
from functools import partial

import pytest
import torch
from botorch.exceptions import ModelFittingError
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from gpytorch.constraints import Interval
from gpytorch.kernels import MaternKernel, PeriodicKernel, RBFKernel, ScaleKernel
from gpytorch.means import ConstantMean, LinearMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.priors import GammaPrior, LogNormalPrior
from linear_operator.utils.errors import NanError, NotPSDError

from bandits_torch import Domain, recipes
from bandits_torch.kernels import (
    ExponentialForgettingKernel,
    SpatioTemporalKernel,
    StackedKernel,
    WienerKernel,
)
from bandits_torch.models import (
    ArmGP,
    CandidatePrior,
    LeverageSampling,
    OnlineGP,
    SketchedGP,
    hyperparameters,
)
from bandits_torch.models.hyperparameters import fit_hyperparameters, held_data, learnable
from bandits_torch.policies import Observation
from bandits_torch.state import differing
from tests.fuzz.living import state_of
from tests.reference.kernels import rbf, scaled


def kernel_of(lengthscale=0.3, rate=None):
    space = rbf(lengthscale)
    if rate is None:
        return space
    return SpatioTemporalKernel(space, ExponentialForgettingKernel(rate))


def draw_of(kernel, X, noise, seed=0):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        root = torch.linalg.cholesky(kernel(X).to_dense() + noise * torch.eye(len(X)).double())
    return root @ torch.randn(len(X), 1, generator=generator, dtype=torch.float64)


def inputs_of(n, d=2, over_time=False, seed=0):
    X = torch.rand(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.cat([X, torch.arange(n).double().unsqueeze(-1)], -1) if over_time else X


def model_over(kernel, batch_shape=(), noise=0.1, d=2):
    return OnlineGP(kernel, noise, input_dim=d, batch_shape=batch_shape)


def members_over(kernel, *batch, d, noise=0.1):
    """A model whose members have a noise variance and a prior mean each."""
    noise, mean = (
        torch.full(batch, noise, dtype=torch.float64),
        ConstantMean(batch_shape=torch.Size(batch)).double(),
    )
    return OnlineGP(kernel, noise, prior_mean=mean, input_dim=d, batch_shape=batch)


def values_of(model, X):
    with torch.no_grad():
        posterior = model.posterior(X.unsqueeze(-2))
        return posterior.mean, posterior.variance


def test_the_optimum_is_no_worse_than_botorch_finds_by_itself():
    """The same posterior density of the hyperparameters, maximised from the same start without us."""
    X = inputs_of(40)
    y = draw_of(kernel_of(0.3), X, 0.05)
    start = learnable(kernel_of(0.5), 2)
    model = model_over(start, noise=0.1)
    model.observe(X, y)
    fit_hyperparameters(model, [0])
    fitted = SingleTaskGP(X, y, covar_module=learnable(kernel_of(0.5), 2), outcome_transform=None)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(fitted.likelihood, fitted))
    theirs = model_over(learnable(kernel_of(0.5), 2), noise=fitted.likelihood.noise.item())
    theirs.kernel.load_state_dict(fitted.covar_module.state_dict())
    theirs.prior_mean.constant.data.copy_(fitted.mean_module.constant.data)
    theirs.observe(X, y)
    assert model.log_likelihood == pytest.approx(float(theirs.log_likelihood), abs=0.5)


@pytest.mark.parametrize("replicates", [1, 2])
@pytest.mark.parametrize("seen", [None, (1,)])
def test_a_fit_is_the_same_in_any_units_of_inputs_and_rewards(replicates, seen):
    X = inputs_of(40, over_time=True)
    y, found = draw_of(kernel_of(0.3, 0.05), X, 0.05), []
    for unit, units in ((1.0, [1, 1]), (1.0, [2.0**14, 2.0**-14]), (2.0**20, [1, 1]), (2.0**-20, [1, 1])):
        units = torch.tensor(units).double()
        space = MaternKernel(nu=2.5, ard_num_dims=1 if seen else 2, active_dims=seen).double()
        space.lengthscale = 0.5 * units[[*seen]] if seen else 0.5 * units
        kernel = SpatioTemporalKernel(scaled(space, unit**2), ExponentialForgettingKernel(0.1))
        kernel = learnable(kernel, 2, replicates, ranges=1.2 * units)
        batch = [2] if replicates == 2 else []
        model = members_over(kernel, *batch, d=3, noise=0.1 * unit**2)
        model.observe(X * torch.cat([units, torch.ones(1).double()]), unit * y)
        assert fit_hyperparameters(model, range(replicates)) == [*range(replicates)]
        space = model.kernel.space_kernel
        scales = space.base_kernel.lengthscale / (units[[*seen]] if seen else units)
        rates, noise = model.kernel.time_kernel.forgetting_rate, model.noise_variance / unit**2
        learned = scales, rates, space.outputscale / unit**2, noise, model.prior_mean.constant / unit
        found.append([value.detach() for value in learned])
    assert (found[0][0] - 0.5).abs().max() > 0.05  # it did learn
    for others, tolerance in zip(found[1:], (1e-6, 1e-4, 1e-4), strict=True):
        for one, other in zip(found[0], others, strict=True):
            torch.testing.assert_close(other, one, rtol=tolerance, atol=1e-3 * tolerance)


def test_a_kernel_with_a_prior_for_each_length_scale_is_fitted_as_it_is():
    X, found = inputs_of(30), []
    y = draw_of(kernel_of(0.4), X, 0.01)
    for loc in (torch.tensor(1.4), torch.tensor([1.4, 1.4])):
        space = MaternKernel(ard_num_dims=2, lengthscale_prior=LogNormalPrior(loc.double(), 1.0)).double()
        space.lengthscale = 0.5
        model = model_over(ScaleKernel(space).double())
        model.observe(X, y)
        assert fit_hyperparameters(model, [0]) == [0]
        found.append(model.kernel.base_kernel.lengthscale.detach())
    assert (found[0] - 0.5).abs().min() > 0.05  # it did learn
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=0)


def time_kernel_of(name, unit):
    lasting = RBFKernel() if name == "squared exponential" else MaternKernel(nu=1.5)
    lasting = lasting.double()
    lasting.lengthscale = 20.0 * unit
    rate = -torch.expm1(torch.log1p(torch.tensor(-0.03).double()) / unit)
    if name == "exponential":
        return ExponentialForgettingKernel(rate)
    if name == "Wiener":
        return WienerKernel(0.01 / unit)
    if name == "periodic":
        cycle = PeriodicKernel().double()
        cycle.period_length = 10.4 * unit
        return cycle
    if name == "sum":
        return ScaleKernel(lasting).double() + ScaleKernel(ExponentialForgettingKernel(rate)).double()
    return lasting


@pytest.mark.parametrize(
    "name", ["exponential", "Wiener", "squared exponential", "Matern", "periodic", "sum"]
)
def test_a_fit_is_the_same_in_any_unit_of_time(name):
    X, found = inputs_of(60, over_time=True), []
    cycle = PeriodicKernel().double()
    cycle.period_length = 10.0
    truth = cycle if name == "periodic" else ExponentialForgettingKernel(0.1)
    y = draw_of(SpatioTemporalKernel(kernel_of(0.4), truth), X, 0.01)
    for unit in (1.0, 2.0**22, 2.0**-3):
        model = model_over(
            learnable(SpatioTemporalKernel(kernel_of(0.4), time_kernel_of(name, unit)), 2), d=3, noise=0.01
        )
        model.observe(X * torch.tensor([1.0, 1.0, unit]).double(), y)
        before = model.kernel.time_kernel(unit * X[:9, -1:]).to_dense().detach()
        assert fit_hyperparameters(model, [0]) == [0]
        learned = model.kernel.time_kernel(unit * X[:9, -1:]).to_dense()
        assert (learned - before).abs().max() > 1e-3
        found.append(float(model.log_likelihood))
    assert found == pytest.approx(found[:1] * 3, abs=0.5)


@pytest.mark.parametrize("of", ["domain", "features"])
def test_a_policy_that_learns_plays_alike_over_ranges_of_any_size(of):
    played = []
    for unit in (1.0, 2.0**14, 2.0**-14):
        box = torch.tensor([[0.0, 0.0], [1.0, 1.0]]).double() * unit
        choices = Domain(box) if of == "domain" else unit * inputs_of(50)
        kernel = RBFKernel().double()
        kernel.lengthscale = 0.5 * unit
        learn = {"first": 4, "every": 4}
        policy = recipes.gp_ucb(choices, kernel, 0.01, width=2.0, learn_hyperparameters=learn, seed=1)
        for step in range(14):
            choice = policy.choose(float(step))
            point = choice.arm / unit if of == "domain" else choices[choice.arm] / unit
            reward = torch.sin(7 * point[:, 0]) - 4 * (point - 0.6).square().sum(-1)
            policy.learn(Observation(float(step), choice.arm, reward, choice.why))
        played.append(point)
    torch.testing.assert_close(played[1], played[0], rtol=0, atol=0.02)
    torch.testing.assert_close(played[2], played[0], rtol=0, atol=0.02)


def learned_rate(X, y, with_prior):
    model = model_over(learnable(kernel_of(0.3, 0.05), 2), d=3)
    if not with_prior:
        del model.kernel.time_kernel._priors["decay_prior"]
    model.observe(X, y)
    fit_hyperparameters(model, [0])
    return model.kernel.time_kernel.forgetting_rate.item()


def test_the_prior_keeps_a_rate_from_collapsing_to_0_or_to_1():
    """A function that never changes asks for eps = 0, one that is another at every step for eps = 1."""
    X = inputs_of(60, over_time=True)
    static = draw_of(kernel_of(0.3), X[:, :2], 1e-4)
    assert learned_rate(X, static, with_prior=False) < 5e-6
    assert learned_rate(X, static, with_prior=True) > 2e-5
    X[:, :2] = 0.5  # the same place again and again: all of the change is over time
    restless = torch.randn(60, 1, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    free, held = (learned_rate(X, restless, with_prior) for with_prior in (False, True))
    assert held < free
    assert 0.05 < held < 0.999


def test_lengthscales_have_botorch_s_dimension_scaled_prior():
    for d in (1, 4):
        base = learnable(kernel_of(), d).base_kernel
        assert base.lengthscale.shape == (1, d)
        assert base.lengthscale_prior.loc.item() == pytest.approx(math.sqrt(2) + 0.5 * math.log(d))
        assert base.lengthscale_prior.scale.item() == pytest.approx(math.sqrt(3))


def learned(X, y, anisotropy=0.3):
    model = model_over(learnable(kernel_of(0.5), X.shape[-1], 1, anisotropy), noise=0.01, d=X.shape[-1])
    model.observe(X, y)
    assert fit_hyperparameters(model, [0]) == [0]
    return model


def lengthscales_of(model):
    return model.kernel.base_kernel.lengthscale.detach().flatten()


def test_lengthscales_stay_together_until_rewards_tell_them_apart():
    """A dozen rewards in five dimensions are explained by some of them, if a fit is free to leave the others out."""
    few = inputs_of(12, d=5)
    apart = [[], []]
    for seed in range(3):
        y = draw_of(kernel_of(0.6), few, 0.01, seed)
        for which, anisotropy in enumerate((0.3, math.inf)):
            lengthscales = lengthscales_of(learned(few, y, anisotropy))
            apart[which].append(float(lengthscales.max() / lengthscales.min()))
    assert max(apart[0]) < 2
    assert min(apart[1]) > 3
    many = inputs_of(80)
    y = draw_of(kernel_of(0.2), many[:, :1], 0.01)  # of the first coordinate alone
    lengthscales = lengthscales_of(learned(many, y))
    assert lengthscales[1] > 4 * lengthscales[0]


def test_recipes_pass_the_anisotropy_on():
    domain, kernel = Domain(torch.tensor([[0.0] * 2, [1.0] * 2]).double()), kernel_of()
    options = {"learn_hyperparameters": {"anisotropy": 0.7, "every": 9}}
    one = recipes.gp_ucb(domain, kernel, 0.1, **options)
    several = recipes.pe_gp_ucb(domain, [CandidatePrior(kernel)], 0.1, horizon=9, **options)
    for policy, own in ((one, one.model.kernel), (several, several.model.kernel.kernels[0])):
        prior, _, _ = own.base_kernel._priors["anisotropy_prior"]
        assert (policy.every, prior.scale.item()) == (9, pytest.approx(0.7))


def test_the_prior_on_unlike_lengthscales_has_nothing_against_long_ones_or_short():
    base = learnable(kernel_of(0.3), 3).base_kernel
    prior, ratio, set_ratio = base._priors["anisotropy_prior"]
    assert float(prior.mode) == pytest.approx(1.0)
    base.lengthscale = torch.tensor([0.2, 0.4, 0.8])
    before = ratio(base)
    assert before.flatten().tolist() == pytest.approx([0.5, 1.0, 2.0])
    base.lengthscale = 3.0 * base.lengthscale
    torch.testing.assert_close(ratio(base), before)
    set_ratio(base, torch.ones(1, 3))
    assert base.lengthscale.flatten().tolist() == pytest.approx([1.2] * 3)
    assert "anisotropy_prior" not in learnable(kernel_of(0.3), 1).base_kernel._priors


def test_what_is_learnable_begins_as_the_kernel_given():
    X = inputs_of(6, over_time=True)
    matern = MaternKernel(nu=1.5).double()
    matern.lengthscale = 0.4
    smooth = MaternKernel(nu=2.5).double()
    smooth.lengthscale = 7.0
    rates, batch = torch.tensor([0.1, 0.3, 0.5]).double(), {"batch_shape": torch.Size([3])}
    for kernel, several in (
        (SpatioTemporalKernel(matern, WienerKernel(0.02)), (1, 3)),
        (SpatioTemporalKernel(scaled(kernel_of(0.3), 3.0), smooth), (1, 3)),
        (kernel_of(0.3, 0.05), (1, 3)),
        (kernel_of(0.3, 1e-15), (1, 3)),
        # every replicate at its own rate
        (SpatioTemporalKernel(kernel_of(0.3), ExponentialForgettingKernel(rates, **batch)), (3,)),
        (SpatioTemporalKernel(kernel_of(0.3), WienerKernel(rates, **batch)), (3,)),
    ):
        for replicates in several:
            actual, expected = learnable(kernel, 2, replicates)(X).to_dense(), kernel(X).to_dense()
            torch.testing.assert_close(actual, expected.expand_as(actual), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("members", [[0, 1, 2], [1]])
def test_a_refitted_model_is_one_built_anew_with_the_same_hyperparameters(members):
    X = torch.stack([inputs_of(20, over_time=True, seed=s) for s in range(3)])
    y = torch.stack([draw_of(kernel_of(0.2 + 0.2 * s, 0.05), X[s], 0.05, s) for s in range(3)])
    model = members_over(learnable(kernel_of(0.5, 0.1), 2, 3), 3, d=3)
    model.observe(X, y)
    before = values_of(model, X[:, :4].movedim(1, 0))
    assert fit_hyperparameters(model, members) == members
    anew = OnlineGP(
        model.kernel, model.noise_variance, prior_mean=model.prior_mean, input_dim=3, batch_shape=(3,)
    )
    anew.observe(X, y)
    test = torch.cat([torch.rand(5, 3, 2), torch.full((5, 3, 1), 21.0)], -1).double()
    torch.testing.assert_close(values_of(model, test), values_of(anew, test), rtol=0, atol=1e-8)
    torch.testing.assert_close(model.log_likelihood, anew.log_likelihood, rtol=0, atol=1e-7)
    after = values_of(model, X[:, :4].movedim(1, 0))
    for k in range(3):
        assert torch.equal(before[0][:, k], after[0][:, k]) == (k not in members)


def test_a_member_is_fitted_as_it_would_be_alone():
    X = inputs_of(15)
    y = torch.stack([draw_of(kernel_of(0.2), X, 0.05, s) for s in range(2)])
    together = members_over(learnable(kernel_of(), 2, 2), 2, d=2)
    together.observe(X, y)
    fit_hyperparameters(together, [0, 1])
    for k in range(2):
        alone = model_over(learnable(kernel_of(), 2))
        alone.observe(X, y[k])
        fit_hyperparameters(alone, [0])
        ours, own = together.kernel.base_kernel.lengthscale[k], alone.kernel.base_kernel.lengthscale
        torch.testing.assert_close(ours, own, rtol=1e-6, atol=0)
        torch.testing.assert_close(together.noise_variance[k], alone.noise_variance, rtol=1e-6, atol=0)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("rate", [None, 0.1])
@pytest.mark.parametrize("form", ["covariance", "factor"])
def test_arms_learn_what_points_learn(form, rate):
    """An ArmGP over 12 arms and an OnlineGP over their features, the same data: the same fit, the same posterior."""
    arms, d = inputs_of(12), 2 + (rate is not None)
    index = torch.randint(12, (30,), generator=torch.Generator().manual_seed(1))
    times = torch.arange(30).double()
    X = torch.cat([arms[index], times.unsqueeze(-1)], -1)[:, :d]
    y = draw_of(kernel_of(0.3, rate), X, 0.05)
    over_arms = ArmGP(arms, learnable(kernel_of(0.5, rate), 2), 0.1, form=form)
    over_points = model_over(learnable(kernel_of(0.5, rate), 2), d=d)
    for k in range(30):
        over_arms.observe_arms(index[k], y[k, 0], float(times[k]))
    over_points.observe(X, y)
    torch.testing.assert_close(held_data(over_arms, 0)[0], held_data(over_points, 0)[0])
    fit_hyperparameters(over_arms, [0])
    fit_hyperparameters(over_points, [0])
    torch.testing.assert_close(
        over_arms.noise_variance.reshape(()), over_points.noise_variance, rtol=1e-4, atol=0
    )
    now = torch.cat([arms, torch.full((12, 1), 31.0).double()], -1)[:, :d]
    mean, variance = values_of(over_points, now)
    ours = over_arms.marginals(31.0)
    torch.testing.assert_close(ours[0], mean[:, 0, 0], rtol=0, atol=1e-4)
    torch.testing.assert_close(ours[1], variance[:, 0, 0], rtol=0, atol=1e-4)


def test_members_under_several_priors_are_fitted_with_the_arms_of_their_replicate():
    arms = torch.rand(3, 1, 5, 2).double()  # replicates, priors
    model = ArmGP(arms, RBFKernel(batch_shape=torch.Size([2])).double(), 0.1)
    model.observe_arms(torch.tensor(4), torch.tensor(0.5).double())
    for member in range(6):
        X, y = held_data(model, member)
        assert torch.equal(X, arms[member // 2, 0, 4:])
        assert y.tolist() == [0.5]


def test_arms_of_different_prior_means_keep_their_differences():
    """As if rewards were counted from these means."""
    arms, means = inputs_of(5), torch.tensor([[0.5, 3.0, -1.0, 2.0, 0.0]] * 2).double()
    own = ArmGP(arms, learnable(kernel_of(), 2, 2), 0.1, prior_mean=means)
    plain = ArmGP(arms, learnable(kernel_of(), 2, 2), 0.1, prior_mean=0.5)
    for k in range(15):
        arm, reward = torch.tensor([k % 5, k % 4]), torch.sin(torch.tensor([k, 2.0 * k])).double()
        own.observe_arms(arm, reward + means[0, arm])
        plain.observe_arms(arm, reward + 0.5)
    assert fit_hyperparameters(own, [0]) == fit_hyperparameters(plain, [0]) == [0]
    torch.testing.assert_close(own.prior_mean - means, plain.prior_mean - 0.5, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(own.noise_variance, plain.noise_variance, rtol=1e-5, atol=0)
    assert torch.equal(own.prior_mean[1], means[1])  # not fitted
    assert float((own.prior_mean - means)[0].abs().min()) > 1e-3


def test_a_fit_that_is_refused_leaves_the_kernel_as_it_was(monkeypatch):
    linear = OnlineGP(learnable(kernel_of(), 2), 0.1, input_dim=2, prior_mean=LinearMean(2))
    refused = model_over(learnable(kernel_of(), 2))

    def refuse(*_arguments):
        raise ValueError("noise_variance must be larger")

    monkeypatch.setattr(refused, "adopt", refuse)
    for model, name in ((linear, r"model\.prior_mean"), (refused, "noise_variance")):
        model.observe(inputs_of(12), draw_of(kernel_of(), inputs_of(12), 0.1))
        before = state_of(model.kernel)
        with pytest.raises(ValueError, match=f"^{name} must"):
            fit_hyperparameters(model, [0])
        assert not differing(before, state_of(model.kernel))


def test_rewards_with_noise_of_their_own_are_refused_with_nothing_changed():
    X, half = inputs_of(6), torch.tensor(0.5).double()
    arms = ArmGP(X, learnable(kernel_of(), 2, 2), 0.1, batch_shape=(2,))
    for k in range(3):
        arms.observe_arms(torch.tensor([k, k + 1]), torch.rand(2).double(), noise_variance=half)
    points = model_over(learnable(kernel_of(), 2))
    points.observe(X, torch.rand(6, 1).double())
    points = points.condition_on_observations(X[:2], torch.rand(2, 1).double(), noise=half.expand(2, 1))
    own = "must be one whose observations all have its noise_variance"
    data = {0: (X, torch.rand(6).double())}
    for model, refused, match in (
        (arms, lambda: fit_hyperparameters(arms, [0, 1], data=data), "single"),
        (points, lambda: fit_hyperparameters(points, [0]), own),
        (points, lambda: points.adopt(half, half), own),
    ):
        before = state_of(model)
        with pytest.raises(ValueError, match=match):
            refused()
        assert not differing(before, state_of(model))


def test_candidate_priors_of_a_stack_are_fitted_each():
    X = inputs_of(25, over_time=True)
    y = draw_of(kernel_of(0.3, 0.1), X, 0.05)
    kernels = [learnable(kernel_of(0.5, rate), 2, 2) for rate in (0.3, 1e-15)]
    model = members_over(StackedKernel(kernels), 2, 2, d=3)
    model.observe(X, y)
    before = model.log_likelihood
    assert fit_hyperparameters(model, [0, 1]) == [0, 1]  # replicate 0 under both priors
    after = model.log_likelihood
    assert (after[0] > before[0] + 1).all()
    torch.testing.assert_close(after[1], before[1], rtol=0, atol=1e-8)
    assert kernels[1].time_kernel.forgetting_rate.max() < 1e-12  # static, and it stays so


def test_stacked_kernels_are_their_kernels():
    a, b = kernel_of(0.3, 0.1), SpatioTemporalKernel(MaternKernel(nu=1.5).double(), kernel_of(4.0))
    stack = StackedKernel([a, b])
    X, Z = inputs_of(5, over_time=True), inputs_of(3, over_time=True, seed=1)
    with torch.no_grad():
        for x1, x2 in ((X, Z), (X.expand(4, 1, 5, 3), Z), (X.expand(2, 5, 3), Z.expand(2, 3, 3))):
            whole = stack(x1, x2).to_dense()
            assert whole.shape[-3:] == (2, 5, 3)
            for p, kernel in enumerate((a, b)):
                expected = kernel(X, Z).to_dense()
                torch.testing.assert_close(whole[..., p, :, :], expected.expand_as(whole[..., p, :, :]))
        assert stack(X, diag=True).shape == (2, 5)
        for index in (0, 1, -1, slice(1, 2), slice(None)):
            torch.testing.assert_close(stack(X, Z)[index].to_dense(), stack(X, Z).to_dense()[index])
        own = torch.stack([X, X.flip(0) + 0.1])  # points of each kernel's own
        for p, kernel in enumerate((a, b)):
            torch.testing.assert_close(stack(own, Z).to_dense()[p], kernel(own[p], Z).to_dense())


def test_a_stack_of_batches_is_indexed_as_its_matrix():
    wide = RBFKernel(batch_shape=torch.Size([3])).double()
    wide.lengthscale = torch.tensor([0.1, 0.5, 2.0]).reshape(3, 1, 1)
    stack, X = StackedKernel([wide, MaternKernel().double()]), inputs_of(4)
    for index in (1, (1,), (2, 0), (slice(1, 3), 1), (0, slice(None)), (slice(None), slice(0, 1))):
        torch.testing.assert_close(stack[index](X).to_dense(), stack(X).to_dense()[index])


@pytest.mark.parametrize("constraint", [None, Interval(10.2, 11.0)])
def test_a_period_is_learned_within_its_constraint_for_one_replicate_alone(constraint):
    """A fit in units of 8 would begin outside the constraint."""
    X, season = inputs_of(40, over_time=True), PeriodicKernel(period_length_constraint=constraint).double()
    season.period_length = 10.4
    y = draw_of(SpatioTemporalKernel(kernel_of(0.4), season), X, 0.01)
    season.period_length = 10.7
    model = model_over(learnable(SpatioTemporalKernel(kernel_of(0.4), season), 2), d=3)
    model.observe(X, y)
    assert fit_hyperparameters(model, [0]) == [0]
    assert model.kernel.time_kernel.period_length.item() == pytest.approx(10.4, abs=0.1)
    assert season.period_length.item() == pytest.approx(10.7)  # the one given is not changed
    with pytest.raises(ValueError, match=r"kernel\.time_kernel must be exponential forgetting, Wiener"):
        learnable(SpatioTemporalKernel(kernel_of(0.4), season), 2, 3)


@pytest.mark.parametrize("replicates", [1, 2])
@pytest.mark.parametrize("time_kernel", [RBFKernel, partial(MaternKernel, nu=1.5)])
def test_a_prior_and_a_constraint_given_over_time_are_kept(time_kernel, replicates):
    given = time_kernel(lengthscale_prior=GammaPrior(3.0, 6.0), lengthscale_constraint=Interval(4.0, 6.0))
    given.lengthscale = 5.0
    kernel = learnable(SpatioTemporalKernel(kernel_of(0.4), given), 2, replicates).time_kernel
    assert isinstance(kernel.lengthscale_prior, GammaPrior)
    assert kernel.raw_lengthscale_constraint.upper_bound == 6.0
    assert kernel.lengthscale.flatten().tolist() == pytest.approx([5.0] * replicates)


@pytest.mark.parametrize("prior", [LogNormalPrior(math.log(0.01), 0.01), None])
def test_a_rate_in_a_product_is_fitted_in_a_unit_that_its_prior_and_its_size_allow(prior):
    """In units of 4 096 such a rate rounds to 1."""
    lasting, rate = MaternKernel(nu=1.5).double(), ExponentialForgettingKernel(0.01, prior)
    lasting.lengthscale = 4_000.0
    model = model_over(learnable(SpatioTemporalKernel(kernel_of(0.4), lasting * rate), 2), d=3)
    X = inputs_of(30, over_time=True)
    model.observe(X, draw_of(SpatioTemporalKernel(kernel_of(0.4), ExponentialForgettingKernel(0.1)), X, 0.01))
    assert fit_hyperparameters(model, [0]) == [0]
    learned = model.kernel.time_kernel.kernels[1].forgetting_rate.item()
    assert learned == pytest.approx(0.01, rel=0.05) if prior else learned > 0.01


def test_a_rate_of_a_static_kernel_is_not_learned():
    X = inputs_of(30, over_time=True)
    X[:, -1] *= 1e6  # days in seconds: over the record the rate is not negligible
    y = torch.randn(30, 1, generator=torch.Generator().manual_seed(0)).double().cumsum(0)
    model = model_over(learnable(kernel_of(0.4, 1e-10), 2), d=3)
    model.observe(X, y)
    before = model.kernel.time_kernel.forgetting_rate.clone()
    assert fit_hyperparameters(model, [0]) == [0]
    assert torch.equal(model.kernel.time_kernel.forgetting_rate, before)


def test_what_cannot_be_learned_is_left():
    model = model_over(learnable(kernel_of(), 2))
    assert fit_hyperparameters(model, [0]) == []  # nothing observed
    assert model.noise_variance == 0.1


@pytest.mark.parametrize(
    "kernel",
    [
        lambda: learnable(RBFKernel(), 2),
        lambda: SpatioTemporalKernel(learnable(RBFKernel(), 2, 2), ExponentialForgettingKernel(0.1)),
    ],
)
def test_a_kernel_that_members_share_is_not_fitted_to_one_of_them(kernel):
    model = ArmGP(inputs_of(5), kernel(), 0.1, batch_shape=(2,))
    for t in range(4):
        model.observe_arms(torch.tensor(t), torch.tensor(float(t)).double(), float(t))
    before = model.marginals()
    with pytest.raises(ValueError, match=r"kernel\.batch_shape must be \(2,\)"):
        fit_hyperparameters(model, [0, 1])
    torch.testing.assert_close(model.marginals(), before, rtol=0, atol=0)
    points = model_over(learnable(kernel_of(), 2, 2), (2,))
    points.observe(torch.rand(2, 4, 2).double(), torch.rand(2, 4, 1).double())
    with pytest.raises(ValueError, match="noise_variance and prior_mean must be 2 numbers each"):
        fit_hyperparameters(points, [0])


@pytest.mark.parametrize("multiple", [False, True])
def test_what_is_learnable_sees_the_columns_that_the_kernel_sees(multiple):
    kernel = RBFKernel(active_dims=[2, 0], ard_num_dims=2).double()
    kernel.lengthscale = torch.tensor([[0.3, 0.7]])
    kernel = ScaleKernel(kernel).double() if multiple else kernel
    X = inputs_of(5, over_time=True)
    new = learnable(kernel, 3)
    torch.testing.assert_close(new(X).to_dense(), kernel(X).to_dense(), rtol=1e-6, atol=1e-9)
    model = model_over(new, d=3)
    model.observe(X, X[:, :1])
    assert fit_hyperparameters(model, [0]) == [0]
    moved = X.clone()
    moved[:, 1] += 1.0
    assert torch.equal(model.kernel(X).to_dense(), model.kernel(moved).to_dense())


@pytest.mark.parametrize("build", [learnable, lambda kernel, dim: RBFKernel(ard_num_dims=dim).double()])
def test_a_kernel_over_other_inputs_than_the_model_s_is_refused_by_name(build):
    kernel, arms = build(RBFKernel(), 3), torch.rand(6, 2).double()
    expected = "kernel must take inputs of 2 columns, got .*Kernel: "
    for make in (
        lambda: OnlineGP(kernel, 0.1, input_dim=2),
        lambda: ArmGP(arms, kernel, 0.1),
        lambda: SketchedGP(arms, kernel, 0.1, sampling=LeverageSampling(2.0)),
        lambda: recipes.gp_ucb(arms, kernel, 0.1),
        lambda: recipes.tv_gp_ucb(arms, kernel, 0.1, forgetting_rate=0.1),
        lambda: recipes.gp_ucb(Domain(torch.tensor([[0.0, 0.0], [1.0, 1.0]]).double()), kernel, 0.1),
        lambda: recipes.auto(arms, kernel),
    ):
        with pytest.raises(ValueError, match=expected):
            make()


@pytest.mark.parametrize("failure", [ModelFittingError, NotPSDError, NanError])
def test_a_member_whose_fit_fails_stays_as_it_was(monkeypatch, failure):
    """Another reason to stop is the caller's to see."""
    X = inputs_of(12)
    model = model_over(learnable(kernel_of(), 2))
    model.observe(X, draw_of(kernel_of(), X, 0.1))
    before = values_of(model, X)

    failures = [failure, KeyError]

    def fails(*arguments, **options):
        raise failures.pop(0)("by order")

    monkeypatch.setattr(hyperparameters, "fit_gpytorch_mll", fails)
    assert fit_hyperparameters(model, [0]) == []
    torch.testing.assert_close(before, values_of(model, X), rtol=0, atol=0)
    with pytest.raises(KeyError):
        fit_hyperparameters(model, [0])
