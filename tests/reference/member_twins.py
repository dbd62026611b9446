"""A dense Gaussian process for every replicate and member, {(s, p): twin}, beside members over arms."""

import torch


def observe(twins, time, arm, reward):
    """Arms (S,) and the members' rewards (S, P)."""
    for (s, p), twin in twins.items():
        twin.observe(arm[s], reward[s, p], time)


def assert_agree(twins, model, now):
    """Means, variances and covariances of all arms, and of one arm for each replicate."""
    mean, variance = model.marginals(now)
    arm = torch.arange(model.replicates)
    (at_mean, at_variance), covariance = model.at(arm, now), model.covariance_with(arm, now)
    for (s, p), twin in twins.items():
        expected, joint = twin.joint(now)
        for ours, exact in (
            (mean[s, p], expected),
            (variance[s, p], joint.diagonal()),
            (covariance[s, p], joint[s]),
            (at_mean[s, p], expected[s]),
            (at_variance[s, p], joint[s, s]),
        ):
            torch.testing.assert_close(ours, exact, rtol=0, atol=1e-8)
