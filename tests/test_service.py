"""The service of docs/service.md: killed under real clients, and what would be seen if it were worse."""

import json
import threading
from http.server import HTTPServer
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tests.reference import service_kills
from tests.reference.asking import bits


def service(text=None):
    scope = {}
    exec(compile(text or service_kills.source(), "service.md", "exec"), scope)
    return scope["Service"]


def test_nothing_is_lost_or_learned_twice_under_clients_and_kills():
    found = service_kills.play(questions=60, clients=3, kills=1, seed=1, limit=500.0)
    assert found["told"] == found["asked"] == 60
    assert found["kills"] == 2
    assert found["requests"] > 120
    assert found["arms"] > service_kills.FIRST
    faults = ("two owners", "lost", "twice", "wrong answers", "open", "wrong arms", "asked while retired")
    assert {found[name] for name in faults} == {0}


def books(Service, folder):
    """Some questions and answers, then what a process that takes over knows."""
    one = Service(folder)
    for k in range(12):
        question = one.ask(f"worker {k % 4}")
        if k >= 4:
            one.tell(question["id"], 0.1 * k)
            one.tell(question["id"], 0.1 * k)
    return one, Service(folder)


def rewards(one):
    return sorted(one.live.policy.model.train_targets.flatten().tolist())


@pytest.mark.parametrize("text", [service_kills.page(), service_kills.source()], ids=["auto", "gp_ucb"])
def test_a_process_that_takes_over_is_the_same_to_the_last_bit_and_goes_on_alike(text, tmp_path):
    one, other = books(service(text), tmp_path)
    assert bits(one.live.state_dict()) == bits(other.live.state_dict())
    assert other.live.open == one.live.open
    assert other.live.asked == one.live.asked
    one.now = other.now = 2e9 + 1e9  # the same clock
    assert one.ask("new")["arm"] == other.ask("new")["arm"]


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ('                self._write({"id": id, "reward": reward})\n', "                pass\n"),
        ("                self._write(entry)\n", ""),
    ],
)
def test_a_service_that_does_not_write_is_seen(right, wrong, tmp_path):
    text = service_kills.source()
    assert text.count(right) == 1
    with pytest.raises((RuntimeError, ValueError), match=r"of another policy|the number of a question"):
        books(service(text.replace(right, wrong)), tmp_path)  # the journal contradicts itself


def test_arms_come_and_go_and_a_process_that_takes_over_has_them(tmp_path):
    Service = service(service_kills.page())
    one = Service(tmp_path)
    for change, arms in (("add", ["centre"]), ("retire", ["south", "centre"]), ("add", ["centre", "east"])):
        told = getattr(one, change)(arms)
        assert getattr(one, change)(arms) == told  # said twice, it is so once
    question, masked = one.ask("anna"), one.ask("ben", ["west"])
    assert masked["arm"] == "west"
    with pytest.raises(ValueError, match="nowhere"):
        one.ask("carl", ["nowhere"])
    other = Service(tmp_path)
    assert other.ask("ben", ["west"]) == masked
    assert bits(one.live.state_dict()) == bits(other.live.state_dict())
    assert other.ask("ben", [False, True, False, False, False])["arm"] == "east"
    assert other.live.names == ("north", "east", "south", "west", "centre")
    assert other.live.retired == ("south",)
    assert other.ask("anna") == question


