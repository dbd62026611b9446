"""Pages that stand elsewhere in the repository: README, changelog, notebooks, results of benchmarks.

They are copied, with the pictures they show, into ``docs/repository/`` (which git ignores) by their own paths, so that
links between them hold.
"""

import re
from pathlib import Path

PAGES = ("README.md", "CHANGELOG.md", "notebooks/*.ipynb", "benchmarks/**/*.md", "benchmarks/**/*.png")
_LINK = re.compile(r"(\]\()([^)#:\s]+)")
_ANCHOR = re.compile(r'^<a id="([\w-]+)"></a>$', re.M)  # what GitHub links to; here it is a label


def mirror(root: Path, to: Path) -> None:
    """Copy the pages; a page that has not changed keeps its time, so that it is not read again."""
    wanted = {to / path.relative_to(root): path for pattern in PAGES for path in root.glob(pattern)}
    for target, source in wanted.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        content = source.read_bytes()
        if source.suffix == ".md":
            content = _ANCHOR.sub(r"(\1)=", content.decode()).encode()
        if not target.exists() or target.read_bytes() != content:
            target.write_bytes(content)
    for path in to.rglob("*"):
        if path.is_file() and path not in wanted:
            path.unlink()


def start_page(app, docname, source) -> None:
    """Put the README before what ``index.md`` holds, its links pointing at the copies."""
    if docname == "index":
        root = Path(app.srcdir).parent
        readme = (root / "README.md").read_text()
        source[0] = _LINK.sub(lambda link: link[1] + _seen_from_docs(root, link[2]), readme) + source[0]


def _seen_from_docs(root: Path, path: str) -> str:
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return "results.md" if (root / path).is_dir() else f"repository/{path}"
