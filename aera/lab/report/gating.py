"""Figures about the gate: whether its chances hold, and what each threshold costs."""

from collections.abc import Mapping, Sequence
from typing import Any

from aera.lab.calibrating.families import GATE_FAMILY
from aera.lab.replay.frontier import Frontier, Kind
from aera.lab.replay.trajectory import Trajectories
from aera.lab.report.figure import Figure, Spec, bracket, layer, line, nominal, number, tooltip
from aera.lab.report.reliability import Predictions, reliability


def reliability_figure(seen: Predictions, trajectories: Trajectories, *, unseen: bool) -> Figure:
    """p_continue against how often continuing paid."""
    rows = [
        {
            "p_continue": round(each.p_continue, 3),
            "paid": round(each.paid, 3),
            "low": round(each.low, 3),
            "high": round(each.high, 3),
            "decisions": each.decisions,
            "questions": each.questions,
        }
        for each in reliability(seen, trajectories)
    ]
    columns = {"p_continue": "p_continue, mean", "paid": "continuing paid, share"}
    columns |= {
        "low": "95 % from",
        "high": "to",
        "decisions": "decisions",
        "questions": "questions",
    }
    top = max(0.1, *(row["high"] for row in rows), *(row["p_continue"] for row in rows))
    scale = {"domain": [0, min(1.0, top)], "nice": True}
    few = {"tickCount": 6}
    x = number("p_continue", "p_continue, mean of a tenth of the decisions", scale=scale, axis=few)
    y = number("paid", "share in which continuing paid", scale=scale, axis=few)
    ends = [{"x": 0, "y": 0}, {"x": min(1.0, top), "y": min(1.0, top)}]
    diagonal: Spec = {
        "data": {"values": ends},
        "mark": {"type": "line", "strokeDash": [5, 4], "color": "var(--dim)", "strokeWidth": 1.5},
        "encoding": {"x": {**x, "field": "x"}, "y": {**y, "field": "y"}},
    }
    whose = (
        "The gate never saw these questions" if unseen else "In-sample: it has seen some of them"
    )
    return Figure(
        "reliability",
        "How often continuing paid",
        "On the dashed line continuing pays as often as the gate says. A gate that learned the "
        "value of going on weighs gains against their price and need not lie there; only its "
        f"order and its threshold count. {whose}. Bars are Wilson's 95 % intervals, counting each "
        "question once.",
        rows,
        columns,
        {"layer": [diagonal, *_curve(x, y, columns)]},
        height=320,
    )


def _curve(x: Spec, y: Spec, columns: Mapping[str, str]) -> list[Spec]:
    """Points with their intervals, joined by a line."""
    bar = {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}}
    spot = {"x": x, "y": y, "tooltip": tooltip(columns)}
    return [
        layer("rule", bar, color="var(--blue)", opacity=0.6),
        layer("line", {"x": x, "y": y}, strokeWidth=1.5, opacity=0.6),
        layer("point", spot, size=80, color="var(--blue)"),
    ]


def threshold_rows(frontier: Frontier, evaluation: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Loss and spend at every threshold of the sweep that was judged here."""
    swept = [p for p in frontier.points if p.kind is Kind.SWEPT and p.family == GATE_FAMILY.name]
    full = frontier.full_budget(weighted=any(point.weighted for point in swept)).policy
    gaps = {c["policy"]: c for c in evaluation["comparisons"] if c["reference"] == full}
    rows = []
    for point in (point for point in swept if point.policy in gaps):
        gap = gaps[point.policy]
        rows.append(
            {
                "threshold": point.setting,
                "reference": full,
                "loss": round(-gap["difference"], 2),
                "low": round(-gap["high"], 2),
                "high": round(-gap["low"], 2),
                "interval": bracket(-gap["high"], -gap["low"]),
                "spent": f"{100 - point.token_saving:.0f} %",
                "responses": round(point.responses, 1),
            }
        )
    return rows


def threshold_figure(
    rows: Sequence[dict[str, Any]], *, chosen: Sequence[float | None], allowed: float
) -> Figure:
    """Loss along the threshold; what calibration chose on other questions is marked."""
    columns = {"threshold": "threshold", "loss": "loss, points", "interval": "95 %"}
    columns |= {"spent": "share of the tokens", "responses": "responses"}
    x = number(
        "threshold",
        "threshold: stop when p_continue is below",
        scale={"domain": [0, 1]},
        axis={"tickCount": 5},
    )
    y = number("loss", "loss, points", scale={"padding": 16})
    # Above the chart, where no interval and no line can cross it.
    text = {"x": x, "y": {"value": -10}, "text": nominal("spent")}
    settings = sorted({setting for setting in chosen if setting is not None})
    told = (
        f" Upright lines: what calibration chose on other questions ({_list_settings(chosen)})."
        if chosen
        else " Reading the best one off here is descriptive."
    )
    layers = [
        line("y", 0, strokeWidth=1),
        line("y", allowed, strokeDash=[5, 4], color="var(--red)", strokeWidth=1.5),
        *(line("x", s, color="var(--orange)", strokeWidth=2, opacity=0.6) for s in settings),
        *_curve(x, y, columns),
        layer("text", text, angle=0, fontSize=11),
    ]
    return Figure(
        "thresholds",
        "The choice of the threshold",
        f"Loss against {rows[0]['reference']}, its full budget, with paired 95 % intervals; the "
        f"dashed line is the {allowed:g} points allowed, the numbers on top are the share of the "
        f"tokens spent.{told}",
        rows,
        columns,
        {"layer": layers},
        height=320,
    )


def _list_settings(chosen: Sequence[float | None]) -> str:
    return ", ".join("full budget" if setting is None else f"{setting:g}" for setting in chosen)
