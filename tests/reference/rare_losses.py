"""How often the advice calls the one of two equal policies surely the best that seldom loses much.

``python -m tests.reference.rare_losses`` prints the table of docs/advice.md (400 races each, ten seconds).
"""

import torch

from bandits_torch.experiments.comparison import advise

PLAYS, SHARES, RACES = (10, 20, 50), (0.02, 0.1, 0.3), 400


def surely_the_best(plays: int, share: float, races: int = RACES) -> float:
    """The share of races in which it is. It loses 1 / share in this share of the plays, the other 1 in each."""
    wrong = 0
    for seed in range(races):
        generator = torch.Generator().manual_seed(seed)
        regret = 10 + 0.2 * torch.randn(plays, 2, generator=generator, dtype=torch.float64)
        regret[:, 0] += 1
        regret[:, 1] += (torch.rand(plays, generator=generator) < share).double() / share
        found = advise({"a": regret[:, 0], "b": regret[:, 1]}, torch.full((plays,), 1000.0))
        wrong += found.verdict == "sure" and found.policy == "b"
    return wrong / races


def row(plays: int) -> str:
    """A row of the table."""
    return (
        " | ".join([f"| {plays}", *(f"{100 * surely_the_best(plays, share):.0f} %" for share in SHARES)])
        + " |"
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    print("| plays |" + "".join(f" p = {share:.2g} |" for share in SHARES))
    print("\n".join(map(row, PLAYS)))
