"""plot_posterior: what is drawn is what the policy believed at that step of that run."""

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel

from bandits_torch import ArmGP, History, IndexPolicy, OnlineGP, UpperConfidenceBound, make, recipes, run
from bandits_torch.experiments import plot_posterior
from bandits_torch.kernels import ExponentialForgettingKernel, SpatioTemporalKernel
from bandits_torch.policies import SlidingWindow
from bandits_torch.theory import ConstantWidth

T, S = 60, 3


@pytest.fixture(scope="module")
def problem():
    return make("switching", horizon=T, replicates=S, num_arms=15, seed=3)


def played(name, problem, **options):
    policy = recipes.build(name, problem, horizon=T, replicates=S, **options)
    return policy, run(policy, problem, T)


def band_of(ax, i):
    """Lower and upper edge of the i-th band, by ascending position."""
    vertices = ax.collections[2 * i].get_paths()[0].vertices
    xs = np.unique(vertices[:, 0])
    edges = [vertices[vertices[:, 0] == x][:, 1] for x in xs]
    return np.array([e.min() for e in edges]), np.array([e.max() for e in edges])


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("igp_ucb", {}),
        ("sw_gp_ucb", {"window": 7}),
        ("r_gp_ucb", {"interval": 25}),
        ("et_gp_ucb", {}),
        ("tv_gp_ucb", {}),
    ],
)
def test_the_last_slice_is_the_posterior_of_the_policy_that_played(problem, name, options) -> None:
    policy, history = played(name, problem, **options)
    ax = plot_posterior(history, policy, T, replicate=1)
    mean, variance = (m[1] for m in policy.model.marginals(float(T)))
    order = problem.arms[:, 0].argsort()
    np.testing.assert_allclose(ax.lines[0].get_xdata(), problem.arms[order, 0])
    np.testing.assert_allclose(ax.lines[0].get_ydata(), mean[order], atol=1e-9)
    low, high = band_of(ax, 0)
    np.testing.assert_allclose(high - low, 4 * variance.sqrt()[order], atol=1e-7)


def test_earlier_slices_have_seen_earlier_rewards_alone(problem) -> None:
    policy, history = played("sw_gp_ucb", problem, window=7)
    ax = plot_posterior(history, policy, [5, 30], replicate=2, width=1.0)
    order = problem.arms[:, 0].argsort()
    for line, (start, stop) in zip(ax.lines, [(0, 5), (23, 30)], strict=True):  # at 30 the window holds 7
        model = ArmGP(problem.arms, problem.knowledge.kernel, problem.knowledge.noise_variance)
        for step in range(start, stop):
            model.observe_arms(history.arms[2, step], history.rewards[2, step])
        np.testing.assert_allclose(line.get_ydata(), model.marginals()[0][order], atol=1e-9)


def test_the_policy_given_and_its_random_streams_stay_as_they_are(problem) -> None:
    policy, history = played("gp_ts", problem)
    before = policy.model.marginals()[0].clone()
    plot_posterior(history, policy, np.int64(3))
    assert torch.equal(policy.model.marginals()[0], before)


def test_marks_are_the_last_rewards_paler_with_age(problem) -> None:
    policy, history = played("igp_ucb", problem)
    ax = plot_posterior(history, policy, 40, replicate=1, recent=10)
    marks = ax.collections[1]
    np.testing.assert_allclose(marks.get_offsets()[:, 0], problem.arms[history.arms[1, 30:40], 0])
    np.testing.assert_allclose(marks.get_offsets()[:, 1], history.rewards[1, 30:40])
    alphas = marks.get_facecolors()[:, 3]
    assert (np.diff(alphas) > 0).all()
    assert alphas[-1] == 1


def test_truths_are_dashed_one_for_each_step(problem) -> None:
    policy, history = played("igp_ucb", problem)
    truth = torch.stack([problem.expected_rewards(step)[0] for step in (10, 40)])
    ax = plot_posterior(history, policy, [10, 40], truth=truth)
    order = problem.arms[:, 0].argsort()
    dashed = [line for line in ax.lines if line.get_linestyle() == "--"]
    for line, row in zip(dashed, truth, strict=True):
        np.testing.assert_allclose(line.get_ydata(), row[order])
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["step 10: mean ± 2 sd", "step 40: mean ± 2 sd", "truth"]
    ax.figure.draw_without_rendering()
    assert ax.get_legend().get_window_extent().y0 >= ax.get_window_extent().y1 - 1


