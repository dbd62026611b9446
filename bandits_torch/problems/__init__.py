"""What is optimised: simulated reward functions and tables of real rewards."""

from bandits_torch.problems.drifting import DriftingCosine, SwitchingFunctions
from bandits_torch.problems.hills import Hills
from bandits_torch.problems.moving_peaks import MovingPeaks
from bandits_torch.problems.problem import Knowledge, Problem, gaussian_noise
from bandits_torch.problems.registry import PROBLEMS, describe, make, options_of
from bandits_torch.problems.simulated import SimulatedProblem
from bandits_torch.problems.standard_functions import Hartmann3, Rosenbrock, StandardFunction
from bandits_torch.problems.synthetic import GPDraws, RKHSFunctions, StationaryProblem
from bandits_torch.problems.tv_gp import TVGPDraws

__all__ = [
    "PROBLEMS",
    "DriftingCosine",
    "GPDraws",
    "Hartmann3",
    "Hills",
    "Knowledge",
    "MovingPeaks",
    "Problem",
    "RKHSFunctions",
    "Rosenbrock",
    "SimulatedProblem",
    "StandardFunction",
    "StationaryProblem",
    "SwitchingFunctions",
    "TVGPDraws",
    "describe",
    "gaussian_noise",
    "make",
    "options_of",
]
