"""Gaussian processes over the same points: moments, what is dropped and what that costs, likelier hyperparameters."""

import math
from itertools import product

import pytest
import torch
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.models.utils.gpytorch_modules import (
    get_covar_module_with_dim_scaled_prior,
    get_gaussian_likelihood_with_lognormal_prior,
)

from bandits_torch.models import MemberMixture, PointMembers, WideningMembers
from bandits_torch.models.points.point_members import HeldRows, log_posterior, refine
from tests.reference.plain_points import Process

BOX = torch.tensor([[-2.0, 0.0, 10.0], [2.0, 1.0, 30.0]], dtype=torch.float64)
RATES, SCALES = [0.0, 0.1, 0.0], [math.inf, math.inf, 7.0]
LENGTHS = torch.tensor([[0.2, 0.4, 0.8], [0.5, 0.5, 0.5], [1.0, 0.1, 0.3]], dtype=torch.float64)
NOISES = [0.1, 0.03, 0.3]


def members(replicates=1, **options):
    number = LENGTHS.new_tensor
    return PointMembers(
        BOX, LENGTHS, number(NOISES), number(RATES), number(SCALES), replicates=replicates, **options
    )


def filled(steps, model, seed=0, where=None):
    """Members that have seen random points and targets at times 0, 1, ..., or some of them; all of it: points, targets
    (n, S, P)."""
    g = torch.Generator().manual_seed(seed)
    S, P = model.batch_shape
    X = BOX[0] + (BOX[1] - BOX[0]) * torch.rand(steps, S, 3, generator=g, dtype=torch.float64)
    Y = torch.randn(steps, S, P, generator=g, dtype=torch.float64)
    for t, (x, y) in enumerate(zip(X, Y, strict=True)):
        weights = torch.full((S, P), 1 / P, dtype=torch.float64)
        model.observe(x, y, float(t), weights, None if where is None else where[t])
    return X, Y


def somewhere(n, S=1, seed=9):
    g = torch.Generator().manual_seed(seed)
    return BOX[0] + (BOX[1] - BOX[0]) * torch.rand(S, n, 3, generator=g, dtype=torch.float64)


def test_replicates_with_boxes_of_their_own_compare_points_as_each_alone():
    free, ones = torch.zeros(3, dtype=torch.bool), torch.ones(2, 3, dtype=torch.float64)
    grid = [LENGTHS.new_tensor(one) for one in (NOISES, RATES, SCALES)]
    both, alone = (WideningMembers(free, BOX, LENGTHS, *grid, replicates=S) for S in (2, 1))
    X, Z = somewhere(4, S=2), somewhere(5)[0]
    for t, x in enumerate(somewhere(6, S=2, seed=1).unbind(1)):
        both.observe(x, ones, float(t), ones / 3)
        alone.observe(x[1:], ones[1:], float(t), ones[1:] / 3)
    assert torch.equal(both.likeness(X, Z)[1:], alone.likeness(X[1:], Z))


def processes():
    return [Process(LENGTHS[p].tolist(), NOISES[p], RATES[p], SCALES[p]) for p in range(3)]


def places(points, times):
    """Points of the box as ``Process`` has them, in its cube, with their times."""
    cube = (points - BOX[0]) / (BOX[1] - BOX[0])
    return list(zip(cube.tolist(), times.tolist(), strict=True))


def test_moments_and_covariances_are_those_of_dense_processes():
    """Of what each member was told and is held: at one step nobody is told, at another one replicate is not."""
    model = members(2, capacity=17)
    told = torch.rand(20, 2, 3, generator=torch.Generator().manual_seed(4)) < 0.8
    told[7], told[11, 1] = False, False
    X, Y = filled(20, model, where=told)
    A, B = somewhere(5, 2), somewhere(4, 2, seed=8)
    at, then = 23.5 + torch.rand(2, 5).double(), torch.tensor([[19.0, 6.5, 30.0, 23.5]] * 2).double()
    mean, variance = model.moments(A, at)
    between = model.between(A, at, B, then)
    for (s, p), process in zip(product(range(2), range(3)), 2 * processes(), strict=True):
        kept = model.times[s].long()
        rows = kept[told[kept, s, p]]
        held, left, right = (
            places(points, times)
            for points, times in ((X[rows, s], torch.arange(20.0)[rows]), (A[s], at[s]), (B[s], then[s]))
        )
        expected = [process.moments(held, Y[rows, s, p].tolist(), new) for new in left]
        said = torch.stack([mean[s, p], variance[s, p]], -1)
        torch.testing.assert_close(said, torch.tensor(expected).double(), rtol=1e-7, atol=1e-8)

        def k(a, b, of=process):
            return torch.tensor([[of.covariance(u, v) for v in b] for u in a]).double()

        dense = k(left, right) - k(left, held) @ torch.linalg.solve(process.matrix(held), k(held, right))
        torch.testing.assert_close(between[s, p], dense, rtol=0, atol=1e-6)


