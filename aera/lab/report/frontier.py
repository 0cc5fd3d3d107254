"""The figure of the frontier: every policy by its name, quality against spend."""

from collections.abc import Iterator, Mapping, Sequence
from math import ceil, exp, floor, log
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
from aera.lab.report.labels import Spot, place_labels

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
"""Kinds of rules with their colours; names stand beside the points, so that two may share one."""
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
HEIGHT, WIDE, NARROW, PADDING = 430, 600, 290, 34
"""Pixels of the chart: names are placed for both widths, and the page shows those that fit."""
TURN = 470
"""The width from which on the wide places are used."""


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
                "own": point.policy in (shown, reference),
                "line": _line(point),
                "fixed": plain,
                "name": _name(point, reference),
            }
        )
    return _join_names(rows)


def _join_names(rows: Sequence[Row]) -> list[Row]:
    """Settings of one line that stand in one place share a name, said once."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        place = (row["line"] or row["policy"], row["quality"], row["tokens"], row["responses"])
        found.setdefault(place, []).append(row)
    names = {
        each["policy"]: ", ".join(str(one["name"]) for one in same) if each is same[0] else ""
        for same in found.values()
        for each in same
    }
    return [{**row, "name": names[row["policy"]]} for row in rows]


def _values(point: Point) -> Floats:
    return point.scores if point.graded else point.pick(point.trajectories.agreement)


def _name(point: Point, reference: str) -> str:
    """What stands beside it: a setting says enough where a line and a colour name the family."""
    fixed = point.kind is Kind.FIXED and point.policy != reference
    if point.setting is not None and (fixed or point.kind is Kind.SWEPT):
        return f"{point.setting:g}"
    return point.policy


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
    placed = _place(rows, spend, top=top, bottom=bottom)
    hidden = [row["policy"] for row in placed if row["name"] and not row["wide"]["shown"]]
    left = f" No room for the names of {', '.join(hidden)}." if hidden else ""
    return Figure(
        f"frontier-{spend}",
        f"{measure.capitalize()} against {spend}",
        "Up and to the left is better. Numbers beside points of a line are settings: responses of "
        "fixed budgets, thresholds of the gate. Bars are Wilson's 95 % intervals, of plain "
        "fixed budgets, of the policy spoken of and of its full budget; the table of numbers has "
        f"all of them, and paired differences.{left}",
        placed,
        columns,
        {"layer": _layers(placed, columns, spend=spend, measure=measure, ends=(bottom, top))},
        height=HEIGHT,
        tab=spend,
    )


def _range(rows: Sequence[Row]) -> tuple[float, float]:
    """The upper and lower end of the axis, in whole fives."""
    low = min(float(row["low"] if row["barred"] else row["quality"]) for row in rows)
    high = max(float(row["high"] if row["barred"] else row["quality"]) for row in rows)
    return min(100.0, 5.0 * ceil((high + 1) / 5)), max(0.0, 5.0 * floor((low - 1) / 5))


def _place(rows: Sequence[Row], spend: str, *, top: float, bottom: float) -> list[Row]:
    """The rows with the places of their names on a wide and on a narrow chart."""
    least, most = (log(end(float(row[spend]) for row in rows)) for end in (min, max))
    reach, scale = (most - least) or 1.0, HEIGHT / (top - bottom)

    def spot(row: Row, width: float) -> Spot:
        x = PADDING + (log(row[spend]) - least) / reach * (width - 2 * PADDING)
        high, y, low = (scale * (top - row[name]) for name in ("high", "quality", "low"))
        bar = (high, low) if row["barred"] else None
        return Spot(row["name"], x, y, bar, radius=9 if row["shown"] else 6)

    def places(width: float) -> list[dict[str, Any]]:
        """Far ones in units of the axes, so that the line that leads there can be drawn."""
        spots = [spot(row, width) for row in rows]
        labels = place_labels(spots, width=width, height=HEIGHT)
        told = []
        for row, label in zip(rows, labels, strict=True):
            x, y, dx, dy = row[spend], row["quality"], label.dx, label.dy
            if label.far:
                x = exp(log(x) + dx * reach / (width - 2 * PADDING))
                y, dx, dy = y - dy / scale, 3.0 if dx > 0 else -3.0, 0.0
            place = {"x": x, "y": y, "dx": dx, "dy": dy, "align": label.align}
            told.append({**place, "shown": label.shown, "far": label.far})
        return told

    pairs = zip(rows, places(WIDE), places(NARROW), strict=True)
    return [{**row, "wide": wide, "narrow": narrow} for row, wide, narrow in pairs]


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
        *_write_names(x, y, rows),
    ]


def _write_names(x: Spec, y: Spec, rows: Sequence[Row]) -> Iterator[Spec]:
    """Names on a halo that keeps them readable over lines; those for the other width are hidden."""
    for which, test in (("wide", f"width >= {TURN}"), ("narrow", f"width < {TURN}")):
        seen = {"opacity": {"expr": f"{test} ? 1 : 0"}}
        place = {"x": {**x, "field": f"{which}.x"}, "y": {**y, "field": f"{which}.y"}}
        ends = {"x": x, "y": y, "x2": {"field": f"{which}.x"}, "y2": {"field": f"{which}.y"}}
        if any(row[which]["far"] for row in rows):
            led = layer("rule", ends, strokeWidth=1, color="var(--dim)", **seen)
            yield where(f"datum.{which}.far", led)
        mark: Spec = {n: {"expr": f"datum.{which}.{n}"} for n in ("dx", "dy", "align")}
        mark |= {**seen, "baseline": "middle", "fontWeight": {"expr": "datum.own ? 600 : 400"}}
        halo = {**mark, "stroke": "var(--paper)", "strokeWidth": 4}
        ink = {**mark, "fill": {"expr": "datum.own ? 'var(--ink)' : 'var(--dim)'"}}
        for each in (halo, ink):
            text = layer("text", {**place, "text": nominal("name")}, **each)
            yield where(f"datum.{which}.shown", text)
