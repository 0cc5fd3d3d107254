"""Report: an evaluation with everything its page shows, written as one offline HTML file."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from aera.aggregation import Rule, plain_vote
from aera.controller import Controller
from aera.errors import UsageError
from aera.lab.evaluation import Ballot
from aera.lab.frontier import Frontier, Point
from aera.lab.report.explorer import (
    Account,
    describe_questions,
    learned_account,
    replayed_accounts,
    shown_columns,
    thresholds,
)
from aera.lab.report.figure import CONFIG, Figure
from aera.lab.report.headline import Headline, make_headline
from aera.lab.report.reliability import Foresight
from aera.lab.report.sections import Section, make_sections
from aera.lab.truths import Truths
from aera.look import dressed, palette
from aera.policy import Policy
from aera.task import Task

HERE = Path(__file__).parent
COLOUR = re.compile(r"var\((--[a-z]+)\)")
WIDTH = 680
"""Of a figure in a file of its own."""


@dataclass(frozen=True, eq=False)
class Report:
    """An evaluation, the votes behind it, and what the gate said."""

    evaluation: Mapping[str, Any]
    """As `summarize` makes it."""
    frontier: Frontier
    ballots: Sequence[Ballot]
    """At least those of the judged questions, plain."""
    task: Task
    given: Sequence[Policy]
    """The policies that were replayed, as opposed to swept or calibrated."""
    truths: Truths | None = None
    seen: Foresight | None = None
    """What crossfit, nested and holdout leave behind of their gates."""
    controller: Controller | None = None
    """A replayed one, whose policy is among the given."""
    rule: Rule = plain_vote
    max_loss: float = 0.02
    weighed: Sequence[Ballot] = ()
    """The same ballots with learned weights, where there are any."""

    @cached_property
    def judged(self) -> list[Ballot]:
        """What the headline's policy saw, in the order of the trajectories."""
        return self._ordered(self.weighed or self.ballots)

    def _ordered(self, ballots: Sequence[Ballot]) -> list[Ballot]:
        by_id = {ballot.record.question.id: ballot for ballot in ballots}
        return [by_id[name] for name in self.frontier.trajectories.question_ids]

    @cached_property
    def headline(self) -> Headline:
        """What it shows, in words."""
        choices = next(iter(self.seen.choices.values()), ()) if self.seen else ()
        return make_headline(
            self.frontier,
            self.evaluation,
            choices=choices,
            controller=self.controller,
            max_loss=self.max_loss,
        )

    @cached_property
    def points(self) -> tuple[Point, ...]:
        """Those one may choose between; the sweeps of baselines stay on the frontier only."""
        return self.frontier.without_sweeps(self.given).points

    @cached_property
    def _replayed(self) -> tuple[dict[str, Account], Foresight | None]:
        """Reasons of the replayed policies, and what a gate among them said."""
        schedule = self.frontier.trajectories.schedule
        label = str(self.controller.policy) if self.controller else None
        own = [policy for policy in self.given if str(policy) == label]
        others = [policy for policy in self.given if str(policy) != label]
        plain = self._ordered(self.ballots)
        accounts, _ = replayed_accounts(plain, others, task=self.task, schedule=schedule)
        more, p_continue = replayed_accounts(self.judged, own, task=self.task, schedule=schedule)
        accounts |= more
        if np.isnan(p_continue).all():
            return accounts, None
        folds = np.zeros(len(p_continue), dtype=np.int64)
        return accounts, Foresight(p_continue, folds, {})

    @property
    def foresight(self) -> Foresight | None:
        """Of the protocol's gates, else of a replayed controller's."""
        return self.seen or self._replayed[1]

    @cached_property
    def sections(self) -> list[Section]:
        """What the page shows below its headline; what is not there has no section."""
        return make_sections(
            self.frontier,
            self.evaluation,
            points=self.points,
            given=[str(policy) for policy in self.given],
            shown=self.headline.policy,
            seen=self.foresight,
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
            "headline": vars(self.headline),
            "boxes": self._boxes(),
            "config": CONFIG,
            "palette": palette(),
            "sections": [section.as_json() for section in self.sections],
            "schedule": list(trajectories.schedule),
            "columns": shown_columns(trajectories.schedule),
            "points": [self._stops(point) for point in self.points],
            "questions": describe_questions(
                self.judged,
                trajectories,
                truths=self.truths,
                seen=self.foresight,
                rule=self.rule,
            ),
        }

    def _boxes(self) -> dict[str, str]:
        """The headline's policy in four figures."""
        point = self.frontier[self.headline.policy]
        quality = point.accuracy if point.graded else point.agreement
        return {
            "accuracy" if point.graded else "agreement": f"{quality:.2f} %",
            "responses per question": f"{point.responses:.1f}",
            "tokens per question": f"{point.tokens:,.0f}",
            "tokens saved": f"{point.token_saving:.1f} %",
        }

    def _stops(self, point: Point) -> dict[str, Any]:
        account = self._replayed[0].get(point.policy) or learned_account(point, self.seen)
        stops = {"policy": point.policy, "stops": point.columns.tolist(), **account.as_json()}
        below = thresholds(point, self.foresight)
        return {**stops, "thresholds": below} if below else stops


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
    file.write_text(dressed(HERE / "page.html", parts), "utf-8")


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
        file.write_text(_svg(figure), "utf-8")
        made.append(file)
    return made


def _svg(figure: Figure) -> str:
    colours = palette()
    plain = {**CONFIG, "background": "white", "font": "Arial, Helvetica, sans-serif"}
    spec = {**figure.spec, "width": WIDTH, "padding": 16, "config": plain}
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
