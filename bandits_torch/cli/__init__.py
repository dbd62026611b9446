"""The command line ``bandits-torch``. Its functions are not a public interface."""

from bandits_torch.cli.commands import app as app
from bandits_torch.cli.commands import main as main

__all__: list[str] = []
