"""Pages of results are what their programs write from the tables that are kept, and documents print what is there."""

import importlib
import re
import shutil

import pandas as pd
import pytest
from PIL import Image

from benchmarks import published
from benchmarks.leaderboard import running, settings
from benchmarks.level import __main__ as level
from benchmarks.parallel import race as parallel
from benchmarks.widths import races

# A page, and what writes it; that of the leaderboard is tested beside its own.
PAGES = {
    "auto/results/ASKED.md": "auto.asked:write_page",
    "auto/results/DAYS.md": "auto.days:write_page",
    "auto/results/RESULTS.md": "auto.__main__:write_page",
    "auto/results/WEEKS.md": "auto.weeks:write_page",
    "bernoulli/results/RESULTS.md": "bernoulli.__main__:write_page",
    "bernoulli/results/LOG_ODDS.md": "bernoulli.log_odds:write_page",
    "contexts/results/RESULTS.md": "contexts.__main__:write_page",
    "continuous/results/RESULTS.md": "continuous.page:write_page",
    "continuous/results/CLOCK.md": "continuous.clock:write_page",
    "continuous/results/TEMPERATURE.md": "continuous.temperature:write_page",
    "control/results/RESULTS.md": "control.__main__:write_page",
    "cycles/results/RESULTS.md": "cycles.__main__:write_page",
    "diagnosis/results/RECORDS.md": "diagnosis.records:write_page",
    "diagnosis/results/RESULTS.md": "diagnosis.__main__:write_page",
    "elsewhere/results/RESULTS.md": "elsewhere.__main__:write_page",
    "level/results/RESULTS.md": "level.__main__:write_page",
    "logs/results/RESULTS.md": "logs.__main__:write_page",
    "moves/results/RESULTS.md": "moves.__main__:write_page",
    "papers/results/calandriello/RESULTS.md": "papers._calandriello_page:write",
    "papers/results/chowdhury/RESULTS.md": "papers._chowdhury_page:write",
    "papers/results/hong/RESULTS.md": "papers._hong_page:write",
    "papers/results/zhou/RESULTS.md": "papers._zhou_page:write",
    "papers/results/ziomek/RESULTS.md": "papers._ziomek_page:write",
    "parallel/results/RESULTS.md": "parallel.__main__:write_page",
    "ray/results/RESULTS.md": "ray.page:write_page",
    "safety/results/RESULTS.md": "safety.__main__:write_page",
    "safety/results/POINTS.md": "safety.__main__:write_points",
    "speed/RESULTS.md": "speed.page:write_page",
    "widths/results/RESULTS.md": "widths.__main__:write_page",
    "xopt/results/RESULTS.md": "xopt.page:write_page",
}
PLAY, WRITE = "run python -m benchmarks.published", "run python -m benchmarks.published --kept"
SEEDS = r"\d+ (seed|replicate)s? \(\d"
WITHOUT_SEEDS = ("control", "cycles", "safety", "speed", "diagnosis/results/RECORDS", "papers")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_its_program_writes_and_says_how_many_seeds_and_which(name, tmp_path):
    page, (module, function) = published.HERE / name, PAGES[name].split(":")
    copy = shutil.copytree(page.parent, tmp_path / "results")
    getattr(importlib.import_module(f"benchmarks.{module}"), function)(copy)
    text = (copy / page.name).read_text(encoding="utf-8")
    assert text == page.read_text(encoding="utf-8"), f"run python -m benchmarks.{module.split('.')[0]} --page"
    # Runs of cycles are stretches of records, draws of control and safety and what speed plays are of one seed, real
    # records of none, and a paper's are replicates.
    assert name.startswith(WITHOUT_SEEDS) or re.search(SEEDS, text)


@pytest.mark.parametrize(
    "printed", published.PRINTED, ids=lambda printed: f"{printed.document}, {printed.text[:40]}"
)
def test_a_document_prints_what_is_kept(printed):
    found = printed.found((published.ROOT / printed.document).read_text(encoding="utf-8"))
    assert found == [" ".join(figure.split()) for figure in printed.figures()], WRITE


def test_the_picture_of_readme_shows_what_is_kept():
    assert Image.open(published.PICTURE).text["Description"] == published.shown(), PLAY


