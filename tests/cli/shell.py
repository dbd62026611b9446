"""The command line, called in this process."""

from unittest.mock import patch

from click.testing import CliRunner, Result

from bandits_torch import cli
from bandits_torch.recorder import Recorder


def call(*arguments: object) -> Result:
    """What ``bandits-torch ARGUMENTS`` answers."""
    return CliRunner().invoke(cli.app, list(map(str, arguments)))


def interrupted(step: int, *arguments: object) -> Result:
    """The same, interrupted at this step of the second policy of a race."""
    whole, played = Recorder.pulled, []

    def pulled(self: Recorder, now: int, *rest: object) -> None:
        played.append(now)
        if played.count(step) == 2:
            raise KeyboardInterrupt
        whole(self, now, *rest)

    with patch.object(Recorder, "pulled", pulled):
        return call(*arguments)
