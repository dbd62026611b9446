"""Races and sweeps: the same noise for all, and the same results wherever cells run, interrupted or not."""

import builtins
import os
import subprocess
import sys
import warnings
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from types import MappingProxyType

import pandas as pd
import pytest
import torch

from bandits_torch import History, make, run
from bandits_torch.experiments import engines
from bandits_torch.experiments.engines import Block, Cell, ProblemSetting, RecipeSetting, make_cells
from bandits_torch.experiments.sweep import SweepFailed, race, run_cells, sweep
from bandits_torch.policies import RandomPolicy
from bandits_torch.recipes import build
from tests.reference.stubs import FixedPolicy, TableProblem

ROOT = Path(__file__).parent.parent.parent
PROBLEMS = {
    "switch": ProblemSetting("switching", {"num_arms": 12}),
    "drift": ProblemSetting("tv-gp", {"num_arms": 12, "forgetting_rate": 0.1}),
}
POLICIES = {
    "random": RecipeSetting("random"),
    "ts": RecipeSetting("gp_ts"),
    "window": RecipeSetting("sw_gp_ucb", {"window": 10}),
}


@dataclass(frozen=True)
class Table:
    """A problem of a user's own."""

    horizon: int | None = None

    def __call__(self, block):
        return TableProblem([[[0.0, 1.0, 0.5]]], noise_scale=1.0, horizon=self.horizon)


@dataclass(frozen=True)
class Counted:
    """Random arms; notes every time it is built, and raises or interrupts when it is told to."""

    raises: str | None = None

    def __call__(self, problem, block):
        BUILT.append((problem, block))
        if self.raises:
            raise getattr(builtins, self.raises)("by order")
        return RandomPolicy(problem.num_arms, block.replicates, first_replicate=block.first_replicate)


@dataclass(frozen=True)
class Warns:
    """Random arms, with a warning each time it is built."""

    def __call__(self, problem, block):
        warnings.warn("not what you asked for", stacklevel=1)
        return RandomPolicy(problem.num_arms, block.replicates, first_replicate=block.first_replicate)


