"""State said once: saved, loaded, restarted in some replicates, put aside and taken up again."""

from dataclasses import dataclass

import pytest
import torch

from bandits_torch import recipes, run
from bandits_torch.state import HasState, copied, differing
from bandits_torch.streams import ReplicateStreams
from tests.reference import all_recipes


@dataclass
class Note:
    word: str
    mark: torch.Tensor


class Leaf(HasState):
    """A tensor of S rows, and what reading it gave."""

    _parts = ()

    def __init__(self, replicates=3):
        self.replicates = replicates
        self._begin()

    def _fresh(self):
        return {"_rows": torch.zeros(self.replicates, 2), "dropped": torch.zeros(self.replicates).double()}

    _lasting = ("dropped",)

    def state_changed(self):
        self.sum = self._rows.sum()


class Whole(HasState):
    _parts = ("leaf", "many", "none", "more", "_streams")

    def __init__(self, replicates=3):
        self.replicates, self.leaf = replicates, Leaf(replicates)
        self.many, self.none = {"a": Leaf(replicates), "b": [Leaf(replicates)]}, None
        self.more = [Leaf(replicates)]
        self._streams = ReplicateStreams(0, replicates)
        self._begin()

    def _make_room(self, state):
        self.more = [Leaf(self.replicates) for _ in state["more"]]

    def _fresh(self):
        by_name = {"x": torch.ones(self.replicates).double(), "y": torch.ones(self.replicates, 2, 2)}
        grown = torch.zeros(self.replicates, 0)
        return {"_numbers": by_name, "count": 0, "latest": None, "notes": [], "grown": grown}

    def state_changed(self):
        self.notes = [note if isinstance(note, Note) else Note(**note) for note in self.notes]

    def observe(self):
        for leaf in (self.leaf, self.many["a"], self.many["b"][0]):
            leaf._rows += 1
            leaf.dropped += 1
            leaf.state_changed()
        self._numbers["x"] *= 2
        self._numbers["y"] += self._streams.normal(2, 2)
        self.count, self.latest = self.count + 1, 3.5
        self.notes.append(Note("seen", torch.ones(2)))
        self.grown = torch.cat([self.grown, torch.ones(self.replicates, 1)], -1)


@pytest.fixture
def whole():
    made = Whole()
    made.observe(), made.observe()
    return made


def test_a_state_holds_values_and_parts_by_name_and_plainly(whole):
    state = whole.state_dict()
    values, parts = (
        {"numbers", "count", "latest", "notes", "grown"},
        {"leaf", "many", "none", "more", "streams"},
    )
    assert set(state) == values | parts
    assert state["count"] == 2
    assert state["latest"] == 3.5
    assert state["none"] is None
    assert state["notes"][0]["word"] == "seen"
    assert set(state["many"]["b"][0]) == {"rows", "dropped"}


def test_a_state_is_a_copy_both_ways(whole):
    state = whole.state_dict()
    before = whole.state_dict()
    whole.observe()
    assert not differing(state, before)
    other = Whole()
    other.load_state_dict(state)
    other.observe()
    assert not differing(state, before)
    assert not differing(other.state_dict(), whole.state_dict())
    assert other.leaf.sum == whole.leaf.sum
    assert isinstance(other.notes[0], Note)


def test_a_reset_begins_anew_but_for_streams_and_what_lasts(whole):
    whole.reset()
    fresh, now = Whole().state_dict(), whole.state_dict()
    assert differing(fresh.pop("streams"), now.pop("streams"))
    assert now["leaf"].pop("dropped").tolist() == [2, 2, 2]
    del fresh["leaf"]["dropped"], fresh["many"], now["many"]
    assert not differing(fresh, now)
    assert whole.leaf.sum == 0


def test_some_replicates_begin_anew_where_a_value_is_theirs(whole):
    where = torch.tensor([True, False, True])
    before = whole.state_dict()
    whole.reset(where)
    assert whole._numbers["x"].tolist() == [1, 4, 1]
    assert torch.equal(whole._numbers["y"][1], before["numbers"]["y"][1])
    assert (whole._numbers["y"][where] == 1).all()
    for leaf in (whole.leaf, whole.many["a"], whole.many["b"][0]):
        assert leaf._rows.tolist() == [[0, 0], [2, 2], [0, 0]]
        assert leaf.dropped.tolist() == [2, 2, 2]
        assert leaf.sum == 4
    assert whole.count == 2
    assert whole.latest == 3.5
    assert len(whole.notes) == 2
    assert torch.equal(whole.grown, before["grown"])


