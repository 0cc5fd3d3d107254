"""Report: an evaluation with its figures and questions, written as one offline HTML file."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import metadata
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np

from aera.arrays import Columns, Floats
from aera.core import Prefix, Response, Vote
from aera.errors import UsageError
from aera.files import fill_template, palette, write_whole
from aera.lab.calibrating.families import GATE_FAMILY
from aera.lab.frontier import Kind, Point, Trajectories
from aera.lab.replay import ReplaySettings
from aera.lab.report.figures import (
    ALONE,
    CONFIG,
    Figure,
    calibrated_figure,
    difficulty_figure,
    flow_figure,
    frontier_figure,
    frontier_rows,
    in_order,
    reliability_figure,
    shown_columns,
    stop_figure,
    threshold_figures,
)
from aera.lab.summary import Evaluation
from aera.lab.words import bracket, signed
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

LEADS = {
    "replay": "Policies replayed as given. Picking the best of them afterwards is descriptive.",
    "controller": "The controller was finished before; the other policies are replayed as given, "
    "and picking the best of them afterwards is descriptive.",
    "crossfit": "Gates judge questions they never saw; their thresholds, like every sweep, are "
    "read off afterwards, which is descriptive.",
    **dict.fromkeys(
        ("nested", "holdout"),
        "Only the calibrated points (diamonds) were fixed before these questions were judged; "
        "sweeps are read off afterwards, which is descriptive.",
    ),
}
"""How the points of the frontier were chosen, by protocol."""
HINDSIGHT = {
    "oracle": "the cheapest checkpoint with the best grade, known in hindsight only",
    "matched-random": "the stops of another policy, dealt at random",
    "one-shot": "the checkpoint named once, at the first one",
    "first-valid": "the first response that could be read",
}
Row = dict[str, Any]


@dataclass(frozen=True)
class Section:
    """A heading with figures and tables below it."""

    name: str
    title: str
    lead: str = ""
    figures: Sequence[Figure] = ()
    sheets: Sequence[Row] = ()
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
    chances = find_chances(made)
    if chances is not None and graded:
        unseen = not told.get("controller", {}).get("seen")
        name, choices = GATE_FAMILY.name, made.done.choices if made.done else {}
        chosen = [c.setting for c in choices.get(name, ()) if c.family == name]
        gate = [
            reliability_figure(chances, trajectories, unseen=unseen),
            *threshold_figures(made.frontier, told, chosen=chosen, allowed=allowed),
        ]
        lead = "The gate turns evidence into p_continue; one threshold turns that into a decision."
        sections.append(Section("gate", "The gate and its threshold", lead, gate))
    stops = [stop_figure(points, policy=shown)]
    stops += [difficulty_figure(points, policy=shown)] if graded else []
    sections.append(Section("stops", "How a policy stops", figures=stops))
    if graded and len(trajectories.schedule) > 1:
        sections.append(_trajectory_section(trajectories, told))
    return [*sections, *_sheet_sections(told)]


def _points(made: Evaluation) -> list[Point]:
    """Those one may choose between; the sweeps of baselines stay on the frontier only."""
    headline = made.summary["headline"]
    known = made.frontier.without_sweeps().points
    return in_order(known, shown=headline["policy"], reference=headline["reference"])


def find_chances(made: Evaluation) -> Floats | None:
    """What the gates of a protocol said of questions they never saw, else a controller's.

    Shape (questions, checkpoints), NaN where a gate was not asked.
    """
    done = made.done
    if done is not None and GATE_FAMILY.name in done.measured.values:
        return done.p_continue
    known = (p.p_continue for p in made.frontier.points if p.p_continue is not None)
    return next(known, None)


def _frontier_section(made: Evaluation, *, allowed: float) -> Section:
    told = made.summary
    rows = frontier_rows(made.frontier, told)
    measure = "accuracy" if made.frontier.trajectories.grades is not None else "agreement"
    spends = [s for s in ("money", "tokens", "responses") if all(row.get(s, 0) > 0 for row in rows)]
    full = made.frontier.full_budget().policy
    figures = [frontier_figure(rows, spend=s, measure=measure, full=full) for s in spends]
    if "savings" in told:
        figures.append(calibrated_figure(told, allowed=allowed))
    lead = LEADS["controller" if made.controller else made.protocol]
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
        (row["name"], row["count"], *(_or_dash(c, "+.3f") for c in row["changes"].values()))
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


def _sheet_sections(told: Told) -> list[Section]:
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
    return [Section("tests", "Is the routing real?", sheets=sheets)] if sheets else []


def _sheets(
    caption: str, columns: Sequence[str], rows: Sequence[Sequence[object]]
) -> Sequence[Row]:
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
    told = {
        "number": place + 1,
        "answer": vote.answer,
        "weight": round(vote.weight, 3),
        "tokens": response.tokens,
        "text": shorten(response.text or (response.answer or ""), characters),
    }
    if vote.answer is not None:
        return told
    cut = "cut off before an answer" if response.truncated else "no answer could be found"
    return {**told, "why": "failed" if response.error is not None else cut}


def shorten(text: str, most: int) -> str:
    """The beginning and, where an answer would stand, more of the end."""
    if len(text) <= most:
        return text
    head, tail = most // 3, most - most // 3
    return f"{text[:head]} … [{len(text) - most:,} characters left out] … {text[-tail:]}"


# --- questions -----------------------------------------------------------------------------------


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


def _votes(prefixes: Sequence[Prefix], rule: Rule) -> dict[str, Any]:
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
    last, reasons, why, below = len(point.trajectories.schedule) - 1, dict[str, int](), [], []
    for row in rows:
        setting, family, told = point.setting, point.family, []
        if judged:
            choices, fold = judged.choices[point.family], int(judged.folds[row])
            setting, family = choices[fold].setting, choices[fold].family
            told.append(
                "chosen on other questions" if setting is not None else "kept by calibration"
            )
            told += [f"fold {fold + 1}"] if len(choices) > 1 else []
        said = None if chances is None else chances[row, point.columns[row]]
        asked = family != GATE_FAMILY.name or said is None or said < (setting or 0.0)
        reason = _describe_stop(family, setting, full=point.columns[row] == last, asked=asked)
        why.append(reasons.setdefault(", ".join((reason, *told)), len(reasons)))
        below.append(setting if family == GATE_FAMILY.name else None)
    gated = chances is not None and point.family == GATE_FAMILY.name
    return {
        "policy": point.policy,
        "stops": point.columns[rows].tolist(),
        "reasons": list(reasons),
        "why": why,
        **({"thresholds": below} if gated else {}),
    }


def _describe_stop(family: str, setting: float | None, *, full: bool, asked: bool) -> str:
    if family in HINDSIGHT:
        return HINDSIGHT[family]
    if family == Kind.FIXED.value:
        return "fixed budget"
    if full or setting is None:
        return "full budget"
    if family != GATE_FAMILY.name:
        return f"{family} reached {setting:g}"
    return f"p_continue below {setting:g}" if asked else "stopped before the gate was asked"


# --- the page ------------------------------------------------------------------------------------


def page_content(made: Evaluation) -> dict[str, Any]:
    """Everything the page's script needs."""
    told, trajectories = made.summary, made.frontier.trajectories
    health, task = made.readability, made.records.task
    questions, chances = len(trajectories.question_ids), find_chances(made)
    rows = shown_rows(questions, seed=made.seed)
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
        "points": [account(point, made, rows, chances) for point in _points(made)],
        "judged": questions,
        "questions": explore(made, rows, chances),
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
