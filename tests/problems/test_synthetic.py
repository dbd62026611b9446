"""Arms, draws, and functions that never change."""

import pytest
import torch
from botorch.test_functions import Hartmann
from botorch.test_functions import Rosenbrock as BoTorchRosenbrock

from bandits_torch import recipes, run
from bandits_torch.problems import (
    GPDraws,
    Hartmann3,
    RKHSFunctions,
    Rosenbrock,
    SimulatedProblem,
    StandardFunction,
    StationaryProblem,
)
from bandits_torch.problems.simulated import (
    covariance,
    covariance_root,
    make_kernel,
    place_arms,
    regularised_norm,
)


def test_grid_covers_the_cube_evenly() -> None:
    arms = place_arms("grid", 9, 2, seed=0)
    assert {tuple(arm) for arm in arms.tolist()} == {(i / 2, j / 2) for i in range(3) for j in range(3)}
    assert torch.equal(place_arms("grid", 5, 1, seed=0).squeeze(-1), torch.linspace(0, 1, 5).double())


def test_grid_that_does_not_close_is_refused() -> None:
    with pytest.raises(ValueError, match="num_arms must be a whole number to the power 2, got 10"):
        place_arms("grid", 10, 2, seed=0)


def test_sphere_arms_have_norm_one() -> None:
    arms = place_arms("sphere", 500, 10, seed=0)
    torch.testing.assert_close(arms.norm(dim=-1), torch.ones(500, dtype=torch.float64))
    assert arms.mean(0).abs().max() < 4 / (500 * 10) ** 0.5


def test_uniform_arms_lie_in_the_cube_and_follow_the_seed() -> None:
    arms = place_arms("uniform", 1000, 2, seed=3)
    assert ((arms >= 0) & (arms < 1)).all()
    assert ((arms.mean(0) - 0.5).abs() < 4 / 12**0.5 / 1000**0.5).all()
    assert torch.equal(arms, place_arms("uniform", 1000, 2, seed=3))
    assert not torch.equal(arms, place_arms("uniform", 1000, 2, seed=4))


@pytest.mark.parametrize(("kernel", "lengthscale"), [("se", 0.2), ("se", 2.0), ("matern", 0.2)])
def test_root_times_its_transpose_is_the_matrix_even_if_nearly_singular(kernel, lengthscale):
    K = covariance(make_kernel(kernel, lengthscale), place_arms("uniform", 100, 1, seed=0))
    root = covariance_root(K)
    assert (root @ root.T - K).abs().max() < 1e-10
    assert root.shape[1] <= 100
    if kernel == "se":
        assert root.shape[1] < 30  # the smooth kernel's matrix has few eigenvalues above rounding


@pytest.mark.parametrize("kernel", ["se", "matern"])
def test_draws_have_the_kernels_covariance(kernel: str) -> None:
    problem = GPDraws(kernel=kernel, num_arms=8, replicates=4000, layout="grid")
    draws, K = problem.functions, covariance(problem.knowledge.kernel, problem.arms)
    error = draws.T @ draws / 4000 - K
    # Var of a sample covariance of normals is (K_ij^2 + K_ii K_jj) / n
    assert (error.abs() < 4.5 * ((K**2 + 1) / 4000).sqrt()).all()
    assert (draws.mean(0).abs() < 4.5 / 4000**0.5).all()


def test_noise_variance_is_one_percent_of_each_functions_range() -> None:
    problem = GPDraws(replicates=3, seed=2)
    spread = problem.functions.amax(-1) - problem.functions.amin(-1)
    torch.testing.assert_close(problem.knowledge.noise_variance, 0.01 * spread)
    assert GPDraws(replicates=3, noise_scale=0.3).knowledge.noise_variance == pytest.approx(0.09)


@pytest.mark.parametrize("kind", [GPDraws, RKHSFunctions])
def test_norm_is_that_of_the_interpolant(kind: type[GPDraws]) -> None:
    # A rough kernel on few points, so that K^{-1} is harmless
    problem = kind(kernel="matern", nu=0.5, num_arms=20, replicates=3)
    K = covariance(problem.knowledge.kernel, problem.arms)
    slow = [(f @ torch.linalg.solve(K, f)).sqrt() for f in problem.functions]
    torch.testing.assert_close(problem.knowledge.rkhs_bound, torch.stack(slow), rtol=1e-8, atol=0)


def test_rkhs_functions_are_their_representers_sum_on_a_nearly_singular_matrix() -> None:
    problem = RKHSFunctions(replicates=2)
    K, alpha = covariance(problem.knowledge.kernel, problem.arms), problem.representer_weights
    torch.testing.assert_close(problem.functions, alpha @ K)
    norms = ((alpha @ K) * alpha).sum(-1).sqrt()
    torch.testing.assert_close(problem.knowledge.rkhs_bound, norms)
    # |f(x)| <= B sqrt(k(x, x)) in any RKHS
    assert (problem.functions.abs().amax(-1) <= norms).all()


