"""The commands of the command line. They check their arguments before they import anything slow."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import click

from bandits_torch._version import __version__
from bandits_torch.cli.asked import (
    DEFAULT_HORIZON,
    DEFAULT_POLICIES,
    MOST_THREADS,
    asked_race,
    asked_sweep,
    different_names,
    parse_value,
    says_option,
    send_options,
)
from bandits_torch.cli.catalogue import catalogue
from bandits_torch.cli.output import one_line_errors
from bandits_torch.naming import did_you_mean, digits_of, installed, some, written

FILE = click.Path(path_type=Path)  # or a folder
THERE = click.Path(exists=True, path_type=Path)
setting = partial(click.option, "--option", multiple=True)
count_option = partial(click.option, type=click.IntRange(1))
threads_option = partial(click.option, "--threads", type=click.IntRange(1, MOST_THREADS))
SEED = click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    help="Seed of all random numbers; the same seed gives the same results.",
)
REPORT = "Folder for regret.csv, regret.png, report.html and run.json."


class Commands(click.Group):
    """The group of all commands; errors are printed as one line."""

    def invoke(self, context: click.Context) -> Any:
        """Run the given command."""
        if os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())  # the module of a ``module:name`` may be here
        os.environ["MPLBACKEND"] = "agg"  # pictures are files and need no window
        with one_line_errors():
            return super().invoke(context)


@click.group(cls=Commands, context_settings={"show_default": True})
@click.version_option(__version__, message=f"bandits_torch {__version__}", help="Print the version and stop.")
def app() -> None:
    """Race algorithms that search for the best of many arms while the rewards change with time (bandit algorithms with
    Gaussian-process models). Begin with `bandits-torch race`: in a few seconds, eight algorithms play a function that
    is replaced at step 300 of 1000. `bandits-torch list` lists all algorithms (policies) and problems.
    `bandits-torch race --data my.csv` plays your own rewards: one row per step, one column per arm.
    """


def main() -> None:
    """Run the command line."""
    app(prog_name="bandits-torch")


def _resume_or_overwrite(context: click.Context, option: click.Parameter, value: bool) -> bool:
    other = "overwrite" if option.name == "resume" else "resume"
    if value and context.params.get(other):
        raise ValueError("resume and overwrite exclude each other, got both")
    return value


def capture(by_default: str, **more: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Whether steps are played in blocks where that is faster."""
    words = "Play steps in blocks where that is faster, with the same results up to rounding"
    extra = "The extra `fast` makes blocks several times faster; the first run compiles for up to a minute."
    return click.option("--capture/--no-capture", help=f"{words}{by_default}. {extra}", **more)


OVERWRITE_TABLE = "Overwrite the table of another sweep in OUT."
OVERWRITE = "Overwrite the results or checkpoints of another race in OUT."