@dataclass(frozen=True)
class EndsWhileItSends:
    """Random arms, in a process that would end half-way through any long message to its parent."""

    def __call__(self, problem, block):
        send = Connection._send

        def end_half_way(connection, message, *rest):
            if len(message) > 4096:  # what a pipe takes at once or not at all
                send(connection, message[: len(message) // 2], *rest)
                os._exit(1)
            send(connection, message, *rest)

        Connection._send = end_half_way
        return RandomPolicy(problem.num_arms, block.replicates, first_replicate=block.first_replicate)


BUILT: list = []


@pytest.fixture(autouse=True)
def _nothing_built():
    BUILT.clear()


def same(one, other):
    """Bit for bit, seconds apart."""
    pd.testing.assert_frame_equal(one.to_frame(), other.to_frame(), check_exact=True)
    assert one.meta | {"wall_seconds": 0} == other.meta | {"wall_seconds": 0}


def all_same(one, other):
    assert {p: list(rows) for p, rows in one.items()} == {p: list(rows) for p, rows in other.items()}
    for problem, rows in one.items():
        for policy, history in rows.items():
            same(history, other[problem][policy])


def test_a_sweep_and_a_race_equal_their_runs():
    histories = sweep(PROBLEMS, POLICIES, 20, replicates=3, seed=5)
    asked = {"replicates": 3, "horizon": 20, "seed": 5}
    for label, setting in PROBLEMS.items():
        problem = make(setting.name, **asked, **setting.options)
        alone, raced = (
            {
                name: build(policy.name, problem, **asked, **policy.options)
                for name, policy in POLICIES.items()
            }
            for _ in range(2)
        )
        raced = race(raced, problem, 20, seed=5)
        for name, policy in alone.items():
            played = run(policy, problem, 20, seed=5)
            for history in (raced[name], histories[label][name]):
                assert torch.equal(history.rewards, played.rewards)
                assert torch.equal(history.best, played.best)
                assert history.meta["policy"] == name
            assert histories[label][name].meta["problem"] == label


def test_blocks_hold_the_replicates_of_the_whole():
    whole = sweep(PROBLEMS, POLICIES, 20, replicates=5, seed=1)
    parts = sweep(PROBLEMS, POLICIES, 20, replicates=5, block=2, seed=1)
    for problem in whole:
        for policy in whole[problem]:
            one, other = whole[problem][policy], parts[problem][policy]
            assert torch.equal(one.arms, other.arms)
            torch.testing.assert_close(one.rewards, other.rewards, rtol=0, atol=1e-12)
            assert one.trace.keys() == other.trace.keys()
            assert other.meta["first_replicate"] == 0


def test_a_first_replicate_among_the_options_is_that_of_the_first_block():
    first = {"first_replicate": 4}
    problems = {"switch": ProblemSetting("switching", {"num_arms": 12, **first})}
    policies = {"ts": RecipeSetting("gp_ts", first)}
    whole, parts = (sweep(problems, policies, 20, replicates=3, block=size) for size in (None, 1))
    one, other = whole["switch"]["ts"], parts["switch"]["ts"]
    assert torch.equal(one.arms, other.arms)
    torch.testing.assert_close(one.rewards, other.rewards, rtol=0, atol=1e-12)


def test_the_horizon_is_cut_to_the_problems_own():
    histories = sweep({"endless": Table(), "short": Table(4)}, {"random": Counted()}, 10, seed=3)
    assert {name: h["random"].horizon for name, h in histories.items()} == {"endless": 10, "short": 4}
    assert [block.horizon for _, block in BUILT] == [10, 4]
    assert torch.equal(histories["endless"]["random"].rewards[:, :4], histories["short"]["random"].rewards)


def test_processes_give_what_the_local_runner_gives_bit_for_bit_and_name_a_cell_that_fails(
    monkeypatch, request
):
    monkeypatch.setattr(engines, "cores", lambda: 2)
    request.addfinalizer(partial(torch.set_default_dtype, torch.get_default_dtype()))
    torch.set_default_dtype(torch.float64)  # as users of BoTorch do; kernels then round numbers otherwise
    local = sweep(PROBLEMS, POLICIES, 25, replicates=3, block=2)
    policies = {"bad": RecipeSetting("sw_gp_ucb", {"window": 0})} | POLICIES
    with pytest.raises(SweepFailed, match="switch, bad, replicates 0 to 1: ValueError: window") as got:
        sweep(PROBLEMS, policies, 25, replicates=3, block=2, engine="processes", jobs=2)
    all_same(local, got.value.histories)


@pytest.mark.parametrize("engine", ["local", "processes"])
def test_warnings_of_cells_are_given_here_whatever_the_engine(engine):
    with pytest.warns(UserWarning, match="not what you asked for") as given:
        sweep({"table": Table()}, {"warns": Warns()}, 3, replicates=2, block=1, engine=engine, jobs=1)
    assert len(given) == 2


def test_an_interrupted_sweep_continues_where_it_stood(tmp_path):
    policies = {"first": Counted(), "second": Counted("KeyboardInterrupt"), "third": Counted()}
    with pytest.raises(KeyboardInterrupt):
        sweep({"table": Table()}, policies, 10, replicates=2, out=tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    BUILT.clear()
    # The interrupted cell ran under another key: put right, it runs, and the finished one does not.
    policies["second"] = Counted()
    again = sweep({"table": Table()}, policies, 10, replicates=2, out=tmp_path)
    assert len(BUILT) == 2
    all_same(again, sweep({"table": Table()}, policies, 10, replicates=2))
    BUILT.clear()
    all_same(again, sweep({"table": Table()}, policies, 10, replicates=2, out=tmp_path))
    assert BUILT == []


def test_a_failed_cell_loses_no_other(tmp_path):
    policies = {"first": Counted(), "bad": Counted("ValueError"), "third": Counted()}
    with pytest.raises(SweepFailed, match=r"cells failed\ntable, bad, .*ValueError: by order") as got:
        sweep({"table": Table()}, policies, 10, replicates=2, out=tmp_path)
    assert list(got.value.histories["table"]) == ["first", "third"]
    (failure,) = got.value.failures.values()
    assert "by order" in failure.trace
    assert "__call__" in failure.trace
    assert len(list(tmp_path.iterdir())) == 2


def key_of(
    problem=PROBLEMS["switch"], policy=POLICIES["window"], block=None, labels=("a", "b"), capture=False
):
    (key,) = engines.keys_of([Cell(*labels, problem, policy, block or Block(3, 20), capture)])
    return key


@pytest.mark.parametrize(
    "other",
    [
        {"problem": ProblemSetting("switching", {"num_arms": 13})},
        {"problem": ProblemSetting("switching", {"num_arms": 12}, "file.csv")},
        {"problem": PROBLEMS["drift"]},
        {"policy": RecipeSetting("sw_gp_ucb", {"window": 11})},
        {"policy": RecipeSetting("r_gp_ucb", {"window": 10})},
        {"policy": Counted()},
        {"block": Block(4, 20)},
        {"block": Block(3, 21)},
        {"block": Block(3, 20, first_replicate=3)},
        {"block": Block(3, 20, seed=1)},
        {"labels": ("a", "c")},
        {"capture": "auto"},
    ],
)
def test_whatever_defines_a_cell_is_in_its_key(other):
    assert key_of() == key_of(policy=RecipeSetting("sw_gp_ucb", {"window": 10}))
    assert key_of(**other) != key_of()


def test_a_sweep_under_another_default_dtype_does_not_take_the_cells_of_this_one(tmp_path, request):
    policies = {"ts": POLICIES["ts"]}
    sweep(PROBLEMS, policies, 10, replicates=2, out=tmp_path)
    request.addfinalizer(partial(torch.set_default_dtype, torch.get_default_dtype()))
    torch.set_default_dtype(torch.float64)
    all_same(
        sweep(PROBLEMS, policies, 10, replicates=2, out=tmp_path), sweep(PROBLEMS, policies, 10, replicates=2)
    )
    assert len(list(tmp_path.iterdir())) == 4


def test_the_data_of_a_problem_are_read_once_for_all_its_cells(tmp_path, monkeypatch):
    read, checksum = [], engines.checksum
    monkeypatch.setattr(engines, "checksum", lambda path: read.append(path) or checksum(path))
    (tmp_path / "a.csv").write_text("1")
    cells = make_cells({"a": ProblemSetting("replay", {}, str(tmp_path / "a.csv"))}, POLICIES, Block(6, 5), 2)
    assert len(set(engines.keys_of(cells))) == 9
    assert len(read) == 1


def test_the_path_of_data_may_be_a_string_or_a_path(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,b\n" + "1,2\n3,1\n" * 20)
    one, other = (ProblemSetting("replay", {}, data) for data in (str(path), path))
    before = key_of(problem=one)
    assert key_of(problem=other) == before
    path.write_text("a,b\n" + "1,2\n3,0\n" * 20)
    assert key_of(problem=other) != before


@pytest.mark.parametrize(
    "policy", [lambda problem, block: None, RecipeSetting("gp_ucb", {"width": object()})]
)
def test_what_cannot_be_written_down_cannot_be_filed(policy, tmp_path):
    with pytest.raises(ValueError, match="policy must"):
        sweep(PROBLEMS, {"mine": policy}, 5, out=tmp_path)


def test_a_labels_odd_characters_stay_out_of_file_names():
    assert key_of(labels=("a/b", "gp_ucb w=2")).startswith("a_b-gp_ucb_w=2-0-2-")


def test_finished_cells_are_read_not_run(tmp_path):
    cells = make_cells({"table": Table()}, {"random": Counted()}, Block(2, 5))
    ((_, history),) = run_cells(cells, out=tmp_path)
    (file,) = tmp_path.iterdir()
    same(History.load(file), history)
    file.write_bytes(b"half")
    with pytest.raises(ValueError, match="cannot be loaded as a history file: it is truncated"):
        list(run_cells(cells, out=tmp_path))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"policies": {}}, "policies must be a mapping of names to one setting or function or more, got {}"),
        ({"engine": "cloud"}, "engine must be one of local, processes, ray, got 'cloud'"),
        (
            {"engine": "processes", "threads": 2, "jobs": 2},
            "jobs must be at most 1: 2 threads each on the 3 CPUs",
        ),
        ({"threads": 4}, "threads must be at most 3, the CPUs, got 4"),
        ({"replicates": 0}, "replicates must be an integer >= 1"),
        ({"block": 0}, "block must be an integer >= 1"),
        ({"seed": -1}, "seed must be an integer >= 0"),
        ({"jobs": 0}, "jobs must be an integer >= 1"),
    ],
)
def test_bad_arguments_are_refused(options, message, monkeypatch):
    monkeypatch.setattr(engines, "cores", lambda: 3)
    with pytest.raises(ValueError, match=message):
        sweep({"table": Table()}, **{"policies": {"random": Counted()}, "horizon": 5} | options)
    assert BUILT == []