def test_some_members_predict_as_they_do_among_all():
    model = members(2, capacity=8)
    filled(11, model)
    model.follow(torch.tensor([[True, False, False], [False] * 3]), torch.tensor([1, 0]))  # one holds nothing
    x, time = somewhere(4, 2), 11.0 + torch.rand(2, 4).double()
    chosen = torch.tensor([[2, 0], [1, 2]])
    some, run = model.of(chosen), torch.arange(2).unsqueeze(-1)
    assert some.batch_shape == (2, 2)
    for own, among_all in zip(some.moments(x, time), model.moments(x, time), strict=True):
        torch.testing.assert_close(own, among_all[run, chosen], rtol=1e-12, atol=1e-12)
    between = model.between(x, time, x[:, :2], time[:, :2])[run, chosen]
    torch.testing.assert_close(some.between(x, time, x[:, :2], time[:, :2]), between, rtol=1e-12, atol=1e-12)
    gradients = []
    for m, kept in ((some, slice(None)), (model, (run, chosen))):
        z, t = x.clone().requires_grad_(), time.clone().requires_grad_()
        mean, variance = m.moments(z, t)
        gradients.append(torch.autograd.grad((mean[kept] + variance[kept]).sum(), (z, t)))
    for own, among_all in zip(*gradients, strict=True):
        torch.testing.assert_close(own, among_all, rtol=1e-9, atol=1e-10)


def test_what_is_dropped_tells_least_and_the_latest_half_stays():
    model = members(capacity=8)
    X, _ = filled(8, model)
    held, now = places(X[:, 0], torch.arange(8.0)), 8.0
    told = [[process.information(held, i, now) for i in range(8)] for process in processes()]
    told = torch.tensor(told, dtype=torch.float64)
    torch.testing.assert_close(model.information(now)[0], told, rtol=1e-6, atol=1e-9)
    weights = torch.tensor([[0.2, 0.5, 0.3]], dtype=torch.float64)
    gone = int((weights[0] @ told)[:4].argmin())
    model.observe(somewhere(1)[:, 0], told.new_zeros(1, 3), now, weights)
    assert model.times[0].tolist() == [t for t in range(8) if t != gone] + [now]
    for t in range(9, 40):
        model.observe(somewhere(1, seed=t)[:, 0], told.new_zeros(1, 3), float(t), weights)
        assert model.times.shape == (1, 8)
        assert model.times[0, -4:].tolist() == [t - 3, t - 2, t - 1, t]


def variances(model, points, now):
    return model.moments(points, points.new_full(points.shape[:2], now))[1]


def test_dropped_observations_cost_at_most_rho_squared_of_the_variance():
    worst = 1.0
    for seed in range(8):
        short, whole = members(capacity=10), members(capacity=1000)
        filled(60, short, seed), filled(60, whole, seed)
        points = somewhere(200, seed=seed + 100)
        now = 62.0
        held, everything = variances(short, points, now), variances(whole, points, now)
        assert (everything <= held * (1 + 1e-9)).all()
        kept = set(short.times[0].tolist())
        youngest = max(t for t in range(60) if float(t) not in kept)
        rho2 = (1 - RATES[1]) ** (now - youngest)
        ratio = everything[0, 1] / held[0, 1]
        assert (ratio >= 1 - rho2).all()
        worst = min(worst, float((ratio - (1 - rho2)).min()))
    assert worst < 0.35  # the bound is not empty


