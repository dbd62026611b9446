"""Count the bad inputs tried and list what each gets: ``python -m tests.fuzz.report``.

Writes every input with its answer to ``bad_inputs.csv`` (``--out``), and their counts to ``tests/fuzz/RESULTS.md``.
Files and command lines have tests with the words of each answer:
``tests/problems/test_tables.py``, ``tests/fuzz/test_bad_options.py``.
"""

import argparse
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pandas as pd

from bandits_torch.state import differing
from tests.fuzz.outcome import REFUSED, outcome, shown
from tests.fuzz.public import bad_values, cases, exports, valid
from tests.fuzz.said import LIVES

_PAGE = Path(__file__).with_name("RESULTS.md")
Row = tuple[str, str, str]  # what to whom, the bad input, what it gets


def arguments() -> Iterator[Row]:
    """Arguments of constructors and functions."""
    public = exports()
    for name, argument in cases():
        call = partial(public[name], **valid(name))
        for value in bad_values(name, argument):
            got = outcome(partial(call, **{argument: value}), argument)
            yield f"{name}({argument})", " ".join(shown(value).split())[:80], got


def mid_life() -> Iterator[Row]:
    """Observations, masks, times and counts said to a policy or model, and whether it is the same afterwards."""
    for who, make in LIVES.items():
        state, said = make()
        before = state()
        for what, call, names in said:
            got = outcome(call, *names)
            yield who, what, got if not differing(before, state()) else f"{got}, and the state has changed"


def main() -> None:
    """Write the list and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("bad_inputs.csv"))
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    frame = pd.DataFrame([*arguments(), *mid_life()], columns=["who", "input", "gets"])
    frame.to_csv(asked.out, index=False)
    for row in frame[frame["gets"] != REFUSED].itertuples():
        print(f"{row.who}: {row.input}: {row.gets}")
    _PAGE.write_text(page(frame), encoding="utf-8")
    print(f"written: {asked.out}, {_PAGE}")


def page(frame: pd.DataFrame) -> str:
    """Counts by the room of what was called."""
    wrong = int((frame["gets"] != REFUSED).sum())
    lines = [
        "# Bad inputs, and what each gets\n",
        f"Written by `python -m tests.fuzz.report`: {len(frame)} bad inputs tried. Arguments, observations,",
        'masks, times and counts must get a ValueError that names the argument ("by name"), and leave policies and',
        f"models as they were to the last bit; {wrong} did not.\n",
        "| what is called | names | inputs | refused by name |\n| --- | --- | --- | --- |",
    ]
    names = frame["who"].str.split("(").str[0]
    for room, group in frame.groupby(names.str.split(r"[. ]", regex=True).str[0], sort=False):
        refused = int((group["gets"] == REFUSED).sum())
        lines.append(f"| {room} | {names[group.index].nunique()} | {len(group)} | {refused} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
