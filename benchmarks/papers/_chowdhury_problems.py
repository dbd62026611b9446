"""The settings of Chowdhury & Gopalan 2017, section 6: problems, information gains and the five policies."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bandits_torch import Policy, Problem, make, recipes, theory
from bandits_torch.kernels import ArmCovarianceKernel, estimate_covariance
from bandits_torch.models import OnlineModel
from bandits_torch.problems import StationaryProblem
from bandits_torch.problems.simulated import covariance, regularised_norm, stationary_knowledge
from bandits_torch.problems.table_files import read_arrays
from bandits_torch.theory.widths import GainProvider

OVER_MEAN = {"gp_ei_mean": "gp_ei", "gp_pi_mean": "gp_pi"}  # EI and PI over the largest posterior mean
POLICIES = ("gp_ucb", "igp_ucb", "gp_ts", "gp_ei", "gp_pi", *OVER_MEAN)
DELTA = 0.1
_DAY, _HOUR = 86_400, 3_600


class MaternGrowth:
    """gamma_n = n^{d(d+1)/(2 nu + d(d+1))} ln n, the Matern bound of Srinivas et al. 2010 that the paper quotes, its
    logarithm at least 1; ``theory.GrowthBound("matern")`` is the smaller bound of later work."""

    of_points_alone = True

    def __init__(self, dim: int, nu: float) -> None:
        self.exponent = dim * (dim + 1) / (2 * nu + dim * (dim + 1))

    def __call__(self, points: int | Tensor, model: OnlineModel) -> Tensor:
        n = torch.as_tensor(points).to(model.noise_variance)
        return torch.where(n > 0, n.clamp_min(1) ** self.exponent * n.clamp_min(np.e).log(), 0.0)


class ConstantGain:
    """gamma_n = c, which the paper found by cross-validation (c = 1) for the sensors."""

    of_points_alone = True

    def __init__(self, value: float) -> None:
        self.value = value

    def __call__(self, points: int | Tensor, model: OnlineModel) -> Tensor:
        return model.noise_variance.new_full((), self.value)


class SensorReadings(StationaryProblem):
    """Find the sensor with the highest reading of one moment: each replicate's function is one row of readings.

    Covariance, R^2 = 5 % of the average variance and the mean (each arm's own, or the grand one) are those of the rows
    of ``train``; the functions are those of ``test``, with noise of variance R^2. B is the norm of a row's fit to
    within the noise, as the estimated covariance is nearly singular. ``scaled``: readings over the root of their
    average variance, since the printed widths, in which R is added to B, mean something for k(x, x) about 1 alone.
    """

    def __init__(self, train: Tensor, test: Tensor, *, scaled: bool = True, prior_mean: str = "arm") -> None:
        if scaled:
            unit = estimate_covariance(train).diagonal().mean().sqrt()
            train, test = train / unit, test / unit
        K = estimate_covariance(train)
        noise_variance = 0.05 * float(K.diagonal().mean())
        super().__init__(torch.arange(len(K)).double().unsqueeze(-1), test, noise_variance**0.5)
        means = train.nanmean(0)
        mean = means if prior_mean == "arm" else means.mean()
        norms = regularised_norm(K, test - mean, noise_variance)
        known = stationary_knowledge(self, ArmCovarianceKernel(K), norms)
        self.knowledge = replace(known, prior_mean=mean if prior_mean == "arm" else float(mean))


def workplace(data: Path, rows: int | None = None, **options: Any) -> SensorReadings:
    """Light of 41 sensors in the CMU Intelligent Workplace, in the paper's split (figure 4b), so many rows, evenly
    spread."""
    arrays = read_arrays("data", data / "cmu_light.npz", ("train", "test"))
    train, test = (torch.from_numpy(arrays[name].astype(np.float64)) for name in ("train", "test"))
    picked = np.linspace(0, len(test) - 1, rows or len(test)).round().astype(int)
    return SensorReadings(train, test[picked], **options)


def sensors(data: Path, *, whole_days: bool, rows: int | None = None, **options: Any) -> SensorReadings:
    """Temperatures of the Intel laboratory: covariance of 1 to 5 March 2004, functions of 6 and 7 March, of whole days
    or from 8 to 9 o'clock alone; so many rows, evenly spread."""
    arrays = read_arrays("data", data / "intel_temperature.npz", ("temperature", "observed", "time"))
    readings = np.where(arrays["observed"], arrays["temperature"].astype(np.float64), np.nan)
    time = arrays["time"]
    day, hour = time // _DAY - time[0] // _DAY, time % _DAY // _HOUR
    chosen = np.full(len(time), True) if whole_days else hour == 8
    train, test = readings[chosen & (day < 5)], readings[chosen & (day >= 5) & (day < 7)]
    working = (~np.isnan(train)).mean(0) >= 0.5
    working &= ~np.isnan(test).any(0)
    picked = np.linspace(0, len(test) - 1, rows or len(test)).round().astype(int)
    parts = (torch.from_numpy(rows[:, working]) for rows in (train, test[picked]))
    return SensorReadings(*parts, **options)


@dataclass(frozen=True)
class Setting:
    """A panel of a figure: the problem, with as many replicates as trials, the widths' gamma_n, and its words."""

    problem: Problem
    gain: GainProvider
    words: str


def settings(panel: str, trials: int, data: Path | None, **options: Any) -> Setting:
    """The setting of a panel, ``"1a"`` to ``"4b"``; ``options`` are the problem's. Panels 4a and 4b need ``data``, and
    play every test row, 12 and 192, or ``trials`` where that is below 25."""
    if panel in ("4a", "4b"):
        assert data is not None, "panels 4a and 4b need the folder of the readings"
        most = {"rows": trials} if trials < (12 if panel == "4a" else 25) else {}
        problem: Problem
        if panel == "4a":
            problem, words = sensors(data, **({"whole_days": False} | most | options)), "Intel laboratory"
        else:
            problem, words = workplace(data, **(most | options)), "CMU Intelligent Workplace, light"
        return Setting(problem, ConstantGain(1.0), words)
    if panel in ("3a", "3b"):
        name, dim = ("rosenbrock", 2) if panel == "3a" else ("hartmann3", 3)
        problem = make(name, replicates=trials, **options)
        gain = theory.GrowthBound("squared_exponential", dim)
        return Setting(problem, gain, f"{name}, squared exponential kernel")
    kernel, name = ("se" if panel[1] == "a" else "matern"), ("rkhs" if panel[0] == "1" else "gp")
    problem = make(name, kernel=kernel, replicates=trials, **options)
    gain = theory.GrowthBound("squared_exponential", 1) if kernel == "se" else MaternGrowth(1, 2.5)
    what = "functions of the RKHS" if name == "rkhs" else "draws of the Gaussian process"
    return Setting(
        problem, gain, f"{what}, {'squared exponential' if kernel == 'se' else 'Matern 5/2'} kernel"
    )


def build(name: str, setting: Setting, horizon: int, form: str = "printed", **options: Any) -> Policy:
    """A policy of the paper with its printed width: beta~_t of GP-UCB (RKHS), beta_t of IGP-UCB, v_t of GP-TS. GP-EI
    and GP-PI improve on the largest reward, those of ``OVER_MEAN`` on the largest posterior mean."""
    problem = setting.problem
    known = problem.knowledge
    B, R = known.rkhs_bound, torch.as_tensor(known.noise_variance, dtype=torch.float64).sqrt()
    if name == "gp_ucb":
        options["width"] = theory.SrinivasRKHSWidth(B, DELTA, setting.gain)
    elif name in ("igp_ucb", "gp_ts"):
        kind = theory.IGPWidth if name == "igp_ucb" else theory.GPTSWidth
        options["width"] = kind(B, R, DELTA, setting.gain, form=form)
    else:
        options["incumbent"] = "mean" if name in OVER_MEAN else "reward"
    given = {"replicates": problem.replicates, "horizon": horizon}
    return recipes.build(OVER_MEAN.get(name, name), problem, **given, **options)


def variants(panel: str, trials: int, horizon: int) -> dict[str, tuple[Setting, dict[str, Any]]]:
    """Settings of panel 1a or 1b with one choice that the paper leaves open, or misprints, changed at a time."""
    base = settings(panel, trials, None)
    problem = base.problem
    K, f = covariance(problem.knowledge.kernel, problem.arms), problem.functions
    misprinted = settings(panel, trials, None)
    printed_norm = ((f @ K) * f).sum(-1).sqrt()
    misprinted.problem.knowledge = replace(problem.knowledge, rkhs_bound=printed_norm)
    noise = torch.as_tensor(problem.knowledge.noise_variance).expand(trials)
    largest = theory.MaximumGain(K.expand(trials, -1, -1), noise, horizon)
    later = {"later Matern bound": replace(base, gain=theory.GrowthBound("matern", 1, 2.5))}
    found = {
        "default": base,
        "B^2 = f^T K f, as printed": misprinted,
        "gamma realised": replace(base, gain=theory.RealisedGain()),
        "gamma greedy maximum": replace(base, gain=largest),
        **(later if panel == "1b" else {}),
        "gamma = 1, as for the sensors": replace(base, gain=ConstantGain(1.0)),
    }
    chosen: dict[str, tuple[Setting, dict[str, Any]]] = {words: (s, {}) for words, s in found.items()}
    chosen["width form: theory"] = (base, {"form": "theory"})
    return chosen
