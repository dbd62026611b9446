"""A-GP-UCB and LB-GP-UCB, as written down, and what they do with a length-scale that is told too long."""

import math

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel

from bandits_torch import recipes
from bandits_torch.policies import Observation
from bandits_torch.policies.over_priors import LengthScaleBalancing, ShrinkingLengthScale
from tests.reference.kernels import rbf
from tests.reference.plain_length_scales import Balancing, Members, shrinking

N, S, NOISE, T, SHRINK, TOLD, B, R, DELTA = 15, 3, 0.04, 60, 0.4, 0.8, 1.5, 0.2, 0.1


def arms(dim):
    generator = torch.Generator().manual_seed(dim)
    return torch.rand(N, dim, generator=generator, dtype=torch.float64)


def kernel(lengthscale=TOLD):
    return rbf(lengthscale).requires_grad_(False)


def policy(name, dim=1, replicates=S, **options):
    options = {"horizon": T, "shrink": SHRINK, "rkhs_bound": B, "noise_scale": R} | options
    return getattr(recipes, name)(arms(dim), kernel(), NOISE, replicates=replicates, **options)


def factors(dim):
    return [math.exp(p / dim) for p in range(1 + math.ceil(dim * SHRINK * math.log(T)))]


def mask(step):
    available = torch.ones(S, N, dtype=torch.bool)
    if step % 2:
        available[torch.arange(S), (step + torch.arange(S)) % N] = False
    return available


@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("name", ["a_gp_ucb", "lb_gp_ucb"])
def test_equals_the_algorithm_with_every_length_scale_refitted(name, dim):
    levels, balances = factors(dim), name == "lb_gp_ucb"
    bounds = [B if balances else B * g ** (dim / 2) for g in levels]
    fast = policy(name, dim)
    about = arms(dim), [TOLD / g for g in levels], NOISE, bounds, R, DELTA
    slow = [(Members(*about), Balancing(levels, SHRINK, TOLD, dim, B, R, DELTA)) for _ in range(S)]
    truth = 3 * torch.randn(S, N, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    followed = set()
    for step in range(1, T + 1):
        choice = fast.choose(float(step), mask(step))
        reward = truth[torch.arange(S), choice.arm]
        for s, (members, balancing) in enumerate(slow):
            p = balancing.follow(step) if balances else shrinking(members, levels, SHRINK, step)
            arm, bound = members.best(p, mask(step)[s].numpy())
            assert (int(choice.arm[s]), int(choice.why["prior"][s])) == (arm, p)
            members.tell(arm, float(reward[s]))
            balancing.judge(step, p, float(reward[s]), bound)
            followed.add(p)
        fast.learn(Observation(float(step), choice.arm, reward, choice.why))
        if balances:
            for s, (_, balancing) in enumerate(slow):
                assert set((~fast.surviving[s]).nonzero().flatten().tolist()) == balancing.dropped
    assert len(followed) >= (2 if balances else 3)


def test_balancing_drops_what_is_outdone_by_the_records():
    """Records are made up: the longest length-scale is paid 0, the next one 2.5, so that the test has to bite."""
    levels, fast = factors(1), policy("lb_gp_ucb", replicates=1)
    members = Members(arms(1), [TOLD / g for g in levels], NOISE, [B] * len(levels), R, DELTA)
    balancing = Balancing(levels, SHRINK, TOLD, 1, B, R, DELTA)
    generator, dropped_at = torch.Generator().manual_seed(0), None
    for step in range(1, T + 1):
        arm = int(torch.randint(N, (), generator=generator))
        p = step % 2 if step > 12 else 0
        reward = 2.5 if p else 0.0
        _, deviation, width = members.posterior(p)
        why = {"prior": torch.tensor([p]), "bound": torch.tensor([width * deviation[arm]]).double()}
        fast.learn(Observation(float(step), torch.tensor([arm]), torch.tensor([reward]).double(), why))
        balancing.judge(step, p, reward, width * deviation[arm])
        members.tell(arm, reward)
        assert set((~fast.surviving[0]).nonzero().flatten().tolist()) == balancing.dropped
        if balancing.dropped and dropped_at is None:
            dropped_at = step
    assert balancing.dropped == {0}
    assert 13 <= dropped_at < T
    assert int(fast.choose(T + 1.0).why["prior"]) != 0


def test_norm_under_a_shorter_length_scale_is_at_most_what_the_width_says():
    """Bull 2011, Lemma 4: ||f||_{theta/g}^2 <= g^d ||f||_theta^2, nearly reached by narrow bumps of theta in d = 1."""
    x = torch.linspace(0, 1, 12, dtype=torch.float64)
    for make_kernel in (RBFKernel, lambda: MaternKernel(nu=2.5)):
        long, short = make_kernel().double(), make_kernel().double()
        long.lengthscale, short.lengthscale = 0.2, 0.1
        with torch.no_grad():
            ratio = torch.linalg.eigvals(
                torch.linalg.solve(short(x[:, None]).to_dense(), long(x[:, None]).to_dense())
            )
        assert ratio.real.max() <= 2.0 + 1e-6
        assert ratio.real.max() > 1.3


def test_scaled_kernels_are_taken_and_others_refused():
    scaled = ScaleKernel(MaternKernel(nu=1.5)).double()
    model = recipes.lb_gp_ucb(arms(2), scaled, NOISE, horizon=50).model
    assert model.batch_shape[-1] == 1 + math.ceil(2 * 0.25 * math.log(50))
    with pytest.raises(ValueError, match="kernel must be a squared exponential or Matern"):
        recipes.lb_gp_ucb(arms(1), torch.eye(N).double(), NOISE, horizon=50)
    with pytest.raises(ValueError, match=r"arms must be features"):
        recipes.a_gp_ucb(N, kernel(), NOISE, horizon=50)


def test_factors_are_checked():
    made = policy("a_gp_ucb")
    for wrong in ([1.0], [2.0] * made.num_priors, list(np.arange(made.num_priors) + 2.0)):
        with pytest.raises(ValueError, match="factors must be"):
            ShrinkingLengthScale(made.model, made.width, wrong)
    assert isinstance(policy("lb_gp_ucb"), LengthScaleBalancing)