def cells():
    """Every policy of every race but for that on a file, which is played whole; the short form takes some of those that
    play in a second."""
    for command in (published.RACE, *published.RACES[2:]):
        for policy in published.kept()[command]["policies"]:
            name = f"{command.split()[3] if command != published.RACE else 'README'}, {policy}"
            mark = pytest.mark.slow if policy == "auto" else pytest.mark.sampled(8)
            yield pytest.param(command, policy, marks=mark, id=name)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("command", "policy"),
    [pytest.param(published.RACE, None, marks=pytest.mark.slow), (published.CSV, None), *cells()],
)
def test_a_command_plays_what_is_kept(command, policy, tmp_path):
    """To a thousandth or a twentieth of the standard error: another processor rounds otherwise, and of arms that are
    nearly alike a policy may then pull another, in a few of the runs."""
    kept, played = published.kept()[command], published.play(command, tmp_path, policy)
    assert list(played["policies"]) == ([policy] if policy else list(kept["policies"]))
    for name, figures in played["policies"].items():
        mean, *errors = kept["policies"][name]
        assert figures[0] == pytest.approx(mean, rel=1e-3, abs=0.05 * sum(errors)), f"{name}: {PLAY}"
        assert figures[1:] == pytest.approx(errors, rel=0.02), f"{name}: {PLAY}"
    assert played["random"] == pytest.approx(kept["random"], rel=1e-3)
    assert policy or played["advice"] == kept["advice"], PLAY


def ranked(environment, policy, replicates=settings.REPLICATES):
    """Regret of the first replicates of a cell of the leaderboard, kept and played."""
    (cell,) = running.cells([environment], [policy], None, settings.HORIZON, replicates)
    totals = running.Tables(published.HERE / "leaderboard" / "results").totals
    of_cell = totals[(totals["environment"] == environment) & (totals["policy"] == policy)]
    return of_cell["regret"].iloc[:replicates], cell.run().regret.sum(-1)


def of_widths(part, problem, policy):
    """The same of a cell of the races of widths."""
    problems, policies = races.PARTS[part]
    table = pd.read_csv(published.HERE / "widths" / "results" / f"{part}.csv")
    of_cell = table[(table["problem"] == problem) & (table["policy"] == policy)]
    one = {problem: problems()[problem]}, {policy: policies[policy]}
    (played,) = races.totals(*one, int(of_cell["steps"].iloc[0]), len(of_cell))
    return of_cell["regret"], played["regret"]


def at_once(problem, policy, mode):
    """The same of a cell of the races with questions open."""
    table = pd.read_csv(published.HERE / "parallel" / "results" / f"arms-{problem}.csv")
    of_cell = table[(table["policy"] == policy) & (table["mode"] == mode)]
    size = parallel.Size(400, len(of_cell))
    made = parallel.problem_of(problem, "arms", size)
    build = parallel.policy_of(policy, parallel.POLICIES[problem][policy], made, "arms", size)
    return of_cell["regret"], parallel.play(build, made, size, *parallel.MODES[mode])[0]


def under_a_level(case, policy, replicates):
    """The same of the first replicates of a case of a shared level."""
    table = pd.read_csv(published.HERE / "level" / "results" / "level.csv")
    of_cell = table[(table["case"] == case) & (table["policy"] == policy)]
    return of_cell["regret"].iloc[:replicates], level.play(case, policy, level.SEED, replicates)["regret"]


@pytest.mark.parametrize(
    ("play", "cell"),
    [
        (under_a_level, ("six pieces", "sliding_window_ucb", 3)),
        pytest.param(under_a_level, ("two waves", level.SHARED, 2), marks=pytest.mark.slow),
        (ranked, ("one-switch", "sw_gp_ucb")),
        (ranked, ("cosine", "et_gp_ucb w=2")),
        (ranked, ("stationary", "auto", 2)),
        (of_widths, ("drift", "one-switch", "r_gp_ucb w=2")),
        (of_widths, ("length_scales", "se, .05", "mle_gp_ucb")),
        (at_once, ("switching", "sw_gp_ucb", "one at a time")),
    ],
    ids=lambda value: ", ".join(map(str, value)) if isinstance(value, tuple) else value.__name__,
)
def test_a_cell_of_a_long_table_plays_what_is_kept(play, cell):
    """Their other cells take hours; no replicate of these is one that another processor would play otherwise."""
    kept, played = play(*cell)
    assert list(played) == pytest.approx(list(kept), rel=1e-3)
