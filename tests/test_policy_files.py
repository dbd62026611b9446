"""A policy's file says how the policy was built: another one is refused, and what differs is listed."""

import contextlib
import copy
import functools
import inspect
import json
import os
import re
import threading
import time

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel

from bandits_torch import ArmGP, AskTell, OnlineGP, load_policy, recipes, save_policy
from bandits_torch.description import Described, description, differences
from bandits_torch.kernels import ExponentialForgettingKernel
from bandits_torch.models import OutcomeConstraint
from bandits_torch.policies import Observation, RandomPolicy
from tests.reference import all_recipes
from tests.reference.asking import bits

T = 40
# Another value of every option there is, where it is no number and no switch; a new option needs a line, or the test of
# all options fails.
OTHERS = {
    "base": "igp_ucb",
    "combine": "sum",
    "constants": "theory",
    "constraints": (OutcomeConstraint("load", high=2.0),),
    "context_dim": 1,
    "context_kernel": RBFKernel(),
    "contexts": torch.rand(3, 1).double(),
    "cycles": 3.0,
    "dictionary": "kept",
    "draws": 29,
    "form": "factor",
    "growth": 3.0,
    "guarantee": "step",
    "history_times": torch.arange(30).double(),
    "history": torch.rand(30, 12, generator=torch.Generator().manual_seed(0)).double(),
    "horizon": T + 7,
    "incumbent": "reward",
    "learn_hyperparameters": {"every": 7},
    "likelihood": "gaussian",
    "log": "of past pulls: what is learned of them is state, tests/test_off_policy.py",
    "matters": [0],
    "preset": "theory",
    "restarts": "global",
    "reward_range": (-3.0, 2.0),
    "run_length": 1e3,
    "safe_arms": torch.arange(12) == 4,
    "safe_points": torch.full((1, 1), 0.5).double(),
    "search": {"num_restarts": 3},
    "stale": None,
    "thresholds": "theory",
    "time_kernel": ExponentialForgettingKernel(0.3),
    "trust": "always",
    "when_empty": "raise",
    "width_form": "printed",
    "xi": "printed",
}
NUMBERS = {"bool": True, "int": 6, "float": 0.4, "Number": 0.4, "Any": 0.4}


def another(name, option):
    """Another value than the default of an option of a recipe: by its name, or by what it is annotated with."""
    annotation = str(inspect.signature(recipes.RECIPES[name]).parameters[option].annotation)
    return OTHERS[option] if option in OTHERS else NUMBERS[annotation.split(" | ")[0]]


CASES = [(name, option) for name in recipes.RECIPES for option in recipes.options_of(name)]
UNDER_CONTEXTS = ("cgp_ucb", "tv_cgp_ucb")
OF_CONTEXTS = ("context_dim", "context_kernel", "contexts")
_PROBLEMS = {}
# Options that no file tells of. Memory that is given is not planned; OPKB's features are the kernel's alone; both
# horizons make as many candidate length-scales.
PLANNED = {
    name
    for name, about in recipes.registration.REGISTERED.items()
    if "changes" in about.options and {"discount", "window"} & set(about.quick)
}
WITHOUT_EFFECT = {
    "seed": {"pe_gp_ucb"},
    "first_replicate": {"pe_gp_ucb"},
    "rkhs_variation_budget": {"r_gp_ucb", "sw_gp_ucb"},
    "horizon": {"bkb", "bbkb", "a_gp_ucb", "lb_gp_ucb"} | PLANNED,
    "changes": PLANNED,
    "stale": {"tv_gp_ucb"},  # over a domain
    "noise_variance": {"opkb", "ada_opkb"},
    "combine": set(UNDER_CONTEXTS),  # combines nothing without a context
}


def built(name, **changes):
    """A recipe on its small problem, the same one every time."""
    if name not in _PROBLEMS:
        _PROBLEMS[name] = all_recipes.build(name, 2, T)[1]
    settings = {"replicates": 2, "horizon": T, "seed": 3} | dict(recipes.registered(name).quick) | changes
    return recipes.build(name, _PROBLEMS[name], **settings)


