"""What README and the documentation print, beside what was played.

    python -m benchmarks.published           # play ``RACES`` again (three minutes of one core), then write as below
    python -m benchmarks.published --kept    # write every figure of ``PRINTED`` into its document

Races are kept in ``races.json`` by their commands; README's picture is that of its race, and carries its figures as
text. All other figures are those of the pages of results. A figure that says anything else than what is kept, and a
race that now plays anything else, is found by ``tests/benchmarks/test_published.py``.
"""

import argparse
import contextlib
import json
import re
import shlex
import tempfile
import textwrap
import tomllib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from click.testing import CliRunner
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from bandits_torch.cli import commands
from bandits_torch.files import atomic_write
from benchmarks.pages import whole

HERE = Path(__file__).parent
ROOT = HERE.parent
KEPT, PICTURE = HERE / "races.json", HERE / "race.png"

PROBLEMS = ("gp", "switching", "tv-gp", "moving-peaks")
RACE = "bandits-torch race"
THEORY = (
    "bandits-torch race --problem {} \\\n    --policies gp_ucb,igp_ucb,gp_ts,et_gp_ucb,sw_gp_ucb,r_gp_ucb,tv_gp_ucb,"
    "ui_gp_ucb,ada_opkb_calibrated"
)
CONSTANT = (
    "bandits-torch race --problem {} --option width=2 \\\n    --policies gp_ucb,et_gp_ucb,sw_gp_ucb,r_gp_ucb,"
    "tv_gp_ucb"
)
AUTO = "bandits-torch race --problem {} --policies auto"  # its own widths: `width` would be given to it too
HILLS = "bandits-torch race --problem hills --horizon 300 --policies pe_gp_ucb,mle_gp_ucb,bayes_gp_ucb,regret_balancing"
CSV = "bandits-torch race --data my.csv --option tv_gp_ucb.width=2"
RACES = (
    RACE,
    CSV,
    HILLS,
    *(command.format(problem) for command in (THEORY, CONSTANT, AUTO) for problem in PROBLEMS),
)


def play(command: str, folder: Path, policy: str | None = None) -> dict[str, Any]:
    """What a race, or one policy of it, comes to in this folder, as it is kept: regret and standard error of each
    policy (0 where all replicates are the same), the regret of random pulls, and the advice where it is printed."""
    arguments = shlex.split(command.replace("\\\n", " "))[1:]
    if policy is not None:
        arguments += ["--policies", policy]  # the last counts
    with contextlib.chdir(folder):
        if "my.csv" in arguments:
            page = (ROOT / "docs" / "csv_to_service.md").read_text(encoding="utf-8")
            exec(re.findall(r"```python\n(.*?)```", page, re.S)[0], {})  # writes it
        played = CliRunner().invoke(commands.app, [*arguments, "--out", "played"], catch_exceptions=False)
    if played.exit_code:
        raise RuntimeError(f"{command}: {played.output}")
    record = json.loads((folder / "played" / "run.json").read_text(encoding="utf-8"))
    return {
        "policies": {
            name: [_six(result["mean_cumulative_regret"]), _six(result["standard_error"] or 0.0)]
            for name, result in record["results"].items()
        },
        "random": _six(record["references"]["random"]),
        "advice": " ".join(record["advice"]["sentences"]) if command == CSV and policy is None else None,
    }


def _six(number: float) -> float:
    return float(f"{number:.6g}")


def kept() -> dict[str, Any]:
    """Every race as it was played last, by its command."""
    return json.loads(KEPT.read_text(encoding="utf-8"))


def shown() -> str:
    """The figures that README's picture shows, as kept."""
    return ", ".join(f"{name} {regret:.4g}" for name, (regret, _) in kept()[RACE]["policies"].items())


class Printed(NamedTuple):
    """Figures in a document: its path, the text around them with ``{}`` for each, and what they should be."""

    document: str
    text: str
    figures: Callable[[], list[str]]

    def match(self, document: str) -> re.Match[str]:
        """Where the text stands, a group for each figure; ValueError unless it stands there once."""
        around = [r"\s+".join(map(re.escape, re.split(r"\s+", part))) for part in self.text.split("{}")]
        found = list(re.finditer(r"((?:> [^\n]*\n)+|[^|\s](?:[^|]{0,28}?[^|\s])?)".join(around), document))
        if (times := len(found)) != 1:
            raise ValueError(
                f"{self.document} must hold this text once, it holds it {times} times: {self.text}"
            )
        return found[0]

    def found(self, document: str) -> list[str]:
        """The figures that the document has, however its lines are broken."""
        return [" ".join(figure.split()) for figure in self.match(document).groups()]

    def write(self, document: str) -> str:
        """The document with the figures as they should be; what is right is left as it is."""
        match = self.match(document)
        for i, figure in reversed(list(enumerate(self.figures(), start=1))):
            if " ".join(match[i].split()) != " ".join(figure.split()):
                document = document[: match.start(i)] + figure + document[match.end(i) :]
        return document


def on(page: str, *patterns: str) -> Callable[[], list[str]]:
    """The groups of regular expressions, in order, where each is first found on a page of results."""

    def figures() -> list[str]:
        text = (ROOT / page).read_text(encoding="utf-8")
        found = [re.search(pattern, text, re.S) for pattern in patterns]
        missing = [pattern for pattern, match in zip(patterns, found, strict=True) if match is None]
        if missing:
            raise ValueError(f"{page} must hold {missing}")
        return [group for match in found if match is not None for group in match.groups()]

    return figures


