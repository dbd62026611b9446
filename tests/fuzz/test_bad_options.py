"""The command line answers anything with one line and exit code 2, or runs; it never shows a traceback."""

from __future__ import annotations

import hypothesis.strategies as st
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings

from bandits_torch import cli
from tests.fuzz.command_lines import BAD_COMMAND_LINES, SMALL

words = st.one_of(
    st.text(max_size=10),
    st.floats().map(str),
    st.integers().map(str),
    st.sampled_from(["", "=", ".", "a=b=c", "[1", "{}"]),
)
keys = st.sampled_from(
    [
        "num_arms",
        "lengthscale",
        "noise_scale",
        "gp_ucb.delta",
        "problem.dim",
        "delta",
        "layout",
        "kernel",
        "gp_ucb.width",
        "x.y",
        "",
    ]
)
flags = st.sampled_from(
    ["--problem", "--policies", "--horizon", "--replicates", "--seed", "--device", "--data", "--threads"]
)
some = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def assert_answered(arguments, folder):
    result = CliRunner().invoke(cli.app, ["race", *SMALL, "--out", str(folder / "out"), *arguments])
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


def test_bad_command_lines_name_what_is_wrong(tmp_path):
    for arguments, name in BAD_COMMAND_LINES:
        result = CliRunner().invoke(cli.app, ["race", *SMALL, "--out", str(tmp_path / "out"), *arguments])
        assert result.exit_code == 2, arguments
        assert name in result.output, (arguments, result.output)
        assert not (tmp_path / "out" / "run.json").exists()