@app.command(short_help="Race policies on a problem.")
@click.option(
    "--problem",
    help="What is optimised; `bandits-torch list` lists all. By default switching, or replay with --data.",
)
@click.option(
    "--policies",
    help="Names of the algorithms, separated by commas; `bandits-torch list` lists all. By default those that fit the "
    f"data; without data, or with an --option of a policy: {DEFAULT_POLICIES.replace(',', ', ')}.",
)
@count_option(
    "--horizon",
    help="Steps, each a pull of one arm; by default all rows of the data that are played; without data "
    f"{DEFAULT_HORIZON}.",
)
@count_option(
    "--replicates", default=10, help="Independent runs of each policy, over which regret is averaged."
)
@SEED
@click.option("--device", default="cpu", help="cpu or cuda.")
@threads_option(
    help="CPU threads; by default OMP_NUM_THREADS or MKL_NUM_THREADS. If neither is set: one for short steps, else all."
)
@click.option("--out", type=FILE, default=Path("race"), help=REPORT)
@click.option(
    "--data",
    type=THERE,
    help="Your own rewards (CSV, Parquet or NPZ: one row per step, one column per arm), or the file or folder of "
    "another problem that replays real data.",
)
@setting(
    help="A setting key=value of the problem or of the policies that accept the key; problem.key=value or "
    "POLICY.key=value for one of them, as in sw_gp_ucb.window=150. May be repeated; `bandits-torch list NAME` lists "
    "the keys."
)
@capture("; by default on a CPU", default=None)
@count_option("--checkpoint", help="Steps between checkpoints, which stay in OUT until the race is complete.")
@click.option(
    "--resume",
    is_flag=True,
    callback=_resume_or_overwrite,
    help="Continue the interrupted race in OUT, with the same settings.",
)
@click.option("--overwrite", is_flag=True, callback=_resume_or_overwrite, help=OVERWRITE)
def race(
    *, out: Path, threads: int | None, checkpoint: int | None, resume: bool, overwrite: bool, **settings: Any
) -> None:
    """Race algorithms (policies) on a problem: at every step each chooses an arm, sees its reward and learns.

    Prints a table of regret, the reward lost by not pulling the best arm of every step; less is better, and the regret
    of random arms is given for comparison. Then prints advice: which policy to take, how far it is ahead, and how
    certain that is. Writes regret.csv (step by step), regret.png (a picture), report.html (a page in one file) and
    run.json (all settings and results), from which `rerun` repeats the race. With --checkpoint, an interrupted race
    continues with --resume and gives the same results.

    Examples:

    bandits-torch race

    bandits-torch race --data my.csv --policies tv_gp_ucb,sw_gp_ucb,random

    bandits-torch race --problem tv-gp --option problem.forgetting_rate=0.1 --option sw_gp_ucb.window=150
    """
    fitting = settings["policies"] is None
    asked = asked_race(**settings | ({"policies": DEFAULT_POLICIES} if fitting else {}))
    from bandits_torch.cli.play import play

    flags = {"resume": resume, "overwrite": overwrite, "fitting": fitting}
    play(asked, out, threads=threads, checkpoint=checkpoint, **flags)


@app.command(short_help="Describe a table or a log.")
@click.argument("data", type=THERE)
@click.option("--plot", type=FILE, help="Draw a table's arms, jumps and cycles into this PNG, SVG or PDF.")
@setting(
    help="How to read the file, key=value. A table as in `race`: long=layout,revenue for a row per reward, "
    "missing=-9999, ignore=comment. A log: arm=banner, reward=clicked. May be repeated."
)
def look(data: Path, plot: Path | None, option: tuple[str, ...]) -> None:
    """Describe DATA: a table of rewards (one row per step, one column per arm), or a log (one row per pull).

    A table: values, gaps, noise, drift, jumps, cycles and possible gain. A log: pulls and mean reward of every arm.
    """
    from bandits_torch.problems.diagnosis import diagnose
    from bandits_torch.problems.logs import Log, read_data, read_log
    from bandits_torch.problems.tables import read_table

    if plot is not None and plot.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise ValueError(f"plot must be a file ending in .png, .svg or .pdf, got {str(plot)!r}")
    table, log = ([*signature(read).parameters][1:] for read in (read_table, read_log))
    of_table, of_log = send_options(option, {"a table": table, "a log": log}).values()
    for_table, for_log = sorted(of_table.keys() - of_log.keys()), sorted(of_log.keys() - of_table.keys())
    if for_table and for_log:
        raise ValueError(f"option must be for a table or for a log, got {for_table} and {for_log}")
    with says_option(log if for_log else table if for_table else dict.fromkeys([*table, *log])):
        if for_log:
            held: Any = read_log(data, **of_log)
        else:
            held = read_table(data, **of_table) if for_table else read_data(data, **of_log)
    if isinstance(held, Log):
        if plot is not None:
            raise ValueError(f"plot must be left out for a log of pulls, got {str(plot)!r}: it draws tables")
        again = shlex.join(["bandits-torch", "value", str(data), *(f"--option={one}" for one in option)])
        says = f"`{again}` says what policies would have earned."
        click.echo("\n".join([str(held), *held.notes, says]))
        return
    found = diagnose(held)
    click.echo("\n".join([str(found), f"Arms: {some(held.arm_names)}.", *held.notes]))
    if plot is not None:
        from bandits_torch.experiments.plots.diagnosis import plot_diagnosis
        from bandits_torch.files import atomic_write

        figure = plot_diagnosis(held, found)
        with atomic_write(plot) as file:
            figure.savefig(file, format=plot.suffix[1:].lower())
        click.echo(f"wrote {plot}")


