"""The verdicts on what papers claim: rules that can fail, and a file that reads as it was written."""

import math

import numpy as np
import pytest

from benchmarks.papers import _claims
from benchmarks.papers._claims import FAILS, HOLDS, UNDECIDED, UNTESTED, VACUOUS, Claim, Finding

NAMES = ("a", "b")


def test_less_holds_only_beyond_two_standard_errors_of_the_paired_differences() -> None:
    # Differences 1, 3: mean 2, standard error 1, so z = 2 exactly, and a little more on either side.
    assert _claims.less([0, 0], [1.0, 3.0], NAMES).verdict == FAILS
    assert _claims.less([0, 0], [1.1, 3.1], NAMES).verdict == HOLDS
    assert _claims.less([1.1, 3.1], [0, 0], NAMES).verdict == FAILS
    # Spread that both share does not count: differences 1 and 1.2 beside a spread of 1000.
    assert _claims.less([0, 1000], [1, 1001.2], NAMES).verdict == HOLDS


def test_less_states_means_errors_and_how_far_apart() -> None:
    numbers = _claims.less([1, 3], [11, 15], NAMES).numbers
    assert numbers == "a 2 ± 1, b 13 ± 2: +11, beyond two standard errors (+11.0)"


def test_less_by_a_factor() -> None:
    first, second = np.array([4.0, 4.1, 3.9]), np.array([9.0, 9.1, 8.9])
    assert _claims.less(first, second, NAMES, factor=0.5).verdict == HOLDS
    assert _claims.less(first, second, NAMES, factor=0.4).verdict == FAILS


def test_less_without_spread_goes_by_the_sign() -> None:
    assert _claims.less([1, 1], [2, 2], NAMES).verdict == HOLDS
    assert _claims.less([1, 1], [1, 1], NAMES).verdict == FAILS


def test_least_asks_for_less_than_every_rival() -> None:
    regrets = {"a": [1.0, 1.2], "b": [2.0, 2.1], "c": [1.1, 1.1]}
    assert _claims.least("a", ["b"], regrets).verdict == HOLDS
    assert _claims.least("a", ["b", "c"], regrets).verdict == FAILS
    assert _claims.least("a", ["b", "c"], regrets, factor=2).verdict == HOLDS
    assert _claims.least("a", ["b", "c"], regrets).numbers == (
        "a 1.1 ± 0.1; b 2.05 ± 0.05 (+19.0 se), c 1.1 ± 0 (+0.0 se)"
    )


def test_a_single_replicate_tests_nothing() -> None:
    assert _claims.less([1], [5], NAMES).verdict == UNTESTED
    assert _claims.within([1], "A", 0, 2).verdict == UNTESTED


def test_less_of_means_adds_the_squared_errors() -> None:
    assert _claims.less_of_means((10, 3), (20.1, 4), NAMES).verdict == HOLDS
    assert _claims.less_of_means((10, 3), (19.9, 4), NAMES).verdict == FAILS
    assert _claims.less_of_means((20.1, 4), (10, 3), NAMES).verdict == FAILS


def test_alike_goes_by_the_share_of_the_larger() -> None:
    assert _claims.alike([90, 90], [100, 100], NAMES).verdict == HOLDS
    assert _claims.alike([89, 89], [100, 100], NAMES).verdict == FAILS
    assert _claims.alike([100, 100], [89, 89], NAMES).verdict == FAILS


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


def test_mean_and_error_are_those_of_the_textbook() -> None:
    values = np.array([1.0, 2.0, 6.0])
    spread = math.sqrt(((values - 3) ** 2).sum() / 2)
    assert _claims._mean_and_error(values) == (3.0, pytest.approx(spread / math.sqrt(3)))


@pytest.mark.parametrize(
    ("low", "high", "verdict"), [(1.0, 3.0, HOLDS), (2.5, 3.0, HOLDS), (3.5, 4.0, FAILS), (0.0, 0.5, FAILS)]
)
def test_a_mean_lies_in_a_range_give_or_take_two_standard_errors(low, high, verdict):
    found = _claims.within([1.0, 2.0, 3.0], "A", low, high)  # mean 2, standard error 0.58
    assert found.verdict == verdict
    assert "A 2 ± 0.58" in found.numbers
