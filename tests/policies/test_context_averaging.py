"""Contexts in ``auto``: a slow twin over pairs, boxes that widen, what matters, live systems, and bad input."""

import math
from itertools import product

import pytest
import torch
from gpytorch.kernels import MaternKernel, ScaleKernel

from bandits_torch import ArmContext, AskTell, make, recipes, run
from bandits_torch.models import PointMembers, WideningMembers
from bandits_torch.policies import ContextAveraging, Observation, PairAveraging
from bandits_torch.policies.choices.contexts import number_of
from bandits_torch.state import differing
from tests.reference.dense_priors import DensePrior
from tests.reference.kernels import rbf as kernel
from tests.reference.plain_averaging import Member, PlainAveraging

S, N, M, C = 2, 4, 3, 2
draw = torch.Generator().manual_seed(0)
ARMS = torch.rand(N, 1, generator=draw).double()
CONTEXTS = torch.rand(M, C, generator=draw).double()
WAYS = {"listed": {"contexts": CONTEXTS}, "any": {"context_dim": C}}


def reward_of(arm, context, arms=ARMS):
    """(S,): the best arm lies where the context's first number says; the second says nothing."""
    return 3 * torch.cos(4 * (arms[arm, 0] - context.expand(S, -1)[:, 0])) - 20


def step_of(k):
    number = torch.tensor([k % M, (k + 1) % M]) if k % 2 else torch.tensor(k % M)
    mask = (torch.arange(N) != k % N) if k % 3 == 0 else None
    return ArmContext(CONTEXTS[number], available=mask)


def play(policy, steps, first=0):
    arms = []
    for k in range(first, first + steps):
        step = step_of(k)
        choice = policy.choose(float(k), step)
        policy.learn(Observation(float(k), choice.arm, reward_of(choice.arm, step.context), choice.why))
        arms.append(choice.arm.tolist())
    return arms


def spread(x):
    return (x - x.mean(0)) / (math.sqrt(12) * x.std(0, unbiased=False))


def matern(x, scale):
    K = torch.zeros(len(x), len(x)).double()
    for i, j in product(range(len(x)), repeat=2):
        r = math.sqrt(5) * float((x[i] - x[j]).norm()) / (scale * math.sqrt(x.shape[-1]))
        K[i, j] = (1 + r + r * r / 3) * math.exp(-r)
    return K


def over_pairs(A, Z, whole=1.0, shift=0.0, own=0.0):
    K = torch.zeros(N * M, N * M).double()
    for (i, z), (j, w) in product(product(range(N), range(M)), repeat=2):
        K[i * M + z, j * M + w] = 1 + whole * A[i, j] * Z[z, w] + own * A[i, j] + shift * Z[z, w]
    return K


def plain_members():
    """As the docstring of ``families_of_pairs`` has them."""
    x, z, apart = spread(ARMS), spread(CONTEXTS), torch.eye(M).double()
    related, alike = ([matern(rows, scale) for scale in (0.1, 0.3, 0.8)] for rows in (x, z))
    same, alone = torch.ones(M, M).double(), [matern(z[:, k : k + 1], 0.3) for k in range(C)]
    shapes = [*product(related, [same, *alike, *alone])]
    shapes += [(torch.eye(N).double(), Z) for Z in (same, alike[1], apart)] + [(related[1], apart)]
    shapes += [(related[1], alike[1], whole, 4.0, 1.0) for whole in (0.0, 1.0)]
    return [
        Member(DensePrior(over_pairs(*shape), torch.zeros(N * M).double(), rate, noise), 1.0, 0.0, True)
        for shape in shapes
        for noise in (0.01, 0.3)
        for rate in (0.0, 0.01, 0.03, 0.1)
    ]


