"""The folder a race writes to: what it may replace there, take up again, and delete."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bandits_torch.experiments.report import REPORT, read_settings
from bandits_torch.files import atomic_write, remove_parts
from bandits_torch.state_files import read_state

_FORMAT = "bandits_torch race in progress"
_DIFFERENCES_SHOWN = 3
_OPTION = "option "


class RaceFolder:
    """``out``, with the report of a race that is over, or the checkpoints of one that was cut off, or neither.

    A race in progress keeps ``checkpoints/race.json``, which says what was asked, and a state file for each policy
    begun. Nothing else is ever deleted, and nothing of another race replaced unless ``overwrite`` says so.

    Args:
        out: the folder; made by ``enter``.
        settings: of the race asked for, as plain values (``Race.settings``).
    """

    def __init__(self, out: Path, settings: Mapping[str, Any]) -> None:
        self.out, self._settings = out, dict(settings)
        self.kept = out / "checkpoints"
        self._record = self.kept / "race.json"

    def checkpoint(self, policy: str) -> Path:
        """Where the state of this policy's run is kept."""
        return self.kept / policy

    def enter(self, *, keep: bool, resume: bool = False, overwrite: bool = False) -> str:
        """Make the folder ready, or refuse it with nothing changed.

        Args:
            keep: whether the race writes checkpoints.
            resume: whether to take up the race that was cut off here, which must be the one asked for.
            overwrite: whether to give up what another race left here.

        Returns ``"begin"``, ``"resume"``, or ``"over"`` where the race to be resumed has its report already. Raises
        ValueError, and OSError for a folder that cannot be written to.
        """
        self._make()
        begun = self._begun()
        if begun is not None and resume:
            self._require_same(begun, "the checkpoints of another race")
            self._sweep()
            return "resume"
        if begun is not None and not overwrite:
            raise ValueError(
                f"out holds the checkpoints of a race that was cut off, got {str(self.out)!r}: "
                "continue it with --resume, or begin afresh with --overwrite"
            )
        if not overwrite and self._over() and resume:
            return "over"
        if begun is None and keep and self.kept.exists() and not self._is_empty():
            raise ValueError(
                f"out holds {str(self.kept)!r}, which no race of this version wrote: "
                "rename or remove it, or give another --out"
            )
        if begun is not None:
            self._remove(begun)
        self._sweep()
        if keep:
            self._write_record()
        return "begin"

    def _make(self) -> None:
        """Make the folder; ValueError, or OSError, unless the report can be written there."""
        self.out.mkdir(parents=True, exist_ok=True)
        if not os.access(self.out, os.W_OK | os.X_OK):
            raise ValueError(f"out must be a folder that can be written to, got {str(self.out)!r}")
        for name in REPORT:
            if (self.out / name).is_dir():
                raise ValueError(
                    f"out must have no folder {name}, which is to be a file, got {str(self.out)!r}"
                )

    def leave(self) -> None:
        """Delete the checkpoints of the race, which is over."""
        if self._begun() is not None:
            self._remove(self._settings)

    def _begun(self) -> dict[str, Any] | None:
        """What the race in progress was asked; None where there is none, or its record is not of our writing."""
        try:
            held = json.loads(self._record.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
        asked = held.get("asked") if isinstance(held, dict) and held.get("format") == _FORMAT else None
        return asked if isinstance(asked, dict) and isinstance(asked.get("policies"), list) else None

    def _is_empty(self) -> bool:
        """Whether the folder of checkpoints holds nothing but what a killed race left before its first word."""
        if not self.kept.is_dir():
            return False
        remove_parts(self._record)
        return not any(self.kept.iterdir())

    def _over(self) -> bool:
        """Whether the report of the race asked for is here; ValueError for that of another."""
        there = [name for name in REPORT if (self.out / name).exists()]
        if "run.json" in there:
            try:
                written = read_settings(self.out / "run.json")
            except ValueError:
                there.remove("run.json")
            else:
                self._require_same(written, "another race")
                return len(there) == len(REPORT)
        if there or (self.out / "run.json").exists():
            files = ", ".join(there or ["run.json"])
            raise ValueError(
                f"out holds {files} of no race that it tells of, got {str(self.out)!r}: "
                "give another --out, or --overwrite"
            )
        return False

    def _require_same(self, written: Mapping[str, Any], what: str) -> None:
        same_file = self._settings["data_sha256"] is not None
        was, now = _flat(written), _flat(self._settings)
        differences = [
            f"{key} was {was.get(key)!r} and is {now.get(key)!r}"
            for key in {**now, **{key: None for key in was if key.startswith(_OPTION)}}
            if was.get(key) != now.get(key) and not (key == "data" and same_file)
        ]
        if differences:
            shown = "; ".join(differences[:_DIFFERENCES_SHOWN])
            raise ValueError(
                f"out holds {what}, got {str(self.out)!r}: {shown}; give another --out, or --overwrite"
            )

    def _sweep(self) -> None:
        """Remove what writers of the report left that were killed."""
        for name in REPORT:
            remove_parts(self.out / name)

    def _write_record(self) -> None:
        with atomic_write(self._record) as file:
            file.write((json.dumps({"format": _FORMAT, "asked": self._settings}, indent=2) + "\n").encode())

    def _remove(self, race: Mapping[str, Any]) -> None:
        """Delete the state files of this race, its record last; ValueError, with none deleted, for a foreign one."""
        names = [str(name) for name in race["policies"] if re.fullmatch(r"[A-Za-z_][\w-]*", str(name))]
        files = [path for path in map(self.checkpoint, names) if path.exists()]
        for path in files:
            read_state(path, "run")
        for path in map(self.checkpoint, names):
            path.unlink(missing_ok=True)
            remove_parts(path)
        self._record.unlink()
        remove_parts(self._record)
        if not any(self.kept.iterdir()):
            self.kept.rmdir()


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by name, those of ``--option`` as it spells them."""
    options = settings.get("options")
    takers = options if isinstance(options, Mapping) else {}
    own = {key: value for key, value in settings.items() if key != "options"}
    return own | {
        f"{_OPTION}{taker}.{key}": value
        for taker, given in takers.items()
        if isinstance(given, Mapping)
        for key, value in given.items()
    }
