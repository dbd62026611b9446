"""Widths with a theorem, and recipes with a regret bound for an unknown length-scale or drift: what they cost.

``python -m benchmarks.widths``: play what is asked for, and write the page.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from benchmarks import options, pages
from benchmarks.pages import markdown, seeds_of, with_error
from benchmarks.widths import races, ratios
from benchmarks.widths.races import BAND, BASE, DRIFT, GIVEN, LENGTH_SCALES, MODEL_HOLDS

LIMIT = 1.5  # times the regret of width 2
_HEAD = """
Regret is cumulative, mean ± standard error over {replicates} of every problem.

"""


def write_page(out: Path) -> Path:
    made = {"band": _band, "ratios": _ratios, "dual": _dual, "length_scales": _length_scales, "drift": _drift}
    kept = [name for name in made if (out / f"{name}.csv").exists()]
    tables = {"band": races.band()} | {name: pd.read_csv(out / f"{name}.csv") for name in kept}
    raced = [table[["replicate"]] for table in tables.values() if "replicate" in table]
    head = _HEAD.format(replicates=seeds_of(pd.concat(raced), "replicate", what="replicate"))
    text = "\n".join(made[name](table) for name, table in tables.items())
    path, title = out / "RESULTS.md", "Widths with a theorem, unknown length-scales, and R-PERP"
    return pages.publish(path, title, _answer(tables), "python -m benchmarks.widths", head, text)


def _answer(tables: dict[str, pd.DataFrame]) -> str:
    """What each race comes to, in a sentence."""
    band = tables["band"]
    said = [
        f"`band_gp_ucb`, which holds all arms of a step at once, has at most {LIMIT} times the regret of "
        f"`{BASE}` on {len(within(band))} of {band['problem'].nunique()} environments."
    ]
    if "length_scales" in tables:
        least = tables["length_scales"].groupby(["problem", "policy"])["regret"].mean().unstack().min(axis=1)
        wrong = least[[name for name in least.index if "known" not in name]]
        ratio = wrong / least[[f"{name}; known" for name in wrong.index]].to_numpy()
        said.append(
            f"Where a wrong length-scale is given, the best policy of each problem has {ratio.min():.2f} to "
            f"{ratio.max():.2f} times the regret of the best that knows it."
        )
    if "drift" in tables:
        means = tables["drift"].groupby(["problem", "policy"])["regret"].mean().unstack()
        ahead = sum(
            (means[f"r_perp{w}"] < means[[f"{p}{w}" for p in ("r_gp_ucb", "sw_gp_ucb")]].min(axis=1)).sum()
            for w in ("", " w=2")
        )
        said.append(
            f"Under drift R-PERP has less regret than both restarts and a window in {ahead} of {2 * len(means)} races."
        )
    return " ".join(said)


def within(table: pd.DataFrame, policy: str = "band_gp_ucb") -> list[str]:
    """Environments in which a policy's mean regret is at most ``LIMIT`` times that of width 2."""
    means = table.groupby(["problem", "policy"])["regret"].mean().unstack()
    ratio = means[policy] / means[BASE]
    return [name for name in table["problem"].unique() if ratio[name] <= LIMIT]


def _cell(rows: pd.Series) -> str:
    return with_error(rows) if len(rows) else "-"


def _race(table: pd.DataFrame, policies: list[str]) -> list[list[str]]:
    chosen = [name for name in policies if (table["policy"] == name).any()]
    return [
        [name, str(rows["steps"].iloc[0]), *(_cell(rows.loc[rows["policy"] == p, "regret"]) for p in chosen)]
        for name, rows in table.groupby("problem", sort=False)
    ]


def _heads(table: pd.DataFrame, policies: list[str]) -> list[str]:
    return ["problem", "steps", *(f"`{name}`" for name in policies if (table["policy"] == name).any())]


