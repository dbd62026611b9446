"""A sketch's dictionary grows and shrinks, what was observed stays: dense DTC on that dictionary after every step."""

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel

from bandits_torch import recipes
from bandits_torch.kernels import ArmCovarianceKernel
from bandits_torch.models.sketch.leverage_sampling import LeverageSampling
from bandits_torch.models.sketch.sketched_gp import SketchedGP
from bandits_torch.policies import Observation
from tests.reference.dense_dtc import dtc

F64 = torch.float64
RATIOS = [1e-4, 1e-2, 0.3, 1.0, 3.0, 1e2]


def smooth(kind, lengthscale):
    kernel = (RBFKernel() if kind == "RBF" else MaternKernel(0.5)).double()
    kernel.lengthscale = lengthscale
    return kernel.requires_grad_(False)


ARMS = torch.rand(30, 2, generator=torch.Generator().manual_seed(1), dtype=F64)
KERNELS = {
    "RBF .05": lambda: smooth("RBF", 0.05),
    "RBF .3": lambda: smooth("RBF", 0.3),
    "Matern .2": lambda: smooth("Matern", 0.2),
    "isolated": lambda: ArmCovarianceKernel(torch.eye(30, dtype=F64)),
    "several variances": lambda: ArmCovarianceKernel(torch.diag(torch.logspace(-3, 0, 30, dtype=F64))),
}


def covariance(kernel, unit=1.0):
    inputs = torch.arange(30, dtype=F64).unsqueeze(-1) if isinstance(kernel, ArmCovarianceKernel) else ARMS
    return unit * kernel(inputs).to_dense()


def check(model, K, told, noise, tolerance=1e-9):
    """The marginals of each member are DTC's, on its own dictionary."""
    mean, variance = (value.reshape(len(told), -1) for value in model.marginals())
    scale = K.diagonal().max()
    for m, (arms, rewards) in enumerate(told):
        dictionary = model.sketches[m].inducing_arms()
        right = torch.zeros(len(K), dtype=F64), K
        if len(dictionary) and arms:
            right = dtc(K, torch.tensor(arms), torch.tensor(rewards, dtype=F64), dictionary, noise)
        size = scale.sqrt() + max(map(abs, rewards), default=0.0)
        assert float((mean[m] - right[0]).abs().max()) < tolerance * size
        assert float((variance[m] - right[1].diagonal()).abs().max()) < tolerance * scale


def test_an_arm_pulled_before_it_joined_the_dictionary_keeps_its_rewards():
    """Arms that tell nothing of each other: new features have no product with old ones, but with themselves."""
    model = SketchedGP(4, torch.eye(4, dtype=F64), 2.0)
    for arm, reward in [(0, 1.0)] + 4 * [(1, 10.0)]:
        model.observe_arms(torch.tensor(arm), torch.tensor(reward, dtype=F64))
    assert 1 in model.sketches[0].inducing_arms()
    mean, variance = model.marginals()
    torch.testing.assert_close(mean, torch.tensor([1 / 3, 20 / 3, 0, 0], dtype=F64))
    torch.testing.assert_close(variance, torch.tensor([2 / 3, 1 / 3, 1, 1], dtype=F64))


@pytest.mark.every(7)
@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("name", KERNELS)
def test_every_step_is_dtc_on_the_models_own_dictionary(name, ratio):
    random, joined = torch.Generator().manual_seed(2), 0
    for growth, chunk_size, unit in ((1.0, None, 1.0), (2.0, None, 1e12), (1.0, 7, 1e-6)):
        K = covariance(KERNELS[name](), unit)
        sampling = LeverageSampling.practical(1.0, growth)
        model = SketchedGP(30, K, ratio * unit, sampling=sampling, batch_shape=(2,), chunk_size=chunk_size)
        told = [([], []), ([], [])]
        for step in range(30):
            arm = torch.randint(15, (2,), generator=random)
            reward = unit**0.5 * torch.randn(2, generator=random, dtype=F64)
            before = [set(sketch.inducing_arms().tolist()) for sketch in model.sketches]
            model.observe_arms(arm, reward)
            for m, (arms, rewards) in enumerate(told):
                new = set(model.sketches[m].inducing_arms().tolist()) - before[m]
                joined += len(new & set(arms))
                arms.append(int(arm[m]))
                rewards.append(float(reward[m]))
            check(model, K, told, ratio * unit)
            if step == 18:
                model.reset(torch.tensor([True, False]))
                told[0] = ([], [])
                check(model, K, told, ratio * unit)
    assert joined > 0 or ratio < 3  # with little noise every arm pulled is in the dictionary at once


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("name", KERNELS)
def test_pulls_placed_before_their_rewards_are_not_lost_either(name, ratio):
    kernel = KERNELS[name]()
    K, random = covariance(kernel), torch.Generator().manual_seed(3)
    model = SketchedGP(30, K, ratio, sampling=LeverageSampling.practical(1.0, 1.5))
    told = [([], [])]
    for _ in range(8):
        batch = torch.randint(15, (4,), generator=random)
        for arm in batch:
            model.place(arm)
        rewards = torch.randn(4, generator=random, dtype=F64)
        model.reward(batch, rewards)
        told[0][0].extend(batch.tolist())
        told[0][1].extend(rewards.tolist())
        check(model, K, told, ratio)


@pytest.mark.parametrize("noise_variance", [0.01, 1.0, 30.0])
@pytest.mark.parametrize("name", ["bkb", "bbkb"])
def test_the_policies_posterior_is_dtc_of_all_that_they_learned(name, noise_variance):
    kernel = smooth("RBF", 0.1)
    policy = recipes.RECIPES[name](ARMS, kernel, noise_variance, replicates=2)
    K, random, told = covariance(kernel), torch.Generator().manual_seed(4), [([], []), ([], [])]
    for step in range(1, 41):
        choice = policy.choose(float(step))
        reward = torch.randn(2, generator=random, dtype=F64)
        policy.learn(Observation(float(step), choice.arm, reward, choice.why))
        for m, (arms, rewards) in enumerate(told):
            arms.append(int(choice.arm[m]))
            rewards.append(float(reward[m]))
        check(policy.model, K, told, noise_variance)
