"""How often draws choose each arm: Thompson sampling over priors, and predictive sampling, in plain NumPy."""

import numpy as np

from tests.reference.dense_priors import DensePrior


def posterior(prior: DensePrior, arms, rewards, times, now):
    """Mean and covariance of all arms at ``now``, and the log marginal likelihood, by solving with all data."""
    K, m = prior.covariance.numpy(), prior.mean.numpy()
    a, t = np.array(arms, dtype=int), np.array(times, dtype=float)
    gram = K[np.ix_(a, a)] * (1 - prior.rate) ** (abs(t[:, None] - t) / 2) + prior.noise_variance * np.eye(
        len(a)
    )
    cross = K[a] * ((1 - prior.rate) ** (abs(now - t) / 2))[:, None]
    residual = np.array(rewards) - m[a]
    solved = (
        np.linalg.solve(gram, np.column_stack([residual, cross])) if len(a) else np.zeros((0, len(m) + 1))
    )
    log = -0.5 * (residual @ solved[:, 0] + np.linalg.slogdet(gram)[1] + len(a) * np.log(2 * np.pi))
    return m + cross.T @ solved[:, 0], K - cross.T @ solved[:, 1:], log


def shares_of_hp_gp_ts(priors, arms, rewards, times, now, draws, seed=0):
    """Shares (P, N) of draws in which prior p was drawn from its posterior and arm i was the best of f ~ GP under p."""
    random, fits = np.random.default_rng(seed), [posterior(p, arms, rewards, times, now) for p in priors]
    weight = np.exp([log - max(fit[2] for fit in fits) for _, _, log in fits])
    share = np.zeros((len(priors), len(fits[0][0])))
    for _ in range(draws):
        p = random.choice(len(priors), p=weight / weight.sum())
        f = random.multivariate_normal(fits[p][0], fits[p][1], method="eigh")
        share[p, f.argmax()] += 1 / draws
    return share


def shares_of_pe_gp_ts(priors, surviving, arms, rewards, times, now, draws, seed=0):
    """Shares (P, N) of draws in which arm i under the surviving prior p was the best of all arms and survivors."""
    random, fits = np.random.default_rng(seed), [posterior(p, arms, rewards, times, now) for p in priors]
    share = np.zeros((len(priors), len(fits[0][0])))
    for _ in range(draws):
        f = np.stack([random.multivariate_normal(mean, C, method="eigh") for mean, C, _ in fits])
        f[~np.array(surviving)] = -np.inf
        share[np.unravel_index(f.argmax(), f.shape)] += 1 / draws
    return share
