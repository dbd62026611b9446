"""What is registered of a recipe holds, and no argument is swallowed."""

import inspect
import warnings
from dataclasses import FrozenInstanceError, replace

import pytest
import torch
from gpytorch.kernels import RBFKernel

from bandits_torch import Domain, recipes, run
from bandits_torch.models import OnlineGP
from bandits_torch.policies import Observation
from bandits_torch.problems import Replay, make
from bandits_torch.recipes import Setup
from bandits_torch.recipes.registration import REGISTERED
from tests.reference import all_recipes
from tests.reference.kernels import rbf, scaled

NOBODYS = {"random", "gp_ei", "gp_pi"}


def arguments(name, problem):
    """(arms, belief, noise variance) for a call by hand, and what must be given by keyword."""
    about, known = recipes.registered(name), problem.knowledge
    belief = {"kernel": known.kernel, "priors": known.priors, "prior": problem.true_prior, None: None}
    options = {"horizon": 20} if "horizon" in about.options else {}
    return (problem.arms, belief[about.belief], known.noise_variance), options | dict(about.quick)


def small_problem():
    return make("hills", num_arms=11, replicates=2, seed=1)


def setup_of(problem, **more):
    known = problem.knowledge
    believed = {"kernel": known.kernel, "priors": known.priors, "prior": problem.true_prior}
    return Setup(problem.arms, noise_variance=known.noise_variance, replicates=2, **believed, **more)


@pytest.mark.parametrize("name", recipes.RECIPES)
def test_a_misspelt_argument_is_refused_with_what_was_perhaps_meant(name):
    problem = small_problem()
    given, options = arguments(name, problem)
    calls = {
        "by hand": lambda: recipes.RECIPES[name](*given, **options, replicatess=3),
        "with a setup": lambda: recipes.RECIPES[name](setup_of(problem), **options, quikc=3),
        "by name": lambda: recipes.build(name, problem, replicates=2, horizon=20, first_replicat=3),
    }
    for how, call in calls.items():
        meant = "quikc" if how == "with a setup" else r"did you mean \w*replicate"
        with pytest.raises(ValueError, match=meant):
            call()
        with pytest.raises(TypeError):
            call()


@pytest.mark.parametrize("name", [name for name, about in REGISTERED.items() if not about.points])
def test_a_recipe_over_arms_alone_refuses_a_domain(name):
    box = Domain(torch.tensor([[0.0], [1.0]]).double())
    options = {"horizon": 20} if "horizon" in recipes.registered(name).options else {}
    with pytest.raises(ValueError, match=f"arms must be features .*: {name} does not play a Domain"):
        recipes.RECIPES[name](Setup(box, RBFKernel(), 0.1), **options)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("auto", {"history": torch.ones(9, 3).double()}, "history must be of rewards that differ"),
        ("r_perp", {"horizon": 9, "interval": 3, "variation_budget": -5.0}, "variation_budget must be"),
        ("bkb", {"preset": "theory", "delta": 3.0}, "delta must be .*got 3.0"),
        ("dal", {"horizon": 9, "base": "ucb1", "width": 2.0}, "width must be None for a base .*got 2.0"),
        ("dal", {"horizon": 9, "base": recipes.gp_ucb, "width": 2.0}, "width must be None for a base"),
        ("bkb", {"preset": "theory", "growth": 3.0}, "growth must be None or 1 .*got 3.0"),
    ],
)
def test_what_cannot_be_is_refused_by_the_name_and_value_that_it_was_told_with(name, options, message):
    given = () if name == "auto" else (torch.eye(3).double(), 0.1)
    with pytest.raises(ValueError, match=message):
        recipes.RECIPES[name](3, *given, **options)


