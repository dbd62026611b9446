"""Pictures within a page: SVG that takes its colours from the page, once for a screen and once for a phone."""

from __future__ import annotations

import io
import re
from collections.abc import Callable

import matplotlib as mpl
from matplotlib.figure import Figure

from bandits_torch.experiments.plots.style import COLOURS, GREY, GREY_ON_DARK, GRID, ON_DARK

_PAGE_COLOURS = {colour.lower(): f"var(--c{i})" for i, colour in enumerate(COLOURS[:-1])}
_PAGE_COLOURS |= {COLOURS[-1]: "var(--ink)", GREY: "var(--grey)", GRID.lower(): "var(--grid)"}
_DIGITS = re.compile(r"(\.\d\d)\d+")  # beyond a hundredth of a point, which no screen shows
_SCREEN, _PHONE = 7.6, 4.0  # inches


def page_colour(colour: str) -> str:
    """The page's name of a colour of the house."""
    return _PAGE_COLOURS[colour.lower()]


def palette(dark: bool = False) -> str:
    """The colours of the house as CSS defines variables, for a page of dark on light or of light on dark."""
    named = {f"c{i}": colour for i, colour in enumerate(ON_DARK if dark else COLOURS[:-1])}
    named["grey"] = GREY_ON_DARK if dark else GREY
    return " ".join(f"--{name}: {colour.lower()};" for name, colour in named.items())


def figure(name: str, draw: Callable[[Figure], None], height: float, caption: str) -> str:
    """HTML of a picture with a caption, which is HTML too.

    Args:
        name: of letters; no two pictures of a page may share it.
        draw: draws into an empty figure.
        height: in inches, on a screen and on a phone.
    """
    pictures = []
    for kind, width in (("wide", _SCREEN), ("narrow", _PHONE)):
        made = Figure(figsize=(width, height), layout="constrained")
        draw(made)
        pictures.append(f'<div class="{kind}">{svg(made, f"{name}-{kind}")}</div>')
    return f"<figure>{''.join(pictures)}<figcaption>{caption}</figcaption></figure>"


def svg(made: Figure, name: str) -> str:
    """A figure as an SVG element: text as text, the colours of the house as variables of the page."""
    file = io.StringIO()
    for ax in made.axes:
        ax.patch.set_visible(False)
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        made.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'<g id="[^"]*"', "<g", text)  # names of groups, the same in every figure
    text = re.sub(r' d="[^"]*"', lambda path: _DIGITS.sub(r"\1", path[0]), text)
    return re.sub(
        "|".join(_PAGE_COLOURS), lambda found: _PAGE_COLOURS[found[0].lower()], text, flags=re.IGNORECASE
    )
