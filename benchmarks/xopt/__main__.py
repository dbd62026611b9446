"""``python -m benchmarks.xopt``: play the drifting lattice, and write the page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pandas as pd
import torch
import typer

from benchmarks.xopt.page import write_page

HERE = Path(__file__).parent
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def main(
    shots: Annotated[int, typer.Option(help="Of ours.")] = 2_000,
    rival_shots: Annotated[int, typer.Option(help="Of the others.")] = 200,
    seeds: Annotated[int, typer.Option(help="Runs of each.")] = 5,
    out: Annotated[Path, typer.Option(help="Folder of table and page.")] = HERE / "results",
    page: Annotated[bool, typer.Option(help="Write the page from the table alone.")] = False,
) -> None:
    """Play what the table does not hold yet, seed by seed, and write what came of it."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / "shots.csv"
    if not page:
        from benchmarks.xopt.lattice import DriftingLattice
        from benchmarks.xopt.playing import PLAYERS, play

        torch.set_num_threads(1)
        for seed in range(seeds):
            least = None
            for name in PLAYERS:
                table = pd.read_csv(path) if path.exists() else pd.DataFrame(columns=["player", "seed"])
                if ((table["player"] == name) & (table["seed"] == seed)).any():
                    continue
                least = DriftingLattice(seed).least(max(shots, rival_shots)) if least is None else least
                run = play(name, shots if name == "ours" else rival_shots, seed)
                run["error"] = run.pop("value") - least[: len(run)].numpy()
                run.insert(0, "seed", seed)
                run.insert(0, "player", name)
                run.to_csv(path, mode="a", header=not path.exists(), index=False, float_format="%.4g")
                print(f"{name}, seed {seed}: error {run['error'].mean():.3f}", flush=True)
    print(f"wrote {write_page(out)}")


if __name__ == "__main__":
    app()