def test_log_posterior_is_the_normal_density_with_the_best_unit_and_the_priors():
    model = members(2, capacity=50)
    filled(12, model)
    anew = model.follow(torch.tensor([[False] * 3, [True, False, False]]), torch.tensor([0, 1]))
    assert anew.tolist() == [[False] * 3, [True, False, False]]  # it forgets slower than what it follows
    filled(6, model, seed=5)
    theta = torch.tensor([[-1.0, -0.5, 0.2, -3.0], [0.1, 0.3, -2.0, -1.0]], dtype=torch.float64)
    botorchs_kernel = get_covar_module_with_dim_scaled_prior(ard_num_dims=3)
    botorchs_noise = get_gaussian_likelihood_with_lognormal_prior().noise_covar
    for s, p in ((0, 1), (1, 0), (1, 2)):
        h = model.held[s, p]
        n, y = int(h.sum()), model.targets[s, p][h]
        values = []
        for row in theta:
            process = Process(row[:3].exp().tolist(), math.exp(row[3]), RATES[p], SCALES[p])
            places = list(zip(model.inputs[s][h].tolist(), model.times[s][h].tolist(), strict=True))
            A = process.matrix(places)
            unit = float(y @ torch.linalg.solve(A, y)) / n
            normal = torch.distributions.MultivariateNormal(torch.zeros(n).double(), unit * A)
            middle = float(row[:3].mean())
            prior = botorchs_kernel.lengthscale_prior.log_prob(row[:3].exp()).sum()
            prior = prior + torch.distributions.Normal(middle, 0.3).log_prob(row[:3]).sum()
            prior = prior + botorchs_noise.noise_prior.log_prob(row[3].exp())
            values.append(float(normal.log_prob(y) + prior))
        own = log_posterior(theta, HeldRows.of(model, torch.tensor([3 * s + p] * 2)))
        assert math.isclose(float(own[1] - own[0]), values[1] - values[0], rel_tol=1e-6)


def test_refinement_finds_likelier_hyperparameters_each_on_its_own():
    model = members(2, capacity=60)
    X, _ = filled(40, model)
    wave = torch.sin(4 * X[..., 0]) + 0.05 * X[..., 2]  # (n, S)
    model.targets = (wave - wave.mean(0)).T.unsqueeze(1).expand(2, 3, 40).clone()
    model.rebuild()
    chosen, like = torch.tensor([[0, 2], [1, 2]]), torch.tensor([0, 2])
    rows = torch.tensor([0, 2, 4, 5])
    theta = torch.cat([model.lengthscale.log(), model.noise_variance.log().unsqueeze(-1)], -1).reshape(6, -1)
    before = log_posterior(theta[rows], HeldRows.of(model, rows))
    found = refine(model, chosen, like, rounds=15)
    after = log_posterior(found.reshape(4, -1), HeldRows.of(model, rows))
    assert (after > before).all()
    assert (after[[0, 1, 3]] > before[[0, 1, 3]] + 10).all()  # the other forgets too fast for this function
    alone = refine(model, chosen[:, 1:], like, rounds=15)
    torch.testing.assert_close(alone[:, 0], found[:, 1], rtol=0, atol=1e-6)
    # The second coordinate tells nothing: its length-scale ends the longest of the three.
    assert (found[..., 1] > found[..., 0]).all()
    # Equal rewards in one replicate say nothing about it, and leave the other as it is.
    model.targets[0] = 0.0
    equal = refine(model, chosen, like, rounds=15)
    assert torch.equal(equal[0], theta[rows[:2]].clamp(math.log(1e-4), math.log(10.0)))
    torch.testing.assert_close(equal[1], found[1], rtol=0, atol=1e-6)


