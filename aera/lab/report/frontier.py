"""The figure of the frontier: every policy by its name, quality against spend."""

from collections.abc import Iterator, Mapping, Sequence
from math import ceil, floor
from typing import Any

import numpy as np

from aera.arrays import Floats
from aera.lab.judging.difference import paired_gaps, share_interval
from aera.lab.judging.headline import signed
from aera.lab.replay.frontier import Frontier, Kind, Point
from aera.lab.report.figure import (
    Figure,
    Row,
    Spec,
    bracket,
    encode_names,
    layer,
    nominal,
    number,
    tooltip,
    where,
)

FAMILIES = {
    "learned gate": "var(--blue)",
    "ASC": "var(--orange)",
    "ESC": "var(--green)",
    "lead": "var(--purple)",
    "majority": "var(--gold)",
    "entropy": "var(--purple)",
    "first valid": "var(--gold)",
    "consensus": "var(--purple)",
    "fixed, plain votes": "var(--grey)",
    "fixed, weighted votes": "var(--sky)",
    "another rule": "var(--ink)",
    "hindsight": "var(--red)",
}
"""Kinds of rules with their colours; rare ones share one, and the pointer tells them apart."""
BY_FAMILY = {"aera": "learned gate", "gate": "learned gate", "one-shot": "learned gate"}
BY_FAMILY |= {"asc": "ASC", "esc": "ESC", "lead": "lead", "majority": "majority"}
BY_FAMILY |= {"entropy": "entropy", "first-valid": "first valid"}
BY_FAMILY |= {"consensus": "consensus", "oracle": "hindsight", "matched-random": "hindsight"}
SWEPT = "swept afterwards"
KINDS = {
    "calibrated, nested": "diamond",
    "calibrated, holdout": "diamond",
    "controller, unseen": "diamond",
    "controller, in-sample": "cross",
    "as given": "circle",
    SWEPT: "square",
    "hindsight": "triangle-up",
}
LOOSE = (Kind.FIXED, Kind.BASELINE, Kind.SWEPT)
"""What settings of one family are when nobody chose between them beforehand."""
JOINED = ("fixed", "aera", "asc")
"""Families whose settings are joined by a line."""
ORDER = (*Kind,)
"""Fixed budgets, known rules, sweeps, and hindsight last."""
HEIGHT, PADDING = 430, 48
"""Pixels of the chart: its height, and room at both sides for half a name."""


def in_order(points: Sequence[Point], *, shown: str, reference: str) -> list[Point]:
    """The policy spoken of, what else was calibrated, its own full budget, then the others."""

    def rank(point: Point) -> int:
        if point.policy == shown:
            return 0
        chosen = point.kind in (Kind.CALIBRATED, Kind.CONTROLLER)
        return 1 if chosen else 2 if point.policy == reference else 3 + ORDER.index(point.kind)

    return sorted(points, key=rank)


def kind_name(point: Point, protocol: str) -> str:
    """How a policy came to be on the chart, which decides what may be said of it."""
    if point.kind is Kind.CONTROLLER:
        return "controller, in-sample" if point.in_sample else "controller, unseen"
    if point.kind is Kind.CALIBRATED:
        return f"calibrated, {protocol}"
    return {Kind.HINDSIGHT: "hindsight", Kind.SWEPT: SWEPT}.get(point.kind, "as given")


def family_name(point: Point) -> str:
    """The kind of rule it is."""
    if point.family == "fixed":
        return "fixed, weighted votes" if point.weighted else "fixed, plain votes"
    return BY_FAMILY.get(point.family, "another rule")


def frontier_rows(frontier: Frontier, evaluation: Mapping[str, Any]) -> list[Row]:
    """One row per policy, with its interval and its difference to its own full budget."""
    told = evaluation["headline"]
    shown, reference = told["policy"], told["reference"]
    points = in_order(frontier.points, shown=shown, reference=reference)
    full = {weighted: frontier.full_budget(weighted=weighted) for weighted in (False, True)}
    own = [full[point.weighted] for point in points]
    pairs = zip(points, own, strict=True)
    gaps = paired_gaps(np.array([_values(point) - _values(other) for point, other in pairs]))
    money = {each["policy"]: each.get("money") for each in evaluation["points"]}
    names = _names(frontier, shown, reference)
    rows: list[Row] = []
    for point, other, gap in zip(points, own, gaps, strict=True):
        quality = float(_values(point).mean())
        low, high = share_interval(quality, len(point.columns))
        price = money.get(point.policy)
        known = {} if price is None else {"money": price}
        plain = point.kind is Kind.FIXED and not point.weighted
        rows.append(
            {
                "policy": point.policy,
                "family": family_name(point),
                "kind": kind_name(point, evaluation["protocol"]),
                "quality": round(100 * quality, 2),
                "low": round(100 * low, 2),
                "high": round(100 * high, 2),
                "interval": f"[{100 * low:.2f}, {100 * high:.2f}]",
                "reference": other.policy,
                "difference": f"{signed(gap.difference)} {bracket(gap.low, gap.high)}"
                if point.policy != other.policy
                else None,
                "responses": round(point.responses, 2),
                "tokens": round(point.tokens, 1),
                **known,
                "barred": point.policy in (shown, reference) or plain,
                "shown": point.policy == shown,
                "line": _line(point),
                "fixed": plain,
                "name": names.get(point.policy, ""),
            }
        )
    return rows


