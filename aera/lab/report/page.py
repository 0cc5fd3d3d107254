"""Report: an evaluation with its figures and questions, written as one offline HTML file."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np

from aera.errors import UsageError
from aera.files import fill_template, palette, write_whole
from aera.lab.calibrating.families import GATE_FAMILY
from aera.lab.frontier import Point, Trajectories
from aera.lab.replay import ReplaySettings
from aera.lab.report.explorer import account, describe_questions, explore, shown_rows
from aera.lab.report.figures import (
    ALONE,
    CONFIG,
    Figure,
    Predictions,
    bracket,
    calibrated_figure,
    difficulty_figure,
    flow_figure,
    frontier_figure,
    frontier_rows,
    in_order,
    reliability_figure,
    shown_columns,
    stop_figure,
    threshold_figure,
)
from aera.lab.summary import Evaluation
from aera.lab.words import signed
from aera.voting.rules import RULES

HERE = Path(__file__).parent
COLOUR = re.compile(r"var\((--[a-z]+)\)")
Sheet = dict[str, Any]
Told = Mapping[str, Any]


@dataclass(frozen=True)
class Section:
    """A heading with figures and tables below it."""

    name: str
    title: str
    lead: str = ""
    figures: Sequence[Figure] = ()
    sheets: Sequence[Sheet] = ()
    folded: bool = False

    def as_json(self) -> dict[str, Any]:
        """The section as the page holds it."""
        return {**vars(self), "figures": [figure.as_json() for figure in self.figures]}


def make_sections(made: Evaluation) -> list[Section]:
    """Everything below the headline; what is not there has no section."""
    told, trajectories = made.summary, made.frontier.trajectories
    shown, points = made.spoken, _points(made)
    known = made.controller.calibration if made.controller else {}
    allowed = 100 * known.get("max_loss", made.max_loss)
    graded = trajectories.grades is not None
    sections = [_frontier_section(made, allowed=allowed)]
    seen = find_predictions(made)
    if seen is not None and graded:
        unseen = not told.get("controller", {}).get("seen")
        choices = seen.choices.get(GATE_FAMILY.name, ())
        gated = [c for c in choices if c.family == GATE_FAMILY.name]
        chosen = [choice.setting for choice in gated]
        gate = [
            reliability_figure(seen, trajectories, unseen=unseen),
            threshold_figure(made.frontier, told, chosen=chosen, allowed=allowed),
        ]
        lead = "The gate turns evidence into p_continue; one threshold turns that into a decision."
        sections.append(_section("gate", "The gate and its threshold", lead, *gate))
    stops = [stop_figure(points, policy=shown)]
    stops += [difficulty_figure(points, policy=shown)] if graded else []
    sections.append(_section("stops", "How a policy stops", "", *stops))
    if graded and len(trajectories.schedule) > 1:
        sections.append(_trajectory_section(trajectories, told))
    return [*sections, *_sheet_sections(told)]


def _section(name: str, title: str, lead: str, *figures: Figure | None) -> Section:
    return Section(name, title, lead, [figure for figure in figures if figure is not None])


def _points(made: Evaluation) -> list[Point]:
    """Those one may choose between; the sweeps of baselines stay on the frontier only."""
    headline = made.summary["headline"]
    known = made.frontier.without_sweeps().points
    return in_order(known, shown=headline["policy"], reference=headline["reference"])


def find_predictions(made: Evaluation) -> Predictions | None:
    """What the gates of a protocol said of questions they never saw, else a controller's."""
    done = made.done
    if done is not None and GATE_FAMILY.name in done.measured.values:
        choices = done.choices
        return Predictions(done.p_continue, done.folds, choices)
    said = [p.p_continue for p in made.frontier.points if p.p_continue is not None]
    return Predictions(said[0], np.zeros(len(said[0]), dtype=np.int64), {}) if said else None


