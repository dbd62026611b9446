"""The verdicts on what papers claim: rules that can fail, and a file that reads as it was written."""

import numpy as np
import pandas as pd
import pytest

from benchmarks.papers import _chowdhury_page, _claims, _zhou_page, _ziomek_page
from benchmarks.papers._claims import FAILS, HOLDS, UNDECIDED, UNTESTED, VACUOUS, Claim, Finding

NAMES = ("a", "b")


FOURS, NINES = np.array([4.0, 4.1, 3.9]), np.array([9.0, 9.1, 8.9])
JUDGED = [
    # Differences 1, 3: mean 2, standard error 1, so z = 2 exactly, and a little more on either side.
    (_claims.less([0, 0], [1.0, 3.0], NAMES), FAILS),
    (_claims.less([0, 0], [1.1, 3.1], NAMES), HOLDS),
    (_claims.less([1.1, 3.1], [0, 0], NAMES), FAILS),
    # Spread that both share does not count: differences 1 and 1.2 beside a spread of 1000.
    (_claims.less([0, 1000], [1, 1001.2], NAMES), HOLDS),
    (_claims.less(FOURS, NINES, NAMES, factor=0.5), HOLDS),
    (_claims.less(FOURS, NINES, NAMES, factor=0.4), FAILS),
    (_claims.less([1, 1], [2, 2], NAMES), HOLDS),  # without spread by the sign
    (_claims.less([1, 1], [1, 1], NAMES), FAILS),
    (_claims.less([1], [5], NAMES), UNTESTED),  # a single replicate
    (_claims.within([1], "A", 0, 2), UNTESTED),
    (_claims.less_of_means((10, 3), (20.1, 4), NAMES), HOLDS),  # the squared errors are added
    (_claims.less_of_means((10, 3), (19.9, 4), NAMES), FAILS),
    (_claims.less_of_means((20.1, 4), (10, 3), NAMES), FAILS),
    (_claims.alike([90, 90], [100, 100], NAMES), HOLDS),  # to a tenth of the larger
    (_claims.alike([89, 89], [100, 100], NAMES), FAILS),
    (_claims.alike([100, 100], [89, 89], NAMES), FAILS),
]


def shares(*of):
    return pd.DataFrame({"prior": list("abc")[: len(of)], "p": of})


def curve(gain):
    """At half of the steps regret balancing has so much less regret so far than random play, with an error of 5."""
    rows = [("regret_balancing", 0.0, 3.0), *(("random", above, 4.0) for above in (gain, gain, 0, 0))]
    steps = [*((*rows[0], t) for t in range(4)), *((*row, t) for t, row in enumerate(rows[1:]))]
    return pd.DataFrame(steps, columns=["policy", "mean_cumulative_regret", "standard_error", "step"])


def swept(power, bound=2.0):
    """Regret x^power in two environments at three horizons; a policy p."""
    rows = [
        {
            "environment": e,
            "x": x,
            "replicate": k,
            "regret": x**power * (1 + 0.01 * k),
            "random": x,
            "bound": bound * x,
        }
        for e in ("drift", "jumps")
        for x in (100.0, 200.0, 400.0)
        for k in range(4)
    ]
    return pd.DataFrame(rows).assign(policy="p", width="theory")


IN_ORDER = {"a": np.array([1.0, 1.1]), "b": np.array([2.0, 2.1]), "c": np.array([3.0, 3.1])}
JUDGED += [
    (_chowdhury_page.same_order(IN_ORDER, IN_ORDER), HOLDS),
    (
        _chowdhury_page.same_order(IN_ORDER, IN_ORDER | {"b": 2 + IN_ORDER["b"]}),
        FAILS,
    ),  # b and c change places
    (_chowdhury_page.same_order(IN_ORDER, dict.fromkeys("abc", IN_ORDER["a"])), FAILS),  # none is told apart
    (_zhou_page._below_bound(swept(1.0), "p"), VACUOUS),
    (_zhou_page._below_bound(swept(0.5, bound=0.9), "p"), HOLDS),
    (_zhou_page._below_bound(swept(1.0, bound=0.9), "p"), FAILS),
    (_zhou_page._sublinear(swept(0.9), "p", "theory"), HOLDS),
    (_zhou_page._sublinear(swept(1.1), "p", "theory"), UNDECIDED),
    (_ziomek_page._sticks(shares(0.6, 0.4), "p", "a"), HOLDS),
    (_ziomek_page._sticks(shares(0.6, 0.4), "p", "b"), FAILS),
    (_ziomek_page._sticks(shares(0.5, 0.5), "p", "a"), FAILS),
    (_ziomek_page._relies(shares(0.3, 0.3, 0.4), "p", "a", "b"), HOLDS),
    (_ziomek_page._relies(shares(0.2, 0.3, 0.5), "p", "a", "b"), FAILS),
    (_ziomek_page._uniform(shares(0.4, 0.3, 0.3), "p"), HOLDS),
    (_ziomek_page._uniform(shares(0.9, 0.05, 0.05), "p"), FAILS),
    (_ziomek_page._explores(shares(0.9, 0.1), "p"), HOLDS),
    (_ziomek_page._explores(shares(1.0, 0.0), "p"), FAILS),
    (_ziomek_page._mostly_no_better(curve(9.0), "regret_balancing", "random"), HOLDS),
    (
        _ziomek_page._mostly_no_better(curve(11.0), "regret_balancing", "random"),
        FAILS,
    ),  # beyond two errors of 5
    (_ziomek_page._not(Finding(HOLDS, "")), FAILS),
    (_ziomek_page._not(Finding(FAILS, "")), HOLDS),
]


