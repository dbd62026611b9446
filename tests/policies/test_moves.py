"""Costly moves: limits that hold in every step, prices that are paid only where a move is worth them."""

import copy
import functools
from itertools import pairwise

import pytest
import torch
from gpytorch.kernels import RBFKernel

from bandits_torch import AskTell, Domain, recipes
from bandits_torch.border import Settings
from bandits_torch.checkpoint import described
from bandits_torch.policies import (
    CentredPolicy,
    ControlledPolicy,
    CostlyMoves,
    Observation,
    StandardisedPolicy,
)
from bandits_torch.recipes.registration import REGISTERED
from bandits_torch.testing import RecipeLaws
from tests.reference import all_recipes, plain_moves
from tests.reference.kernels import rbf

OVER_POINTS = [name for name, about in REGISTERED.items() if about.points]
BELIEVES = [name for name in OVER_POINTS if name in ("auto", "gp_ts", "gp_ei", "tv_gp_ucb", "et_gp_ucb")]
FAR = 0.04


def limited(name, replicates=2, far=FAR, **moves):
    policy, problem = all_recipes.build_over_points(name, replicates, 40)
    return CostlyMoves(policy, problem.domain, max_move=far, **moves), problem


def told(policy, problem, choice, step):
    reward = problem.expected(1 + step, choice.arm).detach()
    outcomes = torch.zeros(len(reward), len(policy.outcome_names)).double() if policy.outcome_names else None
    policy.learn(Observation(float(step), choice.arm, reward, choice.why, outcomes))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", OVER_POINTS)
def test_every_question_is_within_reach_of_the_one_asked_before(name):
    """In every replicate, through openings, draws and refits; of parallel, late and lost questions, too. Resumed: as
    "auto-moves" of ``all_recipes``."""
    policy, problem = limited(name)
    live = AskTell(policy)
    sides = (problem.domain.bounds[1] - problem.domain.bounds[0]).tolist()
    asked = []
    for step in range(5):
        questions = live.ask(float(step), count=2)
        asked += [question.arm for question in questions]
        first, second = (question.id for question in questions)
        reward = problem.expected(1 + step, questions[1].arm).detach()
        if step == 2:
            live.drop(ids=[second])  # the machine went there all the same
        elif policy.outcome_names:
            live.tell(second, reward, outcomes=torch.zeros(2, 1).double())
        else:
            live.tell(second, reward)
        if step == 3:
            live.drop(ids=live.open)
        live = copy.deepcopy(live)
        assert first in live.open or step == 3
    for k in range(2):
        assert 0.0 < plain_moves.furthest([points[k].tolist() for points in asked], sides) <= FAR + 1e-12
        assert bool(problem.domain.contains(torch.stack(asked)[:, k], 0.0).all())


