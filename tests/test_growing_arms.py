"""Arms that come while a live system runs are as if they had been there and never played; those that go are never
asked again. One law over every recipe."""

import copy
import math
import pickle
import re
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
import torch
from gpytorch.kernels import MaternKernel
from torch import Tensor

from bandits_torch import ArmGP, AskTell, load_policy, recipes, save_policy
from bandits_torch.kernels import ArmCovarianceKernel, ExponentialForgettingKernel, SpatioTemporalKernel
from bandits_torch.models import CandidatePrior
from bandits_torch.policies import IndexPolicy, Observation
from bandits_torch.problems import Log
from bandits_torch.recipes import Setup
from bandits_torch.state import differing
from bandits_torch.theory import ConstantWidth
from tests.reference import all_recipes
from tests.reference.asking import alike
from tests.reference.kernels import rbf

S, BEFORE, AFTER, MORE = 2, 24, 16, 3
HORIZON = BEFORE + AFTER
RESTART = {"opkb", "ada_opkb", "opnn", "ada_opnn", "ada_opkb_calibrated", "r_perp"}  # with the arms there are
# Where a new arm is not as one that was there: exp3_s gives it the average weight, bbkb begins a batch.
OTHERWISE = {"exp3_s", "bbkb"}
OWN = {"auto": {"look_again": 0.0}}  # a new arm's clock begins when it comes: a test of its own
GROW = [name for name in recipes.RECIPES if name not in RESTART]
X = torch.linspace(0, 1, 9, dtype=torch.float64).unsqueeze(-1)
KERNEL = rbf(0.2)
FIRST_SIX = [True] * 6 + [False] * 3


def pair(name):
    """A policy over the first of the arms of a problem, one that has all from the start, and what new arms are told."""
    warnings.simplefilter("ignore")
    origin = all_recipes.build(name, S, HORIZON)[0].origin
    setup, options = origin.setup, origin.options | OWN.get(name, {})
    arms = setup.choices
    n = len(arms) - MORE
    few, told = {"choices": arms[:n]}, {"features": arms[n:]}
    if setup.priors:  # one mean for all arms each
        setup = replace(setup, priors=[replace(one, mean=0.1 * k) for k, one in enumerate(setup.priors)])
    if setup.prior is not None:
        setup = replace(setup, prior=replace(setup.prior, mean=0.1))
    if isinstance(setup.prior_mean, Tensor) and setup.prior_mean.dim():
        few["prior_mean"], told["prior_mean"] = setup.prior_mean[:n], setup.prior_mean[n:]
    if isinstance(setup.kernel, Tensor):
        few["kernel"], told["covariance"] = setup.kernel[:n, :n], setup.kernel
    few = {name: value.clone() for name, value in few.items()}
    small = origin.recipe(replace(setup, **few), **options)
    for value in few.values():  # of the caller, who may use the memory again
        value.fill_(7.0)
    return small, origin.recipe(replace(setup, grown_from=n), **options), told


def reward_of(arm, generator):
    return (
        0.3 * torch.randn(len(arm), generator=generator, dtype=torch.float64) + (arm == 2) - 0.5 * (arm == 5)
    )


def told_both(live, twin, steps, generator, start=0, mask=None):
    """Both learn what the live one asks, and were asked at the same times."""
    asked = []
    for step in range(start, start + steps):
        question = live.ask(step + 1.0)
        why = live.state_dict()["open"][-1][3]
        chosen = twin.choose(step + 1.0, mask)
        asked.append((question.arm, chosen.arm))
        reward = reward_of(question.arm, generator)
        assert live.tell(question.id, reward)
        twin.learn(Observation(step + 1.0, question.arm, reward, why))
    return asked


def same_draws(twin, policy):
    """The twin goes on with the random numbers of the other, of which it has used as many, or others."""
    own, other = twin.state_dict(), policy.state_dict()
    twin.load_state_dict(with_streams_of(own, other))


