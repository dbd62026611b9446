"""Attack every model with random lives and compare each answer with a dense twin in extended precision.

Random interleavings of observing (some members alone, late, with a noise of their own, an extreme reward now and then),
forgetting, resetting, holding other observations instead, and expecting pulls whose rewards are not known; for ratios
of noise to prior variance from 1e-8 to 1e3, kernels with and without time at any clock, prior means, replicates and
candidate priors.

What is right: to compute with a covariance K + lambda I in float64 is to be told K with an error of eps k, and the
answers move by that times |(K + lambda I)^{-1}| <= 1 / lambda. So errors of
``C eps (1 + n k / lambda)`` of the size of the answer, n observations, k the largest prior variance, are what an
algorithm can promise of which nothing is known but that it is backward stable; here C is ``ALLOWED``.
"""

import random
from typing import Any

import torch
from torch import Tensor

from bandits_torch.kernels import (
    ArmCovarianceKernel,
    ExponentialForgettingKernel,
    MaternTimeKernel,
    QuasiPeriodicKernel,
    SpatioTemporalKernel,
    WienerKernel,
)
from bandits_torch.models import ArmGP, LeverageSampling, OnlineGP, SketchedGP
from bandits_torch.models.arms.weighted_gp import WeightedGP
from tests.reference.lives import Life

F64 = torch.float64
OF_ARM_GP = ("auto", "covariance", "factor", "states")
MODELS = (*OF_ARM_GP, "OnlineGP", "SketchedGP", "WeightedGP")


# -- random lives ------------------------------------------------------------------------------------------


def covariance(random: random.Random, N: int, scale: float) -> Tensor:
    """Of N arms: smooth, rough or isolated; of one prior variance or of several."""
    x = torch.tensor([[random.random(), random.random()] for _ in range(N)], dtype=F64)
    kind, distance = random.choice(("smooth", "rough", "isolated")), torch.cdist(x, x)
    ell = random.choice((0.1, 0.3, 1.0))
    K = {
        "smooth": torch.exp(-0.5 * (distance / ell) ** 2),
        "rough": torch.exp(-distance / ell),
        "isolated": torch.eye(N, dtype=F64),
    }[kind]
    if random.random() < 0.3:
        deviation = torch.tensor([10 ** random.uniform(-1, 0) for _ in range(N)], dtype=F64)
        K = deviation[:, None] * K * deviation
    K = (K + K.mT) / 2
    return scale * K / K.diagonal().max()


def life(random: random.Random, name: str, seed: int) -> tuple[Life, float, float]:
    """A model nothing has been told, the time of its first observation, and a typical step."""
    N, S = random.randint(2, 8), random.randint(1, 3)
    P = random.choice((1, 1, 2)) if name != "SketchedGP" else 1
    scale, ratio = 10.0 ** random.choice((-6, 0, 0, 6)), 10 ** random.uniform(-8, 3)
    if name == "OnlineGP":
        scale = max(1.0, scale)
    K = torch.stack([covariance(random, N, scale) for _ in range(P)])
    if name == "SketchedGP":  # its dictionary leaves out what another arm tells to 1e-12
        K = K + 1e-6 * scale * torch.eye(N, dtype=F64)
    if name == "OnlineGP":
        scale = max(1.0, scale)
    noise = [scale * ratio * 10 ** random.uniform(-0.3, 0.3) for _ in range(S)]
    noise_ = torch.tensor(noise, dtype=F64).unsqueeze(-1)
    offset = scale**0.5 * random.choice((0.0, 1.0, 10.0))
    mean = offset * torch.tensor([[random.gauss(0, 1) for _ in range(N)] for _ in range(P)], dtype=F64)
    over_time: Any = None
    rate, start, t0, step = 0.0, 0.0, 0.0, 1.0
    if name == "states" or (name in (*OF_ARM_GP, "OnlineGP") and random.random() < 0.6):
        over_time = random.choice(("matern", "cycle") if name == "states" else ("exponential", "wiener"))
        rate = random.choice((0.001, 0.05, 0.5))
        start = 0.0
        t0, step = random.choice((0.0, 1.7e9, 1e12)), random.choice((1e-3, 1.0, 1.0, 1e6))
        if name == "OnlineGP" or random.random() < 0.7:
            start = t0 - random.choice((0.0, 1.0))
    kernel: Any = ArmCovarianceKernel(K)
    if over_time == "exponential":
        kernel = SpatioTemporalKernel(kernel, ExponentialForgettingKernel(rate))
        rate = float(kernel.time_kernel.forgetting_rate.detach())
    elif over_time == "wiener":
        kernel = SpatioTemporalKernel(kernel, WienerKernel(rate, start))
        rate = float(kernel.time_kernel.drift_variance.detach())
    elif over_time == "matern":
        rate = 1 / (10 * step)  # of the length-scale
        kernel = SpatioTemporalKernel(kernel, MaternTimeKernel(10 * step, 1.5))
    elif over_time == "cycle":
        kernel = SpatioTemporalKernel(kernel, QuasiPeriodicKernel(7 * step, 1.0, 30 * step, order=2))
        rate = 1 / (30 * step)
    batch, discount = (S, P), 1.0
    if name in OF_ARM_GP:
        model: Any = ArmGP(
            N, kernel, noise_, prior_mean=mean, form="auto" if name == "states" else name, batch_shape=batch
        )
    elif name == "OnlineGP":
        model = OnlineGP(kernel, noise_, input_dim=1 + (over_time is not None), batch_shape=batch)
        mean = torch.zeros(P, N, dtype=F64)
    elif name == "SketchedGP":
        sampling = LeverageSampling.practical(random.choice((0.5, 2.0, 1e6)), random.choice((1.0, 2.0, 20.0)))
        how = {"sampling": sampling, "chunk_size": random.choice((None, 3)), "seed": seed}
        model = SketchedGP(N, K[0], noise_[:, 0], prior_mean=mean[0], batch_shape=(S,), **how)
    else:
        discount = random.choice((1.0, 0.99, 0.7))
        model = WeightedGP(N, kernel, noise_, discount=discount, batch_shape=batch)
        mean = torch.zeros(P, N, dtype=F64)
    members = [(s, p) for s in range(S) for p in range(P)]
    every = (
        torch.stack([K[p] for _, p in members]),
        [noise[s] for s, _ in members],
        torch.stack([mean[p] for _, p in members]),
    )
    own_noise = name in ("auto", "covariance") and random.random() < 0.4
    return Life(name, model, *every, over_time, rate, start, discount, own_noise), t0, step


