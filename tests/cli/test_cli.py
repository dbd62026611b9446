"""The command line as its user meets it."""

import csv
import inspect
import json
import subprocess
import sys
import warnings
from types import SimpleNamespace

import pytest
from matplotlib.image import imread

from bandits_torch import __version__, make, problems, recipes, run
from bandits_torch.cli import asked
from bandits_torch.cli.asked import DEFAULT_POLICIES
from bandits_torch.cli.catalogue import Catalogue, Entry, catalogue
from bandits_torch.cli.output import one_line_errors
from bandits_torch.policies import RandomPolicy
from bandits_torch.recipes import build
from tests.cli.shell import REPORT, call

pytestmark = pytest.mark.usefixtures("without_a_page")

SMALL = ["--horizon", "30", "--replicates", "3", "--option", "num_arms=8", "--policies", "first,lucky"]


def first(arms, kernel, noise_variance, *, replicates=1, prior_mean=0.0, seed=0, offset=0):
    """Plays at random, offset in its seed.

    And more, which a list leaves out.
    """
    return RandomPolicy(arms.shape[-2], replicates, seed=seed + offset)


def lucky(arms, kernel, noise_variance, *, replicates=1, prior_mean=0.0, seed=0, luck=1.0):
    """Plays at random too."""
    if luck < 0:
        raise ValueError(f"luck must be >= 0, got {luck}")
    return RandomPolicy(arms.shape[-2], replicates, seed=seed + 100)


@pytest.fixture
def stub_recipes(monkeypatch):
    """Two recipes that cost nothing, and what ``build`` was asked for."""
    builds = []

    def build(name, problem, *, replicates, horizon, seed, **options):
        builds.append({"name": name, "horizon": horizon, "seed": seed, **options})
        return stub.RECIPES[name](
            problem.arms, problem.knowledge.kernel, 0.1, replicates=replicates, seed=seed, **options
        )

    def options_of(name):
        signature = inspect.signature(stub.RECIPES[name])
        return {key: p.default for key, p in signature.parameters.items() if p.kind is p.KEYWORD_ONLY}

    stub = SimpleNamespace(
        RECIPES={"first": first, "lucky": lucky}, build=build, options_of=options_of, asked=builds
    )
    monkeypatch.setattr("bandits_torch.cli.play.recipes", stub)
    policies = {
        "first": Entry("", {"prior_mean": "0.0", "offset": "0"}),
        "lucky": Entry("", {"prior_mean": "0.0", "luck": "1.0"}),
    }
    monkeypatch.setattr(asked, "catalogue", lambda: Catalogue(catalogue().problems, policies, []))
    return stub


