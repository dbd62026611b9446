"""The commands of the command line, in one place."""

from __future__ import annotations

import click

from bandits_torch._version import __version__
from bandits_torch.cli.listing import list_names
from bandits_torch.cli.race import race, rerun
from bandits_torch.cli.sweep import sweep


@click.group(context_settings={"show_default": True})
@click.version_option(__version__, message=f"bandits_torch {__version__}", help="Print the version and stop.")
def app() -> None:
    """Race algorithms that look for the best of many arms while the rewards change with time (bandit algorithms with
    Gaussian-process models). To begin with, `bandits-torch race`: eight algorithms on a function that is replaced at
    step 300 of 1000, in some seconds. Then `bandits-torch list` for the algorithms (policies) and problems there are,
    and `bandits-torch race --data my.csv` for rewards of your own, a row a step and a column an arm.
    """


for command in (race, list_names, rerun, sweep):
    app.add_command(command)


def main() -> None:
    """Run the command line."""
    app(prog_name="bandits-torch")
