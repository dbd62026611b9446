"""The page of the race of Ray Tune's schedulers."""

import pandas as pd
from typer.testing import CliRunner

from benchmarks import options
from benchmarks.ray import __main__ as command
from benchmarks.ray import page
from benchmarks.ray.page import write_page


def table(differences, slowest):
    """Ray's PB2 scores the seed, ours so much more."""
    rows = []
    for seed, more in enumerate(differences):
        for name, score, ms in (("ours", seed + more, slowest), ("Ray's PB2", seed, 1000.0)):
            rows.append(
                {"scheduler": name, "seed": seed, "last": score, "best": score, "ms": 5.0, "ms_max": ms}
            )
    return pd.DataFrame(rows)


def test_ahead_and_behind_are_by_two_standard_errors_on_the_same_seeds(tmp_path):
    """Scores spread by seeds far more than differences do; of 1 and 3 two standard errors are 2, the mean itself."""
    table([1.0, 1.2], 7.0).to_csv(tmp_path / "triangle.csv", index=False)
    table([-1.0, -1.2], 30.0).to_csv(tmp_path / "digits-4.csv", index=False)
    table([1.0, 3.0], 8.0).to_csv(tmp_path / "digits-8.csv", index=False)
    text = write_page(tmp_path).read_text(encoding="utf-8")
    assert "* triangle: +1.1 ± 0.2 on 2 seeds: ahead." in text
    assert "* digits-4: -1.1 ± 0.2 on 2 seeds: behind." in text
    assert "* digits-8: +2 ± 2 on 2 seeds: within two standard errors." in text
    words = " ".join(text.split())
    assert (
        "ahead of Ray's in 1 of 3 races, beyond two standard errors, and behind in 1; it is ahead in all"
        in words
    )
    assert "in all races of 1 of the 2 trainings." in words
    assert "the slowest of all 30 ms" in text


def test_a_second_set_of_seeds_is_a_race_of_its_own_and_decides_alone(tmp_path):
    first, second = table([1.0, 3.0], 8.0), table([1.0, 1.2], 7.0)
    second["seed"] += 1000
    pd.concat([first, second]).to_csv(tmp_path / "cartpole.csv", index=False)
    text = write_page(tmp_path).read_text(encoding="utf-8")
    assert "* cartpole: +2 ± 2 on 2 seeds: within two standard errors." in text
    assert "* cartpole-again: +1.1 ± 0.2 on 2 seeds: ahead." in text
    assert "ahead in all races of 1 of the 1 trainings." in " ".join(text.split())


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