def test_the_best_within_reach_is_found_in_every_replicates_box():
    """Against a grid of each box: the boxes, of other places and sizes, are searched as one."""
    domain = Domain(torch.tensor([[0.0, -2.0], [1.0, 2.0]]).double())
    low = torch.tensor([[0.1, -1.5], [0.7, 0.5], [0.4, -0.1]]).double()
    high = low + torch.tensor([[0.2, 1.0], [0.5, 0.4], [0.01, 0.1]]).double()
    kernel = RBFKernel().double()
    kernel.lengthscale = 0.3
    policy = recipes.gp_ucb(domain, kernel, 0.01, replicates=3, width=1.0, search={"raw_samples": 64})
    generator = torch.Generator().manual_seed(0)
    for step in range(8):
        x = domain.sample(8, step)[:3]
        policy.learn(Observation(float(step), x, torch.randn(3, generator=generator).double()))
    box = domain.within(low, high)
    found = policy.choose(9.0, box)
    assert torch.equal(box.bounds[1], torch.minimum(high, domain.bounds[1]))
    unit = torch.cartesian_prod(*[torch.linspace(0, 1, 60).double()] * 2).unsqueeze(1)
    grid = box.bounds[0] + unit * (box.bounds[1] - box.bounds[0])
    mean, variance = policy.choices.moments(grid, 9.0)
    best = (mean + variance.sqrt()).amax(-1)
    assert bool((found.why["index"] >= best - 1e-9).all())
    assert bool(box.contains(found.arm, 0.0).all())


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "over"),
    [(name, "arms") for name in ("auto", "tv_gp_ucb", "gp_ts")] + [(name, "points") for name in BELIEVES],
)
def test_it_stays_unless_a_move_gains_its_price_within_a_stay(name, over):
    """Against the rule in plain words, step by step; over arms with a mask."""
    build = all_recipes.build if over == "arms" else all_recipes.build_over_points
    inner, problem = build(name, 2, 40)
    domain, prices = (None, 0.4) if over == "arms" else (problem.domain, torch.tensor([3.0, 1.0]).double())
    policy = CostlyMoves(inner, domain, move_price=prices)
    now, moves, kinds = [None, None], [0, 0], set()
    for step in range(30 if over == "arms" else 12):
        mask = torch.arange(12) != step % 12 if over == "arms" else None
        twin = copy.deepcopy(policy.policy)
        wanted = twin.choose(float(step), mask).arm.tolist()
        choice = policy.choose(float(step), mask)
        inside = getattr(twin, "policy", twin)
        width = inside.width if name == "auto" else inside.used_width
        width = torch.as_tensor(1.0 if width is None else width).double().expand(2)

        def value(x, k, step=step, width=width):
            points, at = (None, x) if over == "arms" else (torch.tensor([x]).double(), 0)
            mean, variance = policy.marginals(float(step), points)
            return float(mean[k, at] + width[k] * variance[k, at].clamp_min(0).sqrt())

        for k, played in enumerate(choice.arm.tolist()):
            expected = wanted[k]
            if now[k] is not None and (mask is None or mask[now[k]]):
                price = prices
                if over == "points":  # of a square whose sides are 1
                    price = sum(
                        p * abs(a - b) for p, a, b in zip(prices.tolist(), now[k], wanted[k], strict=True)
                    )
                worth = functools.partial(value, k=k)
                expected = plain_moves.stays_or_goes(now[k], wanted[k], worth, price, step, moves[k])
                kinds.add("stays" if expected != wanted[k] else "goes" if expected != now[k] else "as wanted")
            assert played == pytest.approx(expected, abs=1e-9)
            moves[k] += now[k] is not None and played != now[k]
            now[k] = played
        if over == "points":
            told(policy, problem, choice, step)
        else:
            reward = torch.sin(0.3 * step + choice.arm.double())
            policy.learn(Observation(float(step), choice.arm, reward, choice.why))
    assert policy.trace()["moves"].tolist() == moves
    if over == "arms" or name in ("auto", "gp_ei"):
        assert kinds >= {"stays", "goes"}
        assert over == "points" or min(moves) > 0


def test_a_price_is_in_the_unit_of_rewards():
    for build in (
        lambda: recipes.auto(12, replicates=2),
        lambda: StandardisedPolicy(recipes.tv_gp_ucb(12, torch.eye(12).double(), 0.01, replicates=2)),
    ):
        played = []
        for unit in (1.0, 1024.0):
            policy, arms = CostlyMoves(build(), move_price=0.3 * unit), []
            for arm in range(2):  # until two rewards differ no unit is known
                reward = torch.full((2,), unit * arm).double()
                policy.learn(Observation(-1.0, torch.full((2,), arm), reward))
            for step in range(40):
                choice = policy.choose(float(step))
                reward = unit * torch.sin(0.1 * step + 1.3 * choice.arm.double())
                policy.learn(Observation(float(step), choice.arm, reward, choice.why))
                arms.append(choice.arm.tolist())
            played.append(arms)
        assert played[0] == played[1]


class TestAutoWithAPrice(RecipeLaws):
    name = "auto"
    options = {"move_price": 0.3}  # noqa: RUF012
    together = (
        "what auto has learned of units and of the pace of time; and a restart leaves a replicate at its arm"
    )
    scaled = "move_price is in units of reward"


def test_arms_that_come_are_priced_too():
    live = AskTell.auto(["a", "b"], move_price=0.2, start_at="b")
    for step in range(6):
        live.tell(live.ask(float(step)).id, float(step % 2))
    now = live.history()["arm"].iloc[-1]
    live.add_arms(["c"])
    assert isinstance(live.policy, CostlyMoves)
    assert live.policy.choose(6.0).arm.shape == (1,)
    assert live.names[int(live.policy.state_dict()["last"])] == now
    lone = AskTell(CostlyMoves(recipes.tv_gp_ucb(3, torch.eye(3).double(), 0.1), move_price=0.2))
    lone.add_arms(1, covariance=torch.eye(4).double())
    assert lone.policy.num_arms == 4


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (1, 3, 0, 2)])
def test_every_switch_is_counted_whatever_the_order_of_the_rewards(order):
    live = AskTell.auto(["a", "b"], move_price=1e-4, start_at="a")
    asked = [live.ask(float(t), [arm]) for t, arm in enumerate("babaa")]
    for k in order:
        live.tell(asked[k].id, float(k))
    live.drop(ids=[4])
    assert live.policy.trace()["moves"].tolist() == [4.0]


