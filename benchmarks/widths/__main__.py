"""``python -m benchmarks.widths``: widths with a theorem, and recipes with a regret bound for an unknown length-scale
or drift: what they cost."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from benchmarks import options, pages
from benchmarks.pages import seeds_of, with_error
from benchmarks.widths import races, ratios
from benchmarks.widths.races import BAND, BASE, DRIFT, GIVEN, LENGTH_SCALES, MODEL_HOLDS

LIMIT = 1.5  # times the regret of width 2
HORIZON, REPLICATES = 500, 10


def write_page(folder: Path) -> Path:
    names = ("ratios", "dual", "length_scales", "drift")
    tables = {name: table for name in names if (table := pages.read(folder / f"{name}.csv")) is not None}
    band = races.band()
    raced = [band, *(tables[name] for name in names[1:] if name in tables)]
    held = within(band)
    shown: dict[str, Any] = {
        "replicates": seeds_of(pd.concat(raced), "replicate", what="replicate"),
        "environments": band["problem"].unique(),
        "held": held,
        "drawn": [name for name in held if name in MODEL_HOLDS],
        "band": _race(band, BAND),
        "ratio": _means(band)["band_gp_ucb"] / _means(band)[BASE],
    }
    if "ratios" in tables:
        wide = tables["ratios"].pivot_table(
            index=["kernel", "model", "of"], columns="step", values="ratio", sort=False
        )
        shown["bounds"] = wide.map("{:.2f}".format).rename(columns="t = {}".format).reset_index()
    if "dual" in tables:
        by = tables["dual"].groupby(["kernel", "bound"], sort=False)["regret"]
        shown |= {
            "dual": by.agg(with_error).unstack().reset_index(),
            "dual_steps": tables["dual"]["steps"].iloc[0],
        }
    if "length_scales" in tables:
        least = _means(tables["length_scales"]).min(axis=1)
        wrong = least[[name for name in least.index if "known" not in name]]
        shown["wrong"] = wrong / least[[f"{name}; known" for name in wrong.index]].to_numpy()
        shown["length_scales"] = _race(tables["length_scales"], LENGTH_SCALES)
    if "drift" in tables:
        means, rivals = _means(tables["drift"]), ("r_gp_ucb", "sw_gp_ucb")
        less = [means[f"r_perp{w}"] < means[[f"{p}{w}" for p in rivals]].min(axis=1) for w in ("", " w=2")]
        shown |= {"ahead": pd.concat(less).tolist(), "drift": _race(tables["drift"], DRIFT)}
    settings = {"limit": LIMIT, "base": BASE, "given": GIVEN, "ratios": ratios, "holds": MODEL_HOLDS}
    return pages.render(folder / "RESULTS.md", "widths/RESULTS.md.jinja", **settings, **shown)


def _means(table: pd.DataFrame) -> pd.DataFrame:
    """Mean regret of each policy, a row for each problem."""
    return table.groupby(["problem", "policy"])["regret"].mean().unstack()


def within(table: pd.DataFrame, policy: str = "band_gp_ucb") -> list[str]:
    """Environments in which a policy's mean regret is at most ``LIMIT`` times that of width 2."""
    means = _means(table)
    ratio = means[policy] / means[BASE]
    return [name for name in table["problem"].unique() if ratio[name] <= LIMIT]


def _race(table: pd.DataFrame, policies: Iterable[str]) -> pd.DataFrame:
    """A row for each problem, a column for each of the policies that played."""
    by = table.groupby(["problem", "policy"], sort=False)["regret"]
    shown = by.agg(with_error).unstack().fillna("-")
    shown = shown[[name for name in policies if name in shown]].rename(columns="`{}`".format)
    shown.insert(0, "steps", table.groupby("problem")["steps"].first())
    return shown.reset_index()


PARTS = (*races.PARTS, "ratios")


@options.with_page(write_page)
def main(
    folder: Path,
    parts: Annotated[str, typer.Option(help=f"Comma-separated, of {', '.join(PARTS)}; empty: none.")] = "",
) -> None:
    """Play the parts."""
    for part in options.chosen(parts, PARTS, "parts") if parts else ():
        if part == "ratios":
            pages.save(pd.DataFrame(ratios.ratios()), folder / "ratios.csv")
            pages.save(ratios.regrets(), folder / "dual.csv")
            continue
        problems, policies = races.PARTS[part]
        tables = []
        for table in races.totals(problems(), policies, HORIZON, REPLICATES):
            tables.append(table)
            pages.save(pd.concat(tables), folder / f"{part}.csv")


if __name__ == "__main__":
    options.command(main)()
