"""An interrupt within a block of captured steps leaves the policy after a whole step."""

import signal

import pytest

from bandits_torch import make, recipes, run
from bandits_torch.captured import blocks
from bandits_torch.state import differing


@pytest.mark.parametrize("name", ["ucb1", "tv_gp_ucb", "auto"])
def test_an_interrupt_waits_for_the_end_of_its_block(monkeypatch, name):
    problem = make("switching", num_arms=5, horizon=96)
    interrupted, other = (recipes.build(name, problem, replicates=2, horizon=96) for _ in range(2))
    monkeypatch.setattr(
        blocks, "find_spec", lambda name: None
    )  # plain calls, in which Python handles signals
    draw, calls = blocks.pulled, []

    def pulled(*given):
        calls.append(given)
        if len(calls) == 45:
            signal.raise_signal(signal.SIGINT)
        return draw(*given)

    monkeypatch.setattr(blocks, "pulled", pulled)
    with pytest.raises(KeyboardInterrupt) as stopped:
        run(interrupted, problem, 96, capture=True)
    reached = int(str(stopped.value).split()[2])
    assert reached >= 45
    run(other, problem, reached, capture=True)
    found = differing(interrupted.state_dict(), other.state_dict())
    assert [one for one in found if ".observations." not in one] == []  # which have room for a longer run
