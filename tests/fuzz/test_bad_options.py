"""The command line answers anything with one line and exit code 2, or runs; it never shows a traceback."""

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from tests.cli.shell import call

SMALL = ["--problem", "gp", "--option", "problem.num_arms=5", "--policies", "gp_ucb", "--horizon", "3"]
# Command lines that must be refused, and words of the answer.
BAD = [
    *((["--horizon", bad], "horizon") for bad in ("0", "-1", "1.5", "ten", "nan", "")),
    *((["--replicates", bad], "replicates") for bad in ("0", "-1", "1.5", "x")),
    *((["--seed", bad], "seed") for bad in ("-1", "0.5", "x")),
    *((["--threads", bad], "threads") for bad in ("0", "-1", "x")),
    *((["--device", bad], "device") for bad in ("gpu", "", "cpu:x", "cuda:99")),
    *(
        (["--policies", bad], "policies must be different names")
        for bad in ("", ",", "gp_ucb,,random", "gp_ucb,gp_ucb")
    ),
    (["--policies", "nonsense"], "policy must be a known name, got 'nonsense'"),
    *((["--problem", bad], "problem must be a known name") for bad in ("", "nonsense")),
    (["--problem", "swtiching"], "got 'swtiching': did you mean switching? there are gp, rkhs"),
    (["--problem", "GP"], "got 'GP': did you mean gp?"),
    (["--data", "no/such/file.csv"], "Path 'no/such/file.csv' does not exist"),
    (["--data", "."], "data must be None for problems that read no file (gp)"),
    *((["--option", bad], "option must be key=value") for bad in ("", "=", "x", "=3")),
    *((["--option", f"{bad}=1"], f"'{bad}' is not known here") for bad in ("nonsense", "seed", "windw")),
    (["--option", "gp_ucb.nonsense=1"], "'nonsense' is not one of gp_ucb's options (delta, width"),
    (["--option", "nobody.delta=1"], "must be for one of problem, gp_ucb, got 'nobody'"),
    (["--nonsense"], "No such option"),
    (["left over"], "left over"),
    *(
        (["--option", f"gp_ucb.delta={bad}"], "delta")
        for bad in ("0", "1", "-1", "nan", "x", "none", "[1]", "true")
    ),
    *((["--option", f"gp_ucb.width={bad}"], "gp_ucb(width=") for bad in ("-1", "nan", "x", "[1]", "true")),
    *((["--option", f"gp_ucb.noise_variance={bad}"], "noise_variance") for bad in ("0", "-1", "nan", "x")),
    *((["--option", f"gp_ucb.form={bad}"], "form") for bad in ("fast", "1")),
    *((["--option", f"lengthscale={bad}"], "lengthscale") for bad in ("0", "-1", "nan", "inf", "x")),
    *((["--option", f"problem.noise_scale={bad}"], "noise_scale") for bad in ("-1", "nan", "x")),
    *((["--option", f"problem.layout={bad}"], "layout") for bad in ("ring", "1")),
    *((["--option", f"problem.dim={bad}"], "dim") for bad in ("0", "-1", "1.5", "x")),
]

words = st.one_of(
    st.text(max_size=10),
    st.floats().map(str),
    st.integers().map(str),
    st.sampled_from(["", "=", ".", "a=b=c", "[1", "{}"]),
)
KEYS = ["num_arms", "lengthscale", "noise_scale", "gp_ucb.delta", "problem.dim", "delta", "layout", "kernel"]
keys = st.sampled_from([*KEYS, "gp_ucb.width", "x.y", ""])
flags = st.sampled_from(
    ["--problem", "--policies", "--horizon", "--replicates", "--seed", "--device", "--data", "--threads"]
)
some = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.fixture(autouse=True)
def _without_a_report(monkeypatch):
    """Drawing it would take most of the time, and the next race would not replace it unasked."""
    monkeypatch.setattr("bandits_torch.cli.play.page", lambda *given: "")
    monkeypatch.setattr("bandits_torch.cli.play.write_report", lambda *given, page: [])


def assert_answered(arguments, folder):
    result = call("race", *SMALL, "--replicates", "1", "--out", folder / "out", *arguments, code=None)
    assert result.exit_code in (0, 2), result.output
    assert "Traceback" not in result.output
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    if result.exit_code == 2:
        assert "rror" in result.output


@some
@given(st.lists(st.tuples(keys, words), max_size=2))
def test_any_option_is_answered(tmp_path, options):
    assert_answered([part for key, value in options for part in ("--option", f"{key}={value}")], tmp_path)


@some
@given(flags, words)
def test_any_flag_is_answered(tmp_path, flag, value):
    if value.lstrip("-+").isdigit() and len(value.lstrip("-+")) > 2:
        value = value[:2]  # a race of a million steps is no bad input
    assert_answered([f"{flag}={value}"], tmp_path)


def test_bad_command_lines_name_what_is_wrong_in_one_line_and_write_nothing(tmp_path):
    for arguments, words in BAD:
        result = call("race", *SMALL, "--replicates", "1", "--out", tmp_path / "out", *arguments, code=None)
        assert (result.exit_code, result.stdout) == (2, ""), arguments
        *usage, line = result.stderr.splitlines()
        assert words in line, (arguments, result.stderr)
        assert line.lower().startswith("error: ")
        assert not usage or usage[0].startswith("Usage: ")
        assert not (tmp_path / "out").exists()
