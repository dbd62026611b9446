"""Every public name says what it is, takes and refuses, and where it comes from: words tell only what was forgotten."""

import ast
import importlib
import inspect
import pkgutil
import re
import textwrap
from functools import cache

import bandits_torch
from bandits_torch import validation

PACKAGES = ["bandits_torch"] + [
    info.name for info in pkgutil.walk_packages(bandits_torch.__path__, "bandits_torch.") if info.ispkg
]
MODULES = [importlib.import_module(name) for name in PACKAGES]
NAMED = {
    f"{module.__name__}.{name}": getattr(module, name)
    for module in MODULES
    for name in getattr(module, "__all__", ())
    if name != "__version__"
}
PUBLIC = {name: value for name, value in NAMED.items() if inspect.isclass(value) or inspect.isfunction(value)}
SHAPE = re.compile(
    r"\([A-Za-z0-9*., '|+-]*,[A-Za-z0-9*., '|+-]*\)"  # (S, N), (N,), (*batch, N)
    r"|\bnumbers?\b|\binteger|\bscalar|\bshape|\w+ x \w+|\bboolean"
)
REFUSES = re.compile(r"Raises|ValueError|refuse")
SOURCE = re.compile(r"\b(1[89]|20)\d\d\b|Source:|derived|no paper|No theorem|BoTorch's|chapter \d")
IMPLEMENTS = ("acquisition", "kernels", "models", "policies", "recipes", "theory")
# Containers, contracts and helpers: no equation of anybody's.
NO_SOURCE = """
Arms AskTell AtTime CandidatePrior Choice Choices Design FeatureSource ForgettingRule IndexPolicy KeepEverything
LearnedHyperparameters ModelChoices Observation OnlineModel OverPriors Pending PointSearch Points Policy Question
RandomPolicy Recipe Setup StepContext UnknownPriorPolicy Width arm_gp_of_prior arm_gp_over_priors build
ArmPolicy choices_of choices_over options_of random recipe registered
"""


def functions_of(value):
    """The functions that take a public name's arguments: itself, or what a class is built by."""
    if inspect.isfunction(value):
        return [value]
    builders = (
        inspect.unwrap(vars(value).get(name)) for name in ("__init__", "__post_init__") if name in vars(value)
    )
    return [f for f in builders if inspect.isfunction(f) and f.__code__.co_filename != "<string>"]


def parameters_of(value):
    """The parameters a caller may write, by name: those of the package's own functions."""
    return {
        name: p
        for function in functions_of(value)
        for name, p in inspect.signature(function).parameters.items()
        if name != "self" and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
    }


@cache
def docs_of(value):
    """Its docstring and those it may lean on: of its module and package (recipes share theirs), bases, constructor."""
    module = importlib.import_module(value.__module__)
    leans_on = [value, module, importlib.import_module(value.__module__.rpartition(".")[0])]
    if inspect.isclass(value):
        leans_on += [base for base in value.__mro__[1:] if base.__module__.startswith("bandits_torch")]
        leans_on += [vars(value)[name] for name in ("__init__", "__call__") if name in vars(value)]
    return "\n".join(inspect.getdoc(thing) or "" for thing in leans_on)


def mentions(text, word):
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) is not None


def validates(value):
    """Whether the code of a public name itself checks its arguments."""
    sources = [textwrap.dedent(inspect.getsource(function)) for function in functions_of(value)]
    for node in (node for source in sources for node in ast.walk(ast.parse(source))):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "validation"
        ):
            return True
        if isinstance(node, ast.Raise) and "ValueError" in ast.unparse(node):
            return True
    return False


def failing(check, names=None):
    """The public names that fail a check, in words."""
    return ", ".join(name for name in (PUBLIC if names is None else names) if not check(PUBLIC[name]))


def test_begins_with_a_sentence():
    def check(value):
        first = (inspect.getdoc(value) or "").partition("\n\n")[0]
        return first.rstrip().endswith((".", ":", ")"))

    assert failing(check) == ""


def test_names_every_parameter():
    assert failing(lambda value: all(mentions(docs_of(value), p) for p in parameters_of(value))) == ""


def test_says_the_shapes_of_tensors():
    def check(value):
        annotations = [p.annotation for p in parameters_of(value).values()]
        if inspect.isfunction(value):
            annotations.append(inspect.signature(value).return_annotation)
        has_tensors = any("Tensor" in str(annotation) for annotation in annotations)
        return not has_tensors or SHAPE.search(docs_of(value))

    assert failing(check) == ""


def test_says_what_it_refuses():
    def check(value):
        # A base's is not enough.
        own = [inspect.getdoc(thing) or "" for thing in [value, *functions_of(value)]]
        return not validates(value) or REFUSES.search("\n".join(own))

    assert failing(check) == ""


def test_names_its_source():
    rooms = [name for name in PUBLIC if name.split(".")[1] in IMPLEMENTS]
    names = [name for name in rooms if name.rpartition(".")[2] not in NO_SOURCE.split()]
    assert failing(lambda value: SOURCE.search(inspect.getdoc(value) or ""), names) == ""


def test_describes_every_public_method():
    def check(value):
        named = {key: member for key, member in vars(value).items() if not key.startswith("_")}
        methods = [
            key for key, member in named.items() if inspect.isfunction(member) or isinstance(member, property)
        ]
        return all(inspect.getdoc(getattr(value, key)) for key in methods)

    assert failing(check, [name for name, value in PUBLIC.items() if inspect.isclass(value)]) == ""


def test_the_checks_can_fail():
    def bad(matrix: "Tensor", count: int) -> None:  # noqa: F821
        """No sentence"""
        validation.positive_integer("count", count)

    bad.__module__ = "bandits_torch.files"
    text = docs_of(bad)
    assert not mentions(text, "matrix")
    assert not SHAPE.search(text)
    assert validates(bad)
    assert not REFUSES.search(text)
    assert not SOURCE.search(text)


def test_nothing_is_exempt_that_is_not_there():
    assert {name.rpartition(".")[2] for name in PUBLIC} >= set(NO_SOURCE.split())


def test_every_first_paragraph_stands_alone_in_a_table():
    """The reference's tables show it without the example that ``::`` announces."""
    announce = [
        name
        for name, value in PUBLIC.items()
        if (inspect.getdoc(value) or "").partition("\n\n")[0].endswith("::")
    ]
    assert not announce, f"first paragraphs that end with '::': {announce}"
