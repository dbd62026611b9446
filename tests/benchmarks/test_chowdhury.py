"""The figures of Chowdhury & Gopalan: settings as printed, files, and verdicts that follow the trials."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from bandits_torch.loop import run
from bandits_torch.policies import Observation
from benchmarks.papers import _chowdhury_page, _claims, chowdhury
from benchmarks.papers import _chowdhury_problems as problems
from benchmarks.papers._chowdhury_page import NAMES, PANELS
from benchmarks.papers._claims import FAILS, HOLDS, UNTESTED
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


def panel_files(folder: Path, panel: str, means: dict[str, float], late: float = 0.0) -> None:
    spread = np.array([0.0, 0.01, -0.01])
    means = means | {name: means[of] for name, of in problems.OVER_MEAN.items() if name not in means}
    rows = [
        {"policy": p, "trial": k, "regret": m * (1 + s), "late": late}
        for p, m in means.items()
        for k, s in enumerate(spread)
    ]
    pd.DataFrame(rows).to_csv(folder / f"figure{panel}_trials.csv", index=False)
    facts = {
        "setting": "x",
        "arms": 1,
        "trials": 3,
        "steps": 10,
        "R^2": 1,
        "B": 1,
        "random": 1.0,
        "width": 1.0,
    }
    pd.DataFrame([{"policy": p, "seconds": 1} | facts for p in NAMES]).to_csv(
        folder / f"figure{panel}_facts.csv", index=False
    )


def found(folder: Path) -> dict[tuple[str, str], str]:
    return {(c.where, c.claim.split(" (")[0]): c.verdict for c in _chowdhury_page.make_claims(folder)}


AS_PAPER = {"gp_ucb": 100.0, "igp_ucb": 10.0, "gp_ts": 15.0, "gp_ei": 20.0, "gp_pi": 21.0}


def test_verdicts_are_those_of_the_trials(tmp_path) -> None:
    assert {v for k, v in found(tmp_path).items()} == {UNTESTED}
    for panel in ("1a", "1b", "2a", "2b"):
        panel_files(tmp_path, panel, AS_PAPER)
    for panel in ("3a", "3b"):
        panel_files(tmp_path, panel, AS_PAPER | {"igp_ucb": 22.0, "gp_ts": 25.0})
    panel_files(tmp_path, "4a", AS_PAPER | {"gp_ucb": 10.5, "gp_ts": 5.0})
    panel_files(tmp_path, "4b", AS_PAPER | {"gp_ts": 5.0})
    EI_PI = ("gp_ei", "gp_pi", "gp_ei_mean", "gp_pi_mean")
    best, worst = dict.fromkeys(EI_PI, 2), dict.fromkeys(EI_PI, 3)
    rows = [{"gp_ucb": 9, "igp_ucb": 1, "gp_ts": 1} | best, {"gp_ucb": 9, "igp_ucb": 3, "gp_ts": 4} | worst]
    pd.DataFrame(rows).to_csv(tmp_path / "robustness.csv", index=False)
    verdicts = found(tmp_path)
    left = {where for (where, _), verdict in verdicts.items() if verdict == UNTESTED}
    assert left == {"Figure 4, text"}
    assert {v for (where, _), v in verdicts.items() if where not in left} == {HOLDS}


def test_verdicts_turn_with_the_trials(tmp_path) -> None:
    turned = {"gp_ucb": 1.0, "igp_ucb": 50.0, "gp_ts": 60.0, "gp_ei": 2.0, "gp_pi": 4.0}
    panel_files(tmp_path, "1a", turned, late=0.5)
    panel_files(tmp_path, "2a", AS_PAPER, late=0.5)
    panel_files(tmp_path, "3a", AS_PAPER | {"gp_ei": 200.0, "gp_pi": 400.0, "igp_ucb": 900.0, "gp_ts": 900.0})
    panel_files(tmp_path, "4a", AS_PAPER)
    panel_files(tmp_path, "4b", AS_PAPER)
    verdicts = found(tmp_path)
    assert {
        v
        for (where, _), v in verdicts.items()
        if where in ("Figure 1a", "Figure 3a", "Section 7", "Section 4.1")
    } == {FAILS}
    assert (
        verdicts["Figure 2a", "The methods compare on draws of the GP as on functions of the RKHS"] == FAILS
    )
    assert verdicts["Figure 4a", "IGP-UCB and GP-UCB perform the same"] == FAILS
    assert verdicts["Figure 4a", "GP-TS performs better than all others"] == FAILS
    assert verdicts["Figure 4b", "IGP-UCB performs better than GP-EI and GP-PI"] == HOLDS
    assert verdicts["Figure 4b", "GP-TS performs better than all others"] == FAILS


def test_the_other_incumbent_stands_beside_a_verdict_that_it_turns(tmp_path) -> None:
    panel_files(tmp_path, "1a", AS_PAPER | {"gp_ei_mean": 5.0})
    claims = {
        c.claim.split(" (")[0]: c for c in _chowdhury_page.make_claims(tmp_path) if c.where == "Figure 1a"
    }
    best = claims["IGP-UCB performs best of all"]
    assert best.verdict == HOLDS
    assert f"[over means: {FAILS}, IGP-UCB 10" in best.numbers
    assert "over means" not in claims["IGP-UCB improves on GP-UCB significantly"].numbers


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


def test_misuse_is_refused(monkeypatch, tmp_path) -> None:
    monkeypatch.delenv("BANDITS_TORCH_DATA", raising=False)
    for arguments in (["figure5"], ["4b", "--out", str(tmp_path)], ["report", "--steps", "0"]):
        with pytest.raises(SystemExit):
            chowdhury.main(arguments)
