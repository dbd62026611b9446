"""What holds of every simulated problem, by name."""

import inspect

import pytest
import torch

from bandits_torch.arm_context import mask_of
from bandits_torch.models.arms.arm_gp import ArmGP
from bandits_torch.problems import PROBLEMS, make, named, options_of, registered
from bandits_torch.problems.problem import Knowledge, Problem, per_replicate
from bandits_torch.streams import ReplicateStreams

EVERY = [registered(name) for name in PROBLEMS]
SIMULATED = [one.name for one in EVERY if "num_arms" in one.options]
STATIONARY = [one.name for one in EVERY if one.stationary]
DRIFTING = {"grid that drifts": {"side": 5, "dim": 2, "forgetting_rate": 0.1}}
RANDOM_FUNCTIONS = [*(one.name for one in EVERY if one.random), *DRIFTING]


def made(name: str, **options: object) -> Problem:
    return make(name.split()[0], **DRIFTING.get(name, {}), **options)


def test_knowledge_asks_for_a_kernel_instead_of_a_matrix() -> None:
    with pytest.raises(ValueError, match=r"^kernel must be a kernel .* ArmCovarianceKernel"):
        Knowledge(torch.eye(2).double(), 0.1)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", RANDOM_FUNCTIONS)
def test_replicate_of_a_batch_equals_the_replicate_alone(name: str) -> None:
    batch = made(name, replicates=3, horizon=600, seed=5)
    for k in range(3):
        alone = made(name, replicates=1, horizon=600, seed=5, first_replicate=k)
        assert torch.equal(alone.arms, batch.arms)
        for step in (1, 200, 600):
            assert torch.equal(alone.expected_rewards(step)[0], batch.expected_rewards(step)[k])
        budgets = ("variation_budget", "rkhs_variation_budget")
        for figure in ("noise_variance", "rkhs_bound", "forgetting_rate", *budgets, "prior_mean"):
            whole, single = getattr(batch.knowledge, figure), getattr(alone.knowledge, figure)
            # Of each replicate; else of all, or of the arms.
            of_replicates = isinstance(whole, torch.Tensor) and whole.shape == (3,)
            own = whole[k] if of_replicates else whole
            assert (own is None) == (single is None)
            if own is not None:
                both = (torch.as_tensor(value, dtype=torch.float64) for value in (own, single))
                torch.testing.assert_close(*both, rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", RANDOM_FUNCTIONS)
def test_seeds_and_replicates_differ(name: str) -> None:
    first, second = made(name, replicates=2, horizon=50, seed=5).expected_rewards(1)
    assert not torch.allclose(first, second)
    other = made(name, horizon=50, seed=6)
    assert not torch.allclose(first, other.expected_rewards(1)[0])


@pytest.mark.parametrize("name", SIMULATED)
def test_shapes_dtypes_and_knowledge_agree_with_the_arms(name: str) -> None:
    problem = make(name, replicates=2, horizon=40, seed=1)
    expected = problem.expected_rewards(7)
    assert expected.shape == (2, problem.num_arms) == (2, len(problem.arms))
    assert expected.dtype == problem.arms.dtype == torch.float64
    assert torch.isfinite(expected).all()
    kernel = problem.knowledge.kernel(problem.arms).to_dense()
    assert kernel.shape == (problem.num_arms, problem.num_arms)
    assert (kernel.diagonal() <= 1 + 1e-12).all()
    available = mask_of(problem.available(1))
    assert available is None or (available.shape == (problem.num_arms,) and available.dtype == torch.bool)
    assert problem.time(3) == 3.0


@pytest.mark.parametrize("name", STATIONARY)
def test_stationary_problems_give_the_same_tensor_at_every_step(name: str) -> None:
    problem = make(name, seed=1)
    assert problem.expected_rewards(1) is problem.expected_rewards(10**9)
    assert problem.knowledge.variation_budget == problem.knowledge.rkhs_variation_budget == 0.0
    assert problem.knowledge.forgetting_rate == 0.0


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", SIMULATED)
def test_rewards_are_the_expected_ones_plus_noise_of_the_known_variance(name: str) -> None:
    problem = make(name, replicates=2, horizon=4000, seed=1)
    arm, streams = torch.tensor([3, 8]), ReplicateStreams(0, 2)
    rewards = torch.stack([problem.pull(1, arm, streams) for _ in range(4000)])
    expected = problem.expected_rewards(1)[torch.arange(2), arm]
    variance = torch.as_tensor(problem.knowledge.noise_variance, dtype=torch.float64).expand(2)
    assert ((rewards.mean(0) - expected).abs() < 4 * (variance / 4000).sqrt()).all()
    assert ((rewards.var(0) / variance - 1).abs() < 4 * (2 / 4000) ** 0.5).all()


@pytest.mark.parametrize("name", [*SIMULATED, "grid", *DRIFTING])
def test_to_changes_the_dtype_of_everything(name: str) -> None:
    problem = made(name, replicates=2, horizon=300, seed=1)
    before = [problem.expected_rewards(t) for t in (1, 250)]
    assert problem.to(torch.float32) is problem
    for step, old in zip((1, 250), before, strict=True):
        now = problem.expected_rewards(step)
        assert now.dtype == torch.float32
        torch.testing.assert_close(now.double(), old, rtol=1e-5, atol=1e-5)
    assert problem.knowledge.kernel(problem.arms).to_dense().dtype == torch.float32
    arm, streams = torch.tensor([0, 1]), ReplicateStreams(0, 2, dtype=torch.float32)
    assert problem.pull(1, arm, streams).dtype == torch.float32


@pytest.mark.parametrize("name", SIMULATED)
def test_to_moves_everything_to_another_device(name: str) -> None:
    # "meta" tensors have no values, but refuse to mix with the CPU's, as a GPU's would
    problem = make(name, replicates=2, horizon=300, seed=1).to("meta")
    arm, streams = torch.zeros(2, dtype=torch.long, device="meta"), ReplicateStreams(0, 2, device="meta")
    for step in (1, 250):
        assert problem.expected_rewards(step).device.type == "meta"
        assert problem.pull(step, arm, streams).device.type == "meta"
    known = problem.knowledge
    for figure in (known.noise_variance, known.rkhs_bound, known.rkhs_variation_budget, problem.arms):
        assert not isinstance(figure, torch.Tensor) or figure.device.type == "meta"
    assert all(p.device.type == "meta" for p in known.kernel.parameters())


@pytest.mark.parametrize("name", SIMULATED)
def test_knowledge_makes_a_model_of_all_replicates(name: str) -> None:
    problem = make(name, replicates=2, horizon=40, num_arms=16)
    known = problem.knowledge
    model = ArmGP(
        problem.arms, known.kernel, known.noise_variance, prior_mean=known.prior_mean, batch_shape=(2,)
    )
    arm = torch.tensor([3, 7])
    reward = problem.pull(1, arm, ReplicateStreams(0, 2))
    model.observe(arm.double().reshape(2, 1, 1), reward.reshape(2, 1, 1))
    posterior = model.posterior(torch.arange(16.0).double().reshape(16, 1).expand(2, 16, 1))
    assert posterior.mean.shape == (2, 16, 1)
    assert torch.isfinite(posterior.mean).all()


@pytest.mark.parametrize("name", SIMULATED)
def test_bad_step_is_refused(name: str) -> None:
    problem = make(name, horizon=10)
    problem.expected_rewards(10)
    allowed, after = (r">= 1", []) if problem.horizon is None else (r"in 1, \.\.\., 10", [11])
    assert problem.horizon == 10 or name not in ("switching", "tv-gp", "cosine", "moving-peaks")
    for step in (0, -1, 1.5, *after):
        with pytest.raises(ValueError, match=f"step must be an integer {allowed}, got {step}"):
            problem.expected_rewards(step)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("nope", {}, "problem name must be a known name, got 'nope'; there are gp, rkhs"),
        ("gp", {"colour": "red"}, "options of problem 'gp' must be among kernel, .*got colour"),
        ("gp", {"num_arm": 3}, r"options of problem 'gp' .* got num_arm \(did you mean num_arms\?\)"),
        ("gp", {"data": "somewhere.csv"}, "data must be None for problem 'gp'"),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(name, options, message):
    with pytest.raises(ValueError, match=message):
        make(name, **options)  # type: ignore[arg-type]


def test_every_problem_has_a_line_of_description() -> None:
    lines = [(inspect.getdoc(one.factory) or "").partition("\n")[0] for one in EVERY]
    assert all(20 < len(line) <= 110 and line.endswith(".") for line in lines)


def test_options_of_a_test_function_include_those_it_passes_on() -> None:
    assert {"dim", "num_arms", "scale", "lengthscale"} <= set(options_of("rosenbrock"))
    assert "function" not in options_of("rosenbrock")
    assert make("rosenbrock", dim=3).arms.shape == (300, 3)


def test_figures_that_agree_are_plain_numbers() -> None:
    assert per_replicate(torch.tensor([2.0, 2.0])) == 2.0
    assert isinstance(per_replicate(torch.tensor([2.0, 3.0])), torch.Tensor)


def test_a_name_is_given_once() -> None:
    with pytest.raises(ValueError, match="name of a problem must be new, got 'gp'"):
        named("gp")(lambda: None)  # type: ignore[arg-type, return-value]
