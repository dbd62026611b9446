"""key=value settings: what they mean and who gets them."""

import math
import shlex

import pytest

from bandits_torch.cli.asked import parse_value, send_options
from bandits_torch.cli.commands import app
from tests.cli.shell import call

ACCEPTED = {
    "problem": ["num_arms", "lengthscale", "delta"],
    "sw_gp_ucb": ["window", "delta", "b"],
    "r_gp_ucb": ["interval", "b"],
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-3", -3),
        ("3.0", 3.0),
        ("1e-3", 0.001),
        (".5", 0.5),
        ("inf", math.inf),
        ("true", True),
        ("False", False),
        ("none", None),
        ("null", None),
        ("[0.1, 20]", [0.1, 20]),
        ('{"a": 1}', {"a": 1}),
        ('"3"', "3"),
        ("matern", "matern"),
        ("a=b", "a=b"),
        ("", ""),
    ],
)
def test_values_are_read_as_what_they_look_like(text, value):
    parsed = parse_value(text)
    assert parsed == value
    assert type(parsed) is type(value)


def test_settings_go_to_those_who_accept_them():
    sent = send_options(
        ["num_arms=7", "window=20", "b=2", "r_gp_ucb.interval=9", "problem.delta=1"], ACCEPTED
    )
    assert sent == {
        "problem": {"num_arms": 7, "delta": 1},
        "sw_gp_ucb": {"window": 20, "b": 2},
        "r_gp_ucb": {"b": 2, "interval": 9},
    }


@pytest.mark.parametrize("order", [1, -1])
def test_a_named_setting_goes_before_a_general_one(order):
    sent = send_options(["b=2", "r_gp_ucb.b=3"][::order], ACCEPTED)
    assert (sent["sw_gp_ucb"], sent["r_gp_ucb"]) == ({"b": 2}, {"b": 3})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["window=1", "window=2"], "'window' must be given once"),
        (["windw=1"], r"did you mean window.*sw_gp_ucb's options \(window, delta, b\)"),
        (["delta=0.1"], r"must say for whom: problem\.delta or sw_gp_ucb\.delta"),
        (["window=[1"], "starts as JSON and must be that"),
    ],
)
def test_settings_that_mean_nothing_are_refused(options, message):
    """Others: tests/fuzz/test_bad_options.py."""
    with pytest.raises(ValueError, match=message):
        send_options(options, ACCEPTED)


def test_the_examples_of_help_are_accepted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("bandits_torch.cli.play.play", lambda *asked, **flags: None)
    (tmp_path / "my.csv").touch()
    examples = [
        line.strip()
        for command in app.commands.values()
        for line in (command.help or "").splitlines()
        if line.strip().startswith("bandits-torch ")
    ]
    assert len(examples) >= 6
    for example in examples:
        call(*shlex.split(example)[1:])