def test_the_mixture_is_a_botorch_model_with_gradients():
    model = members(2, capacity=20)
    filled(15, model)
    w = torch.tensor([[0.2, 0.5, 0.3], [0.1, 0.1, 0.8]], dtype=torch.float64)
    scale = torch.tensor([[2.0, 3.0, 4.0], [1.0, 1.0, 2.0]], dtype=torch.float64)
    mixture = MemberMixture(model, w, scale, w.new_tensor([5.0, -5.0]), w.new_tensor([2.0, 10.0]))
    points = torch.cat([somewhere(4, 2), torch.full((2, 4, 1), 16.0, dtype=torch.float64)], -1)
    X = points.movedim(1, 0).unsqueeze(-2).requires_grad_()
    posterior = mixture.posterior(X)
    mean, variance = model.moments(points[..., :-1], points[..., -1])
    m = (w.unsqueeze(-1) * mean).sum(1)
    v = (w.unsqueeze(-1) * (scale.unsqueeze(-1) * variance + mean.square())).sum(1) - m.square()
    unit = w.new_tensor([[2.0], [10.0]])
    expected = (m + w.new_tensor([[5.0], [-5.0]])) / unit
    torch.testing.assert_close(posterior.mean[..., 0, 0], expected.mT, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(posterior.variance[..., 0, 0], (v / unit.square()).mT, rtol=1e-8, atol=1e-10)
    minus = ScalarizedPosteriorTransform(w.new_tensor([-3.0]))
    noisy = mixture.posterior(X, observation_noise=True, posterior_transform=minus)
    torch.testing.assert_close(noisy.mean, -3 * posterior.mean)
    noise = ((w * scale * model.noise_variance).sum(-1, keepdim=True) / unit.square()).mT
    torch.testing.assert_close(noisy.variance[..., 0, 0], 9 * (posterior.variance[..., 0, 0] + noise))

    def index(at):
        posterior = mixture.posterior(at)
        return posterior.mean.sum() + posterior.variance.sqrt().sum()

    assert torch.autograd.gradcheck(index, (X,), atol=1e-5)


@pytest.mark.parametrize("of", ["mean", "variance", "both"])
def test_gradients_of_the_moments_agree_with_finite_differences(of):
    model = members(replicates=2, capacity=50)
    filled(12, model)
    model.follow(torch.tensor([[True, False, False], [False] * 3]), torch.tensor([1, 0]))  # one holds nothing
    g = torch.Generator().manual_seed(3)
    X, time = somewhere(4, 2), 9.3 + 5 * torch.rand(2, 4, generator=g, dtype=torch.float64)
    X[0, 0] = model.inputs[0, 2] * (BOX[1] - BOX[0]) + BOX[0]  # at an observation

    def asked(x, t):
        mean, variance = model.moments(x, t)
        return {"mean": mean, "variance": variance, "both": (mean, variance)}[of]

    assert torch.autograd.gradcheck(asked, (X.requires_grad_(), time.requires_grad_()), atol=1e-7, rtol=1e-5)


def test_a_variance_at_its_least_has_no_gradient():
    model = members(capacity=50)
    filled(3, model)
    model.adopt(torch.ones(1, 3, dtype=torch.bool), model.lengthscale, torch.full((1, 3), 1e-14).double())
    x = (model.inputs[:, 2:] * (BOX[1] - BOX[0]) + BOX[0]).requires_grad_()
    _, variance = model.moments(x, model.times[:, 2:])
    assert float(variance.detach().max()) <= 1e-10
    assert float(torch.autograd.grad(variance.sum(), x)[0].abs().max()) == 0.0


@pytest.mark.parametrize("noise", [1e-3, 0.3])
def test_the_gradient_of_the_likelihood_is_that_of_differences(noise):
    model = members(replicates=2)
    filled(9, model, seed=5)
    model.follow(torch.tensor([[False, True, False], [False] * 3]), torch.tensor([0, 0]))
    model.targets[1, 2] *= 30.0
    row = torch.tensor([0, 2, 4, 5])
    g = torch.Generator().manual_seed(2)
    theta = torch.cat(
        [-1 + 0.4 * torch.randn(4, 3, generator=g), torch.full((4, 1), math.log(noise))], -1
    ).double()
    assert torch.autograd.gradcheck(
        lambda t: log_posterior(t, HeldRows.of(model, row)), theta.requires_grad_(), rtol=1e-5
    )


def test_the_least_capacity_holds_the_latest_two():
    model = members(capacity=2)
    X, _ = filled(5, model)
    latest = (X[-1, 0] - BOX[0]) / (BOX[1] - BOX[0])
    assert model.num_held.tolist() == [[2, 2, 2]]
    torch.testing.assert_close(model.inputs[0, -1], latest)


def test_kernels_kept_are_those_computed_anew_to_the_last_bit():
    model = members(replicates=3, capacity=23)
    names = ("in_space", "prior", "inverse", "weights")
    told = torch.rand(40, 3, 3, generator=torch.Generator().manual_seed(6)) < 0.8
    # Below and above what is held; odd lengths for the tails of vector loops and for factors that begin elsewhere.
    for steps in (1, 2, 9, 15, 23, 40):
        model.reset()
        filled(steps, model, seed=steps, where=told[:steps])
        where = torch.tensor([[True, False, True], [False] * 3, [False, True, False]])
        model.adopt(where, 0.7 * model.lengthscale, 1.3 * model.noise_variance)
        if steps > 2:
            model.follow(where.roll(1, -1), torch.tensor([2, 0, 2]))
        again = members(replicates=3, capacity=23)
        again.load_state_dict(model.state_dict())
        for name in names:
            assert torch.equal(getattr(again, name), getattr(model, name)), (steps, name)


def test_covariance_with_a_pending_point_has_a_gradient_at_that_point():
    model = members(capacity=20)
    filled(8, model)
    point, time = somewhere(1), torch.full((1, 1), 9.0, dtype=torch.float64)
    here = point.clone().requires_grad_()
    model.between(here, time, point, time).sum().backward()
    there = point.clone().requires_grad_()
    model.between(there, time, model.inputs[:, -1:] * (BOX[1] - BOX[0]) + BOX[0], time).sum().backward()
    assert here.grad.isfinite().all()
    assert there.grad.isfinite().all()