def with_streams_of(own, other, key=""):
    if "streams" in str(key):
        return other
    if isinstance(own, dict):
        return {name: with_streams_of(value, other.get(name, value), name) for name, value in own.items()}
    if isinstance(own, list) and len(own) == len(other):
        return [with_streams_of(one, two) for one, two in zip(own, other, strict=True)]
    return own


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", GROW)
def test_a_new_arm_is_as_if_it_had_been_there_and_never_played(name, tmp_path):
    """Also for another process, which takes up the system that has grown."""
    small, twin, told = pair(name)
    live, fresh, generator = AskTell(small), AskTell(copy.deepcopy(small)), torch.Generator().manual_seed(1)
    n = small.num_arms
    hidden = torch.arange(n + MORE) < n
    told_both(live, twin, BEFORE, generator, mask=hidden)
    late = live.ask(BEFORE + 0.5)
    why = live.state_dict()["open"][-1][3]

    assert live.add_arms(MORE, **told) == tuple(range(n, n + MORE))
    save_policy(tmp_path / "live.state", live)
    load_policy(tmp_path / "live.state", fresh)
    assert not differing(live.state_dict(), fresh.state_dict())
    live = fresh
    assert live.num_arms == n + MORE
    reward = reward_of(late.arm, generator)
    assert live.tell(late.id, reward)  # asked of the smaller set
    twin.learn(Observation(BEFORE + 0.5, late.arm, reward, why))
    same_draws(twin, live.policy)
    if name in ("gp_ts", "pe_gp_ts", "hp_gp_ts"):
        twin.model.rebuild()  # a root of the covariance taken anew, as the other's is: the draws are the same then
    if hasattr(twin, "marginals") and name not in ("cgp_ucb", "tv_cgp_ucb"):
        at = BEFORE + 0.75
        torch.testing.assert_close(live.policy.marginals(at), twin.marginals(at), rtol=1e-8, atol=1e-8)
    if name not in OTHERWISE:
        asked = told_both(live, twin, AFTER, generator, start=BEFORE + 1)
        assert all(torch.equal(ours, theirs) for ours, theirs in asked)
    else:
        told_both(live, twin, AFTER, generator, start=BEFORE + 1)


@pytest.mark.parametrize("name", sorted(RESTART))
def test_a_policy_with_designs_of_all_arms_starts_again_with_those_there_are(name, tmp_path):
    """As one built then over these arms, whose random numbers go on."""
    small, whole, told = pair(name)
    origin, N = whole.origin, whole.num_arms
    live, fresh, generator = AskTell(small), AskTell(copy.deepcopy(small)), torch.Generator().manual_seed(4)

    def built_anew(arms):
        setup = origin.setup
        some = {"choices": setup.choices[arms]}
        if isinstance(setup.kernel, Tensor):
            some["kernel"] = setup.kernel[arms][:, arms]
        if isinstance(setup.prior_mean, Tensor) and setup.prior_mean.dim():
            some["prior_mean"] = setup.prior_mean[arms]
        made = origin.recipe(replace(setup, **some), **origin.options)
        for own, other in zip(made.random_streams(), live.policy.random_streams(), strict=True):
            own.load_state_dict(other.state_dict())
        made.reset()
        return made

    def play(steps, arms=None, twin=None):
        for step in steps:
            question = live.ask(float(step))
            reward = reward_of(question.arm, generator)
            if twin is not None:
                choice = twin.choose(float(step))
                assert torch.equal(arms[choice.arm], question.arm)
                twin.learn(Observation(float(step), choice.arm, reward, choice.why))
            assert live.tell(question.id, reward)

    play(range(9))
    for change, here in (
        (lambda: live.add_arms(MORE, **told), range(N)),
        (lambda: live.retire_arms([1, N - 1]), [k for k in range(N) if k not in (1, N - 1)]),
        (lambda: live.add_arms([1]), range(N - 1)),
    ):
        arms = torch.tensor([*here])
        late = live.ask(9.5)
        twin = built_anew(arms)
        change()
        before = live.policy.state_dict()
        assert live.tell(late.id, reward_of(late.arm, generator))
        assert not differing(before, live.policy.state_dict())  # of an epoch that is over
        play(range(10, 40), arms, twin)
    live.ask(40.0)
    save_policy(tmp_path / "live.state", live)
    load_policy(tmp_path / "live.state", fresh)
    assert not differing(live.state_dict(), fresh.state_dict())
    assert torch.equal(live.ask(41.0).arm, fresh.ask(41.0).arm)


