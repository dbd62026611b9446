"""BKB against Figure 1 of Calandriello et al. (2019), and Theorem 1 where the dictionary really subsamples."""

import math

import numpy as np
import pytest
import torch

from bandits_torch import ArmGP, IndexPolicy, recipes
from bandits_torch.acquisition.upper_confidence_bound import UniformFirst
from bandits_torch.models import LeverageSampling, SketchedGP
from bandits_torch.policies import Observation
from bandits_torch.problems.simulated import make_kernel
from bandits_torch.streams import ReplicateStreams
from bandits_torch.theory import BKBWidth, ConstantWidth
from tests.reference.numpy_bkb import NumpyBKB, squared_exponential
from tests.reference.plain_bkb import guessed_norm, share_drawn

LAMBDA = 0.1


def task(num_arms: int, lengthscale: float = 0.2):
    generator = torch.Generator().manual_seed(4)
    arms = torch.rand(num_arms, 1, generator=generator).double()
    kernel = make_kernel("matern", lengthscale)
    K = kernel(arms).to_dense().detach()
    root = torch.linalg.cholesky(K + 1e-9 * torch.eye(num_arms).double())
    f = root @ torch.randn(num_arms, generator=generator).double()
    return arms, kernel, K, f


class Coins:
    """The uniform number of each arm pulled so far, in the order of first pulls, drawn anew at every pull."""

    def __init__(self, seed: int) -> None:
        self.streams, self.order = ReplicateStreams(seed, purpose="sketch"), {}

    def of(self, arm: int):
        place = self.order.setdefault(arm, len(self.order))
        u = len(self.order)
        drawn = self.streams.uniform(1 << max(5, (u - 1).bit_length()))[0].tolist()
        assert place < u
        return lambda x: drawn[self.order[x]]


def growing(arms, kernel):
    sampling = LeverageSampling(0.3, dictionary="redrawn", rise=0.5, horizon=20)
    model = SketchedGP(arms, kernel, LAMBDA, batch_shape=(1,), sampling=sampling)
    return IndexPolicy(model, UniformFirst, width=ConstantWidth(2.0))


@pytest.mark.parametrize(
    ("qbar", "noise_variance", "chunk_size"), [(2.0, 0.01, None), (0.5, LAMBDA, 70), (None, LAMBDA, None)]
)
def test_bkb_is_figure_1(qbar: float | None, noise_variance: float, chunk_size: int | None) -> None:
    generator = torch.Generator().manual_seed(2)
    arms, kernel = torch.rand(300, 2, generator=generator).double(), make_kernel("se", 0.2)
    f = (4 * arms[:, 0]).sin() * (5 * arms[:, 1]).cos()
    if qbar is None:
        fast, at = growing(arms, kernel), lambda t: 0.3 + 0.5 * math.log(max(1.0, t / 20))
    else:
        options = {"oversampling": qbar, "width": 2.0, "chunk_size": chunk_size}
        fast, at = recipes.bkb(arms, kernel, noise_variance, **options), lambda t: qbar
    about = (squared_exponential(0.2), noise_variance, qbar, lambda *_: 2.0)
    slow, coins, smaller = NumpyBKB(arms.numpy(), *about, root="cholesky"), Coins(0), 0
    for t in range(1, 121):
        choice = fast.choose(t)
        arm = int(choice.arm)
        assert t == 1 or arm == slow.choose(), t
        for ours, theirs in zip(fast.model.marginals(), (slow.mean, slow.variance), strict=True):
            np.testing.assert_allclose(ours[0].numpy(), theirs, rtol=1e-6, atol=1e-6)
        reward = f[arm] + noise_variance**0.5 * torch.randn((), generator=generator).double()
        fast.learn(Observation(float(t), choice.arm, reward.reshape(1), choice.why))
        drawn, slow.qbar = coins.of(arm), at(t)
        slow.learn(arm, float(reward), lambda u, drawn=drawn: np.array([drawn(x) for x in coins.order]))
        held = fast.model.sketches[0].inducing_arms().tolist()
        assert set(held) == set(slow.dictionary), t
        smaller += len(held) < len(slow.pulled)
    assert smaller > 20, "the dictionary was all arms pulled: nothing was sketched"


def test_the_first_arm_is_uniform_over_what_is_available() -> None:
    arms, kernel, *_ = task(6)
    policy = recipes.bkb(arms, kernel, LAMBDA, replicates=3000)
    available = torch.tensor([True, True, False, True, True, True])
    drawn = torch.bincount(policy.choose(1, available).arm, minlength=6).double() / 3000
    assert drawn[2] == 0
    assert ((drawn[available] - 1 / 5).abs() < 4.5 * (0.2 * 0.8 / 3000) ** 0.5).all()
    same = recipes.bkb(arms, kernel, LAMBDA, first_replicate=7).choose(1, available).arm
    assert torch.equal(same, recipes.bkb(arms, kernel, LAMBDA, replicates=8).choose(1, available).arm[7:])


@pytest.mark.parametrize(("leverage", "count"), [(0.02, 30), (0.3, 2), (0.1, 1)])
def test_one_coin_per_arm_has_the_law_of_one_for_each_observation(leverage: float, count: int) -> None:
    p = LeverageSampling(2.0).probabilities(torch.tensor([leverage]).double(), torch.tensor([count]))
    share = share_drawn(2.0, leverage, count, np.random.default_rng(0), 20_000)
    assert abs(share - float(p)) < 4.5 * (float(p) * (1 - float(p)) / 20_000) ** 0.5


