"""The command line in a process of its own that is a copy of this one: it need not import torch again.

What a process does at its start is tested by processes that start: tests/cli/test_cli_start.py.
"""

import os
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import IO, Self

import torch

from bandits_torch import naming
from bandits_torch.cli.commands import main


class Forked:
    """``bandits-torch ARGUMENTS``, or ``act()``, in the folder ``cwd``, after ``first()``.

    ``site``: a folder of more packages.
    """

    def __init__(
        self,
        *arguments: str,
        cwd: Path | None = None,
        site: Path | None = None,
        first: Callable[[], object] | None = None,
        act: Callable[[], object] = main,
    ) -> None:
        self._files: list[IO[str]] = [tempfile.TemporaryFile("w+") for _ in range(2)]  # noqa: SIM115
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # other threads there are do not hold locks
            self.pid = os.fork()
        self.returncode: int | None = None
        self.stdout = self.stderr = ""
        if self.pid:
            return
        code = 1
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background ignore it
            sys.stdout, sys.stderr = self._files
            for number, file in enumerate(self._files, 1):
                os.dup2(file.fileno(), number)
            warnings.simplefilter("default")
            os.environ["OMP_NUM_THREADS"] = "1"  # a pool of threads does not outlive a fork
            torch.set_num_threads(1)
            if cwd is not None:
                os.chdir(cwd)
            if site is not None:
                sys.path.insert(0, str(site))
                os.environ["PYTHONPATH"] = os.pathsep.join(map(str, [os.environ.get("PYTHONPATH", ""), site]))
                naming.installed.cache_clear()
            if first is not None:
                first()
            sys.argv = ["bandits-torch", *arguments]
            act()
            code = 0
        except SystemExit as done:
            code = int(done.code or 0)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def poll(self) -> int | None:
        """Exit code, or minus the signal's number; None as long as it runs."""
        return self._waited(os.WNOHANG)

    def wait(self) -> Self:
        """Its end, with all that it said."""
        self._waited(0)
        return self

    def _waited(self, options: int) -> int | None:
        if self.returncode is None and any(status := os.waitpid(self.pid, options)):
            self.returncode = os.waitstatus_to_exitcode(status[1])
            for file in self._files:
                file.seek(0)
            self.stdout, self.stderr = (file.read() for file in self._files)
            for file in self._files:
                file.close()
        return self.returncode
