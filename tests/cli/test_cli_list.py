"""``bandits-torch list``: every name with a line, or all about one."""

from click.testing import CliRunner

from bandits_torch import problems, recipes
from bandits_torch.cli import app


def printed(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["list", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_every_problem_and_policy_has_a_line() -> None:
    words = " ".join(printed().split())
    assert "switching Gaussian-process draws that are replaced" in words
    assert "random Uniformly random arms: the baseline of every race." in words
    begins = {line.split()[0] for line in printed().splitlines() if line and not line.startswith(" ")}
    assert begins >= set(problems.PROBLEMS) | set(recipes.RECIPES)


def test_one_name_is_described_with_its_options_and_their_defaults() -> None:
    policy = printed("sw_gp_ucb")
    assert policy.startswith("SW-GP-UCB: IGP-UCB on the last ``window`` observations")
    rows = dict(line.split(maxsplit=1) for line in policy.partition("option ")[2].splitlines()[1:])
    assert rows["window"].strip() == "None"
    assert rows["delta"].strip() == "0.1"
    assert (
        "Uses of the problem: kernel, noise_variance, prior_mean, horizon, rkhs_bound, rkhs_variation_budget."
        in policy
    )
    assert "replicates" not in rows  # a flag of its own
    assert "excluded" in printed("hills").partition("option ")[2]


def test_an_unknown_name_is_one_line_and_exit_code_2() -> None:
    result = CliRunner().invoke(app, ["list", "nonsense"])
    assert result.exit_code == 2
    assert result.output.splitlines() == [
        "error: name must be one of those that `bandits-torch list` shows, got 'nonsense'"
    ]
