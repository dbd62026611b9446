"""The page of a race: nothing runs in it, nothing is loaded, names are shown as they are, and a browser shows it."""

import re
import shutil
import subprocess
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from matplotlib.colors import to_hex

from bandits_torch import History, recipes
from bandits_torch.experiments import Starts, advise, plot_regret, race, random_regret
from bandits_torch.experiments.comparison import Comparison
from bandits_torch.experiments.earned import earned
from bandits_torch.experiments.page import page
from bandits_torch.problems import Replay, RewardTable
from tests.experiments.page_parts import Page

T = 60
NASTY = (
    "<script>document.title='ran'</script>",
    '"><img src=x onerror=alert(1)>',
    "$\\bad$",
    "&amp;",
    "größer ☃",
)
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no chromium here: apt-get install chromium")


@pytest.fixture(scope="module")
def shown():
    """A race over arms of nasty names, and its page."""
    g = torch.Generator().manual_seed(0)
    steps = torch.randn(2, T + 20, len(NASTY), generator=g, dtype=torch.float64)
    rewards = 0.3 * steps[0].cumsum(0) + 0.3 * steps[1]
    problem = Replay(RewardTable(rewards, arm_names=NASTY, notes=("<b>note</b> & more",)), warm_up=0.25)
    horizon = problem.horizon
    policies = {
        name: recipes.build(name, problem, replicates=2, horizon=horizon)
        for name in ("auto", "gp_ucb", "random")
    }
    histories = race(policies, problem, horizon)
    for name, history in histories.items():
        history.meta["policy"] = name
    starts = Starts(
        {"auto": torch.rand(6, generator=g), "gp_ucb": torch.rand(6, generator=g)}, torch.ones(6), 10
    )
    advice = replace(advise(starts.regret, starts.random), verdict="likely", taken="gp_ucb")
    compared = Comparison(["Take auto: <em>it</em> lost less.", "And more."], advice, starts)
    more = {"python": "print('<hello>')", "facts": {"seed": "<0>"}}
    random = random_regret(problem, horizon)
    return histories, page(histories, random, problem, "<i>past</i>.csv", compared, **more)


