"""Commands of the lab: import, train, evaluate, audit. The only ones that open a truth."""

import json
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.progress import track as rich_track

from aera.aggregation import RULES
from aera.catalog import Maker, parse_policy, standard_policies
from aera.errors import ProtocolError, UsageError
from aera.policy import Policy
from aera.pool import Pool
from aera.schedule import Schedule
from aera.task import get_task

if TYPE_CHECKING:
    from aera.controller import Controller
    from aera.lab.evaluation import Ballot
    from aera.lab.frontier import Frontier
    from aera.lab.protocols import Demand
    from aera.lab.study import Study
    from aera.lab.truths import Truths

Item = TypeVar("Item")


class Protocol(StrEnum):
    """The ways to evaluate."""

    REPLAY = "replay"
    CROSSFIT = "crossfit"
    NESTED = "nested"
    HOLDOUT = "holdout"


PoolArgument = Annotated[Path, typer.Argument(help="A pool directory.")]
EncoderOption = Annotated[
    str | None, typer.Option(help="Another encoder: a path, URL#model or model name.")
]
LossOption = Annotated[float, typer.Option(help="Allowed loss of accuracy, as a fraction.")]
CertifyOption = Annotated[
    float | None, typer.Option(help="Certify the loss with this chance of error, as 0.1.")
]
SeedOption = Annotated[int, typer.Option(help="For everything drawn by chance.")]


def import_(
    file: Annotated[Path, typer.Argument(help="Recorded responses, gzipped or plain.")],
    out: Annotated[Path, typer.Option(help="Where the pool goes.")],
    task: Annotated[str | None, typer.Option(help="How to read them; else the file's own.")] = None,
) -> None:
    """Bring recorded responses into a pool."""
    from aera.lab.importing import import_jsonl

    pool = import_jsonl(file, out, task=get_task(task) if task else None)
    counts = f"{len(pool)} questions, {pool.manifest.responses:,} responses"
    Console().print(f"{out}: {counts}, task {pool.task.name}, checkpoints {pool.schedule}")


def train(
    pool: PoolArgument,
    out: Annotated[Path, typer.Option(help="Where the controller goes.")],
    max_loss: LossOption = 0.02,
    certify: CertifyOption = None,
    rival: Annotated[
        list[str] | None, typer.Option(help="A dial to step aside to if cheaper, as asc; again.")
    ] = None,
    encoder: EncoderOption = None,
    seed: SeedOption = 0,
) -> None:
    """Fit a gate, calibrate its threshold and write the controller."""
    from aera.lab.building import build_controller

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f'"{out}" exists already; choose another place or remove it first')
    opened, demand = Pool.open(pool), _demand(max_loss, certify)
    study = _study(opened, *_ballots(opened), encoder=encoder)
    unknown = sorted(set(rival or ()) - set(study.dials))
    if unknown:
        raise UsageError(f'--rival is one of {", ".join(study.dials)}, but got "{unknown[0]}"')
    built = build_controller(
        study, opened, demand=demand, rivals=rival or (), encoder_name=encoder, seed=seed
    )
    built.controller.save(out, card=built.card)
    console = Console()
    console.print(f"{out}: {built.controller.policy}, fitted in {built.fit.epochs} epochs")
    style = "green" if built.choice.feasible else "bold red"
    console.print(built.choice.verdict, style=style, highlight=False)


