"""The figures of Calandriello et al. (2019) come from one command, and verdicts from the files it wrote."""

import pandas as pd
import pytest

from benchmarks.papers import __main__ as papers
from benchmarks.papers import _calandriello_page, _claims, calandriello
from benchmarks.papers._claims import FAILS, HOLDS
from benchmarks.papers._folders import RESULTS


def test_figure_2_is_drawn_and_bkb_does_not_starve_where_regressors_do(tmp_path) -> None:
    papers.main(["calandriello", "2", "--fast", "--out", str(tmp_path)])
    assert {path.name for path in tmp_path.iterdir()} == {
        "figure_2.png",
        "starvation.csv",
        "RESULTS.md",
        "claims.csv",
    }
    verdicts = {claim.claim.partition(" starve")[0]: claim.verdict for claim in _claims.read(tmp_path)}
    assert verdicts["BKB's variance does not"] == verdicts["subset of regressors"] == HOLDS
    # As many features as BKB has arms keep the prior's variance.
    assert verdicts["random Fourier features"] == FAILS
    page = (tmp_path / "RESULTS.md").read_text()
    assert "![Figure 2](figure_2.png)" in page
    assert "## Times" not in page


def test_every_sampler_on_the_page_is_one_that_the_command_plays() -> None:
    assert set(pd.read_csv(RESULTS / "calandriello" / "regret.csv")["sampler"]) == set(calandriello.SAMPLERS)


def test_the_other_parts_run(tmp_path) -> None:
    papers.main(["calandriello", "growth", "adaptive", "times", "--fast", "--out", str(tmp_path)])
    frame = pd.read_csv(tmp_path / "growth.csv")
    assert (frame["draw"] <= frame["dictionary"]).all()
    assert (frame["dictionary"] <= frame["arms_pulled"]).all()
    assert len(pd.read_csv(tmp_path / "times.csv")) == 12
    assert "when to prefer the exact posterior" in (tmp_path / "RESULTS.md").read_text()


@pytest.mark.parametrize(("ours", "verdict"), [(104.0, HOLDS), (106.0, FAILS)])
def test_regret_is_compared_with_the_exact_sampler(tmp_path, ours, verdict) -> None:
    rows = [
        {"width": "w", "sampler": name, "replicate": k, "regret": regret + k, "dictionary": 9, "last_draw": 5}
        for name, regret in (("exact", 100.0), ("BKB, qbar 5", ours))
        for k in range(2)
    ]
    pd.DataFrame(rows).to_csv(tmp_path / "regret.csv", index=False)
    _calandriello_page.write(tmp_path)
    assert [claim.verdict for claim in _claims.read(tmp_path)] == [verdict]


@pytest.mark.parametrize(("share", "verdict"), [(0.95, HOLDS), (0.85, FAILS)])
def test_accuracy_is_asked_in_nine_runs_of_ten(tmp_path, share, verdict) -> None:
    row = {"preset": "theory", "qbar": 700, "runs": 200, "share_within": share}
    pd.DataFrame([row]).to_csv(tmp_path / "accuracy.csv", index=False)
    _calandriello_page.write(tmp_path)
    assert [claim.verdict for claim in _claims.read(tmp_path)] == [verdict]


@pytest.mark.parametrize(("times", "verdict"), [(4.1, HOLDS), (3.9, FAILS)])
def test_four_times_is_asked_beside_numpy_and_both_bounds_are_told(tmp_path, times, verdict) -> None:
    row = {"arms": 1000, "steps": 2000, "printed_times": times, "cholesky_same_choices": 2000}
    row |= {"times_at_most": 8.4, "times_by_products": 2.7}
    pd.DataFrame([row]).to_csv(tmp_path / "numpy.csv", index=False)
    _calandriello_page.write(tmp_path)
    speed, choices = _claims.read(tmp_path)
    assert [speed.verdict, choices.verdict] == [verdict, HOLDS]
    assert "products alone allow 2.7" in speed.numbers
    assert "the least 8.4" in speed.numbers