@app.command(short_help="Value policies on a log of past pulls.")
@click.argument("log", type=THERE)
@click.option("--policies", default="auto", help="Names of algorithms, separated by commas.")
@click.option("--contexts", help="Columns that were known before each choice, separated by commas.")
@setting(
    help="How to read LOG, key=value: arm=banner, reward=clicked, propensity=chance, separator=;. May be repeated."
)
@click.option(
    "--replays",
    type=click.IntRange(2),
    default=20,
    help="Resamples of the log for the interval of a policy that learns.",
)
@SEED
def value(
    log: Path, policies: str, contexts: str | None, option: tuple[str, ...], replays: int, seed: int
) -> None:
    """Estimate what policies would have earned per step of LOG, and compare it with what the log earned.

    LOG is a CSV or Parquet file with one row per pull: time, arm and reward. Unless arms were drawn uniformly,
    another column gives the propensity, the probability with which the arm was drawn. Intervals are 90 % intervals. A
    policy is valued as if it learned only from rows in which it agrees with the log; live it learns from every row.
    With --contexts, `auto` chooses under the context of each row.
    """
    names = different_names("policy", policies, catalogue().policies)
    from bandits_torch.off_policy import value as value_of
    from bandits_torch.problems.logs import read_log

    keys = [key for key in signature(read_log).parameters if key not in ("path", "contexts")]
    reading = send_options(option, {"the log": keys})["the log"]
    with says_option(keys):
        pulls = read_log(log, contexts=contexts, **reading)
    rows, refused = [("the log", f"{float(pulls.rewards.mean()):.4g}")], []
    for name in names:
        try:
            found = value_of(pulls, name, replays=replays, seed=seed)
        except ValueError as error:
            refused.append(error)
            rows.append((name, f"not known: {error}"))
            continue
        interval = f"{found.value:.4g} ({found.low:.4g} to {found.high:.4g})"
        about = f"learned from {found.learned} of {found.rows} rows, {found.estimator}"
        doubt = f"; {found.narrow}" if found.narrow else ""
        rows.append((name, f"{interval}, {about}; the log in these rows {found.logged:.4g}{doubt}"))
    if len(refused) == len(names):
        raise refused[0]
    _print_table(("policy", "reward a step"), rows)


@app.command(short_help="Ask a live system for the arm to pull.")
@click.argument("state", type=FILE)
@click.option("--arms", help="Names of the arms, separated by commas, if STATE is new.")
@click.option(
    "--available",
    help="The arms that can be pulled now: names, or true or false for each arm, separated by commas. "
    "By default all.",
)
@click.option("--time", "moment", help="A number or a date, always of the same kind. By default now.")
def ask(state: Path, arms: str | None, available: str | None, moment: str | None) -> None:
    """Print the number and the arm of a new question, and save it in the file STATE, which --arms creates.

    The policy is `auto`, without prior knowledge of the arms. It takes open questions into account, so several workers
    may ask.

    Examples:

    bandits-torch ask live.state --arms north,east,south

    bandits-torch ask live.state --available north,east

    bandits-torch tell live.state 0 12.5
    """
    import json
    from datetime import UTC, datetime

    from bandits_torch.policy_files import save_policy

    live = _live(state, arms)
    mask: Any = None if available is None else [one.strip() for one in available.split(",")]
    if mask is not None and set(mask) <= {"true", "false"} - set(live.names or ()):
        mask = [one == "true" for one in mask]
    now: Any = datetime.now(UTC) if moment is None else parse_value(moment)
    question = live.ask(now, mask)
    save_policy(state, live)
    click.echo(json.dumps({"id": question.id, "arm": question.name}))


