"""Bad things said to a policy or a model in mid-life: (what was said, call, names that the answer may use)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from bandits_torch import AskTell, recipes
from bandits_torch.policies import Observation, Pending, RegretBalancing
from tests.fuzz.living import (
    BAD_ARMS,
    BAD_AVAILABLE,
    BAD_COUNTS,
    BAD_DOMAINS,
    BAD_INDICES,
    BAD_POINTS,
    BAD_REWARDS,
    BAD_TIMES,
    BAD_WHERE,
    BAD_X,
    BAD_Y,
    MODELS,
    MORE,
    OVER_POINTS,
    S,
    model_of,
    policy_of,
    policy_over_points,
    state_of,
)

Said = tuple[str, Callable[[], Any], tuple[str, ...]]


def to_policy(policy: Any, step: float = 4.0) -> Iterator[Said]:
    """Observations that cannot be, and masks or domains that leave nothing."""
    choice = policy.choose(step)
    reward = torch.tensor([0.3, 0.4]).double()
    for what, arm in (BAD_POINTS if policy.dim else BAD_ARMS).items():
        yield (
            f"learn: arm {what}",
            lambda arm=arm: policy.learn(Observation(step, arm, reward, choice.why)),
            ("arm",),
        )
    for what, bad in BAD_REWARDS.items():
        yield (
            f"learn: reward {what}",
            lambda bad=bad: policy.learn(Observation(step, choice.arm, bad, choice.why)),
            ("reward", "rewards", "Y"),
        )
    for what, time in BAD_TIMES.items():
        yield (
            f"learn: time {what}",
            lambda time=time: policy.learn(Observation(time, choice.arm, reward, choice.why)),
            ("time",),
        )
    told = {"nothing": None, "text": "why"}
    needed = choice.why.keys() - {"turn", "certain"}
    if needed and needed != {"index"}:
        told |= {"empty": {}, "of others": {name: torch.zeros(3) for name in choice.why}}
    for what, why in told.items():
        yield (
            f"learn: why {what}",
            lambda why=why: policy.learn(Observation(step, choice.arm, reward, why)),
            ("why",),
        )
    for what, where in BAD_WHERE.items():
        yield f"reset: where {what}", lambda where=where: policy.reset(where), ("where",)
    pending = {f"time {what}": Pending(time, choice.arm, choice.why) for what, time in BAD_TIMES.items()}
    pending["why nothing"] = Pending(step, choice.arm, None)
    if isinstance(policy, RegretBalancing):
        pending |= {
            f"why {what}": Pending(step, choice.arm, why)
            for what, why in {**told, "other priors": {"prior": torch.tensor([0, 99])}}.items()
        }
    for what, one in pending.items():
        named = ("pending." + what.split()[0], "why")
        yield f"choose: pending {what}", lambda one=one: policy.choose_many(step, 1, None, [one]), named
    for what, bad in (BAD_DOMAINS if policy.dim else BAD_AVAILABLE).items():
        yield f"choose: available {what}", lambda bad=bad: policy.choose(step, bad), ("available",)


def times_to_policy(policy: Any) -> Iterator[Said]:
    """Times that cannot be, for a policy whose model drifts."""
    for what, time in {**BAD_TIMES, "backwards": 1.0}.items():
        yield f"choose: time {what}", lambda time=time: policy.choose(time), ("time",)


def to_ask_tell(asked: Any) -> Iterator[Said]:
    """Numbers of no question, rewards that are no numbers, times that are none."""
    question = asked.ask(4.0)
    for id in (-1, question.id + 1, 10**400, 0.0, 1.5, True, "0", None, torch.tensor(0), [0]):
        yield f"tell: id {str(id)[:9]}", lambda id=id: asked.tell(id, 1.0), ("id",)
    junk = {"a word": "1", "bytes": b"1", "too long an integer": 10**400, "a dict": {}, "a class": object}
    refused = {
        what: bad for what, bad in BAD_REWARDS.items() if what not in ("one for two", "list", "number")
    }
    refused.pop("no dimension")  # one number for all replicates
    for what, bad in (refused | junk).items():
        yield f"tell: reward {what}", lambda bad=bad: asked.tell(question.id, bad), ("reward",)
    for what, time in BAD_TIMES.items():
        yield f"ask: time {what}", lambda time=time: asked.ask(time), ("time",)
    arms = {
        "none": [],
        "one that is not here": [10**6],
        "half": [0.5],
        "booleans": [True],
        "twice": [0, 0],
        "0": 0,
    }
    for what, bad in (arms | junk | {"None": None, "a fraction": 1.5}).items():
        for act in (asked.add_arms, asked.retire_arms):
            yield f"{act.__name__}: {what}", lambda act=act, bad=bad: act(bad), ("arms", "policy")
    for what, bad in BAD_REWARDS.items():
        if bad is not None:
            told = {"features": bad, "prior_mean": bad, "covariance": bad}
            yield f"add_arms: {what}", lambda told=told: asked.add_arms(1, **told), (*told, "policy")


def to_model(name: str, model: Any) -> Iterator[Said]:
    """Inputs, targets, masks and counts that cannot be."""
    drifts = "drift" in name
    good_x = torch.tensor([[[0.0, 5.0]]]).double() if drifts else torch.zeros(1, 1, 1).double()
    good_x, good_y = good_x.expand(S, -1, -1), torch.ones(S, 1, 1).double()
    bad_x = dict(BAD_X) if name == "OnlineGP" else BAD_X | BAD_INDICES
    for what, X in bad_x.items():
        if drifts and isinstance(X, torch.Tensor) and X.dim() == 3 and X.shape[-1] == 1:
            X = torch.cat([X, torch.full_like(X, 5.0)], -1)
        yield f"observe: X {what}", lambda X=X: model.observe(X, good_y), ("X",)
        yield f"posterior: X {what}", lambda X=X: model.posterior(X), ("X",)
    for what, Y in BAD_Y.items():
        yield f"observe: Y {what}", lambda Y=Y: model.observe(good_x, Y), ("Y",)
    for what, where in BAD_WHERE.items():
        yield f"observe: where {what}", lambda where=where: model.observe(good_x, good_y, where), ("where",)
        yield f"reset: where {what}", lambda where=where: model.reset(where), ("where",)
        if model.can_forget:
            yield f"forget: where {what}", lambda where=where: model.forget(1, where), ("where",)
    if name.startswith("ArmGP"):
        yield from _to_arms(model, 5.0 if drifts else None)
    if model.can_forget:
        for what, count in BAD_COUNTS.items():
            yield f"forget: count {what}", lambda count=count: model.forget(count), ("count",)
    if drifts:
        for what, time in {**BAD_TIMES, "backwards": 1.0}.items():
            for call in ("candidates", "marginals", "joint"):
                if not (call != "candidates" and time is None):  # None is now
                    yield (
                        f"{call}: time {what}",
                        lambda call=call, time=time: getattr(model, call)(time),
                        ("time",),
                    )


def _to_arms(model: Any, time: float | None) -> Iterator[Said]:
    """Arms, rewards, masks and times that cannot be, of a model over arms that is told by index."""
    good_arm, good_reward = torch.tensor([0, 1]), torch.ones(S).double()
    told = (good_arm, good_reward, time)
    for what in ("too large", "negative", "floats", "booleans", "too many"):
        arm = BAD_ARMS[what]
        yield f"arms: arm {what}", lambda arm=arm: model.observe_arms(arm, good_reward, time), ("arm",)
    for what in ("NaN", "minus infinity", "too many"):
        reward = BAD_REWARDS[what]
        yield f"arms: reward {what}", lambda r=reward: model.observe_arms(good_arm, r, time), ("reward",)
    for what, where in BAD_WHERE.items():
        yield f"arms: where {what}", lambda where=where: model.observe_arms(*told, where), ("where",)
    if time is not None:
        for what, bad in {**BAD_TIMES, "backwards": 1.0}.items():
            yield f"arms: time {what}", lambda t=bad: model.observe_arms(good_arm, good_reward, t), ("time",)
        late, moved = (
            torch.tensor([[[0.0, 6.0], [1.0, 5.0]]]).double().expand(S, 2, 2),
            torch.arange(S).double(),
        )
        Y = torch.ones(S, 2, 1).double()
        yield "observe: times that decrease", lambda: model.observe(late, Y), ("X",)
        yield "observe: times of the past", lambda: model.observe(late.flip(-2) - 5.0, Y), ("X", "time")
        apart = late.flip(-2) + moved.reshape(S, 1, 1)
        yield "observe: times that differ between members", lambda: model.observe(apart, Y), ("X",)
        yield "observe: no times", lambda: model.observe(torch.zeros(S, 1, 1).double(), Y[:, :1]), ("X",)
        past = torch.tensor([[0.0, 1.0]]).double()
        yield "posterior: of the past", lambda: model.posterior(past), ("X", "time")


def _life_of_policy(
    build: Callable[..., Any], name: str, **options: Any
) -> tuple[Callable[[], Any], list[Said]]:
    policy = build(name, **options)
    policy.choose(4.0)  # draws ahead what the choice below would draw
    return policy.state_dict, [*to_policy(policy)]


def _life_of_drifting_policy(name: str, **options: Any) -> tuple[Callable[[], Any], list[Said]]:
    policy = policy_of(name, **options)
    return policy.state_dict, [*times_to_policy(policy)]


def _life_over_points_that_drift(name: str) -> tuple[Callable[[], Any], list[Said]]:
    policy = policy_over_points(name)  # which takes a past time
    return policy.state_dict, [said for said in times_to_policy(policy) if "backwards" not in said[0]]


def _life_of_ask_tell(name: str) -> tuple[Callable[[], Any], list[Said]]:
    policy = policy_of(name)
    asked = AskTell(policy)
    asked.ask(4.0)
    return asked.state_dict, [*to_ask_tell(asked), *to_policy(policy)]


def _life_of_model(name: str) -> tuple[Callable[[], Any], list[Said]]:
    model = model_of(name)
    return partial(state_of, model), [*to_model(name, model)]


# Each makes one in mid-life: a function that gives its state, and what is said to it.
LIVES: dict[str, Callable[[], tuple[Callable[[], Any], list[Said]]]] = {
    **{f"policy {name}": partial(_life_of_ask_tell, name) for name in recipes.RECIPES},
    **{
        f"policy {name} over points": partial(_life_of_policy, policy_over_points, name)
        for name in OVER_POINTS
    },
    **{
        f"policy sw_gp_ucb that learns {what}": partial(_life_of_policy, policy_of, "sw_gp_ucb", **options)
        for what, options in MORE.items()
    },
    "policy tv_gp_ucb, times": partial(_life_of_drifting_policy, "tv_gp_ucb", forgetting_rate=0.1),
    "policy ui_gp_ucb, times": partial(_life_of_drifting_policy, "ui_gp_ucb"),
    "policy predictive_sampling, times": partial(
        _life_of_drifting_policy, "predictive_sampling", forgetting_rate=0.1
    ),
    "policy auto with a control, times": partial(_life_of_drifting_policy, "auto", control=0),
    "policy tv_gp_ucb over points, times": partial(_life_over_points_that_drift, "tv_gp_ucb"),
    **{f"model {name}": partial(_life_of_model, name) for name in MODELS},
}
