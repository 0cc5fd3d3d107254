"""Figures that compare policies: the frontier, calibration, stops, loss by difficulty."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aera.lab.judging.bootstrap import compare_pairs
from aera.lab.judging.diagnostics import DifficultyLoss, loss_by_difficulty
from aera.lab.replay.frontier import Frontier, Kind, Point
from aera.lab.report.figure import (
    Figure,
    Row,
    Spec,
    beyond,
    bracket,
    encode_names,
    layer,
    line,
    name_axis,
    nominal,
    number,
    steps,
    tooltip,
    where,
)

FAMILIES = {
    "learned gate": "var(--blue)",
    "ASC": "var(--orange)",
    "ESC": "var(--green)",
    "other rules": "var(--purple)",
    "fixed budget": "var(--grey)",
    "hindsight": "var(--red)",
}
BY_FAMILY = {"aera": "learned gate", "gate": "learned gate", "one-shot": "learned gate"}
BY_FAMILY |= {"asc": "ASC", "esc": "ESC", "fixed": "fixed budget"}
BY_FAMILY |= {"oracle": "hindsight", "matched-random": "hindsight"}
SWEPT = "swept afterwards"
KINDS = {
    "as given": "circle",
    "calibrated, nested": "diamond",
    "calibrated, holdout": "diamond",
    "controller, unseen": "diamond",
    "controller, in-sample": "cross",
    SWEPT: "square",
    "hindsight": "triangle-up",
}
LOOSE = (Kind.FIXED, Kind.BASELINE, Kind.SWEPT)
"""What settings of one family are when nobody chose between them beforehand."""
JOINED = ("fixed", "aera", "asc")
"""Families whose settings are joined by a line."""


def kind_name(point: Point, protocol: str) -> str:
    """How a policy came to be on the chart, which decides what may be said of it."""
    if point.kind is Kind.CONTROLLER:
        return "controller, in-sample" if point.in_sample else "controller, unseen"
    if point.kind is Kind.CALIBRATED:
        return f"calibrated, {protocol}"
    return {Kind.HINDSIGHT: "hindsight", Kind.SWEPT: SWEPT}.get(point.kind, "as given")


def frontier_rows(frontier: Frontier, evaluation: Mapping[str, Any], *, shown: str) -> list[Row]:
    """One row per policy, with its interval and its difference to the full budget."""
    points, full = frontier.points, frontier.full_budget()
    graded = full.graded
    values = [point.scores if graded else _agreement(point) for point in points]
    values += [full.scores if graded else _agreement(full), np.zeros(len(full.columns))]
    table, count = 100 * np.array(values), len(points)
    pairs = [(i, count + 1) for i in range(count)] + [(i, count) for i in range(count)]
    found = compare_pairs(table, pairs, seed=int(evaluation["seed"]))
    rows: list[Row] = []
    for point, own, gap in zip(points, found[:count], found[count:], strict=True):
        fixed = point.kind is Kind.FIXED and not point.weighted
        rows.append(
            {
                "policy": point.policy,
                "family": BY_FAMILY.get(point.family, "other rules"),
                "kind": kind_name(point, evaluation["protocol"]),
                "quality": round(own.difference, 2),
                "low": round(own.low, 2),
                "high": round(own.high, 2),
                "interval": f"[{own.low:.2f}, {own.high:.2f}]",
                "difference": f"{gap.difference:+.2f} {bracket(gap.low, gap.high)}",
                "responses": round(point.responses, 2),
                "tokens": round(point.tokens, 1),
                "barred": point.policy == shown or point.kind not in LOOSE or fixed,
                "shown": point.policy == shown,
                "line": _line(point),
                "fixed": fixed,
                "label": "above" if point.policy in (shown, "oracle") else "below" * fixed or None,
                "name": f"{point.setting:g}" if fixed and point.setting else point.policy,
            }
        )
    return rows


def _agreement(point: Point) -> Any:
    return point.pick(point.trajectories.agreement)


def _line(point: Point) -> str | None:
    """Settings of one family are joined by a line; calibrated and bounded ones stand alone."""
    loose = point.kind in LOOSE and point.setting is not None
    return f"{point.family} {point.weighted}" if loose and point.family in JOINED else None


def frontier_figure(rows: Sequence[Row], *, spend: str, measure: str) -> Figure:
    """Quality against spend, one point per policy; fixed budgets and sweeps are joined."""
    columns = {
        "policy": "policy",
        "kind": "how it was chosen",
        "quality": f"{measure}, %",
        "interval": "95 %",
        "difference": "against the full budget, points",
        "responses": "responses",
        "tokens": "tokens",
    }
    return Figure(
        f"frontier-{spend}",
        f"{measure.capitalize()} against {spend}",
        "Up and to the left is better; grey points carry their number of responses. Bars are 95 % "
        "intervals from resampling questions, for fixed budgets, hindsight and what was chosen "
        "beforehand; the table below and the pointer give all of them, and paired differences.",
        rows,
        columns,
        {"layer": _frontier_layers(rows, columns, spend=spend, measure=measure)},
        height=430,
        tab=spend,
    )


def _frontier_layers(
    rows: Sequence[Row], columns: Mapping[str, str], *, spend: str, measure: str
) -> list[Spec]:
    low = min(float(row["low"] if row["barred"] else row["quality"]) for row in rows)
    high = max(float(row["high"] if row["barred"] else row["quality"]) for row in rows)
    scale = {"domain": [low - 1, min(100.0, high + 1)], "nice": True, "zero": False}
    axis: Spec = {"grid": False, "format": "~s" if spend == "tokens" else "~r", "tickCount": 6}
    fixed = [round(row["responses"]) for row in rows if row["fixed"]]
    if spend == "responses" and 2 <= len(fixed) <= 12:
        axis["values"] = fixed
    log = {"type": "log", "nice": False, "padding": 34}
    x = number(spend, f"{spend} per question, log scale", scale=log, axis=axis)
    y = number("quality", f"{measure}, %", scale=scale)
    colour = encode_names("family", FAMILIES, (row["family"] for row in rows), "policy")
    shape = encode_names("kind", KINDS, (row["kind"] for row in rows), "how it was chosen")
    large = {"test": "datum.shown", "value": 200}
    small = {"test": f"datum.kind == '{SWEPT}'", "value": 28}
    size = {"condition": [large, small], "value": 75}
    bar = {"y": {**y, "field": "low"}, "y2": {"field": "high"}, "x": x, "color": colour}
    spot = {"x": x, "y": y, "color": colour, "shape": shape, "size": size}
    label = {"x": x, "y": y, "text": nominal("name")}
    path = {"x": x, "y": y, "color": colour, "detail": nominal("line")}
    joined = where("datum.line != null", layer("line", path, strokeWidth=1.5, opacity=0.55))
    below = _write_names("below", label, dy=18, fill="var(--dim)")
    # A layer without rows makes the browser complain of an infinite axis.
    return [
        *([joined] if any(row["line"] for row in rows) else ()),
        where("datum.barred", layer("rule", bar, opacity=0.5)),
        layer("point", {**spot, "tooltip": tooltip(columns)}),
        *(below if fixed else ()),
        *_write_names("above", label, dy=-17, fill="var(--ink)", fontWeight=600),
    ]


def _write_names(place: str, label: Spec, **mark: Any) -> list[Spec]:
    """Names of points, on a halo that keeps them readable over lines."""
    halo = {**mark, "stroke": "var(--paper)", "strokeWidth": 4}
    test = f"datum.label == '{place}'"
    return [where(test, layer("text", label, **ink)) for ink in (halo, mark)]


def calibrated_figure(
    frontier: Frontier, evaluation: Mapping[str, Any], *, allowed: float
) -> Figure:
    """Every calibrated policy against the full budget, on questions it had no part in."""
    full = frontier.full_budget().policy
    gaps = {c["policy"]: c for c in evaluation["comparisons"] if c["reference"] == full}
    rows = []
    for saving in evaluation["savings"]:
        name = saving["family"]
        gap, settings = gaps[saving["policy"]], evaluation["calibration"][name]
        chosen = ["full budget" if c["setting"] is None else f"{c['setting']:g}" for c in settings]
        rows.append(
            {
                "name": f"{name}, {100 - saving['percent']:.0f} %",
                "policy": name,
                "difference": round(gap["difference"], 2),
                "low": round(gap["low"], 2),
                "high": round(gap["high"], 2),
                "interval": bracket(gap["low"], gap["high"]),
                "saved": f"{saving['percent']:.1f} [{saving['low']:.1f}, {saving['high']:.1f}]",
                "settings": ", ".join(chosen),
            }
        )
    columns = {"policy": "policy", "difference": "difference, points", "interval": "95 %"}
    columns |= {"saved": "tokens saved, %", "settings": "chosen settings"}
    x, y = "points against the full budget", name_axis("name")
    few = {"axis": {"tickCount": 8}, "scale": {"padding": 12}}
    bar = {"y": y, "x": number("low", x, **few), "x2": {"field": "high"}}
    spot = {"y": y, "x": number("difference", x, **few), "tooltip": tooltip(columns)}
    layers = [
        line("x", 0, strokeWidth=1),
        line("x", -allowed, strokeDash=[5, 4], color="var(--red)", strokeWidth=1.5),
        layer("rule", bar, strokeWidth=2.5, color="var(--blue)"),
        layer("point", spot, shape="diamond", size=130, color="var(--blue)"),
    ]
    return Figure(
        "calibrated",
        "Calibrated policies against the full budget",
        "Each setting was chosen on other questions and then judged once on these. Beside its "
        "name: the share of the tokens it spends. Bars are paired 95 % intervals; the dashed line "
        f"marks the {allowed:g} points that were allowed.",
        rows,
        columns,
        {"layer": layers},
        height=38 * len(rows) + 10,
    )


def stop_figure(points: Sequence[Point], *, policy: str) -> Figure:
    """Where one policy stops; the page's choice of policy sets the parameter."""
    rows = [
        {"policy": point.policy, "checkpoint": checkpoint, "questions": count}
        for point in points
        for checkpoint, count in point.stops.items()
        if count
    ]
    order = [str(checkpoint) for checkpoint in points[0].trajectories.schedule]
    columns = {"policy": "policy", "checkpoint": "responses", "questions": "questions"}
    place = {"x": steps("checkpoint", "responses at the stop", order)}
    place["y"] = number("questions", "questions", axis={"tickMinStep": 1})
    layers = _bars(place, columns, number("questions", None))
    return Figure(
        "stops",
        "Where it stops",
        "Questions that stop at each checkpoint.",
        rows,
        columns,
        {**_of_policy(policy), "layer": layers},
    )