def test_listed_contexts_are_chosen_under_as_by_the_plain_twin_over_pairs() -> None:
    policy = recipes.auto(ARMS, contexts=CONTEXTS, replicates=S)
    rules = {"share": 0.001, "behind": 12.0, "memory": 0.9, "forget": 0.99, "tail": 8.0, "clip": 4.0}
    twins = [PlainAveraging(plain_members(), **rules, width=1.25, wide=0.0, plausible=4.0) for _ in range(S)]
    for k in range(24):
        step, numbers = step_of(k), [(k + s) % M if k % 2 else k % M for s in range(S)]
        mean, variance = policy.marginals(float(k), step)
        _, means, _ = policy.components(float(k), step)
        choice = policy.choose(float(k), step)
        for s, twin in enumerate(twins):
            of_context = [arm * M + numbers[s] for arm in range(N)]
            if k:
                m, v = (moment[of_context] for moment in twin.predict(float(k)))
                torch.testing.assert_close(mean[s], m, rtol=0, atol=1e-7)
                torch.testing.assert_close(variance[s], v, rtol=1e-6, atol=1e-7)
                assert means.shape == (S, len(twin.members), N)
            index = twin.index(float(k))[of_context]
            index[[not x for x in ([True] * N if step.available is None else step.available)]] = -torch.inf
            assert float(index[choice.arm[s]]) >= float(index.max()) - 1e-7
        reward = reward_of(choice.arm, step.context)
        policy.learn(Observation(float(k), choice.arm, reward, choice.why))
        for s, twin in enumerate(twins):
            twin.learn(int(choice.arm[s]) * M + numbers[s], float(reward[s]), float(k))


def test_members_whose_box_widens_are_those_of_the_whole_box() -> None:
    grid = (torch.tensor([[0.2, 0.4], [0.7, 0.7]]).double(), torch.tensor([0.01, 0.1]).double())
    grid += (torch.tensor([0.0, 0.05]).double(), torch.tensor([torch.inf, torch.inf]).double())
    x = torch.randn(12, S, 2, generator=torch.Generator().manual_seed(1)).double() * 50 + 1e4
    y, weights = torch.randn(12, S, 1).double(), torch.full((S, 2), 0.5).double()
    widening = WideningMembers(
        torch.zeros(2).bool(), torch.tensor([[0.0] * 2, [1.0] * 2]).double(), *grid, replicates=S
    )
    for k in range(12):
        widening.observe(x[k], y[k].expand(S, 2), float(k), weights)
    for s in range(S):
        box = torch.stack([x[:, s].amin(0), x[:, s].amax(0)])
        whole = PointMembers(box, *grid)
        for k in range(12):
            whole.observe(x[k, s : s + 1], y[k, s : s + 1].expand(1, 2), float(k), weights[:1])
        at, then = x[:5].transpose(0, 1) + 1.0, torch.full((S, 5), 12.0).double()
        ours, theirs = widening.moments(at, then), whole.moments(at[s : s + 1], then[:1])
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one[s], other[0], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("told", [False, True])
def test_choices_depend_on_the_context_and_a_replicate_plays_alone_as_in_a_batch(way, told) -> None:
    more = {"kernel": kernel(0.4), "noise_variance": 0.01, "context_kernel": kernel(0.4)} if told else {}
    policy = recipes.auto(ARMS, **WAYS[way], **more, replicates=S)
    arms = play(policy, 40)
    for context in CONTEXTS:
        mean, _ = policy.marginals(40.0, ArmContext(context))
        short = reward_of(mean.argmax(-1), context) - torch.stack(
            [reward_of(torch.full((S,), arm), context) for arm in range(N)]
        ).amax(0)
        assert float(short.min()) > -0.3  # of a range of 6
    for s in range(S):
        alone = recipes.auto(ARMS, **WAYS[way], **more)
        for k in range(40):
            step = step_of(k)
            context = step.context.expand(S, C)[s]
            choice = alone.choose(float(k), ArmContext(context, available=step.available))
            assert choice.arm.tolist() == [arms[k][s]]
            alone.learn(Observation(float(k), choice.arm, reward_of(choice.arm, context)[:1], choice.why))