def test_a_race_writes_a_table_a_picture_and_a_record(stub_recipes, tmp_path):
    out = tmp_path / "made" / "on the way"
    call("race", *SMALL, "--seed", "5", "--out", out)
    assert sorted(path.name for path in out.iterdir()) == REPORT

    record = json.loads((out / "run.json").read_text())
    assert record["format"] == "bandits_torch race"
    assert record["problem"] == "switching"
    assert (record["horizon"], record["replicates"], record["seed"], record["device"]) == (30, 3, 5, "cpu")
    assert record["options"] == {"problem": {"num_arms": 8}, "first": {}, "lucky": {}}
    assert {"bandits_torch", "torch", "botorch", "gpytorch", "python"} <= set(record["versions"])
    assert record["seconds"] > 0
    assert list(record["results"]) == ["first", "lucky"]
    for row in record["results"].values():
        totals = row["cumulative_regret"]
        assert row["mean_cumulative_regret"] == pytest.approx(sum(totals) / 3)
        assert row["standard_error"] > 0
        assert row["ms_per_step"] > 0
    assert 0 < record["references"]["random"] < 2 * record["results"]["first"]["mean_cumulative_regret"]
    assert record["references"]["oracle"] == 0

    with open(out / "regret.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 30
    last = [row for row in rows if row["policy"] == "lucky"][-1]
    assert float(last["mean_cumulative_regret"]) == pytest.approx(
        record["results"]["lucky"]["mean_cumulative_regret"], rel=1e-8
    )
    assert float(last["standard_error"]) == pytest.approx(
        record["results"]["lucky"]["standard_error"], rel=1e-8
    )
    assert imread(out / "regret.png").shape[:2] == (750, 1200)


def test_the_table_shows_regret_against_random_and_the_oracle(stub_recipes, tmp_path):
    output = call("race", *SMALL, "--out", tmp_path).output
    record = json.loads((tmp_path / "run.json").read_text())
    assert "switching: 30 steps, 3 replicates, seed 0, cpu" in output
    lines = {line.split("│")[1].strip(): line for line in output.splitlines() if line.startswith("│")}
    assert list(lines)[2:] == ["random (expected)", "best of every step", "oracle"]
    for name, row in record["results"].items():
        assert f"{row['mean_cumulative_regret']:.2f}" in lines[name]
        assert f"{row['standard_error']:.2f}" in lines[name]
        share = 100 * row["mean_cumulative_regret"] / record["references"]["random"]
        assert f"{share:.1f}" in lines[name]


def test_the_same_seed_gives_the_same_race(stub_recipes, tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        call("race", *SMALL, "--seed", seed, "--out", tmp_path / name)
    tables = [(tmp_path / name / "regret.csv").read_text() for name in "abc"]
    assert tables[0] == tables[1] != tables[2]


def test_a_single_replicate_has_no_standard_error(stub_recipes, tmp_path):
    call("race", *SMALL, "--replicates", "1", "--out", tmp_path)
    record = json.loads((tmp_path / "run.json").read_text())
    assert record["results"]["first"]["standard_error"] is None


def test_options_reach_the_problem_and_the_policies(stub_recipes, tmp_path):
    settings = ["problem.switches=[10, 20]", "luck=2", "prior_mean=0.5", "first.prior_mean=0.25", "offset=3"]
    arguments = [part for setting in settings for part in ("--option", setting)]
    call("race", *SMALL, *arguments, "--out", tmp_path)
    assert stub_recipes.asked == [
        {"name": "first", "horizon": 30, "seed": 0, "prior_mean": 0.25, "offset": 3},
        {"name": "lucky", "horizon": 30, "seed": 0, "luck": 2, "prior_mean": 0.5},
    ]
    options = json.loads((tmp_path / "run.json").read_text())["options"]
    assert options["problem"] == {"num_arms": 8, "switches": [10, 20]}
    assert options["first"] == {"prior_mean": 0.25, "offset": 3}


def test_an_error_of_another_kind_within_a_policy_is_one_clear_line_too(stub_recipes, tmp_path):
    result = call("race", *SMALL, "--out", tmp_path, "--option", "luck=much", code=2)
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert "TypeError: " in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_cuda_where_there_is_none_is_an_error(stub_recipes, tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    result = call("race", *SMALL, "--out", tmp_path, "--device", "cuda", code=2)
    assert result.stderr == "error: device 'cuda' is not there: torch sees no CUDA device\n"


def test_a_file_in_the_way_of_the_folder_is_an_error(stub_recipes, tmp_path):
    (tmp_path / "taken").write_text("")
    result = call("race", *SMALL, "--out", tmp_path / "taken", code=2)
    assert result.stderr == f"error: {tmp_path / 'taken'}: File exists\n"


def test_the_defaults_exist():
    assert set(DEFAULT_POLICIES.split(",")) <= set(recipes.RECIPES)
    assert len(call(code=None).output) > 0


def test_version():
    assert call("--version").output.strip() == f"bandits_torch {__version__}"


def test_an_error_of_the_module_shows_no_traceback():
    command = [sys.executable, "-m", "bandits_torch", "race", "--problem", "nothing"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: problem must be a known name")


def test_a_policy_s_error_says_whose_it_is_and_of_which_option(tmp_path):
    asked = ["--policies", "random,et_gp_ucb", "--option", "et_gp_ucb.width=-1", "--out", tmp_path / "out"]
    result = call("race", *SMALL[:6], *asked, code=2)
    assert result.stderr == "error: et_gp_ucb(width=-1): value must be a finite number >= 0, got -1\n"


def test_data_without_a_problem_are_replayed(tmp_path):
    rows = ["a,b,c", *(f"{n % 3},{n % 5},{n % 7}" for n in range(40))]
    (tmp_path / "my.csv").write_text("\n".join(rows))
    arguments = ["--data", tmp_path / "my.csv", "--policies", "igp_ucb,gp_ts", "--out", tmp_path / "out"]
    result = call("race", *arguments)
    assert "replay: 32 steps, 10 replicates" in result.output
    record = json.loads((tmp_path / "out" / "run.json").read_text())
    assert (record["problem"], record["arm_names"]) == ("replay", ["a", "b", "c"])


def test_identical_replicates_have_no_standard_error_and_the_reason_is_told(tmp_path):
    rows = ["a,b,c", *(f"{n % 3},{n % 5},{n % 7}" for n in range(40))]
    (tmp_path / "my.csv").write_text("\n".join(rows))
    arguments = ["--data", tmp_path / "my.csv", "--policies", "igp_ucb,random", "--out", tmp_path / "out"]
    result = call("race", *arguments)
    lines = {line.split("│")[1].strip(): line for line in result.output.splitlines() if line.startswith("│")}
    assert lines["igp_ucb"].split("│")[3].strip() == ""
    assert float(lines["random"].split("│")[3]) > 0
    assert "no standard error of igp_ucb: all replicates are identical" in result.output
    results = json.loads((tmp_path / "out" / "run.json").read_text())["results"]
    assert results["igp_ucb"]["standard_error"] is None
    assert results["random"]["standard_error"] > 0


def test_the_record_holds_what_was_known_and_the_arms_pulled(tmp_path):
    arguments = ["--problem", "hills", "--policies", "pe_gp_ucb,random", "--horizon", 7, "--replicates", 2]
    call("race", *arguments, "--out", tmp_path)
    record = json.loads((tmp_path / "run.json").read_text())
    problem = make("hills", horizon=7, replicates=2)
    known = record["knowledge"]
    assert known["noise_variance"] == problem.knowledge.noise_variance
    assert known["kernel"] == type(problem.knowledge.kernel).__name__
    assert known["priors"] == f"list of {len(problem.knowledge.priors)}"
    assert "priors[0].kernel" in known
    history = run(build("pe_gp_ucb", problem, horizon=7, replicates=2), problem, 7)
    assert record["results"]["pe_gp_ucb"]["arms"] == history.arms.tolist()
    another = ["--problem", "gp", *arguments[2:], "--policies", "gp_ts", "--out", tmp_path / "gp"]
    call("race", *another)
    known = json.loads((tmp_path / "gp" / "run.json").read_text())["knowledge"]
    assert known["kernel.lengthscale"] == pytest.approx(0.2)
    assert len(known["rkhs_bound"]) == 2


def test_every_problem_and_policy_has_a_line():
    output = call("list").output
    words = " ".join(output.split())
    assert "switching Gaussian-process draws that are replaced" in words
    assert "random Uniformly random arms: the baseline of every race." in words
    begins = {line.split(maxsplit=1)[0]: line for line in output.splitlines() if line and line[0] != " "}
    assert begins.keys() >= problems.PROBLEMS.keys() | recipes.RECIPES.keys()
    assert all(" " in line for line in begins.values())


def test_one_name_is_described_with_its_options_and_their_defaults():
    policy = call("list", "sw_gp_ucb").output
    assert policy.startswith("SW-GP-UCB: IGP-UCB on the last ``window`` observations")
    rows = dict(line.split(maxsplit=1) for line in policy.partition("option ")[2].splitlines()[1:])
    assert rows["window"].strip() == "None"
    assert rows["delta"].strip() == "0.1"
    assert (
        "Uses of the problem: kernel, noise_variance, prior_mean, horizon, rkhs_bound, rkhs_variation_budget."
        in policy
    )
    assert "replicates" not in rows  # a flag of its own
    assert "excluded" in call("list", "hills").output.partition("option ")[2]


def test_an_unknown_name_is_one_line_and_exit_code_2():
    result = call("list", "nonsense", code=2)
    assert result.output.splitlines() == [
        "error: name must be one of those that `bandits-torch list` shows, got 'nonsense'"
    ]


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


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a;b\n1.234;987\n2.345;654\n", "(here: --option decimal=...)"),
        ("hour,a,b\n1,2,3\n2,3,1\n5,1,2\n1,2,2\n", "--option rewards=..."),
        ("a,b\n1,2\nn.a.,3\n", "--option rewards=..., --option missing=..."),
    ],
)
def test_what_decides_how_a_table_is_read_is_named_as_it_is_given_here(text, said, tmp_path):
    (tmp_path / "my.csv").write_text(text)
    race = ("race", "--policies", "random", "--out", tmp_path / "out", "--data")
    for command in (race, ("look",)):
        assert said in call(*command, tmp_path / "my.csv", code=2).stderr


def test_what_decides_how_a_log_is_read_is_named_as_it_is_given_here(tmp_path):
    (tmp_path / "log.csv").write_text("time,a,b,c\n1,x,y,2\n2,y,x,3\n")
    for command in (("value",), ("look", "--option", "reward=c")):
        assert "(here: --option arm=...)" in call(*command, tmp_path / "log.csv", code=2).stderr


def test_a_reader_who_stops_reading_is_no_error():
    """As in ``bandits-torch list | head``."""
    command = [sys.executable, "-m", "bandits_torch", "list"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.close()
        said = process.stderr.read()
    assert (process.returncode, said) == (1, "")
