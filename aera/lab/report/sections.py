"""Sections: what an evaluation has to show, in order; what it does not have is left out."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any

from aera.lab.calibrating.families import GATE_FAMILY
from aera.lab.judging.headline import signed
from aera.lab.replay.frontier import Frontier, Point
from aera.lab.replay.trajectory import Trajectories
from aera.lab.report.changes import change_figure, flow_figure, pattern_figure
from aera.lab.report.figure import Figure, bracket
from aera.lab.report.frontier import frontier_figure, frontier_rows
from aera.lab.report.gating import reliability_figure, threshold_figure, threshold_rows
from aera.lab.report.policies import calibrated_figure, difficulty_figure, stop_figure
from aera.lab.report.reliability import Predictions


@dataclass(frozen=True)
class Sheet:
    """A table; the first column names, the others count."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Section:
    """A heading with figures and tables below it."""

    name: str
    title: str
    lead: str = ""
    figures: tuple[Figure, ...] = ()
    sheets: tuple[Sheet, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The section as the page holds it."""
        return {
            "name": self.name,
            "title": self.title,
            "lead": self.lead,
            "figures": [figure.as_json() for figure in self.figures],
            "sheets": [vars(sheet) for sheet in self.sheets],
        }


def make_sections(
    frontier: Frontier,
    evaluation: Mapping[str, Any],
    *,
    points: Sequence[Point],
    shown: str,
    seen: Predictions | None,
    max_loss: float,
) -> list[Section]:
    """Everything below the headline."""
    graded = frontier.trajectories.grades is not None
    rows = frontier_rows(frontier, evaluation)
    sections = [_frontier_section(frontier, evaluation, rows, allowed=100 * max_loss)]
    if seen is not None and graded:
        sections.append(_gate_section(frontier, evaluation, seen, allowed=100 * max_loss))
    figures = [stop_figure(points, policy=shown)]
    figures += [difficulty_figure(points, policy=shown)] if graded else []
    sections.append(Section("stops", "How a policy stops", "", tuple(figures)))
    if graded and len(frontier.trajectories.schedule) > 1:
        sections += _trajectory_sections(frontier.trajectories, evaluation)
    sections += _sheet_sections(evaluation)
    return sections


def _frontier_section(
    frontier: Frontier, evaluation: Mapping[str, Any], rows: Sequence[Any], *, allowed: float
) -> Section:
    measure = "accuracy" if frontier.trajectories.grades is not None else "agreement"
    known = [name for name in ("tokens", "money") if all(row.get(name, 0) > 0 for row in rows)]
    spends = ["responses", *known]
    figures = [frontier_figure(rows, spend=spend, measure=measure) for spend in spends]
    if "savings" in evaluation:
        figures.append(calibrated_figure(evaluation, allowed=allowed))
    leads = {
        "replay": "Policies replayed as given. Picking the best of them afterwards is descriptive.",
        "crossfit": "Gates judge questions they never saw; their thresholds, like every sweep, are "
        "read off afterwards, which is descriptive.",
    }
    confirmed = (
        "Only the calibrated points (diamonds) were fixed before these questions were judged; "
        "sweeps are read off afterwards, which is descriptive."
    )
    deployed = (
        "The controller was finished before; the other policies are replayed as given, and picking "
        "the best of them afterwards is descriptive."
    )
    lead = leads.get(evaluation["protocol"], confirmed)
    lead = deployed if "controller" in evaluation else lead
    beside = _beside(evaluation["headline"])
    sheets = (beside,) if beside.rows else ()
    title = f"{measure.capitalize()} and compute"
    return Section("frontier", title, lead, tuple(figures), sheets)


def _beside(headline: Mapping[str, Any]) -> Sheet:
    """The policy spoken of against fixed budgets of plain votes."""
    return Sheet(
        f"{headline['policy']} against fixed budgets of plain votes",
        ("fixed budget", "accuracy, %", "difference, points", "95 %", "better", "worse"),
        tuple(
            (each["reference"], f"{each['accuracy']:.2f}", signed(each["gap"]["difference"]),
             bracket(each["gap"]["low"], each["gap"]["high"]),
             str(each["gap"]["better"]), str(each["gap"]["worse"]))
            for each in headline["beside"]
        ),
    )  # fmt: skip


def _gate_section(
    frontier: Frontier, evaluation: Mapping[str, Any], seen: Predictions, *, allowed: float
) -> Section:
    unseen = not evaluation.get("controller", {}).get("seen")
    figures = [reliability_figure(seen, frontier.trajectories, unseen=unseen)]
    rows = threshold_rows(frontier, evaluation)
    if len(rows) > 2:
        chosen = [choice.setting for choice in seen.choices.get(GATE_FAMILY.name, ())]
        figures.append(threshold_figure(rows, chosen=chosen, allowed=allowed))
    lead = "The gate turns evidence into p_continue; one threshold turns that into a decision."
    return Section("gate", "The gate and its threshold", lead, tuple(figures))


def _trajectory_sections(
    trajectories: Trajectories, evaluation: Mapping[str, Any]
) -> Iterator[Section]:
    total = len(trajectories.question_ids)
    shapes = Sheet(
        "Whole trajectories",
        ("shape", "questions", "share"),
        tuple(
            (name, str(count), f"{100 * count / total:.1f} %")
            for name, count in trajectories.shapes().items()
        ),
    )
    figures = [flow_figure(trajectories), pattern_figure(trajectories)]
    kept = tuple(figure for figure in figures if figure is not None)
    yield Section(
        "trajectories", "Trajectories", "How answers change with more votes.", kept, (shapes,)
    )
    names = tuple(f"Δ {name.replace('_', ' ')}" for name in trajectories.evidence)
    moves = Sheet(
        "Transitions between checkpoints, with the mean change of the evidence",
        ("transition", "count", *names),
        tuple(
            (row.name, str(row.count), *(_or_dash(c, "+.3f") for c in row.changes.values()))
            for row in trajectories.transitions()
        ),
    )  # fmt: skip
    sheets = (moves, _against(evaluation["trajectories"]["counter_examples"]))
    yield Section("transitions", "Transitions", "", (change_figure(trajectories),), sheets)


def _against(examples: Sequence[Mapping[str, Any]]) -> Sheet:
    """How often the evidence moved the wrong way."""
    names = list(examples[0]["against"])
    return Sheet(
        "Evidence against correctness: collapses while it strengthens, recoveries while it weakens",
        ("transition", "count", *(name.replace("_", " ") for name in names), "all together"),
        tuple(
            (row["transition"], str(row["count"]), *(str(row["against"][name]) for name in names),
             str(row["all_against"]))
            for row in examples
        ),
    )  # fmt: skip


def _sheet_sections(evaluation: Mapping[str, Any]) -> Iterator[Section]:
    """Equal-compute mixtures and matched-random tests; ablations and transfer where present."""
    sheets = [
        sheet
        for sheet in (
            _mixtures(evaluation.get("mixtures", ())),
            _matched(evaluation.get("matched_random", ())),
            _opportunity(evaluation.get("diagnostics", {}).get("residual_opportunity", ())),
        )
        if sheet.rows
    ]
    if sheets:
        yield Section("tests", "Is the routing real?", "", (), tuple(sheets))
    for name in ("ablations", "transfer"):
        if evaluation.get(name):
            yield Section(name, name.capitalize(), "", (), (_plain(evaluation[name]),))


def _mixtures(rows: Sequence[Mapping[str, Any]]) -> Sheet:
    return Sheet(
        "Against the best mixture of ASC settings that costs as many responses",
        ("policy", "responses", "mixture, %", "difference, points", "95 %", "p"),
        tuple(
            (row["policy"], f"{row['responses']:.1f}", f"{row['accuracy']:.2f}",
             signed(row["difference"]), bracket(row["low"], row["high"]), _chance(row["p"]))
            for row in rows
            if row["accuracy"] is not None
        ),
    )  # fmt: skip


def _matched(rows: Sequence[Mapping[str, Any]]) -> Sheet:
    return Sheet(
        "Against the same stops dealt to other questions at random",
        ("policy", "accuracy, %", "at random, %", "p"),
        tuple(
            (row["policy"], f"{row['observed']:.2f}", f"{row['mean']:.2f}", _chance(row["p"]))
            for row in rows
        ),
    )


def _opportunity(rows: Sequence[Mapping[str, Any]]) -> Sheet:
    return Sheet(
        "What lay ahead at the first checkpoint",
        ("questions that were", "count", "could still improve, %", "mean gain, points"),
        tuple(
            (row["group"], f"{row['questions']}", *map(_or_dash, (row["improvable"], row["gain"])))
            for row in rows
        ),
    )


def _chance(p: float) -> str:
    """A p-value; none is nothing."""
    return f"{p:.4f}" if p >= 0.0001 else "< 0.0001"


def _or_dash(value: float | None, digits: str = ".2f") -> str:
    return "–" if value is None or isnan(value) else format(value, digits)


def _plain(rows: Sequence[Mapping[str, Any]]) -> Sheet:
    """Rows of names and numbers, as they are."""
    columns = tuple(rows[0])
    cells = tuple(
        tuple(f"{v:.2f}" if isinstance(v, float) else str(v) for v in row.values()) for row in rows
    )
    return Sheet("", columns, cells)