def test_names_of_arms_and_of_contexts() -> None:
    live = AskTell.auto(["small", "large"], contexts=["phone", "desk"])
    best = {"phone": "small", "desk": "large"}
    for k in range(40):
        context = ("phone", "desk")[k % 2]
        question = live.ask(float(k), context=context)
        live.tell(question.id, 100.0 + 5.0 * (question.name == best[context]))
    for context, name in best.items():
        beliefs = live.beliefs(context=context).set_index("arm")
        assert beliefs["mean"].idxmax() == name
        assert bool((beliefs["lower"] < beliefs["upper"]).all())
        assert live.ask(40.0, ["small"], context=context).name == "small"
    with pytest.raises(ValueError, match="context must be"):
        live.ask(41.0, context="tablet")
    with pytest.raises(ValueError, match="None together with an ArmContext"):
        live.ask(41.0, ArmContext(torch.zeros(1)), context="desk")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_listed_context_is_found_in_either_dtype(dtype: torch.dtype) -> None:
    live = AskTell.auto(3, contexts=torch.tensor([[0.1], [0.5]], dtype=dtype))
    for context in (0.1, torch.tensor([0.1]), torch.tensor([0.1]).double(), 0.5):
        assert live.ask(0.0, context=context).arm.shape == (1,)
    with pytest.raises(ValueError, match=r"context must be one of the 2 contexts given, got \[0.1001\]"):
        live.ask(0.0, context=0.1001)
    alike = torch.tensor([[2.0**24], [2.0**24 + 1]], dtype=torch.float64)  # one number in float32
    assert number_of("context", alike, alike).tolist() == [0, 1]
    with pytest.raises(ValueError, match="one of the 2 contexts given"):
        number_of("context", alike[:1] + 0.5, alike)


def test_what_matters_is_learned_and_can_be_told() -> None:
    """The second number of the context is noise: told so, or with time, it no longer moves a belief."""
    free = torch.Generator().manual_seed(2)
    told, learned = (recipes.auto(ARMS, context_dim=C, matters=matters) for matters in ([0], None))
    for k in range(60):
        context = torch.rand(C, generator=free).double()
        for policy in (told, learned):
            choice = policy.choose(float(k), ArmContext(context))
            reward = 3 * torch.cos(4 * (ARMS[choice.arm, 0] - context[0]))
            policy.learn(Observation(float(k), choice.arm, reward, choice.why))

    def moved(policy, column):
        there = torch.full((C,), 0.3).double()
        beyond = there.clone()
        beyond[column] = 0.7
        means = [policy.marginals(60.0, ArmContext(x))[0] for x in (there, beyond)]
        return float((means[0] - means[1]).abs().max())

    assert moved(told, 1) == 0.0
    assert moved(learned, 1) < 0.2 * moved(learned, 0)