def test_a_wrong_path_is_answered_with_those_that_there_are(tmp_path):
    scope = {}
    exec(compile(service_kills.page(), "service.md", "exec"), scope)
    with HTTPServer(("127.0.0.1", 0), scope["Handler"]) as server:
        server.service = scope["Service"](tmp_path)
        threading.Thread(target=server.handle_request, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/nothing"
        with pytest.raises(HTTPError) as refused:
            urlopen(url, data=b"{}", timeout=60)
    said = json.loads(refused.value.read())["error"]
    assert said == "path must be one of /ask, /tell, /add, /retire, got /nothing"


STARTS_AGAIN = """    import torch
    from gpytorch.kernels import RBFKernel
    from bandits_torch import recipes

    arms = torch.linspace(0, 1, 4).double().unsqueeze(-1)
    policy = recipes.ada_opkb(arms, RBFKernel().double(), 0.05, horizon=100)
    return AskTell(policy, names=["north", "east", "south", "west"])
"""


@pytest.mark.parametrize("policy", [service_kills.PAGES_POLICY, STARTS_AGAIN], ids=["auto", "ada_opkb"])
def test_a_kill_between_the_state_and_its_journal_changes_nothing(policy, tmp_path):
    """Arms went and came back, and one became the only one; the second policy starts again at each change."""
    Service = service(service_kills.page().replace(service_kills.PAGES_POLICY, policy))
    one = Service(tmp_path)
    changes = [("retire", ["north"]), ("add", ["north"]), ("retire", ["north", "east", "west"])]
    for change, arms in [*changes, ("add", ["west"]), ("retire", ["south"])]:
        one.tell(one.ask("anna")["id"], 0.5)
        getattr(one, change)(arms)
    with pytest.raises(ValueError, match="one must remain"):
        one.retire(["west"])
    one.tell(one.ask("anna")["id"], 0.7)
    question = one.ask("ben")
    journal = (tmp_path / "journal").read_bytes()
    one._begin_journal()
    (tmp_path / "journal").write_bytes(journal)
    other = Service(tmp_path)
    assert bits(other.live.state_dict()) == bits(one.live.state_dict())
    assert other.ask("ben") == question
    assert other.now == one.now


def test_a_line_cut_short_never_was(tmp_path):
    Service = service()
    one, _ = books(Service, tmp_path)
    journal = tmp_path / "journal"
    entry = one.ask("late")
    one.tell(entry["id"], 9.0)
    journal.write_bytes(journal.read_bytes()[:-7])
    back = Service(tmp_path)
    assert 9.0 not in rewards(back)
    assert entry["id"] in back.live.open
    assert back.ask("late") == entry


def test_a_clock_that_is_set_back_while_the_service_is_down_does_no_harm(tmp_path):
    drifts = service_kills.source().replace("recipes.gp_ucb(", "recipes.tv_gp_ucb(")
    Service = service(drifts)
    one = Service(tmp_path)
    one.now = 3e9  # a clock ahead of the machine's
    one.tell(one.ask("anna")["id"], 0.5)
    one._begin_journal()  # without an open question
    assert Service(tmp_path).ask("anna")["id"] == 1


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda one: one.tell("north", 1.0), "id must be the number of a question, got 'north'"),
        (lambda one: one.retire([0]), r"arms must be a list of names, got \[0\]"),
        (lambda one: one.add("audio"), "arms must be a list of names, got 'audio'"),
    ],
)
def test_what_could_not_be_told_apart_when_it_is_repeated_is_refused(act, message, tmp_path):
    one = service(service_kills.page())(tmp_path)
    one.ask("anna", ["north"])
    journal = (tmp_path / "journal").read_bytes()
    with pytest.raises(ValueError, match=message):
        act(one)
    assert (tmp_path / "journal").read_bytes() == journal


def test_the_service_of_the_page_follows_a_change(tmp_path):
    one = service(service_kills.page())(tmp_path)
    tried = []
    for k in range(300):
        one.now = 3e9 + k  # a clock ahead of the machine's
        question = one.ask("worker")
        one.tell(question["id"], float(question["arm"] == ("south" if k < 150 else "east")))
        tried.append(question["arm"])
    assert tried[100:150].count("south") > 25
    assert tried[250:].count("east") > 25


def test_a_journal_of_another_policy_is_refused(tmp_path):
    Service = service()
    Service(tmp_path).ask("a")
    *before, entry = map(json.loads, (tmp_path / "journal").read_text().splitlines())
    before.append(entry | {"arm": str(int(entry["arm"]) + 1)})
    (tmp_path / "journal").write_text("".join(json.dumps(one) + "\n" for one in before))
    with pytest.raises(RuntimeError, match="of another policy"):
        Service(tmp_path)