def test_the_page_lists_those_who_differ():
    page = (Path(__file__).parent.parent / "docs" / "live.md").read_text(encoding="utf-8")
    section = page.split("## Arms that come and go")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    named = {word for row in rows for word in re.findall(r"`(\w+)`", row) if word in recipes.RECIPES}
    assert named == RESTART | OTHERWISE


@pytest.mark.parametrize("name", GROW)
def test_a_retired_arm_is_never_asked_again_and_its_late_reward_counts(name):
    small, _, _ = pair(name)
    live, generator = AskTell(small), torch.Generator().manual_seed(2)
    alike(range(1, 11), lambda arm, step: reward_of(arm, generator), live)
    late = live.ask(11.0)
    gone = sorted({int(late.arm[0]), 2})
    live.retire_arms(gone)
    assert live.retired == tuple(gone)
    before = live.policy.state_dict()
    assert live.tell(late.id, reward_of(late.arm, generator))
    if name != "random":
        assert differing(before, live.policy.state_dict())
    for step in range(12, 30):
        question = live.ask(float(step))
        assert not set(question.arm.tolist()) & set(gone)
        live.tell(question.id, reward_of(question.arm, generator))
    live.add_arms(gone)
    assert live.retired == ()


def gp(arms, kind, **options):
    kernel = KERNEL
    if kind != "static":
        over_time = MaternKernel(nu=1.5).double() if kind == "state" else ExponentialForgettingKernel(0.05)
        kernel = SpatioTemporalKernel(KERNEL, over_time)
    return ArmGP(arms, kernel, 0.05, prior_mean=0.2, batch_shape=(2,), **options)


KINDS = [
    *(("static", form, does) for form in ("covariance", "factor") for does in ("learns", "forgets", "late")),
    *(("drift", form, does) for form in ("covariance", "factor") for does in ("learns", "late")),
    *(("state", "auto", does) for does in ("learns", "forgets", "late")),
    *((kind, "covariance", "own noise") for kind in ("static", "drift")),
    ("drift", "factor", "forgets"),
]