def test_no_name_becomes_an_element_and_nothing_is_loaded(shown):
    _, text = shown
    found = Page(text)
    allowed = {"html", "head", "meta", "title", "style", "body", "main", "header", "section", "details"}
    allowed |= {"summary", "h1", "h2", "p", "pre", "ul", "li", "span", "div"}
    allowed |= {"table", "thead", "tbody", "tr", "th", "td"}
    allowed |= {"figure", "figcaption", "dl", "dt", "dd", "svg", "g", "path", "use", "defs", "text", "tspan"}
    allowed |= {"clippath", "rect", "image"}
    assert {tag for tag, _ in found.tags} <= allowed
    policy = next(a["content"] for tag, a in found.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")
    for told in ("<i>past</i>.csv", "<em>it</em>", "print('<hello>')", "<b>note</b> & more", "<0>"):
        assert told in found.text


def test_it_says_what_was_read_played_and_believed(shown):
    histories, text = shown
    found = Page(text)
    headings = re.findall(r"<h2>(.*?)</h2>", text)
    assert headings == [
        "What was read",
        "What each policy lost",
        "How certain is the advice?",
        "What was pulled, and what was best",
        "What auto inferred about the change",
        "How it was made",
    ]
    assert re.search(r"gp_ucb(?:\s*<[^>]*>)+([\d.]+) %", text)
    assert f"{histories['gp_ucb'].mean_cumulative_regret:.4g}" in found.text
    assert len(re.findall("<svg", text)) == 2 * 5  # two of pulls; each for a screen and a phone
    assert "5 arms" in found.text


def test_pictures_take_their_colours_from_the_page_and_share_no_ids(shown):
    _, text = shown
    pictures = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert all("var(--ink)" in picture for picture in pictures)
    assert not re.search(r"#(0072b2|000000|dddddd)", "".join(pictures), re.IGNORECASE)
    ids = re.findall(r'\sid="([^"]*)"', "".join(pictures))
    assert len(ids) == len(set(ids)) > 20
    used = re.findall(r'(?:href="#|url\(#)([^")]*)', "".join(pictures))
    assert set(used) <= set(ids)


def colours_of(text, scheme=0):
    """The page's colours by name: of the light scheme, 0, or the dark one, 1."""
    return dict(re.findall(r"(--\w+): (#\w{6});", text.split(":root {")[1 + scheme].split("}")[0]))


def test_a_policy_has_one_colour_in_the_page_and_in_the_picture_beside_it(shown):
    """The picture shows the policy ``random``, too, which the page leaves to its expectation."""
    histories, text = shown
    several = {name: histories[name] for name in ("random", "gp_ucb", "auto")}
    random = torch.ones(1, T).double()
    lines = plot_regret(several, random=random).lines
    drawn = {line.get_label(): to_hex(line.get_color()) for line in lines}
    text = page(several, random, SimpleNamespace(dim=1, summary=list), "x")
    dots = dict(re.findall(r'class="dot" style="background:var\((--\w+)\)"></span>(\w+)<', text))
    assert {name: colours_of(text)[colour] for colour, name in dots.items()} == {
        name: drawn[name] for name in ("gp_ucb", "auto")
    }
    believed = re.findall("<svg.*?</svg>", text[text.index("inferred about the change") :], re.DOTALL)[0]
    own = next(colour for colour, name in dots.items() if name == "auto")
    assert f"stroke: var({own})" in believed
    assert set(re.findall(r"stroke: var\((--c\d)\)", believed)) == {own}
    assert colours_of(text, 1).keys() <= colours_of(text).keys()
    assert colours_of(text, 1)[own] != colours_of(text)[own]


def test_what_a_band_is_is_said(shown):
    histories, text = shown
    assert not re.search(r"[Bb]ands?\b", Page(text).text)  # identical replicates have none
    differ = cut(histories["auto"], 2)
    differ.expected_rewards[1] -= 0.1
    said = paged({"auto": differ, "gp_ucb": histories["gp_ucb"]})
    assert "Bands: two standard errors either way, of 2 replicates." in said
    assert "Lines: medians. Bands: from the least to the largest, of 2 replicates." in said


def paged(histories):
    """The text of a page without arms."""
    problem = SimpleNamespace(dim=1, summary=list)
    return Page(page(histories, torch.ones(1, T), problem, "x")).text


def cut(history, replicates, **trace):
    """The first replicates of a history, with other values of its trace."""
    first = slice(replicates)
    parts = [
        getattr(history, name)[first].clone() for name in ("arms", "rewards", "expected_rewards", "best")
    ]
    held = {name: values.reshape(-1, T)[first] for name, values in history.trace.items()} | trace
    return History(*parts, history.times, history.seconds, held, history.meta)


def test_what_was_thrown_away_is_not_said_to_count(shown):
    histories, _ = shown
    rates, resets = torch.full((1, T), 1e-6), torch.where(torch.arange(T) < 29, 0.0, 7.0).expand(1, T)
    kept = cut(histories["auto"], 1, effective_rate=rates, resets=0 * resets)
    assert "hardly anything changes: its first rewards still count." in paged({"auto": kept})
    spike = torch.where(torch.arange(T) == 30, 0.3, rates)
    assert "hardly anything changes.\n" in paged({"auto": cut(kept, 1, effective_rate=spike)}).replace(
        "From", "\nFrom"
    )
    thrown = paged({"auto": cut(kept, 1, resets=resets)})
    assert "still count" not in thrown
    assert (
        "hardly anything changes. Models that predicted poorly were restarted 7 times, the last at step 30;"
        in thrown
    )
    fast = paged({"auto": cut(kept, 1, effective_rate=0.1 + rates, resets=resets)})
    assert "have a correlation of 1/2. Models that predicted poorly were restarted 7 times" in fast


def test_a_page_of_points_without_advice_or_beliefs_stands(shown):
    from bandits_torch import make

    problem = make("dynamic-ackley", horizon=4)
    policies = {"random": recipes.build("random", problem, replicates=1, horizon=4)}
    histories = race(policies, problem, 4)
    text = page(histories, random_regret(problem, 4), problem, "dynamic-ackley")
    assert re.findall(r"<h2>(.*?)</h2>", text) == ["What each policy lost"]


def browse(path, *flags):
    """What a headless browser makes of a page."""
    common = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--virtual-time-budget=2000",
    ]
    profile = f"--user-data-dir={path.parent / 'profile'}"
    asked = [BROWSER, *common, profile, *flags, path.as_uri()]
    return subprocess.run(asked, capture_output=True, text=True, timeout=120, check=True)


