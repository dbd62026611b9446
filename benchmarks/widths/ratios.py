"""Flynn & Reeb's bounds over the closed form, ``RealisedInformationWidth``, along runs that the closed form plays."""

from collections.abc import Iterator

import pandas as pd

from bandits_torch import ArmGP, IndexPolicy, UpperConfidenceBound, make, run
from bandits_torch.acquisition import DualMixtureBound
from bandits_torch.policies import ForgettingRule, Observation, SlidingWindow
from bandits_torch.streams import ReplicateStreams
from bandits_torch.theory import DriftAwareWidth, DualMixtureWidth, RealisedInformationWidth, Width

STEPS = (1, 3, 10, 30, 100, 300)
KERNELS = {
    "se": {"kernel": "se"},
    "matern-5/2": {"kernel": "matern", "nu": 2.5},
    "matern-3/2": {"kernel": "matern", "nu": 1.5},
}
WINDOW, DRIFT, DELTA, REPLICATES, ARMS = 50, 0.02, 0.1, 10, 60  # drift: share of each function's norm


def ratios() -> Iterator[dict[str, object]]:
    """A row for each kernel, model and step."""
    for kernel, options in KERNELS.items():
        for kind in ("stationary", "window", "window that drifts"):
            yield from _run(kernel, options, kind)


def _run(kernel: str, options: dict[str, object], kind: str) -> Iterator[dict[str, object]]:
    problem = make("rkhs", num_arms=ARMS, replicates=REPLICATES, seed=1, **options)
    known, horizon = problem.knowledge, None if kind == "stationary" else STEPS[-1]
    B, V = known.rkhs_bound, DRIFT * known.rkhs_bound if kind.endswith("drifts") else 0.0
    closed: Width = RealisedInformationWidth(B, None, DELTA, horizon)
    if kind.endswith("drifts"):
        closed = DriftAwareWidth(closed, V)
    dual = DualMixtureWidth(B, None, DELTA, horizon, V)
    rule = ForgettingRule() if horizon is None else SlidingWindow(WINDOW)
    model = ArmGP(problem.arms, known.kernel, known.noise_variance, batch_shape=(REPLICATES,))
    policy = IndexPolicy(model, UpperConfidenceBound, width=closed, forgetting=rule)
    streams = ReplicateStreams(0, REPLICATES)
    for step in range(1, STEPS[-1] + 1):
        arm = policy.choose(float(step)).arm
        if step in STEPS:
            lower, upper = dual.bounds(model)
            half = closed(step, model).unsqueeze(-1) * model.marginals()[1].sqrt()
            ratio = (upper - lower) / (2 * half)
            played = ratio.gather(-1, arm.unsqueeze(-1))
            one = dual(step, model) / closed(step, model)
            numbers = {"all arms": ratio, "arm played": played, "one number": one}
            for what, value in numbers.items():
                place = {"kernel": kernel, "model": kind, "step": step, "of": what}
                yield place | {"ratio": value.mean().item()}
        policy.learn(Observation(float(step), arm, problem.pull(step, arm, streams)))


def regrets(steps: int = STEPS[-1]) -> pd.DataFrame:
    """Regret of the upper bounds as an index: the closed form, and the dual."""
    rows = []
    for kernel, options in KERNELS.items():
        for name in ("closed form", "dual"):
            problem = make("rkhs", num_arms=ARMS, replicates=REPLICATES, seed=1, **options)
            known = problem.knowledge
            model = ArmGP(problem.arms, known.kernel, known.noise_variance, batch_shape=(REPLICATES,))
            B = known.rkhs_bound
            if name == "dual":
                bound = DualMixtureWidth(B, None, DELTA)
                policy = IndexPolicy(model, lambda model, bound=bound: DualMixtureBound(model, bound))
            else:
                closed = RealisedInformationWidth(B, None, DELTA)
                policy = IndexPolicy(model, UpperConfidenceBound, width=closed)
            regret = run(policy, problem, steps, seed=0).regret.sum(-1).tolist()
            rows += [(kernel, name, k, steps, value) for k, value in enumerate(regret)]
    return pd.DataFrame(rows, columns=["kernel", "bound", "replicate", "steps", "regret"])