@pytest.mark.parametrize(("kind", "form", "does"), KINDS)
def test_a_gaussian_process_over_more_arms_is_one_that_had_them(kind, form, does):
    small, wide, grown = gp(X[:6], kind, form=form), gp(X, kind, form=form), gp(X, kind, form=form)
    generator = torch.Generator().manual_seed(0)

    def learn(steps, *each):
        for step in steps:
            arm = torch.randint(6, (2,), generator=generator)
            reward = torch.randn(2, generator=generator, dtype=torch.float64)
            time = step - 2.5 if does == "late" and step % 5 == 4 else step
            for one in each:
                if does == "own noise" and step % 3 == 0:
                    one.take_noisy(arm, reward, float(time), torch.tensor([0.5, 0.02]).double())
                else:
                    one.take(arm, reward, float(time), late=True)
                if does == "forgets" and step > 10:
                    one.slide(10)

    learn(range(25), small, wide)
    grown.grow_from(small)
    learn(range(25, 40), grown, wide)
    torch.testing.assert_close(grown.joint(41.0), wide.joint(41.0), rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(grown.log_likelihood, wide.log_likelihood, rtol=1e-8, atol=1e-8)
    assert grown.now == wide.now


COVARIANCE = KERNEL(X).to_dense().detach() + 0.1 * torch.eye(9).double()
MEANS, ROWS = torch.linspace(0, 1, 9).double(), torch.arange(20)
UNDER_CONTEXTS = {"context_dim": 1, "context_kernel": rbf(0.5), "width": 2.0}
CONTEXTS = torch.rand(3, 2, generator=torch.Generator().manual_seed(8)).double()
OF_AUTO = {"listed contexts": {"contexts": CONTEXTS}, "any contexts": {"context_dim": 2}}
TOLD = {"a matrix": ("features", "covariance", "prior_mean"), "contexts": ("covariance",)}
TOLD |= {"drifting contexts": TOLD["contexts"]} | dict.fromkeys(OF_AUTO, ("features",))
TOLD |= {f"{name}, numbers": () for name in OF_AUTO}


def system(name, n):
    """A live system over the first ``n`` of nine arms."""
    K, setup = COVARIANCE[:n, :n], Setup(X[:n], grown_from=6 if n > 6 else None)
    drifting = partial(recipes.tv_gp_ucb, X[:n], KERNEL, 0.05, forgetting_rate=0.02, width=2.0)
    auto = partial(recipes.auto, look_again=0.0)
    pulls = ROWS.double(), ROWS % 6, (ROWS % 6 == 2).double(), tuple("abcdefghi"[:n])
    if name.split(", ")[0] in OF_AUTO:
        setup = replace(setup, choices=n) if "numbers" in name else setup
        return AskTell(auto(setup, **OF_AUTO[name.split(", ")[0]]))
    build = {
        "standardised": lambda: AskTell(drifting(), standardise=True),
        "binary": lambda: AskTell(drifting(), rewards="binary"),
        "a matrix": lambda: AskTell(auto(replace(setup, kernel=K, noise_variance=0.1, prior_mean=MEANS[:n]))),
        "a log": lambda: AskTell(auto(setup, log=Log(*pulls))),
        "a cycle": lambda: AskTell(auto(setup, cycles=12.0)),
        "contexts": lambda: AskTell(recipes.cgp_ucb(n, K, 0.1, **UNDER_CONTEXTS)),
        "drifting contexts": lambda: AskTell(recipes.tv_cgp_ucb(n, K, 0.1, **UNDER_CONTEXTS)),
    }
    return build[name]()


@pytest.mark.parametrize("name", ["standardised", "binary", "a log", "a cycle", *TOLD])
def test_whatever_is_told_or_around_a_policy_new_arms_are_as_if_they_had_been_there(name, tmp_path):
    """Also for another process, which takes up the system that has grown with a question open."""

    def reward(arm, step):
        if of_auto:
            return 7 + 3 * math.cos(2 * float(arm) - 4 * CONTEXTS[step % 3, 0])
        value = math.cos(step / 2) + 0.1 * float(arm)
        return float(value > 0.3) if name == "binary" else 20.0 + value

    of_auto = name.split(", ")[0] in OF_AUTO
    live, fresh, twin = system(name, 6), system(name, 6), system(name, 9)
    context = CONTEXTS if of_auto else X[[3, 1, 4, 7, 5]]
    under = {"context": context[0]} if "contexts" in name else {}
    context = context if under else None
    alike(range(20, 40), reward, live, twin, hidden=FIRST_SIX, context=context)
    unit = live.unit
    late = live.ask(39.5, **under), twin.ask(39.5, FIRST_SIX, **under)
    for n, new in ((8, slice(6, 8)), (9, slice(8, 9))):
        known = {"features": X[new], "covariance": COVARIANCE[:n, :n], "prior_mean": MEANS[new]}
        live.add_arms(len(X[new]), **{key: known[key] for key in TOLD.get(name, ["features"])})
    assert (unit is None) == (live.unit is None)
    assert unit is None or all(torch.equal(a, b) for a, b in zip(unit, live.unit, strict=True))
    save_policy(tmp_path / "live.state", live)
    load_policy(tmp_path / "live.state", fresh)
    assert not differing(live.state_dict(), fresh.state_dict())
    for one, question in zip((fresh, twin), late, strict=True):
        assert one.tell(question.id, reward(question.arm, 39))
    alike(range(40, 60), reward, fresh, twin, context=context)
    # The search for length-scales, of which there is one for each arm that is counted, steps a little otherwise.
    close = 1e-3 if name == "any contexts, numbers" else 1e-7
    torch.testing.assert_close(
        fresh.predict(61.0, **under), twin.predict(61.0, **under), rtol=close, atol=close
    )
    fresh.retire_arms([6])
    assert fresh.beliefs(**under)["retired"].tolist() == [arm == 6 for arm in range(9)]
    assert "9 arms" in repr(fresh)
    if under:
        fresh.report(tmp_path / "live.html")


def test_arms_may_come_under_contexts_before_the_first_rewards_are_judged():
    """The second reward is an outlier, so at the fifth the policy starts again from the others."""
    live, twin = system("any contexts, numbers", 6), system("any contexts, numbers", 9)

    def reward(arm, step):
        return 1e6 if step == 1 else math.cos(2 * float(arm) - 4 * CONTEXTS[step % 3, 0])

    alike(range(3), reward, live, twin, hidden=FIRST_SIX, context=CONTEXTS)
    live.add_arms(3)
    alike(range(3, 20), reward, live, twin, context=CONTEXTS)
    assert live.policy.trace()["doubted"].tolist() == [1]


def test_learned_hyperparameters_stay_and_are_learned_on():
    live = AskTell(recipes.gp_ucb(X[:6], KERNEL, 0.05, learn_hyperparameters={"every": 10}))

    def reward(arm, step):
        return float(torch.sin(9 * X[arm]).sum()) + 0.1 * (step % 3)

    alike(range(25), reward, live)
    model, refits = live.policy.policy.model, live.policy.trace()["refits"].clone()
    expected = model.with_arms(X[6:]).marginals()
    live.add_arms(3, features=X[6:])
    grown = live.policy.policy.model
    now = dict(grown.prior.kernel.named_parameters())  # priors are in units of all arms' features
    for name, value in model.prior.kernel.named_parameters():
        assert torch.equal(value, now[name])
    assert not torch.equal(grown.noise_variance, torch.full((1,), 0.05).double())
    torch.testing.assert_close(grown.marginals(), expected)
    alike(range(25, 40), reward, live)
    assert (live.policy.trace()["refits"] > refits).all()
    again = pickle.loads(pickle.dumps(live.policy))
    torch.testing.assert_close(again.marginals(41.0), live.policy.marginals(41.0), rtol=0, atol=0)


def test_names_come_and_go():
    live = AskTell.auto(["a", "b", "c"])
    alike(range(9), lambda arm, step: float(step % 3), live)
    assert live.add_arms(["d", "e"]) == (3, 4)
    live.retire_arms(["a", "d"])
    assert live.names == ("a", "b", "c", "d", "e")
    assert live.retired == ("a", "d")
    asked = {live.ask(10.0 + step).name for step in range(12)}
    assert asked <= {"b", "c", "e"}
    assert live.ask(30.0, ["a", "d", "b"]).name == "b"
    assert live.ask(30.0, [True, False, True, True, False]).name == "c"
    believed = live.predict(30.0)[0][0, 0]
    assert live.add_arms(["a", "f"]) == (0, 5)
    assert live.predict(30.0)[0][0, 0] == believed
    assert live.retired == ("d",)
    assert repr(live).startswith("<AskTell ModelAveraging over 6 arms: a, b, c, d, e, f;")
    assert live.predict(31.0)[0].shape == (1, 6)


def test_arms_are_retired_as_a_column_of_their_beliefs_names_them():
    live = AskTell.auto(["a", "b", "c"])
    live.retire_arms(live.beliefs()["arm"][:1])
    assert live.retired == ("a",)
    assert live.add_arms(pd.Series(["a"])) == (0,)
    numbered = AskTell.auto(3)
    numbered.retire_arms(numbered.beliefs()["arm"].to_numpy()[1:])
    assert numbered.retired == (1, 2)


def test_gaps_are_to_the_best_of_the_arms_that_can_be_played():
    live = AskTell.auto(["a", "b", "c", "d"])
    alike(range(40), lambda arm, step: (100.0, 2.0, 1.0, 0.0)[int(arm)] + 0.1 * (step % 2), live)
    looks, weights = live.policy.looks, live.policy.sharing.weights
    mean = torch.tensor([[100.0, 2.0, 1.0, 0.0]]).double()
    none, here = torch.zeros(1, 4).double(), torch.tensor([False, True, True, True])
    rest = looks.first(none, mean, weights, 1.0, here)
    looks.unseen = looks.unseen[:, 1:]
    assert rest.amax() >= 1.0
    torch.testing.assert_close(rest[:, 1:], looks.first(none[:, 1:], mean[:, 1:], weights, 1.0, None))


def test_the_clock_of_a_new_arm_of_auto_begins_when_it_comes():
    live = AskTell.auto(X)
    alike(range(50), lambda arm, step: 1.0, live)
    before = live.policy.looks.unseen
    live.add_arms(2, features=torch.tensor([[7.0], [8.0]]).double())
    assert torch.equal(live.policy.looks.unseen, torch.cat([before, torch.zeros(1, 2).double()], -1))


OF_NAMES = "arms must be a list of different names"
OF_NUMBERS = "arms must be a list of different arms"
REFUSED = [  # a system, arms that are added, what else is told of them, and what it says
    ("named", ["a", "c"], {}, "arms must be new, or retired, got ['a']"),
    *(("named", arms, {}, OF_NAMES) for arms in (["c", "c"], [""], 2, "c")),
    ("named", ["c"], {"features": X[:1]}, "features must be None: the other arms have none"),
    ("numbered", 0, {}, "arms must be an integer >= 1"),
    ("numbered", [7], {}, f"{OF_NUMBERS}: numbers from 0 to 3"),
    ("numbered", True, {}, OF_NUMBERS),
    ("numbered", 1, {"prior_mean": X[0]}, "prior_mean must be None: all arms share one"),
    ("numbered", 1, {"covariance": torch.eye(4)}, "covariance must be None: no matrix was given"),
    ("features", 1, {}, "features must be given: the other arms have features"),
    ("features", 2, {"features": X[:1]}, "features must have shape (2, 1), a row for each new arm"),
    ("features", 1, {"features": X[:1] * torch.nan}, "features must be finite"),
    ("features", 1, {"features": X[:1].cdouble()}, "features must be real numbers"),
    ("features", 1, {"features": torch.ones(1, 2)}, "features must have shape (1, 1), a row"),
    ("matrix", 1, {}, "covariance must be given: the kernel is a matrix"),
    ("matrix", 1, {"covariance": torch.ones(5, 5)}, "covariance must be as given before"),
    ("built by hand", 1, {"features": X[:1]}, "policy must be made by a recipe"),
    ("history", 1, {}, "history must be None: it says nothing about arms added later"),
    ("domain", 1, {}, "policy must be over arms, not over the points of a domain"),
    ("kernel over indices", 1, {}, "kernel must be over features, or a matrix"),
    ("priors of matrices", 1, {}, "priors must be kernels over features"),
    ("priors over indices", 1, {}, "priors must be kernels over features"),
]
NOT_RETIRED = [
    ("named", ["x"], f"{OF_NUMBERS}: names among"),
    ("named", ["a", "a"], OF_NUMBERS),
    ("named", ["a", "b"], "arms must be fewer than all arms: one must remain"),
    ("domain", [0], "policy must be over arms, not over the points of a domain"),
]


def systems():
    K, ucb = torch.eye(4).double(), recipes.gp_ucb(X, KERNEL, 0.1).acquisition
    return {
        "named": AskTell.auto(["a", "b"]),
        "features": AskTell.auto(X[:6]),
        "numbered": AskTell.auto(4),
        "matrix": AskTell.auto(4, kernel=K),
        "built by hand": AskTell(IndexPolicy(gp(X, "static"), ucb, width=ConstantWidth(2.0))),
        "history": AskTell(recipes.auto(2, history=torch.randn(9, 2, dtype=torch.float64))),
        "domain": AskTell.auto({"price": (1.0, 2.0)}),
        "kernel over indices": AskTell(recipes.gp_ucb(4, ArmCovarianceKernel(K), 0.1)),
        "priors of matrices": AskTell(recipes.pe_gp_ucb(4, [CandidatePrior(K)] * 2, 0.1, horizon=50)),
        "priors over indices": AskTell(
            recipes.pe_gp_ucb(4, [CandidatePrior(ArmCovarianceKernel(K))] * 2, 0.1, horizon=50)
        ),
    }


def test_what_does_not_fit_is_refused_and_nothing_changes():
    live = systems()
    before = {name: one.state_dict() for name, one in live.items()}
    for name, arms, told, said in REFUSED:
        with pytest.raises(ValueError, match=re.escape(said)):
            live[name].add_arms(arms, **told)
    for name, arms, said in NOT_RETIRED:
        with pytest.raises(ValueError, match=re.escape(said)):
            live[name].retire_arms(arms)
    assert all(not differing(before[name], one.state_dict()) for name, one in live.items())


def test_the_covariance_of_arms_added_before_must_stay_too():
    live = AskTell.auto(4, kernel=torch.eye(4).double())
    live.add_arms(1, covariance=torch.eye(5).double())
    other = torch.eye(6).double()
    other[4, 4] = 2.0
    with pytest.raises(ValueError, match="covariance must be as given before for the first 5 arms"):
        live.add_arms(1, covariance=other)


def test_a_file_of_other_arms_is_refused_and_nothing_changes(tmp_path):
    live = AskTell.auto(["a", "b"])
    live.add_arms(["c"])
    live.ask(0.0)
    save_policy(tmp_path / "live.state", live)
    for names in (["a", "x"], ["a", "c"], ["a", "b", "c", "d"], ["b", "a"]):
        other = AskTell.auto(names)
        before = other.state_dict()
        with pytest.raises(ValueError, match=r"names|arms"):
            load_policy(tmp_path / "live.state", other)
        assert not differing(before, other.state_dict())


def test_who_has_taken_up_arms_in_vain_takes_the_file_of_another_process(tmp_path):
    path = tmp_path / "live.state"
    one, other = AskTell.auto(X[:6]), AskTell.auto(X[:6])
    save_policy(path, one)
    load_policy(path, other)
    other.add_arms(1, features=X[6:7])
    save_policy(path, other)
    one.add_arms(3, features=X[6:])
    with pytest.raises(ValueError, match="loaded or saved an earlier one"):
        save_policy(path, one)
    load_policy(path, one)
    assert one.num_arms == 7
    assert not differing(one.state_dict(), other.state_dict())
    twin = AskTell.auto(X[:6])
    twin.add_arms(1, features=X[8:])  # as many, but another
    load_policy(path, twin)
    assert torch.equal(twin.policy.model.arms, X[:7])
    twin.add_arms(1, features=X[8:])
    save_policy(path, twin)
    load_policy(path, one)
    assert torch.equal(one.policy.model.arms, torch.cat([X[:7], X[8:]]))


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("first", "told"),
    [(497, {}), (497, {"kernel": KERNEL}), (520, {}), (520, {"kernel": KERNEL, "noise_variance": 0.1})],
    ids=["few", "few, kernel", "many", "many, kernel"],
)
def test_auto_over_many_arms_grows_as_if_they_had_been_there(first, told, tmp_path):
    """Past the 500 arms from which on it begins otherwise, and where it began so; some new arms are far away."""
    generator = torch.Generator().manual_seed(6)
    arms = torch.rand(first + 6, 1, generator=generator, dtype=torch.float64)
    arms[first + 2 :] += 0.5
    if first < 500 and not told:
        arms = torch.arange(first + 6, dtype=torch.float64).unsqueeze(-1)  # no features: few members
    live, fresh = (AskTell.auto(arms[:first], look_again=0.0, **told) for _ in range(2))
    setup = Setup(arms, told.get("kernel"), told.get("noise_variance"), grown_from=first)
    twin = AskTell(recipes.auto(setup, look_again=0.0))
    hidden = torch.arange(first + 6) < first

    reward = lambda arm, step: torch.sin(9 * arms[arm, 0])  # noqa: E731
    alike(range(6), reward, live, twin, hidden=hidden)
    live.add_arms(2, features=arms[first : first + 2])
    live.add_arms(4, features=arms[first + 2 :])
    save_policy(tmp_path / "live.state", live)
    load_policy(tmp_path / "live.state", fresh)
    assert not differing(live.state_dict(), fresh.state_dict())
    alike(range(6, 14), reward, live, fresh, twin)
    torch.testing.assert_close(live.predict(15.0), twin.predict(15.0), rtol=1e-7, atol=1e-7)


