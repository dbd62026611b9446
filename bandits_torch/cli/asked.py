"""Checks and parses the arguments of the command line, before anything slow is imported."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from bandits_torch.cli.catalogue import catalogue
from bandits_torch.naming import did_you_mean, some, unknown_name

DEFAULT_HORIZON = 1000
DEFAULT_POLICIES = "auto,random,igp_ucb,gp_ts,r_gp_ucb,sw_gp_ucb,tv_gp_ucb,et_gp_ucb"
MOST_THREADS = 1024  # more than machines have; far more make the system refuse all
_TAKERS_SHOWN = 2  # problem and policies whose options a message lists
_WORDS = {"true": True, "false": False, "none": None, "null": None}
_KINDS = {"problem": str, "policies": list, "horizon": int, "replicates": int, "seed": int, "device": str}
_KINDS |= {"options": dict, "results": dict, "versions": dict, "threads": int, "capture": bool}


@dataclass(frozen=True)
class Race:
    """The arguments of ``race``, as they are written to ``run.json``."""

    problem: str
    policies: list[str]
    horizon: int  # 0: all rows of the data, or the default
    replicates: int
    seed: int
    device: str
    data: str | None
    options: dict[str, dict[str, Any]]
    problem_horizon: int | None  # the horizon that the problem is built for; None: its default
    capture: bool  # whether steps are played in blocks where that is faster

    @property
    def blocks(self) -> bool | str:
        """``capture`` of ``run``."""
        return "auto" if self.capture else False

    @staticmethod
    def of(settings: Mapping[str, Any]) -> Race:
        """The race of a ``run.json``. Raises ValueError if a setting is missing or of the wrong type."""
        settings = {"capture": False} | dict(settings)  # as races were played before they had this
        names = [field.name for field in fields(Race)]
        wrong = [name for name in (*names, "data_sha256") if name not in settings]
        wrong += [name for name, kind in _KINDS.items() if not isinstance(settings.get(name), kind)]
        if not wrong:
            raced = {*settings["policies"]}
            needed = {"options": {"problem", *raced}, "results": raced}
            wrong = [name for name, keys in needed.items() if keys - settings[name].keys()]
        if wrong:
            raise ValueError(f"run.json must hold {', '.join(dict.fromkeys(wrong))}, as a race writes them")
        if not 1 <= settings["threads"] <= MOST_THREADS:
            raise ValueError(f"threads of run.json must be 1 to {MOST_THREADS}, got {settings['threads']}")
        return Race(**{name: settings[name] for name in names})

    def settings(self) -> dict[str, Any]:
        """The arguments as JSON values, and the checksum of the data."""
        from bandits_torch.files import checksum

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
    option: Sequence[str],
    capture: bool | None,
) -> Race:
    """The race with these arguments. Raises ValueError for what can be refused early."""
    name = problem if problem is not None else "switching" if data is None else "replay"
    known_name("problem", name, catalogue().problems)
    names = different_names("policy", policies, catalogue().policies)
    if not re.fullmatch(r"cpu|cuda(:\d+)?", device):
        raise ValueError(f"device must be cpu or cuda, got {device!r}")
    _require_data_if_read(data, [name], ": without --problem the file is replayed")
    accepted = {"problem": catalogue().problems[name].options}
    sent = send_options(option, accepted | {one: catalogue().policies[one].options for one in names})
    built_for = DEFAULT_HORIZON if horizon is None and data is None else horizon
    source = None if data is None else str(data)
    on_cpu = device == "cpu" if capture is None else capture
    return Race(name, names, horizon or 0, replicates, seed, device, source, sent, built_for, on_cpu)


def asked_sweep(
    problems: str, policies: str, data: Path | None, option: Sequence[str]
) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    """The options of a sweep's problems and policies, by name. Raises as ``asked_race`` does."""
    names = different_names("problem", problems, catalogue().problems)
    raced = different_names("policy", policies, catalogue().policies)
    _require_data_if_read(data, names)
    accepted = {name: catalogue().problems[name].options for name in names}
    accepted |= {name: catalogue().policies[name].options for name in raced}
    sent = send_options(option, accepted, problem="")
    return {name: sent[name] for name in names}, {name: sent[name] for name in raced}