def _band(table: pd.DataFrame) -> str:
    policies, rows = list(BAND), []
    means = table.groupby(["problem", "policy"])["regret"].mean()
    for row in _race(table, policies):
        name = row[0]
        ratio = means[name, "band_gp_ucb"] / means[name, BASE]
        rows.append([*row, f"{ratio:.2f}", "yes" if name in MODEL_HOLDS else "no"])
    held, every = within(table), list(table["problem"].unique())
    draws = [name for name in held if name in MODEL_HOLDS]
    return (
        "## A width for all arms of a step at once\n\n"
        "`band_gp_ucb` on the leaderboard's environments, from its table: the width is the quantile of the largest "
        "error over the arms under the joint posterior, so that the band holds all arms with probability .9 at each "
        f"step (not at all steps at once). `{BASE}` has no theorem, `tv_gp_ucb` that of Srinivas et al. The theorem is "
        'for draws of the model; the last column says where the environment is one ("no": records, and functions that '
        "switch or move otherwise: there its level is not proved).\n\n"
        + markdown([*_heads(table, policies), "band / width 2", "drawn from the model"], rows)
        + f"\nWithin {LIMIT} times the regret of width 2 on {len(held)} of {len(every)} environments, "
        f"{len(draws)} of them draws of the model.\n"
    )


def _ratios(table: pd.DataFrame) -> str:
    wide = table.pivot_table(index=["kernel", "model", "of"], columns="step", values="ratio", sort=False)
    rows = [[*map(str, index), *(f"{value:.2f}" for value in row)] for index, row in wide.iterrows()]
    return (
        "## Flynn & Reeb's bounds over the closed form\n\n"
        "Distance of the bounds (`DualMixtureWidth.bounds`) over that of `RealisedInformationWidth`, which is their "
        "closed form at the model's own ridge (noise variance), along runs that the closed form plays; functions of "
        f"known norm, {ratios.ARMS} arms, {ratios.REPLICATES} replicates, window {ratios.WINDOW}, drift "
        f"{ratios.DRIFT} of the norm. One number: the width that multiplies sigma at every arm.\n\n"
        + markdown(["kernel", "model", "of", *(f"t = {step}" for step in wide.columns)], rows)
    )


def _dual(table: pd.DataFrame) -> str:
    bounds = list(table["bound"].unique())
    rows = [
        [str(kernel), *(_cell(own.loc[own["bound"] == bound, "regret"]) for bound in bounds)]
        for kernel, own in table.groupby("kernel", sort=False)
    ]
    return f"Regret of {table['steps'].iloc[0]} steps with the upper bound as an index:\n\n" + markdown(
        ["kernel", *bounds], rows
    )


def _length_scales(table: pd.DataFrame) -> str:
    return (
        f"## A wrong length-scale\n\nPolicies are given {GIVEN}, the functions are drawn with what the "
        'problem\'s name says; "known": the oracle. The shorter candidates of all four are .4 e^{-p/d}, as many as '
        "t^{1/4} reaches; none of them need be the true one. B is the norm under the kernel that drew the functions; "
        "A-GP-UCB lets it grow with the factor.\n\n"
        + markdown(_heads(table, list(LENGTH_SCALES)), _race(table, list(LENGTH_SCALES)))
    )


def _drift(table: pd.DataFrame) -> str:
    return (
        "## R-PERP under drift\n\nEach knows horizon and variation budget; intervals and windows by its own paper's "
        "formula.\n\n" + markdown(_heads(table, list(DRIFT)), _race(table, list(DRIFT)))
    )


PARTS = (*races.PARTS, "ratios")


def main(
    parts: Annotated[str, typer.Option(help=f"Comma-separated, of {', '.join(PARTS)}; empty: none.")] = "",
    out: options.Out = None,
    horizon: Annotated[int, typer.Option(help="Steps of a run.")] = 500,
    replicates: Annotated[int, typer.Option(help="Of each problem.")] = 10,
) -> None:
    """Play the parts; write the page from all tables there are."""
    folder = pages.results_folder(__file__, out)
    for part in options.chosen(parts, PARTS, "parts") if parts else ():
        if part == "ratios":
            pages.save(pd.DataFrame(ratios.ratios()), folder / "ratios.csv")
            pages.save(ratios.regrets(), folder / "dual.csv")
            continue
        problems, policies = races.PARTS[part]
        tables = []
        for table in races.totals(problems(), policies, horizon, replicates):
            tables.append(table)
            pages.save(pd.concat(tables), folder / f"{part}.csv")
    pages.say(f"wrote {write_page(folder)}")


if __name__ == "__main__":
    options.command(main)()