def evaluate(
    pool: PoolArgument,
    protocol: Annotated[
        Protocol, typer.Option(help="What is learned from what.")
    ] = Protocol.REPLAY,
    controller: Annotated[Path | None, typer.Option(help="Add this controller's policy.")] = None,
    policies: Annotated[
        str | None, typer.Option(help="Labels, as in fixed-32,asc-0.95,esc-5+min8.")
    ] = None,
    schedule: Annotated[
        str | None, typer.Option(help='Checkpoints, as "4,8,16" or "1-128".')
    ] = None,
    rule: Annotated[str, typer.Option(help="vote, or re2-vote for comparison with Re2.")] = "vote",
    clean: Annotated[bool, typer.Option(help="Crossfit: end training on an inner split.")] = False,
    max_loss: LossOption = 0.02,
    certify: CertifyOption = None,
    encoder: EncoderOption = None,
    seed: SeedOption = 0,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the evaluation here.")
    ] = None,
) -> None:
    """Replay policies on recorded responses; without truths, show spend and agreement only."""
    _check_call(protocol, rule, controller=controller, json_file=json_file)
    opened = Pool.open(pool)
    loaded = _load(controller)
    own = loaded.schedule if loaded else opened.schedule
    checkpoints = Schedule.parse(schedule) if schedule else own
    ballots, truths = _ballots(opened)
    chosen = _policies(policies, ballots, schedule=checkpoints, encoder=encoder, seed=seed)
    sections: dict[str, Any] = {}
    if loaded is not None:
        sections["controller"] = _seen(loaded, opened, strict=protocol is Protocol.HOLDOUT)
        if str(loaded.policy) not in map(str, chosen):
            chosen.append(loaded.policy)
    frontier = _replayed(opened, ballots, chosen, truths=truths, schedule=checkpoints, rule=rule)
    if protocol is not Protocol.REPLAY and loaded is None:
        study = _study(opened, ballots, truths, encoder=encoder, schedule=checkpoints)
        demand = _demand(max_loss, certify)
        frontier, sections = _judged(
            study, frontier, protocol, clean=clean, demand=demand, seed=seed
        )
    title = f"{pool.name}: {len(frontier.trajectories.question_ids)} questions, {protocol}"
    _show(frontier.without_sweeps(chosen), sections, title=title, transitions=policies is None)
    if json_file:
        _write(json_file, frontier, opened, protocol=protocol, seed=seed, sections=sections)


def _check_call(
    protocol: Protocol, rule: str, *, controller: Path | None, json_file: Path | None
) -> None:
    """Refuse what cannot be done before any work is."""
    if rule not in RULES:
        raise UsageError(f'--rule is one of {", ".join(RULES)}, but got "{rule}"')
    if rule != "vote" and protocol is not Protocol.REPLAY:
        raise UsageError("--rule goes with replay: everything else is learned from the plain vote")
    if json_file and not json_file.absolute().parent.is_dir():
        raise UsageError(f'--json cannot write "{json_file}": there is no such folder')
    if controller and protocol in (Protocol.CROSSFIT, Protocol.NESTED):
        raise UsageError(f"--controller goes with replay or holdout, not with {protocol}")


def _load(controller: Path | None) -> "Controller | None":
    from aera.controller import Controller

    return Controller.load(controller) if controller else None


def _demand(max_loss: float, certify: float | None) -> "Demand":
    from aera.lab.protocols import Demand

    return Demand(max_loss, certify)


def _replayed(
    pool: Pool,
    ballots: "list[Ballot]",
    policies: list[Policy],
    *,
    truths: "Truths | None",
    schedule: Schedule,
    rule: str,
) -> "Frontier":
    from aera.lab.evaluation import evaluate as replay_all

    return replay_all(
        ballots, policies, task=pool.task, schedule=schedule, truths=truths, rule=RULES[rule]
    )


def _show(frontier: "Frontier", sections: dict[str, Any], *, title: str, transitions: bool) -> None:
    """Tables on the terminal, and how far their claims reach."""
    from aera.lab.tables import print_calibration, print_frontier, print_transitions

    console = Console()
    graded = frontier.trajectories.grades is not None
    print_frontier(console, frontier, title=title if graded else f"{title}, no truths")
    if graded and transitions:
        print_transitions(console, frontier.trajectories)
    if "calibration" in sections:
        print_calibration(console, sections["calibration"])
    for line in _remarks(sections):
        console.print(line, highlight=False)


def _write(
    file: Path,
    frontier: "Frontier",
    pool: Pool,
    *,
    protocol: Protocol,
    seed: int,
    sections: dict[str, Any],
) -> None:
    from aera.lab.summary import summarize

    evaluation = summarize(frontier, pool, protocol=protocol.value, seed=seed, sections=sections)
    file.write_text(json.dumps(evaluation, indent=2) + "\n", "utf-8")


def _seen(controller: "Controller", pool: Pool, *, strict: bool) -> dict[str, Any]:
    """How many of the pool's questions the controller has seen; none are allowed when strict."""
    seen = controller.seen_among(pool.questions.values())
    if strict and seen:
        raise ProtocolError(
            f"the controller was fitted or calibrated on {len(seen)} of these questions, the "
            f"first is {seen[0]}; a holdout test needs questions it has never seen"
        )
    status = f"in-sample: {len(seen)} questions were seen in training" if seen else "unseen"
    return {"policy": str(controller.policy), "seen": len(seen), "status": status}


