"""Problems, which policies play: simulated reward functions and tables of real rewards."""

from bandits_torch.problems.continuous import ContinuousProblem, DynamicFunction
from bandits_torch.problems.datasets import (
    BeijingPM25,
    IntelHumidity,
    IntelLight,
    IntelTemperature,
    MoleneTemperature,
    MoleneWind,
    RegressionTable,
)
from bandits_torch.problems.drifting import (
    DriftingCosine,
    MovingPeaks,
    SphereOneSwitch,
    SphereTwoSwitches,
    SwitchingFunctions,
)
from bandits_torch.problems.forgetting_fit import ForgettingFit, fit_forgetting, fit_forgetting_rate
from bandits_torch.problems.logs import Log, read_data, read_log
from bandits_torch.problems.problem import (
    PROBLEMS,
    Knowledge,
    NamedProblem,
    Problem,
    gaussian_noise,
    make,
    named,
    options_of,
    registered,
)
from bandits_torch.problems.replay import Replay
from bandits_torch.problems.simulated import (
    GPDraws,
    Hartmann3,
    Hills,
    RKHSFunctions,
    Rosenbrock,
    SimulatedProblem,
    StandardFunction,
    StationaryProblem,
    VarianceStarvation,
)
from bandits_torch.problems.tables import RewardTable, read_table
from bandits_torch.problems.tv_gp import ContextualGPDraws, GridDraws, SafeTVGPDraws, TVGPDraws

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
    "Log",
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
    "fit_forgetting",
    "fit_forgetting_rate",
    "gaussian_noise",
    "make",
    "named",
    "options_of",
    "read_data",
    "read_log",
    "read_table",
    "registered",
]

_ORDER = ("simulated", "drifting", "tv_gp", "continuous", "replay", "datasets")  # of modules, in lists
for _name in sorted(PROBLEMS, key=lambda name: _ORDER.index(PROBLEMS[name].__module__.rpartition(".")[2])):
    PROBLEMS[_name] = PROBLEMS.pop(_name)
