"""Values of policies from logs: against plain twins, against the truth, and what is refused."""

from dataclasses import replace
from datetime import datetime
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest
import torch

from bandits_torch import ArmContext, AskTell, load_policy, recipes, save_policy, value
from bandits_torch.policies import Choice, Observation, RandomPolicy
from bandits_torch.problems import Log, read_data, read_log, read_table
from benchmarks.logs import __main__ as logs
from tests.cli.shell import call
from tests.reference import plain_off_policy as plain


def drawn(seed, n=400, skewed=False, drift=False):
    """A log of four arms, and the expected rewards (n, 4)."""
    return logs.drawn(seed, n, skewed, drift), logs.means_of(n, drift)


def one(arm, of=4):
    return torch.eye(of).double()[arm]


def test_a_learning_policy_is_replayed_as_in_li_et_al():
    log, _ = drawn(1)
    built, twin = (recipes.ucb1(4) for _ in range(2))

    def choose(row):
        return int(twin.choose(float(log.times[row])).arm)

    def learn(row, arm, reward):
        twin.learn(Observation(float(log.times[row]), torch.tensor([arm]), torch.tensor([reward]).double()))

    expected = plain.replay(log.arms.tolist(), log.rewards.tolist(), choose, learn)
    found = value(log, built, warm_up=0.0, replays=2)
    assert found.value == pytest.approx(expected, rel=1e-12)
    assert found.learned == found.matched == found.effective
    assert built.choose(0.0).arm == 0  # it is as before


def test_a_misspelt_policy_or_option_is_refused_before_anything_is_estimated():
    """Rewards without a pattern, of which an estimate warns."""
    generator = torch.Generator().manual_seed(0)
    arms, rewards = torch.randint(3, (400,), generator=generator), torch.randn(400, generator=generator)
    log = Log(torch.arange(400).double(), arms, rewards.double(), propensity=torch.full((400,), 1 / 3))
    with pytest.warns(UserWarning, match="forgetting rate|noise variance"):
        value(log, "gp_ucb", replays=2)
    with pytest.raises(ValueError, match="did you mean gp_ucb"):
        value(log, "gp_usb")
    with pytest.raises(ValueError, match="did you mean window"):
        value(log, "sw_gp_ucb", windw=3)


@pytest.mark.parametrize("estimator", ["snips", "dr"])
def test_an_interval_that_rests_on_few_rows_of_an_arm_says_so(estimator, tmp_path):
    """All effective rows are those of the other arms, nearly: they hide how few there are of the first."""
    n, generator = 2400, np.random.default_rng(0)

    def log_with(rare, rewards):
        arms = torch.from_numpy(generator.permutation([0] * rare + [1 + k % 2 for k in range(n - rare)]))
        chance = torch.tensor([0.004, 0.498, 0.498]).double()
        return Log(torch.arange(n).double(), arms, rewards, ("rare", "a", "b"), propensity=chance[arms])

    rewards = torch.from_numpy(generator.normal(size=n))
    told = {"estimator": estimator, "warm_up": 0.0}
    few = value(log_with(10, rewards), torch.full((3,), 1 / 3), **told)
    assert few.effective > 50
    assert few.narrow == "the interval may be too narrow: it rests on 10 rows of arm 'rare'"
    assert value(log_with(40, rewards), torch.full((3,), 1 / 3), **told).narrow == ""
    assert value(log_with(10, rewards), torch.tensor([1e-3, 0.5, 0.499]), **told).narrow == ""
    path = tmp_path / "log.csv"
    rewards = np.random.default_rng(3).normal(size=60)
    rows = (f"{t},{'ab'[t % 2]},{rewards[t]},0.5\n" for t in range(60))
    path.write_text("time,arm,reward,propensity\n" + "".join(rows))
    said = " ".join(call("value", path, "--policies", "auto", "--replays", 2).output.split())
    assert "the interval may be too narrow: it rests on" in said