def _values(point: Point) -> Floats:
    return point.scores if point.graded else point.pick(point.trajectories.agreement)


def _names(frontier: Frontier, shown: str, reference: str) -> dict[str, str]:
    """What is named on the chart: the policy spoken of, full budgets and hindsight."""
    plain = frontier.full_budget(weighted=False).policy
    known = {point.policy for point in frontier.points}
    return {each: each for each in (shown, reference, plain, "oracle") if each in known}


def _line(point: Point) -> str | None:
    """Settings of one family are joined by a line; calibrated and bounded ones stand alone."""
    loose = point.kind in LOOSE and point.setting is not None
    return f"{point.family} {point.weighted}" if loose and point.family in JOINED else None


UNITS = {
    "responses": "responses per question",
    "tokens": "tokens per question",
    "money": "money per 1,000 questions",
}


def frontier_figure(rows: Sequence[Row], *, spend: str, measure: str) -> Figure:
    """Quality against spend, one point per policy; fixed budgets and sweeps are joined."""
    columns = {
        "policy": "policy",
        "kind": "how it was chosen",
        "quality": f"{measure}, %",
        "interval": "95 %",
        "difference": "against its full budget, points",
        "reference": "its full budget",
        "responses": "responses",
        "tokens": "tokens",
    }
    columns |= {"money": "money per 1,000"} if all("money" in row for row in rows) else {}
    top, bottom = _range(rows)
    return Figure(
        f"frontier-{spend}",
        f"{measure.capitalize()} against {spend}",
        "Up and to the left is better. The pointer tells what a point is. Bars are Wilson's 95 % "
        "intervals, of plain fixed budgets, of the policy spoken of and of its full budget; the "
        "table of numbers has all of them, and paired differences.",
        rows,
        columns,
        {"layer": _layers(rows, columns, spend=spend, measure=measure, ends=(bottom, top))},
        height=HEIGHT,
        tab=spend,
    )


def _range(rows: Sequence[Row]) -> tuple[float, float]:
    """The upper and lower end of the axis, in whole fives."""
    low = min(float(row["low"] if row["barred"] else row["quality"]) for row in rows)
    high = max(float(row["high"] if row["barred"] else row["quality"]) for row in rows)
    return min(100.0, 5.0 * ceil((high + 1) / 5)), max(0.0, 5.0 * floor((low - 1) / 5))


def _layers(
    rows: Sequence[Row],
    columns: Mapping[str, str],
    *,
    spend: str,
    measure: str,
    ends: tuple[float, float],
) -> list[Spec]:
    axis: Spec = {"grid": False, "format": "~s" if spend == "tokens" else "~r", "tickCount": 6}
    fixed = [round(row["responses"]) for row in rows if row["fixed"]]
    if spend == "responses" and 2 <= len(fixed) <= 12:
        axis["values"] = fixed
    reach = [end(float(row[spend]) for row in rows) for end in (min, max)]
    scale = {"type": "log", "nice": False, "padding": PADDING, "domain": reach}
    x = number(spend, f"{UNITS[spend]}, log scale", scale=scale, axis=axis)
    y = number("quality", f"{measure}, %", scale={"domain": list(ends), "zero": False})
    colour = encode_names("family", FAMILIES, (row["family"] for row in rows), "policy")
    shape = encode_names("kind", KINDS, (row["kind"] for row in rows), "how it was chosen")
    large = {"test": "datum.shown", "value": 200}
    small = {"test": f"datum.kind == '{SWEPT}'", "value": 28}
    size = {"condition": [large, small], "value": 75}
    bar = {"y": {**y, "field": "low"}, "y2": {"field": "high"}, "x": x, "color": colour}
    spot = {"x": x, "y": y, "color": colour, "shape": shape, "size": size}
    path = {"x": x, "y": y, "color": colour, "detail": nominal("line")}
    joined = where("datum.line != null", layer("line", path, strokeWidth=1.5, opacity=0.55))
    # A layer without rows makes the browser complain of an infinite axis.
    return [
        *([joined] if any(row["line"] for row in rows) else ()),
        where("datum.barred", layer("rule", bar, opacity=0.5)),
        layer("point", {**spot, "tooltip": tooltip(columns)}),
        *_write_names(x, y),
    ]


def _write_names(x: Spec, y: Spec) -> Iterator[Spec]:
    """Names on a halo that keeps them readable over lines, of plain votes below their point."""
    place = {"x": x, "y": y, "text": nominal("name")}
    mark: Spec = {"dy": {"expr": "datum.fixed ? 16 : -16"}, "baseline": "middle"}
    mark |= {"fontWeight": 600}
    yield where("datum.name", layer("text", place, **mark, stroke="var(--paper)", strokeWidth=4))
    yield where("datum.name", layer("text", place, **mark, fill="var(--ink)"))
