"""History: its numbers, its table, its file."""

import json
import math

import numpy as np
import pytest
import torch

from bandits_torch.history import COLUMNS, History


def make(replicates=3, horizon=20, seed=0, **changes):
    generator = torch.Generator().manual_seed(seed)
    number = lambda *shape: torch.rand(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    shape = (replicates, horizon)
    values = {
        "arms": torch.randint(9, shape, generator=generator),
        "rewards": number(*shape),
        "expected_rewards": number(*shape),
        "best": 1 + number(*shape),
        "times": number(horizon).cumsum(0),
        "seconds": number(horizon),
        "trace": {"width": number(*shape), "surviving priors": number(horizon)},
        "meta": {"policy": "a", "seed": 3, "first_replicate": 2, "device": "cpu", "wall_seconds": 7.5},
    }
    return History(**(values | changes))


def equal(one, other):
    names = ("arms", "rewards", "expected_rewards", "best", "times", "seconds")
    same = all(torch.equal(getattr(one, n), getattr(other, n)) for n in names)
    return (
        same
        and one.meta == other.meta
        and list(one.trace) == list(other.trace)
        and all(torch.equal(one.trace[n], other.trace[n]) for n in one.trace)
    )


def test_mean_and_standard_error_equal_numpys():
    history = make()
    totals = (history.best - history.expected_rewards).sum(-1).numpy()
    assert history.mean_cumulative_regret == pytest.approx(totals.mean(), rel=1e-14)
    assert history.standard_error == pytest.approx(totals.std(ddof=1) / math.sqrt(3), rel=1e-14)
    assert torch.equal(history.cumulative_regret[:, -1], history.regret.cumsum(1)[:, -1])


def test_it_is_shown_in_one_line_without_its_tensors():
    shown = repr(make())
    assert shown.startswith("<History of ")
    assert " replicates, 20 steps, regret " in shown
    assert "tensor" not in shown


def test_one_replicate_has_no_standard_error():
    assert math.isnan(make(replicates=1).standard_error)


def test_ms_per_step_is_the_policys_time_on_a_cpu_and_the_whole_on_a_gpu():
    history = make()
    assert history.ms_per_step == pytest.approx(1e3 * float(history.seconds.mean()))
    history.meta["device"] = "cuda:0"
    assert history.ms_per_step == pytest.approx(1e3 * 7.5 / 20)


def test_the_frame_has_a_row_per_replicate_and_step():
    history = make()
    frame = history.to_frame()
    assert tuple(frame.columns) == (*COLUMNS, "width", "surviving priors")
    assert len(frame) == 60
    assert frame["replicate"].unique().tolist() == [2, 3, 4]
    row = frame[(frame["replicate"] == 3) & (frame["step"] == 5)].iloc[0]
    for column, value in (
        ("time", history.times[4]),
        ("arm", history.arms[1, 4]),
        ("reward", history.rewards[1, 4]),
        ("expected", history.expected_rewards[1, 4]),
        ("best", history.best[1, 4]),
        ("regret", history.regret[1, 4]),
        ("width", history.trace["width"][1, 4]),
        ("surviving priors", history.trace["surviving priors"][4]),
    ):
        assert row[column] == float(value), column
    assert frame["arm"].dtype == np.int64


def test_the_frame_shares_no_memory_with_the_history():
    history = make(replicates=1)
    frame = history.to_frame()
    frame.loc[:, "reward"] = 0.0
    assert bool((history.rewards > 0).all())


def test_a_saved_history_loads_equal(tmp_path):
    history = make()
    history.save(tmp_path / "new folder" / "run.npz")
    assert equal(History.load(tmp_path / "new folder" / "run.npz"), history)
    assert [p.name for p in (tmp_path / "new folder").iterdir()] == ["run.npz"]


def test_the_file_is_plain_arrays_and_json(tmp_path):
    make().save(tmp_path / "run.npz")
    with np.load(tmp_path / "run.npz", allow_pickle=False) as archive:
        assert archive["history/arms"].shape == (3, 20)
        assert archive["history/trace/width"].shape == (3, 20)
        header = json.loads(archive["header"].tobytes())
    assert header["kind"] == "history"


def rewrite(path, **changes):
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files}
    header = json.loads(arrays["header"].tobytes()) | changes.pop("header", {})
    arrays |= changes | {"header": np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)}
    np.savez(path, **{name: value for name, value in arrays.items() if value is not None})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"header": {"format": "something else"}}, "cannot be loaded as a history file: its format must be"),
        ({"header": {"kind": "run"}}, "its kind must be 'history', got 'run'"),
        ({"history/rewards": None}, "cannot be loaded as a history file: no 'history/rewards'"),
        ({"history/trace/width": None}, "no 'history/trace/width'"),
        ({"header": {"content": {}}}, "cannot be loaded as a history file: .* missing .* 'arms'"),
        ({"history/rewards": np.zeros((3, 4))}, r"history/rewards must be float64 of shape \[3, 20\]"),
        ({"history/rewards": np.array("text")}, "cannot be loaded as a history file"),
    ],
)
def test_foreign_newer_or_incomplete_files_are_refused(tmp_path, changes, message):
    path = tmp_path / "run.npz"
    make().save(path)
    rewrite(path, **changes)
    with pytest.raises(ValueError, match=message):
        History.load(path)
    with open(path, "wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(ValueError, match="of another kind"):
        History.load(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arms": torch.zeros(20, dtype=torch.long)}, r"arms must have shape \(S, T\)"),
        ({"arms": [[0] * 20] * 3}, "arms must be a tensor"),
        ({"best": [[0.0] * 20] * 3}, "best must be a tensor"),
        ({"times": [0.0] * 20}, "times must be a tensor"),
        ({"trace": {"width": [0.0] * 20}}, "trace.* must be a tensor"),
        ({"best": torch.zeros(3, 19)}, "best must have shape"),
        ({"seconds": torch.zeros(3, 20)}, "seconds must have shape"),
        ({"trace": {"width": torch.zeros(3)}}, "trace"),
        ({"trace": {"arm": torch.zeros(20)}}, "name in trace must be other than"),
    ],
)
def test_parts_that_do_not_fit_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        make(**changes)
