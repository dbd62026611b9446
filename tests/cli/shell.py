"""The command line, called in this process."""

from unittest.mock import patch

from click.testing import CliRunner, Result

from bandits_torch import loop
from bandits_torch.captured.steps import NotCaptured
from bandits_torch.cli import commands
from bandits_torch.history import Recorder

REPORT = ["regret.csv", "regret.png", "report.html", "run.json"]


def call(*arguments: object, code: int | None = 0) -> Result:
    """What ``bandits-torch ARGUMENTS`` answers, which ends with this code (None: any); an error (2) is one line."""
    result = CliRunner().invoke(commands.app, list(map(str, arguments)))
    assert code in (None, result.exit_code), result.output
    assert code != 2 or result.stderr.count("\n") == 1, result.stderr
    return result


def interrupted(step: int, *arguments: object) -> Result:
    """The same, step by step, interrupted at this step of the second policy of a race."""
    whole, played = Recorder.pulled, []

    def pulled(self: Recorder, now: int, *rest: object) -> None:
        played.append(now)
        if played.count(step) == 2:
            raise KeyboardInterrupt
        whole(self, now, *rest)

    single = patch.object(loop, "play_captured", side_effect=NotCaptured)
    with patch.object(Recorder, "pulled", pulled), single:
        return call(*arguments, code=130)
