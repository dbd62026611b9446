"""Bad things said to a policy or a model in mid-life: (what was said, call, names that the answer may use)."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from bandits_torch import ArmContext, AskTell, Domain, recipes
from bandits_torch.policies import Observation, Pending, RegretBalancing
from tests.fuzz.bad_values import INF, NAN
from tests.fuzz.living import (
    ARMS,
    CONTEXT,
    MODELS,
    STEPS,
    S,
    model_of,
    numbers,
    policy_of,
    policy_over_points,
    policy_under_contexts,
    state_of,
)

BAD_ARMS = {
    "too large": torch.tensor([0, 99]),
    "negative": torch.tensor([-1, 0]),
    "fractions": numbers(0.5, 1),
    "floats": numbers(0, 1),
    "booleans": torch.tensor([True, False]),
    "int32": torch.tensor([0, 1], dtype=torch.int32),
    "too many": torch.tensor([0, 1, 2]),
    "one for two": torch.tensor([0]),
    "no dimension": torch.tensor(0),
    "list": [0, 1],
    "number": 1,
    "text": "first",
    "nothing": None,
}
BAD_POINTS = {
    "NaN": torch.full((S, 2), NAN).double(),
    "infinite": torch.full((S, 2), INF).double(),
    "too many": torch.zeros(S + 1, 2).double(),
    "one for two": torch.zeros(1, 2).double(),
    "other dimension": torch.zeros(S, 3).double(),
    "indices": torch.tensor([0, 1]),
    "list": [[0.0, 0.0], [0.0, 0.0]],
    "text": "here",
    "nothing": None,
}
BAD_DOMAINS = {
    "another dimension": Domain(torch.tensor([[0.0], [1.0]]).double()),
    "a mask": torch.ones(2) > 0,
    "bounds alone": torch.tensor([[0.0, 0.0], [1.0, 1.0]]).double(),
    "text": "all",
}
BAD_REWARDS = {
    "NaN": numbers(NAN, 1),
    "infinity": numbers(1, INF),
    "minus infinity": numbers(-INF, 1),
    "whose squares overflow": numbers(1e155, -1e155),
    "too many": numbers(1, 2, 3),
    "one for two": numbers(1),
    "no dimension": torch.tensor(1.0).double(),
    "complex": torch.tensor([1j, 2j]),
    "list": [1.0, 2.0],
    "number": 1.0,
    "text": "much",
    "nothing": None,
}
BAD_TIMES = {
    "NaN": NAN,
    "infinite": INF,
    "text": "noon",
    "nothing": None,
    "list": [1.0],
    "beyond float64": 10**400,
}
BAD_CONTEXTS = {
    "none": ArmContext(),
    "nothing": None,
    "a number": 3.0,
    "a mask": torch.ones(ARMS) > 0,
    "by itself": CONTEXT.context,
    "too long": ArmContext(torch.zeros(2).double()),
    "of other replicates": ArmContext(torch.zeros(S + 1, 1).double()),
    "features of other arms": ArmContext(CONTEXT.context, torch.zeros(ARMS + 1, 2).double()),
    "features too wide": ArmContext(CONTEXT.context, torch.zeros(ARMS, 9).double()),
    "no arm left": ArmContext(CONTEXT.context, available=torch.zeros(ARMS) > 0),
}
NONE_OF_THE_LIST = {
    "another": ArmContext(CONTEXT.context + 0.01),
    "features": ArmContext(CONTEXT.context, torch.zeros(ARMS, 2).double()),
}
_X, _Y = torch.zeros(S, 1, 1).double(), torch.ones(S, 1, 1).double()
BAD_X = {
    "NaN": _X * NAN,
    "infinite": _X + INF,
    "one dimension": torch.zeros(1).double(),
    "other batch": torch.zeros(3, 1, 1).double(),
    "too many columns": torch.zeros(S, 1, 7).double(),
    "no rows": torch.zeros(S, 0, 1).double(),
    "list": [[0.0]],
    "nothing": None,
    "text": "here",
}
BAD_INDICES = {"arm too large": _X + 99, "negative arm": _X - 1, "fraction of an arm": _X + 0.5}
BAD_Y = {
    "NaN": _Y * NAN,
    "infinite": _Y - INF,
    "whose squares overflow": _Y * 1e155,
    "one dimension": torch.ones(1).double(),
    "other batch": torch.ones(3, 1, 1).double(),
    "two outputs": torch.ones(S, 1, 2).double(),
    "other rows": torch.ones(S, 2, 1).double(),
    "list": [[1.0]],
    "nothing": None,
    "text": "much",
}
BAD_WHERE = {"numbers": torch.ones(S), "too long": torch.ones(3) > 0, "list": [True, False], "text": "all"}
BAD_WHERE |= {"a column": torch.ones(S, 1) > 0, "a row": torch.ones(1, S) > 0}
BAD_HELD = {"numbers": torch.ones(S, 1), "other rows": torch.ones(S, 3) > 0, "nothing": None}
BAD_COUNTS = {
    "zero": 0,
    "negative": -1,
    "fraction": 1.5,
    "too many": 99,
    "text": "all",
    "nothing": None,
    "boolean": True,
    "beyond 64 bits": 10**400,
}


def bad_masks(n: int) -> dict[str, Any]:
    """What is no mask of ``n`` arms, or leaves none."""
    return {
        "none left": torch.zeros(n) > 0,
        "none left in one replicate": torch.tensor([[True] * n, [False] * n]),
        "numbers": torch.ones(n),
        "too long": torch.ones(n + 1) > 0,
        "other replicates": torch.ones(3, n) > 0,
        "list": [True] * n,
        "text": "all",
    }


Said = tuple[str, Callable[[], Any], tuple[str, ...]]
LATE = {**BAD_TIMES, "backwards": 1.0}
JUNK = {"a word": "1", "bytes": b"1", "too long an integer": 10**400, "a dict": {}, "a class": object}


def each(what: str, values: Mapping[str, Any], call: Callable[[Any], Any], *names: str) -> Iterator[Said]:
    """The same thing said with each of some values; an answer may use the names."""
    for kind, value in values.items():
        yield f"{what} {kind}", partial(call, value), names


def to_policy(
    policy: Any, under: Any = None, listed: bool = False, step: float = STEPS + 1.0
) -> Iterator[Said]:
    """Observations that cannot be, and masks, domains or contexts that leave nothing or are others."""
    choice = policy.choose(step, under)
    right = Observation(step, choice.arm, torch.tensor([0.3, 0.4]).double(), choice.why)

    def learn(**changes: Any) -> None:
        policy.learn(replace(right, **changes))

    points = BAD_POINTS if policy.dim else BAD_ARMS | {"one too large": torch.tensor([0, policy.num_arms])}
    yield from each("learn: arm", points, lambda bad: learn(arm=bad), "arm")
    yield from each("learn: reward", BAD_REWARDS, lambda bad: learn(reward=bad), "reward", "rewards", "Y")
    yield from each("learn: time", BAD_TIMES, lambda bad: learn(time=bad), "time")
    if not policy.outcome_names:
        yield "learn: outcomes", lambda: learn(outcomes=torch.ones(S, 1).double()), ("outcomes",)
    if policy.dim:
        yield "learn: a noise", lambda: learn(noise_variance=torch.ones(S).double()), ("noise_variance",)
    told: dict[str, Any] = {"nothing": None, "text": "why"}
    needed = choice.why.keys() - {"turn", "certain", "move", "left", "proposed", "predicted"}
    if needed and needed != {"index"}:
        told |= {"empty": {}, "of others": {name: torch.zeros(3) for name in choice.why}}
    if listed:
        told["not listed"] = {"inputs": choice.why["inputs"] + 0.01}
    yield from each("learn: why", told, lambda bad: learn(why=bad), "why")
    for key in choice.why.keys() - {"index", "certain", "width"}:  # which few read
        wrong = _no_notes(key, choice.why[key])
        yield from each(
            f"learn: {key}", wrong, lambda bad, key=key: learn(why={**choice.why, key: bad}), "why"
        )
    yield from each("reset: where", BAD_WHERE, policy.reset, "where")
    pending = {f"time {what}": Pending(time, choice.arm, choice.why) for what, time in BAD_TIMES.items()}
    pending["why nothing"] = Pending(step, choice.arm, None)
    if isinstance(policy, RegretBalancing) or under is not None:
        pending |= {
            f"why {what}": Pending(step, choice.arm, why)
            for what, why in {**told, "other priors": {"prior": torch.tensor([0, 99])}}.items()
        }
    for what, one in pending.items():
        named = ("pending." + what.split()[0], "why")
        yield f"choose: pending {what}", lambda one=one: policy.choose_many(step, 1, under, [one]), named
    for what, bad in points.items():
        one = Pending(step, bad, choice.why)
        ask = partial(policy.choose_many, step, 1, under, [one])
        yield f"choose: pending arm {what}", ask, ("pending.arm",)
    domains = BAD_DOMAINS if policy.dim else bad_masks(policy.num_arms)
    if under is None:
        yield from each("choose: available", domains, lambda bad: policy.choose(step, bad), "available")
    else:
        steps = BAD_CONTEXTS | (NONE_OF_THE_LIST if listed else {})
        for ask in (policy.choose, policy.marginals):
            names = "available", "context", "features"
            yield from each(f"{ask.__name__}: context", steps, partial(ask, step), *names)


def _no_notes(key: str, value: Any) -> dict[str, Any]:
    """What cannot stand in place of a note that a choice made for its reward: another shape, numbers of nothing."""
    if not isinstance(value, torch.Tensor):
        return {"text": "why", "negative": -1}
    wrong = {"text": "why", "too many": torch.cat([value, value])}
    if value.is_floating_point():
        wrong |= {"NaN": NAN * value}
    if key == "probability":
        wrong |= {"0": 0 * value, "above 1": 1 + value}
    if value.dtype == torch.int64 and key != "left":
        wrong |= {"too large": value + 99, "negative": -1 - value, "floats": value.double()}
    return wrong


def times_to_policy(policy: Any) -> Iterator[Said]:
    """Times that cannot be, for a policy whose model drifts."""
    return each("choose: time", LATE, policy.choose, "time")


def to_ask_tell(asked: Any) -> Iterator[Said]:
    """Numbers of no question, rewards that are no numbers, times that are none."""
    id = asked.ask(STEPS + 1.0).id
    ids = [-1, id + 1, 10**400, 0.0, 1.5, True, "0", None, torch.tensor(0), [0]]
    yield from each("tell: id", {str(bad)[:9]: bad for bad in ids}, lambda bad: asked.tell(bad, 1.0), "id")
    one_number = ("one for two", "list", "number", "no dimension")  # it is that of all replicates
    refused = {what: bad for what, bad in BAD_REWARDS.items() if what not in one_number}
    yield from each("tell: reward", refused | JUNK, lambda bad: asked.tell(id, bad), "reward")
    yield from each("ask: time", BAD_TIMES, asked.ask, "time")
    arms = {"none": [], "one that is not here": [10**6], "half": [0.5], "booleans": [True], "twice": [0, 0]}
    arms |= {"0": 0, "None": None, "a fraction": 1.5} | JUNK
    for act in (asked.add_arms, asked.retire_arms):
        yield from each(f"{act.__name__}:", arms, act, "arms", "policy")
    told = ("features", "prior_mean", "covariance")
    some = {what: bad for what, bad in BAD_REWARDS.items() if bad is not None}
    yield from each(
        "add_arms:", some, lambda bad: asked.add_arms(1, **dict.fromkeys(told, bad)), *told, "policy"
    )


def to_model(name: str, model: Any) -> Iterator[Said]:
    """Inputs, targets, masks and counts that cannot be."""
    drifts = "drift" in name
    good_x = torch.tensor([[[0.0, 5.0]]]).double() if drifts else torch.zeros(1, 1, 1).double()
    good_x, good_y = good_x.expand(S, -1, -1), torch.ones(S, 1, 1).double()
    bad_x = dict(BAD_X) if name == "OnlineGP" else BAD_X | BAD_INDICES
    for what, X in bad_x.items():
        if drifts and isinstance(X, torch.Tensor) and X.dim() == 3 and X.shape[-1] == 1:
            bad_x[what] = torch.cat([X, torch.full_like(X, 5.0)], -1)
    yield from each("observe: X", bad_x, lambda bad: model.observe(bad, good_y), "X")
    yield from each("posterior: X", bad_x, model.posterior, "X")
    yield from each("observe: Y", BAD_Y, lambda bad: model.observe(good_x, bad), "Y")
    yield from each("observe: where", BAD_WHERE, lambda bad: model.observe(good_x, good_y, bad), "where")
    yield from each("reset: where", BAD_WHERE, model.reset, "where")
    if name.startswith(("ArmGP", "OnlineGP")):
        one = torch.ones(S, 1) > 0
        yield from each("hold: X", bad_x, lambda bad: model.hold(bad, good_y, one), "X", "Y")
        yield from each("hold: Y", BAD_Y, lambda bad: model.hold(good_x, bad, one), "Y")
        yield from each("hold: held", BAD_HELD, lambda bad: model.hold(good_x, good_y, bad), "held")
    if name.startswith("ArmGP"):
        yield from _to_arms(model, 5.0 if drifts else None)
    if model.can_forget:
        yield from each("forget: where", BAD_WHERE, lambda bad: model.forget(1, bad), "where")
        yield from each("forget: count", BAD_COUNTS, model.forget, "count")
    if drifts:
        yield from each("candidates: time", LATE, model.candidates, "time")
        some = {what: time for what, time in LATE.items() if time is not None}  # None is now
        yield from each("marginals: time", some, model.marginals, "time")
        yield from each("joint: time", some, model.joint, "time")


def _to_arms(model: Any, time: float | None) -> Iterator[Said]:
    """Arms, rewards, masks and times that cannot be, of a model over arms that is told by index."""
    arm, reward = torch.tensor([0, 1]), torch.ones(S).double()
    arms = {what: BAD_ARMS[what] for what in ("too large", "negative", "floats", "booleans", "too many")}
    arms["one too large"] = torch.tensor([0, model.num_arms])
    yield from each("arms: arm", arms, lambda bad: model.observe_arms(bad, reward, time), "arm")
    rewards = {what: BAD_REWARDS[what] for what in ("NaN", "minus infinity", "too many")}
    yield from each("arms: reward", rewards, lambda bad: model.observe_arms(arm, bad, time), "reward")
    yield from each("arms: where", BAD_WHERE, lambda bad: model.observe_arms(arm, reward, time, bad), "where")
    if time is not None:
        yield from each("arms: time", LATE, lambda bad: model.observe_arms(arm, reward, bad), "time")
        late = torch.tensor([[[0.0, 6.0], [1.0, 5.0]]]).double().expand(S, 2, 2)
        apart = late.flip(-2) + torch.arange(S).double().reshape(S, 1, 1)
        Y = torch.ones(S, 2, 1).double()
        yield "observe: times that decrease", lambda: model.observe(late, Y), ("X",)
        yield "observe: times of the past", lambda: model.observe(late.flip(-2) - 5.0, Y), ("X", "time")
        yield "observe: times that differ between members", lambda: model.observe(apart, Y), ("X",)
        both = torch.ones(S, 2) > 0
        yield "hold: times that differ between members", lambda: model.hold(apart, Y, both), ("X",)
        yield "observe: no times", lambda: model.observe(torch.zeros(S, 1, 1).double(), Y[:, :1]), ("X",)
        past = torch.tensor([[0.0, 1.0]]).double()
        yield "posterior: of the past", lambda: model.posterior(past), ("X", "time")


Life = tuple[Callable[[], Any], list[Said]]


def _life_of_policy(build: Callable[..., Any], name: str, under: Any = None, **options: Any) -> Life:
    policy = build(name, **options)
    policy.choose(STEPS + 1.0, under)  # draws ahead what the choice below would draw
    return policy.state_dict, [*to_policy(policy, under, options.get("listed", False))]


def _life_of_drifting_policy(name: str) -> Life:
    policy = policy_of(name)
    return policy.state_dict, [*times_to_policy(policy)]


def _life_over_points_that_drift(name: str) -> Life:
    policy = policy_over_points(name)  # which takes a past time
    return policy.state_dict, [said for said in times_to_policy(policy) if "backwards" not in said[0]]


def _life_of_ask_tell(name: str) -> Life:
    policy = policy_of(name)
    asked = AskTell(policy)
    asked.ask(STEPS + 1.0)
    return asked.state_dict, [*to_ask_tell(asked), *to_policy(policy)]


def _life_of_model(name: str) -> Life:
    model = model_of(name)
    return partial(state_of, model), [*to_model(name, model)]


VARIANTS = ("sw_gp_ucb-likelihood", "sw_gp_ucb-learning", "auto-control", "auto-price")
DRIFTING = ("tv_gp_ucb", "ui_gp_ucb", "predictive_sampling", "auto-control")
OVER_POINTS = ("auto", "random", "gp_ucb", "gp_ts", "tv_gp_ucb", "et_gp_ucb", "pe_gp_ucb")
# Each makes one in mid-life: a function that gives its state, and what is said to it.
LIVES: dict[str, Callable[[], Life]] = {
    **{f"policy {name}": partial(_life_of_ask_tell, name) for name in recipes.RECIPES},
    **{f"policy {name}": partial(_life_of_policy, policy_of, name) for name in VARIANTS},
    **{
        f"policy {name} over points": partial(_life_of_policy, policy_over_points, name)
        for name in OVER_POINTS
    },
    **{f"policy {name}, times": partial(_life_of_drifting_policy, name) for name in DRIFTING},
    **{
        f"policy {name} under contexts, {listed=}": partial(
            _life_of_policy, policy_under_contexts, name, CONTEXT, listed=listed
        )
        for name in ("cgp_ucb", "auto")
        for listed in (True, False)
    },
    "policy tv_gp_ucb over points, times": partial(_life_over_points_that_drift, "tv_gp_ucb"),
    **{f"model {name}": partial(_life_of_model, name) for name in MODELS},
}
