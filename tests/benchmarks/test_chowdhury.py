"""The figures of Chowdhury & Gopalan: settings as printed, trials, and the short form."""

import math

import numpy as np
import pytest
import torch

from bandits_torch.loop import run
from bandits_torch.policies import Observation
from benchmarks.papers import _chowdhury_problems as problems
from benchmarks.papers import _claims, chowdhury
from benchmarks.papers._chowdhury_page import PANELS
from benchmarks.papers._claims import UNTESTED
from tests.reference.real_data import REAL, needs_data


def width_after(policy, steps):
    for t in range(1, steps + 1):
        choice = policy.choose(t)
        policy.learn(Observation(t, choice.arm, torch.zeros(policy.replicates).double(), choice.why))
    policy.choose(steps + 1)
    return policy.trace()["width"]


@pytest.mark.parametrize("panel", ["1a", "1b", "3a", "3b"])
def test_widths_are_the_printed_ones(panel) -> None:
    """beta_t, beta~_t and v_t of section 3 written out, with R^2 = 1 % of the range, after 4 steps."""
    setting = problems.settings(panel, 2, None)
    known = setting.problem.knowledge
    B = torch.as_tensor(known.rkhs_bound, dtype=torch.float64).expand(2)
    functions = setting.problem.expected_rewards(1)
    R = (0.01 * (functions.amax(-1) - functions.amin(-1))).sqrt()
    d = setting.problem.arms.shape[-1]
    gamma = 4 ** (2 / 7) * math.log(4) if panel == "1b" else math.log(4) ** (d + 1)
    expected = {
        "gp_ucb": (2 * B**2 + 300 * gamma * math.log(5 / 0.1) ** 3).sqrt(),
        "igp_ucb": B + R * math.sqrt(2 * (gamma + 1 + math.log(10))),
        "gp_ts": B + R * math.sqrt(2 * (gamma + 1 + math.log(20))),
    }
    for name, value in expected.items():
        torch.testing.assert_close(width_after(problems.build(name, setting, 10), 4).expand(2), value)
    torch.testing.assert_close(torch.as_tensor(known.noise_variance).double().expand(2), R**2)
    assert setting.problem.num_arms == (100 * d)


@needs_data
@pytest.mark.parametrize(("panel", "rows"), [("4a", 12), ("4b", 192)])
def test_sensors_are_learned_from_training_rows_and_played_on_the_test_rows(panel, rows) -> None:
    setting = problems.settings(panel, 25, REAL)
    problem = setting.problem
    assert problem.replicates == rows
    assert float(problem.knowledge.kernel.covariance.diagonal().mean()) == pytest.approx(1.0)
    assert problem.knowledge.noise_variance == pytest.approx(0.05)
    assert float(setting.gain(7, problems.build("igp_ucb", setting, 5).model)) == 1.0
    assert bool(torch.isfinite(problem.expected_rewards(1)).all())
    if panel == "4a":  # 8:00, ..., 8:50 of the sixth and seventh day
        with np.load(REAL / "intel_temperature.npz") as arrays:
            time, values = arrays["time"], arrays["temperature"]
        day = (time - time[0]) // 86_400
        of = values[(day >= 5) & (day < 7) & (time % 86_400 // 3600 == 8)]
    else:
        with np.load(REAL / "cmu_light.npz") as arrays:
            of = arrays["test"].astype(float)
        assert problem.num_arms == 41
    played = problem.expected_rewards(1)[:, 0].numpy()  # in one unit of scale
    ratios = of / played[:, None]
    assert (ratios.std(0) < 1e-9 * ratios.mean(0)).any()


def test_variants_change_one_choice_at_a_time() -> None:
    found = problems.variants("1b", 2, 20)
    assert "later Matern bound" in found
    assert "later Matern bound" not in problems.variants("1a", 2, 20)
    base, printed = found["default"][0], found["B^2 = f^T K f, as printed"][0]
    f = base.problem.expected_rewards(1)
    K = base.problem.knowledge.kernel(base.problem.arms).to_dense()
    torch.testing.assert_close(printed.problem.knowledge.rkhs_bound, ((f @ K) * f).sum(-1).sqrt())
    assert not torch.equal(
        torch.as_tensor(base.problem.knowledge.rkhs_bound), printed.problem.knowledge.rkhs_bound
    )
    for setting, options in found.values():
        run(problems.build("igp_ucb", setting, 20, **options), setting.problem, 20)


def test_trials_have_the_regret_of_the_whole_run_and_of_its_end() -> None:
    setting = problems.settings("1a", 3, None)
    history = run(problems.build("gp_ei", setting, 450), setting.problem, 450)
    trials = chowdhury.trials({"gp_ei": history})
    np.testing.assert_allclose(trials["regret"], history.regret.sum(-1))
    np.testing.assert_allclose(trials["late"], history.regret[:, 405:].mean(-1))


@pytest.mark.slow
def test_the_short_form_writes_figures_page_and_claims(tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("BANDITS_TORCH_DATA", raising=False)
    chowdhury.main(["1a", "1b", "robustness", "--fast", "--out", str(tmp_path)])
    written = {path.name for path in tmp_path.iterdir()}
    kinds = (".png", "_trials.csv", "_facts.csv")
    assert {f"figure1{side}{kind}" for side in "ab" for kind in kinds} | {"robustness.csv"} <= written
    page, claims = (tmp_path / "RESULTS.md").read_text(), _claims.read(tmp_path)
    assert "## Figure 1" in page
    assert "## Figure 2" not in page
    assert {c.where for c in claims} >= {f"Figure {panel}" for panel in PANELS}
    untested = {c.where for c in claims if c.verdict == UNTESTED}
    assert "Figure 3a" in untested
    assert "Figure 1a" not in untested
    told = {c.where: c.numbers.endswith("[not 30000: 1a after 60 steps]") for c in claims}
    assert told["Figure 1a"]
    assert not told["Figure 3a"]
    chowdhury.main(["report", "--fast", "--out", str(tmp_path)])
    assert (tmp_path / "RESULTS.md").read_text() == page


@needs_data
def test_the_short_form_of_the_sensors(tmp_path) -> None:
    chowdhury.main(["figure4", "report", "--fast", "--data", str(REAL), "--out", str(tmp_path)])
    assert "![Figure 4b](figure4b.png)" in (tmp_path / "RESULTS.md").read_text()