@app.command(
    short_help="Tell a live system the reward of a question.",
    context_settings={"ignore_unknown_options": True},  # a reward may be negative
)
@click.argument("state", type=FILE)
@click.argument("id")
@click.argument("reward", type=float)
def tell(state: Path, id: str, reward: float) -> None:
    """Learn the REWARD of question ID from `ask`, and save the file STATE. Only the first reward of a question counts.

    ID is the number of a question, or the name of an arm with exactly one open question.
    """
    from bandits_torch.policy_files import save_policy

    live = _live(state, None)
    new = live.tell(int(id) if id.isdecimal() else id, reward)
    save_policy(state, live)
    click.echo("learned" if new else "told before")


@app.command(short_help="Show the beliefs of a live system.")
@click.argument("state", type=FILE)
@click.option("--html", type=FILE, help="Also write a page with pictures and the latest questions to it.")
def show(state: Path, html: Path | None) -> None:
    """Print what the live system in the file STATE believes about its arms at the time of its latest question or
    reward, and the changes that it noticed. Intervals are 90 % intervals of expected rewards. STATE is not changed.
    """
    live = _live(state, None)
    beliefs = live.beliefs()
    rewards = ["mean", "lower", "upper", "before", "after"]
    digits = digits_of(beliefs[rewards[:3]].to_numpy().ravel(), 4)

    def shown(frame: Any) -> str:
        whole = frame.apply(lambda column: column.dt.floor("s") if hasattr(column, "dt") else column)
        plain = partial(written, between="")  # spaces separate the columns
        formats = {name: partial(plain, digits=digits) for name in rewards if name in frame}
        return str(
            whole.to_string(index=False, na_rep="", float_format=partial(plain, digits=4), formatters=formats)
        )

    click.echo(f"{live!r}\n\n{shown(beliefs)}")
    alarms = live.alarms()
    if len(alarms):
        click.echo(f"\nchanges noticed\n{shown(alarms)}")
    if html is not None:
        live.report(html)
        click.echo(f"\nwrote {html}")


def _live(state: Path, arms: str | None) -> Any:
    """The live system in a file, or a new one over these arms."""
    from bandits_torch.ask_tell import AskTell
    from bandits_torch.policy_files import load_policy
    from bandits_torch.state_files import read_state

    names = None if arms is None else [name.strip() for name in arms.split(",")]
    file = str(state)
    if not state.exists():
        if names is None:
            raise ValueError(
                f"arms must be given to `ask --arms` first, as there is no file {file!r}, got None"
            )
        counts = [name for name in names if name.isdecimal()]
        if counts:
            expected = "names that are not numbers: `tell` takes a number for that of a question"
            raise ValueError(f"arms must be {expected}, got {', '.join(counts)}")
        return AskTell.auto(names)
    roster = read_state(state, "policy")["state"].get("arms")
    if roster is None:
        raise ValueError(f"state must be a file that `ask` began, got {file!r}, which holds another policy")
    known, first = roster["names"], roster["first"]
    if names not in (None, known):
        raise ValueError(f"arms must be those of {file!r}, {known}, or left out, got {names}")
    live = AskTell.auto(first if known is None else known[:first])
    load_policy(state, live)
    return live


@app.command("list", short_help="List policies and problems, and their options.")
@click.argument("name", required=False)
def list_names(name: str | None) -> None:
    """List problems and policies, one line each, or describe NAME and its options."""
    if name is None:
        for kind, entries in (("problem", catalogue().problems), ("policy", catalogue().policies)):
            lines = [(key, entry.about.partition("\n")[0]) for key, entry in entries.items()]
            _print_table((kind, "what it is"), lines)
            click.echo()
        kernels = [(key, f"of the plug-in {point.value}") for key, point in installed("kernels").items()]
        if kernels:
            _print_table(("kernel", "what it is"), kernels)
        return
    problems, policies = catalogue().problems, catalogue().policies
    if ":" in name:
        try:
            entry = problems[name]
        except ValueError:  # a module without a problem of this name
            entry = policies[name]
    elif name in policies or name in problems:
        entry = (policies if name in policies else problems)[name]
    else:
        close = did_you_mean(name, [*problems, *policies])
        raise ValueError(f"name must be one of those that `bandits-torch list` shows, got {name!r}{close}")
    click.echo(f"{entry.about}\n")
    rows = [(key, "must be given" if default is None else default) for key, default in entry.options.items()]
    _print_table(("option", "default"), rows)


