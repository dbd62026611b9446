"""The folder that a race or a sweep writes to: what it may replace, resume and delete there.

Files that no race or sweep wrote stay, whatever the flags. Files of another race or sweep are deleted only with
``overwrite``.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from bandits_torch.description import said_differences
from bandits_torch.experiments.report import REPORT, read_settings
from bandits_torch.files import atomic_write, remove_parts
from bandits_torch.state_files import read_state

_FORMAT = "bandits_torch race in progress"
_OPTION = "option "


def enter(
    out: Path,
    work: str,
    *,
    foreign: Sequence[str],
    unfinished: tuple[str, str] | None,
    other: str | None,
    over: bool = False,
    resume: bool,
    overwrite: bool,
) -> str:
    """``"begin"``, ``"resume"``, or ``"over"`` if the work to resume is complete. Raises ValueError to refuse the
    folder.

    Args:
        work: ``race`` or ``sweep``.
        foreign: names of files to be written that exist already and that no race or sweep wrote.
        unfinished: a description of the work in progress, and how to begin afresh; None if there is none.
        other: a description of work other than the one asked for; None if there is none.
        over: whether the work asked for is complete.
        resume, overwrite: the flags.
    """
    if over and resume:
        click.echo(f"nothing to resume: the {work} in {out} is over", err=True)
        return "over"
    place = f"got {str(out)!r}"
    if foreign:
        raise ValueError(
            f"out holds {', '.join(foreign)}, which no {work} of this version wrote, {place}: rename or remove it, or "
            "give another --out"
        )
    if unfinished is not None and not (resume or overwrite):
        words, afresh = unfinished
        raise ValueError(f"out holds {words}, {place}: continue it with --resume, or {afresh}")
    if other is not None and not overwrite:
        raise ValueError(f"out holds {other}, {place}: give another --out, or --overwrite")
    if resume and unfinished is not None:
        return "resume"
    if resume:
        click.echo(f"note: nothing to resume in {out}: the {work} begins at its first step", err=True)
    return "begin"


class RaceFolder:
    """The folder ``out``: it holds the report of a complete race, the checkpoints of an interrupted one, or neither.

    A race in progress keeps ``checkpoints/race.json`` with its settings, and a state file for each policy begun.
    Nothing else is ever deleted. ``settings``: of the race asked for (``Race.settings``).
    """

    def __init__(self, out: Path, settings: Mapping[str, Any]) -> None:
        self.out, self._settings = out, dict(settings)
        self.kept = out / "checkpoints"
        self._record = self.kept / "race.json"

    def checkpoint(self, policy: str) -> Path:
        """The file for the state of this policy's run."""
        return self.kept / policy

    def enter(self, *, keep: bool, resume: bool = False, overwrite: bool = False) -> str:
        """Make the folder ready, or refuse it with nothing changed; ``keep``: whether the race writes checkpoints.

        Returns ``"begin"``, ``"resume"``, or ``"over"`` if the race to resume, which must be the one asked for, has its
        report already. Raises ValueError, and OSError for a folder that cannot be written to.
        """
        self.out.mkdir(parents=True, exist_ok=True)
        if not os.access(self.out, os.W_OK | os.X_OK):
            raise ValueError(f"out must be a folder that can be written to, got {str(self.out)!r}")
        begun = self.begun()
        standing = enter(self.out, "race", **self._held(begun, keep), resume=resume, overwrite=overwrite)
        if standing == "over":
            return standing
        if begun is not None and standing == "begin":
            self._remove(begun["asked"])
        for name in REPORT:
            remove_parts(self.out / name)
        if keep and standing == "begin":
            self._write_record(reporting=False)
        return standing

    def begin_report(self) -> None:
        """Note that the folder may hold files of the report from now on, although ``run.json`` does not exist yet."""
        if self.begun() is not None:
            self._write_record(reporting=True)

    def leave(self) -> None:
        """Delete the checkpoints of the complete race."""
        if self.begun() is not None:
            self._remove(self._settings)

    def begun(self) -> dict[str, Any] | None:
        """The record of the race in progress; None if there is none, or if no race wrote it."""
        try:
            held = json.loads(self._record.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
        asked = held.get("asked") if isinstance(held, dict) and held.get("format") == _FORMAT else None
        return held if isinstance(asked, dict) and isinstance(asked.get("policies"), list) else None

    def _held(self, begun: Mapping[str, Any] | None, keep: bool) -> dict[str, Any]:
        """The contents of the folder, as arguments of ``enter``."""
        there = [name for name in REPORT if (self.out / name).exists()]
        foreign = [name for name in there if not (self.out / name).is_file()]
        try:
            written = read_settings(self.out / "run.json")
        except (OSError, ValueError):
            written = None
            if begun is None or begun.get("reporting") is not True or "run.json" in there:
                foreign = there
        if begun is not None:
            differs = self._differences(begun["asked"])
            return {
                "foreign": foreign,
                "unfinished": ("the checkpoints of a race that was cut off", "begin afresh with --overwrite"),
                "other": f"the checkpoints of another race ({differs})" if differs else None,
            }
        if keep and self.kept.is_dir():
            remove_parts(self._record)  # what a race that was killed at once may leave
        if keep and self.kept.exists() and not (self.kept.is_dir() and not any(self.kept.iterdir())):
            foreign.append(str(self.kept))
        differs = "" if written is None else self._differences(written)
        return {
            "foreign": foreign,
            "unfinished": None,
            "other": f"another race ({differs})" if differs else None,
            "over": written is not None and not differs and len(there) == len(REPORT),
        }

    def _differences(self, written: Mapping[str, Any]) -> str:
        """How a race differs from the one asked for; empty if it does not."""
        was, now = _flat(written), _flat(self._settings)
        keys = {**now, **{key: None for key in was if key.startswith(_OPTION)}}
        if self._settings["data_sha256"] is not None:  # the same file, wherever it lies
            keys.pop("data")
        return said_differences({key: was.get(key) for key in keys}, {key: now.get(key) for key in keys})

    def _write_record(self, *, reporting: bool) -> None:
        record = {"format": _FORMAT, "asked": self._settings, "reporting": reporting}
        with atomic_write(self._record) as file:
            file.write((json.dumps(record, indent=2) + "\n").encode())

    def _remove(self, race: Mapping[str, Any]) -> None:
        """Delete the state files of this race, its record last. Raises ValueError, with none deleted, for a foreign
        file."""
        names = [str(name) for name in race["policies"] if re.fullmatch(r"[A-Za-z_][\w-]*", str(name))]
        for path in map(self.checkpoint, names):
            if path.exists():
                read_state(path, "run")
        for path in map(self.checkpoint, names):
            path.unlink(missing_ok=True)
            remove_parts(path)
        self._record.unlink()
        remove_parts(self._record)
        if not any(self.kept.iterdir()):
            self.kept.rmdir()


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by name, those of ``--option`` as it writes them."""
    options = settings.get("options")
    takers = options if isinstance(options, Mapping) else {}
    plain = {key: value for key, value in settings.items() if key != "options"}
    return plain | {
        f"{_OPTION}{taker}.{key}": value
        for taker, given in takers.items()
        if isinstance(given, Mapping)
        for key, value in given.items()
    }
