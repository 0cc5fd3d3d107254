"""The command line. Each command opens what it needs, calls one function and shows the result."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from aera.aggregation import RULES
from aera.catalog import parse_policy, standard_policies
from aera.errors import AeraError, UsageError
from aera.pool import Pool
from aera.schedule import Schedule
from aera.task import get_task

app = typer.Typer(
    name="aera",
    help="Decide, after every block of sampled answers, whether another block is worth it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback()
def _start() -> None:
    """Keep `aera COMMAND` the form of every call, however few commands there are."""


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="Recorded responses, gzipped or plain.")],
    out: Annotated[Path, typer.Option(help="Where the pool goes.")],
    task: Annotated[
        str | None, typer.Option(help="How to read them; the file's own if not given.")
    ] = None,
) -> None:
    """Bring recorded responses into a pool."""
    from aera.lab.importing import import_jsonl

    pool = import_jsonl(file, out, task=get_task(task) if task else None)
    counts = f"{len(pool)} questions, {pool.manifest.responses:,} responses"
    Console().print(f"{out}: {counts}, task {pool.task.name}, checkpoints {pool.schedule}")


@app.command()
def evaluate(
    pool: Annotated[Path, typer.Argument(help="A pool directory.")],
    policies: Annotated[
        str | None, typer.Option(help="Labels, as in fixed-32,asc-0.95,esc-5+min8.")
    ] = None,
    schedule: Annotated[
        str | None, typer.Option(help='Checkpoints, as "4,8,16" or "1-128".')
    ] = None,
    rule: Annotated[str, typer.Option(help="vote, or re2-vote for comparison with Re2.")] = "vote",
    seed: Annotated[int, typer.Option(help="For everything drawn by chance.")] = 0,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the evaluation here.")
    ] = None,
) -> None:
    """Replay policies on recorded responses; without truths, show spend and agreement only."""
    from aera.lab.evaluation import evaluate as replay_all
    from aera.lab.evaluation import read_ballots
    from aera.lab.tables import print_frontier, print_transitions
    from aera.lab.truths import Truths

    if rule not in RULES:
        raise UsageError(f'--rule is one of {", ".join(RULES)}, but got "{rule}"')
    opened = Pool.open(pool)
    checkpoints = Schedule.parse(schedule) if schedule else opened.schedule
    truths = Truths.open(pool)
    ballots = read_ballots(opened, opened.task)
    chosen = _policies(policies, ballots, schedule=checkpoints, seed=seed)
    frontier = replay_all(
        ballots, chosen, task=opened.task, schedule=checkpoints, truths=truths, rule=RULES[rule]
    )
    console = Console()
    title = f"{pool.name}: {len(ballots)} questions"
    print_frontier(console, frontier, title=title if truths else f"{title}, no truths")
    if truths is not None and policies is None:
        print_transitions(console, frontier.trajectories)
    if json_file:
        from aera.lab.summary import summarize

        evaluation = summarize(frontier, opened, protocol="replay", seed=seed)
        json_file.write_text(json.dumps(evaluation, indent=2) + "\n", "utf-8")


def _policies(labels: str | None, ballots: Any, *, schedule: Schedule, seed: int) -> list[Any]:
    """The policies of a comma-separated list; empirical Bayes learns its prior out of fold."""
    from aera.lab.priors import crossfit_bayes

    if labels is None:
        return [*standard_policies(schedule)]
    made = []
    for label in labels.split(","):
        kind, _, dial = label.strip().partition("-")
        bayes = kind == "eb" and dial.replace(".", "", 1).isdigit()
        made.append(
            crossfit_bayes(ballots, float(dial), seed=seed) if bayes else parse_policy(label)
        )
    return made


def main() -> None:
    """Run the command line: exit 0 done, 1 the work failed, 2 the call was wrong."""
    try:
        app()
    except AeraError as error:
        Console(stderr=True).print(f"aera: {error}", markup=False, highlight=False, soft_wrap=True)
        sys.exit(2 if isinstance(error, UsageError) else 1)
