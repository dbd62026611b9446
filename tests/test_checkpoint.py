"""A run that is cut off and taken up again is the run that never stopped; every policy: tests/test_resume_bits.py."""

import json
import math
import os
import warnings
import zipfile

import numpy as np
import pytest
import torch

from bandits_torch import checkpoint, load_policy, run, save_policy
from bandits_torch.history import Recorder
from bandits_torch.models.online_model import ResizableState
from bandits_torch.policies import RandomPolicy
from bandits_torch.problems import Replay
from bandits_torch.state import differing
from bandits_torch.state_files import write_state
from tests.reference.asking import bits
from tests.reference.kill_runs import same
from tests.reference.stubs import TableProblem


class Cut(Exception):
    """The end of a process, in the middle of a step: the arm is chosen, its reward never comes."""


@pytest.fixture
def cut_at(monkeypatch):
    """A function that has every later run end in step ``step`` (None: run on)."""
    whole = Recorder.pulled

    def set_step(step):
        def pulled(self, now, *rest):
            if now == step:
                raise Cut
            whole(self, now, *rest)

        monkeypatch.setattr(Recorder, "pulled", pulled)

    return set_step


TABLE = [[[0.0, 1.0, 0.5], [2.0, 1.0, 0.5]]]


class Rotated(TableProblem):
    """Other rewards behind the same settings."""

    name = "TableProblem"

    def __init__(self, noise_scale):
        super().__init__(TABLE, noise_scale=noise_scale)

    def expected_rewards(self, step):
        return super().expected_rewards(step).roll(1, -1) + 1


def small(**changes):
    """Arguments of a run of no great length."""
    made = {
        "policy": RandomPolicy(3, 2, seed=4),
        "problem": TableProblem(TABLE, noise_scale=1.0),
        "horizon": 20,
        "seed": 5,
    }
    return made | changes


def interrupted(path, cut_at, **changes):
    cut_at(11)
    with pytest.raises(Cut):
        run(**small(**changes), checkpoint=path, every=5)
    cut_at(None)


def test_only_the_steps_since_the_last_checkpoint_are_played_again(cut_at, tmp_path):
    interrupted(tmp_path / "run", cut_at)
    policy, times = RandomPolicy(3, 2, seed=4), []
    policy.__class__ = type("RandomPolicy", (RandomPolicy,), {"learn": lambda self, o: times.append(o.time)})
    history = run(**small(policy=policy), checkpoint=tmp_path / "run", every=5)
    assert times == [10.0 * step for step in range(11, 21)]
    assert same(history, run(**small()))


def test_a_run_that_is_over_gives_its_history_again(tmp_path):
    first = run(**small(), checkpoint=tmp_path / "run", every=7)
    policy = RandomPolicy(3, 2, seed=4)
    policy.__class__ = type("RandomPolicy", (RandomPolicy,), {"learn": lambda self, o: pytest.fail("played")})
    again = run(**small(policy=policy), checkpoint=tmp_path / "run", every=7)
    assert same(first, again)
    assert torch.equal(first.seconds, again.seconds)
    assert again.meta["wall_seconds"] > 0


def test_wall_seconds_add_up_over_the_pieces(cut_at, tmp_path):
    interrupted(tmp_path / "run", cut_at)
    state = checkpoint.read_state(tmp_path / "run", "run")
    write_state(tmp_path / "run", "run", {**state, "seconds": 1000.0})
    history = run(**small(), checkpoint=tmp_path / "run")
    assert 1000 < history.meta["wall_seconds"] < 1100


def test_the_numbers_of_torch_itself_go_on_too(cut_at, tmp_path):
    """BoTorch's Monte-Carlo acquisitions seed themselves from them."""

    class Global(RandomPolicy):
        def choose(self, time, available=None):
            drawn = torch.randint(0, 3, (2,))
            return type(super().choose(time))(drawn)

    torch.manual_seed(3)
    undisturbed = run(**small(policy=Global(3, 2, seed=4)))
    torch.manual_seed(3)
    interrupted(tmp_path / "run", cut_at, policy=Global(3, 2, seed=4))
    torch.manual_seed(99)
    assert same(run(**small(policy=Global(3, 2, seed=4)), checkpoint=tmp_path / "run"), undisturbed)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"horizon": 21}, "horizon was 20 and is 21"),
        ({"seed": 6}, "seed was 5 and is 6"),
        ({"policy": RandomPolicy(3, 2, seed=5)}, "policy's state.streams.generators was"),
        ({"policy": RandomPolicy(3, 1, seed=4)}, "replicates was 2 and is 1"),
        ({"first_replicate": 1}, "first_replicate was 0 and is 1"),
        ({"problem": TableProblem([[[0.0, 1.0, 0.6]] * 2], noise_scale=1.0)}, "problem.table was"),
        ({"problem": Rotated(noise_scale=1.0)}, "problem's rewards at step 1 was"),
    ],
)
def test_another_run_is_refused_by_what_differs(changes, message, cut_at, tmp_path):
    interrupted(tmp_path / "run", cut_at)
    policy = changes.get("policy", RandomPolicy(3, 2, seed=4))
    before = checkpoint.described(policy.state_dict())
    with pytest.raises(ValueError, match="checkpoint .* must be of the run asked for: .*" + message):
        run(**small(**{"policy": policy, **changes}), checkpoint=tmp_path / "run")
    assert checkpoint.described(policy.state_dict()) == before


