"""Write a page for every public name (those in an ``__all__``), and one for every package that lists its names.

A name that several packages export is documented in the deepest of them and linked from the others.
"""

import importlib
import inspect
import pkgutil
from pathlib import Path
from types import ModuleType

import docstrings

import bandits_torch
from bandits_torch import recipes
from bandits_torch.models import OnlineModel

_KINDS = {
    "Classes": inspect.isclass,
    "Functions": inspect.isfunction,
    "Tables": lambda value: not callable(value),
}
TOOLS = ("ax", "gest_api", "numba", "optuna", "pydantic", "ray", "xopt")  # what extras install


def write(folder: Path) -> None:
    """Write the pages that have changed; remove those of names that are gone."""
    rooms = public_names()
    shallow_first = sorted(rooms, key=lambda room: room.count("."))
    home = {id(value): f"{room}.{name}" for room in shallow_first for name, value in rooms[room].items()}
    pages = {"index": _index(rooms)}
    for room, members in rooms.items():
        links = {name: home[id(value)] for name, value in members.items()}
        pages[room] = _room(room, members, links)
        here = {name: link for name, link in links.items() if link == f"{room}.{name}"}
        pages |= {link: _page(link, members[name]) for name, link in here.items()}
    folder.mkdir(exist_ok=True)
    for name, text in pages.items():
        path = folder / f"{name}.rst"
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
    for path in folder.glob("*.rst"):
        if path.stem not in pages:
            path.unlink()


def public_names() -> dict[str, dict[str, object]]:
    """Every module with an ``__all__`` and the values of its names: functions, classes and tables.

    An integration is left out where its tool is missing; ``conf.py`` has Sphinx stand in for it.
    """
    packages = ["bandits_torch"]
    packages += [info.name for info in pkgutil.walk_packages(bandits_torch.__path__, "bandits_torch.")]
    modules = [_imported(name) for name in packages if not name.endswith("__main__")]
    return {module.__name__: _members(module) for module in modules if hasattr(module, "__all__")}


def _imported(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in TOOLS:
            return None
        raise


def _members(module) -> dict[str, object]:
    members = {name: getattr(module, name) for name in module.__all__ if not name.startswith("__")}
    return {name: value for name, value in members.items() if not inspect.ismodule(value)}


def _index(rooms) -> str:
    entries = [(f":doc:`{room}`", _first_line(importlib.import_module(room))) for room in rooms]
    text = "Every public name, by the package that holds it."
    return "\n".join([_title("Reference"), text, "", *_table(entries), *_toctree(rooms)])


def _room(room: str, members, links) -> str:
    here = [link for name, link in links.items() if link == f"{room}.{name}"]
    lines = [_title(room), f".. automodule:: {room}", "   :no-members:", ""]
    for kind, is_kind in _KINDS.items():
        names = [name for name, value in members.items() if is_kind(value)]
        entries = [(f":py:obj:`{name} <{links[name]}>`", _summary(members[name])) for name in names]
        lines += [f".. rubric:: {kind}", "", *_table(entries)] if entries else []
    lines += _recipes() if room == "bandits_torch.recipes" else []
    return "\n".join(lines + _toctree(here, f"{room}."))


def _recipes() -> list[str]:
    """The recipes with their sources and what each uses of a problem, as registered."""
    about = [recipes.registered(name) for name in recipes.RECIPES]
    entries = [
        (f"``{one.name}``", f"{one.source or 'no paper'}; uses: {', '.join(one.uses) or 'nothing'}")
        for one in about
    ]
    return [".. rubric:: Sources, and what each uses of a problem", "", *_table(entries)]


def _page(link: str, value: object) -> str:
    room, _, name = link.rpartition(".")
    head = [_title(name), f".. currentmodule:: {room}", ""]
    if inspect.isclass(value):
        # What all models share is documented on the page of OnlineModel alone.
        inherited = (
            ["   :inherited-members: Module, Model, OnlineModel"] if issubclass(value, OnlineModel) else []
        )
        return "\n".join(
            [*head, f".. autoclass:: {name}", "   :members:", *inherited, "   :show-inheritance:", ""]
        )
    if inspect.isfunction(value):
        return "\n".join([*head, f".. autofunction:: {name}", ""])
    return "\n".join([*head, f".. py:data:: {name}", "", f"   {_summary(value)}", ""])


def _summary(value: object) -> str:
    """What a name is, in a line; of a table, which has no docstring, its items."""
    if callable(value):
        return _first_line(value)
    return f"A {type(value).__name__} of {', '.join(f'``{item}``' for item in value)}."


def _first_line(thing: object) -> str:
    """The first sentence: a line, or the whole paragraph if it runs on."""
    paragraph = (inspect.getdoc(thing) or "").partition("\n\n")[0].splitlines() or [""]
    ends = paragraph[0].endswith((".", ":", ")"))
    return docstrings.escaped_line(paragraph[0] if ends else " ".join(paragraph))


def _table(entries) -> list[str]:
    rows = [line for name, text in entries for line in (f"   * - {name}", f"     - {text}")]
    return [".. list-table::", "   :widths: 35 65", "", *rows, ""]


def _toctree(names, prefix: str = "bandits_torch.") -> list[str]:
    titles = [f"   {name.removeprefix(prefix)} <{name}>" for name in names]
    return [".. toctree::", "   :hidden:", "", *titles, ""]


def _title(text: str) -> str:
    return f"{text}\n{'=' * len(text)}\n"
