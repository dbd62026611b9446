"""What is optimised: simulated reward functions and tables of real rewards."""

from bandits_torch.problems.constrained import SafeTVGPDraws
from bandits_torch.problems.contextual import ContextualGPDraws
from bandits_torch.problems.continuous import ContinuousProblem
from bandits_torch.problems.datasets import (
    BeijingPM25,
    IntelHumidity,
    IntelLight,
    IntelTemperature,
    MoleneTemperature,
    MoleneWind,
)
from bandits_torch.problems.drifting import (
    DriftingCosine,
    SphereOneSwitch,
    SphereTwoSwitches,
    SwitchingFunctions,
)
from bandits_torch.problems.dynamic_functions import DynamicFunction
from bandits_torch.problems.forgetting_fit import fit_forgetting_rate
from bandits_torch.problems.hills import Hills
from bandits_torch.problems.joint_fit import ForgettingFit, fit_forgetting
from bandits_torch.problems.many_arms import GridDraws, RegressionTable, VarianceStarvation
from bandits_torch.problems.moving_peaks import MovingPeaks
from bandits_torch.problems.problem import Knowledge, Problem, gaussian_noise
from bandits_torch.problems.registration import NamedProblem, named
from bandits_torch.problems.registry import PROBLEMS, describe, make, needs_data, options_of, registered
from bandits_torch.problems.replay import Replay
from bandits_torch.problems.simulated import SimulatedProblem
from bandits_torch.problems.standard_functions import Hartmann3, Rosenbrock, StandardFunction
from bandits_torch.problems.synthetic import GPDraws, RKHSFunctions, StationaryProblem
from bandits_torch.problems.tables import RewardTable, read_table
from bandits_torch.problems.tv_gp import TVGPDraws

__all__ = [
    "PROBLEMS",
    "BeijingPM25",
    "ContextualGPDraws",
    "ContinuousProblem",
    "DriftingCosine",
    "DynamicFunction",
    "ForgettingFit",
    "GPDraws",
    "GridDraws",
    "Hartmann3",
    "Hills",
    "IntelHumidity",
    "IntelLight",
    "IntelTemperature",
    "Knowledge",
    "MoleneTemperature",
    "MoleneWind",
    "MovingPeaks",
    "NamedProblem",
    "Problem",
    "RKHSFunctions",
    "RegressionTable",
    "Replay",
    "RewardTable",
    "Rosenbrock",
    "SafeTVGPDraws",
    "SimulatedProblem",
    "SphereOneSwitch",
    "SphereTwoSwitches",
    "StandardFunction",
    "StationaryProblem",
    "SwitchingFunctions",
    "TVGPDraws",
    "VarianceStarvation",
    "describe",
    "fit_forgetting",
    "fit_forgetting_rate",
    "gaussian_noise",
    "make",
    "named",
    "needs_data",
    "options_of",
    "read_table",
    "registered",
]