def test_a_bare_model_learns_the_replicate_and_forgets_nothing(problem) -> None:
    _, history = played("sw_gp_ucb", problem, window=7)
    arm_model = ArmGP(problem.arms, problem.knowledge.kernel, problem.knowledge.noise_variance)
    online = OnlineGP(problem.knowledge.kernel, problem.knowledge.noise_variance, input_dim=1)
    drawn = [
        plot_posterior(history, arm_model, T, replicate=2).lines[0].get_ydata(),
        plot_posterior(history, online, T, replicate=2, arms=problem.arms).lines[0].get_ydata(),
    ]
    assert int(arm_model.num_observations) == 0
    for step in range(T):
        arm_model.observe_arms(history.arms[2, step], history.rewards[2, step])
    order = problem.arms[:, 0].argsort()
    for values in drawn:
        np.testing.assert_allclose(values, arm_model.marginals()[0][order], atol=1e-8)


def test_a_policy_on_space_and_time_is_drawn_at_the_time_of_the_step() -> None:
    arms = torch.linspace(0, 1, 6, dtype=torch.float64).unsqueeze(-1)
    kernel = SpatioTemporalKernel(RBFKernel().double(), ExponentialForgettingKernel(0.2))
    gp = OnlineGP(kernel, 0.01, input_dim=2, batch_shape=(2,))
    policy = IndexPolicy(
        gp, UpperConfidenceBound, width=ConstantWidth(2.0), choices=arms, forgetting=SlidingWindow(4)
    )
    pulled = torch.tensor([[0, 5, 2, 3, 3, 1], [1, 1, 4, 4, 0, 2]])
    rewards = torch.sin(pulled.double())
    times = torch.arange(1.0, 7.0, dtype=torch.float64)
    history = History(pulled, rewards, rewards, rewards, times, times)
    ax = plot_posterior(history, policy, 6, replicate=1)
    X = torch.cat([arms[pulled[1, 2:]], times[2:].unsqueeze(-1)], -1)
    gp = OnlineGP(kernel, 0.01, input_dim=2)
    gp.observe(X, rewards[1, 2:].unsqueeze(-1))
    posterior = gp.posterior(torch.cat([arms, torch.full_like(arms, 6.0)], -1).unsqueeze(-2))
    np.testing.assert_allclose(ax.lines[0].get_ydata(), posterior.mean.flatten().detach(), atol=1e-9)
    low, high = band_of(ax, 0)
    np.testing.assert_allclose((high - low) / 4, posterior.variance.sqrt().flatten().detach(), atol=1e-8)


def test_arms_without_a_coordinate_get_error_bars() -> None:
    covariance = torch.eye(4, dtype=torch.float64) + 0.5
    model = ArmGP(4, covariance, 0.1)
    zeros = torch.zeros(1, 3, dtype=torch.float64)
    history = History(torch.tensor([[0, 1, 0]]), zeros + 1, zeros, zeros, zeros[0], zeros[0])
    ax = plot_posterior(history, ArmGP(torch.rand(4, 2, dtype=torch.float64), covariance, 0.1), 3)
    for arm in history.arms[0]:
        model.observe_arms(arm, torch.tensor(1.0, dtype=torch.float64))
    mean, variance = model.marginals()
    bars = ax.containers[0]
    np.testing.assert_allclose(bars.lines[0].get_xydata(), np.stack([range(4), mean.numpy()], 1), atol=1e-12)
    ends = np.array([segment[:, 1] for segment in bars.lines[2][0].get_segments()])
    np.testing.assert_allclose(ends[:, 1] - ends[:, 0], 4 * variance.sqrt().numpy())


def test_over_a_domain_of_one_dimension_the_slice_is_drawn_over_its_points() -> None:
    problem = make("dynamic-levy", dim=1, horizon=12, replicates=2)
    policy = recipes.build("sw_gp_ucb", problem, horizon=12, replicates=2, window=5)
    history = run(policy, problem, 12)
    points = torch.linspace(0, 1, 7, dtype=torch.float64).unsqueeze(-1)
    ax = plot_posterior(history, policy, 12, replicate=1, arms=points)
    mean, variance = (m[1] for m in policy.marginals(12.0, points))
    np.testing.assert_allclose(ax.lines[0].get_ydata(), mean, atol=1e-8)
    low, high = band_of(ax, 0)
    np.testing.assert_allclose((high - low) / 4, variance.sqrt(), atol=1e-8)
    np.testing.assert_allclose(ax.collections[1].get_offsets()[:, 0], history.arms[1, :, 0])
    one = policy.predict(points[3].expand(2, 1), 12.0)
    torch.testing.assert_close(mean[3], one[0][1])
    spread = plot_posterior(history, policy, 12).lines[0].get_xdata()
    low, high = problem.domain.bounds.flatten().tolist()
    assert (len(spread), spread[0], spread[-1]) == (200, low, high)