@pytest.mark.parametrize("way", WAYS)
def test_the_loop_plays_contexts(way) -> None:
    problem = make("contextual-gp", num_arms=6, num_contexts=5, replicates=2, seed=4)
    told = {"contexts": problem.contexts} if way == "listed" else {"context_dim": 1}
    regrets = [
        run(policy, problem, 60).mean_cumulative_regret
        for policy in (recipes.auto(problem.arms, **told, replicates=2), recipes.random(6, replicates=2))
    ]
    assert regrets[0] < 0.5 * regrets[1]
    built = recipes.build("auto", problem, replicates=2, horizon=20)  # told both kernels
    assert type(built).__name__ == "ContextAveraging"
    scaled = [ScaleKernel(kernel(0.4)).double() for _ in range(2)]
    scaled[0].outputscale, scaled[1].outputscale = 2.0, 4.0
    of_both = {"kernel": scaled[0], "context_kernel": scaled[1], "noise_variance": 0.4, "context_dim": 1}
    noises = recipes.auto(problem.arms, **of_both).policy.members.beginning[1]
    assert noises.tolist() == pytest.approx([0.02] * 7 + [0.4 / (2 * 4)] * 14)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"contexts": CONTEXTS, "context_dim": 1}, "contexts must have shape"),
        ({"context_dim": 2, "matters": [2]}, "matters must be"),
        ({"context_dim": 2, "matters": []}, "matters must be"),
        ({"matters": [0]}, "matters must be None without a context"),
        ({"context_kernel": kernel(0.4)}, "context_kernel must be None without a context"),
        ({"context_dim": 2, "context_kernel": kernel(0.4)}, "context_kernel must be given if kernel is"),
        ({"context_dim": 2, "kernel": kernel(0.4)}, "context_kernel must be given if kernel is"),
        ({"context_dim": 2, "look_again": 3.0}, "look_again must be 0 if contexts are not listed"),
        ({"context_dim": 2, "plausible": 3.0}, "plausible must be 4.0 if contexts are not listed"),
        (
            {"contexts": CONTEXTS, "history": torch.rand(20, N).double()},
            "history must be None under contexts",
        ),
        (
            {"context_dim": 1, "kernel": kernel(0.4), "context_kernel": kernel(0.4), "prior_mean": 3.0},
            "prior_mean must be 0 if contexts are not listed",
        ),
        ({"contexts": 300, "arms": 4}, "contexts must be features, or at most 500 pairs of arm and context"),
        (
            {"context_dim": 1, "arms": 4, "kernel": MaternKernel().double(), "context_kernel": kernel(0.4)},
            "kernel must be None for arms without features",
        ),
    ],
)
def test_what_does_not_fit_is_refused_by_name(options, match) -> None:
    with pytest.raises(ValueError, match=match):
        recipes.auto(options.pop("arms", ARMS), **options)


def test_policies_over_other_pairs_and_inputs_are_refused() -> None:
    pairs, points = (recipes.auto(ARMS, **WAYS[way]).policy for way in WAYS)
    for build, match in (
        (lambda: PairAveraging(pairs, ARMS[:2], CONTEXTS), "policy must be over 6 pairs"),
        (lambda: PairAveraging(points, ARMS, CONTEXTS), "policy must be a ModelAveraging"),
        (lambda: PairAveraging(pairs, ARMS, CONTEXTS.expand(2, M, C)), "contexts must have shape"),
        (lambda: ContextAveraging(points, ARMS, C + 1), "policy must be over 4 inputs"),
        (lambda: ContextAveraging(points, ARMS * torch.nan, C), "arms must be"),
        (lambda: ContextAveraging(pairs, ARMS, C), "policy must be a PointAveraging"),
        (
            lambda: WideningMembers(torch.ones(2), torch.rand(2, 2), *[torch.ones(2)] * 4),
            "known must have shape",
        ),
    ):
        with pytest.raises(ValueError, match=match):
            build()


def test_the_inputs_of_an_arm_without_features_begin_with_its_number():
    policy, step = recipes.auto(4, context_dim=2), ArmContext(torch.tensor([0.1, 0.2]).double())
    choice = policy.choose(0.0, step)
    before = policy.state_dict()
    for number in (float(choice.arm) + 1, 99.0, -1.0, 1.5):
        inputs = choice.why["inputs"].clone()
        inputs[:, 0] = number
        with pytest.raises(ValueError, match=r"why\['inputs'\] must be those of arm"):
            policy.learn(Observation(0.0, choice.arm, torch.ones(1).double(), {"inputs": inputs}))
    assert differing(before, policy.state_dict()) == []
    policy.learn(Observation(0.0, choice.arm, torch.ones(1).double(), choice.why))


def test_pairs_are_looked_at_again_as_arms_are_but_not_where_they_are_many_and_related():
    def looks(**told):
        found = recipes.auto(ARMS, **told).policy.looks
        return None if found is None else (found.every, found.at_once)

    many = torch.linspace(0, 1, 20).double().unsqueeze(-1)
    assert looks(contexts=M) == (7.0, 0)
    assert looks(contexts=20) == (7.0 * math.sqrt(4 * 20 / 30), 0)
    assert looks(contexts=CONTEXTS) == (12.0, 0)
    assert looks(contexts=many) is looks(contexts=M, look_again=0.0) is None
    assert looks(contexts=many, look_again=12.0) == (12.0, 6)
