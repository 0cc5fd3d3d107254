"""Report: an evaluation with everything its page shows, written as one offline HTML file."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from aera.arrays import Columns
from aera.errors import UsageError
from aera.files import fill_template, palette, write_whole
from aera.lab.calibrating.families import GATE_FAMILY
from aera.lab.judging.evaluation import Evaluation
from aera.lab.judging.protocols import CrossFit, Judgement
from aera.lab.replay.frontier import Frontier, Point
from aera.lab.replay.replay import ReplaySettings
from aera.lab.report.explorer import (
    Explored,
    account,
    describe_questions,
    explore,
    shown_rows,
    thresholds,
)
from aera.lab.report.figure import ALONE, CONFIG, Figure, shown_columns
from aera.lab.report.frontier import in_order
from aera.lab.report.reliability import Predictions
from aera.lab.report.sections import Section, make_sections
from aera.lab.truths import Truths
from aera.policies.gate import Live
from aera.policies.rules import Policy
from aera.pools.pool import HeldRecords, Records, VotedRecord
from aera.solving.controller import Controller
from aera.voting.rules import RULES, Rule, plain_vote
from aera.workers import SERIAL, Workers

HERE = Path(__file__).parent
COLOUR = re.compile(r"var\((--[a-z]+)\)")


@dataclass(frozen=True, eq=False)
class Report:
    """An evaluation, the votes behind it, and what the gate said."""

    evaluation: Mapping[str, Any]
    """As `summarize` makes it."""
    frontier: Frontier
    records: Records
    """The votes of at least the judged questions, plain; the pool itself where they are many."""
    given: Sequence[Policy]
    """The policies that were replayed, as opposed to swept or calibrated."""
    truths: Truths | None = None
    seen: Predictions | None = None
    """What crossfit, nested and holdout leave behind of their gates."""
    controller: Controller | None = None
    """A replayed one, whose policy is among the given; it sees the votes with its own weights."""
    rule: Rule = plain_vote
    max_loss: float = 0.02
    weighted: Sequence[VotedRecord] = ()
    """The votes with weights that a protocol learned, where it did."""
    workers: Workers = SERIAL

    @classmethod
    def of(cls, evaluation: Evaluation) -> "Report":
        """The report of an evaluation."""
        done, controller = evaluation.done, evaluation.controller
        allowed = evaluation.settings.max_loss
        return cls(
            evaluation.summary,
            evaluation.frontier,
            evaluation.records,
            evaluation.policies,
            truths=evaluation.truths,
            seen=_predictions(done) if done else None,
            controller=controller,
            rule=RULES[evaluation.settings.rule],
            max_loss=controller.calibration.get("max_loss", allowed) if controller else allowed,
            weighted=done.measured.records if isinstance(done, Judgement) else (),
            workers=evaluation.workers,
        )

    @property
    def headline(self) -> Mapping[str, Any]:
        """What it shows, in words, as the evaluation has it."""
        told: Mapping[str, Any] = self.evaluation["headline"]
        return told

    @cached_property
    def points(self) -> tuple[Point, ...]:
        """Those one may choose between; the sweeps of baselines stay on the frontier only."""
        known, told = self.frontier.without_sweeps().points, self.headline
        return tuple(in_order(known, shown=told["policy"], reference=told["reference"]))

    @cached_property
    def rows(self) -> Columns:
        """The questions one can look at."""
        questions = len(self.frontier.trajectories.question_ids)
        return shown_rows(questions, seed=int(self.evaluation["seed"]))

    @cached_property
    def explored(self) -> list[Explored]:
        """Those questions with the votes that the headline's policy saw."""
        names = self.frontier.trajectories.question_ids
        chosen = [names[row] for row in self.rows]
        task, schedule = self.records.task, self.frontier.trajectories.schedule
        plain = ReplaySettings(task, schedule, rule=self.rule)
        settings, own = plain, {str(policy): policy for policy in self.given}
        if self.controller is not None:
            settings = replace(plain, weigher=self.controller.weigher)
        known: dict[str, Any] = {"workers": self.workers}
        others = explore(self.records, chosen, own, settings=plain, **known)
        if self.controller is not None:
            own = {self.headline["policy"]: Live.of(self.controller.policy)}
        elif not self.weighted:
            return others
        weighted = HeldRecords(self.weighted, task, schedule) if self.weighted else self.records
        deployed = own if self.controller is not None else {}
        judged = explore(weighted, chosen, deployed, settings=settings, **known)
        return [one.over(other) for one, other in zip(judged, others, strict=True)]

    @cached_property
    def predictions(self) -> Predictions | None:
        """Of the protocol's gates, else of a replayed controller's."""
        said = [p.p_continue for p in self.frontier.points if p.p_continue is not None]
        if self.seen or not said:
            return self.seen
        return Predictions(said[0], np.zeros(len(said[0]), dtype=np.int64), {})

    @cached_property
    def sections(self) -> list[Section]:
        """What the page shows below its headline; what is not there has no section."""
        return make_sections(
            self.frontier,
            self.evaluation,
            points=self.points,
            shown=self.headline["policy"],
            seen=self.predictions,
            max_loss=self.max_loss,
        )

    def as_json(self) -> dict[str, Any]:
        """Everything the page's script needs."""
        trajectories = self.frontier.trajectories
        return {
            "pool": self.evaluation["pool"],
            "protocol": self.evaluation["protocol"],
            "seed": self.evaluation["seed"],
            "version": metadata.version("aera"),
            "headline": self.headline,
            "readability": self._readability(),
            "boxes": self._boxes(),
            "prices": self.evaluation.get("prices"),
            "weighted": self.frontier[self.headline["policy"]].weighted,
            "config": CONFIG,
            "alone": ALONE,
            "palette": palette(),
            "sections": [section.as_json() for section in self.sections],
            "schedule": list(trajectories.schedule),
            "columns": shown_columns(trajectories.schedule),
            "points": [self._stops(point) for point in self.points],
            "judged": len(trajectories.question_ids),
            "questions": describe_questions(
                self.explored,
                trajectories,
                rows=self.rows,
                truths=self.truths,
                seen=self.predictions,
            ),
        }

    def _readability(self) -> dict[str, Any]:
        """What was read, and what must be said loudly."""
        health = self.frontier.readability
        return {
            "summary": health.summary(),
            "warning": health.warning(self.records.task),
            "examples": list(health.examples),
        }

    def _boxes(self) -> dict[str, str]:
        """The headline's policy in a few figures."""
        point, health = self.frontier[self.headline["policy"]], self.frontier.readability
        quality = point.accuracy if point.graded else point.agreement
        kept = {
            "accuracy" if point.graded else "agreement": f"{quality:.2f} %",
            "responses per question": f"{point.responses:.1f}",
            "tokens per question": f"{point.tokens:,.0f}" if point.tokens else None,
            "tokens saved": f"{point.token_saving:.1f} %" if point.tokens else None,
            "money per 1,000 questions": self._money(point.policy),
            "responses read": f"{100 * health.share:.1f} %" if health.responses else None,
        }
        return {name: value for name, value in kept.items() if value is not None}

    def _money(self, policy: str) -> str | None:
        """What a thousand questions cost, where prices were given."""
        known = {point["policy"]: point.get("money") for point in self.evaluation["points"]}
        money = known.get(policy)
        return None if money is None else f"{money:,.2f}"

    def _stops(self, point: Point) -> dict[str, Any]:
        told = account(point, self.explored, rows=self.rows, seen=self.seen)
        stops = {
            "policy": point.policy,
            "stops": point.columns[self.rows].tolist(),
            **told.as_json(),
        }
        below = thresholds(point, rows=self.rows, seen=self.predictions)
        return {**stops, "thresholds": below} if below else stops


