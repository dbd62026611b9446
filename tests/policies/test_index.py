"""IndexPolicy: it plays the best available arm, choosing changes nothing, and its state comes back."""

import math

import pytest
import torch
from botorch.acquisition import AcquisitionFunction, LogExpectedImprovement
from gpytorch.kernels import RBFKernel

from bandits_torch.acquisition.thompson_sampling import ThompsonSampling
from bandits_torch.acquisition.upper_confidence_bound import UpperConfidenceBound
from bandits_torch.kernels import ArmCovarianceKernel, ExponentialForgettingKernel, SpatioTemporalKernel
from bandits_torch.models.arm_gp import ArmGP
from bandits_torch.models.online_gp import OnlineGP
from bandits_torch.policies.forgetting import EventTriggeredRestart, PeriodicRestart, SlidingWindow
from bandits_torch.policies.index import IndexPolicy
from bandits_torch.policies.policy import Observation
from bandits_torch.theory.prior_widths import SrinivasBayesianWidth
from bandits_torch.theory.widths import ConstantWidth
from tests.reference.arm_gp_twins import smooth

N, S = 6, 3
ARMS = torch.linspace(0, 1, N).double().unsqueeze(-1)
KERNEL = RBFKernel().double()
KERNEL.lengthscale = 0.3


def drifting(space):
    return SpatioTemporalKernel(space, ExponentialForgettingKernel(torch.tensor(0.1).double()))


def arm_gp(batch=(S,), **options):
    return ArmGP(ARMS, options.pop("kernel", KERNEL), 0.1, batch_shape=batch, **options)


POLICIES = {
    "ucb": lambda: IndexPolicy(arm_gp(), UpperConfidenceBound, width=ConstantWidth(2.0)),
    "one replicate": lambda: IndexPolicy(arm_gp(()), UpperConfidenceBound, width=ConstantWidth(2.0)),
    "thompson": lambda: IndexPolicy(arm_gp(), ThompsonSampling, width=ConstantWidth(1.0), seed=3),
    "factor": lambda: IndexPolicy(
        arm_gp(form="factor"), UpperConfidenceBound, width=SrinivasBayesianWidth(N, 0.1)
    ),
    "window": lambda: IndexPolicy(
        arm_gp(), UpperConfidenceBound, width=ConstantWidth(2.0), forgetting=SlidingWindow(4)
    ),
    "restart": lambda: IndexPolicy(
        arm_gp(), UpperConfidenceBound, width=SrinivasBayesianWidth(N, 0.1), forgetting=PeriodicRestart(4)
    ),
    "event": lambda: IndexPolicy(
        arm_gp(), ThompsonSampling, width=ConstantWidth(1.0), forgetting=EventTriggeredRestart(0.5)
    ),
    "drift": lambda: IndexPolicy(
        arm_gp(kernel=drifting(KERNEL)), ThompsonSampling, width=ConstantWidth(1.0), seed=1
    ),
    "drift and window": lambda: IndexPolicy(
        arm_gp(kernel=drifting(KERNEL)),
        UpperConfidenceBound,
        width=ConstantWidth(2.0),
        forgetting=SlidingWindow(3),
    ),
    "online": lambda: IndexPolicy(
        OnlineGP(KERNEL, 0.1, input_dim=1, batch_shape=(S,)),
        ThompsonSampling,
        width=ConstantWidth(1.0),
        arms=ARMS,
    ),
    "online, drift": lambda: IndexPolicy(
        OnlineGP(drifting(KERNEL), 0.1, input_dim=2),
        UpperConfidenceBound,
        width=ConstantWidth(2.0),
        arms=ARMS,
    ),
}


def rewards(policy, step):
    """A jump at step 8, so that events fire."""
    arm = torch.arange(policy.replicates)
    return torch.sin(step + arm.double()) + (30.0 if step >= 8 else 0.0)


def play(policy, steps, first=1):
    """The arms chosen at the steps, one row each."""
    chosen = []
    for step in range(first, first + steps):
        choice = policy.choose(float(step))
        chosen.append(choice.arm.clone())
        policy.learn(Observation(float(step), choice.arm, rewards(policy, step), choice.why))
    return torch.stack(chosen)