def _require_data_if_read(data: Path | None, names: Sequence[str], advice: str = "") -> None:
    """Raise ValueError for a path that none of the problems reads, and if there is none although one does."""
    reading = [name for name in names if catalogue().problems[name].needs_data]
    if data is not None and not reading:
        read_none = f"problems that read no file ({', '.join(names)})"
        raise ValueError(f"data must be None for {read_none}, got {str(data)!r}{advice}")
    if data is None and reading:
        raise ValueError(f"data must be given for problem {reading[0]!r}: the path of its file, got None")


def parse_value(text: str) -> Any:
    """The text as int, float, bool, None, or JSON list, object or string; otherwise the text itself."""
    word = text.strip()
    if word.lower() in _WORDS:
        return _WORDS[word.lower()]
    for read in (int, float):
        with suppress(ValueError):
            return read(word)
    if word[:1] in ("[", "{", '"'):
        try:
            return json.loads(word)
        except json.JSONDecodeError as error:
            raise ValueError(f"option value {text!r} starts as JSON and must be that: {error}") from error
    return text


def known_name(kind: str, name: str, known: Collection[str]) -> str:
    """The name, if it is known. Otherwise raises a ValueError that suggests the closest known name."""
    if name not in known:
        raise ValueError(unknown_name(kind, name, known, "`bandits-torch list` shows all"))
    return name


def different_names(kind: str, text: str, known: Collection[str]) -> list[str]:
    """The names in a comma-separated list. Raises ValueError unless all are known and different."""
    names = [name.strip() for name in text.split(",")]
    if "" in names or len(set(names)) < len(names):
        several = {"policy": "policies"}.get(kind, f"{kind}s")
        raise ValueError(f"{several} must be different names separated by commas, got {text!r}")
    return [known_name(kind, name, known) for name in names]


def send_options(
    options: Sequence[str], accepted: Mapping[str, Collection[str]], problem: str = "problem"
) -> dict[str, dict[str, Any]]:
    """The settings of each taker, the problem or a policy, from ``options`` and the keys that each ``accepted``.

    ``key=value`` is for the problem or for every policy that accepts the key; ``taker.key=value`` overrides it.
    ``problem``: the name of the problem among the takers; one that no taker has lets ``key=value`` go to problems and
    policies alike. Raises ValueError for a setting that is not ``key=value``, is given twice, is for an unknown taker,
    is accepted by none, or is accepted by both the problem and a policy.
    """
    sent: dict[str, dict[str, Any]] = {taker: {} for taker in accepted}
    seen = set()
    for option in sorted(options, key=lambda one: "." in one.partition("=")[0]):  # ``taker.key`` last
        name, equals, text = option.partition("=")
        name = name.strip()
        if not equals or not name:
            raise ValueError(f"option must be key=value, got {option!r}")
        if name in seen:
            raise ValueError(f"option {name!r} must be given once, got it again in {option!r}")
        seen.add(name)
        taker, dot, key = name.rpartition(".")
        if dot and taker not in accepted:
            close = did_you_mean(taker, accepted)
            raise ValueError(f"option {name} must be for one of {some(accepted)}, got {taker!r}{close}")
        if not dot and len(accepted) == 1:
            (taker,) = accepted
        if taker and key not in accepted[taker]:
            close, known = did_you_mean(key, accepted[taker]), some(accepted[taker]) or "none"
            raise ValueError(f"option {key!r} is not one of {taker}'s options{close} ({known})")
        takers = [taker] if taker else [one for one, keys in accepted.items() if key in keys]
        if not takers:
            lists = [
                f"{one}'s options ({some(accepted[one]) or 'none'})" for one in [*accepted][:_TAKERS_SHOWN]
            ]
            more = len(accepted) - _TAKERS_SHOWN
            hidden = f"; and those of {more} more" if more > 0 else ""
            close = did_you_mean(key, {one: None for keys in accepted.values() for one in keys}) or ";"
            raise ValueError(f"option {key!r} is not known here{close} there are {'; '.join(lists)}{hidden}")
        if problem in takers and len(takers) > 1:
            whose = " or ".join(f"{one}.{key}" for one in takers)
            raise ValueError(f"option {key!r} must say for whom: {whose}")
        for one in takers:
            sent[one][key] = parse_value(text)
    return sent


@contextmanager
def says_option(keys: Collection[str]) -> Iterator[None]:
    """Append to a ValueError how the ``keys`` that it names are written on the command line."""
    try:
        yield
    except ValueError as error:
        named = [key for key in keys if re.search(rf"\b{key}(=| must be )", str(error))]
        said = ", ".join(f"--option {key}=..." for key in named)
        raise ValueError(f"{error} (here: {said})" if said else str(error)) from error