def test_rows_of_one_time_count_as_spread_over_the_gap_to_the_next():
    rng = np.random.default_rng(0)
    rows = torch.arange(480)
    arms = torch.from_numpy(rng.integers(0, 4, 480))
    rewards = torch.sin(rows / 60 + arms) + 0.3 * torch.from_numpy(rng.normal(size=480))
    each = Log(rows.double(), arms, rewards)
    expected = value(each, "tv_gp_ucb", replays=2)
    five = replace(each, times=(rows // 5 * 5).double())
    assert value(five, "tv_gp_ucb", replays=2) == expected
    milliseconds = replace(each, times=1.7e12 + rows // 2)
    assert value(milliseconds, "tv_gp_ucb", replays=2).value == pytest.approx(expected.value, rel=1e-6)
    at_once = replace(each, times=torch.zeros(480).double())
    assert value(at_once, "tv_gp_ucb", replays=2).value == pytest.approx(expected.value, rel=1e-6)
    under = Log(rows[:120].double(), arms[:120], rewards[:120], contexts=(rows[:120] % 2).double()[:, None])
    expected = value(under, "auto", replays=2).value
    at_once = replace(under, times=torch.zeros(120).double())
    assert value(at_once, "auto", replays=2).value == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("estimator", ["snips", "dr"])
def test_fixed_policies_are_valued_as_in_the_papers(estimator):
    log, _ = drawn(2, 120, skewed=True)
    pi = torch.tensor([0.5, 0.0, 0.2, 0.3], dtype=torch.float64)
    told = [column.tolist() for column in (log.arms, log.rewards, log.propensity)]
    if estimator == "snips":
        expected = plain.snips(*told, pi.tolist())
    else:
        expected = plain.doubly_robust(*told, [pi.tolist()] * 120, plain.predictions(*told[:2], 4))
    assert value(log, pi, warm_up=0.0, estimator=estimator).value == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("listed", [False, True])
def test_rewards_are_predicted_under_contexts_as_in_plain_python(listed):
    log, _ = logs.drawn_under(2, 90, listed, True, False)
    told = [column.tolist() for column in (log.arms, log.rewards, log.propensity)]
    contexts = log.contexts.tolist()
    features = (
        plain.features_of_names([row[0] for row in contexts], 3)
        if listed
        else plain.features_of_numbers(contexts)
    )
    pi = torch.from_numpy(np.random.default_rng(0).dirichlet(np.ones(4), 90))
    predicted = plain.predictions(*told[:2], 4, features)
    expected = plain.doubly_robust(*told, pi.tolist(), predicted)
    assert value(log, pi, warm_up=0.0).value == pytest.approx(expected, rel=1e-9)
    without = plain.doubly_robust(*told, pi.tolist(), plain.predictions(*told[:2], 4))
    assert abs(expected - without) > 1e-3


def test_a_policy_is_asked_with_the_context_of_the_row():
    log, _ = logs.drawn_under(3, 90, True, False, False)
    best = logs.BY_CONTEXT.argmax(1)

    class Best(RandomPolicy):
        takes_contexts = True

        def choose(self, time, available=None):
            return Choice(torch.tensor([best[int(available.context)]]))

    found = value(log, Best(torch.zeros(4, 1).double()), warm_up=0.0, replays=2)
    fixed = value(log, torch.eye(4).double()[best[log.contexts[:, 0].long()]], warm_up=0.0)
    assert found.value == pytest.approx(fixed.value, rel=1e-12)


def test_recipes_that_take_contexts_get_those_of_the_log():
    for listed in (True, False):
        log, _ = logs.drawn_under(4, 60, listed, False, False)
        found = value(log, "auto", replays=2)
        assert found.learned > 0
    assert value(log, "ucb1", replays=2).learned > 0  # takes none


@pytest.mark.sampled(2)
@pytest.mark.parametrize("listed", [False, True])
def test_intervals_under_contexts_hold_the_truth(listed):
    held = []
    for seed in range(100):
        log, means = logs.drawn_under(1000 + seed, 400, listed, seed % 2 == 0, True)
        best = logs.means_under(log.contexts.numpy(), False).argmax(1)
        for arms in (np.full(400, seed % 4), best):
            found = value(log, torch.eye(4).double()[arms], warm_up=0.0)
            held.append(found.low <= means[np.arange(400), arms].mean() <= found.high)
    assert 0.85 <= np.mean(held) <= 0.95


@pytest.mark.sampled(2)
@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.parametrize("drift", [False, True])
def test_intervals_hold_the_truth(skewed, drift):
    held = []
    for seed in range(200):
        log, means = drawn(1000 + seed, 600, skewed, drift)
        found = value(log, one(seed % 4), warm_up=0.0)
        held.append(found.low <= means[:, seed % 4].mean() <= found.high)
    assert 0.85 <= np.mean(held) <= 0.95


@pytest.mark.parametrize(("chance", "known"), [(0.005, False), (0.02, True), (0.05, False)])
def test_intervals_of_rare_successes_hold_though_the_rows_of_a_policy_may_have_none(chance, known):
    """Of ten arms drawn uniformly, a policy that always plays one agrees with 20 of 200 rows."""
    rng, held = np.random.default_rng(0), []
    for _ in range(200):
        arms = torch.from_numpy(rng.integers(0, 10, 200))
        rewards = torch.from_numpy((rng.random(200) < chance).astype(float))
        propensity = torch.full((200,), 0.1).double() if known else None
        log = Log(torch.arange(200).double(), arms, rewards, propensity=propensity)
        if int((arms == 0).sum()) >= 10:
            found = value(log, one(0, 10), warm_up=0.0, estimator="snips" if known else "replay")
            held.append(found.low <= chance <= found.high)
    assert np.mean(held) >= 0.88


@pytest.mark.parametrize(
    ("skewed", "drift"),
    [pytest.param(*case, marks=pytest.mark.slow) for case in ((False, True), (True, False))] + [(True, True)],
)
def test_values_of_a_policy_that_learns_have_no_bias(skewed, drift):
    """Over 40 logs, against the policy played on the simulator that learns from as many of its steps."""
    share = 0.1 if skewed else 0.25
    truth = np.array([logs.learned_in_part(5000 + seed, share, 400, drift) for seed in range(60)])
    found = [
        value(drawn(6000 + seed, 400, skewed, drift)[0], recipes.ucb1(4), warm_up=0.0, replays=2).value
        for seed in range(40)
    ]
    error = np.sqrt(np.var(found) / len(found) + np.var(truth) / len(truth))
    assert abs(np.mean(found) - truth.mean()) < 3 * error


def test_what_nothing_identifies_is_refused():
    log, _ = drawn(4)
    times, rewards = log.times, log.rewards
    with pytest.raises(ValueError, match="propensity must be given, because the arms were not drawn"):
        value(Log(times, drawn(4, skewed=True)[0].arms, rewards), one(0))
    in_turn = torch.arange(400) % 4
    with pytest.raises(ValueError, match="an arm follows itself 0 times, not 100"):
        value(Log(times, in_turn, rewards), one(0))
    with pytest.raises(ValueError, match="propensity of 1 in 240 of 320 rows"):
        value(Log(times, in_turn, rewards, propensity=torch.ones(400).double()), one(0))
    never = Log(times, log.arms, rewards, tuple("abcde"), torch.full((400,), 0.25).double())
    with pytest.raises(ValueError, match=r"one that pulls only logged arms, got .*e"):
        value(never, one(4, 5))
    preferred = torch.arange(400) % 4  # each context has an arm of its own, all equally often
    by_context = {"contexts": preferred.double().unsqueeze(1) / 10}
    order = torch.randperm(400, generator=torch.Generator().manual_seed(0))
    by_context["contexts"] = by_context["contexts"][order]
    with pytest.raises(ValueError, match=r"not drawn uniformly at random: pulls of .* whose number 0"):
        value(Log(times, preferred[order], rewards, **by_context), one(0))
    few = Log(times[:40], log.arms[:40], rewards[:40], propensity=torch.full((40,), 0.25).double())
    with pytest.raises(ValueError, match="agrees with the log in ten effective rows or more"):
        value(few, one(0))


def test_a_log_stays_as_it_is_when_its_callers_tensors_change():
    given = {
        "times": torch.tensor([1.0, 2.0]).double(),
        "arms": torch.tensor([0, 1]),
        "rewards": torch.tensor([1.0, 2.0]).double(),
        "propensity": torch.tensor([0.5, 0.5]).double(),
        "available": torch.ones(2, 2, dtype=torch.bool),
        "contexts": torch.ones(2, 1).double(),
    }
    log, kept = Log(**given), {name: value.clone() for name, value in given.items()}
    for one in given.values():
        one.zero_()
    assert all(torch.equal(getattr(log, name), value) for name, value in kept.items())


def test_names_may_be_numbers():
    log = replace(drawn(1)[0], arm_names=(10, 20, 30, 40))
    assert log.arm_names == ("10", "20", "30", "40")
    assert AskTell.auto(log=log).ask(1000).name in log.arm_names
    under = replace(log, contexts=torch.zeros(400, 1), context_names=pd.Index([7, 8]))
    assert "Contexts: 7, 8." in str(under)
    with pytest.raises(ValueError, match="arm_names must be a sequence of names, got 'abcd'"):
        replace(log, arm_names="abcd")


def test_rewards_and_probabilities_may_come_with_a_gradient():
    log, _ = drawn(1, skewed=True)
    learned = replace(log, rewards=log.rewards.clone().requires_grad_())
    probabilities = torch.softmax(torch.arange(4.0).double().requires_grad_(), 0)
    assert value(learned, probabilities) == value(log, probabilities.detach())


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"available": torch.tensor([[True, True], [True, False]])}, "available must be True for its arm"),
        ({"contexts": torch.tensor([[0.0], [2.0]]), "context_names": ("x", "y")}, r"contexts must .*0 to 1"),
        ({"contexts": torch.ones(2, 1), "context_names": ("x", "x")}, "context_names must be different"),
        ({"contexts": torch.ones(2, 1) + 0j}, "contexts must be real numbers"),
        ({"rewards": torch.ones(2) + 0j}, "rewards must be real numbers"),
    ],
)
def test_a_log_that_cannot_be_is_refused(wrong, said):
    good = {
        "times": torch.tensor([1.0, 2.0]),
        "arms": torch.tensor([0, 1]),
        "rewards": torch.tensor([1.0, 2.0]),
    }
    assert Log(**good).arm_names == ("0", "1")
    with pytest.raises(ValueError, match=said):
        Log(**good | wrong)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"estimator": "dr"}, "estimator must be one of auto, replay here"),
        ({"warm_up": 1 - 1e-9}, "warm_up must be smaller: it leaves none"),
        ({"warm_up": 0.0, "policy": "ucb1"}, "log must be longer, or warm_up larger: the recipe estimates"),
        ({"window": 3}, "options must be none for a fixed policy"),
        ({"policy": [0.25] * 4}, "policy must be a recipe's name, a Policy or a tensor, got"),
        ({"policy": torch.tensor([0.5, 0.1, 0.1, 0.1])}, "policy must be probabilities that add up to 1"),
        ({"policy": one(0) + 0j}, "policy must be real numbers"),
        ({"policy": recipes.ucb1(4, replicates=2)}, "policy.replicates must be 1"),
        ({"policy": recipes.ucb1(3)}, "policy.num_arms must be 4"),
    ],
)
def test_arguments_of_value_are_checked(wrong, said):
    with pytest.raises(ValueError, match=said):
        value(**{"log": drawn(4)[0], "policy": one(0)} | wrong)


