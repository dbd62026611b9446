"""The code of README and of the documentation's pages runs, and the pages find what they point at."""

import importlib.util
import inspect
import os
import pkgutil
import re
import shlex
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bandits_torch
from bandits_torch import recipes
from bandits_torch.experiments.comparison import FEWEST
from bandits_torch.experiments.sweep import SHORTEST
from bandits_torch.problems import PROBLEMS
from tests.cli.shell import call
from tests.reference.forked import Forked

ROOT = Path(__file__).parents[1]
DOCS = sorted((ROOT / "docs").glob("*.md"))
TOOLS = {"ax", "optuna", "ray", "xopt"}  # pages whose code needs the package of that name
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in DOCS}
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(text, *languages):
    return [
        body
        for language, body in re.findall(r"^```(\w+)\n(.*?)^```", text, re.S | re.M)
        if language in languages
    ]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("page", [page for page, text in PAGES.items() if blocks(text, "python")])
def test_python_blocks_of_a_page_run_in_order_as_one_session(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some write files
    if page in TOOLS:
        pytest.importorskip(page, reason=f'not installed: pip install ".[{page}]"')
        warnings.simplefilter("ignore")  # the tool's and its dependencies' own
    namespace = {}
    for block in blocks(PAGES[page], "python"):
        exec(compile(block, f"{page}.md", "exec"), namespace)


def test_python_blocks_of_the_readme_run_but_for_at_most_60_steps(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written = blocks(README, "python")
    assert len(written) >= 3
    assert written[0].count("horizon=1000") == 3
    written[0] = written[0].replace("horizon=1000", "horizon=60")
    namespace = {}
    for block in written:
        exec(compile(block, "README.md", "exec"), namespace)
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed] == ["auto", "sw_gp_ucb", "tv_gp_ucb", "et_gp_ucb"]


def test_install_and_try_is_exactly_two_lines():
    (block,) = blocks(README.split("## Two commands")[1].split("\n## ")[0], "sh")
    assert len(block.splitlines()) == 2


def test_the_skeletons_of_contributing_run(tmp_path):
    """In a process of their own: they register names."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    code = "\n".join(blocks(text, "python"))
    run = Forked(cwd=tmp_path, act=lambda: exec(code, {"__name__": "__main__"})).wait()
    assert run.returncode == 0, run.stderr
    assert re.fullmatch(r"halving: regret [\d.]+\nfading: regret [\d.]+\n", run.stdout)


def test_contributing_names_what_there_is():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    modules, paths = re.findall(r"python -m ([\w.]+)", text), re.findall(r"\b(?:tests|docs)/[\w./]*\w", text)
    assert len(modules) >= 6
    assert len(paths) >= 6
    assert [name for name in modules if importlib.util.find_spec(name) is None] == []
    assert [path for path in paths if not (ROOT / path).exists() and path != "docs/_build/html"] == []


def test_the_table_of_the_page_on_csv_files_is_long_enough_for_advice(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(blocks(PAGES["csv_to_service"], "python")[0], "csv_to_service.md", "exec"), {})
    played = 0.8 * len(pd.read_csv("my.csv"))
    assert played >= FEWEST * SHORTEST


COMMANDS = {
    line.partition("  #")[0].strip()
    for text in [*PAGES.values(), README]
    for block in blocks(text, "sh")
    for line in block.replace("\\\n", " ").splitlines()
    if line.startswith("bandits-torch ")
}


PAGES_DRAWN = {"bandits-torch race", "bandits-torch race --data my.csv"} & COMMANDS


@pytest.mark.sampled(2)
@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_commands_run_as_they_are_written_but_for_at_most_60_steps(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 4)).cumsum(0), columns=list("abcd"))
    for name in re.findall(r"\S+\.csv", command):
        table.to_csv(tmp_path / name, index=False)
    arguments = shlex.split(command)[1:]
    if arguments[0] == "rerun":
        call("race", "--policies", "random,gp_ts", "--horizon", "12", "--replicates", "2")
    if arguments[0] in ("ask", "tell", "show") and "--arms" not in arguments:
        call("ask", arguments[1], "--arms", "north,east,south")
    if arguments[0] == "race":
        arguments = [*arguments, "--horizon", "12", "--replicates", "2"]  # the last of each counts
    if command not in PAGES_DRAWN:  # to draw them takes longer than the rest
        monkeypatch.setattr("bandits_torch.cli.play.page", lambda *given: "<html></html>")
    assert call(*arguments).output
    assert len(PAGES_DRAWN) == 2


def test_no_block_is_left_out():
    """Every block is in a language that is run here, by .ci/run ('Two commands'), or is no code."""
    known = {"python", "sh", "text", "toctree", "glossary"}
    for text in [README, *PAGES.values()]:
        assert set(re.findall(r"^```\{?(\w*)\}?\n(?=.)", text, re.M)) - {""} <= known
        for block in blocks(text, "sh"):
            setup = block in README.split("## Two commands")[1].split("\n## ")[0]
            lines = block.replace("\\\n", " ").splitlines()
            assert setup or all(
                line.startswith(("bandits-torch ", "sphinx-build ", "python -m ")) for line in lines
            )


EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
    "optional-dependencies"
]


def test_extras_are_installed_from_a_checkout_as_the_package_is():
    """No package index knows bandits_torch, so a name to install it by would find nothing or somebody else's."""
    install = re.search(r"\.venv/bin/pip install (?:-q )?(-c constraints-cpu.txt) \. ", README)
    for page in TOOLS:
        assert f'`.venv/bin/pip install {install[1]} ".[{page}]"`' in PAGES[page]
    rooms = ("bandits_torch", "benchmarks", "notebooks", "tests")
    written = [
        path for room in rooms for path in (ROOT / room).rglob("*") if path.suffix in {".md", ".py", ".ipynb"}
    ]
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS, *written]:
        text = path.read_text(encoding="utf-8")
        assert not re.findall(r"(?:install|not installed:) [\"'`]*bandits_torch\b.*", text), path
        assert set(re.findall(r"install[^`\n]* [\"']?\.\[(\w+)\]", text)) <= set(EXTRAS), path


