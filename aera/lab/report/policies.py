"""Figures that compare policies: the frontier, calibrated dials, stops, loss by difficulty."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aera.lab.bootstrap import compare_pairs
from aera.lab.diagnostics import DifficultyLoss, loss_by_difficulty
from aera.lab.frontier import Frontier, Point
from aera.lab.report.figure import (
    Figure,
    Row,
    Spec,
    beyond,
    bracket,
    coded,
    layer,
    line,
    listed,
    named,
    number,
    steps,
    tooltip,
    where,
)
from aera.lab.report.headline import full_budget

FAMILIES = {
    "learned gate": "var(--blue)",
    "ASC": "var(--orange)",
    "ESC": "var(--green)",
    "other rules": "var(--purple)",
    "fixed budget": "var(--grey)",
    "hindsight": "var(--red)",
}
BY_LABEL = {"aera": "learned gate", "one": "learned gate", "asc": "ASC", "esc": "ESC"}
BY_LABEL |= {"fixed": "fixed budget", "oracle": "hindsight", "matched": "hindsight"}
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
LOOSE = ("as given", SWEPT)
"""What settings of one dial are when nobody chose between them beforehand."""


def family(policy: str) -> str:
    """Which colour a policy has."""
    return BY_LABEL.get(policy.partition("-")[0], "other rules")


def kind(point: Point, evaluation: Mapping[str, Any], given: Sequence[str]) -> str:
    """How a policy came to be on the chart, which decides what may be said of it."""
    controller = evaluation.get("controller", {})
    if point.policy == controller.get("policy"):
        return "controller, in-sample" if controller["seen"] else "controller, unseen"
    if point.status == "calibrated":
        return f"calibrated, {evaluation['protocol']}"
    if point.status == "hindsight":
        return "hindsight"
    return "as given" if point.policy in given else SWEPT


def frontier_rows(
    frontier: Frontier, evaluation: Mapping[str, Any], *, given: Sequence[str], shown: str
) -> list[Row]:
    """One row per policy, with its interval and its difference to the full budget."""
    points, full = frontier.points, full_budget(frontier)
    graded = full.graded
    values = [point.scores if graded else _agreed(point) for point in points]
    values += [full.scores if graded else _agreed(full), np.zeros(len(full.columns))]
    table, count = 100 * np.array(values), len(points)
    pairs = [(i, count + 1) for i in range(count)] + [(i, count) for i in range(count)]
    found = compare_pairs(table, pairs, seed=int(evaluation["seed"]))
    rows: list[Row] = []
    for point, own, gap in zip(points, found[:count], found[count:], strict=True):
        chosen = kind(point, evaluation, given)
        name = point.policy.partition("-")[0]
        rows.append(
            {
                "policy": point.policy,
                "family": family(point.policy),
                "kind": chosen,
                "quality": round(own.difference, 2),
                "low": round(own.low, 2),
                "high": round(own.high, 2),
                "interval": f"[{own.low:.2f}, {own.high:.2f}]",
                "difference": f"{gap.difference:+.2f} {bracket(gap.low, gap.high)}",
                "responses": round(point.responses, 2),
                "tokens": round(point.tokens, 1),
                "barred": point.policy == shown or chosen not in LOOSE or name == "fixed",
                "shown": point.policy == shown,
                "line": _joined(point.policy, chosen),
                "label": _placed(point.policy, shown),
                "name": point.policy.removeprefix("fixed-"),
            }
        )
    return rows


def _agreed(point: Point) -> Any:
    return point.pick(point.trajectories.agreement)


def _joined(policy: str, chosen: str) -> str | None:
    """Settings of one dial are joined by a line; calibrated and bounded ones stand alone."""
    alone = chosen not in LOOSE or "+" in policy
    name = policy.partition("-")[0]
    return None if alone or name not in ("fixed", "aera", "asc") else name


def _placed(policy: str, shown: str) -> str | None:
    """Where a point's name goes; most are read off the table or with the pointer."""
    if policy in (shown, "oracle"):
        return "above"
    return "below" if policy.startswith("fixed-") else None


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
    fixed = [round(row["responses"]) for row in rows if row["policy"].startswith("fixed-")]
    if spend == "responses" and 2 <= len(fixed) <= 12:
        axis["values"] = fixed
    log = {"type": "log", "nice": False, "padding": 34}
    x = number(spend, f"{spend} per question, log scale", scale=log, axis=axis)
    y = number("quality", f"{measure}, %", scale=scale)
    colour = coded("family", FAMILIES, (row["family"] for row in rows), "policy")
    shape = coded("kind", KINDS, (row["kind"] for row in rows), "how it was chosen")
    large = {"test": "datum.shown", "value": 200}
    small = {"test": f"datum.kind == '{SWEPT}'", "value": 28}
    size = {"condition": [large, small], "value": 75}
    bar = {"y": {**y, "field": "low"}, "y2": {"field": "high"}, "x": x, "color": colour}
    spot = {"x": x, "y": y, "color": colour, "shape": shape, "size": size}
    label = {"x": x, "y": y, "text": named("name")}
    path = {"x": x, "y": y, "color": colour, "detail": named("line")}
    joined = where("datum.line != null", layer("line", path, strokeWidth=1.5, opacity=0.55))
    below = _written("below", label, dy=18, fill="var(--dim)")
    # A layer without rows makes the browser complain of an infinite axis.
    return [
        *([joined] if any(row["line"] for row in rows) else ()),
        where("datum.barred", layer("rule", bar, opacity=0.5)),
        layer("point", {**spot, "tooltip": tooltip(columns)}),
        *(below if fixed else ()),
        *_written("above", label, dy=-17, fill="var(--ink)", fontWeight=600),
    ]


def _written(place: str, label: Spec, **mark: Any) -> list[Spec]:
    """Names of points, on a halo that keeps them readable over lines."""
    halo = {**mark, "stroke": "var(--paper)", "strokeWidth": 4}
    test = f"datum.label == '{place}'"
    return [where(test, layer("text", label, **ink)) for ink in (halo, mark)]


def verdict_figure(frontier: Frontier, evaluation: Mapping[str, Any], *, allowed: float) -> Figure:
    """Every calibrated dial against the full budget, on questions it had no part in."""
    full = f"fixed-{frontier.trajectories.schedule.last}"
    gaps = {c["policy"]: c for c in evaluation["comparisons"] if c["reference"] == full}
    rows = []
    for saving in evaluation["savings"]:
        name = saving["policy"].removesuffix("-calibrated")
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
    x, y = "points against the full budget", listed("name")
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
        beyond(place, named("note")),
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
