"""Report: an evaluation with its figures and questions, written as one offline HTML file."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from aera.arrays import Columns, Floats
from aera.core import Prefix, Response, Schedule, Vote
from aera.errors import UsageError
from aera.files import Json, fill_template, palette, write_whole
from aera.lab.calibrating.families import GATE_FAMILY, ONE_SHOT_FAMILY
from aera.lab.frontier import Kind, Point, Trajectories
from aera.lab.replay import ReplaySettings
from aera.lab.report.figures import (
    ALONE,
    CONFIG,
    Figure,
    calibrated_figure,
    difficulty_figure,
    flow_figure,
    formats,
    frontier_figures,
    in_order,
    quality_name,
    reliability_figure,
    stop_figure,
    threshold_figures,
)
from aera.lab.summary import Evaluation
from aera.lab.words import REMARKS, bracket, signed
from aera.pools.pool import Record, VotedRecord
from aera.voting.rules import RULES, Rule

HERE = Path(__file__).parent
COLOUR = re.compile(r"var\((--[a-z]+)\)")
Told = Mapping[str, Any]
MOST_QUESTIONS = 2_000
"""Beyond so many a page would be slow to open: those to look at are drawn by chance."""
MOST_ANSWERS = 4
LONGEST = 600
"""Characters of a question that are shown."""
MOST_CHARACTERS = 550_000
"""Of all responses on a page."""
MOST_RESPONSES, FEWEST = 8, 2
"""Responses of one question."""
LONGEST_RESPONSE = 1_000
"""Characters of one response; the middle of a longer one is left out."""
WORTH = 600
"""Characters that make a response worth showing, where there are many questions."""

MOST_CHECKPOINTS = 12
LEAD = (
    "Only calibrated policies and finished controllers were fixed beforehand; picking the best of "
    "the others is descriptive."
)
Row = dict[str, Any]
GAP = {"difference": "difference, points", "interval": "95 %"}
"""Columns of a difference."""


@dataclass(frozen=True)
class Section:
    """A heading with figures and tables below it."""

    name: str
    title: str
    lead: str = ""
    figures: Sequence[Figure] = ()
    sheets: Sequence[Row] = ()
    folded: bool = False

    def as_json(self) -> Json:
        """The section as the page holds it; a table without rows is none."""
        figures = [figure.as_json() for figure in self.figures]
        return {**vars(self), "figures": figures, "sheets": [s for s in self.sheets if s["rows"]]}


def make_sections(made: Evaluation) -> list[Section]:
    """Everything below the headline; what is not there has no section."""
    trajectories, points = made.frontier.trajectories, _points(made)
    graded, chances = trajectories.grades is not None, find_chances(made)
    sections = [_frontier_section(made)]
    if chances is not None and graded:
        name, choices = GATE_FAMILY.name, made.done.choices if made.done else {}
        chosen = [c.setting for c in choices.get(name, ()) if c.family == name]
        gate = [
            reliability_figure(chances, trajectories, unseen=not made.seen),
            *threshold_figures(made.frontier, chosen=chosen, allowed=made.allowed),
        ]
        lead = "The gate turns evidence into p_continue; one threshold turns that into a decision."
        sections.append(Section("gate", "The gate and its threshold", lead, gate))
    stops = [stop_figure(points), *([difficulty_figure(points)] if graded else [])]
    sections.append(Section("stops", "How a policy stops", figures=stops))
    if graded and len(trajectories.schedule) > 1:
        sections.append(_trajectory_section(trajectories, made.summary["trajectories"]))
    routing = _routing_sheets(made.summary)
    if any(sheet["rows"] for sheet in routing):
        sections.append(Section("tests", "Is the routing real?", sheets=routing))
    return sections


def _points(made: Evaluation) -> list[Point]:
    """Those one may choose between; the sweeps of baselines stay on the frontier only."""
    return in_order(made.frontier.without_sweeps())


def find_chances(made: Evaluation) -> Floats | None:
    """What the gates of a protocol said of questions they never saw, else a controller's.

    Shape (questions, checkpoints), NaN where a gate was not asked.
    """
    done = made.done
    if done is not None and GATE_FAMILY.name in done.measured.values:
        return done.p_continue
    known = (p.p_continue for p in made.frontier.points if p.p_continue is not None)
    return next(known, None)


def _frontier_section(made: Evaluation) -> Section:
    headline, figures = made.summary["headline"], [*frontier_figures(made.frontier, made.prices)]
    if made.done is not None and made.done.choices:
        full = made.frontier[headline["reference"]]
        figures.append(calibrated_figure(made.done, full, allowed=made.allowed))
    columns = {"reference": "fixed budget", "accuracy": "accuracy, %", **GAP}
    columns |= {"better": "better", "worse": "worse"}
    beside = [{**each, **_gap(each["gap"])} for each in headline["beside"]]
    sheet = _sheet(f"{made.spoken} against fixed budgets of plain votes", columns, beside)
    title = f"{quality_name(made.frontier).capitalize()} and compute"
    return Section("frontier", title, LEAD, figures, [sheet])


def _trajectory_section(trajectories: Trajectories, told: Told) -> Section:
    """How answers change; `told` is what an evaluation file holds of that."""
    total = len(trajectories.question_ids)
    shapes = [
        {"shape": name, "questions": count, "share": f"{100 * count / total:.1f} %"}
        for name, count in told["shapes"].items()
    ]
    moves = [
        {**row, **{name: c and signed(c, 3) for name, c in row["changes"].items()}}
        for row in told["transitions"]
    ]
    against = [{**row, **row["against"]} for row in told["counter_examples"]]
    changed = {name: f"Δ {name.replace('_', ' ')}" for name in trajectories.evidence}
    weighed = {name: name.replace("_", " ") for name in told["counter_examples"][0]["against"]}
    return Section(
        "trajectories",
        "Trajectories and transitions",
        "How answers change with more votes, and whether the evidence shows it.",
        [flow_figure(trajectories)],
        [
            _sheet(
                "Whole trajectories",
                {"shape": "shape", "questions": "questions", "share": "share"},
                shapes,
            ),
            _sheet(
                "Transitions between checkpoints, with the mean change of the evidence",
                {"name": "transition", "count": "count", **changed},
                moves,
            ),
            _sheet(
                "Evidence against correctness: collapses while it strengthens, recoveries while it "
                "weakens",
                {
                    "transition": "transition",
                    "count": "count",
                    **weighed,
                    "all_against": "all together",
                },
                against,
            ),
        ],
        folded=True,
    )


def _routing_sheets(told: Told) -> list[Row]:
    """Equal-compute mixtures and matched-random tests, where present."""
    mixtures = [_gap(row) for row in told.get("mixtures", ()) if row["accuracy"] is not None]
    matched = [{**row, "p": _chance(row["p"])} for row in told.get("matched_random", ())]
    return [
        _sheet(
            "Against the best mixture of ASC settings that costs as many responses",
            {
                "policy": "policy",
                "responses": "responses",
                "accuracy": "mixture, %",
                **GAP,
                "p": "p",
            },
            mixtures,
        ),
        _sheet(
            "Against the same stops dealt to other questions at random",
            {"policy": "policy", "observed": "accuracy, %", "mean": "at random, %", "p": "p"},
            matched,
        ),
        _sheet(
            "What lay ahead at the first checkpoint",
            {
                "group": "questions that were",
                "questions": "count",
                "improvable": "could still improve, %",
                "gain": "mean gain, points",
            },
            told.get("diagnostics", {}).get("residual_opportunity", ()),
        ),
    ]


def _sheet(caption: str, columns: Mapping[str, str], rows: Iterable[Row]) -> Row:
    """A table, whose first column names and whose others count."""
    cells = [{name: row[name] for name in columns} for row in rows]
    return {"caption": caption, "columns": columns, "formats": formats(columns), "rows": cells}


def _gap(row: Told) -> Row:
    """A row with a difference, its bounds in words."""
    return {**row, "interval": bracket(row["low"], row["high"]), "p": _chance(row["p"])}


def _chance(p: float) -> str:
    """A p-value; none is nothing."""
    return f"{p:.4f}" if p >= 0.0001 else "< 0.0001"


# --- responses -----------------------------------------------------------------------------------


def find_room(questions: int) -> tuple[int, int]:
    """How many responses of each of so many questions there is room for, and how much of each."""
    own = MOST_CHARACTERS // max(1, questions)
    count = max(FEWEST, min(MOST_RESPONSES, own // WORTH))
    return count, min(LONGEST_RESPONSE, own // count)


def show_responses(record: VotedRecord, room: tuple[int, int], *, count: int) -> list[Row]:
    """Some of the first `count` responses, in their order.

    The first one, one for each answer that many gave, one that could not be read, then the next.
    """
    most, characters = room
    said = [vote.answer for vote in record.votes[:count]]
    # By how many gave it, not by weight: whoever weighs otherwise sees the same responses.
    frequent = Counter(a for a in said if a is not None).most_common(MOST_ANSWERS)
    unread = [said.index(None)] if None in said else []
    wanted = [0, *(said.index(answer) for answer, _ in frequent), *unread, *range(len(said))]
    places = sorted(list(dict.fromkeys(wanted))[:most])
    return [_show(at, record.responses[at], record.votes[at], characters) for at in places]


def _show(place: int, response: Response, vote: Vote, characters: int) -> Row:
    cut = "cut off before an answer" if response.truncated else "no answer could be found"
    told = {
        "number": place + 1,
        "answer": vote.answer,
        "weight": round(vote.weight, 3),
        "tokens": response.tokens,
        "text": shorten(response.text or (response.answer or ""), characters),
    }
    why = {"why": "failed" if response.error is not None else cut}
    return told if vote.answer is not None else told | why


def shorten(text: str, most: int) -> str:
    """The beginning and, where an answer would stand, more of the end."""
    if len(text) <= most:
        return text
    head, tail = most // 3, most - most // 3
    return f"{text[:head]} … [{len(text) - most:,} characters left out] … {text[-tail:]}"


# --- questions -----------------------------------------------------------------------------------


def shown_columns(schedule: Schedule) -> list[int]:
    """All checkpoints, or a spread of them that keeps the first and the last."""
    if len(schedule) <= MOST_CHECKPOINTS:
        return list(range(len(schedule)))
    places = np.geomspace(1, len(schedule), MOST_CHECKPOINTS).round().astype(int) - 1
    return sorted(set(places.tolist()))


def shown_rows(questions: int, *, seed: int) -> Columns:
    """All questions, or as many as a page can show, in their order."""
    if questions <= MOST_QUESTIONS:
        return np.arange(questions)
    return np.sort(np.random.default_rng(seed).choice(questions, MOST_QUESTIONS, replace=False))


def explore(made: Evaluation, rows: Columns, chances: Floats | None) -> list[Row]:
    """One record per question in these rows, read from wherever they are; lists by checkpoint.

    What a protocol learned has votes with the weights of their fold.
    """
    trajectories, truths, known = made.frontier.trajectories, made.truths, list[Row]()
    learned = made.done.measured.records if made.done else ()
    weighed = {record.question.id: record.votes for record in learned}
    wanted = {name: weighed.get(name) for name in (trajectories.question_ids[r] for r in rows)}
    weigher = made.controller.weigher if made.controller else None
    settings = ReplaySettings(
        made.records.task, trajectories.schedule, rule=RULES[made.rule], weigher=weigher
    )
    room = find_room(len(wanted))
    work = partial(_read_part, wanted=wanted, settings=settings, room=room)
    parts = made.workers.map(work, made.records.parts())
    found = {told["id"]: told for part in parts for told in part}
    columns = shown_columns(trajectories.schedule)
    for row, name in zip(rows, wanted, strict=True):
        told = found[name]
        told["tokens"] = [int(value) for value in trajectories.tokens[row, columns]]
        told["evidence"] = {n: _short(v[row, columns]) for n, v in trajectories.evidence.items()}
        if chances is not None:
            told["p_continue"] = _short(chances[row, columns])
        if truths is not None:
            told["truth"] = truths[name]
            told["right"] = [int(right) for right in trajectories.right[row]]
        known.append(told)
    return known


def _read_part(
    part: Iterable[Record],
    *,
    wanted: Mapping[str, tuple[Vote, ...] | None],
    settings: ReplaySettings,
    room: tuple[int, int],
) -> list[Row]:
    """The questions that are wanted, some with other votes than those that are read."""
    own = settings.read([record for record in part if record.question.id in wanted])
    schedule, told = settings.schedule, list[Row]()
    for record in (replace(each, votes=wanted[each.question.id] or each.votes) for each in own):
        prefixes, text = record.prefixes(schedule), record.question.text
        shown = [prefixes[column] for column in shown_columns(schedule)]
        told.append(
            {
                "id": record.question.id,
                "text": text if len(text) <= LONGEST else f"{text[:LONGEST]} …",
                **_votes(shown, settings.rule),
                "responses": show_responses(record, room, count=schedule.last),
            }
        )
    return told


def _votes(prefixes: Sequence[Prefix], rule: Rule) -> Json:
    """The answers with the most weight in the end, with their weights at every checkpoint."""
    last = prefixes[-1].tally.weights
    returned = [rule(prefix).answer for prefix in prefixes]
    ranked = sorted(last, key=lambda answer: -last[answer])
    names = ranked[:MOST_ANSWERS]
    # An answer that led once is shown even where it lost its votes' rank later.
    names += [a for a in dict.fromkeys(returned) if a is not None and a in last and a not in names]
    table = [[prefix.tally.weights.get(name, 0.0) for prefix in prefixes] for name in names]
    spare = [p.tally.total - sum(row[i] for row in table) for i, p in enumerate(prefixes)]
    silent = [sum(vote.answer is None for vote in prefix.votes) for prefix in prefixes]
    return {
        "answers": names,
        "weights": [[round(weight, 2) for weight in row] for row in table],
        "others": [round(max(0.0, weight), 2) for weight in spare],
        "silent": silent,
        "returned": returned,
    }


def _short(values: Floats) -> list[float | None]:
    """Three decimals; null where there is no number."""
    return [None if np.isnan(value) else round(float(value), 3) for value in values]


# --- why policies stop --------------------------------------------------------------------------


def account(point: Point, made: Evaluation, rows: Columns, chances: Floats | None) -> Row:
    """Where a policy stopped and why, question by question; each reason is written once."""
    judged = made.done if point.kind is Kind.CALIBRATED else None
    last, gate = len(point.trajectories.schedule) - 1, GATE_FAMILY.name
    stops, reasons, why, below = point.columns[rows].tolist(), dict[str, int](), [], []
    for row, column in zip(rows, stops, strict=True):
        setting, family, told = point.setting, point.family, []
        if judged:
            choices, fold = judged.choices[point.family], int(judged.folds[row])
            setting, family = choices[fold].setting, choices[fold].family
            kept = "kept by calibration" if setting is None else "chosen on other questions"
            told = [kept, *([f"fold {fold + 1}"] if len(choices) > 1 else [])]
        asked = family != gate or chances is None or chances[row, column] < (setting or 0.0)
        if family == Kind.FIXED.value:
            reason = "fixed budget"
        elif judged is None and (setting is None or family == ONE_SHOT_FAMILY.name):
            reason = REMARKS.get(family, "full budget")
        elif setting is None or column == last:
            reason = "full budget"
        elif not asked:
            reason = "stopped before the gate was asked"
        else:
            reason = f"{'p_continue below' if family == gate else f'{family} reached'} {setting:g}"
        why.append(reasons.setdefault(", ".join((reason, *told)), len(reasons)))
        below.append(setting if family == gate else None)
    thresholds = {"thresholds": below} if chances is not None and point.family == gate else {}
    return {
        "policy": point.policy,
        "stops": stops,
        "reasons": list(reasons),
        "why": why,
        **thresholds,
    }


# --- the page ------------------------------------------------------------------------------------


def page_content(made: Evaluation) -> Json:
    """Everything the page's script needs."""
    told, trajectories = made.summary, made.frontier.trajectories
    health, task = made.readability, made.records.task
    questions, chances = len(trajectories.question_ids), find_chances(made)
    rows = shown_rows(questions, seed=made.seed)
    return {
        **{name: told.get(name) for name in ("pool", "protocol", "seed", "headline", "prices")},
        "version": metadata.version("aera"),
        "readability": {
            "summary": health.summary(task),
            "warning": health.warning(task),
            "examples": health.examples,
        },
        "boxes": _boxes(made),
        "weighted": made.frontier[made.spoken].weighted,
        "config": CONFIG,
        "alone": ALONE,
        "palette": palette(),
        "sections": [section.as_json() for section in make_sections(made)],
        "schedule": trajectories.schedule.checkpoints,
        "columns": shown_columns(trajectories.schedule),
        "points": [account(point, made, rows, chances) for point in _points(made)],
        "judged": questions,
        "questions": explore(made, rows, chances),
    }


def _boxes(made: Evaluation) -> dict[str, str]:
    """The headline's policy in a few figures."""
    point, health = made.frontier[made.spoken], made.readability
    kept = {
        "right": f"{point.accuracy:.1f} %" if point.graded else None,
        "agree with all votes": None if point.graded else f"{point.agreement:.1f} %",
        "responses per question": f"{point.responses:.1f}",
        "tokens per question": f"{point.tokens:,.0f}" if point.tokens else None,
        "of all tokens": f"{100 - point.token_saving:.0f} %" if point.tokens else None,
        "money per 1,000 questions": f"{point.money(made.prices):,.2f}" if made.prices else None,
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
        spec = {**figure.spec, **figure.alone, "config": ALONE}
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