def test_logs_are_read_sorted_with_their_lists(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(
        "time,arm,reward,propensity,available,who\n3,b,1.5,0.5,a|b,x\n1,a,0.5,0.25,a|b|c,y\n2,c,2,1,c,z\n"
    )
    log = read_log(path)
    assert log.arm_names == ("a", "b", "c")
    assert log.times.tolist() == [1, 2, 3]
    assert log.arms.tolist() == [0, 2, 1]
    assert log.rewards.tolist() == [0.5, 2.0, 1.5]
    assert log.propensity.tolist() == [0.25, 1.0, 0.5]
    assert log.available.tolist() == [[True, True, True], [False, False, True], [True, True, False]]
    assert log.notes[1] == "left out: who"
    path.write_text("time,what,who,reward\n1,a,x,2\n2,b,y,3\n")

    assert read_log(path, arm="what").num_arms == 2
    assert read_log(path, contexts=["who"]).arm_names == ("a", "b")
    path.write_text("minute,age,arm,reward\n7,1,a,2\n8,2,b,3\n")
    for log in (
        read_log(path, time="minute"),
        read_log(path, time_column="minute"),
        read_data(path, time_column="minute"),
    ):
        assert log.times.tolist() == [7, 8]


@pytest.mark.parametrize("cells", [["0|1", "1", "0"], [[0, 1], [1], [0]], [0, 1, 0]])
def test_lists_of_arms_are_read_from_parquet_as_text_as_lists_and_as_numbers(tmp_path, cells):
    path = tmp_path / "log.parquet"
    table = {"time": [3, 1, 2], "arm": [0, 1, 0], "reward": [1.5, 0.5, 2.0], "available": cells}
    pd.DataFrame(table).to_parquet(path)
    log = read_log(path)
    assert log.arm_names == ("0", "1")
    assert log.available[:2].tolist() == [[False, True], [True, False]]
    pd.DataFrame(table | {"available": [True, True, False]}).to_parquet(path)
    with pytest.raises(ValueError, match="available must be True for its arm, got 'False in row 1 by time'"):
        read_log(path)


def test_numbered_arms_of_a_log_are_in_the_order_of_their_numbers(tmp_path):
    path = tmp_path / "log.csv"
    arms = [arm % 12 for arm in range(600)]
    path.write_text(
        "time,arm,reward,propensity\n" + "".join(f"{t},{k},{k},.0833\n" for t, k in enumerate(arms))
    )
    for log in (read_log(path), read_data(path)):
        assert log.arm_names == tuple(map(str, range(12)))
        assert log.arms.tolist() == arms
    assert value(log, one(2, 12), estimator="snips").value == pytest.approx(2.0)
    path.write_text("time,arm,reward,available\n1,10,0.5,10|2|nan\n2,2,0.1,10|2\n3,3,0.2,2|3|nan\n")
    assert read_log(path).arm_names == ("10", "2", "3", "nan")  # NaN has no place among numbers


@pytest.mark.parametrize("header", ["time,banner,clicked", "clicked,when,banner", "p,banner,time,reward"])
def test_one_column_of_words_and_one_of_numbers_are_arm_and_reward(tmp_path, header):
    cells = {"p": ".5 .5 .5", "banner": "y x y"}
    cells |= dict.fromkeys(("time", "when"), "2 1 3") | dict.fromkeys(("clicked", "reward"), "0 1 1")
    rows = zip(*(cells[name].split() for name in header.split(",")), strict=True)
    path = tmp_path / "log.csv"
    path.write_text("\n".join([header, *map(",".join, rows)]))
    for log in (read_log(path), read_data(path)):
        assert isinstance(log, Log)
        assert (log.arm_names, log.arms.tolist(), log.rewards.tolist()) == (
            ("x", "y"),
            [0, 1, 1],
            [1.0, 0.0, 1.0],
        )
        assert "'banner'" in log.notes[0]


@pytest.mark.filterwarnings("ignore::UserWarning")  # the record is short
def test_columns_of_a_log_are_named_on_the_command_line(tmp_path):
    path = tmp_path / "log.csv"
    shown = torch.randint(3, (60,), generator=torch.Generator().manual_seed(0)).tolist()
    path.write_text("time;banner;clicked\n" + "".join(f"{t};{arm};{t % 2}\n" for t, arm in enumerate(shown)))
    assert call("look", path).output.startswith("A full table")  # of numbers
    named = ["--option", "arm=banner", "--option", "reward=clicked", "--option", "separator=;"]
    looked = call("look", path, *named).output
    assert looked.startswith("A log: 60 pulls of 3 arms")
    same = "--option=arm=banner --option=reward=clicked '--option=separator=;'"
    assert f"`bandits-torch value {path} {same}` says" in looked
    valued = call("value", path, "--policies", "ucb1", *named)
    assert ["the", "log", "0.5"] in [line.split() for line in valued.output.splitlines()]
    both = call("look", path, *named, "--option", "long=true", code=2)
    assert "for a table or for a log, got ['long'] and ['arm', 'reward']" in both.output
    unknown = call("value", path, "--option", "arms=banner", code=2)
    assert "'arms' is not one of the log's options: did you mean arm?" in unknown.output


NAMED, MORE = "time,arm,reward\n1,a,1\n2,b,3\n", "time,arm,reward,screen,age\n1,a,2,desk,20\n2,b,3,phone,40\n"
NO_READING = [
    (NAMED, {"arm": 3}, "arm must be the name of a column, or None"),
    (NAMED, {"arm": "reward"}, "columns must be different"),
    (NAMED, {"time": "who", "time_column": "time"}, "time must be left out if time_column is given"),
    (NAMED, {"arm_names": 5}, r"arm_names must be with all arms of the file \(lacks a, b\), got \['5'\]"),
    (NAMED, {"arm_names": [None]}, "arm_names must be names, a sequence or one string with commas, or None"),
    (NAMED, {"arm_names": torch.ones(2)}, "arm_names must be names"),
    (NAMED, {"encoding": 5}, "encoding must be one that Python knows"),
    (f"{NAMED}3,a,\n", {}, r"row 3, column 'reward' must not be empty \(leave out pulls of which"),
    ("time,what,who,reward\n1,a,x,2\n2,b,y,3\n", {}, "arm must be the name of a column, got None"),
    ("time,arm,reward\n1,a,true\n2,b,false\n", {}, "row 1, column 'reward' must .*decimal= the mark\\)$"),
    (MORE, {"contexts": ["agee"]}, "contexts .*'agee'"),
    (MORE, {"contexts": ["arm"]}, "contexts must be no column of time, arm, reward or propensity"),
    (MORE, {"contexts": ["screen", "age"]}, r"contexts must be \['screen'\] alone, or columns of numbers"),
    (MORE, {"contexts": "agee"}, "contexts .*'agee'"),
    (MORE, {"contexts": True}, "contexts must be names, a sequence or one string with commas, or None"),
    (MORE, {"contexts": ["age", "age"]}, "contexts must be different"),
]


@pytest.mark.parametrize(("text", "wrong", "said"), NO_READING)
def test_columns_that_cannot_be_are_refused_by_name(text, wrong, said, tmp_path):
    (tmp_path / "log.csv").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=said):
        read_log(tmp_path / "log.csv", **wrong)