def _print_table(head: tuple[str, str], rows: list[tuple[str, str]]) -> None:
    """Print two columns as wide as the terminal. Plain text, because importing rich takes longer than the rest."""
    columns = click.HelpFormatter(width=shutil.get_terminal_size().columns)
    columns.write_dl([head, *rows], col_max=columns.width)
    click.echo(columns.getvalue(), nl=False)


@app.command(short_help="Repeat a race from its run.json.")
@click.argument("record", type=THERE)
@click.option("--out", type=FILE, default=Path("rerun"), help=REPORT)
@click.option("--data", type=THERE, help="Path of the data, if it is no longer the one in run.json.")
@click.option("--overwrite", is_flag=True, help=OVERWRITE)
def rerun(record: Path, out: Path, data: Path | None, overwrite: bool) -> None:
    """Repeat a race from RECORD, the run.json of a race, and print whether the regret is the same.

    regret.csv is identical if versions, device and kind of machine are the same, and the extra `fast` is installed in
    both cases or in neither. The exit code is 1 if the regret of a replicate differs.
    """
    from bandits_torch.cli.play import play_again

    other = play_again(record, out, data, overwrite)
    click.echo(f"regret differs from the record's: {', '.join(other)}" if other else "regret as recorded")
    if other:
        raise SystemExit(1)


@app.command(short_help="Race policies on several problems.")
@click.option("--problems", default="gp,switching,tv-gp,cosine", help="Names, separated by commas.")
@click.option("--policies", default=DEFAULT_POLICIES, help="Names, separated by commas.")
@count_option("--horizon", default=1000, help="Steps; fewer if a problem has fewer.")
@count_option("--replicates", default=10, help="Independent runs of each policy on each problem.")
@count_option(
    "--block",
    help="Replicates in a cell; default: all. A window computed from a problem's variation budgets is averaged over a "
    "cell, so it depends on this.",
)
@SEED
@click.option("--engine", type=click.Choice(catalogue().engines), default="local", help="Where cells run.")
@threads_option(default=1, help="CPU threads of a cell.")
@capture("", default=True, show_default=True)
@count_option("--jobs", help="Cells that run at the same time; default: as many as the CPUs allow.")
@click.option("--out", type=FILE, default=Path("sweep"), help="Folder for sweep.csv and the finished cells.")
@click.option("--data", type=THERE, help="File or folder of the problems that replay real data.")
@setting(
    help="A setting key=value of every problem or policy that accepts the key; PROBLEM.key=value or "
    "POLICY.key=value for one of them. May be repeated."
)
@click.option("--resume", is_flag=True, callback=_resume_or_overwrite, help="Continue the sweep in OUT.")
@click.option("--overwrite", is_flag=True, callback=_resume_or_overwrite, help=OVERWRITE_TABLE)
def sweep(
    *, problems: str, policies: str, data: Path | None, option: tuple[str, ...], capture: bool, **how: Any
) -> None:
    """Race algorithms (policies) on several problems: in this process, in several processes, or on Ray.

    A cell is a block of replicates of one policy on one problem. Prints a table for each problem; writes sweep.csv, and
    every finished cell to OUT/cells, from which an interrupted sweep continues with --resume. Cells that fail are
    listed at the end (exit code 1), and the others are kept.
    """
    options = asked_sweep(problems, policies, data, option)
    from bandits_torch.cli.play import run_sweep

    failures = run_sweep(*options, data=data, capture="auto" if capture else False, **how)
    for line in failures:
        click.echo(f"failed: {line}", err=True)
    if failures:
        raise SystemExit(1)
