"""How far the posterior drifts from the exact one in a million steps."""

from time import perf_counter
from typing import Any

import pandas as pd
import torch
from mpmath import mp
from torch import Tensor

from bandits_torch.models import ArmGP
from benchmarks.pages import say
from benchmarks.speed.page import Settings
from benchmarks.speed.workload import NOISE_VARIANCE, WIDTH

_ARMS, _LENGTHSCALE = 100, 0.2
_DIGITS = 60


def measure(settings: Settings) -> pd.DataFrame:
    """Every form and precision, with everything kept and with a window."""
    marks = (20,) if settings.fast else (1_000, 10_000, 100_000, 1_000_000)
    window = 15 if settings.fast else 200
    rows: list[dict[str, Any]] = []
    for kept in (None, window):
        for form in ("covariance", "factor"):
            for dtype in (torch.float64, torch.float32):
                rows += _run(settings, form, dtype, kept, marks)
    return pd.DataFrame(rows)


def prior() -> Tensor:
    """A squared exponential over arms on a line, singular to working precision."""
    x = torch.linspace(0, 1, _ARMS, dtype=torch.float64)
    return torch.exp(-((x[:, None] - x) ** 2) / (2 * _LENGTHSCALE**2))


def _run(
    settings: Settings, form: str, dtype: torch.dtype, window: int | None, marks: tuple[int, ...]
) -> list[dict[str, Any]]:
    random = torch.Generator().manual_seed(0)
    K = prior()
    values, vectors = torch.linalg.eigh(K)
    root = vectors * values.clamp_min(0).sqrt()
    function = root @ torch.randn(_ARMS, generator=random, dtype=torch.float64)
    model = ArmGP(_ARMS, K, NOISE_VARIANCE, form=form, dtype=dtype)
    kind = str(dtype).removeprefix("torch.")
    rows: list[dict[str, Any]] = []
    start = perf_counter()
    for step in range(1, marks[-1] + 1):
        if step % 2:
            mean, variance = model.marginals()
            arm = (mean + WIDTH * variance.sqrt()).argmax()
        else:
            arm = torch.randint(_ARMS, (), generator=random)
        noise = NOISE_VARIANCE**0.5 * torch.randn((), generator=random, dtype=torch.float64)
        model.observe_arms(arm, (function[arm] + noise).to(dtype))
        if window is not None and step > window:
            model.forget()
        if step in marks:
            seconds = perf_counter() - start
            errors = errors_of(model)
            facts = {"form": form, "dtype": kind, "window": window or 0, "observations": step}
            rows.append(facts | errors | {"steps_per_second": step / seconds})
            shown = ", ".join(f"{name} {value:.1e}" for name, value in errors.items())
            say(f"{form}, {kind}, window {window}, {step} steps, {seconds:.0f} s: {shown}")
            start += perf_counter() - start - seconds
    return rows


def errors_of(model: ArmGP) -> dict[str, float]:
    """Largest errors over the arms, against a solve in 60 digits with the covariance in float64."""
    mean, variance, gain = exact(model)
    own_mean, own_variance = (value.double() for value in model.marginals())
    return {
        "mean_error": float((own_mean - mean).abs().max()),
        "variance_error": float((own_variance - variance).abs().max()),
        "deviation_error": float((own_variance.sqrt() - variance.sqrt()).abs().max()),
        "gain_error": abs(float(model.information_gain) - gain),
        "smallest_variance": float(variance.min()),
    }


def exact(model: ArmGP) -> tuple[Tensor, Tensor, float]:
    """Posterior mean and variance of all arms and the gain, from the observations held, by a Cholesky in 60 digits."""
    arm = model.train_inputs[0][:, 0].long()
    count = torch.zeros(_ARMS, dtype=torch.float64).index_add_(0, arm, torch.ones(len(arm)).double())
    total = torch.zeros_like(count).index_add_(0, arm, model.train_targets.double())
    pulled = count.nonzero().squeeze(-1).tolist()
    with mp.workdps(_DIGITS):
        K = [[mp.mpf(entry) for entry in row] for row in prior().tolist()]
        spread = [mp.mpf(NOISE_VARIANCE) / int(count[i]) for i in pulled]
        L: list[list[Any]] = []
        rows: list[list[Any]] = []  # L^{-1} [K(pulled, arms), average rewards]
        for k, i in enumerate(pulled):
            row: list[Any] = []
            for j in range(k):
                row.append((K[i][pulled[j]] - mp.fdot(row, L[j][:j])) / L[j][j])
            row.append(mp.sqrt(K[i][i] + spread[k] - mp.fdot(row, row)))
            L.append(row)
            right = [*K[i], mp.mpf(float(total[i])) / int(count[i])]
            columns = zip(*rows, strict=True) if rows else [()] * len(right)
            rows.append(
                [(r - mp.fdot(row[:k], column)) / row[k] for r, column in zip(right, columns, strict=True)]
            )
        columns = list(zip(*rows, strict=True))
        means = [float(mp.fdot(column, columns[-1])) for column in columns[:-1]]
        variances = [float(K[n][n] - mp.fdot(c, c)) for n, c in enumerate(columns[:-1])]
        gain = sum(mp.log(L[k][k] / mp.sqrt(s)) for k, s in enumerate(spread))
        found = torch.tensor([means, variances], dtype=torch.float64)  # not through float32, the default
        return found[0], found[1], float(gain)
