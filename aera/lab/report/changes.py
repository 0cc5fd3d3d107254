"""Figures of the trajectories: recoveries, collapses, and how the evidence moves with them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from aera.arrays import Floats
from aera.lab.replay.trajectory import TRANSITIONS, Trajectories
from aera.lab.report.figure import (
    Figure,
    Spec,
    beyond,
    encode_names,
    layer,
    line,
    name_axis,
    number,
    shown_columns,
    steps,
    tooltip,
    where,
)

MOST_PATTERNS = 14
ANSWER_COLOURS = {"right": "var(--blue)", "wrong": "var(--orange)"}
ANSWER_SHAPES = {"right": "square", "wrong": "circle"}
TRANSITION_COLOURS = {
    "stable wrong": "var(--grey)",
    "recovery": "var(--blue)",
    "collapse": "var(--orange)",
    "stable right": "var(--green)",
}


def flow_figure(trajectories: Trajectories) -> Figure:
    """Recoveries upwards and collapses downwards, from each checkpoint to the next."""
    right, schedule = trajectories.right, list(trajectories.schedule)
    rows = []
    for column, (here, there) in enumerate(pairwise(schedule)):
        before, after = right[:, column], right[:, column + 1]
        for name, count, sign in (
            ("recovery", int((~before & after).sum()), 1),
            ("collapse", int((before & ~after).sum()), -1),
        ):
            step = f"{here} → {there}"
            row = {"step": step, "transition": name, "questions": count, "signed": sign * count}
            rows.append(row)
    columns = {"step": "from → to", "transition": "transition", "questions": "questions"}
    order = [f"{here} → {there}" for here, there in pairwise(schedule)]
    x = steps("step", "responses, from one checkpoint to the next", order)
    axis = {"labelExpr": "abs(datum.value)", "tickMinStep": 1}
    place = {"x": x, "y": number("signed", "questions", axis=axis, scale={"padding": 22})}
    colour = encode_names("transition", TRANSITION_COLOURS, ("recovery", "collapse"))
    inked = {**place, "color": colour, "tooltip": tooltip(columns)}
    counts = beyond(place, number("questions", None))
    layers = [
        layer("bar", inked, width={"band": 0.6}),
        line("y", 0, strokeWidth=1),
        *([where("datum.questions > 0", counts)] if any(row["questions"] for row in rows) else ()),
    ]
    return Figure(
        "flow",
        "Recoveries and collapses at each step",
        "Upwards: wrong at one checkpoint and right at the next. Downwards: the reverse. Stopping "
        "in time keeps the first and escapes the second.",
        rows,
        columns,
        {"layer": layers},
        height=280,
    )


def pattern_figure(trajectories: Trajectories) -> Figure | None:
    """The most frequent trajectories that are neither always right nor always wrong."""
    columns = shown_columns(trajectories.schedule)
    names = [str(trajectories.schedule.checkpoints[column]) for column in columns]
    found = Counter(tuple(row) for row in trajectories.right[:, columns].tolist())
    changing = [(p, count) for p, count in found.most_common() if 0 < sum(p) < len(p)]
    rows = [
        {
            "pattern": place,
            "questions": count,
            "checkpoint": name,
            "answer": "right" if right else "wrong",
        }
        for place, (pattern, count) in enumerate(changing[:MOST_PATTERNS], 1)
        for name, right in zip(names, pattern, strict=True)
    ]
    if not rows:
        return None
    y = name_axis("pattern")
    y["axis"]["labels"] = False
    place = {"x": steps("checkpoint", "responses", names), "y": y}
    codes = {
        "color": encode_names("answer", ANSWER_COLOURS, ANSWER_COLOURS),
        "shape": encode_names("answer", ANSWER_SHAPES, ANSWER_SHAPES),
        "size": {"condition": {"test": "datum.answer == 'right'", "value": 190}, "value": 55},
    }
    count = layer("text", {**place, "text": number("questions", None)}, dx=22, align="left")
    told = sum(count for _, count in changing)
    drawn = sum(count for _, count in changing[:MOST_PATTERNS])
    return Figure(
        "patterns",
        "Trajectories that change",
        f"Patterns of right and wrong answers, the most frequent first: {drawn} of the {told} "
        "questions whose answer changes. The number of questions is at the end of each line.",
        rows,
        {name: name for name in ("pattern", "questions", "checkpoint", "answer")},
        {
            "layer": [
                layer("point", {**place, **codes}),
                where(f"datum.checkpoint == '{names[-1]}'", count),
            ]
        },
        height=24 * min(len(changing), MOST_PATTERNS) + 10,
    )


def change_figure(trajectories: Trajectories) -> Figure:
    """Box plots of how the evidence moved with each kind of transition."""
    before, after = trajectories.right[:, :-1], trajectories.right[:, 1:]
    rows = []
    for evidence in trajectories.evidence:
        moved = trajectories.changes(evidence)
        for transition, (was, became) in TRANSITIONS.items():
            members = moved[(before == was) & (after == became)]
            members = members[~np.isnan(members)]
            if len(members):
                row = {"evidence": evidence.replace("_", " "), "transition": transition}
                rows.append({**row, "count": len(members), **_box(members)})
    columns = {"evidence": "evidence", "transition": "transition", "count": "count"}
    columns |= {
        "left": "5 %",
        "first": "25 %",
        "median": "median",
        "third": "75 %",
        "right": "95 %",
    }
    return Figure(
        "changes",
        "How the evidence moves",
        "Boxes hold the middle half of the changes, whiskers reach from 5 % to 95 %, the notch is "
        "the median. Where boxes overlap, that evidence alone cannot tell a recovery from a "
        "collapse.",
        rows,
        columns,
        {"layer": _boxes(columns)},
        height=100 * len({row["evidence"] for row in rows}),
    )


def _boxes(columns: Mapping[str, str]) -> list[Spec]:
    names = list(TRANSITION_COLOURS)
    scale = {"domain": names, "paddingInner": 0.3}
    offset = {"field": "transition", "type": "nominal", "sort": names, "scale": scale}
    place = {"y": name_axis("evidence"), "yOffset": offset}
    colour = encode_names(
        "transition", TRANSITION_COLOURS, names, symbolType="square", symbolStrokeWidth=0
    )
    inked = {**place, "color": colour, "tooltip": tooltip(columns)}
    few = {"axis": {"tickCount": 8}, "scale": {"padding": 8}}
    x = number("left", "change from one checkpoint to the next", **few)
    whisker = {"x": x, "x2": {"field": "right"}}
    box = {"x": {**x, "field": "first"}, "x2": {"field": "third"}}
    median = {"x": {**x, "field": "median"}}
    return [
        line("x", 0, strokeWidth=1),
        layer("rule", {**inked, **whisker}, strokeWidth=1.5),
        layer("bar", {**inked, **box}, cornerRadius=2),
        layer("tick", {**place, **median}, color="var(--paper)", thickness=2.5),
    ]


def _box(values: Floats) -> dict[str, float]:
    """The five numbers of a box plot."""
    names: Sequence[str] = ("left", "first", "median", "third", "right")
    ends = np.quantile(values, [0.05, 0.25, 0.5, 0.75, 0.95])
    return {name: round(float(end), 4) for name, end in zip(names, ends, strict=True)}
