"""What observations matter, from whole posteriors: a dense model that drops nothing, distances summed over a grid."""

import math

import torch


def covariance(z, w, lengthscale, rate, nu=None):
    """(n, m) of points and times (n, d + 1): squared exponential, or Matern 5/2 for ``nu``; exponential forgetting."""
    r = (z[:, None, :-1] - w[None, :, :-1]).square().sum(-1).sqrt() / lengthscale
    space = torch.exp(-0.5 * r**2)
    if nu == 2.5:
        space = (1 + math.sqrt(5) * r + 5 * r**2 / 3) * torch.exp(-math.sqrt(5) * r)
    return space * (1 - rate) ** ((z[:, None, -1] - w[None, :, -1]).abs() / 2)


def posterior(z, y, noise, kernel, at):
    """Mean and variance (m,) at points and times (m, d + 1), by inverting the whole matrix."""
    inverse = torch.linalg.inv(kernel(z, z) + noise * torch.eye(len(z)).double())
    k = kernel(at, z)
    return k @ inverse @ y, torch.ones(len(at)).double() - (k @ inverse * k).sum(-1)


def distance(first, second, cell):
    """Of two (mean, variance) on a grid: the square root of the integral of the bounded squared distance."""
    (m, v), (n, w) = first, second
    return math.sqrt(cell * float(((m - n) ** 2 + (v - w).abs()).sum()))


def relevance(z, y, noise, kernel, grid, cell):
    """W(all, all but i) / W(all, prior) for each i, the posteriors computed one by one."""
    whole = posterior(z, y, noise, kernel, grid)
    prior = torch.zeros(len(grid)).double(), torch.ones(len(grid)).double()
    total = distance(whole, prior, cell)
    ratios = []
    for i in range(len(z)):
        left = torch.arange(len(z)) != i
        ratios.append(distance(whole, posterior(z[left], y[left], noise, kernel, grid), cell) / total)
    return torch.tensor(ratios).double()


def w_dbo(z, y, noise, kernel, alpha, time_lengthscale, grid_from, cell):
    """Which observations W-DBO holds after each arrival, as lists of numbers: its algorithm, with those distances."""
    held, budget, history = [], 1.0, []
    for i in range(len(z)):
        if held:
            budget *= (1 + alpha) ** (float(z[i, -1] - z[i - 1, -1]) / time_lengthscale)
        held.append(i)
        while len(held) > 2 and budget > 1:
            R = relevance(z[held], y[held], noise, kernel, grid_from(float(z[i, -1])), cell)
            least = int(R.argmin())
            if not 1 + float(R[least]) < budget:
                break
            budget /= 1 + float(R[least])
            del held[least]
        history.append(list(held))
    return history