def test_a_static_problem_stays_as_it_is_when_its_callers_functions_change() -> None:
    functions = torch.ones(1, 2).double()
    problem = StationaryProblem(torch.zeros(2, 1).double(), functions, 0.1)
    functions.zero_()
    assert problem.expected_rewards(1).tolist() == [[1.0, 1.0]]


def test_sample_of_an_rkhs_function_is_a_draw_plus_noise_of_the_given_variance() -> None:
    draws = GPDraws(seed=4, replicates=20).functions
    smooth = RKHSFunctions(seed=4, replicates=20, sample_noise=0.04)
    K, alpha = covariance(smooth.knowledge.kernel, smooth.arms), smooth.representer_weights
    noise = alpha @ (K + 0.04 * torch.eye(100, dtype=torch.float64)) - draws  # (K + s I) alpha is the sample
    assert noise.std().item() == pytest.approx(0.2, rel=4 / (2 * 2000) ** 0.5)


def test_regularised_norm_approaches_the_norm_from_below() -> None:
    problem = RKHSFunctions(kernel="matern", num_arms=30)
    K, exact = covariance(problem.knowledge.kernel, problem.arms), problem.knowledge.rkhs_bound
    norms = [regularised_norm(K, problem.functions, ridge).item() for ridge in (1e-2, 1e-4, 1e-8)]
    assert norms == sorted(norms)
    assert norms[-1] <= exact * (1 + 1e-9)
    assert norms[-1] == pytest.approx(exact, rel=1e-2)


def test_rosenbrock_is_botorchs_negated_on_its_domain() -> None:
    problem = Rosenbrock(seed=3)
    raw = -BoTorchRosenbrock(dim=2).evaluate_true(-5 + 15 * problem.arms)
    assert problem.arms.shape == (200, 2)
    torch.testing.assert_close(problem.functions[0], (raw - raw.mean()) / raw.std())


def test_hartmann_is_botorchs_negated_and_best_near_its_optimum() -> None:
    problem = Hartmann3(seed=3, num_arms=3000, scale="range", replicates=2)
    raw = -Hartmann(dim=3).evaluate_true(problem.arms)
    torch.testing.assert_close(problem.functions[1], (raw - raw.min()) / (raw.max() - raw.min()))
    best = problem.arms[problem.functions[0].argmax()]
    optimum = torch.tensor([0.114614, 0.555649, 0.852547], dtype=torch.float64)
    assert (best - optimum).norm() < 0.15


@pytest.mark.parametrize(
    ("options", "message"),
    [({"scale": "log"}, "scale must be"), ({"num_arms": 1}, "num_arms must be"), ({"dim": 1}, "dim must be")],
)
def test_bad_options_of_standard_functions_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Rosenbrock(**options)


def test_what_is_no_function_of_botorch_is_refused() -> None:
    with pytest.raises(
        ValueError, match="function must be a BoTorch test function, got 'branin' of type str"
    ):
        StandardFunction("branin")  # type: ignore[arg-type]


def test_noise_over_arms_of_whole_numbers_stays_as_it_is() -> None:
    problem = StationaryProblem(torch.arange(3).unsqueeze(-1), torch.rand(2, 3), 0.1)
    assert problem.arms.dtype == torch.float64
    assert problem.noise_scale.tolist() == [0.1, 0.1]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"arms": torch.zeros(3, 1) + 0j}, "arms must be real numbers"),
        ({"functions": torch.zeros(2, 3) + 0j}, "functions must be real numbers"),
        (
            {"noise_scale": torch.ones(3)},
            r"noise_scale must have shape \(\), \(1,\) or \(2,\), got shape \(3,\)",
        ),
        ({"noise_scale": torch.ones(2, 1)}, "noise_scale must have shape"),
    ],
)
def test_bad_parts_of_a_static_problem_are_refused(wrong: dict[str, torch.Tensor], message: str) -> None:
    good = {"arms": torch.zeros(3, 1), "functions": torch.zeros(2, 3), "noise_scale": torch.ones(2)}
    assert StationaryProblem(**good).replicates == 2
    with pytest.raises(ValueError, match=message):
        StationaryProblem(**good | wrong)


class OfANetwork(SimulatedProblem):
    """Rewards that a network computes, with the gradient that PyTorch keeps."""

    def __init__(self) -> None:
        super().__init__(torch.linspace(0, 1, 4).double().unsqueeze(-1), 1, 0.1)
        self.network = torch.nn.Linear(1, 1).double()

    def expected_rewards(self, step: int) -> torch.Tensor:
        return self.network(self.arms).mT * step

    def trace(self, step: int, arm: torch.Tensor) -> dict[str, torch.Tensor | float]:
        return {"slope": self.network.weight[0] * step}


def test_the_record_of_a_problem_made_of_a_network_holds_no_gradient(tmp_path) -> None:
    with_gradient = StationaryProblem(torch.zeros(4, 1), torch.rand(1, 4).requires_grad_(), 0.1)
    for problem in (OfANetwork(), with_gradient):
        history = run(recipes.random(4), problem, 5)
        history.save(tmp_path / "history.npz")
        assert len(history.to_frame()) == 5
        assert not any(one.requires_grad for one in (history.regret, *history.trace.values()))
