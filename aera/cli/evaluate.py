"""The command `evaluate`: replay, or learn and judge, then show and write what came out."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from aera.aggregation import RULES
from aera.catalog import Maker, parse_policy, standard_policies
from aera.cli.connecting import loaded_controller
from aera.cli.opening import (
    CertifyOption,
    CrewOption,
    EncoderOption,
    EquivalenceOption,
    LossOption,
    PaperOption,
    PoolArgument,
    ScheduleOption,
    SeedOption,
    course_of,
    open_pool,
    study_of,
    track,
    votes_of,
)
from aera.cli.report import FiguresOption, JsonOption, Outputs, ReportOption
from aera.crew import Crew, parse_crew
from aera.errors import ProtocolError, UsageError
from aera.policy import Fixed, Policy
from aera.pool import Pool
from aera.schedule import Schedule
from aera.task import Task

if TYPE_CHECKING:
    from aera.controller import Controller
    from aera.lab.evaluation import Ballot, Source, Terms
    from aera.lab.frontier import Frontier
    from aera.lab.learning import Course
    from aera.lab.protocols import CrossFit, Demand, Verdict
    from aera.lab.report.page import Report
    from aera.lab.study import Study
    from aera.lab.truths import Truths


class Protocol(StrEnum):
    """The ways to evaluate."""

    REPLAY = "replay"
    CROSSFIT = "crossfit"
    NESTED = "nested"
    HOLDOUT = "holdout"


def evaluate(
    pool: PoolArgument,
    protocol: Annotated[
        Protocol, typer.Option(help="What is learned from what.")
    ] = Protocol.REPLAY,
    controller: Annotated[Path | None, typer.Option(help="Add this controller's policy.")] = None,
    policies: Annotated[
        str | None, typer.Option(help="Labels, as in fixed-32,asc-0.95,esc-5+min8.")
    ] = None,
    schedule: ScheduleOption = None,
    rule: Annotated[str, typer.Option(help="vote, or re2-vote for comparison with Re2.")] = "vote",
    paper: PaperOption = False,
    clean: Annotated[bool, typer.Option(help="Crossfit: end training on an inner split.")] = False,
    max_loss: LossOption = 0.02,
    certify: CertifyOption = None,
    encoder: EncoderOption = None,
    seed: SeedOption = 0,
    equivalence: EquivalenceOption = False,
    crew: CrewOption = "alone",
    json_file: JsonOption = None,
    report: ReportOption = None,
    figures: FiguresOption = None,
) -> None:
    """Replay policies on recorded responses; without truths, show spend and agreement only."""
    from aera.lab.evaluation import Terms
    from aera.lab.protocols import Demand

    outputs = _checked(Outputs(json_file, report, figures), protocol, rule, controller)
    workers, loaded = parse_crew(crew), _load(controller, equivalence)
    opened = open_pool(pool, equivalence=loaded.task.equivalence if loaded else equivalence)
    checkpoints = Schedule.parse(schedule) if schedule else (loaded or opened).schedule
    source, truths = votes_of(opened, workers)
    chosen = _policies(policies, source, opened.task, checkpoints, encoder=encoder, seed=seed)
    sections: dict[str, Any] = {}
    done: CrossFit | Verdict | None = None
    if loaded is not None:
        sections["controller"] = _seen(loaded, opened, chosen, strict=protocol is Protocol.HOLDOUT)
        chosen = chosen if loaded.weigher else _with(chosen, loaded.policy)
    terms = Terms(opened.task, checkpoints, truths, RULES[rule])
    frontier = terms.evaluate(source, chosen, crew=workers)
    if loaded is not None:
        label = sections["controller"]["policy"]
        frontier = _with_controller(frontier, loaded, source, terms, label=label, crew=workers)
        sections |= _outcome(frontier, loaded, label, seed) if truths else {}
    elif protocol is not Protocol.REPLAY:
        known: dict[str, Any] = {"schedule": checkpoints, "crew": workers}
        asked: dict[str, Any] = {"demand": Demand(max_loss, certify), "seed": seed}
        if paper or protocol is Protocol.CROSSFIT:
            study = study_of(opened, source, truths, encoder=encoder, **known)
            done = _judged(study, protocol, clean=clean, crew=workers, **asked)
        else:
            done = _learned(course_of(opened, source, truths, **known), protocol, **asked)
        frontier, sections = _summed_up(done, frontier, seed=seed)
    title = _title(opened, frontier, protocol)
    _show(frontier, sections, chosen, title=title, transitions=policies is None)
    if outputs.wanted:
        made = Evaluated(frontier, source, chosen, truths, done, loaded, workers)
        evaluation = _summary(frontier, opened, protocol=protocol, seed=seed, sections=sections)
        outputs.write(made.report(evaluation, opened.task, rule=rule, max_loss=max_loss))


@dataclass(frozen=True, eq=False)
class Evaluated:
    """What an evaluation leaves for its report."""

    frontier: "Frontier"
    source: "Source"
    policies: Sequence[Policy]
    truths: "Truths | None"
    done: "CrossFit | Verdict | None"
    controller: "Controller | None"
    crew: Crew

    def report(
        self, evaluation: dict[str, Any], task: Task, *, rule: str, max_loss: float
    ) -> "Report":
        """The page's content."""
        from aera.lab.protocols import Verdict
        from aera.lab.report.page import Report
        from aera.lab.report.reliability import foresight

        return Report(
            evaluation,
            self.frontier,
            self.source,
            task,
            self.policies,
            truths=self.truths,
            seen=foresight(self.done) if self.done else None,
            controller=self.controller,
            rule=RULES[rule],
            max_loss=self.controller.calibration.get("max_loss", max_loss)
            if self.controller
            else max_loss,
            weighed=self.done.ballots if isinstance(self.done, Verdict) else (),
            crew=self.crew,
        )


