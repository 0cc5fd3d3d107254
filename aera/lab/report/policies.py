"""Figures of single policies: calibration, stops, loss by difficulty."""

from collections.abc import Mapping, Sequence
from typing import Any

from aera.lab.judging.diagnostics import DifficultyLoss, loss_by_difficulty
from aera.lab.judging.headline import signed
from aera.lab.replay.frontier import Point
from aera.lab.report.figure import (
    Figure,
    Spec,
    bracket,
    layer,
    line,
    name_axis,
    nominal,
    number,
    steps,
    tooltip,
)


def calibrated_figure(evaluation: Mapping[str, Any], *, allowed: float) -> Figure:
    """Every calibrated policy against its full budget, on questions it had no part in."""
    full = evaluation["headline"]["reference"]
    gaps = {c["policy"]: c for c in evaluation["comparisons"] if c["reference"] == full}
    graded = bool(gaps)
    gaps = gaps or {c["policy"]: c for c in evaluation["changed"]}
    rows = []
    for saving in evaluation["savings"]:
        name = saving["family"]
        gap, settings = gaps[saving["policy"]], evaluation["calibration"][name]
        chosen = ["full budget" if c["setting"] is None else f"{c['setting']:g}" for c in settings]
        rows.append(
            {
                "name": f"{saving['policy']}, {100 - saving['percent']:.0f} %",
                "policy": saving["policy"],
                "difference": round(gap["difference"], 2),
                "low": round(gap["low"], 2),
                "high": round(gap["high"], 2),
                "interval": bracket(gap["low"], gap["high"]),
                "saved": f"{saving['percent']:.1f} [{saving['low']:.1f}, {saving['high']:.1f}]",
                "settings": ", ".join(chosen),
            }
        )
    lost = "difference, points" if graded else "difference in agreement, points"
    columns = {"policy": "policy", "difference": lost, "interval": "95 %"}
    columns |= {"saved": "tokens saved, %", "settings": "chosen settings"}
    x = f"points against {full}" if graded else f"points of agreement with {full}"
    y = name_axis("name")
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
        f"Calibrated policies against {full}",
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
            "from": round(group.low, 2),
            "to": round(group.high, 2),
            "interval": bracket(group.low, group.high),
            "questions": group.questions,
            "responses": round(group.responses, 1),
            "note": signed(group.loss, 1),
            "size": f"n = {group.questions}",
        }
        for name, group in groups
    ]
    columns = {"policy": "policy", "support": "share of the leader, %", "questions": "questions"}
    columns |= {"loss": "loss, points", "interval": "95 %", "responses": "responses"}
    order = [_support(group) for _, group in sorted(groups, key=lambda pair: pair[1].group)]
    order = list(dict.fromkeys(order))
    place = {"x": steps("support", "share of the leader in %, hard to easy", order)}
    place["y"] = number("loss", "loss, points", scale={"padding": 12})
    bar = {"x": place["x"], "y": {**place["y"], "field": "from"}, "y2": {"field": "to"}}
    head = {"x": place["x"], "y": {"value": -10}, "text": nominal("size")}
    layers = [
        line("y", 0, strokeWidth=1),
        layer("rule", bar, color="var(--blue)", strokeWidth=2, opacity=0.6),
        layer("point", {**place, "tooltip": tooltip(columns)}, size=90, color="var(--blue)"),
        layer("text", {**place, "text": nominal("note")}, dx=8, dy=-9, align="left"),
        layer("text", head, fontSize=11),
    ]
    return Figure(
        "difficulty",
        "Loss by difficulty",
        "Questions grouped by how divided the vote at the full budget is. Above zero the policy "
        "loses against its full budget, below it gains, because it stopped before a collapse. Bars "
        "are paired 95 % intervals; n is the number of questions, and few of them say little.",
        rows,
        columns,
        {**_of_policy(policy), "layer": layers},
    )


def _support(group: DifficultyLoss) -> str:
    """The share in percent: short, because all of them stand in a row on a phone, too."""
    ends = group.group.removeprefix("support ").split("-")
    return "–".join(f"{100 * float(end):.0f}" for end in ends)
