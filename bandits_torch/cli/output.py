"""What the command line does round its work: errors in one line, pictures in files."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import click


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn any error into one line on standard error and exit code 2, and Ctrl-C into 130, as shells have it."""
    try:
        with _one_line_warnings():
            yield
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except OSError as error:
        _fail(f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error))
    except ValueError as error:
        _fail(str(error))
    except Exception as error:
        _fail(f"{type(error).__name__}: {error}")


@contextmanager
def _one_line_warnings() -> Iterator[None]:
    """Show a warning of the package once, as a line without its place in the code; others as Python does."""
    with warnings.catch_warnings():
        usual, said = warnings.showwarning, set()

        def show(
            message: Warning | str, category: type[Warning], filename: str, *more: Any, **others: Any
        ) -> None:
            if category is not UserWarning:
                usual(message, category, filename, *more, **others)
            elif str(message) not in said:
                said.add(str(message))
                click.echo(f"warning: {' '.join(str(message).split())}", err=True)

        warnings.showwarning = show
        yield


def _fail(message: str) -> NoReturn:
    click.echo(f"error: {' '.join(message.split())}", err=True)
    raise SystemExit(2)


def draw_to_files() -> None:
    """Pictures are files here: what the user's shell says of windows, true or not, plays no part."""
    os.environ["MPLBACKEND"] = "agg"