def test_what_is_put_aside_comes_back_to_the_last_bit_but_for_streams(whole):
    before = whole.state_dict()
    numbers, rows = whole._numbers, whole.leaf._rows
    with whole.put_aside():
        whole.observe()
        assert whole.count == 3
        assert whole.leaf.sum == 18
    after = whole.state_dict()
    assert whole._numbers is numbers
    assert whole.leaf._rows is rows
    assert whole.leaf.sum == 12
    assert differing(before.pop("streams"), after.pop("streams"))
    assert not differing(before, after)


def test_names_put_aside_leave_the_others(whole, monkeypatch):
    monkeypatch.setattr(type(whole), "_expects", ("count", "leaf"))
    with whole.put_aside():
        whole.observe()
    assert whole.count == 2
    assert (whole.leaf._rows == 2).all()
    assert (whole.many["a"]._rows == 3).all()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda state: state.pop("latest"),
        lambda state: state["leaf"].pop("rows"),
        lambda state: state["many"]["b"][0].pop("dropped"),
        lambda state: state["many"].update(b=[]),
        lambda state: state["many"].update(a=3),
        lambda state: state.update(none={}),
        lambda state: state.update(other=1),
        lambda state: state["more"].append(3),
        lambda state: state.update(more=[]) or state.pop("leaf"),
        lambda state: state.update(more=None),
    ],
)
def test_a_state_of_other_names_is_refused_with_nothing_changed(whole, spoil):
    state, other = whole.state_dict(), Whole()
    spoil(state)
    other.more[0]._rows += 5
    before = other.state_dict()
    with pytest.raises(ValueError, match="state"):
        other.load_state_dict(state)
    assert not differing(other.state_dict(), before)


def test_a_module_that_cannot_be_reset_stays_as_it_is(whole):
    """A network that is trained elsewhere, say: it has no replicates either."""
    whole.many["network"] = torch.nn.Linear(2, 1)
    weight = whole.many["network"].weight.clone()
    before = whole._numbers["x"]
    whole.reset(torch.tensor([True, False, False]))
    assert torch.equal(whole.many["network"].weight, weight)
    assert whole._numbers["x"].tolist() == [1.0, *before[1:].tolist()]
    assert before[0] != 1.0


def test_what_differs_is_told_by_its_place_to_the_last_bit(whole):
    one, nan = whole.state_dict(), {"a": [torch.tensor([torch.nan]), float("nan")]}
    other = whole.state_dict()
    other["numbers"]["x"][1] *= 1 + 1e-15
    other["many"]["b"][0]["dropped"] = other["many"]["b"][0]["dropped"].float()
    other["count"] = float(other["count"])
    other["notes"].append({})
    places = ["['numbers']['x']", "['count']", "['notes']", "['many']['b'][0]['dropped']"]
    assert differing(one, other) == [f"state{place}" for place in places]
    assert not differing(nan, copied(nan))


HOLDS_NO_ARMS = {"random", "cgp_ucb", "tv_cgp_ucb"}  # random numbers alone; points of arms and contexts
OTHER_SIZES = [
    (name, sizes)
    for sizes in ({"num_arms": 9}, {"num_arms": 7}, {"replicates": 3})
    for name in [*recipes.RECIPES, *all_recipes.WITH_SETTINGS]
    if "replicates" in sizes or name not in HOLDS_NO_ARMS
]


@pytest.mark.parametrize(("name", "sizes"), OTHER_SIZES)
def test_a_state_of_another_size_is_refused_with_nothing_changed(name, sizes):
    def played(replicates=2, num_arms=8):
        policy, problem = all_recipes.build(name, replicates, 60, num_arms=num_arms)
        run(policy, problem, 3)
        return policy

    policy, state = played(), played(**sizes).state_dict()
    before = policy.state_dict()
    with pytest.raises(ValueError, match="state"):
        policy.load_state_dict(state)
    assert differing(policy.state_dict(), before) == []


def test_only_what_is_empty_at_the_start_may_be_larger_in_a_state(whole):
    state = whole.state_dict()
    Whole().load_state_dict(state)
    state["numbers"]["y"] = torch.ones(3, 2, 3)
    with pytest.raises(
        ValueError, match=r"\['numbers'\]\['y'\] must have shape \(3, 2, 2\), got shape \(3, 2, 3\)"
    ):
        Whole().load_state_dict(state)


@pytest.mark.parametrize("name", recipes.RECIPES)
def test_numbers_that_a_policy_was_asked_for_may_be_written_to(name):
    policy, problem = all_recipes.build(name, 2, 12)
    run(policy, problem, 12)
    model, asked = getattr(policy, "model", None), [policy.changes_found(), policy.mean_rewards()]
    asked += [getattr(model, what, None) for what in ("num_observations", "information_gain")]
    before = policy.state_dict()  # which the information gain of a sketch may have updated
    for value in asked:
        if isinstance(value, torch.Tensor):
            value.add_(1)
    assert differing(before, policy.state_dict()) == []
