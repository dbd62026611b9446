"""The command lines of benchmarks: options that they share. What a page needs (``pages``) does without typer."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import typer

from benchmarks.pages import near_by, results_folder, say


def command(main: Callable[..., None]) -> typer.Typer:
    """A function as a command, its parameters as options; call it to run it with the arguments given."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command()(main)
    return app


# Options that commands share.
DATA = near_by() or Path("shared/data")
Data = Annotated[Path, typer.Option(help="Folder of the real data.", show_default="shared/data near by")]
PageAlone = Annotated[bool, typer.Option("--page", help="Write the page from the tables alone.")]
Out = Annotated[
    Path | None, typer.Option(help="Folder of tables and page.", show_default="results of the program")
]


def with_page(write_page: Callable[[Path], Path]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Makes a command of a function that plays into a folder of tables, its first argument: then their page is written.
    The command has the function's options, ``--out`` for another folder, and ``--page`` to play nothing."""

    def decorated(play: Callable[..., None]) -> Callable[..., None]:
        def main(out: Out = None, page: PageAlone = False, **asked: Any) -> None:
            folder = results_folder(inspect.getfile(play), out)
            if not page:
                play(folder, **asked)
            say(f"wrote {write_page(folder)}")

        _, *own = inspect.signature(play).parameters.values()
        *shared, _ = inspect.signature(main).parameters.values()
        main.__doc__ = play.__doc__
        main.__signature__ = inspect.Signature([*own, *shared])
        main.__annotations__ = {one.name: one.annotation for one in (*own, *shared)}
        return main

    return decorated


def chosen(text: str, known: Iterable[str], option: str) -> list[str]:
    """Names separated by commas, or by semicolons where a name has a comma; all that are known for an empty text. A
    usage error names the option for one that is not known."""
    names = list(dict.fromkeys(known))
    if not text:
        return names
    separator = ";" if ";" in text or text in names else ","
    wanted = [name.strip() for name in text.split(separator) if name.strip()]
    for name in wanted:
        if name not in names:
            raise typer.BadParameter(f"{name!r}: not among {', '.join(names)}", param_hint=f"--{option}")
    return wanted


def seeds_of(text: str, named: Mapping[str, Iterable[int]] = MappingProxyType({})) -> list[int]:
    """Seeds separated by commas, or those of a name; a usage error names ``--seeds`` for anything else."""
    if text in named:
        return list(named[text])
    try:
        return [int(seed) for seed in text.split(",")]
    except ValueError:
        known = ", ".join([*named, "whole numbers separated by commas"])
        raise typer.BadParameter(f"{text!r}: not among {known}", param_hint="--seeds") from None