def test_the_version_is_the_one_that_the_changelog_begins_with_and_the_citation_names():
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    cited = re.search(r"^version: (\S+)", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.M)
    assert bandits_torch.__version__ == newest[1] == cited[1]


def test_which_algorithm_names_recipes_that_there_are_and_leads_to_every_kind():
    named = set(re.findall(r"`([a-z_]+)`", PAGES["which_algorithm"]))
    assert len(named & set(recipes.RECIPES)) >= 12
    looks_like_a_recipe = {name for name in named if re.search(r"_ucb$|_ts$|opkb|opnn|^b?bkb$", name)}
    assert looks_like_a_recipe <= set(recipes.RECIPES)


@pytest.mark.parametrize(("title", "names"), [("Recipes", recipes.RECIPES), ("Problems", PROBLEMS)])
def test_the_catalogue_names_every_recipe_and_problem_once(title, names):
    section = PAGES["catalogue"].split(f"## {title}\n")[1].split("\n## ")[0]
    table = "".join(line for line in section.splitlines() if line.startswith("|"))
    listed = [name for group in re.findall(r"`(.*?)`", table) for name in group.split()]
    assert sorted(listed) == sorted(names)


def test_every_page_is_in_the_table_of_contents():
    listed = PAGES["index"].split()
    notebooks = {f"repository/notebooks/{path.stem}" for path in (ROOT / "notebooks").glob("*.ipynb")}
    project = {f"repository/{Path(page).stem}" for page in docs_module("repository").ROOT_PAGES}
    assert {page for page in PAGES if page != "index"} | notebooks | project <= set(listed)


def docs_module(name):
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        spec = importlib.util.spec_from_file_location(f"docs_{name}", ROOT / "docs" / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(ROOT / "docs"))
    return module


def test_every_public_name_gets_a_page_and_a_line_on_the_page_of_its_package(tmp_path):
    api = docs_module("api_pages")
    api.write(tmp_path)
    packages = [
        info.name for info in pkgutil.walk_packages(bandits_torch.__path__, "bandits_torch.") if info.ispkg
    ]
    for room in ["bandits_torch", *packages]:
        package = importlib.import_module(room)
        if not hasattr(package, "__all__"):
            continue  # its public names are those of the package above
        text = (tmp_path / f"{room}.rst").read_text()
        for name in package.__all__:
            if name != "__version__" and not inspect.ismodule(getattr(package, name)):
                (target,) = re.findall(rf":py:obj:`{name} <(.*?)>`", text)
                assert f":: {name}\n" in (tmp_path / f"{target}.rst").read_text()
    (tmp_path / "gone.rst").write_text("of a name that is no longer there")
    api.write(tmp_path)
    assert not (tmp_path / "gone.rst").exists()


@pytest.mark.slow
def test_the_reference_holds_the_integrations_whose_tools_are_not_installed(tmp_path):
    pytest.importorskip("sphinx", reason='not installed: pip install ".[docs]"')
    code = """import sys, api_pages, pathlib
from sphinx.ext.autodoc.mock import mock
with mock(api_pages.TOOLS):
    api_pages.write(pathlib.Path(sys.argv[1]))"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "docs"), str(ROOT)])}
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, env=environment)
    listed = (tmp_path / "index.rst").read_text()
    for tool in TOOLS:
        room = f"bandits_torch.integrations.{tool}"
        assert f":doc:`{room}`" in listed
        ((_, target),) = re.findall(r":py:obj:`(\w+) <(.*?)>`", (tmp_path / f"{room}.rst").read_text())
        assert ".. autoclass:: " in (tmp_path / f"{target}.rst").read_text()


def test_docstrings_lose_no_word_on_their_way_to_restructured_text():
    docstrings = docs_module("docstrings")
    before = [
        "k(t, t') = (1 - eps)^{|t - t'|/2} for (*batch, N) and x_ but ``*literal*``.",
        "",
        "    mean = a * b",
        "",
        "Args:",
        "    a: first |a|",
        "* item",
    ]
    lines = list(before)
    docstrings.to_restructured_text(None, None, None, None, None, lines)
    assert lines == [
        r"k(t, t') = (1 - eps)^{\|t - t'\|/2} for (\*batch, N) and x\_ but ``*literal*``.",
        "",
        "::",
        "",
        "    mean = a * b",
        "",
        "Args:",
        r"    a: first \|a\|",
        "* item",
    ]


def test_links_of_every_page_point_at_what_there_is():
    repository = docs_module("repository")
    pages = {page: (ROOT / "docs", text) for page, text in PAGES.items()}
    for page in ("README.md", *repository.ROOT_PAGES):
        pages[page] = (ROOT, (ROOT / page).read_text(encoding="utf-8"))
    found = 0
    for page, (folder, text) in pages.items():
        for target in re.findall(r"\]\((?!https?:)([^)#:\s]+)", text):
            found += 1
            copied = target.startswith("repository/")
            where = ROOT / target.removeprefix("repository/") if copied else folder / target
            assert where.is_file(), f"{page}: {target}"
    assert found >= 100
