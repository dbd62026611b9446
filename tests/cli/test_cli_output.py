"""What the command line says round its work: warnings in one line, and how a table's doubts are decided here."""

import warnings

import pytest
from click.testing import CliRunner

from bandits_torch import cli
from bandits_torch.cli.output import one_line_errors


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
    arguments = [
        "race",
        "--data",
        str(tmp_path / "my.csv"),
        "--policies",
        "random",
        "--out",
        str(tmp_path / "out"),
    ]
    done = CliRunner().invoke(cli.app, arguments)
    assert done.exit_code == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