def _predictions(done: CrossFit | Judgement) -> Predictions | None:
    """What a protocol leaves behind of its gates; None where it learned none."""
    if GATE_FAMILY.name not in done.measured.values:
        return None
    choices = done.choices if isinstance(done, Judgement) else {}
    return Predictions(done.p_continue, done.folds, choices)


def write_report(file: Path, report: Report) -> None:
    """Write the page; nothing in it asks for anything outside it."""
    library = converter().javascript_bundle("window.vegaEmbed = vegaEmbed;")
    # A question may hold anything, also what would end a script.
    content = json.dumps(report.as_json(), separators=(",", ":"), ensure_ascii=False)
    parts = {
        "title": _title(report),
        "page.js": (HERE / "page.js").read_text("utf-8"),
        "library": library.replace("</script", "<\\/script"),
        "report": content.replace("<", "\\u003c"),
    }
    write_whole(file, fill_template(HERE / "page.html", parts))


def _title(report: Report) -> str:
    """Safe inside a title element."""
    name = f"{report.evaluation['pool']['name']}, {report.evaluation['protocol']}"
    return f"{name.replace('&', '&amp;').replace('<', '&lt;')}: AERA evaluation"


def export_svg(folder: Path, report: Report) -> list[Path]:
    """Write every figure as an SVG file named after it; the folder is made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for figure in (figure for section in report.sections for figure in section.figures):
        file = folder / f"{figure.name}.svg"
        write_whole(file, _svg(figure))
        made.append(file)
    return made


def _svg(figure: Figure) -> str:
    colours = palette()
    spec = {**figure.alone, "padding": 16, "config": ALONE}
    resolved = COLOUR.sub(lambda found: colours[found[1]], json.dumps(spec))
    svg: str = converter().vegalite_to_svg(json.loads(resolved))
    return svg


def converter() -> Any:
    """The library that draws, which is an extra."""
    try:
        import vl_convert
    except ImportError:
        raise UsageError(
            'a report needs vl-convert; install it with pip install "aera[report]"'
        ) from None
    return vl_convert
