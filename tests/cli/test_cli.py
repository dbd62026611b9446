"""The command line as its user meets it."""

import csv
import json
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from matplotlib.image import imread

from bandits_torch import make, problems, recipes, run
from bandits_torch.cli.asked import DEFAULT_POLICIES
from bandits_torch.cli.output import one_line_errors
from tests.cli.shell import REPORT, call

pytestmark = pytest.mark.usefixtures("without_a_page")

SMALL = ["--horizon", 30, "--replicates", 3, "--option", "num_arms=8", "--policies", "random,gp_ts"]


def raced(out, *arguments):
    """What a race says, its lines in the table of regret by the name they begin with, and its record."""
    output = call("race", *arguments, "--out", out).output
    lines = {line.split("│")[1].strip(): line for line in output.splitlines() if line.startswith("│")}
    return output, lines, json.loads((out / "run.json").read_text())


def test_a_race_writes_a_table_a_picture_and_a_record_and_shows_regret_against_random(tmp_path):
    out = tmp_path / "made" / "on the way"
    output, lines, record = raced(out, *SMALL, "--seed", 5)
    assert sorted(path.name for path in out.iterdir()) == REPORT
    assert record["format"] == "bandits_torch race"
    assert record["problem"] == "switching"
    assert (record["horizon"], record["replicates"], record["seed"], record["device"]) == (30, 3, 5, "cpu")
    assert record["options"] == {"problem": {"num_arms": 8}, "random": {}, "gp_ts": {}}
    assert {"bandits_torch", "torch", "botorch", "gpytorch", "python"} <= set(record["versions"])
    assert record["seconds"] > 0
    results, at_random = record["results"], record["references"]["random"]
    assert list(results) == ["random", "gp_ts"]
    assert 0 < at_random < 2 * results["random"]["mean_cumulative_regret"]
    assert record["references"]["oracle"] == 0

    assert "switching: 30 steps, 3 replicates, seed 5, cpu" in output
    assert list(lines)[2:] == ["random (expected)", "best of every step", "oracle"]
    with open(out / "regret.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 30
    for name, row in results.items():
        regret, error = row["mean_cumulative_regret"], row["standard_error"]
        assert regret == pytest.approx(sum(row["cumulative_regret"]) / 3)
        assert error > 0
        assert row["ms_per_step"] > 0
        last = [one for one in rows if one["policy"] == name][-1]
        assert float(last["mean_cumulative_regret"]) == pytest.approx(regret, rel=1e-8)
        assert float(last["standard_error"]) == pytest.approx(error, rel=1e-8)
        for shown in (f"{regret:.2f}", f"{error:.2f}", f"{100 * regret / at_random:.1f}"):
            assert shown in lines[name]
    assert imread(out / "regret.png").shape[:2] == (750, 1200)


def test_options_reach_the_problem_and_the_policies(monkeypatch, tmp_path):
    asked, build = [], recipes.build
    monkeypatch.setattr(
        recipes,
        "build",
        lambda name, *problem, **given: asked.append(given) or build(name, *problem, **given),
    )
    settings = ["problem.switches=[10, 20]", "window=2", "prior_mean=0.5", "gp_ts.prior_mean=0.25"]
    options = [part for one in settings for part in ("--option", one)]
    _, _, record = raced(tmp_path, *SMALL, "--policies", "sw_gp_ucb,gp_ts", "--seed", 6, *options)
    window, gp_ts = {"window": 2, "prior_mean": 0.5}, {"prior_mean": 0.25}
    assert asked == [{"horizon": 30, "replicates": 3, "seed": 6} | one for one in (window, gp_ts)]
    known = {"num_arms": 8, "switches": [10, 20]}
    assert record["options"] == {"problem": known, "sw_gp_ucb": window, "gp_ts": gp_ts}


def test_an_error_of_another_kind_within_a_policy_is_one_clear_line_too(monkeypatch, tmp_path):
    monkeypatch.setattr(recipes, "build", lambda *given, **options: options["horizon"] + "")
    result = call("race", *SMALL, "--out", tmp_path, code=2)
    assert result.stdout == ""
    assert result.stderr.startswith("error: TypeError: ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--device", "cuda"], "device 'cuda' is not available: torch finds no CUDA device"),
        (["--out", "taken"], "taken: File exists"),
        (
            ["--policies", "random,et_gp_ucb", "--option", "et_gp_ucb.width=-1"],
            "et_gp_ucb(width=-1): value must be a finite number >= 0, got -1",
        ),
    ],
)
def test_what_cannot_be_raced_is_one_line(arguments, said, tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("")
    assert call("race", *SMALL, *arguments, code=2).stderr == f"error: {said}\n"


def test_the_defaults_exist():
    assert set(DEFAULT_POLICIES.split(",")) <= set(recipes.RECIPES)
    assert len(call(code=None).output) > 0


def test_data_without_a_problem_are_replayed_and_identical_replicates_have_no_standard_error(tmp_path):
    rows = ["a,b,c", *(f"{n % 3},{n % 5},{n % 7}" for n in range(40))]
    (tmp_path / "my.csv").write_text("\n".join(rows))
    asked = ["--data", tmp_path / "my.csv", "--policies", "igp_ucb,random"]
    output, lines, record = raced(tmp_path / "out", *asked)
    assert "replay: 32 steps, 10 replicates" in output
    assert (record["problem"], record["arm_names"]) == ("replay", ["a", "b", "c"])
    assert lines["igp_ucb"].split("│")[3].strip() == ""
    assert float(lines["random"].split("│")[3]) > 0
    assert "no standard error of igp_ucb: all replicates are identical" in output
    assert record["results"]["igp_ucb"]["standard_error"] is None
    assert record["results"]["random"]["standard_error"] > 0


def test_the_record_holds_what_was_known_and_the_arms_pulled(tmp_path):
    asked = ["--policies", "pe_gp_ucb,random", "--horizon", 7, "--replicates", 2]
    _, _, record = raced(tmp_path, "--problem", "hills", *asked)
    problem = make("hills", horizon=7, replicates=2)
    known = record["knowledge"]
    assert known["noise_variance"] == problem.knowledge.noise_variance
    assert known["kernel"] == type(problem.knowledge.kernel).__name__
    assert known["priors"] == f"list of {len(problem.knowledge.priors)}"
    assert "priors[0].kernel" in known
    history = run(recipes.build("pe_gp_ucb", problem, horizon=7, replicates=2), problem, 7)
    assert record["results"]["pe_gp_ucb"]["arms"] == history.arms.tolist()
    _, _, record = raced(tmp_path / "gp", "--problem", "gp", *asked, "--policies", "gp_ts")
    assert record["knowledge"]["kernel.lengthscale"] == pytest.approx(0.2)
    assert len(record["knowledge"]["rkhs_bound"]) == 2


def test_every_problem_and_policy_has_a_line():
    output = call("list").output
    words = " ".join(output.split())
    assert "switching Gaussian-process draws that are replaced" in words
    assert "random Uniformly random arms or points: the baseline of every race." in words
    begins = {line.split(maxsplit=1)[0]: line for line in output.splitlines() if line and line[0] != " "}
    assert begins.keys() >= problems.PROBLEMS.keys() | recipes.RECIPES.keys()
    assert all(" " in line for line in begins.values())


def test_one_name_is_described_with_its_options_and_their_defaults():
    policy = call("list", "sw_gp_ucb").output
    assert policy.startswith("SW-GP-UCB: IGP-UCB on the last ``window`` observations")
    rows = dict(line.split(maxsplit=1) for line in policy.partition("option ")[2].splitlines()[1:])
    assert rows["window"].strip() == "None"
    assert rows["delta"].strip() == "0.1"
    uses = "kernel, noise_variance, prior_mean, horizon, rkhs_bound, rkhs_variation_budget"
    assert f"Uses of the problem: {uses}." in policy
    assert "replicates" not in rows  # a flag of its own
    assert "excluded" in call("list", "hills").output.partition("option ")[2]


def test_a_warning_is_one_line_and_said_once(capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        with one_line_errors():
            for _ in range(2):
                warnings.warn("the rate is at an end\n of its range", stacklevel=1)
    assert capsys.readouterr().err == "warning: the rate is at an end of its range\n"


def test_warnings_of_other_kinds_are_shown_as_python_does():
    with pytest.warns(DeprecationWarning, match="old"), one_line_errors():
        warnings.warn("old", DeprecationWarning, stacklevel=1)


def test_an_interrupt_is_exit_code_130_as_shells_have_it(capsys):
    with pytest.raises(SystemExit) as stopped, one_line_errors():
        raise KeyboardInterrupt
    assert stopped.value.code == 130
    assert capsys.readouterr().err == "interrupted\n"


TABLE = [("race", "--policies", "random", "--data"), ("look",)]
LOG = [("value",), ("look", "--option", "reward=c")]


@pytest.mark.parametrize(
    ("commands", "text", "said"),
    [
        (TABLE, "a;b\n1.234;987\n2.345;654\n", "(here: --option decimal=...)"),
        (TABLE, "hour,a,b\n1,2,3\n2,3,1\n5,1,2\n1,2,2\n", "--option rewards=..."),
        (TABLE, "a,b\n1,2\nn.a.,3\n", "--option rewards=..., --option missing=..."),
        (LOG, "time,a,b,c\n1,x,y,2\n2,y,x,3\n", "(here: --option arm=...)"),
    ],
)
def test_what_decides_how_a_file_is_read_is_named_as_here(commands, text, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("my.csv").write_text(text)
    for command in commands:
        assert said in call(*command, "my.csv", code=2).stderr


def test_a_reader_who_stops_reading_is_no_error():
    """As in ``bandits-torch list | head``."""
    command = [sys.executable, "-m", "bandits_torch", "list"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.close()
        said = process.stderr.read()
    assert (process.returncode, said) == (1, "")