def _judged(
    study: "Study",
    given: "Frontier",
    protocol: Protocol,
    *,
    clean: bool,
    demand: "Demand",
    seed: int,
) -> tuple["Frontier", dict[str, Any]]:
    """Run crossfit, nested or holdout beside the policies that were replayed."""
    from aera.lab import summary
    from aera.lab.protocols import crossfit, holdout, nested

    if protocol is Protocol.CROSSFIT:
        done = crossfit(study, seed=seed, clean=clean, track=_track)
        frontier = summary.crossfit_frontier(done, given.points, seed=seed)
        return frontier, summary.crossfit_sections(done, frontier, seed=seed)
    if protocol is Protocol.NESTED:
        verdict = nested(study, seed=seed, demand=demand, track=_track)
    else:
        verdict = holdout(study, seed=seed, demand=demand)
    frontier = summary.verdict_frontier(verdict, given.points)
    return frontier, summary.verdict_sections(verdict, frontier, seed=seed)


def _remarks(sections: dict[str, Any]) -> Iterable[str]:
    """What a table cannot say: how far its claims reach."""
    if "status" in sections:
        yield sections["status"]
    yield from sections.get("outcome", ())
    if "controller" in sections:
        yield f"{sections['controller']['policy']}: {sections['controller']['status']}"


def audit(
    path: Annotated[Path, typer.Argument(help="A pool or a controller directory.")],
    encoder: EncoderOption = None,
) -> None:
    """The leakage audit: where every input comes from; fails when something leaks."""
    from aera.encoders import load_encoder
    from aera.lab.audit import audit_controller, audit_pool
    from aera.lab.tables import audit_verdict, print_audit

    is_controller = (path / "config.json").is_file()
    done = audit_controller(path) if is_controller else audit_pool(path, load_encoder(encoder))
    console = Console()
    print_audit(console, done)
    console.print(audit_verdict(done), style="bold")
    if done.leaks:
        raise ProtocolError(f"{len(done.leaks)} leaks, the first is {done.leaks[0].subject}")


def _ballots(pool: Pool) -> "tuple[list[Ballot], Truths | None]":
    from aera.lab.evaluation import read_ballots
    from aera.lab.truths import Truths

    return read_ballots(pool, pool.task), Truths.open(pool.path)


def _study(
    pool: Pool,
    ballots: "list[Ballot]",
    truths: "Truths | None",
    *,
    encoder: str | None,
    schedule: Schedule | None = None,
) -> "Study":
    """Everything a protocol works on; a pool without truths is refused here."""
    from aera.encoders import load_encoder
    from aera.lab.study import open_study

    if truths is None:
        raise ProtocolError(
            f'"{pool.path}" has no truths.jsonl, so nothing can be learned from it; '
            "aera evaluate without --protocol shows what policies would spend"
        )
    loaded = load_encoder(encoder)
    return open_study(
        pool, truths, ballots=ballots, encoder=loaded, schedule=schedule, track=_track
    )


def _policies(
    labels: str | None,
    ballots: "list[Ballot]",
    *,
    schedule: Schedule,
    encoder: str | None,
    seed: int,
) -> list[Policy]:
    """The policies of a comma-separated list; empirical Bayes learns its prior out of fold."""
    from aera.baselines import Consensus
    from aera.encoders import load_encoder
    from aera.lab.priors import crossfit_bayes

    if labels is None:
        return [*standard_policies(schedule)]
    learned: dict[str, Maker] = {
        "eb": lambda dial: crossfit_bayes(ballots, float(dial), seed=seed),
        "consensus": lambda dial: Consensus(load_encoder(encoder), float(dial)),
    }
    named = [label.strip() for label in labels.split(",")]
    for label in named:
        kind, _, dial = label.partition("+")[0].partition("-")
        if kind == "fixed" and dial.isdecimal() and int(dial) not in schedule.checkpoints:
            raise UsageError(f"{label} is no checkpoint of {schedule}; --schedule sets others")
    # The oracle needs no policy: hindsight adds it wherever there are truths.
    return [parse_policy(label, learned) for label in named if label != "oracle"]


def _track(items: Sequence[Item], name: str, /) -> Iterable[Item]:
    """A progress bar on a terminal, nothing elsewhere."""
    console = Console(stderr=True)
    return rich_track(items, name, console=console, transient=True, disable=not console.is_terminal)