@functools.cache
def told(name):
    """What the file of a recipe tells of its settings."""
    return description(built(name), "policy")


def play(policy, steps, first=0):
    """Rewards that depend on step and arm alone; the arms played."""
    arms = []
    for step in range(first, first + steps):
        choice = policy.choose(float(step + 1))
        position = choice.arm.double() if choice.arm.dim() == 1 else choice.arm.sum(-1)
        policy.learn(Observation(float(step + 1), choice.arm, torch.sin(1.7 * step + position), choice.why))
        arms.append(choice.arm.tolist())
    return arms


class Files:
    """A file of every recipe, a few steps into its life, written when it is asked for."""

    def __init__(self, folder):
        self.folder = folder

    def __truediv__(self, name):
        if not (self.folder / name).exists():
            policy = built(name)
            play(policy, 12)
            save_policy(self.folder / name, policy)
        return self.folder / name


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Where the files are."""
    return Files(tmp_path_factory.mktemp("files"))


@pytest.mark.parametrize("name", recipes.RECIPES)
def test_every_recipe_takes_its_own_state_and_refuses_that_of_others(name, files):
    """None of the recipes is another on these problems. Two files are tried: what refuses them is the description."""
    policy, names = built(name), list(recipes.RECIPES)
    before = bits(policy.state_dict())
    assert all(differences(told(other), told(name)) for other in names if other != name)
    for k in (1, -1):
        other = names[(names.index(name) + k) % len(names)]
        with pytest.raises(ValueError, match=r"must be of a policy built in the same way: .* was .* and is "):
            load_policy(files / other, policy)
    assert bits(policy.state_dict()) == before
    load_policy(files / name, policy)
    load_policy(files / name, copy.deepcopy(policy))


@pytest.mark.parametrize(("name", "option"), [case for case in CASES if case[1] != "replicates"])
def test_every_option_is_told_by_the_file_or_has_no_effect_on_the_state(name, option, files):
    try:
        other = built(name, **{option: another(name, option)})
    except ValueError:
        alone = {(name, option) for name in (*UNDER_CONTEXTS, "auto") for option in (*OF_CONTEXTS, "matters")}
        assert option == "search" or (name, option) in alone | {
            ("pe_gp_ucb", "learn_hyperparameters"),
            ("auto", "control_share"),
            ("auto", "history"),
            ("auto", "history_times"),
            ("auto", "log"),
            ("auto", "max_move"),
            ("gp_ts", "grid_until"),
            ("safe_gp_ucb", "safe_points"),
        }  # not here
        return
    found = differences(told(name), description(other, "policy"))
    if recipes.registered(name).seeded or option not in ("seed", "first_replicate"):
        without = name in WITHOUT_EFFECT.get(option, ())
        assert bool(found) != without, (
            f"a file of {name} tells of {option}: {bool(found)}; see WITHOUT_EFFECT"
        )
    if found:
        with pytest.raises(ValueError, match=re.escape(found[0]) + ".* was .* and is "):
            load_policy(files / name, other)
        return
    plain = built(name)
    assert play(plain, 25) == play(other, 25)
    assert bits(plain.state_dict()) == bits(other.state_dict())


def test_a_class_written_tomorrow_is_described_too(tmp_path):
    class Patient(RandomPolicy):
        def __init__(self, num_arms, patience, *, weights):
            super().__init__(num_arms)
            self._quietly = patience

    save_policy(tmp_path / "file", Patient(3, 7, weights=[1.0, 2.0]))
    load_policy(tmp_path / "file", Patient(3, 7, weights=[1.0, 2.0]))
    with pytest.raises(ValueError, match=r"patience was 7 and is 8; policy.weights\[1\] was 2.0 and is 5.0"):
        load_policy(tmp_path / "file", Patient(3, 8, weights=[1.0, 5.0]))


def test_parts_of_a_policy_tell_what_they_are_now(tmp_path):
    """A width that is set later counts; arms that were added do."""
    arms = torch.linspace(0, 1, 7, dtype=torch.float64).unsqueeze(-1)
    policies = [recipes.gp_ucb(arms, RBFKernel().double(), 0.1, width=1.0) for _ in range(2)]
    save_policy(tmp_path / "file", policies[0])
    policies[1].add_arms(arms[:2] + 3)
    with pytest.raises(ValueError, match=r"model.arms was a tensor of shape \(7, 1\).*\(9, 1\)"):
        load_policy(tmp_path / "file", policies[1])


def test_one_arm_of_many_that_moves_is_seen_and_rounding_is_not():
    arms = torch.rand(3000, 2, dtype=torch.float64)
    described_arms = description(built_over(arms), "policy")
    assert described_arms["policy.model.arms"].startswith("<3000x2 torch.float64 ")
    moved = arms.clone()
    moved[1234, 1] += 1e-6
    assert differences(described_arms, description(built_over(moved), "policy")) == ["policy.model.arms"]
    rounded = arms * (1 + 2e-16)
    assert not torch.equal(rounded, arms)
    assert differences(described_arms, description(built_over(rounded), "policy")) == []


def built_over(arms):
    return recipes.bkb(arms, RBFKernel().double(), 0.1)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("igp_ucb", {"noise_variance": 0.5, "width": 2.0, "prior_mean": 1.0}),
        ("sw_gp_ucb", {"window": 5, "delta": 0.3}),
        ("et_gp_ucb", {"delta": 0.01}),
        ("bbkb", {"seed": 9, "width": 2.0, "growth": 2.0}),
        ("pe_gp_ucb", {"delta": 0.3, "width": 1.0}),
        ("ada_opkb", {"constants": "theory", "seed": 8}),
        ("opnn", {"hidden": 8, "training_steps": 2}),
        ("gp_ts", {"seed": 9, "form": "factor"}),
    ],
)
def test_the_file_s_settings_make_the_policy_that_was_saved(name, changes, files, tmp_path):
    """Bit for bit: values are taken, however many; the kinds of widths differ in none of these."""
    saved = built(name, **changes)
    play(saved, 12)
    save_policy(tmp_path / "file", saved)
    plain = {"width": 1.0} if "width" in changes else {}
    policy = built(name, **plain)
    play(policy, 5)
    load_policy(tmp_path / "file", policy, on_difference="file")
    assert differences(description(saved, "policy"), description(policy, "policy")) == []
    assert play(policy, 15, first=12) == play(saved, 15, first=12)
    assert bits(policy.state_dict()) == bits(saved.state_dict())


def test_kernels_are_the_file_s_too(tmp_path):
    def policy(lengthscale, outputscale):
        kernel = ScaleKernel(MaternKernel(nu=2.5)).double()
        kernel.base_kernel.lengthscale, kernel.outputscale = lengthscale, outputscale
        arms = torch.linspace(0, 1, 6, dtype=torch.float64).unsqueeze(-1)
        return recipes.gp_ucb(arms, kernel, 0.1, replicates=2)

    saved, other = policy(0.3, 2.0), policy(0.7, 1.0)
    play(saved, 9)
    save_policy(tmp_path / "file", saved)
    message = r"kernel.outputscale was 2.0\d* and is 1.0; .*kernel.base_kernel.lengthscale was \[\[0.3\d*\]\]"
    with pytest.raises(ValueError, match=message):
        load_policy(tmp_path / "file", other)
    load_policy(tmp_path / "file", other, on_difference="file")
    assert play(other, 15, first=9) == play(saved, 15, first=9)
    assert bits(other.state_dict()) == bits(saved.state_dict())


def test_no_way_takes_another_structure(files, tmp_path):
    for name, other in (
        ("gp_ucb", "sw_gp_ucb"),
        ("gp_ucb", "bkb"),
        ("opkb", "ada_opkb"),
        ("random", "gp_ts"),
    ):
        policy = built(name)
        before = bits(policy.state_dict())
        with pytest.raises(ValueError, match="cannot be taken"):
            load_policy(files / other, policy, on_difference="file")
        assert bits(policy.state_dict()) == before
    save_policy(tmp_path / "four", RandomPolicy(4))
    with pytest.raises(ValueError, match="replicates and arms must be the same"):
        load_policy(tmp_path / "four", RandomPolicy(3), on_difference="file")


def everything(module):
    """State, dtypes, modes and gradients of a kernel and its parts."""
    flags = [(name, p.requires_grad, str(p.dtype)) for name, p in module.named_parameters()]
    return bits(dict(module.state_dict())), flags, [part.training for part in module.modules()]


def kernels_of(problem):
    knowledge = problem.knowledge
    priors = [prior.kernel for prior in knowledge.priors or ()]
    return [part for part in (knowledge.kernel, *priors) if isinstance(part, torch.nn.Module)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", recipes.RECIPES)
def test_nothing_writes_into_the_caller_s_kernel(name, files):
    policy, sibling = built(name), built(name)
    kernels = kernels_of(_PROBLEMS[name])
    before = [everything(kernel) for kernel in kernels]
    arms = _PROBLEMS[name].arms.clone()
    expected = play(sibling, 6)
    play(policy, 3)
    load_policy(files / name, policy)
    options = recipes.options_of(name)
    if "noise_variance" in options and name not in ("random",):
        changed = built(name, noise_variance=0.7)
        with contextlib.suppress(ValueError):  # some enclose it in functions
            load_policy(files / name, changed, on_difference="file")
    if options.get("learn_hyperparameters") is False and kernels and not _PROBLEMS[name].knowledge.priors:
        play(built(name, learn_hyperparameters={"first": 2}), 2)
    if hasattr(policy, "model"):
        policy.model.to(torch.float32)
        policy.model.requires_grad_(True).train()
    assert [everything(kernel) for kernel in kernels] == before
    assert torch.equal(_PROBLEMS[name].arms, arms)
    assert play(built(name), 6) == expected


def test_nor_does_a_model_over_points():
    kernel = RBFKernel().double()
    before = everything(kernel)
    model = OnlineGP(kernel, 0.1, input_dim=1)
    model.to(torch.float32).requires_grad_(True).eval()
    model.kernel.lengthscale = 9.0
    assert everything(kernel) == before


def test_a_kernel_that_is_changed_later_changes_no_model(tmp_path):
    kernel = RBFKernel().double()
    model = ArmGP(5, RBFKernel().double(), 0.1)
    arms = torch.linspace(0, 1, 5, dtype=torch.float64).unsqueeze(-1)
    policy = recipes.gp_ucb(arms, kernel, 0.1, width=1.0)
    save_policy(tmp_path / "file", policy)
    kernel.lengthscale = 9.0
    policy.model.rebuild()
    assert policy.model.prior.kernel.lengthscale.item() == pytest.approx(0.693, abs=1e-3)
    twin = RBFKernel().double()
    load_policy(tmp_path / "file", recipes.gp_ucb(arms, twin, 0.1, width=1.0))
    assert copy.deepcopy(model).built_with is model.built_with


def live():
    return AskTell(built("tv_gp_ucb"))


def test_of_two_that_load_one_save_the_second_to_save_is_refused(tmp_path):
    first, second = live(), live()
    save_policy(tmp_path / "live", first)
    load_policy(tmp_path / "live", second)
    first.ask(1.0), second.ask(1.0)
    save_policy(tmp_path / "live", first)
    kept = (tmp_path / "live").read_bytes()
    with pytest.raises(ValueError, match=r"holds save 2 of AskTell.*loaded or saved an earlier one. Load it"):
        save_policy(tmp_path / "live", second)
    assert (tmp_path / "live").read_bytes() == kept
    load_policy(tmp_path / "live", second)
    assert second.ask(2.0).id == 1
    save_policy(tmp_path / "live", second)
    with pytest.raises(ValueError, match="this policy never loaded or saved it"):
        save_policy(tmp_path / "live", live())
    save_policy(tmp_path / "live", live(), overwrite=True)
    (tmp_path / "text").write_text("mine")
    with pytest.raises(ValueError, match="path must be of a policy's file, or of a new file"):
        save_policy(tmp_path / "text", live())
    assert (tmp_path / "text").read_text() == "mine"


@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(5, "Input/output error")])
def test_a_save_that_was_interrupted_is_made_again(error, replaced, tmp_path, monkeypatch):
    """Whether the interrupt came before or after the file was replaced."""
    one, replace = live(), os.replace

    def broken(*names):
        if replaced:
            replace(*names)
        raise error

    for _ in range(2):  # a new file, then one that is there
        one.ask(1.0)
        monkeypatch.setattr(os, "replace", broken)
        with pytest.raises(type(error)):
            save_policy(tmp_path / "live", one)
        monkeypatch.undo()
        save_policy(tmp_path / "live", one)
    with pytest.raises(ValueError, match="this policy never loaded or saved it"):
        save_policy(tmp_path / "live", live())
    load_policy(tmp_path / "live", one)
    assert one.asked == 2


def test_a_save_within_a_block_of_calls_and_one_of_another_thread_both_end(tmp_path):
    one, begun = live(), threading.Event()

    def together():
        with one.alone():
            begun.set()
            time.sleep(0.3)
            save_policy(tmp_path / "live", one)

    def by_itself():
        begun.wait()
        save_policy(tmp_path / "live", one)

    workers = [threading.Thread(target=each, daemon=True) for each in (together, by_itself)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(20)
    assert not any(worker.is_alive() for worker in workers)


def test_links_and_modes_are_kept_and_parts_of_killed_saves_are_not(tmp_path):
    policy = live()
    (tmp_path / "real").mkdir()
    save_policy(tmp_path / "real" / "live", policy)
    (tmp_path / "real" / "live").chmod(0o640)
    (tmp_path / "link").symlink_to(tmp_path / "real" / "live")
    (tmp_path / "real" / ".live.0123abcd.part").write_bytes(b"half")
    (tmp_path / "real" / ".other.0123abcd.part").write_bytes(b"half")
    save_policy(tmp_path / "link", policy)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "live").stat().st_mode & 0o777 == 0o640
    assert sorted(os.listdir(tmp_path / "real")) == [".other.0123abcd.part", "live"]
    load_policy(tmp_path / "link", live())


def test_a_file_is_an_archive_of_named_arrays(tmp_path):
    """Other programs read what was learned without this package."""
    policy = built("gp_ucb")
    play(policy, 5)
    save_policy(tmp_path / "file", policy)
    held = dict(policy.model.named_buffers())
    with np.load(tmp_path / "file") as archive:
        named = {name: archive[name] for name in archive.files}
    for name in ("mean", "covariance"):
        (value,) = (array for path, array in named.items() if path.endswith(f".{name}"))
        (own,) = (buffer for path, buffer in held.items() if path.endswith(f".{name}"))
        assert np.array_equal(value, own.numpy())
    assert json.loads(named["header"].tobytes())["kind"] == "policy"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", recipes.RECIPES)
def test_a_file_takes_a_policy_back_to_where_it_was_saved(name, tmp_path):
    """Before the first reward, and in the middle. What the file tells of its settings never changes: every part is
    described, or they would be read from its attributes, state among them."""
    policy = built(name)
    assert isinstance(policy, Described)
    for attribute in ("model", "width", "forgetting"):
        part = getattr(policy, attribute, None)
        assert part is None or isinstance(part, (Described, float)), attribute
    for step in (0, 12):
        save_policy(tmp_path / str(step), policy)
        expected = play(policy, 12, first=step)
        state = bits(policy.state_dict())
        load_policy(tmp_path / str(step), policy)
        assert play(policy, 12, first=step) == expected
        assert bits(policy.state_dict()) == state
    assert differences(told(name), description(policy, "policy")) == []