def test_the_next_setting_is_within_reach_of_the_start_or_of_what_was_measured_elsewhere_restart_or_not():
    there = torch.tensor([0.9, 0.1]).double()
    policy, _ = limited("auto", start_at=there)
    assert float((policy.choose(0.0).arm - there).abs().max()) <= FAR + 1e-12
    policy, _ = limited("gp_ucb")
    policy.learn(Observation(0.0, there.expand(2, 2), torch.zeros(2).double()))
    policy.reset(torch.tensor([True, False]))
    assert float((policy.choose(1.0).arm - there).abs().max()) <= FAR + 1e-12
    assert policy.policy.model.num_observations.tolist() == [0, 1]


def test_a_setting_told_in_another_dtype_has_not_moved():
    box = torch.tensor([[0.0], [1.0]])
    policy = CostlyMoves(recipes.gp_ucb(Domain(box), rbf(0.2), 0.01), Domain(box), max_move=0.5)
    there = torch.tensor([[0.3]], dtype=torch.float64)
    for step in range(3):
        policy.learn(Observation(float(step), there, torch.zeros(1)))
    assert policy.trace()["moves"].tolist() == [0.0]


@pytest.mark.parametrize("constrained", [True, False])
def test_constraints_and_fixed_coordinates_of_a_step_hold_within_reach(constrained):
    below = (torch.tensor([0, 1]), torch.tensor([-1.0, -1.0]).double(), -1.0)
    domain = Domain(torch.tensor([[0.0, 0.0], [1.0, 1.0]]).double(), [below] if constrained else [])
    search = {"num_restarts": 2, "raw_samples": 8, "options": {"maxiter": 5}}
    inner = recipes.gp_ucb(domain, RBFKernel(), 0.01, replicates=2 - constrained, search=search)
    policy, before = CostlyMoves(inner, domain, max_move=0.1), None
    for step in range(6):
        weather = torch.tensor([0.1, 0.9] if step % 2 else [0.8, 0.2]).double()
        choice = policy.choose(
            float(step), None if constrained else Domain(domain.bounds, fixed_features={1: weather})
        )
        assert bool(domain.contains(choice.arm).all())
        assert constrained or torch.equal(choice.arm[:, 1], weather)  # nature's, without a limit
        if before is not None:
            assert float((choice.arm - before)[:, : 1 + constrained].abs().max()) <= 0.1 + 1e-12
        policy.learn(Observation(float(step), choice.arm, choice.arm.sum(-1), choice.why))
        before = choice.arm


def test_settings_by_name_move_in_their_own_units():
    live = AskTell.auto(
        {"heat": (150.0, 250.0), "n": (5, 60, "log", "integer"), "k": (1, 9, "integer"), "mode": ["a", "b"]},
        max_move={"heat": 4.0, "k": 1, "n": 1.5},
        move_price={"mode": 3.0},
        start_at={"heat": 200.0, "n": 20, "k": 5, "mode": "a"},
        search={"num_restarts": 2, "raw_samples": 8, "initial": 5},
    )
    before, changes = {"heat": 200.0, "n": 20, "k": 5, "mode": "a"}, 0
    for step in range(18):
        question = live.ask(float(step))
        now = question.name
        assert abs(now["heat"] - before["heat"]) <= 4.0 + 1e-9
        assert abs(now["k"] - before["k"]) <= 1
        assert max(now["n"] / before["n"], before["n"] / now["n"]) <= 1.5 + 1e-9
        changes += now["mode"] != before["mode"]
        before = now
        live.tell(question.id, now["k"] + (now["mode"] == "b") - abs(now["heat"] - 180) / 20)
    assert before["k"] > 6
    assert changes < 9


def test_a_narrow_range_far_from_0_has_limits():
    live = AskTell.auto({"x": (1.3e9, 1.3e9 + 20)}, max_move=0.1, start_at={"x": 1.3e9 + 10})
    before = 1.3e9 + 10
    for step in range(4):
        question = live.ask(float(step))
        assert abs(question.name["x"] - before) <= 2.0 + 1e-6
        before = question.name["x"]
        live.tell(question.id, 0.0)


def test_moves_are_those_of_what_was_played_instead():
    policy = ControlledPolicy(
        CostlyMoves(recipes.gp_ts(4, torch.eye(4).double(), 1.0), move_price=0.1), 0, 0.5
    )
    arms = []
    for step in range(30):
        choice = policy.choose(float(step))
        arms.append(int(choice.arm))
        policy.learn(Observation(float(step), choice.arm, choice.arm.double(), choice.why))
    assert float(policy.trace()["moves"]) == sum(a != b for a, b in pairwise(arms))