@needs_browser
def test_a_browser_opens_it_runs_nothing_and_fits_a_phone(shown, tmp_path):
    """The page is put into a frame of a phone's width whose script, not the page's, measures it."""
    _, text = shown
    path = tmp_path / "report.html"
    path.write_text(text, encoding="utf-8")
    seen = browse(path, "--enable-logging=stderr", "--dump-dom")
    assert "<title>&lt;i&gt;past&lt;/i&gt;.csv: which policy earns most?</title>" in seen.stdout
    assert "Refused to" not in seen.stderr
    measured = text.replace("default-src 'none';", "default-src 'none'; script-src 'unsafe-inline';").replace(
        "</body>",
        "<script>const d = document.documentElement; document.body.dataset.size = "
        "[d.scrollWidth, innerWidth, d.scrollHeight, getComputedStyle(document.querySelector('.wide')).display,"
        "document.querySelector('.narrow svg').getBoundingClientRect().width].join(' ')</script></body>",
    )
    path.write_text(measured, encoding="utf-8")
    size = re.search(r'data-size="([^"]*)"', browse(path, "--window-size=500,900", "--dump-dom").stdout)[
        1
    ].split()
    width, window, height, wide, picture = size
    assert int(width) <= int(window) <= 500
    assert int(height) > 2000
    assert wide == "none"
    assert 300 < float(picture) <= int(window)


def test_where_rows_have_ties_the_best_arm_is_that_of_the_smoothed_table(monkeypatch):
    g = torch.Generator().manual_seed(1)
    clicks = (torch.rand(150, 4, generator=g) < torch.tensor([0.05, 0.05, 0.05, 0.6])).double()
    drawn = []
    monkeypatch.setattr(f"{page.__module__}.plot_pulls", lambda history, best, *_, **__: drawn.append(best))
    for rewards, said in (
        (clicks, "at the time by the smoothed table, because rows"),
        (clicks - 0.5, "most often"),
    ):
        problem = Replay(RewardTable(rewards), noise_fraction=0.5, forgetting_rate=0.1)
        histories = race(
            {"epsilon_greedy": recipes.build("epsilon_greedy", problem, replicates=1, horizon=60)},
            problem,
            60,
        )
        text = page(histories, random_regret(problem, 60), problem, "clicks.csv")
        assert f"the arm that was best {said}" in " ".join(text.split())
    of_clicks, of_numbers = drawn[0], drawn[-1]
    assert of_clicks.shape == of_numbers.shape == (1, 60)
    # In many rows no arm has a click: the first would count.
    assert float((of_clicks == 3).double().mean()) > 0.9
    assert float((of_numbers == 3).double().mean()) < 0.8


@needs_browser
def test_no_column_is_cut_on_a_screen(shown, tmp_path):
    histories, _ = shown
    arms = [f"banner {n} with a long name" for n in range(5)]
    rewards = torch.rand(T + 20, 5, generator=torch.Generator().manual_seed(2)).double()
    problem = Replay(RewardTable(rewards, arm_names=arms), noise_fraction=0.5, forgetting_rate=0.1)
    random = random_regret(problem, T)
    text = page(histories, random, problem, "my.csv", gained=earned(problem, histories, random))
    script = (
        "<script>document.body.dataset.cut = [...document.querySelectorAll('.scroll')]"
        ".map(d => d.scrollWidth - d.clientWidth).join(' ')</script></body>"
    )
    text = text.replace("default-src 'none';", "default-src 'none'; script-src 'unsafe-inline';")
    path = tmp_path / "report.html"
    path.write_text(text.replace("</body>", script), encoding="utf-8")
    seen = browse(path, "--window-size=1000,900", "--dump-dom").stdout
    assert re.search(r'data-cut="([^"]*)"', seen)[1].split() == ["0", "0"]
