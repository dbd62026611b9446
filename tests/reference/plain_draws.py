"""How often draws choose each arm: Thompson sampling over priors, and predictive sampling, in plain NumPy."""

import numpy as np


def posteriors(priors, arms, rewards, times, now):
    """Mean and covariance of all arms at ``now`` under each prior, and the log marginal likelihoods."""
    fits = [prior.given(arms, rewards, times, now) for prior in priors]
    return [(fit.mean.numpy(), fit.covariance.numpy()) for fit in fits], [fit.log_likelihood for fit in fits]


def shares_of_hp_gp_ts(priors, arms, rewards, times, now, draws, seed=0):
    """Shares (P, N) of draws in which prior p was drawn from its posterior and arm i was the best of f ~ GP under p."""
    random, (fits, logs) = np.random.default_rng(seed), posteriors(priors, arms, rewards, times, now)
    weight = np.exp(np.array(logs) - max(logs))
    share = np.zeros((len(priors), len(fits[0][0])))
    for _ in range(draws):
        p = random.choice(len(priors), p=weight / weight.sum())
        f = random.multivariate_normal(fits[p][0], fits[p][1], method="eigh")
        share[p, f.argmax()] += 1 / draws
    return share


def shares_of_pe_gp_ts(priors, surviving, arms, rewards, times, now, draws, seed=0):
    """Shares (P, N) of draws in which arm i under the surviving prior p was the best of all arms and survivors."""
    random, (fits, _) = np.random.default_rng(seed), posteriors(priors, arms, rewards, times, now)
    share = np.zeros((len(priors), len(fits[0][0])))
    for _ in range(draws):
        f = np.stack([random.multivariate_normal(mean, C, method="eigh") for mean, C in fits])
        f[~np.array(surviving)] = -np.inf
        share[np.unravel_index(f.argmax(), f.shape)] += 1 / draws
    return share


def covariance_of_the_future(C, K, kept, gained, noise_variance, steps):
    """Joint covariance of f(t) and of the rewards of all arms at the ``steps`` steps after t, (N (1 + steps)) squared.

    f(t) has covariance C; f(s + 1) = kept f(s) + an independent GP of covariance gained K.
    """
    N = len(C)
    within = [C]
    for _ in range(steps):
        within.append(kept**2 * within[-1] + gained * K)
    joint = np.zeros((steps + 1, N, steps + 1, N))
    for s in range(steps + 1):
        for t in range(s, steps + 1):
            joint[s, :, t] = joint[t, :, s] = kept ** (t - s) * within[s]
        if s:
            joint[s, :, s] += noise_variance * np.eye(N)
    return joint.reshape(N * (steps + 1), -1)


def shares_of_predictive_sampling(mean, C, K, kept, gained, noise_variance, steps, draws, seed=0):
    """Shares (N,) of draws of all later rewards in which arm i has the largest mean of f(t) given them; and that mean's
    covariance. The mean of a later reward is left out on both sides: what matters is how far it is from it."""
    N, random = len(C), np.random.default_rng(seed)
    joint = covariance_of_the_future(C, K, kept, gained, noise_variance, steps)
    gain = np.linalg.solve(joint[N:, N:], joint[N:, :N]).T
    future = random.multivariate_normal(np.zeros(N * steps), joint[N:, N:], size=draws, method="cholesky")
    best = (mean + future @ gain.T).argmax(1)
    return np.bincount(best, minlength=N) / draws, gain @ joint[N:, :N]