def _cells(*commands: str) -> list[str]:
    """The table of races on every problem, row by row; the least of a column in bold where one alone has it."""
    columns = []
    for problem in PROBLEMS:
        race = [cell for command in commands for cell in kept()[command.format(problem)]["policies"].values()]
        cells = [f"{mean:.0f} ± {error:.0f}" for mean, error in race]
        means = [round(mean) for mean, _ in race]
        least = means.index(min(means)) if means.count(min(means)) == 1 else None
        columns.append([f"**{cell}**" if row == least else cell for row, cell in enumerate(cells)])
    return [cell for row in zip(*columns, strict=True) for cell in row]


def _table(*commands: str) -> Printed:
    """The commands and their table on the page *Which algorithm?*."""
    policies = [policy for command in commands for policy in command.split("--policies ")[1].split(",")]
    head = "| | " + " | ".join(f"`{problem}`" for problem in PROBLEMS) + " |\n" + "|---" * 5 + "|\n"
    rows = "".join(f"| `{policy}` |" + " {} |" * len(PROBLEMS) + "\n" for policy in policies)
    said = "\n".join(command.format(PROBLEMS[0]) for command in commands)
    return Printed("docs/which_algorithm.md", f"{said}\n```\n\n{head}{rows}", partial(_cells, *commands))


def at_random() -> list[str]:
    return [whole(round(kept()[THEORY.format(problem)]["random"])) for problem in PROBLEMS]


def hills() -> list[str]:
    return [f"{regret:.0f} ± {error:.0f}" for regret, error in kept()[HILLS]["policies"].values()]


def advice() -> list[str]:
    return [textwrap.fill(kept()[CSV]["advice"], 118, initial_indent="> ", subsequent_indent="> ") + "\n"]


def million_steps() -> list[str]:
    table = pd.read_csv(HERE / "speed" / "results" / "cpu" / "million_steps.csv")
    worst = table[table["observations"] == 1_000_000].groupby("dtype")["mean_error"].max()
    return [f"{worst[dtype]:.0e}".replace("e-0", "e-") for dtype in ("float64", "float32")]


def over_a_box() -> list[str]:
    """On how many functions the best of ours has the least regret, and its ratios to the best of theirs."""
    table = pd.read_csv(HERE / "continuous" / "results" / "summary.csv")
    regret = table.pivot(index="policy", columns="problem", values="regret").drop(["auto", "random"])
    theirs = regret.index.str.startswith(("BoTorch", "W-DBO"))
    ratio = regret[~theirs].min() / regret[theirs].min()
    return [str((ratio <= 1).sum()), str(len(ratio)), f"{ratio.min():.2f}", f"{ratio.max():.2f}"]


def bad_inputs() -> list[str]:
    (count,) = on("tests/fuzz/RESULTS.md", r"(\d+) bad inputs tried")()
    return [whole(round(int(count), -3))]


def cartpole_seeds() -> list[str]:
    names = ("cartpole", "cartpole-again")
    page = "benchmarks/ray/results/RESULTS.md"
    seeds = on(page, *(rf"\* {name}: [^\n]* on (\d+) seeds" for name in names))()
    return [str(sum(map(int, seeds)))]


def nothing_changes() -> list[str]:
    """Shares of auto and of the best, and how many policies are ahead of auto."""
    pattern = r"\| `auto` \| \*stationary\* \|[^|]+\| ([\d.]+)% \| `bkb w=2` [^|]+\| ([\d.]+)% \| (\d+)"
    *shares, rank = on("benchmarks/auto/results/RESULTS.md", pattern)()
    return [*shares, str(int(rank) - 1)]


def _printed() -> Iterator[Printed]:
    for one in tomllib.loads((HERE / "published.toml").read_text(encoding="utf-8"))["printed"]:
        figures = globals()[one["figures"]] if "figures" in one else on(one["page"], *one["patterns"])
        yield Printed(one["document"], one["text"], figures)


PRINTED = (*_printed(), _table(THEORY), _table(CONSTANT, AUTO))


def main() -> None:
    """Play, unless asked not to, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kept", action="store_true", help="play nothing")
    if not parser.parse_args().kept:
        played = {}
        for command in RACES:
            print(command, flush=True)
            with tempfile.TemporaryDirectory() as folder:
                played[command] = play(command, Path(folder))
                if command == RACE:
                    picture = Image.open(Path(folder) / "played" / "regret.png")
                    picture.load()
        with atomic_write(KEPT) as file:
            file.write((json.dumps(played, indent=1, ensure_ascii=False) + "\n").encode())
        text = PngInfo()
        text.add_text("Description", shown())
        with atomic_write(PICTURE) as file:
            picture.save(file, "png", pnginfo=text)
    for printed in PRINTED:
        path = ROOT / printed.document
        document = path.read_text(encoding="utf-8")
        written = printed.write(document)
        if written != document:
            with atomic_write(path) as file:
                file.write(written.encode())
            print(f"wrote {printed.document}: {', '.join(printed.figures())}")


if __name__ == "__main__":
    main()