def _with_controller(
    frontier: "Frontier",
    controller: "Controller",
    source: "Source",
    terms: "Terms",
    *,
    label: str,
    crew: Crew,
) -> "Frontier":
    """A controller's row, and its own full budget, beside policies on plain votes."""
    if controller.weigher is None:
        return frontier
    policies = [controller.policy, Fixed(terms.schedule.last)]
    own = replace(terms, weigher=controller.weigher).evaluate(source, policies, crew=crew)
    point, full = own.points[0], own.points[1]
    weighed = replace(full, policy=full.policy.replace("fixed", "weighed"))
    return frontier.with_point(weighed).with_point(replace(point, policy=label))


def _outcome(
    frontier: "Frontier", controller: "Controller", label: str, seed: int
) -> dict[str, list[str]]:
    """What a controller loses or gains against each full budget that is shown."""
    from aera.lab.bootstrap import paired_bootstrap

    point, last = frontier[label], frontier.trajectories.schedule.last
    allowed = controller.calibration.get("max_loss")
    lines = []
    for full in (each for each in frontier.points if each.policy.endswith(f"ed-{last}")):
        gap = paired_bootstrap(100 * point.scores, 100 * full.scores, seed=seed)
        promise = "" if allowed is None else f", {100 * allowed:g} allowed in calibration"
        lines.append(
            f"{label}: {gap.difference:+.2f} points against {full.policy}, 95 % "
            f"[{gap.low:+.2f}, {gap.high:+.2f}]{promise}"
        )
    return {"outcome": lines}


def _label(controller: "Controller", policies: Sequence[Policy]) -> str:
    """What its row is called: with weights, a policy is not the plain one of the same label."""
    label = str(controller.policy)
    taken = controller.weigher is not None and label in map(str, policies)
    return f"{label}+weights" if taken else label


def _with(policies: list[Policy], policy: Policy) -> list[Policy]:
    """Each label once."""
    return policies if str(policy) in map(str, policies) else [*policies, policy]


def _checked(outputs: Outputs, protocol: Protocol, rule: str, controller: Path | None) -> Outputs:
    """Refuse what cannot be done before any work is."""
    if rule not in RULES:
        raise UsageError(f'--rule is one of {", ".join(RULES)}, but got "{rule}"')
    if rule != "vote" and protocol is not Protocol.REPLAY:
        raise UsageError("--rule goes with replay: everything else is learned from the plain vote")
    outputs.check()
    if controller and protocol in (Protocol.CROSSFIT, Protocol.NESTED):
        raise UsageError(f"--controller goes with replay or holdout, not with {protocol}")
    return outputs


def _load(controller: Path | None, equivalence: bool) -> "Controller | None":
    """A controller, which sees votes as it was trained to."""
    return loaded_controller(controller, equivalence=equivalence) if controller else None


def _title(pool: Pool, frontier: "Frontier", protocol: Protocol) -> str:
    merged = ", equal expressions together" if pool.task.equivalence else ""
    questions = len(frontier.trajectories.question_ids)
    return f"{pool.path.name}: {questions} questions, {protocol}{merged}"