def test_a_new_arm_of_exp3_s_has_the_average_weight():
    live = AskTell(recipes.exp3_s(4, horizon=50))
    alike(range(20), lambda arm, step: float(arm == 1), live)
    before = live.policy.state["weight"]
    live.add_arms(2)
    after = live.policy.state["weight"]
    torch.testing.assert_close(after[:, 4:], torch.full((1, 2), 1 / 6).double())
    torch.testing.assert_close(after[:, :4], before * 4 / 6)


@pytest.mark.parametrize("named", [("wet", "dry"), ()], ids=["listed", "numbers"])
def test_arms_are_added_under_the_contexts_of_a_log(named):
    """They are known from the log alone."""
    pulls = torch.arange(20) % 2
    log = Log(
        torch.arange(20.0),
        pulls,
        (pulls == 1).double(),
        contexts=(pulls * 1.0).unsqueeze(-1),
        context_names=named,
    )
    live, context = AskTell.auto(log=log), "wet" if named else 0.5
    before = live.predict(21.0, context=context)
    live.add_arms(1)
    after = live.predict(21.0, context=context)
    torch.testing.assert_close(after[0][:, :2], before[0], rtol=1e-8, atol=1e-8)
    assert len(live.beliefs(context=context)) == 3


def test_a_state_that_lacks_something_says_what():
    live = AskTell.auto(["a", "b"])
    live.tell(live.ask(0.0).id, 1.0)
    state = live.state_dict()
    for lost in state:
        with pytest.raises(ValueError, match=rf"\['{lost}'\] is missing"):
            live.load_state_dict({name: value for name, value in state.items() if name != lost})


@pytest.mark.parametrize("policy", [recipes.gp_ucb(X, KERNEL, 0.1), recipes.ucb1(X)], ids=["gp_ucb", "ucb1"])
def test_a_policy_that_starts_again_without_some_arms_tells_of_the_others(policy, monkeypatch):
    monkeypatch.setattr(type(policy), "restarts_with_arms", "its plans are over all arms")
    live = AskTell(policy)
    live.retire_arms([0])
    question = live.ask(1.0)
    live.tell(question.id, 2.0)
    table = live.beliefs()
    assert math.isnan(table["mean"][0])
    assert table["mean"].idxmax() == question.name > 0
    assert f"best now {question.name}" in repr(live)
