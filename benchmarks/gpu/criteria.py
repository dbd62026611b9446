"""What is asked on an H200-class card, computed from the pages: met, missed or not measured, with the figure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from bandits_torch.recipes import RECIPES
from benchmarks.gpu.checks import near_tie

Measured = Mapping[str, list[dict[str, Any]]]  # rows by page


class Verdict(NamedTuple):
    """A criterion and what became of it; ``figure`` None: not measured."""

    asked: str
    figure: str | None
    met: bool

    @property
    def said(self) -> str:
        """In one word or two."""
        return "not measured" if self.figure is None else "met" if self.met else "MISSED"


def criteria(measured: Measured) -> list[Verdict]:
    """All of them, whatever was measured."""
    return [
        _share(measured, "covariance", 10_000, 1, 0.6),
        _share(measured, "covariance", 100, 2_500, 0.6),
        _share(measured, "factor", 1_000_000, 1, 0.5),
        _wall(measured, 25, 3.0),
        _wall(measured, 2_500, 20.0),
        _waits(measured),
        _botorch(measured, 10_000),
        _botorch(measured, 100_000),
        _same(measured, "", "CPU and GPU choose the same arms in every recipe, or part in a near tie"),
        _same(measured, "captured_", "captured steps choose as on the CPU, or part in a near tie"),
        _tests(measured),
    ]


def _find(measured: Measured, page: str, **wanted: Any) -> dict[str, Any] | None:
    rows = measured.get(page, [])
    return next((row for row in rows if all(row.get(key) == value for key, value in wanted.items())), None)


def _share(measured: Measured, form: str, arms: int, replicates: int, least: float) -> Verdict:
    asked = f"{form} form, {arms} arms, {replicates} replicates: at least {least:.0%} of the speed of a copy"
    row = _find(measured, "saturation", form=form, arms=arms, replicates=replicates)
    if row is None or "captured_share" not in row:
        return Verdict(asked, None, False)
    share = max(row["captured_share"], row["plain_share"])
    return Verdict(
        asked, f"{row['plain_share']:.0%} plain, {row['captured_share']:.0%} captured", share >= least
    )


def _wall(measured: Measured, replicates: int, most: float) -> Verdict:
    asked = f"{replicates} replicates x 30 000 steps x 100 arms, captured: at most {most:g} s"
    row = _find(measured, "igp_30000", replicates=replicates, steps=30_000)
    if row is None or "wall_seconds" not in row:
        return Verdict(asked, None, False)
    return Verdict(asked, f"{row['wall_seconds']:.2f} s", row["wall_seconds"] <= most)


def _waits(measured: Measured) -> Verdict:
    rows = [row for page in ("saturation", "thompson") for row in measured.get(page, [])]
    waits = [
        row[key] for row in rows for key in ("plain_waits", "captured_waits") if row.get(key) is not None
    ]
    waits = [value for value in waits if value == value]  # NaN: not on a GPU
    figure = None if not waits else f"at most {max(waits):g} a step, over {len(waits)} kinds of step"
    return Verdict("no host wait in a step", figure, bool(waits) and max(waits) == 0)


def _botorch(measured: Measured, arms: int) -> Verdict:
    row = _find(measured, "against_botorch", arms=arms, observations=1_000)
    asked = f"at least 300 times plain BoTorch at ({arms} arms, 1 000 observations)"
    if row is None or "times_faster" not in row:
        return Verdict(asked, None, False)
    best = max(row["times_faster"], row["times_faster_captured"])
    return Verdict(
        asked, f"{row['times_faster']:.0f} plain, {row['times_faster_captured']:.0f} captured", best >= 300
    )


def _same(measured: Measured, prefix: str, asked: str) -> Verdict:
    rows = [row for row in measured.get("same_choices", []) if f"{prefix}same" in row or "error" in row]
    if not rows:
        return Verdict(asked, None, False)
    parted = [row["recipe"] for row in rows if not near_tie(row, prefix)]
    played = measured.get("same_choices", [])
    cut = "" if len(played) >= len(RECIPES) else f" (of {len(RECIPES)}: cut short)"
    figure = f"{len(rows) - len(parted)} of {len(rows)} recipes{cut}" + (
        f"; not {', '.join(parted)}" if parted else ""
    )
    return Verdict(asked, figure, not parted)


def _tests(measured: Measured) -> Verdict:
    rows = measured.get("tests", [])
    asked = "the tests pass on the GPU"
    if not rows:
        return Verdict(asked, None, False)
    passed, failed = (sum(row.get(kind, 0) for row in rows) for kind in ("passed", "failed"))
    failed += sum(row.get("error", 0) for row in rows)
    cut = [row["tests"] for row in rows if not row.get("whole")]
    figure = f"{passed} passed, {failed} failed" + (f"; cut short: {', '.join(cut)}" if cut else "")
    return Verdict(asked, figure, passed > 0 and failed == 0)
