"""Messages of the command line: one line for each error or warning, and advice after an interrupt."""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import click


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn errors into one line on standard error and exit code 2, Ctrl-C into exit code 130, as shells do, and a
    closed pipe on standard output into exit code 1. Click prints its own errors.

    A UserWarning, as the package gives them, is also one line, printed once; other warnings are as in Python.
    """
    usual, printed = warnings.showwarning, set()

    def show(message: Warning | str, category: type[Warning], *more: Any, **others: Any) -> None:
        if category is not UserWarning:
            usual(message, category, *more, **others)
        elif str(message) not in printed:
            printed.add(str(message))
            click.echo(f"warning: {' '.join(str(message).split())}", err=True)

    try:
        with warnings.catch_warnings():
            warnings.showwarning = show
            yield
    except (click.ClickException, click.exceptions.Exit, click.Abort):
        raise
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        raise SystemExit(128 + signal.SIGINT) from None
    except BrokenPipeError:  # nobody reads the output any more, so what is still buffered is dropped
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
    except OSError as error:
        _fail(f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error))
    except ValueError as error:
        _fail(str(error))
    except Exception as error:
        _fail(f"{type(error).__name__}: {error}")


@contextmanager
def says_how_to_go_on(words: Callable[[KeyboardInterrupt], str]) -> Iterator[None]:
    """On Ctrl-C or SIGTERM, print ``words`` on what is kept and how to continue, and exit with code 130 or 143."""
    received = [signal.SIGINT]

    def terminate(number: int, frame: Any) -> None:
        received[0] = signal.SIGTERM
        raise KeyboardInterrupt

    in_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, terminate) if in_main else None
    try:
        yield
    except KeyboardInterrupt as interrupt:
        click.echo(f"interrupted{words(interrupt)}", err=True)
        raise SystemExit(128 + received[0]) from None
    finally:
        if in_main:
            signal.signal(signal.SIGTERM, before)


def _fail(message: str) -> NoReturn:
    click.echo(f"error: {' '.join(message.split())}", err=True)
    raise SystemExit(2)
