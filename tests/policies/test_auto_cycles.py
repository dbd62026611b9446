"""``auto`` with cycles: what is found and told. Its slow twin: ``test_averaging``."""

import math

import numpy as np
import pytest
import torch

from bandits_torch import AskTell, make, recipes, run
from bandits_torch.problems.periods import fit_cycles
from tests.reference.stubs import TableProblem


def record(T=240, arms=5, period=24.0, seed=0, cycle=1.0):
    g = torch.Generator().manual_seed(seed)
    phase, t = torch.rand(arms, generator=g).double() * 6, torch.arange(T).double().unsqueeze(-1)
    day = torch.cos(2 * math.pi * t / period + phase) + 0.4 * torch.cos(4 * math.pi * t / period + 2 * phase)
    return 10 + cycle * day + 0.3 * torch.randn(T, arms, generator=g).double()


def test_the_fit_is_that_of_least_squares_and_finds_period_and_harmonics():
    rewards = record().numpy()
    fit = fit_cycles(rewards)
    assert (fit.periods, fit.harmonics) == ((24.0,), (2,))
    t = np.arange(-239.0, 1.0)
    waves = [wave(2 * np.pi * h * t / 24) for h in (1, 2) for wave in (np.cos, np.sin)]
    found, *_ = np.linalg.lstsq(np.stack([np.ones(240), *waves], 1), rewards, rcond=None)
    np.testing.assert_allclose(np.vstack([fit.levels, fit.profile]), found, atol=0.02)  # a ridge of one row
    holes = np.where(np.random.default_rng(0).random(rewards.shape) < 0.2, np.nan, rewards)
    again = fit_cycles(holes)
    assert again.periods == (24.0,)
    np.testing.assert_allclose(again.profile, fit.profile, atol=0.15)
    assert np.array_equal(np.isnan(again.residuals), np.isnan(holes))
    assert fit_cycles(record(cycle=0.0).numpy()) is None
    assert fit_cycles(rewards, periods=None) is None
    assert fit_cycles(rewards, t / 60, periods=[0.4, 2.8]).periods == (0.4, 2.8)
    assert fit_cycles(rewards, 1e9 + 3600 * t).periods[0] == pytest.approx(24 * 3600)
    for name, bad in (("periods", 0.0), ("periods", "day"), ("times", t[::-1])):
        with pytest.raises(ValueError, match=name):
            fit_cycles(rewards, **{name: bad})


def arms_of(policy, rewards):
    return run(policy, TableProblem(rewards.unsqueeze(0)), len(rewards)).arms


def test_without_a_cycle_in_the_history_the_choices_are_those_without_looking_for_one():
    rewards = record(cycle=0.0, T=150)
    policies = [recipes.auto(5, history=rewards[:100], **told) for told in ({}, {"cycles": None})]
    assert not policies[0].model.has_cycles
    assert torch.equal(*(arms_of(policy, rewards[100:]) for policy in policies))


def test_times_of_the_history_say_where_in_the_cycle_it_was():
    past = record()
    by_rows = recipes.auto(5, history=past)
    by_times = recipes.auto(5, history=past, history_times=7200.0 * torch.arange(-239, 1).double())
    for policy, hour in ((by_rows, 1.0), (by_times, 7200.0)):
        mean, _ = policy.marginals(18 * hour)
        torch.testing.assert_close(mean.argmax(-1), record(T=259)[258:].argmax(-1))


def test_a_replayed_table_tells_auto_the_cycles_of_its_past_rows(tmp_path):
    file = tmp_path / "table.csv"
    np.savetxt(file, record(T=300).numpy(), delimiter=",", header="a,b,c,d,e", comments="")
    tellings: list = [{}, {"cycles": None}, {"cycles": 12.0}]
    problems = [make("replay", data=str(file), warm_up=0.6, **told) for told in tellings]
    told, untold, half = (problem.knowledge.cycles for problem in problems)
    assert (told.periods, untold, half.periods) == ((24.0,), None, (12.0,))
    for problem in problems:
        policy = recipes.build("auto", problem, horizon=problem.horizon, replicates=1)
        assert policy.model.has_cycles == (problem.knowledge.cycles is not None)


def test_dates_have_days_and_weeks():
    live = AskTell.auto(["north", "south"], cycles=["day", "week"], time_unit="h")
    assert [part.periods for part in live.policy.model.parts if part.has_cycles] == [(24.0,), (168.0,)]
    for day in range(1, 4):
        question = live.ask(f"2026-03-0{day}T08:00")
        live.tell(question.id, 5.0)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("cycles", {"history": record(), "cycles": fit_cycles(record().numpy())}),
        ("cycles", {"kernel": torch.eye(5).double(), "cycles": fit_cycles(record(arms=4).numpy())}),
        ("history_times", {"history_times": torch.arange(5).double()}),
        ("history_times", {"history": record(), "history_times": torch.arange(5).double()}),
    ],
)
def test_what_does_not_fit_is_refused_by_name(name, told):
    with pytest.raises(ValueError, match=f"^{name}"):
        recipes.auto(5, **told)
    with pytest.raises(ValueError, match=r"^cycles must be .* more than 200 arms"):
        recipes.auto(201, kernel=torch.eye(201).double(), cycles=24.0)