def live(random: random.Random, one: Life, t0: float, step: float, actions: int) -> list[tuple[Any, ...]]:
    """Random actions, each followed by a comparison: (what, ratio, error, allowed)."""
    b, N, found = one.members, one.K.shape[-1], []
    extreme = random.random() < 0.2
    for _ in range(actions):
        time = t0 if one.now is None else one.now + random.choice((0.0, 1.0, 1.0, random.random())) * step
        time = time if one.over_time is not None else 0.0
        kind = random.choices(
            ("observe", "masked", "late", "forget", "reset", "reset all", "hold", "expect"),
            (12, 3, 2, 5, 0.4, 0.1, 1, 1 if one.name != "WeightedGP" else 0),
        )[0]
        where = torch.tensor([random.random() < 0.6 for _ in range(b)])
        arm = torch.tensor([random.randrange(N) for _ in range(b)])
        size = one.K.diagonal(dim1=-2, dim2=-1).amax(-1).sqrt() * (
            1e6 if extreme and random.random() < 0.1 else 1
        )
        reward = one.mean.gather(-1, arm[:, None])[:, 0] + size * torch.tensor(
            [random.gauss(0, 1) for _ in range(b)], dtype=F64
        )
        try:
            if kind == "expect":
                back = random.choice((0.0, 2 * step)) if one.over_time is not None else 0.0
                found += one.pending(random, time - back)
            else:
                one.act(random, kind, arm, reward, time, where, step)
        except ValueError as error:
            if "of the prior variance at that time" not in str(error):
                raise
            return found  # refused: the rest of this life is not to be had in float64
        later = one.now if one.now is not None else t0
        found += one.errors(later + (random.choice((0.0, 0.5)) * step if one.over_time is not None else 0.0))
    return found


def attack(name: str, lives: int, seed: int = 0, actions: int = 40) -> tuple[int, list[str]]:
    """How many answers of so many lives of a model were compared, and each that was wrong."""
    checks, wrong = 0, []
    for number in range(lives):
        chance = random.Random(f"{seed} {number} {name}")
        one, t0, step = life(chance, name, number)
        for what, ratio, error, allowed in live(chance, one, t0, step, actions):
            checks += 1
            if not error <= allowed:
                wrong.append(
                    f"{name}, life {number} ({one.over_time}, t0 {t0:g}, step {step:g}, start {one.start}): "
                    f"{what} off by {error:.1e} at a ratio of {ratio:.1e}, allowed {allowed:.1e}"
                )
    return checks, wrong
