"""A user's script: ``mypy --strict`` must pass on it with the installed package (.ci/package), and it must run."""

import torch
from gpytorch.kernels import RBFKernel  # type: ignore[import-untyped]

from bandits_torch import (
    ArmGP,
    History,
    IndexPolicy,
    OnlineGP,
    Policy,
    UpperConfidenceBound,
    make,
    recipes,
    run,
)
from bandits_torch.policies import Choice, Observation, SlidingWindow
from bandits_torch.theory import RealisedGain, SlidingWindowWidth


def play(policy: Policy, steps: int) -> torch.Tensor:
    """Ask and tell by hand."""
    arms: list[torch.Tensor] = []
    for step in range(1, steps + 1):
        choice: Choice = policy.choose(float(step))
        reward = torch.zeros(policy.replicates, dtype=torch.float64)
        policy.learn(Observation(float(step), choice.arm, reward, choice.why))
        arms.append(choice.arm)
    return torch.stack(arms)


def main() -> None:
    """Every way of using the package."""
    arms = torch.linspace(0, 1, 20, dtype=torch.float64).unsqueeze(-1)
    model = ArmGP(arms, RBFKernel(), noise_variance=0.01, batch_shape=(2,))
    width = SlidingWindowWidth(5, 20, rkhs_bound=1.0, noise_scale=0.1, delta=0.1, gain=RealisedGain())
    policy = IndexPolicy(model, UpperConfidenceBound, width=width, forgetting=SlidingWindow(5))
    assert play(policy, 6).shape == (6, 2)
    online = OnlineGP(RBFKernel(), 0.01, input_dim=1)
    online.observe(arms[:3], arms[:3].sin())
    assert int(online.num_observations) == 3
    problem = make("switching", horizon=30, replicates=2)
    history: History = run(recipes.build("igp_ucb", problem, horizon=30, replicates=2), problem, horizon=30)
    assert history.mean_cumulative_regret >= 0
    assert len(history.to_frame()) > 0


if __name__ == "__main__":
    main()