def test_theorem_1_holds_where_the_dictionary_is_at_most_half_of_the_arms_pulled() -> None:
    """Accuracy and size, at a qbar far below the theorem's, on a crowd of arms and a few that stand alone."""
    crowd, alone = torch.linspace(0, 0.3, 300).double(), torch.linspace(0.6, 6.0, 10).double()
    arms, kernel = torch.cat([crowd, alone]).unsqueeze(-1), make_kernel("matern", 0.3)
    runs, steps, qbar = 10, 250, 8.0
    sampling = LeverageSampling(qbar, dictionary="redrawn")
    sketched = SketchedGP(arms, kernel, LAMBDA, batch_shape=(runs,), sampling=sampling)
    exact = ArmGP(arms, kernel, LAMBDA, batch_shape=(runs,))
    generator = torch.Generator().manual_seed(0)
    pulled: list[list[int]] = [[] for _ in range(runs)]
    within = torch.ones(runs, dtype=torch.bool)
    for t in range(1, steps + 1):
        arm = torch.randint(300, (runs,), generator=generator)
        arm = torch.full_like(arm, 300 + t // 20 % 10) if t % 20 == 0 else arm
        for model in (sketched, exact):
            model.observe_arms(arm, torch.zeros(runs).double())
        for run, x in zip(pulled, arm.tolist(), strict=True):
            run.append(x)
        if t % 10:
            continue
        variance = exact.marginals()[1]
        ratio = sketched.marginals()[1] / variance
        within &= ((ratio <= sampling.alpha) & (ratio >= 1 / sampling.alpha)).all(-1)
        held = [len(sketch.dictionary) for sketch in sketched.sketches]
        for s, run in enumerate(pulled):
            d_eff = float(variance[s, run].sum()) / LAMBDA
            assert held[s] <= 3 * (1 + 1 / LAMBDA) * sampling.alpha * qbar * d_eff
            assert t < steps or held[s] <= len(set(run)) / 2
    assert float(within.double().mean()) >= 0.9


@pytest.mark.parametrize("horizon", [1, 500])
def test_past_the_horizon_qbar_is_that_of_the_step(horizon: int) -> None:
    sampling = LeverageSampling.theory(horizon, 0.1)
    at = {t: float(sampling.at(torch.tensor(t).double())) for t in (1, horizon, 2000, 10**6)}
    assert at[1] == at[horizon] == pytest.approx(72 * math.log(4 * horizon / 0.1))
    for t in (2000, 10**6):
        assert at[t] == pytest.approx(LeverageSampling.theory(t, 0.1).oversampling)


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 0.99])
@pytest.mark.parametrize("delta", [0.9, 0.05])
def test_all_draws_together_fail_with_probability_at_most_delta(epsilon: float, delta: float) -> None:
    """Appendix C.3 with the qbar of each draw: 4 t exp(-(eps^2 / 2) / (R + R eps / 3)), R = alpha / qbar."""
    sampling = LeverageSampling.theory(1, delta, epsilon)
    t = torch.arange(1, 10**6).double()
    R = sampling.alpha / sampling.at(t)
    fails = (4 * t * (-(epsilon**2) / 2 / (R + R * epsilon / 3)).exp()).sum()
    beyond = (4 * t[-1]) ** -0.25 * delta**2.25  # of the integral of 4 t (delta / (4 t))^(9/4) over the rest
    assert fails + beyond <= delta
    constant = LeverageSampling(sampling.oversampling, epsilon=epsilon).at(t)
    R = sampling.alpha / constant
    assert (4 * t * (-(epsilon**2) / 2 / (R + R * epsilon / 3)).exp()).sum() > delta, (
        "no schedule would do too"
    )


def swept(norm: float, steps: int, qbar: float = 1.0):
    """A model that saw every arm in turn, of a function of this norm, with the paper's observations of it."""
    arms, kernel, K, f = task(25)
    f = f * norm / float(f @ torch.linalg.solve(K, f)) ** 0.5
    model = SketchedGP(arms, kernel, LAMBDA, sampling=LeverageSampling(qbar, dictionary="redrawn"))
    generator = torch.Generator().manual_seed(3)
    pulled = [t % 25 for t in range(steps)]
    rewards = f[pulled] + 0.1 * torch.randn(steps, generator=generator).double()
    for arm, reward in zip(pulled, rewards, strict=True):
        model.observe_arms(torch.tensor(arm), reward)
    return model, K, pulled, rewards


@pytest.mark.parametrize(("norm", "steps"), [(80.0, 50), (30.0, 300), (200.0, 100)])
def test_the_norm_is_doubled_while_no_function_as_short_is_in_the_confidence_set(
    norm: float, steps: int
) -> None:
    model, K, pulled, rewards = swept(norm, steps)
    told, guessing = BKBWidth(0.0, 0.1, 0.1), BKBWidth(0.2, 0.1, 0.1, bound_is_guess=True)
    noise_part, per_norm = float(told(steps + 1, model)), 1 + 1 / 0.5**0.5
    held = sorted(int(model.sketches[0].arm[place]) for place in model.sketches[0].dictionary)
    assert len(held) < len(set(pulled))
    guess, distance = guessed_norm(K, pulled, rewards, held, LAMBDA, 0.2, lambda F: noise_part + per_norm * F)
    assert guess > 0.2
    torch.testing.assert_close(
        float(model.distance_to_ball(torch.tensor(guess).double())), distance, rtol=1e-5, atol=1e-6
    )
    assert float(guessing(steps + 1, model)) == pytest.approx(noise_part + per_norm * guess)
    options = {
        "rkhs_bound": 0.2,
        "bound_is_guess": True,
        "noise_scale": 0.1,
        "delta": 0.2,
    }  # half of it for draws
    policy = recipes.bkb(*task(25)[:2], LAMBDA, preset="theory", **options)
    assert float(policy.width(steps + 1, model)) == float(guessing(steps + 1, model))
