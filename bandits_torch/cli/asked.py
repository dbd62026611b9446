"""What was asked of ``race``: read from the command line before anything slow is imported."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from bandits_torch.cli.catalogue import catalogue
from bandits_torch.cli.options import different_names, known_name, send_options, whole_number

DEFAULT_HORIZON = 1000
DEFAULT_POLICIES = "auto,random,igp_ucb,gp_ts,r_gp_ucb,sw_gp_ucb,tv_gp_ucb,et_gp_ucb"


_KINDS = {"problem": str, "policies": list, "horizon": int, "replicates": int, "seed": int, "device": str}
_KINDS |= {"options": dict, "results": dict, "versions": dict, "threads": int}


@dataclass(frozen=True)
class Race:
    """What was asked of ``race``, as it is written to ``run.json``."""

    problem: str
    policies: list[str]
    horizon: int  # 0: as many as the data have, or the default
    replicates: int
    seed: int
    device: str
    data: str | None
    options: dict[str, dict[str, Any]]
    problem_horizon: int | None  # what the problem was built for: None leaves it to the problem

    @staticmethod
    def of(settings: Mapping[str, Any]) -> Race:
        """The race of a ``run.json``; ValueError if it lacks a setting."""
        names = [field.name for field in fields(Race)]
        wrong = [name for name in (*names, "data_sha256") if name not in settings]
        wrong += [name for name, kind in _KINDS.items() if not isinstance(settings.get(name), kind)]
        if not wrong:
            taken = {
                name: {"problem", *settings["policies"]} - {*settings[name]}
                for name in ("options", "results")
            }
            wrong = [
                name for name, lacks in taken.items() if lacks - ({"problem"} if name == "results" else set())
            ]
        if wrong:
            raise ValueError(f"run.json must hold {', '.join(dict.fromkeys(wrong))}, as a race writes them")
        return Race(**{name: settings[name] for name in names})

    def settings(self) -> dict[str, Any]:
        """Plain values, as JSON gives them back, and the checksum of the data."""
        return dict(json.loads(json.dumps(asdict(self)))) | {"data_sha256": checksum(self.data)}


def asked_race(
    problem: str | None,
    policies: str,
    *,
    horizon: int | None,
    replicates: int,
    seed: int,
    device: str,
    data: Path | None,
    options: list[str],
) -> Race:
    """The race of these arguments; ValueError (OSError for the data) for what can be refused at once."""
    name = problem if problem is not None else "switching" if data is None else "replay"
    known_name("problem", name, catalogue().problems)
    names = different_names("policy", policies, catalogue().policies)
    for number, value, least in (("horizon", horizon, 1), ("replicates", replicates, 1), ("seed", seed, 0)):
        whole_number(number, value, least)
    if not re.fullmatch(r"cpu|cuda(:\d+)?", device):
        raise ValueError(f"device must be cpu or cuda, got {device!r}")
    _check_data(name, data)
    accepted = {"problem": catalogue().problems[name].options}
    sent = send_options(options, accepted | {one: catalogue().policies[one].options for one in names})
    built_for = DEFAULT_HORIZON if horizon is None and data is None else horizon
    source = None if data is None else str(data)
    return Race(name, names, horizon or 0, replicates, seed, device, source, sent, built_for)


def checksum(data: str | None) -> str | None:
    """SHA-256 of a file; None for no data or a folder of them."""
    if data is None or Path(data).is_dir():
        return None
    import hashlib  # with OpenSSL it takes milliseconds, which help and errors need not wait for

    with open(data, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_data(problem: str, data: Path | None) -> None:
    needed = catalogue().problems[problem].needs_data
    if needed and data is None:
        raise ValueError(f"data must be given for problem {problem!r}: the path of its file, got None")
    if data is not None and not needed:
        raise ValueError(
            f"data must be None for problem {problem!r}, which reads no file, got {str(data)!r}: without "
            "--problem they are replayed"
        )
    if data is not None and not data.exists():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(data))