def test_names_of_a_log_may_be_one_string_with_commas(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(MORE, encoding="utf-8")
    log = read_log(path, contexts="age", arm_names="b, a")
    assert log.arm_names == ("b", "a")
    assert log.contexts.tolist() == [[20.0], [40.0]]
    looked = call("look", path, "--option", "contexts=age", "--option", "arm_names=b,a").output
    assert "Numbers of a context: 1." in looked


def test_a_log_of_several_pulls_of_an_arm_at_a_time_is_no_table(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("time,arm,reward\n1,a,1\n1,a,2\n2,b,3\n2,b,1.5\n", encoding="utf-8")
    log = read_data(path)
    assert isinstance(log, Log)
    assert log.rewards.tolist() == [1.0, 2.0, 3.0, 1.5]


def test_columns_of_contexts_are_read_by_name(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(
        "time,arm,reward,screen,age,hour\n3,b,1,phone,30,1\n1,a,2,desk,20,2.5\n2,a,3,phone,40,3\n"
    )
    named = read_log(path, contexts=["screen"])
    assert named.context_names == ("desk", "phone")
    assert named.contexts.tolist() == [[0.0], [1.0], [1.0]]
    assert named.notes[1] == "left out: age, hour"
    again = named.under(["phone", "tablet", "desk"])
    assert again.contexts.tolist() == [[2.0], [0.0], [0.0]]
    assert "Contexts: desk, phone." in str(named)
    numbers = read_log(path, contexts=["age", "hour"])
    assert numbers.context_names == ()
    assert numbers.contexts.tolist() == [[20.0, 2.5], [40.0, 3.0], [30.0, 1.0]]

    with pytest.raises(ValueError, match="log must be one of named contexts"):
        numbers.under(["desk"])
    with pytest.raises(ValueError, match="contexts of the log must be"):
        named.under(["phone", "tablet"])


def test_a_log_with_propensities_asks_which_column_is_the_reward(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("ts,banner,age,clicked,propensity\n1,A,30,0,.5\n2,B,41,1,.5\n3,A,25,1,.5\n")
    said = call("look", path, code=2).stderr
    assert "reward must be the name of a column, got None; there are ts, banner, age" in said
    assert said.rstrip().endswith("(here: --option reward=...)")
    assert call("look", path, "--option", "reward=clicked").output.startswith("A log: 3 pulls of 2 arms")
    with pytest.raises(ValueError, match="a log of pulls, with their propensities, is for `look`, `value`"):
        read_table(path)


def test_look_says_what_a_log_holds(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("time,arm,reward,propensity,available\n1,a,1,0.5,a|b\n2,a,3,0.25,a|b|c\n3,b,2.5,1,b\n")
    said = call("look", path).output.splitlines()
    assert said[0].startswith("A log: 3 pulls of 3 arms, a reward each.")
    assert said[1:-1] == [
        "Propensities (the probabilities with which arms were drawn): at least 0.25.",
        "Arms available at a pull: 2 (mean).",
        "a: 2 pulls, mean reward 2 ± 1.",
        "b: 1 pull, mean reward 2.5.",
        "c: 0 pulls.",
        "log: 3 pulls of 3 arms; times: 'time', as given; 'arm', 'reward'",
    ]
    path.write_text("time,arm,reward\n" + "".join(f"{t},{arm},{t}.5\n" for t in range(9) for arm in "ab"))
    assert call("look", path).output.startswith("A full table: 9 rows, 2 arms")
    path.write_text("when,layout,paid\n" + "".join(f"{t},{arm},{t}.5\n" for t in range(9) for arm in "ab"))
    assert call("look", path).output.startswith("A full table: 9 rows, 2 arms")
    said = call("look", path, "--option", "windw=3", code=2).stderr
    assert "option 'windw' is not known here; there are a table's options" in said


@pytest.mark.parametrize("told", [{}, {"contexts": 3}, {"context_dim": 2}], ids=str)
def test_auto_learns_a_log_as_if_it_had_pulled(told):
    log, _ = logs.drawn_under(5, 40, "contexts" in told, True, False) if told else drawn(5, 60)
    warm, known, plainly = recipes.auto(4, log=log), recipes.auto(4, log=log, **told), recipes.auto(4, **told)
    contexts = log.contexts if told else [None] * 60
    pulls = zip(log.times.tolist(), log.arms, log.rewards, contexts, strict=True)
    for time, arm, reward, context in pulls:
        why = {"inputs": torch.cat([plainly.arms[arm], context]).unsqueeze(0)} if told else {}
        plainly.learn(Observation(time, arm.reshape(1), reward.reshape(1), why))
    now = ArmContext(log.contexts[0]) if told else None
    for policy in (warm, known):
        torch.testing.assert_close(policy.marginals(60.0, now), plainly.marginals(60.0, now), rtol=0, atol=0)
    if not told:
        assert int(AskTell.auto(log=log).ask(60.0).arm) == int(plainly.choose(60.0).arm)


def test_a_log_of_other_arms_or_contexts_is_refused():
    log, _ = drawn(5, 60)
    for message, act in {
        "log must be one of 3 arms, got 4": lambda: recipes.auto(3, log=log),
        "log must be one with 1 numbers of a context, got 0": lambda: recipes.auto(4, contexts=3, log=log),
        "choices must be given if there is no log, got None": lambda: AskTell.auto(),
        "log must be a Log, as read_log returns it": lambda: AskTell.auto(log="my.csv"),
    }.items():
        with pytest.raises(ValueError, match=message):
            act()


def test_a_live_system_begins_where_a_log_under_contexts_ends(tmp_path):
    draw = np.random.default_rng(0)
    lines = ["time,arm,reward,screen,age"]
    for t in range(90):
        arm, screen = draw.choice(["long", "short"]), draw.choice(["desk", "phone"])
        lines.append(f"{t},{arm},{2.0 if (arm == 'short') == (screen == 'phone') else 1.0},{screen},{t % 7}")
    (tmp_path / "log.csv").write_text("\n".join(lines))
    log = read_log(tmp_path / "log.csv", contexts=["screen"])
    for told in ({}, {"contexts": ["tablet", "phone", "desk"]}):
        live = AskTell.auto(log=log, **told)
        table = live.beliefs(context="phone").set_index("arm")
        assert abs(table["mean"]["short"] - 2) < 0.1
        assert abs(table["mean"]["long"] - 1) < 0.1
        assert [live.ask(90.0, context=where).name for where in ("phone", "desk")] == ["short", "long"]
    live = AskTell.auto(log=read_log(tmp_path / "log.csv", contexts=["age"]))
    assert live.ask(90.0, context=3.0).name in ("short", "long")


@pytest.mark.parametrize("zone", ["", "+02:00"])
def test_a_live_system_goes_on_in_dates_after_a_log_of_dates(tmp_path, zone):
    """In any unit of time; hours were mixed with the log's seconds, and a number began a clock of its own."""
    rows = [
        f"2026-11-{1 + k // 24:02d}T{k % 24:02d}:00{zone},{'abc'[k % 3]},{(k * k) % 5}" for k in range(90)
    ]
    (tmp_path / "log.csv").write_text("\n".join(["time,arm,reward", *rows]))
    log, shown = read_log(tmp_path / "log.csv"), []
    assert log.dated
    for unit in ("s", "h"):
        live = AskTell.auto(log=log, time_unit=unit)
        with pytest.raises(ValueError, match=r"time must be a date with(out)? a zone, .* got 600\.0"):
            live.ask(600.0)
        question = live.ask(f"2026-11-05T12:00{zone}")
        live.tell(question.id, 1.0)
        shown.append(
            [float(question.arm), *live.beliefs()[["mean", "lower", "upper"]].to_numpy().ravel().tolist()]
        )
    assert shown[1] == pytest.approx(shown[0], rel=1e-6)


def test_dates_after_a_log_of_dates_have_a_zone_if_its_dates_have_one(tmp_path):
    """Each would be hours away from the other; the zone shown is that of the first question."""
    noon = datetime(2026, 7, 1, 12)
    berlin = noon.replace(tzinfo=ZoneInfo("Europe/Berlin"))
    for zone, right, wrong in (("", noon, berlin), ("+02:00", berlin, noon), ("Z", berlin, noon)):
        rows = [f"2026-06-{1 + k}T09:00{zone},{'ab'[k % 2]},{k % 3}" for k in range(12)]
        (tmp_path / "log.csv").write_text("\n".join(["time,arm,reward", *rows]))
        log = read_log(tmp_path / "log.csv")
        assert log.zoned == bool(zone)
        live = AskTell.auto(log=log, time_unit="h", cycles="day" if zone == "Z" else None)
        with pytest.raises(ValueError, match=r"time must be a date with(out)? a zone, as the times"):
            live.ask(wrong)
        save_policy(tmp_path / "state", live, overwrite=True)
        load_policy(tmp_path / "state", live)
        assert live.ask(right).time.isoformat() == right.isoformat()
        with pytest.raises(ValueError, match=r"time must be a date with(out)? a zone, as the times"):
            live.ask(wrong)
    either = AskTell.auto(log=replace(log, zoned=None))  # as one made by hand
    assert either.ask(berlin).time == berlin
    with pytest.raises(ValueError, match="in zone 'Europe/Berlin'"):
        either.ask(noon)


def test_times_after_a_log_of_numbers_are_numbers(tmp_path):
    """A date would lie 1.8e9 steps after row 59, and a log that drifts would be forgotten."""
    (tmp_path / "log.csv").write_text(
        "time,arm,reward\n" + "".join(f"{k},{'ab'[k % 2]},{k % 3}\n" for k in range(60))
    )
    live = AskTell.auto(log=read_log(tmp_path / "log.csv"), time_unit="h")
    with pytest.raises(ValueError, match="time must be a number, as the times of the log, got datetime"):
        live.ask(datetime(2026, 7, 1, 12))
    assert live.ask(60).time == 60.0


@pytest.mark.parametrize("letters", ["abc", "123", "012"])
def test_a_live_system_takes_a_log_arm_by_name(tmp_path, letters):
    a, b, c = letters
    arms = np.random.default_rng(0).integers(0, 3, 90)
    worth = np.array([1.0, 2.0, 3.0])[arms]
    pulls = [f"{t},{letters[arm]},{pays}\n" for t, (arm, pays) in enumerate(zip(arms, worth, strict=True))]
    (tmp_path / "log.csv").write_text("time,arm,reward\n" + "".join(pulls))
    log = read_log(tmp_path / "log.csv")
    for names in (None, [c, b, a], ["new", b, c, a]):
        live = AskTell.auto(names, log=log)
        table = live.beliefs()  # now is the end of the log
        table = table.set_index(table["arm"].map(str))
        assert abs(table["mean"][a] - 1) < 0.1
        assert abs(table["mean"][c] - 3) < 0.1
        assert table["probability_best"][b] < 0.05
    assert live.ask(90.0).name in (c, "new")
    with pytest.raises(ValueError, match=f"log must be among {a}, {b}, got {c}|of 2 arms, got 3"):
        AskTell.auto([a, b], log=log)
    seen = torch.ones(90, 3, dtype=torch.bool)
    wider = replace(log, available=seen).over(["new", c, b, a])
    assert wider.available.tolist() == [[False, True, True, True]] * 90
    assert [wider.arm_names[k] for k in wider.arms] == [log.arm_names[k] for k in log.arms]
    assert str(AskTell.auto(3, log=log).ask(90.0).name) == c


def test_the_command_says_what_the_function_does_and_why_a_policy_has_no_value(tmp_path, monkeypatch):
    def but_for_random(log, policy, **settings):
        return value(log, one(0, of=3) if policy == "random" else policy, **settings)

    path, (log, _) = tmp_path / "log.csv", drawn(6, skewed=True)
    columns = zip(
        log.times.tolist(), log.arms.tolist(), log.rewards.tolist(), log.propensity.tolist(), strict=True
    )
    lines = ["time,arm,reward,propensity", *(f"{t},arm {a},{r!r},{p!r}" for t, a, r, p in columns)]
    path.write_text("\n".join(lines))
    found = value(read_log(path), "discounted_ucb", replays=2, seed=1)
    arguments = ["value", path, "--policies", "discounted_ucb,random", "--replays", "2", "--seed", "1"]
    monkeypatch.setattr("bandits_torch.off_policy.value", but_for_random)
    monkeypatch.setenv("COLUMNS", "400")
    done = call(*arguments)
    said = f"{found.value:.4g} ({found.low:.4g} to {found.high:.4g}), learned from {found.learned} of 320 rows, dr"
    assert said in done.output
    assert "not known: policy must have shape (4,)" in done.output
    monkeypatch.undo()
    assert f"{float(log.rewards.mean()):.4g}" in done.output
    lines[1:] = [f"{t},{'ab'[t % 2]},{t % 7},1.0" for t in range(60)]
    path.write_text("\n".join(lines))
    none = call("value", path, "--policies", "random", "--replays", "2", code=2)
    assert "the rewards of other arms are not known" in none.output
    path.write_text("time,arm,reward\n0,a,1\n1,b,2\n")
    short = call("value", path, "--replays", "2", code=2)
    assert "log must be longer" in short.output
