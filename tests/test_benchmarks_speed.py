"""The speed benchmarks run, write what they say they write, and compare like with like. No test looks at a time."""

import json
import re
from pathlib import Path

import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from bandits_torch.models import ArmGP
from benchmarks.speed import __main__ as cli
from benchmarks.speed import million_steps
from benchmarks.speed.__main__ import app
from benchmarks.speed.measuring import alone, peak_mib
from benchmarks.speed.page import BENCHMARKS, write_page
from benchmarks.speed.plain_botorch import WAYS
from benchmarks.speed.saturation import host_waits, play_on
from benchmarks.speed.workload import NOISE_VARIANCE, bytes_of_step, held, make_task, play, ucb_on_arms

KEPT = Path(cli.__file__).parent / "results" / "cpu"
NOT_FAST = {"import", "numba", "compile", "load"}  # columns of new processes, which a fast run spares


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("speed")
    result = CliRunner().invoke(app, ["--fast", "--out", str(folder)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return folder


def _rows(out: Path, name: str) -> pd.DataFrame:
    return pd.read_csv(out / "results" / "cpu" / f"{name}.csv")


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_writes_the_columns_that_are_kept_and_the_machine_it_ran_on(out, name):
    frame = _rows(out, name)
    assert set(frame.columns) == set(pd.read_csv(KEPT / f"{name}.csv").columns) - NOT_FAST
    assert len(frame) > 0
    facts = json.loads((out / "results" / "cpu" / f"{name}.json").read_text())
    assert facts["fast"] is True
    assert {"processor", "cores", "threads", "torch", "botorch", "seconds"} <= set(facts)


def test_every_way_of_botorch_chooses_our_arm_at_every_step(out: Path) -> None:
    frame = _rows(out, "against_botorch")
    botorch = frame[frame.way != "bandits_torch"]
    assert set(botorch.way) == set(WAYS)
    assert (botorch.same_arms == botorch.steps).all()
    assert (botorch.steps > 1).all()


def test_a_model_that_streams_predicts_as_one_built_anew(out: Path) -> None:
    frame = _rows(out, "streaming")
    ours = frame[frame.way == "OnlineGP.from_botorch, observe"]
    assert len(ours) == 5
    assert float(ours[["mean_off", "variance_off"]].max().max()) < 1e-8


def test_page_holds_every_section_and_says_that_a_fast_run_means_nothing(out: Path) -> None:
    page = (out / "RESULTS.md").read_text()
    sections = re.findall(r"^## .+\?\n\n`(\w+)`: ", page, re.MULTILINE)
    assert sections == list(BENCHMARKS)
    assert page.count("figures are not meaningful") == len(BENCHMARKS)


def test_running_one_benchmark_keeps_the_others_on_the_page(out: Path) -> None:
    result = CliRunner().invoke(app, ["igp_30000", "--fast", "--out", str(out)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert all(f"`{name}`:" in (out / "RESULTS.md").read_text() for name in BENCHMARKS)


@pytest.mark.slow
def test_memory_of_a_process_of_its_own_is_not_that_of_the_one_that_started_it() -> None:
    large = torch.ones(100 * 2**20, dtype=torch.float64)  # 800 MiB
    own = peak_mib("cpu")
    assert own > large.numel() * 8 / 2**20
    assert alone(peak_mib, "cpu") < own - 500


@pytest.mark.parametrize("form", ["covariance", "factor"])
@pytest.mark.parametrize("replicates", [1, 3])
def test_bytes_of_a_step_are_those_of_the_form(form: str, replicates: int) -> None:
    task = make_task(50, "cpu", replicates=replicates)
    policy = ucb_on_arms(task, form=form)
    for step in range(12):
        play(policy, task, step, forced=torch.arange(replicates) + step % 4)
    rows = 3 + replicates  # arms 0 to 3, 1 to 4, ...: prior rows are shared
    assert held(policy) == (("covariance", 0, 0) if form == "covariance" else ("factor", rows, 4))
    matrices = replicates * 2 * 50**2 if form == "covariance" else rows * 50 + replicates * 2 * 4**2
    assert bytes_of_step(policy) == 8 * (matrices + replicates * 4 * 50)


def test_page_says_that_no_gpu_was_measured_until_one_is(out: Path) -> None:
    assert "Not measured" in (out / "RESULTS.md").read_text()
    (out / "results" / "cuda").mkdir()
    write_page(out)
    assert "Not measured" not in (out / "RESULTS.md").read_text()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("form", ["covariance", "factor"])
def test_a_step_of_an_index_policy_never_waits_for_the_gpu(form: str) -> None:
    task = make_task(50, "cuda", replicates=3)
    policy = ucb_on_arms(task, form=form)
    for step in range(12):
        play(policy, task, step)
    assert host_waits(lambda: None, "cuda") == 0
    assert host_waits(lambda: task.noise.sum().item(), "cuda") == 1
    assert host_waits(lambda: play_on(policy, task, 12, 5), "cuda") == 0


def test_what_rounding_errors_are_measured_against_is_not_rounded_itself():
    model = ArmGP(100, million_steps.prior(), NOISE_VARIANCE)
    for k in range(30):
        model.observe_arms(torch.tensor(7 * k % 100), torch.tensor(0.1 * k).double())
    errors = million_steps.errors_of(model)
    assert errors["mean_error"] < 1e-11
    assert errors["variance_error"] < 1e-12
    assert errors["gain_error"] < 1e-11
