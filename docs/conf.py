"""How the documentation is built: ``sphinx-build -W docs docs/_build/html``. Nothing is fetched from anywhere."""

import re
import sys
from importlib.util import find_spec
from inspect import Signature
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import api_pages
import docstrings
import repository
from sphinx.ext.autodoc.mock import mock
from sphinx.util.inspect import signature as signature_of
from sphinx.util.inspect import stringify_signature

import bandits_torch

project = "bandits_torch"
author = "The bandits_torch developers"
copyright = author
version = release = bandits_torch.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
]
exclude_patterns = ["_build"]
default_role = "literal"
highlight_language = "none"
toc_object_entries_show_parents = "hide"

# Notebooks are shown with the outputs they are committed with; `python -m notebooks` makes those.
nb_execution_mode = "off"
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence", "deflist"]
suppress_warnings = ["myst.header"]  # levels of headings may be skipped in results of benchmarks

autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_mock_imports = [tool for tool in api_pages.TOOLS if find_spec(tool) is None]
autodoc_preserve_defaults = False  # a recipe shows the signature of its registration
python_use_unqualified_type_names = True
maximum_signature_line_length = 80
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_custom_sections = [("Attributes", "params_style")]  # keeps "a, b: what they are" together

html_theme = "furo"
html_title = "bandits_torch"
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["style.css"]
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0072B2", "color-brand-content": "#0072B2"},
    "dark_css_variables": {"color-brand-primary": "#56B4E9", "color-brand-content": "#56B4E9"},
}
copybutton_prompt_text = "$ "


def setup(app):
    here = Path(__file__).parent
    repository.mirror(here.parent, here / "repository")
    with mock(autodoc_mock_imports):
        api_pages.write(here / "api")
    app.connect("autodoc-process-docstring", docstrings.to_restructured_text, priority=400)  # before napoleon
    app.connect("autodoc-process-signature", readable_signature)


def readable_signature(app, what, name, obj, options, signature, returns):
    """Handler of ``autodoc-process-signature``: shows a default that is a function by its name. A class that derives
    from one of Sphinx's mocks, whose ``__new__`` takes anything, gets the signature of its ``__init__``.
    """
    if what == "class" and hasattr(obj, "__sphinx_mock__"):
        shown = signature_of(obj.__init__, bound_method=True) if "__init__" in vars(obj) else Signature()
        signature = stringify_signature(shown, show_return_annotation=False, unqualified_typehints=True)
    return signature and re.sub(r"<function (\w+)>", r"\1", signature), returns