def test_tensors_mappings_and_dataclasses_among_the_options_define_a_cell_too():
    def key(width, kernel):
        return key_of(policy=RecipeSetting("gp_ucb", {"width": width, "kernel": kernel}))

    table, other = {"a": torch.ones(2)}, {"a": torch.zeros(2)}
    assert key(Block(1, 2), MappingProxyType(table)) == key(Block(1, 2), MappingProxyType(dict(table)))
    assert len({key(b, MappingProxyType(t)) for b in (Block(1, 2), Block(1, 3)) for t in (table, other)}) == 4


def test_progress_counts_the_cells_and_those_that_failed(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    policies = {"random": Counted(), "broken": Counted("ValueError")}
    with pytest.raises(SweepFailed):
        sweep({"table": Table()}, policies, 3, progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "cells, 1 failed" in err
    assert "2/2" in err


NOTEBOOK = """
from bandits_torch.experiments import ProblemSetting, RecipeSetting, sweep
from bandits_torch.policies import RandomPolicy
from tests.experiments.test_sweep import EndsWhileItSends, Table

def mine(problem, block):
    return RandomPolicy(problem.num_arms, block.replicates, seed=block.seed)

done = sweep({"table": Table()}, {"ends": EndsWhileItSends()}, 5000, engine="processes", jobs=1)
print("imported:", tuple(done["table"]["ends"].rewards.shape))
gp = {"gp": ProblemSetting("gp", {"num_arms": 5})}
print("here:", sweep(gp, {"mine": mine}, 3)["gp"]["mine"].horizon)
try:
    sweep(gp, {"mine": mine}, 3, engine="processes", jobs=1)
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.slow
def test_processes_of_a_notebook_take_what_is_imported_and_refuse_what_it_defines_with_advice():
    """A process that ends while it sends leaves nobody waiting: nothing long is sent, or the pool would wait for the
    rest of it, and so would a sweep that is to end."""
    done = subprocess.run(
        [sys.executable, "-c", NOTEBOOK], capture_output=True, text=True, timeout=100, cwd=ROOT
    )
    assert len(done.stdout.splitlines()) == 3, done.stderr
    named, here, refused = done.stdout.splitlines()
    assert (named, here) == ("imported: (1, 5000)", "here: 3")
    assert refused.startswith(
        "ValueError engine must be 'local' or 'ray' if policies or problems are defined in a "
    )
    assert "(here those of gp, mine, replicates 0 to 0), got 'processes'" in refused
    assert refused.endswith("move them into a file.py beside the notebook and import them from there")


def test_all_policies_of_a_race_meet_the_same_noise():
    script, problem = torch.zeros(2, 30, dtype=torch.long), TableProblem([[[0.0, 1.0, 0.5]]], noise_scale=1.0)
    histories = race({"left": FixedPolicy(script, 3), "middle": FixedPolicy(script + 1, 3)}, problem, 30)
    noise = [h.rewards - h.expected_rewards for h in histories.values()]
    torch.testing.assert_close(noise[0], noise[1], rtol=0, atol=1e-12)
