"""Pages from elsewhere in the repository: changelog, contributing, security, notebooks, results of benchmarks.

They are copied, with the pictures they show, into ``docs/repository/`` (which git ignores) under their own paths, so
that links between them hold. Links into ``docs/`` are rewritten.
"""

import re
from pathlib import Path

ROOT_PAGES = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
PAGES = (*ROOT_PAGES, "notebooks/*.ipynb", "benchmarks/**/*.md", "benchmarks/**/*.png")
_ANCHOR = re.compile(r'^<a id="([\w-]+)"></a>$', re.M)  # what GitHub links to; here it is a label


def mirror(root: Path, to: Path) -> None:
    """Copy the pages; a page that has not changed keeps its time, so that it is not read again."""
    wanted = {to / path.relative_to(root): path for pattern in PAGES for path in root.glob(pattern)}
    for target, source in wanted.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        content = source.read_bytes()
        if source.suffix == ".md":
            content = _ANCHOR.sub(r"(\1)=", content.decode()).replace("](docs/", "](../").encode()
        if not target.exists() or target.read_bytes() != content:
            target.write_bytes(content)
    for path in to.rglob("*"):
        if path.is_file() and path not in wanted:
            path.unlink()