def test_what_cannot_be_over_a_domain_is_refused_by_name():
    box, model = Domain(torch.tensor([[0.0], [1.0]]).double()), OnlineGP(rbf(0.2), 0.1, input_dim=1)
    of_model = "domain must be the Domain of an OnlineGP, got"
    for message, call in (
        ("noise_variance must be a number", lambda: recipes.gp_ucb(Setup(box, RBFKernel(), None))),
        ("noise_variance must be a number", lambda: recipes.gp_ucb(Setup(box, RBFKernel(), "x"))),
        ("control_share must be", lambda: recipes.auto(box, control_share=0.3)),
        ("history_times must be", lambda: recipes.auto(box, history_times=torch.arange(3.0))),
        (of_model, lambda: recipes.memory_length(model, 10, domain=None)),
        (of_model, lambda: recipes.memory_length(model, 10, domain=3)),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_a_missing_argument_is_named():
    with pytest.raises(ValueError, match=r"sw_gp_ucb: missing a required .*argument: 'horizon'"):
        recipes.sw_gp_ucb(5, torch.eye(5).double(), 0.1)
    with pytest.raises(TypeError, match="noise_variance"):
        recipes.gp_ucb(5, torch.eye(5).double())


@pytest.mark.parametrize("name", recipes.RECIPES)
def test_signatures_show_every_argument(name):
    shown = inspect.signature(recipes.RECIPES[name]).parameters
    assert {"arms", "replicates", "seed", "first_replicate"} <= set(shown)
    assert all(p.kind is not p.VAR_KEYWORD and p.kind is not p.VAR_POSITIONAL for p in shown.values())
    about = recipes.registered(name)
    assert set(about.takes) <= set(shown)
    assert set(about.quick) <= set(about.options)
    assert all(set(settings) <= set(about.options) for settings in about.race.values())
    assert (about.source == "") == (name in NOBODYS)
    assert about.summary.endswith((".", ":"))


@pytest.mark.parametrize("name", recipes.RECIPES)
def test_a_setup_and_a_call_by_hand_are_one_recipe(name):
    problem = small_problem()
    given, options = arguments(name, problem)
    by_hand = recipes.RECIPES[name](*given, **options, replicates=2, seed=4)
    with_setup = recipes.RECIPES[name](setup_of(problem, seed=4), **options)
    assert torch.equal(run(by_hand, problem, 20).arms, run(with_setup, problem, 20).arms)


def test_a_setup_is_frozen_complete_and_checked():
    setup = Setup(torch.rand(4, 1), RBFKernel(), 0.1)
    with pytest.raises(FrozenInstanceError):
        setup.replicates = 3
    assert replace(setup, replicates=3).replicates == 3
    with pytest.raises(ValueError, match="replicates"):
        replace(setup, replicates=0)
    with pytest.raises(TypeError, match="replicatess"):
        Setup(4, RBFKernel(), 0.1, replicatess=3)
    with pytest.raises(ValueError, match=r"search .* got num_restart \(did you mean num_restarts\?\)"):
        replace(setup, search={"num_restart": 3})
    with pytest.raises(ValueError, match=r"learn_hyperparameters .* got evry \(did you mean every\?\)"):
        replace(setup, learn_hyperparameters={"evry": 3, "anisotropy": 0.5})
    with pytest.raises(ValueError, match="search must be None over arms"):
        replace(setup, search={"initial": 3})
    with pytest.raises(ValueError, match="form must be 'auto' over a Domain"):
        Setup(Domain(torch.tensor([[0.0], [1.0]])), RBFKernel(), 0.1, form="factor")
    with pytest.raises(ValueError, match="learn_hyperparameters must be True, False or the arguments"):
        replace(setup, learn_hyperparameters="yes")
    with pytest.raises(ValueError, match="learn_hyperparameters must be False for opkb"):
        recipes.opkb(replace(setup, learn_hyperparameters=True), horizon=9)
    with pytest.raises(ValueError, match="after the setup"):
        recipes.gp_ucb(setup, RBFKernel())
    with pytest.raises(ValueError, match=r"opkb: missing a required .*'horizon'"):
        recipes.opkb(setup)


def test_a_new_recipe_is_registered_and_defined_again(monkeypatch):
    """As a cell of a notebook does that runs again. A name of another recipe is refused."""
    takes = recipes.registered("gp_ucb").takes

    @recipes.recipe(takes=takes)
    def wide_gp_ucb(setup, *, width=9.0):
        """GP-UCB with a wide constant (2026)."""
        return recipes.gp_ucb(setup, width=width)

    try:
        assert float(wide_gp_ucb(4, torch.eye(4).double(), 0.1).width.value) == 9.0
        assert REGISTERED["wide_gp_ucb"].source == "2026"
        built = recipes.build("wide_gp_ucb", make("gp", num_arms=5), replicates=1, horizon=9)
        assert float(built.width.value) == 9.0
        assert list(recipes.RECIPES)[-1] == "wide_gp_ucb"
        monkeypatch.setitem(globals(), "WIDE", wide_gp_ucb)
        by_module = f"{__name__}:WIDE"
        assert recipes.registered(by_module).call is wide_gp_ucb
        wide_gp_ucb.__wrapped__.__kwdefaults__ = {"width": 8.0}
        again = recipes.recipe(takes=takes)(wide_gp_ucb.__wrapped__)
        for name in ("wide_gp_ucb", by_module):
            assert recipes.RECIPES[name] is recipes.registered(name).call is again
            assert recipes.options_of(name)["width"] == 8.0
        again.__wrapped__.__module__ = "elsewhere"
        with pytest.raises(ValueError, match="name of a recipe must be new, got 'wide_gp_ucb'"):
            recipes.recipe()(again.__wrapped__)
    finally:
        for name in ("wide_gp_ucb", f"{__name__}:WIDE"):
            REGISTERED.pop(name, None), recipes.RECIPES.pop(name, None)


@pytest.mark.parametrize("function", [lambda: 0, lambda setup, most=60: 0, lambda setup, **options: 0])
def test_a_recipe_is_a_function_of_a_setup_and_of_keywords_alone(function):
    expected = r"parameters of <lambda> must be a setup, then keywords: \(setup, \*, \.\.\.\), got"
    with pytest.raises(ValueError, match=expected):
        recipes.recipe()(function)


def passed(setup, first=1, *, most: int = 60, share=0.5, prior_mean=1.0, device="cpu"):
    return recipes.random(setup), {"share": share, "most": most}


def test_a_recipe_takes_the_keywords_of_what_it_passes_its_options_to():
    """With their defaults and annotations, but without those that it has itself and those that a setup gives."""
    got = []

    def passing(setup, *, share=0.25, **options):
        policy, known = passed(setup, share=share, **options)
        got.append(known)
        return policy

    try:
        made = recipes.recipe(belief=None, passes_to=passed)(passing)
        own = {"share": 0.25, "most": 60}
        assert recipes.options_of("passing") == own | {"replicates": 1, "seed": 0, "first_replicate": 0}
        assert inspect.signature(made).parameters["most"].annotation is int
        made(3), made(3, most=5), made(Setup(3), share=0.75)
        assert got == [own, own | {"most": 5}, own | {"share": 0.75}]
        for name in ("first", "device", "prior_mean"):
            with pytest.raises(ValueError, match=f"arguments of passing must be among .*, got {name}"):
                made(3, **{name: 2})
    finally:
        REGISTERED.pop("passing", None), recipes.RECIPES.pop("passing", None)


@pytest.mark.parametrize("function", [lambda setup: 0, lambda setup, *, most=60: 0, lambda **options: 0])
def test_a_recipe_that_passes_options_on_is_a_function_of_a_setup_keywords_and_options(function):
    with pytest.raises(ValueError, match="parameters of <lambda> must be a setup, then keywords"):
        recipes.recipe(passes_to=passed)(function)
    with pytest.raises(ValueError, match="passes_to must be a function or class with keywords, got 3"):
        recipes.recipe(passes_to=3)(function)


@pytest.mark.parametrize(
    ("takes", "said"), [("prior_mean", "a tuple of fields"), (("mean",), "among choices, ")]
)
def test_a_recipe_takes_fields_of_a_setup(takes, said):
    with pytest.raises(ValueError, match=f"^takes must be {said}"):
        recipes.recipe(takes=takes)(lambda setup: 0)


MEAN = 4.0
CHANCES = {"log_odds_ucb"}  # its prior means lie within a range (tests/policies/test_classical.py)
SHIFTABLE = [
    name for name in recipes.RECIPES if "prior_mean" in recipes.options_of(name) and name not in CHANCES
]


TOLD_A_KERNEL = [name for name in recipes.RECIPES if recipes.registered(name).belief == "kernel"]
IN_UNITS = {"gp_pi": {"margin": 0.01}, "opkb": {"reward_scale": 1.0}, "ada_opkb": {"reward_scale": 1.0}}
FLOOR = {"gp_ei", "gp_pi"}  # BoTorch's, of variances, as the recipes say


def arms_where(name, unit, shift):
    """The arms played where every reward is ``unit`` times as large and then ``shift`` higher, and the recipe is told
    so."""
    _, problem = all_recipes.build(name, 2, 60)
    (arms, belief, noise_variance), options = arguments(name, problem)
    if name in TOLD_A_KERNEL:
        belief, noise_variance = scaled(belief, unit**2), noise_variance * unit**2
    options |= {"horizon": 60} if "horizon" in options else {}
    options |= {key: value * unit for key, value in IN_UNITS.get(name, {}).items()}
    if "least_reward" in options:  # a limit of the reward moves along
        options["least_reward"] = unit * options["least_reward"] + shift
    given = arms, belief, noise_variance
    policy = recipes.RECIPES[name](*given, **options, replicates=2, seed=3, prior_mean=shift)
    noise = torch.randn(60, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    played = []
    for step in range(1, 61):
        choice = policy.choose(float(step))
        expected = problem.expected_rewards(step).gather(-1, choice.arm.unsqueeze(-1)).squeeze(-1)
        reward = unit * (expected + 0.1 * noise[step - 1]) + shift
        policy.learn(Observation(float(step), choice.arm, reward, choice.why))
        played.append(choice.arm)
    return torch.stack(played)


def test_every_recipe_that_is_told_a_kernel_takes_a_prior_mean():
    assert set(TOLD_A_KERNEL) <= set(SHIFTABLE)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", SHIFTABLE)
def test_a_prior_mean_that_is_told_is_used(name):
    assert torch.equal(arms_where(name, 1.0, 0.0), arms_where(name, 1.0, MEAN))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("power", [-30, 30])
@pytest.mark.parametrize("name", TOLD_A_KERNEL)
def test_kernel_and_noise_variance_tell_the_unit_of_rewards(name, power):
    unit = 2.0 ** (-10 if power < 0 and name in FLOOR else power)
    assert torch.equal(arms_where(name, 1.0, 0.0), arms_where(name, unit, 0.0))


def uneven():
    table = torch.rand(40, 5, generator=torch.Generator().manual_seed(1)).double() + torch.arange(5)
    return Replay(table, warm_up=0.3, prior_mean="arm", forgetting_rate=0.03, noise_fraction=0.05)


@pytest.mark.parametrize("name", [name for name in SHIFTABLE if recipes.registered(name).one_mean])
def test_a_prior_mean_that_differs_between_arms_is_averaged_with_a_warning(name):
    problem = uneven()
    with pytest.warns(UserWarning, match=f"{name} has one prior_mean .* it gets the average, "):
        policy = recipes.build(
            name, problem, replicates=1, horizon=20, **dict(recipes.registered(name).quick)
        )
    own = policy.prior_mean if hasattr(policy, "prior_mean") else policy.model.prior_mean.constant
    assert float(own) == pytest.approx(float(problem.knowledge.prior_mean.mean()))
    given, options = arguments(name, problem)
    with pytest.raises(ValueError, match="prior_mean must be"):
        recipes.RECIPES[name](*given, **options, prior_mean=problem.knowledge.prior_mean)


@pytest.mark.parametrize("name", ["w_gp_ucb", "master_gp_ucb", "gp_ucb"])
def test_a_prior_mean_for_each_arm_is_taken_as_it_is(name):
    problem = uneven()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        policy = recipes.build(name, problem, replicates=1, horizon=20)
    first = int(policy.choose(1.0).arm)
    assert first == int(problem.knowledge.prior_mean.argmax())


def played(name, problem):
    steps = 3 if problem.dim else 30
    known = {}
    if problem.dim and "search" in recipes.registered(name).options:
        known["search"] = {"num_restarts": 1, "raw_samples": 2, "options": {"maxiter": 1}}
    options = {**recipes.registered(name).quick, **known}
    policy = recipes.build(name, problem, replicates=2, horizon=steps, seed=8, **options)
    problem.best = lambda step: torch.ones(2).double()  # of a domain a search of its own
    return run(policy, problem, steps, seed=1).arms


@pytest.mark.sampled(2)
@pytest.mark.parametrize("over", ["arms", "points"])
@pytest.mark.parametrize("name", recipes.RECIPES)
def test_build_passes_its_seed_to_all_that_draw(name, over, monkeypatch):
    """A recipe that would draw other numbers with the seed was given it; ``seeded`` False: it draws none over arms."""
    about = recipes.registered(name)
    if over == "points" and not about.points:
        return
    arms = "hills" if about.belief in ("priors", "prior") else "gp"
    problems = {
        "arms": lambda: make(arms, num_arms=11, replicates=2, seed=1),
        "points": lambda: make("dynamic-levy", dim=2, horizon=5, replicates=2),
    }
    chosen = played(name, problems[over]())
    monkeypatch.setitem(REGISTERED, name, replace(REGISTERED[name], seeded=True))
    assert torch.equal(chosen, played(name, problems[over]()))