class Simulator:
    """Of another library, with a state of its own."""

    def __init__(self, reads):
        self.reads = reads


def test_what_a_simulator_has_been_through_is_not_compared(cut_at, tmp_path):
    problems = [TableProblem(TABLE, noise_scale=1.0) for _ in range(2)]
    for reads, problem in enumerate(problems):
        problem.simulator, problem._cache = Simulator(reads), reads
    interrupted(tmp_path / "run", cut_at, problem=problems[0])
    run(**small(problem=problems[1]), checkpoint=tmp_path / "run")
    problems[1].simulator = "another"
    with pytest.raises(ValueError, match=r"problem.simulator was Simulator and is 'another'"):
        run(**small(problem=problems[1]), checkpoint=tmp_path / "run")


@pytest.mark.parametrize("length", [0, 1, 100, 0.5, -1])
def test_a_truncated_file_is_refused(length, tmp_path):
    run(**small(), checkpoint=tmp_path / "run")
    size = os.path.getsize(tmp_path / "run")
    os.truncate(tmp_path / "run", int(size * length) if isinstance(length, float) else length % size)
    with pytest.raises(ValueError, match="run' cannot be loaded as a run file: it is truncated"):
        run(**small(), checkpoint=tmp_path / "run")


def test_a_file_with_a_flipped_bit_is_refused(tmp_path):
    """Of a state that says no seconds, so that the same places are tried in every run."""
    path = tmp_path / "run"
    write_state(path, "run", {"step": 3, "policy": {"a": torch.arange(200), "b": torch.rand(9, 9)}})
    content, whole, refused = bytearray(path.read_bytes()), checkpoint.read_state(path, "run"), 0
    places = range(0, len(content), 7)
    for at in places:
        content[at] ^= 4
        path.write_bytes(content)
        try:
            found = checkpoint.read_state(path, "run")
        except ValueError:
            refused += 1
        else:  # a byte that says nothing: padding, or a date of the archive's
            assert not differing(found, whole), at
        content[at] ^= 4
    assert refused > 0.8 * len(places)


def test_a_flipped_bit_in_the_length_of_an_array_s_header_is_refused(tmp_path):
    """The array then begins four bytes early, among the spaces before it, and the last four are never read."""
    write_state(tmp_path / "run", "run", {"bytes": torch.ones(10_000, dtype=torch.uint8)})
    content = bytearray((tmp_path / "run").read_bytes())
    at = content.rindex(b"\x93NUMPY") + 8
    assert content[at] & 4
    content[at] ^= 4
    (tmp_path / "run").write_bytes(content)
    with pytest.raises(ValueError, match="cannot be loaded as a run file"):
        checkpoint.read_state(tmp_path / "run", "run")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"version": 99},
            "a run file: its version must be 7; another version of the package wrote it, got 99",
        ),
        ({"version": "7"}, "its version must be 7; another version of the package wrote it, got '7'"),
        ({"format": "another"}, "its format must be 'bandits_torch state', got 'another'"),
        ({"content": {"parts": {"code": "x"}}}, "cannot be loaded as a run file: unknown entry 'code'"),
        (
            {"content": {"parts": {"tensor": ["run/policy", "float64", [10**9], "cpu", [0]]}}},
            "cannot be loaded as a run file",
        ),
    ],
)
def test_foreign_and_newer_files_are_refused(change, message, tmp_path):
    run(**small(), checkpoint=tmp_path / "run")
    with np.load(tmp_path / "run") as archive:
        arrays = dict(archive)
    header = json.loads(arrays["header"].tobytes()) | change
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    with open(tmp_path / "run", "wb") as file:
        np.savez(file, **arrays)
    with pytest.raises(ValueError, match=message):
        run(**small(), checkpoint=tmp_path / "run")


def test_files_of_other_programs_are_refused_and_nothing_in_them_is_executed(tmp_path):
    with open(tmp_path / "run", "wb") as file:  # an array of objects is where a NumPy archive could hide code
        np.savez(file, header=np.array([os.getcwd], dtype=object))
    with pytest.raises(ValueError, match="allow_pickle=False"):
        run(**small(), checkpoint=tmp_path / "run")
    for name, content in {"text": b"hello", "pickle": b"\x80\x04K\x01."}.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(
            ValueError, match="cannot be loaded as a run file: it is truncated, or of another kind"
        ):
            run(**small(), checkpoint=tmp_path / name)
    torch.save({"a": 1}, tmp_path / "torch")
    with zipfile.ZipFile(tmp_path / "zip", "w") as archive:
        archive.writestr("header.npy", b"\x80\x04K\x01.")
    for name in ("torch", "zip"):
        with pytest.raises(ValueError, match="cannot be loaded as a run file"):
            run(**small(), checkpoint=tmp_path / name)