def _show(
    frontier: "Frontier",
    sections: dict[str, Any],
    policies: Sequence[Policy],
    *,
    title: str,
    transitions: bool,
) -> None:
    """Tables on the terminal, and how far their claims reach."""
    from aera.lab.tables import print_calibration, print_frontier, print_transitions

    console = Console()
    own = sections.get("controller", {}).get("policy")
    frontier = frontier.without_sweeps([*policies, own])
    graded = frontier.trajectories.grades is not None
    print_frontier(console, frontier, title=title if graded else f"{title}, no truths")
    if graded and transitions:
        print_transitions(console, frontier.trajectories)
    if "calibration" in sections:
        print_calibration(console, sections["calibration"])
    for line in _remarks(sections):
        console.print(line, highlight=False)


def _summary(
    frontier: "Frontier",
    pool: Pool,
    *,
    protocol: Protocol,
    seed: int,
    sections: dict[str, Any],
) -> dict[str, Any]:
    from aera.lab.summary import summarize

    return summarize(frontier, pool, protocol=protocol.value, seed=seed, sections=sections)


def _seen(
    controller: "Controller", pool: Pool, policies: Sequence[Policy], *, strict: bool
) -> dict[str, Any]:
    """How many of the pool's questions the controller has seen; none are allowed when strict."""
    seen = controller.seen_among(pool.questions.values())
    if strict and seen:
        raise ProtocolError(
            f"the controller was fitted or calibrated on {len(seen)} of these questions, the "
            f"first is {seen[0]}; a holdout test needs questions it has never seen"
        )
    status = f"in-sample: {len(seen)} questions were seen in training" if seen else "unseen"
    return {"policy": _label(controller, policies), "seen": len(seen), "status": status}


def _judged(
    study: "Study",
    protocol: Protocol,
    *,
    clean: bool,
    demand: "Demand",
    seed: int,
    crew: Crew,
) -> "CrossFit | Verdict":
    """The paper's gate by crossfit, nested or holdout."""
    from aera.lab.protocols import crossfit, holdout, nested

    if protocol is Protocol.CROSSFIT:
        return crossfit(study, seed=seed, clean=clean, crew=crew, track=track)
    if protocol is Protocol.NESTED:
        return nested(study, seed=seed, demand=demand, crew=crew, track=track)
    return holdout(study, seed=seed, demand=demand)


def _learned(course: "Course", protocol: Protocol, *, demand: "Demand", seed: int) -> "Verdict":
    """Learned votes and the gate on them, nested or holdout."""
    from aera.lab.learning import holdout_learned, nested_learned

    if protocol is Protocol.NESTED:
        return nested_learned(course, [demand], seed=seed, track=track)[0]
    return holdout_learned(course, demand=demand, seed=seed)


def _summed_up(
    done: "CrossFit | Verdict", given: "Frontier", *, seed: int
) -> tuple["Frontier", dict[str, Any]]:
    """What a protocol found, beside the policies that were replayed."""
    from aera.lab import summary
    from aera.lab.protocols import CrossFit

    if isinstance(done, CrossFit):
        frontier = summary.crossfit_frontier(done, given.points, seed=seed)
        return frontier, summary.crossfit_sections(done, frontier, seed=seed)
    frontier = summary.verdict_frontier(done, given.points)
    return frontier, summary.verdict_sections(done, frontier, seed=seed)


def _remarks(sections: dict[str, Any]) -> Iterable[str]:
    """What a table cannot say: how far its claims reach."""
    if "status" in sections:
        yield sections["status"]
    yield from sections.get("outcome", ())
    if "controller" in sections:
        yield f"{sections['controller']['policy']}: {sections['controller']['status']}"


def _policies(
    labels: str | None,
    source: "Source",
    task: Task,
    schedule: Schedule,
    *,
    encoder: str | None,
    seed: int,
) -> list[Policy]:
    """The policies of a comma-separated list; empirical Bayes learns its prior out of fold."""
    from aera.baselines import Consensus
    from aera.encoders import load_encoder
    from aera.lab.evaluation import ballots_of, parts_of
    from aera.lab.priors import crossfit_bayes

    if labels is None:
        return [*standard_policies(schedule)]

    def ballots() -> "Iterable[Ballot]":
        return (ballot for part in parts_of(source) for ballot in ballots_of(part, task))

    learned: dict[str, Maker] = {
        "eb": lambda dial: crossfit_bayes(ballots(), float(dial), seed=seed),
        "consensus": lambda dial: Consensus(load_encoder(encoder), float(dial)),
    }
    named = [label.strip() for label in labels.split(",")]
    for label in named:
        kind, _, dial = label.partition("+")[0].partition("-")
        if kind == "fixed" and dial.isdecimal() and int(dial) not in schedule.checkpoints:
            raise UsageError(f"{label} is no checkpoint of {schedule}; --schedule sets others")
    # The oracle needs no policy: hindsight adds it wherever there are truths.
    return [parse_policy(label, learned) for label in named if label != "oracle"]
