"""Stale observations over points: what the bound promises holds against a model that drops nothing."""

import copy
import functools

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel

from bandits_torch import Domain, IndexPolicy, OnlineGP, recipes
from bandits_torch.kernels import ExponentialForgettingKernel, SpatioTemporalKernel, WienerKernel
from bandits_torch.policies import KeepEverything, StaleObservations
from bandits_torch.policies.stale_observations import loss_of_oldest
from tests.reference import dense_staleness as dense
from tests.reference.kernels import scaled

D = 2
SQUARE = Domain(torch.tensor([[0.0] * D, [1.0] * D]).double())


def number(value):
    return torch.tensor(value, dtype=torch.float64)


def model(rate=0.2, noise=0.05, lengthscale=0.3, replicates=1, space=RBFKernel):
    kernel = space().double()
    kernel.lengthscale = number(lengthscale)  # GPyTorch rounds a Python number
    whole = SpatioTemporalKernel(kernel, ExponentialForgettingKernel(number(rate))).requires_grad_(False)
    return OnlineGP(whole, noise, input_dim=D + 1, batch_shape=(replicates,))


def history(count, kind, seed=0, rate=1.0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(count, D, generator=generator).double()
    if kind == "clustered":
        x = 0.5 + 0.05 * x * (1 + 10 * (torch.arange(count) % 17 == 0)).unsqueeze(-1)
    t = rate * torch.arange(count).double()
    if kind == "gaps":
        t = t + 25.0 * (torch.arange(count) // 40) + torch.rand(count, generator=generator).double()
    if kind == "clock":
        t = 1.7e9 + t
    y = torch.sin(6 * x.sum(-1) + 0.05 * t) + 0.2 * torch.randn(count, generator=generator).double()
    if kind == "surprise":
        y[count // 2 :] += 1000.0
    return torch.cat([x, t.unsqueeze(-1)], -1), y


def feed(rule, own, z, y):
    for i in range(len(z)):
        inputs = z[i].expand(*own.batch_shape, 1, D + 1)
        reward = y[i].expand(own.batch_shape)
        own.observe(inputs, reward.reshape(*own.batch_shape, 1, 1))
        rule.observed(lambda inputs=inputs: inputs, reward, own)
        rule.after(own, i + 1)


def places(now, count=300, later=0.0):
    x = torch.rand(count, D, generator=torch.Generator().manual_seed(9)).double() * 1.4 - 0.2
    return torch.cat([x, torch.full((count, 1), now + later, dtype=torch.float64)], -1)


def both(own, z, y, kernel, noise, later=0.0):
    at = places(float(z[-1, -1]), later=later)
    held = own.posterior(at.unsqueeze(1).unsqueeze(1))
    return dense.posterior(z, y, noise, kernel, at), (held.mean.reshape(-1), held.variance.reshape(-1))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("tolerance", [1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize("kind", ["even", "clustered", "gaps", "clock", "surprise"])
def test_what_is_lost_stays_within_the_two_accounts_now_and_later(kind, tolerance):
    z, y = history(260, kind)
    own = model()
    rule = StaleObservations(tolerance, every=4).begin(own)
    kernel = functools.partial(dense.covariance, lengthscale=0.3, rate=0.2)
    start = 0
    for stop in (120, 190, 260):
        feed(rule, own, z[start:stop], y[start:stop])
        start = stop
        assert float(rule.mean) <= tolerance
        assert float(rule.variance) <= tolerance
        for later in (0.0, 3.0):
            (mean, variance), (mean_held, variance_held) = both(own, z[:stop], y[:stop], kernel, 0.05, later)
            rounding = 1e-11 * y.abs().max()
            bound = float(rule.mean) * variance_held.sqrt() + rounding
            assert bool(((mean - mean_held).abs() <= bound).all())
            assert bool((variance <= variance_held + rounding).all())
            assert bool((variance >= (1 - float(rule.variance)) * variance_held - rounding).all())
    assert int(own.num_observations) < 200  # and it did drop
    assert int(rule.dropped) + int(own.num_observations) == 260


def test_the_loss_of_the_oldest_bounds_every_mean_and_is_not_far_from_the_largest():
    z, y = history(60, "even", seed=3)
    own = model(rate=0.05, space=functools.partial(MaternKernel, nu=2.5))
    own.observe(z.unsqueeze(0), y.reshape(1, -1, 1))
    kernel = functools.partial(dense.covariance, lengthscale=0.3, rate=0.05, nu=2.5)
    at = places(float(z[-1, -1]), 4000)
    all_mean, all_variance = dense.posterior(z, y, 0.05, kernel, at)
    for count in (1, 5, 20):
        mean, variance = loss_of_oldest(own, count, z[-1:, -1])
        left_mean, left_variance = dense.posterior(z[count:], y[count:], 0.05, kernel, at)
        of_mean = ((all_mean - left_mean).abs() / left_variance.sqrt()).max()
        of_variance = (1 - all_variance / left_variance).max()
        assert of_mean <= mean.item() <= 8 * of_mean
        assert of_variance <= variance.item() <= 30 * of_variance


def test_after_a_long_time_all_that_is_held_may_go_and_never_more():
    z, y = history(8, "even")
    own = model()
    own.observe(z.unsqueeze(0), y.reshape(1, -1, 1))
    much_later = z[-1:, -1] + 500
    assert all(bound.item() < 1e-12 for bound in loss_of_oldest(own, 8, much_later))
    assert all(bound.item() == torch.inf for bound in loss_of_oldest(own, 9, much_later))


def test_the_number_held_stays_the_same_however_long_it_runs():
    z, y = history(480, "even", seed=2)
    own = model(rate=0.3)
    rule = StaleObservations(every=8).begin(own)
    counts = []
    for start in range(0, 480, 80):
        feed(rule, own, z[start : start + 80], y[start : start + 80])
        counts.append(int(own.num_observations))
    assert max(counts[2:]) <= counts[1] + 16


def test_a_capacity_holds_and_says_what_it_cost():
    z, y = history(155, "even")
    own = model(rate=0.02)
    rule = StaleObservations(1e-6, every=10, capacity=60).begin(own)
    feed(rule, own, z, y)
    assert int(own.num_observations) <= 60
    assert float(rule.mean) > 1e-6
    kernel = functools.partial(dense.covariance, lengthscale=0.3, rate=0.02)
    (mean, _), (mean_held, variance_held) = both(own, z, y, kernel, 0.05)
    assert bool(((mean - mean_held).abs() <= float(rule.mean) * variance_held.sqrt()).all())


def test_replicates_drop_their_own_and_are_as_they_would_be_alone():
    z, y = history(120, "even")
    more = torch.stack([y, 300 * y])  # larger rewards, more to lose
    own = model(replicates=2)
    rule = StaleObservations(1e-4, every=4).begin(own)
    alone = [model(), model()]
    rules = [StaleObservations(1e-4, every=4).begin(one) for one in alone]
    for i in range(120):
        inputs = z[i].expand(2, 1, D + 1)
        own.observe(inputs, more[:, i].reshape(2, 1, 1))
        rule.observed(lambda inputs=inputs: inputs, more[:, i], own)
        rule.after(own, i + 1)
    for k in range(2):
        feed(rules[k], alone[k], z, more[k])
    assert own.num_observations.tolist() == [int(one.num_observations) for one in alone]
    assert own.num_observations[0] < own.num_observations[1]
    at = places(119.0).reshape(-1, 1, 1, D + 1)
    for k in range(2):
        apart = own.posterior(at).mean[:, k] - alone[k].posterior(at).mean[:, 0]
        assert apart.abs().max() < 1e-9 * 300**k


def test_a_reset_and_a_refit_begin_the_accounts_anew():
    z, y = history(100, "even")
    own = model()
    rule = StaleObservations(1e-3, every=4).begin(own)
    feed(rule, own, z, y)
    assert float(rule.mean) > 0
    again = copy.copy(rule)
    again.refitted(own, torch.tensor([True]))
    assert float(again.mean) == 0 == float(again.variance)
    own.reset()
    rule.reset()
    assert float(rule.mean) == 0
    feed(rule, own, z[:10], y[:10])
    assert int(own.num_observations) == 10


def test_a_recipe_over_points_drops_by_default_and_over_arms_as_before():
    by_default = recipes.tv_gp_ucb(SQUARE, RBFKernel().double(), 0.1)
    assert isinstance(by_default, IndexPolicy)
    assert isinstance(by_default.forgetting, StaleObservations)
    assert by_default.forgetting.tolerance == 1e-6
    everything = [
        recipes.tv_gp_ucb(SQUARE, RBFKernel().double(), 0.1, stale=None),
        recipes.tv_gp_ucb(SQUARE, RBFKernel().double(), 0.1, time_kernel=MaternKernel().double()),
        recipes.tv_gp_ucb(torch.rand(4, 1).double(), RBFKernel().double(), 0.1),
    ]
    assert all(isinstance(one.forgetting, KeepEverything) for one in everything)


def test_bad_settings_and_models_are_refused_by_name():
    static = OnlineGP(RBFKernel().double(), 0.1, input_dim=D)
    walk = OnlineGP(SpatioTemporalKernel(RBFKernel(), WienerKernel(0.1)), 0.1, input_dim=D + 1)
    for wrong in (static, walk):
        with pytest.raises(ValueError, match="ExponentialForgettingKernel"):
            StaleObservations().begin(wrong)
    full = model()
    full.observe(torch.zeros(1, 1, D + 1).double(), torch.zeros(1, 1, 1).double())
    with pytest.raises(ValueError, match="num_observations"):
        StaleObservations().begin(full)
    arms = torch.rand(4, 1).double()
    for choices, stale, more in (
        (arms, "wasserstein", {}),
        (arms, 1e-3, {}),
        (SQUARE, "oldest", {}),
        (SQUARE, -1.0, {}),
        (SQUARE, 1e-3, {"time_kernel": MaternKernel().double()}),
        (SQUARE, 1e-3, {"forgetting_rate": 0.0}),
        (SQUARE, "wasserstein", {"forgetting_rate": 0.0}),
    ):
        with pytest.raises(ValueError, match="stale"):
            recipes.tv_gp_ucb(choices, RBFKernel().double(), 0.1, stale=stale, **more)


def test_a_multiple_of_a_product_is_one_too():
    kernel = scaled(model().kernel, 4.0)
    z, y = history(120, "even")
    own = OnlineGP(kernel.requires_grad_(False), 0.2, input_dim=D + 1, batch_shape=(1,))
    rule = StaleObservations(1e-4, every=4).begin(own)
    feed(rule, own, z, y)
    unit = model()
    unit_rule = StaleObservations(1e-4, every=4).begin(unit)
    feed(unit_rule, unit, z, y / 2)
    torch.testing.assert_close(rule.mean, unit_rule.mean)
    assert int(own.num_observations) == int(unit.num_observations) < 120