@pytest.mark.parametrize("name", ["random", "pe_gp_ucb", "mle_gp_ucb", "safe_gp_ucb", "regret_balancing"])
def test_a_price_is_refused_by_name_where_there_are_no_beliefs(name):
    policy, problem = all_recipes.build_over_points(name, 1, 40)
    with pytest.raises(ValueError, match=f"move_price must be 0 .*{type(policy).__name__}"):
        CostlyMoves(policy, problem.domain, move_price=0.1)


def test_what_does_not_fit_is_refused_by_name():
    arms, (policy, problem) = recipes.gp_ucb(3, torch.eye(3).double(), 0.1), limited("gp_ucb")
    domain, inner, steps = problem.domain, policy.policy, Settings({"k": (1, 9, "integer")})
    line = steps.space.domain()
    stepping = CentredPolicy(CostlyMoves(recipes.gp_ucb(line, rbf(0.2), 0.1), line, max_move=0.1), 0.0)
    for build, message in (
        (lambda: CostlyMoves(arms, max_move=0.1), "max_move must be None over arms"),
        (lambda: CostlyMoves(arms, domain), "domain must be that of the policy"),
        (lambda: CostlyMoves(inner), "domain must be that of the policy"),
        (lambda: CostlyMoves(arms, move_price=1.0, start_at=3), "start_at must be an arm below 3"),
        (lambda: StandardisedPolicy(CostlyMoves(arms, move_price=1.0)), "holds a price in units of reward"),
        (
            lambda: CostlyMoves(CentredPolicy(ControlledPolicy(arms, 0), 1.0), move_price=1.0),
            "need its draws",
        ),
        (lambda: ControlledPolicy(CentredPolicy(ControlledPolicy(arms, 0), 1.0), 1), "not need its choices"),
        (lambda: ControlledPolicy(CentredPolicy(recipes.ucb1(3), 1.0), 1), "with marginals"),
        (lambda: CentredPolicy(arms, 1e141), r"prior_mean must be at most 1e\+140"),
        (lambda: AskTell(stepping, settings=steps), "a MixedSearch over .*: its moves are limited"),
        (lambda: recipes.auto(4, max_move=0.1), "max_move must be None over arms"),
        (lambda: AskTell.auto({"m": ["a", "b"]}, max_move={"m": 1.0}), r"max_move\['m'\] must be none"),
        (lambda: AskTell.auto({"k": (1, 9, "integer")}, max_move={"k": 0.5}), "at least 1, a whole step"),
        (lambda: AskTell.auto({"k": (1, 9, "log")}, max_move={"k": 1.0}), "a number above 1"),
        (lambda: AskTell.auto({"k": (1, 9)}, move_price={"j": 1.0}), "move_price"),
        (lambda: AskTell.auto({"k": (1, torch.inf, "integer")}), r"k must be \(low, high\)"),
        (lambda: AskTell.auto(["a", "b"], start_at="c"), "start_at"),
    ):
        with pytest.raises(ValueError, match=message):
            build()


def test_from_a_setting_outside_its_domain_a_policy_moves_as_from_the_nearest_point():
    policy, _ = limited("gp_ucb", 1)
    outside = torch.tensor([[3.0, 0.5]]).double()
    policy.learn(Observation(0.0, outside, torch.zeros(1).double()))
    choice = policy.choose(1.0)
    low, high = policy.domain.bounds
    moved = (choice.arm - outside.clamp(low, high)).abs() / (high - low)
    assert float(moved.max()) <= FAR + 1e-12
    assert bool(policy.domain.contains(choice.arm, 0.0))


@pytest.mark.parametrize("beyond", [0.0, 0.3])
def test_a_step_that_leaves_at_most_one_point_within_reach_is_refused_and_changes_nothing(beyond):
    policy, _problem = limited("gp_ucb", 1, start_at=torch.tensor([0.125, 0.125]).double())
    side = policy.domain.bounds[1] - policy.domain.bounds[0]
    low = 0.125 + float(FAR * side[0]) + beyond
    before = described(policy.state_dict())
    with pytest.raises(ValueError, match="available must be a domain with more than one point within reach"):
        policy.choose(0.0, Domain(torch.tensor([[low, 0.0], [1.0, 1.0]], dtype=torch.float64)))
    assert described(policy.state_dict()) == before
