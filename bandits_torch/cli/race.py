"""``bandits-torch race`` and ``rerun``: their arguments, read before anything slow is imported."""

from __future__ import annotations

from pathlib import Path

import click

from bandits_torch.cli.asked import DEFAULT_HORIZON, DEFAULT_POLICIES, asked_race
from bandits_torch.cli.options import FILE, MOST_THREADS, whole_number
from bandits_torch.cli.output import draw_to_files, one_line_errors

overwrite = click.option(
    "--overwrite", is_flag=True, help="Give up the results or checkpoints of another race in OUT."
)


@click.command(short_help="Algorithms on a problem: a table, a picture.")
@click.option(
    "--problem",
    help="What is optimised; `bandits-torch list` names all. By default switching, or replay with --data.",
)
@click.option(
    "--policies",
    default=DEFAULT_POLICIES,
    show_default=False,
    help="The algorithms, names separated by commas; `bandits-torch list` names all. By default "
    f"{DEFAULT_POLICIES.replace(',', ', ')}.",
)
@click.option(
    "--horizon",
    type=int,
    help=f"Steps, each a pull of one arm; by default as many as the data have rows to play, without data "
    f"{DEFAULT_HORIZON}.",
)
@click.option(
    "--replicates", default=10, help="Independent repetitions, side by side; regret is averaged over them."
)
@click.option("--seed", default=0, help="Of everything random: the same seed gives the same race.")
@click.option("--device", default="cpu", help="cpu or cuda.")
@click.option(
    "--threads",
    type=int,
    help="CPU threads; by default OMP_NUM_THREADS, else one where a step is too short to share, else all.",
)
@click.option(
    "--out",
    type=FILE,
    default=Path("race"),
    help="Folder for regret.csv, regret.png, report.html and run.json.",
)
@click.option(
    "--data",
    type=FILE,
    help="Your own rewards (CSV, Parquet or NPZ: a row a step, a column an arm), or the file or folder of another "
    "problem that replays real data.",
)
@click.option(
    "--option",
    multiple=True,
    help="A setting key=value of the problem or the policies that accept the key; problem.key=value or "
    "POLICY.key=value for one of them, as in sw_gp_ucb.window=150. Repeat for more; `bandits-torch list NAME` shows "
    "what there is.",
)
@click.option(
    "--checkpoint",
    type=int,
    help="Steps between checkpoints, kept in OUT until the race is over; none by default.",
)
@click.option(
    "--resume",
    is_flag=True,
    help="Continue the race that was cut off in OUT, asked with the same settings.",
)
@overwrite
def race(
    problem: str | None,
    policies: str,
    horizon: int | None,
    replicates: int,
    seed: int,
    device: str,
    threads: int | None,
    out: Path,
    data: Path | None,
    option: tuple[str, ...],
    checkpoint: int | None,
    resume: bool,
    overwrite: bool,
) -> None:
    """Race algorithms (policies) on a problem: at every step each picks an arm, sees its reward and learns.

    Prints a table of regret: what was lost by not pulling the best arm of every step, so the less the better, beside
    that of pulling arms at random; then advice: which policy, by how much it is ahead, and how sure that is. Writes
    regret.csv (step by step), regret.png (a picture), report.html (a page to look at, in one file) and run.json (all
    settings and results), of which `rerun` makes them again. With --checkpoint a race that was cut off goes on with
    --resume as if nothing had happened.

    Examples:

    bandits-torch race

    bandits-torch race --data my.csv --policies tv_gp_ucb,sw_gp_ucb,random

    bandits-torch race --problem tv-gp --option forgetting_rate=0.1 --option sw_gp_ucb.window=150
    """
    with one_line_errors():
        asked = asked_race(
            problem,
            policies,
            horizon=horizon,
            replicates=replicates,
            seed=seed,
            device=device,
            data=data,
            options=list(option),
        )
        whole_number("checkpoint", checkpoint, 1)
        whole_number("threads", threads, 1, MOST_THREADS)
        if resume and overwrite:
            raise ValueError("resume and overwrite exclude each other, got both")
        draw_to_files()
        from bandits_torch.cli.play import play

        play(asked, out, threads=threads, checkpoint=checkpoint, resume=resume, overwrite=overwrite)


@click.command(short_help="A race again, from its run.json.")
@click.argument("record", type=FILE)
@click.option(
    "--out",
    type=FILE,
    default=Path("rerun"),
    help="Folder for regret.csv, regret.png, report.html and run.json.",
)
@click.option("--data", type=FILE, help="Where the data are now, if no longer where run.json says.")
@overwrite
def rerun(record: Path, out: Path, data: Path | None, overwrite: bool) -> None:
    """Run it again from RECORD, the run.json of a race, and say whether its regret came out the same.

    With the same versions, device and kind of machine regret.csv is the same to the last byte. The exit code is 1
    where the regret of some replicate differs.
    """
    with one_line_errors():
        record.open("rb").close()
        draw_to_files()
        from bandits_torch.cli.play import play_again

        other = play_again(record, out, data, overwrite)
    click.echo(f"regret differs from the record's: {', '.join(other)}" if other else "regret as recorded")
    if other:
        raise SystemExit(1)
