"""Eight questions at once: the floor that waiting sets for anyone."""

import pytest
import torch

from benchmarks.parallel.race import Size, floor, problem_of

SIZE = Size(48, 2, 7)


def values_of(kind, over):
    problem = problem_of(kind, over, SIZE)
    return torch.stack(
        [
            problem.on_grid(t) if over == "points" else problem.expected_rewards(t).expand(2, -1)
            for t in range(1, 49)
        ]
    )


@pytest.mark.sampled(2)
@pytest.mark.parametrize("over", ["arms", "points"])
def test_where_nothing_changes_the_floor_is_what_is_asked_before_the_first_answer(over) -> None:
    values = values_of("gp", over)[0]
    guess = values.amax(-1) - values.mean(-1)
    for mode, blind in (("one at a time", 1), ("8 rolling", 8), ("8 in batches", 8), ("8 workers", 8)):
        assert floor("gp", over, SIZE, mode).tolist() == pytest.approx((blind * guess).tolist())


@pytest.mark.parametrize("over", ["arms", "points"])
def test_under_drift_the_floor_is_that_of_the_best_choice_of_eight_answers_ago(over) -> None:
    values = values_of("tv-gp", over)
    for mode, late, steps in (
        ("8 rolling", 8, range(48)),
        ("8 in batches", 8, [t // 8 * 8 for t in range(48)]),
    ):
        expected = torch.zeros(2).double()
        for t in steps:
            for s in range(2):
                now = values[t, s]
                arm = values[t - late, s].argmax() if t >= late else None
                expected[s] += now.max() - (now.mean() if arm is None else now[arm])
        assert floor("tv-gp", over, SIZE, mode).tolist() == pytest.approx(expected.tolist())
    assert (floor("tv-gp", over, SIZE, "one at a time") < floor("tv-gp", over, SIZE, "8 rolling")).all()


def test_a_function_drawn_anew_is_unknown_to_anyone() -> None:
    values = values_of("switching", "points")
    changed = [t for t in range(1, 48) if not torch.equal(values[t], values[t - 1])]
    blind = sorted({t + k for t in [0, *changed] for k in range(8)} & set(range(48)))
    expected = sum(values[t].amax(-1) - values[t].mean(-1) for t in blind)
    assert len(changed) == 4
    assert floor("switching", "points", SIZE, "8 rolling").tolist() == pytest.approx(expected.tolist())