def _frontier_section(made: Evaluation, *, allowed: float) -> Section:
    told = made.summary
    rows = frontier_rows(made.frontier, told)
    measure = "accuracy" if made.frontier.trajectories.grades is not None else "agreement"
    spends = [s for s in ("money", "tokens", "responses") if all(row.get(s, 0) > 0 for row in rows)]
    full = made.frontier.full_budget().policy
    figures = [frontier_figure(rows, spend=s, measure=measure, full=full) for s in spends]
    if "savings" in told:
        figures.append(calibrated_figure(told, allowed=allowed))
    leads = {
        "replay": "Policies replayed as given. Picking the best of them afterwards is descriptive.",
        "crossfit": "Gates judge questions they never saw; their thresholds, like every sweep, are "
        "read off afterwards, which is descriptive.",
    }
    lead = leads.get(
        told["protocol"],
        "Only the calibrated points (diamonds) were fixed before these questions were judged; "
        "sweeps are read off afterwards, which is descriptive.",
    )
    if made.controller is not None:
        lead = (
            "The controller was finished before; the other policies are replayed as given, and "
            "picking the best of them afterwards is descriptive."
        )
    beside = [
        (each["reference"], f"{each['accuracy']:.1f}", *_gap(each["gap"]),
         each["gap"]["better"], each["gap"]["worse"])
        for each in told["headline"]["beside"]
    ]  # fmt: skip
    sheets = _sheets(
        f"{made.spoken} against fixed budgets of plain votes",
        ("fixed budget", "accuracy, %", "difference, points", "95 %", "better", "worse"),
        beside,
    )
    return Section("frontier", f"{measure.capitalize()} and compute", lead, figures, sheets)


def _trajectory_section(trajectories: Trajectories, told: Told) -> Section:
    total = len(trajectories.question_ids)
    shapes = [
        (name, count, f"{100 * count / total:.1f} %")
        for name, count in trajectories.shapes().items()
    ]
    names = [name.replace("_", " ") for name in trajectories.evidence]
    moves = [
        (row.name, row.count, *(_or_dash(change, "+.3f") for change in row.changes.values()))
        for row in trajectories.transitions()
    ]
    examples = told["trajectories"]["counter_examples"]
    against = [
        (row["transition"], row["count"], *row["against"].values(), row["all_against"])
        for row in examples
    ]
    weighed = [name.replace("_", " ") for name in examples[0]["against"]]
    return Section(
        "trajectories",
        "Trajectories and transitions",
        "How answers change with more votes, and whether the evidence shows it.",
        [flow_figure(trajectories)],
        [
            *_sheets("Whole trajectories", ("shape", "questions", "share"), shapes),
            *_sheets(
                "Transitions between checkpoints, with the mean change of the evidence",
                ("transition", "count", *(f"Δ {name}" for name in names)),
                moves,
            ),
            *_sheets(
                "Evidence against correctness: collapses while it strengthens, recoveries while it "
                "weakens",
                ("transition", "count", *weighed, "all together"),
                against,
            ),
        ],
        folded=True,
    )


def _sheet_sections(told: Told) -> Iterator[Section]:
    """Equal-compute mixtures and matched-random tests, where present."""
    mixtures = [
        (row["policy"], f"{row['responses']:.1f}", f"{row['accuracy']:.1f}", *_gap(row),
         _chance(row["p"]))
        for row in told.get("mixtures", ())
        if row["accuracy"] is not None
    ]  # fmt: skip
    matched = [
        (row["policy"], f"{row['observed']:.1f}", f"{row['mean']:.1f}", _chance(row["p"]))
        for row in told.get("matched_random", ())
    ]
    ahead = [
        (row["group"], row["questions"], _or_dash(row["improvable"]), _or_dash(row["gain"]))
        for row in told.get("diagnostics", {}).get("residual_opportunity", ())
    ]
    sheets = [
        *_sheets(
            "Against the best mixture of ASC settings that costs as many responses",
            ("policy", "responses", "mixture, %", "difference, points", "95 %", "p"),
            mixtures,
        ),
        *_sheets(
            "Against the same stops dealt to other questions at random",
            ("policy", "accuracy, %", "at random, %", "p"),
            matched,
        ),
        *_sheets(
            "What lay ahead at the first checkpoint",
            ("questions that were", "count", "could still improve, %", "mean gain, points"),
            ahead,
        ),
    ]
    if sheets:
        yield Section("tests", "Is the routing real?", "", (), sheets)


def _sheets(
    caption: str, columns: Sequence[str], rows: Sequence[Sequence[object]]
) -> Sequence[Sheet]:
    """A table, whose first column names and whose others count; none without rows."""
    cells = [[*map(str, row)] for row in rows]
    return [{"caption": caption, "columns": [*columns], "rows": cells}] if rows else []


def _gap(row: Told) -> tuple[str, str]:
    return signed(row["difference"]), bracket(row["low"], row["high"])