@pytest.mark.parametrize(("finding", "verdict"), JUDGED)
def test_verdicts_are_those_of_the_rules(finding, verdict) -> None:
    assert finding.verdict == verdict


def test_less_states_means_errors_and_how_far_apart() -> None:
    numbers = _claims.less([1, 3], [11, 15], NAMES).numbers
    assert numbers == "a 2 ± 1, b 13 ± 2: +11, beyond two standard errors (+11.0)"


def test_least_asks_for_less_than_every_rival() -> None:
    regrets = {"a": [1.0, 1.2], "b": [2.0, 2.1], "c": [1.1, 1.1]}
    assert _claims.least("a", ["b"], regrets).verdict == HOLDS
    assert _claims.least("a", ["b", "c"], regrets).verdict == FAILS
    assert _claims.least("a", ["b", "c"], regrets, factor=2).verdict == HOLDS
    assert _claims.least("a", ["b", "c"], regrets).numbers == (
        "a 1.1 ± 0.1; b 2.05 ± 0.05 (+19.0 se), c 1.1 ± 0 (+0.0 se)"
    )


@pytest.mark.parametrize(("late", "verdict"), [((0.0, 0.0), HOLDS), ((0.0, 0.5), FAILS)])
def test_both_of_a_paper_perform_well_in_every_panel(late, verdict, tmp_path) -> None:
    for panel, own in zip(("1a", "2a"), late, strict=True):
        rows = [{"policy": name, "trial": 0, "late": own} for name in ("igp_ucb", "gp_ts")]
        pd.DataFrame(rows).to_csv(tmp_path / f"figure{panel}_trials.csv")
        pd.DataFrame({"random": [1.0]}).to_csv(tmp_path / f"figure{panel}_facts.csv")
    assert _chowdhury_page._perform_well(tmp_path).verdict == verdict


def test_every_fails_with_one_and_is_untested_with_one_untested() -> None:
    good, bad, open_ = Finding(HOLDS, "1"), Finding(FAILS, "2"), Finding(UNTESTED, "3")
    assert _claims.every([good, good]) == Finding(HOLDS, "1; 1")
    assert _claims.every([good, bad, open_]).verdict == FAILS
    assert _claims.every([good, open_]) == Finding(UNTESTED, "1; 3")
    vague, empty = Finding(UNDECIDED, "4"), Finding(VACUOUS, "5")
    assert _claims.every([empty, good, vague]).verdict == UNDECIDED
    assert _claims.every([empty, good]).verdict == VACUOUS
    assert _claims.every([vague, open_]).verdict == UNTESTED
    assert _claims.every([bad, _claims.NOT_RUN]) == _claims.NOT_RUN


def test_file_reads_as_written(tmp_path) -> None:
    claims = [
        Claim(
            "Somebody 2020", "Figure 1", 'A is lower, "much" lower', HOLDS, "a 1 ± 0, b 2 | 3", "python -m x"
        ),
        Claim("Somebody 2020", "section 2", "It is\nfast", UNTESTED, "no clock", "none"),
    ]
    _claims.write(tmp_path, claims)
    assert _claims.read(tmp_path) == claims
    assert (tmp_path / "claims.csv").read_text().splitlines()[
        0
    ] == "paper,where,claim,verdict,numbers,command"
    assert _claims.table(claims[:1]).splitlines()[2] == (
        '| Figure 1 | A is lower, "much" lower | **holds** | a 1 ± 0, b 2 / 3 |'
    )


def test_other_verdicts_empty_texts_and_other_columns_are_refused(tmp_path) -> None:
    with pytest.raises(ValueError, match="verdict must be one of"):
        Claim("p", "w", "c", "maybe", "n", "x")
    with pytest.raises(ValueError, match="numbers of a claim"):
        Claim("p", "w", "c", HOLDS, " ", "x")
    (tmp_path / "claims.csv").write_text("paper,claim\n")
    with pytest.raises(ValueError, match="columns of"):
        _claims.read(tmp_path)


@pytest.mark.parametrize(
    ("low", "high", "verdict"), [(1.0, 3.0, HOLDS), (2.5, 3.0, HOLDS), (3.5, 4.0, FAILS), (0.0, 0.5, FAILS)]
)
def test_a_mean_lies_in_a_range_give_or_take_two_standard_errors(low, high, verdict):
    found = _claims.within([1.0, 2.0, 3.0], "A", low, high)  # mean 2, standard error 0.58
    assert found.verdict == verdict
    assert "A 2 ± 0.58" in found.numbers
