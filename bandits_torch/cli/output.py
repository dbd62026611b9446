"""What the command line does round its work: errors in one line, pictures in files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn any error into one line on standard error and exit code 2."""
    try:
        yield
    except (typer.Exit, typer.Abort):
        raise
    except OSError as error:
        _fail(f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error))
    except ValueError as error:
        _fail(str(error))
    except Exception as error:
        _fail(f"{type(error).__name__}: {error}")


def _fail(message: str) -> NoReturn:
    typer.echo(f"error: {' '.join(message.split())}", err=True)
    raise typer.Exit(2)


def draw_to_files() -> None:
    """Pictures are files here: what the user's shell says of windows, true or not, plays no part."""
    os.environ["MPLBACKEND"] = "agg"
