"""bandits_torch: optimise functions that change with time under bandit feedback, on PyTorch.

The driver: ``run(recipes.sw_gp_ucb(...), problem, horizon)``. The parts, for a loop of your own: kernels over
space and time (``bandits_torch.kernels``), exact online models (``ArmGP``, ``OnlineGP``), confidence widths
(``bandits_torch.theory``) and BoTorch acquisition functions (``bandits_torch.acquisition``).

A name is imported when it is first used, so ``bandits-torch --help`` need not wait for torch.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from bandits_torch._version import __version__

if TYPE_CHECKING:
    from bandits_torch import recipes
    from bandits_torch.acquisition import ThompsonSampling, UpperConfidenceBound
    from bandits_torch.arm_context import ArmContext
    from bandits_torch.ask_tell import AskTell, Question
    from bandits_torch.domain import Domain
    from bandits_torch.history import History
    from bandits_torch.loop import run
    from bandits_torch.models import ArmGP, OnlineGP, OnlineModel
    from bandits_torch.off_policy import Value, value
    from bandits_torch.policies import IndexPolicy, Policy
    from bandits_torch.policy_files import load_policy, save_policy
    from bandits_torch.problems import Problem, make
    from bandits_torch.problems.diagnosis import diagnose

__all__ = [
    "ArmContext",
    "ArmGP",
    "AskTell",
    "Domain",
    "History",
    "IndexPolicy",
    "OnlineGP",
    "OnlineModel",
    "Policy",
    "Problem",
    "Question",
    "ThompsonSampling",
    "UpperConfidenceBound",
    "Value",
    "__version__",
    "diagnose",
    "load_policy",
    "make",
    "recipes",
    "run",
    "save_policy",
    "value",
]
# The modules that define the public names; a name that is not listed is a module.
_HOMES = {
    "acquisition": ("ThompsonSampling", "UpperConfidenceBound"),
    "arm_context": ("ArmContext",),
    "ask_tell": ("AskTell", "Question"),
    "domain": ("Domain",),
    "history": ("History",),
    "loop": ("run",),
    "models": ("ArmGP", "OnlineGP", "OnlineModel"),
    "off_policy": ("Value", "value"),
    "policies": ("IndexPolicy", "Policy"),
    "policy_files": ("load_policy", "save_policy"),
    "problems": ("Problem", "make"),
    "problems.diagnosis": ("diagnose",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

if not TYPE_CHECKING:  # with __getattr__, type checkers would accept any name

    def __getattr__(name: str) -> object:
        """Import a public name, or a module of this package (PEP 562)."""
        if name in _HOME_OF:
            globals()[name] = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
            return globals()[name]
        if name.isidentifier() and not name.startswith("_") and find_spec(f"{__name__}.{name}"):
            return import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