def assert_same_state(a, b):
    """Two nested states are equal to the last bit."""
    assert type(a) is type(b)
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            assert_same_state(a[key], b[key])
    elif isinstance(a, list | tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_same_state(x, y)
    elif isinstance(a, torch.Tensor):
        assert torch.equal(a, b)
    else:
        assert a == b


# -- choosing ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", POLICIES)
def test_choosing_changes_nothing_but_the_random_streams(name):
    policy = POLICIES[name]()
    play(policy, 10)
    before = policy.state_dict()
    for _ in range(3):
        policy.choose(11.0, torch.rand(N) < 2)
    after = policy.state_dict()
    before.pop("streams")
    after.pop("streams")
    assert_same_state(before, after)


@pytest.mark.parametrize("name", ["ucb", "drift", "online", "online, drift"])
def test_plays_the_arm_of_the_largest_index(name):
    policy = POLICIES[name]()
    play(policy, 5)
    if policy.acquisition is ThompsonSampling:
        policy.acquisition, policy.width = UpperConfidenceBound, ConstantWidth(2.0)
    mean, deviation = zip(
        *[policy.predict(torch.full((policy.replicates,), k), 6.0) for k in range(N)], strict=True
    )
    index = torch.stack(mean) + 2.0 * torch.stack(deviation)
    assert torch.equal(policy.choose(6.0).arm, index.argmax(0))


def test_a_botorch_acquisition_drives_it_too():
    policy = IndexPolicy(arm_gp(()), lambda model: LogExpectedImprovement(model, best_f=0.3))
    play(policy, 4)
    expected = LogExpectedImprovement(policy.model, best_f=0.3)(policy.model.candidates()).argmax()
    assert policy.choose(5.0).arm.tolist() == [int(expected)]


def test_masks_are_respected_at_every_step_and_replicate():
    policy = POLICIES["ucb"]()
    for step in range(1, 40):
        mask = torch.rand(S, N) < 0.3
        mask[torch.arange(S), torch.randint(N, (S,))] = True
        mask = mask if step % 2 else mask[0]
        choice = policy.choose(float(step), mask)
        assert mask.expand(S, N).gather(1, choice.arm.unsqueeze(1)).all()
        policy.learn(Observation(float(step), choice.arm, rewards(policy, step)))


class Scores(AcquisitionFunction):
    """Scores laid down beforehand, N x S."""

    def __init__(self, model, scores):
        super().__init__(model)
        self.scores = scores

    def forward(self, X):
        return self.scores


def chosen(scores, available=None):
    scores = torch.tensor(scores, dtype=torch.float64)
    model = ArmGP(len(scores), smooth(len(scores)), 0.1, batch_shape=(scores.shape[1],))
    return IndexPolicy(model, lambda m: Scores(m, scores)).choose(1.0, available).arm.tolist()


def mask(*values):
    return torch.tensor(values, dtype=torch.bool)


NAN, INF = math.nan, math.inf


def test_ties_go_to_the_smallest_index():
    assert chosen([[1.0, 2.0], [3.0, 2.0], [3.0, 1.0]]) == [1, 0]


def test_a_nan_index_loses_to_any_number():
    assert chosen([[NAN, -1e300], [-1e300, NAN], [NAN, NAN]]) == [1, 0]


def test_an_infinite_index_wins_and_minus_infinity_loses():
    assert chosen([[1e308, -INF], [INF, -1e308]]) == [1, 1]


@pytest.mark.parametrize("bad", [NAN, -INF])
def test_an_unavailable_arm_is_not_chosen_even_where_no_available_index_is_a_number(bad):
    assert chosen([[5.0], [bad], [INF], [bad]], mask(0, 1, 0, 1)) == [1]


@pytest.mark.parametrize(
    "bad",
    [
        torch.ones(N),
        torch.ones(N + 1) > 0,
        torch.ones(S + 1, N) > 0,
        torch.ones(1, S, N) > 0,
        torch.zeros(N) > 0,
        torch.ones(S, N).tril(-1) > 0,  # the first replicate has no arm
    ],
)
def test_a_bad_mask_is_refused_before_a_random_number_is_drawn(bad):
    policy = POLICIES["thompson"]()
    play(policy, 3)
    before = policy.state_dict()
    with pytest.raises(ValueError, match="available"):
        policy.choose(4.0, bad)
    assert_same_state(policy.state_dict(), before)


# -- learning ------------------------------------------------------------------------------------------

ARM, REWARD = torch.tensor([0, 1, 2]), torch.ones(S).double()
BAD_OBSERVATIONS = {
    "reward": [
        (ARM, torch.tensor([1.0, NAN, 1.0]).double()),
        (ARM, torch.tensor([1.0, INF, 1.0]).double()),
        (ARM, torch.ones(S + 1)),
        (ARM, torch.ones(1)),
        (ARM, torch.tensor(1.0)),
    ],
    "arm": [
        (torch.tensor([0, 1]), REWARD),
        (torch.tensor([0, 1, N]), REWARD),
        (ARM - 1, REWARD),
        (ARM / 1, REWARD),
    ],
}


@pytest.mark.parametrize("policy", ["ucb", "event", "window", "restart", "drift and window"])
@pytest.mark.parametrize(
    ("name", "bad"), [(name, bad) for name, cases in BAD_OBSERVATIONS.items() for bad in cases]
)
def test_a_bad_observation_is_refused_by_name_and_changes_nothing(policy, name, bad):
    policy = POLICIES[policy]()
    play(policy, 3)
    before = policy.state_dict()
    with pytest.raises(ValueError, match=name):
        policy.learn(Observation(4.0, *bad))
    assert_same_state(policy.state_dict(), before)


def test_a_time_in_the_past_is_refused_and_changes_nothing():
    policy = POLICIES["drift"]()
    play(policy, 3)
    before = policy.state_dict()
    for act in (lambda: policy.choose(2.0), lambda: policy.learn(Observation(2.0, ARM, REWARD))):
        with pytest.raises(ValueError, match="time"):
            act()
    after = policy.state_dict()
    assert_same_state(after["model"], before["model"])
    assert after["clock"] == before["clock"]


# -- other models --------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [(), (S,)])
@pytest.mark.parametrize("acquisition", [UpperConfidenceBound, ThompsonSampling])
@pytest.mark.parametrize("drift", [False, True])
def test_a_model_over_any_inputs_plays_as_the_arm_model_does(drift, acquisition, batch):
    kernel = drifting(KERNEL) if drift else KERNEL
    over_arms = IndexPolicy(arm_gp(batch, kernel=kernel), acquisition, width=ConstantWidth(1.5), seed=2)
    online = OnlineGP(kernel, 0.1, input_dim=2 if drift else 1, batch_shape=batch)
    over_inputs = IndexPolicy(online, acquisition, width=ConstantWidth(1.5), arms=ARMS, seed=2)
    assert torch.equal(play(over_inputs, 15), play(over_arms, 15))


@pytest.mark.parametrize(
    ("build", "name"),
    [
        (lambda: IndexPolicy(arm_gp(), UpperConfidenceBound, arms=ARMS), "arms"),
        (lambda: IndexPolicy(OnlineGP(KERNEL, 0.1, input_dim=1), UpperConfidenceBound), "arms"),
        (lambda: IndexPolicy(arm_gp((2, 3)), UpperConfidenceBound), "model.batch_shape"),
        (lambda: IndexPolicy(arm_gp(), UpperConfidenceBound, seed=-1), "seed"),
    ],
)
def test_bad_parts_are_refused_where_it_is_built(build, name):
    with pytest.raises(ValueError, match=name):
        build()


# -- state ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", POLICIES)
def test_a_run_resumed_from_its_state_goes_on_identically(name):
    policy, resumed = POLICIES[name](), POLICIES[name]()
    play(policy, 9)
    resumed.load_state_dict(policy.state_dict())
    assert_same_state(resumed.state_dict(), policy.state_dict())
    assert torch.equal(play(resumed, 12, first=10), play(policy, 12, first=10))
    assert_same_state(resumed.state_dict(), policy.state_dict())
    assert torch.equal(torch.as_tensor(resumed.trace()["restarts"]), policy.trace()["restarts"])


@pytest.mark.parametrize("name", POLICIES)
def test_a_state_is_a_copy(name):
    policy = POLICIES[name]()
    play(policy, 5)
    state = policy.state_dict()
    again = policy.state_dict()
    play(policy, 5, first=6)
    assert_same_state(state, again)


@pytest.mark.parametrize("name", ["ucb", "window", "restart", "event", "drift", "drift and window"])
def test_after_a_reset_it_plays_as_a_new_one(name):
    policy, fresh = POLICIES[name](), POLICIES[name]()
    for used in (policy, fresh):
        used.acquisition, used.width = UpperConfidenceBound, SrinivasBayesianWidth(N, 0.1)
    play(policy, 10)
    policy.reset()
    assert policy.trace()["restarts"].eq(0).all()
    assert torch.equal(play(policy, 10, first=11), play(fresh, 10, first=11))


@pytest.mark.parametrize("name", ["ucb", "window", "restart", "event", "factor"])
def test_after_a_reset_of_some_replicates_these_play_as_new_and_the_others_on(name):
    policy, fresh, undisturbed = (POLICIES[name]() for _ in range(3))
    for used in (policy, fresh, undisturbed):
        used.acquisition, used.width = UpperConfidenceBound, SrinivasBayesianWidth(N, 0.1)
    play(policy, 10)
    play(undisturbed, 10)
    which = mask(1, 0, 1)
    policy.reset(which)
    arms, new, old = (play(used, 10, first=11) for used in (policy, fresh, undisturbed))
    assert torch.equal(arms[:, which], new[:, which])
    assert torch.equal(arms[:, ~which], old[:, ~which])
    assert torch.equal(policy.trace()["restarts"][~which], undisturbed.trace()["restarts"][~which])
    assert torch.equal(policy.trace()["restarts"][which], fresh.trace()["restarts"][which])


def test_the_trace_tells_the_width_used():
    policy = POLICIES["restart"]()
    assert "width" not in policy.trace()
    for step, clock in enumerate([1, 2, 3, 4, 1, 2], start=1):
        play(policy, 1, first=step)
        expected = math.sqrt(2 * math.log(N * math.pi**2 * clock**2 / (6 * 0.1)))
        assert float(policy.trace()["width"]) == pytest.approx(expected)


def test_arms_without_coordinates_can_be_played():
    policy = IndexPolicy(
        ArmGP(N, ArmCovarianceKernel(smooth(N)), 0.1, batch_shape=(S,)),
        UpperConfidenceBound,
        width=ConstantWidth(1.0),
    )
    assert policy.num_arms == N
    assert play(policy, 5).shape == (5, S)
