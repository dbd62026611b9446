"""Candidate priors from past days of a made-up laboratory, in the Intel file's format."""

import numpy as np
import pytest
import torch

from bandits_torch import make, recipes
from bandits_torch.kernels.arms import estimate_covariance
from bandits_torch.problems.forgetting_fit import fit_forgetting_rate, without_noise
from bandits_torch.streams import ReplicateStreams

DAYS, STEPS, MOTES = 4, 144, 5
START = int(np.datetime64("2004-03-01").astype("datetime64[s]").astype(int))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Four days, 1 to 4 March; on the 2nd mote 3 gives a single reading, elsewhere some are missing."""
    rng = np.random.default_rng(0)
    temperature = 20 + np.cumsum(rng.normal(size=(DAYS * STEPS, MOTES)), 0) * 0.1 + np.arange(MOTES)
    observed = rng.random((DAYS * STEPS, MOTES)) < 0.9
    observed[STEPS : 2 * STEPS, 3] = False
    observed[STEPS, 3] = True
    path = tmp_path_factory.mktemp("intel")
    np.savez(
        path / "intel_temperature.npz",
        temperature=temperature,
        observed=observed,
        time=START + 600 * np.arange(DAYS * STEPS),
        xy=rng.random((MOTES, 2)),
        mote_id=np.arange(MOTES),
    )
    return path, np.where(observed, temperature, np.nan), temperature


@pytest.fixture(scope="module")
def plain(folder):
    """The problem with no settings of one's own, of two replicates."""
    return problem(folder, replicates=2)


def problem(folder, **options):
    return make("intel-temperature-priors", data=folder[0], day="2004-03-04", **options)


def test_each_earlier_day_with_two_readings_of_every_arm_is_a_prior(folder, plain) -> None:
    made = plain
    assert [prior.name for prior in made.knowledge.priors] == ["2004-03-01", "2004-03-03"]
    for prior, day in zip(made.knowledge.priors, (0, 2), strict=True):
        readings = torch.from_numpy(folder[1][day * STEPS : (day + 1) * STEPS])
        times = torch.arange(STEPS, dtype=torch.float64)
        covariance = without_noise(estimate_covariance(readings), made.knowledge.noise_variance)
        torch.testing.assert_close(prior.kernel, covariance)
        seen = ~torch.isnan(readings).all(-1)
        rate = fit_forgetting_rate(readings[seen], times[seen], covariance, made.knowledge.noise_variance)
        assert prior.forgetting_rate == pytest.approx(rate)
        past = torch.from_numpy(folder[1][: 3 * STEPS])
        assert prior.mean == pytest.approx(float(past.nanmean(0).mean()))


def test_the_true_prior_is_the_played_days_own_in_hindsight(folder, plain) -> None:
    made = plain
    today = torch.from_numpy(folder[2][3 * STEPS :])
    expected = without_noise(estimate_covariance(today), made.knowledge.noise_variance)
    torch.testing.assert_close(made.true_prior.kernel, expected)
    assert made.true_prior.name == "the day itself"


def test_priors_know_nothing_of_the_played_day(folder, plain, tmp_path) -> None:
    with np.load(folder[0] / "intel_temperature.npz") as arrays:
        changed = dict(arrays)
    changed["temperature"] = changed["temperature"].copy()
    changed["temperature"][3 * STEPS :] *= -3
    np.savez(tmp_path / "intel_temperature.npz", **changed)
    own, other = plain, make("intel-temperature-priors", data=tmp_path, day="2004-03-04")
    for a, b in zip(own.knowledge.priors, other.knowledge.priors, strict=True):
        assert torch.equal(a.kernel, b.kernel)
        assert (a.mean, a.forgetting_rate) == (b.mean, b.forgetting_rate)


def test_rewards_carry_noise_of_the_known_variance_or_the_scale_given(folder) -> None:
    for made, scale in ((problem(folder), None), (problem(folder, noise_scale=0.5), 0.5)):
        streams = ReplicateStreams(0, 4000)
        arm = torch.zeros(4000, dtype=torch.long)
        noise = made.pull(1, arm, streams) - made.expected_rewards(1)[0, 0]
        expected = made.knowledge.noise_variance**0.5 if scale is None else scale
        assert float(noise.std()) == pytest.approx(expected, rel=0.05)


def test_settings_reach_the_priors(folder) -> None:
    made = problem(folder, shrinkage=1.0, forgetting_rate=0.2, prior_mean="arm", horizon=10)
    assert made.horizon == 10
    for prior in (*made.knowledge.priors, made.true_prior):
        assert torch.equal(prior.kernel, prior.kernel.diagonal().diag())
        assert prior.forgetting_rate == 0.2
        assert prior.mean.shape == (MOTES,)
    assert float(problem(folder, prior_mean=0.0).knowledge.priors[0].mean) == 0.0
    with pytest.raises(ValueError, match="noise_scale must be"):
        problem(folder, noise_scale=-1.0)
    with pytest.raises(ValueError, match="shrinkage must be"):
        problem(folder, shrinkage=2.0)


def test_recipes_for_an_unknown_prior_refuse_a_problem_without_priors() -> None:
    made = make("gp", replicates=2)
    for name in ("pe_gp_ucb", "known_prior_gp_ucb"):
        said = f"policy {name} must have a problem with candidate priors.*, got one that has none"
        with pytest.raises(ValueError, match=said):
            recipes.build(name, made, replicates=2, horizon=20)