def _of_policy(policy: str) -> Spec:
    return {
        "params": [{"name": "policy", "value": policy}],
        "transform": [{"filter": "datum.policy == policy"}],
    }


def _bars(place: Spec, columns: Mapping[str, str], text: Spec) -> list[Spec]:
    """Bars with their numbers on top."""
    return [
        layer("bar", {**place, "tooltip": tooltip(columns)}, width={"band": 0.7}),
        layer("text", {**place, "text": text}, dy=-8),
    ]


def difficulty_figure(points: Sequence[Point], *, policy: str) -> Figure:
    """What stopping early costs where the full vote is divided, and where it is not."""
    groups = [(point.policy, group) for point in points for group in loss_by_difficulty(point)]
    rows = [
        {
            "policy": name,
            "support": _support(group),
            "loss": round(group.loss, 2),
            "questions": group.questions,
            "responses": round(group.responses, 1),
            "note": f"{group.loss:+.1f}",
        }
        for name, group in groups
    ]
    columns = {"policy": "policy", "support": "support of the leader", "questions": "questions"}
    columns |= {"loss": "loss, points", "responses": "responses"}
    order = sorted({_support(group) for _, group in groups})
    place = {"x": steps("support", "share of the leading answer, hard to easy", order)}
    place["y"] = number("loss", "loss, points", scale={"padding": 22})
    layers = [
        layer("bar", {**place, "tooltip": tooltip(columns)}, width={"band": 0.7}),
        line("y", 0, strokeWidth=1),
        beyond(place, nominal("note")),
    ]
    return Figure(
        "difficulty",
        "Loss by difficulty",
        "Questions grouped by how divided the vote at the full budget is. Above zero the policy "
        "loses against the full budget, below it gains, because it stopped before a collapse.",
        rows,
        columns,
        {**_of_policy(policy), "layer": layers},
    )


def _support(group: DifficultyLoss) -> str:
    return group.group.removeprefix("support ").replace("-", " to ")