def test_other_versions_are_warned_of(tmp_path):
    run(**small(), checkpoint=tmp_path / "run")
    state = checkpoint.read_state(tmp_path / "run", "run")
    state["versions"] |= {"torch": "1.0", "threads": "7"}
    write_state(tmp_path / "run", "run", state)
    with pytest.warns(
        UserWarning, match=r"was written with torch 1\.0, now .*; threads 7, now 1: .*last bits"
    ):
        run(**small(), checkpoint=tmp_path / "run")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(**small(), checkpoint=tmp_path / "other")


def test_the_file_and_then_its_name_reach_the_disk(tmp_path, monkeypatch):
    calls = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(
        os,
        "fsync",
        lambda f: (calls.append("folder" if os.path.isdir(f"/proc/self/fd/{f}") else "file"), fsync(f)),
    )
    monkeypatch.setattr(os, "replace", lambda a, b: (calls.append("rename"), replace(a, b)))
    run(**small(), checkpoint=tmp_path / "run", every=20)
    assert calls == ["file", "rename", "folder"]


def test_a_policy_s_file_is_no_run_s_and_one_that_is_missing_is_named(tmp_path):
    save_policy(tmp_path / "policy", RandomPolicy(3, 2))
    with pytest.raises(ValueError, match="its kind must be 'run', got 'policy'"):
        run(**small(), checkpoint=tmp_path / "policy")
    with pytest.raises(FileNotFoundError, match="no policy file at"):
        load_policy(tmp_path / "nowhere", RandomPolicy(3, 2))


def test_what_cannot_be_written_is_refused_by_its_place_and_nothing_is_written(tmp_path):
    for value, kind in (({1}, "set"), (torch.zeros(2, dtype=torch.bfloat16), "bfloat16"), (len, "builtin")):
        with pytest.raises(TypeError, match=r"a\[1\] must be .*" + kind):
            write_state(tmp_path / "file", "run", {"a": [0, value]})
    assert list(tmp_path.iterdir()) == []


class Holder(ResizableState):
    def __init__(self):
        super().__init__()
        self.register_buffer("matrix", torch.zeros(5, 4).double())


def test_any_nesting_comes_back_as_it_was_and_a_matrix_that_lies_by_columns_so(tmp_path):
    laid = {
        "columns": torch.rand(4, 5).double().T,
        "turned": torch.rand(2, 3, 4).permute(1, 2, 0),
        "none": torch.zeros(0, 3).T,
        "one": torch.rand(1, 7, 1).transpose(0, 1),
        "part": torch.rand(4, 6)[:, ::2],  # not dense: comes back in one piece
    }
    state = laid | {
        "a": [1, 2.5, math.inf, None, True, "x"],
        3: (torch.tensor(7), {"b": torch.zeros(0, 4)}),
        "tensor": torch.arange(6, dtype=torch.float32).reshape(2, 3).T,
        "bools": torch.tensor([[True], [False]]),
        "views": torch.ones(1).expand(3),
    }
    write_state(tmp_path / "file", "thing", {"state": state})
    back = checkpoint.read_state(tmp_path / "file", "thing")["state"]
    assert list(back) == list(state)
    assert bits(back) == bits(state)
    assert isinstance(back[3], tuple)
    back["views"][0] = 5.0  # memory of its own
    assert back["views"].tolist() == [5.0, 1.0, 1.0]
    for name in ("columns", "turned", "one"):
        assert back[name].stride() == laid[name].stride()
    assert back["part"].is_contiguous()
    holder = Holder()
    holder.load_state_dict({"matrix": back["columns"], "_extra_state": {}})
    assert holder.matrix.stride() == laid["columns"].stride()


@pytest.mark.parametrize("change", ["rows reversed", "one number corrected"])
def test_a_run_on_another_table_is_refused_however_alike_their_sums(change, cut_at, tmp_path):
    table = torch.rand(300, 3, generator=torch.Generator().manual_seed(1)).double()
    table[60] = table[-1]  # the first row that is played is that of the reversed table
    other = table.clone()
    if change == "rows reversed":
        other[60:] = table[60:].flip(0)
    else:
        other[200, 1] += 1e-9
    policies = [RandomPolicy(3, seed=4) for _ in range(2)]
    told = {"noise_fraction": 0.1, "forgetting_rate": 0.01}
    cut_at(30)
    with pytest.raises(Cut):
        run(policies[0], Replay(table, **told), 100, seed=5, checkpoint=tmp_path / "run", every=10)
    cut_at(None)
    with pytest.raises(ValueError, match=r"must be of the run asked for: .*problem.digest was"):
        run(policies[1], Replay(other, **told), 100, seed=5, checkpoint=tmp_path / "run", every=10)
