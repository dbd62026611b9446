"""Centre and scale of rewards in the family of Hong et al. (2023), section 2: told, or learnt in block 0."""

import functools

import pytest
import torch
from gpytorch.kernels import MaternKernel, ScaleKernel

from bandits_torch import recipes, run
from bandits_torch.policies.opkb import AdaOPKB, Constants, FixedFeatures, subgaussian_scale
from bandits_torch.policies.policy import Observation
from tests.reference.kernels import rbf
from tests.reference.stubs import TableProblem

STEPS, ARMS = 240, 7
QUICK = Constants(sigma=5.0, c0=0.8, c1=0.2, c2=1.0, c3=0.03, c4=1.0)


def rewards() -> torch.Tensor:
    """(T, N), of size about 1: a switch in the middle, noise of .1."""
    x = torch.linspace(0, 3, ARMS).double()
    noise = 0.1 * torch.randn(STEPS, ARMS, generator=torch.Generator().manual_seed(2)).double()
    sign = torch.where(torch.arange(STEPS) < STEPS // 2, 1.0, -1.0).double()
    return 0.8 * sign.unsqueeze(-1) * x.cos() + noise


def kernel(scale: float = 1.0) -> ScaleKernel:
    made = ScaleKernel(MaternKernel(nu=2.5)).double()
    made.base_kernel.lengthscale, made.outputscale = 0.3, scale**2
    return made


def arms() -> torch.Tensor:
    return torch.linspace(0, 1, ARMS).double().unsqueeze(-1)


def played(policy, table):
    history = run(policy, TableProblem(table.unsqueeze(0)), STEPS)
    return history.arms.tolist(), history.trace.get("restarts", torch.zeros(0)).tolist()


_NETWORK = {"hidden": 8, "training_steps": 3}
BLOCKS = [("opkb", {}), ("ada_opkb", {}), ("opnn", _NETWORK), ("ada_opnn", _NETWORK)]


def built(name: str, **options):
    return recipes.registered(name).call(
        arms(), *([] if "nn" in name else [kernel(), 0.01]), horizon=STEPS, constants=QUICK, **options
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("name", "options"), BLOCKS)
def test_learnt_units_make_the_run_that_of_any_other_unit(name: str, options: dict) -> None:
    plain = played(built(name, reward_scale="warm-up", **options), rewards())
    degrees = played(built(name, reward_scale="warm-up", **options), 22.0 + 7.0 * rewards())
    assert plain == degrees
    # A network trains at the rate at which its loss falls, so it may play the same in a unit that is not learned.
    assert "nn" in name or degrees != played(built(name, **options), 22.0 + 7.0 * rewards())


def test_units_are_learned_to_the_last_digits_of_the_rewards_in_float32() -> None:
    def made():
        options = {"horizon": STEPS, "constants": QUICK, "reward_scale": "warm-up"}
        return recipes.ada_opkb(arms().float(), kernel().float(), 0.01, **options)

    assert played(made(), rewards()) == played(made(), 1e8 + rewards())


@pytest.mark.parametrize(("name", "options"), BLOCKS)
def test_told_units_make_the_run_that_of_rewards_in_them(name: str, options: dict) -> None:
    scaled = played(built(name, **options), rewards())
    degrees = built(name, prior_mean=20.0, reward_scale=8.0, **options)
    assert played(degrees, 20.0 + 8.0 * rewards()) == scaled


def test_warm_up_is_block_0_and_learns_from_all_rewards_since_the_start() -> None:
    phi = torch.linalg.cholesky(kernel()(arms()).to_dense().detach())
    made = AdaOPKB(FixedFeatures(phi), STEPS, Constants(**{**vars(QUICK), "reward_scale": "warm-up"}))
    E, seen, learnt, clock = made.schedules[0].base, [], 0, 0
    estimates, strategies = torch.zeros(ARMS).double(), made._pi[0].clone()
    for t, row in enumerate(22 + 7 * rewards(), 1):
        arm = made.choose(t).arm
        made.learn(Observation(float(t), arm, row[arm]))
        seen.append(float(row[arm]))
        estimates[arm] += row[arm]
        clock = 0 if made.trace()["detected"][0] else clock + 1
        if clock == E:  # the units of this epoch, from now on
            all_of_them = torch.tensor(seen).double()
            centre, learnt = all_of_them.mean(), learnt + 1
            scale = (all_of_them - centre).abs().max()
            torch.testing.assert_close(made._units.centre[0], centre)
            torch.testing.assert_close(made._units.scale[0], scale)
            in_units = (all_of_them[-E:] - centre) / scale
            torch.testing.assert_close(made._sums[0].sum(), in_units.sum())
    assert learnt >= 2, "no restart: units were learnt once"
    torch.testing.assert_close(made._strategies[0, 0], strategies)
    made.reset()
    assert float(made._units.count[0]) == 0


def test_kernel_and_noise_tell_master_s_thresholds_of_theory_the_unit() -> None:
    """Every other recipe's own: tests/recipes/test_registration.py."""
    made = functools.partial(recipes.master_gp_ucb, arms(), horizon=STEPS, thresholds="theory")
    plain, large = made(kernel(), 0.01), made(kernel(1e6), 1e10, prior_mean=22.0)
    assert played(plain, rewards()) == played(large, 22 + 1e6 * rewards())


def test_rewards_with_subgaussian_noise_exceed_their_scale_no_more_often_than_it_says() -> None:
    generator, scale = torch.Generator().manual_seed(0), subgaussian_scale(0.0, 1.0, 50, 0.2)
    u = torch.rand(4000, 50, generator=generator).double()
    heaviest = 3.33 * (u < 0.0075)  # with random signs it is 1-sub-Gaussian
    for noise in (torch.randn(4000, 50, generator=generator).double(), heaviest):
        exceeded = float((noise.abs().amax(1) > scale).double().mean())
        assert 0.4 / 10 < exceeded <= 0.4
    assert subgaussian_scale(0.8, 0.3, 50, 0.2) == pytest.approx(0.8 + 0.3 * scale)
    with pytest.raises(ValueError, match=r"^delta must"):
        subgaussian_scale(1.0, 1.0, 10, 1.0)


@pytest.mark.parametrize("name", ["opkb", "ada_opkb"])
def test_a_scale_is_learned_where_block_0_would_be_one_step(name):
    """Few arms that are alike: the gain is small. One reward tells no scale, so the block has two."""
    arms = torch.linspace(0, 1, 4).double().unsqueeze(-1)

    def played(unit, level):
        made = getattr(recipes, name)(arms, rbf(1.0), 0.01, horizon=200, reward_scale="warm-up", seed=1)
        assert made.schedules[0].base == 2
        generator, chosen = torch.Generator().manual_seed(0), []
        for time in range(60):
            choice = made.choose(float(time))
            chosen.append(int(choice.arm))
            noise = torch.randn(1, generator=generator).double()
            reward = level + unit * (arms[choice.arm, 0] + 0.125 * noise)
            made.learn(Observation(float(time), choice.arm, reward, choice.why))
        return chosen

    assert getattr(recipes, name)(arms, rbf(1.0), 0.01, horizon=200, seed=1).schedules[0].base == 1
    assert played(1.0, 0.0) == played(1024.0, 0.0) == played(1024.0, 50_000.0)
