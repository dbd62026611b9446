"""Turn docstrings into reStructuredText.

Docstrings are plain text in Google's layout: ``code`` in double backticks, lists with an asterisk, equations indented.
Text that reStructuredText would misread, such as |t - t'|, x_ or (*batch, N), is escaped, and indented equations
become literal blocks. So a docstring is written for the reader of the source.
"""

import re

_LITERAL = re.compile(r"(``.+?``|`[^`\s][^`]*`)")
_MARKUP = re.compile(r"([|*\\]|(?<=\w)_(?!\w))")
_SECTION = re.compile(r"^(Args|Arguments|Attributes|Returns|Raises|Yields|Cost|Note|Example|Examples):$")
_BULLET = re.compile(r"^\s*([*-]|\d+\.)\s")


def to_restructured_text(app, what, name, obj, options, lines) -> None:
    """Handler of ``autodoc-process-docstring``: changes ``lines`` in place."""
    lines[:] = _escaped(_with_literal_blocks(lines))


def _with_literal_blocks(lines):
    """Mark indented blocks that are neither a section's nor a list's as literal, with a line ``::`` before them."""
    out, inside, section, above = [], False, False, ""
    for i, line in enumerate(lines):
        indented = line.startswith("    ")
        if line and not indented:
            section, inside = bool(_SECTION.match(line)), False
            above = line if (not above or _BULLET.match(line) or i == 0 or not lines[i - 1]) else above
        begins = indented and not inside and not section and (i == 0 or not lines[i - 1])
        if begins and not _BULLET.match(above):
            out += ["::", ""]
            inside = True
        out.append(line)
    return out


def _escaped(lines):
    """Escape what would be markup, outside literals."""
    out, literal = [], False
    for line in lines:
        if line == "::":
            literal = True
        elif line and not line.startswith(" "):
            literal = False
        out.append(line if literal else escaped_line(line))
    return out


def escaped_line(line):
    """One line with what would be markup escaped, outside literals."""
    bullet = _BULLET.match(line)
    head, rest = (line[: bullet.end()], line[bullet.end() :]) if bullet else ("", line)
    parts = _LITERAL.split(rest)  # literals at odd places
    return head + "".join(part if i % 2 else _MARKUP.sub(r"\\\1", part) for i, part in enumerate(parts))
