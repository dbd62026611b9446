"""A beam line in Cheetah that drifts: four quadrupoles, a screen, and what their settings are worth at every shot."""

import math

import torch
from cheetah import Drift, ParameterBeam, Quadrupole, Segment
from torch import Tensor

QUADRUPOLES = ("q1", "q2", "q3", "q4")
LIMIT = 10.0  # of a strength k1, in 1 / m^2
NOISE = 0.05  # standard deviation of a measured ln(size)
SHOTS = 2_000
PERIODS = (150.0, 600.0)  # shots, of the sinusoids that an error is the sum of
FIELD = 0.25  # amplitude of the relative field errors
SHIFT = 4e-4  # amplitude of the misalignments, in metres
_GAPS = (0.4, 0.4, 0.4, 1.0)
_CHUNK = 100  # shots whose optima are sought together
_STARTS, _STEPS, _RATE = 16, 100, 0.5


def number(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


class DriftingLattice:
    """ln of the root mean square size of the beam about the centre of a screen, in millimetres; less is better. Field
    errors and misalignments (both planes) of the four quadrupoles are sums of two sinusoids of random periods and
    phases."""

    def __init__(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        draw = lambda *shape: torch.rand(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
        periods = PERIODS[0] + (PERIODS[1] - PERIODS[0]) * draw(2, 12, 1)
        t = torch.arange(SHOTS, dtype=torch.float64)
        waves = torch.sin(2 * math.pi * (t / periods + draw(2, 12, 1))).mean(0)  # 12 x SHOTS
        self.field, self.shift = FIELD * waves[:4], SHIFT * waves[4:].reshape(4, 2, SHOTS)
        self.noise = NOISE * torch.randn(SHOTS, generator=generator, dtype=torch.float64)

    def value(self, strengths: Tensor, shot: Tensor) -> Tensor:
        """Without noise: values of strengths (..., 4) at shots that broadcast with (...)."""
        shot, _ = torch.broadcast_tensors(shot, strengths[..., 0])
        parts = [Drift(number(0.3), dtype=torch.float64)]
        for i, gap in enumerate(_GAPS):
            k1 = strengths[..., i] * (1 + self.field[i, shot])
            misalignment = self.shift[i, :, shot].movedim(0, -1)
            parts.append(Quadrupole(number(0.12), k1=k1, misalignment=misalignment, dtype=torch.float64))
            parts.append(Drift(number(gap), dtype=torch.float64))
        out = Segment(parts).track(_beam())
        squares = out.sigma_x.square() + out.sigma_y.square() + out.mu_x.square() + out.mu_y.square()
        return 0.5 * squares.log() + math.log(1e3)

    def least(self, shots: int) -> Tensor:
        """The least value at each of the first shots, (shots,): gradient descent from 16 points, at every tenth shot;
        in between, the lower value of the best strengths at the two tenth shots beside it."""
        every = torch.arange(0, shots, 10)
        generator = torch.Generator().manual_seed(0)
        best = []
        for some in every.split(_CHUNK):
            uniform = torch.rand(len(some), _STARTS, 4, generator=generator, dtype=torch.float64)
            k = ((2 * uniform - 1) * LIMIT).requires_grad_(True)
            optimiser = torch.optim.Adam([k], lr=_RATE)
            rate = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, _STEPS)
            for _ in range(_STEPS):
                optimiser.zero_grad()
                self.value(k, some.unsqueeze(-1)).sum().backward()
                optimiser.step()
                rate.step()
                with torch.no_grad():
                    k.clamp_(-LIMIT, LIMIT)
            with torch.no_grad():
                first = self.value(k, some.unsqueeze(-1)).argmin(-1)
                best.append(k[torch.arange(len(some)), first].detach())
        found = torch.cat(best)
        shot = torch.arange(shots)
        left = shot // 10
        both = torch.stack([found[left], found[(left + 1).clamp_max(len(found) - 1)]])
        with torch.no_grad():
            return self.value(both, shot).min(0).values


def _beam() -> ParameterBeam:
    size = {"sigma_x": 3e-4, "sigma_y": 2e-4, "sigma_px": 4e-5, "sigma_py": 3e-5, "sigma_tau": 1e-6}
    about = {name: number(value) for name, value in (size | {"sigma_p": 1e-3, "energy": 1e8}).items()}
    return ParameterBeam.from_parameters(**about, dtype=torch.float64)
