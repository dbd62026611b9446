"""Schedulers of Ray Tune are raced by name."""

from typer.testing import CliRunner

from benchmarks import options
from benchmarks.ray import __main__ as command
from benchmarks.ray import page


def test_schedulers_are_asked_for_by_name_and_a_name_that_is_not_there_is_refused(monkeypatch, tmp_path):
    played = []
    monkeypatch.setattr(command.pages, "results_folder", lambda *_, **__: tmp_path)
    monkeypatch.setattr(command, "_play", lambda name, schedulers, *_: played.append((name, schedulers)))
    run = options.command(command.main)
    assert CliRunner().invoke(run, ["--only", "triangle", "--schedulers", page.GIVEN_RATE]).exit_code == 0
    assert played == [("triangle", [page.GIVEN_RATE])]  # whose name has a comma
    refused = CliRunner().invoke(run, ["--schedulers", "nobody"])
    assert refused.exit_code == 2
    assert "nobody" in refused.output
