"""A replayed table gives the table's rewards, and knows the past only."""

from pathlib import Path

import pytest
import torch

from bandits_torch.kernels import estimate_covariance
from bandits_torch.problems import Replay, RewardTable, fit_forgetting, fit_forgetting_rate, make
from bandits_torch.problems.forgetting_fit import without_noise
from bandits_torch.streams import ReplicateStreams


def _table(rows: int = 50, arms: int = 4, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    walk = torch.randn(rows, arms, generator=generator, dtype=torch.float64).cumsum(0)
    return 0.3 * walk + torch.arange(arms)


def test_rewards_are_the_tables_entries_without_noise() -> None:
    table = _table()
    problem = Replay(table, warm_up=0.2, replicates=3)
    assert problem.horizon == 40
    for step in (1, 7, 40):
        assert torch.equal(problem.expected_rewards(step), table[9 + step].expand(3, -1))
        arm = torch.tensor([2, 0, 3])
        assert torch.equal(problem.pull(step, arm, ReplicateStreams(0, 3)), table[9 + step, arm])
        assert problem.available(step) is None
        assert problem.time(step) == float(step)


def test_one_replicate_serves_any_number() -> None:
    problem = Replay(_table())
    rewards = problem.pull(1, torch.tensor([0, 1, 2, 3, 0]), ReplicateStreams(0, 5))
    assert torch.equal(rewards[[0, 4]], problem.table[0, [0, 0]])


def test_knowledge_comes_from_the_warm_up_alone() -> None:
    table = _table()
    changed = table.clone()
    changed[10:] = 1000 * torch.randn(40, 4, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    one, other = Replay(table, warm_up=0.2).knowledge, Replay(changed, warm_up=0.2).knowledge
    assert torch.equal(one.kernel.covariance, other.kernel.covariance)
    assert torch.equal(torch.as_tensor(one.prior_mean), torch.as_tensor(other.prior_mean))
    for figure in ("noise_variance", "rkhs_bound", "forgetting_rate"):
        assert getattr(one, figure) == getattr(other, figure)


def test_knowledge_is_what_the_history_says() -> None:
    history, table = _table(30), _table(20, seed=1)
    known = Replay(table, history=history).knowledge
    fit = fit_forgetting(history, torch.arange(30.0).double(), estimate_covariance(history))
    C = fit.covariance
    assert torch.equal(known.kernel.covariance, C)
    torch.testing.assert_close(known.prior_mean, history.mean(0))
    assert (known.noise_variance, known.forgetting_rate) == (fit.noise_variance, fit.forgetting_rate)
    # the bound: norm of the fit of each centred row to within the noise, the largest of them
    rows = history - history.mean(0)
    alpha = torch.linalg.solve(C + known.noise_variance * torch.eye(4).double(), rows.T).T
    assert known.rkhs_bound == pytest.approx(((alpha @ C) * alpha).sum(-1).sqrt().max().item())


@pytest.mark.filterwarnings("ignore:forgetting rate|noise variance:UserWarning")
@pytest.mark.parametrize("seed", range(3))
def test_of_zeros_and_ones_no_arm_has_more_noise_than_its_share_called_change(seed: int) -> None:
    """Chances that stand still: with one noise for all, a third of the variance of the arm at .55 would be change, and
    nothing of that at .95."""
    chance = torch.tensor([0.55, 0.7, 0.85, 0.95]).double()
    history = (torch.rand(300, 4, generator=torch.Generator().manual_seed(seed)) < chance).double()
    problem = Replay(history[:10], history=history)
    share = torch.as_tensor(problem.knowledge.kernel.covariance).diagonal() / history.var(0)
    assert share.max() < 1.6 * share.min()
    low, high = problem.fit.noise_interval
    assert low <= float(problem.knowledge.noise_variance) <= high
    assert 0.5 < float(problem.knowledge.noise_variance) / float(history.var(0).mean()) < 1.0


def test_bound_leaves_missing_entries_out() -> None:
    history = _table(30)
    gappy = history.clone()
    gappy[5:, 3] = float("nan")
    assert Replay(_table(5), history=gappy).knowledge.rkhs_bound > 0


def test_prior_mean_options() -> None:
    history = _table(30)
    grand = Replay(_table(5), history=history, prior_mean="grand").knowledge.prior_mean
    assert grand == pytest.approx(history.mean().item())
    assert Replay(_table(5), history=history, prior_mean=1.5).knowledge.prior_mean == 1.5


def test_rate_is_fitted_to_a_given_noise_and_noise_beside_a_given_rate() -> None:
    history, times = _table(30), torch.arange(30.0).double()
    C = estimate_covariance(history)
    noise = 0.2 * float(C.diagonal().mean())
    replay = Replay(_table(5), history=history, noise_fraction=0.2)
    assert replay.knowledge.forgetting_rate == fit_forgetting_rate(
        history, times, without_noise(C, noise), noise
    )
    assert replay.fit is None
    known = Replay(_table(5), history=history, forgetting_rate=0.25).knowledge
    assert known.forgetting_rate == 0.25
    assert known.noise_variance == fit_forgetting(history, times, C).noise_variance
    known = Replay(_table(5), history=history, forgetting_rate=0.25, noise_fraction=0.2).knowledge
    assert (known.forgetting_rate, known.noise_variance) == (0.25, noise)
    torch.testing.assert_close(known.kernel.covariance, without_noise(C, noise))


def test_missing_rewards_are_masked_and_rows_without_any_are_left_out() -> None:
    nan, table = float("nan"), _table(20)
    table[12, 1] = nan
    table[14] = nan
    problem = Replay(table, warm_up=0.5)
    assert problem.horizon == 9
    assert problem.available(3).tolist() == [True, False, True, True]
    assert problem.available(1).all()
    assert torch.isnan(problem.expected_rewards(3)[0, 1])
    assert [problem.time(t) for t in (4, 5)] == [4.0, 6.0]
    assert torch.equal(problem.expected_rewards(5)[0], table[15])


def test_time_is_counted_in_median_gaps_and_keeps_irregular_ones() -> None:
    times = torch.cat([torch.arange(10), torch.tensor([10, 11, 14, 15])]).double() * 600 + 1e9
    problem = Replay(_table(14), times, warm_up=10 / 14)
    assert [problem.time(t) for t in (1, 2, 3, 4)] == [1.0, 2.0, 5.0, 6.0]
    assert problem.history_times.tolist() == [float(t) for t in range(-9, 1)]


def test_history_times_join_the_tables() -> None:
    problem = Replay(
        _table(5),
        torch.arange(5.0) * 10 + 1000,
        history=_table(6),
        history_times=torch.arange(6.0) * 10 + 900,
    )
    assert problem.history_times.tolist() == [-9.0, -8.0, -7.0, -6.0, -5.0, -4.0]
    assert problem.time(1) == 1.0


def test_kernel_reads_the_index_and_features_ride_along() -> None:
    features = torch.tensor([[0.5, 1.0], [2.0, 3.0], [4.0, 5.0], [6.0, 7.0]])
    problem = Replay(_table(), arms=features)
    assert torch.equal(problem.arms, torch.cat([torch.arange(4.0).unsqueeze(-1), features], -1).double())
    plain = Replay(_table())
    assert torch.equal(plain.arms, torch.arange(4.0).double().unsqueeze(-1))
    for one in (problem, plain):
        assert torch.equal(one.knowledge.kernel(one.arms).to_dense(), one.knowledge.kernel.covariance)


def test_horizon_limits_the_steps() -> None:
    problem = Replay(_table(), horizon=7)
    assert problem.horizon == 7
    problem.expected_rewards(7)
    for method in (problem.expected_rewards, problem.available, problem.time):
        with pytest.raises(ValueError, match=r"step must be an integer in 1, \.\.\., 7, got 8"):
            method(8)
        with pytest.raises(ValueError, match=r"step must be an integer in 1, \.\.\., 7, got 0"):
            method(0)


def test_to_moves_rewards_mask_and_knowledge() -> None:
    table = _table()
    table[30, 2] = float("nan")
    problem = Replay(table).to(torch.float32)
    assert problem.expected_rewards(1).dtype == torch.float32
    assert problem.available(21).dtype == torch.bool
    assert problem.knowledge.prior_mean.dtype == torch.float32
    assert problem.knowledge.kernel(problem.arms).to_dense().dtype == torch.float32


def test_reward_table_brings_times_and_names() -> None:
    table = RewardTable(_table(), torch.arange(50.0).double() * 2, ("a", "b", "c", "d"))
    problem = Replay(table)
    assert problem.arm_names == ("a", "b", "c", "d")
    assert problem.time(2) == 2.0


GOOD, NOT_PLAYED = {"table": _table(20)}, torch.cat([_table(10), torch.full((10, 4), float("nan"))])
BAD = [  # other single arguments: tests/fuzz
    ({"table": _table(5)}, r"warm_up must be a share of the rows with two rewards of every arm .*got \['0'"),
    ({"table": torch.ones(20, 4)}, r"warm_up must be a share of the rows with rewards that vary, got 0\.2"),
    ({"table": _table(5)}, r"\(these have fewer; ignore= leaves columns out of a race\)"),
    ({"history": _table(1)}, "history must be a table with two rewards of every arm"),
    ({"table": _table(1)}, "table must be long enough for a warm_up"),
    ({"times": torch.arange(19.0)}, "times must have shape"),
    ({"times": torch.zeros(20)}, "times must increase"),
    ({"arms": torch.zeros(3, 2)}, "arms must have shape"),
    ({"arms": torch.full((4, 2), float("nan"))}, "arms must be finite"),
    ({"history": torch.zeros(5, 3)}, "history must have shape"),
    ({"history": torch.ones(5, 4)}, "history must be a table with rewards that vary"),
    ({"history": _table(5), "warm_up": 0.2}, "warm_up must be None when a history is given"),
    ({"history_times": torch.arange(5.0)}, "history_times must be None without history"),
    ({"history": _table(5), "history_times": torch.arange(5.0)}, "history_times must be given with times"),
    ({"history": _table(5), "times": torch.arange(20.0)}, "history_times must be given with times"),
    (
        {"history": _table(5), "times": torch.arange(20.0), "history_times": torch.arange(5.0)},
        "history_times must be before the times",
    ),
    (
        {"table": RewardTable(_table(20)), "times": torch.arange(20.0)},
        "times must be None with a RewardTable",
    ),
    ({"times": list(range(20))}, "times must be a tensor"),
    ({"arms": [[1.0]] * 4}, "arms must be a tensor"),
    ({"history": [[1.0] * 4] * 5}, "history must be a tensor"),
    (
        {"history": _table(5), "times": torch.arange(20.0), "history_times": [-5, -4, -3, -2, -1]},
        "history_times must be a tensor",
    ),
    ({"horizon": 17}, r"horizon must be an integer in 1, \.\.\., 16"),
    ({"table": NOT_PLAYED, "warm_up": 0.5}, "table must be a table with rewards left to play"),
]


@pytest.mark.parametrize(("changes", "message"), BAD)
def test_bad_arguments_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Replay(**(GOOD | changes))  # type: ignore[arg-type]


def test_make_replays_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    lines = [",".join(map(str, row)) for row in _table().tolist()]
    path.write_text("\n".join(["a,b,c,d", *lines]), encoding="utf-8")
    problem = make("replay", data=path, horizon=5, replicates=2, rewards="a,c", warm_up=0.5)
    assert problem.expected_rewards(1).shape == (2, 2)
    torch.testing.assert_close(problem.expected_rewards(1)[0], _table()[25, [0, 2]])
    with pytest.raises(
        ValueError,
        match=r"^data must be the path of a file \(a table in memory .*Replay\(tensor\)\), got an array",
    ):
        make("replay", data=_table().numpy())
    with pytest.raises(ValueError, match="data must be given for problem 'replay'"):
        make("replay")


def test_arms_may_be_numbered() -> None:
    problem = Replay(RewardTable(_table(30), arm_names=(1, 2, 3, 5)))  # type: ignore[arg-type]
    assert problem.summary()[0].startswith("4 arms (1, 2, 3, 5), ")


def test_summary_tells_what_was_read_and_what_was_left_out(tmp_path: Path) -> None:
    table = _table(60)
    table[:, 3] = 2.5
    table[50, 1] = float("nan")
    table[52] = float("nan")
    path = tmp_path / "mine.csv"
    rows = [
        ",".join([f"{1.7e9 + 600 * t:.0f}", *("" if v != v else repr(v) for v in row)])
        for t, row in enumerate(table.tolist())
    ]
    path.write_text("\n".join(["when,a,b,c,d", *rows]), encoding="utf-8")
    problem = make("replay", data=path, horizon=40)
    assert problem.summary()[:5] == [
        "4 arms (a, b, c, d), 12 rows learned from, 40 played, 1 without any reward, 7 left out by the horizon",
        "times: 'when', as given; epoch=s if they are seconds since 1970",
        "one step: 600 of the time's units (the median gap)",
        "missing rewards: 1 of 208 (0.5%), treated as arms that cannot be pulled then",
        "arms that never change: d",
    ]
    assert problem.summary()[5:] == problem.fit.describe()
    assert make("gp").summary() == []
