"""Index policies of every kind, small enough to play by hand, and what compares their states."""

import torch

from bandits_torch import ArmGP, IndexPolicy, OnlineGP, ThompsonSampling, UpperConfidenceBound
from bandits_torch.kernels import ExponentialForgettingKernel, SpatioTemporalKernel
from bandits_torch.policies import Observation, PeriodicRestart
from bandits_torch.theory import ConstantWidth, SrinivasBayesianWidth
from tests.reference.kernels import rbf

N, S = 6, 3
ARMS = torch.linspace(0, 1, N).double().unsqueeze(-1)
KERNEL = rbf(0.3)


def drifting(space):
    return SpatioTemporalKernel(space, ExponentialForgettingKernel(0.1))


def arm_gp(batch=(S,), **options):
    return ArmGP(ARMS, options.pop("kernel", KERNEL), 0.1, batch_shape=batch, **options)


POLICIES = {
    "ucb": lambda: IndexPolicy(arm_gp(), UpperConfidenceBound, width=ConstantWidth(2.0)),
    "thompson": lambda: IndexPolicy(arm_gp(), ThompsonSampling, width=ConstantWidth(1.0), seed=3),
    "restart": lambda: IndexPolicy(
        arm_gp(), UpperConfidenceBound, width=SrinivasBayesianWidth(N, 0.1), forgetting=PeriodicRestart(4)
    ),
    "drift": lambda: IndexPolicy(
        arm_gp(kernel=drifting(KERNEL)), ThompsonSampling, width=ConstantWidth(1.0), seed=1
    ),
    "online": lambda: IndexPolicy(
        OnlineGP(KERNEL, 0.1, input_dim=1, batch_shape=(S,)),
        ThompsonSampling,
        width=ConstantWidth(1.0),
        choices=ARMS,
    ),
    "online, drift": lambda: IndexPolicy(
        OnlineGP(drifting(KERNEL), 0.1, input_dim=2),
        UpperConfidenceBound,
        width=ConstantWidth(2.0),
        choices=ARMS,
    ),
}


def rewards(policy, step):
    """A jump at step 8, so that events fire."""
    arm = torch.arange(policy.replicates)
    return torch.sin(step + arm.double()) + (30.0 if step >= 8 else 0.0)


def play(policy, steps, first=1):
    """The arms chosen at the steps, one row each."""
    chosen = []
    for step in range(first, first + steps):
        choice = policy.choose(float(step))
        chosen.append(choice.arm.clone())
        policy.learn(Observation(float(step), choice.arm, rewards(policy, step), choice.why))
    return torch.stack(chosen)