def _chance(p: float) -> str:
    """A p-value; none is nothing."""
    return f"{p:.4f}" if p >= 0.0001 else "< 0.0001"


def _or_dash(value: float | None, digits: str = ".1f") -> str:
    return "–" if value is None or isnan(value) else format(value, digits)


# --- the page ------------------------------------------------------------------------------------


def page_content(made: Evaluation) -> dict[str, Any]:
    """Everything the page's script needs."""
    told, trajectories = made.summary, made.frontier.trajectories
    health, task = made.readability, made.records.task
    questions, seen = len(trajectories.question_ids), find_predictions(made)
    rows = shown_rows(questions, seed=made.seed)
    weigher = made.controller.weigher if made.controller else None
    rule = RULES[made.rule]
    explored = explore(
        made.records,
        [trajectories.question_ids[row] for row in rows],
        ReplaySettings(task, trajectories.schedule, rule=rule, weigher=weigher),
        learned=made.done.measured.records if made.done else (),
        workers=made.workers,
    )
    return {
        **{name: told[name] for name in ("pool", "protocol", "seed", "headline")},
        "version": metadata.version("aera"),
        "readability": {
            "summary": health.summary(task),
            "warning": health.warning(task),
            "examples": list(health.examples),
        },
        "boxes": _boxes(made),
        "prices": told.get("prices"),
        "weighted": made.frontier[made.spoken].weighted,
        "config": CONFIG,
        "alone": ALONE,
        "palette": palette(),
        "sections": [section.as_json() for section in make_sections(made)],
        "schedule": list(trajectories.schedule),
        "columns": shown_columns(trajectories.schedule),
        "points": [account(point, rows=rows, seen=seen) for point in _points(made)],
        "judged": questions,
        "questions": describe_questions(
            explored, trajectories, truths=made.truths, rows=rows, seen=seen
        ),
    }


def _boxes(made: Evaluation) -> dict[str, str]:
    """The headline's policy in a few figures."""
    point, health = made.frontier[made.spoken], made.readability
    [money] = [p.get("money") for p in made.summary["points"] if p["policy"] == made.spoken]
    kept = {
        "right": f"{point.accuracy:.1f} %" if point.graded else None,
        "agree with all votes": None if point.graded else f"{point.agreement:.1f} %",
        "responses per question": f"{point.responses:.1f}",
        "tokens per question": f"{point.tokens:,.0f}" if point.tokens else None,
        "of all tokens": f"{100 - point.token_saving:.0f} %" if point.tokens else None,
        "money per 1,000 questions": None if money is None else f"{money:,.2f}",
        "responses read": f"{100 * health.share:.1f} %" if health.responses else None,
    }
    return {name: value for name, value in kept.items() if value is not None}


def write_report(file: Path, made: Evaluation) -> None:
    """Write the page; nothing in it asks for anything outside it."""
    library = converter().javascript_bundle("window.vegaEmbed = vegaEmbed;")
    # A question may hold anything, also what would end a script.
    content = json.dumps(page_content(made), separators=(",", ":"), ensure_ascii=False)
    name = f"{made.records.name}, {made.protocol}"
    parts = {
        "title": f"{name.replace('&', '&amp;').replace('<', '&lt;')}: AERA evaluation",
        "page.js": (HERE / "page.js").read_text("utf-8"),
        "library": library.replace("</script", "<\\/script"),
        "report": content.replace("<", "\\u003c"),
    }
    write_whole(file, fill_template(HERE / "page.html", parts))


def export_svg(folder: Path, made: Evaluation) -> list[Path]:
    """Write every figure as an SVG file named after it; the folder is made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    files, colours = [], palette()
    for figure in (figure for section in make_sections(made) for figure in section.figures):
        spec = {**figure.spec, **figure.alone, "padding": 16, "config": ALONE}
        resolved = COLOUR.sub(lambda found: colours[found[1]], json.dumps(spec))
        files.append(folder / f"{figure.name}.svg")
        write_whole(files[-1], converter().vegalite_to_svg(json.loads(resolved)))
    return files


def converter() -> Any:
    """The library that draws, which is an extra."""
    try:
        import vl_convert
    except ImportError:
        raise UsageError(
            'a report needs vl-convert; install it with pip install "aera[report]"'
        ) from None
    return vl_convert
