"""Figures: every picture of a report as a Vega-Lite value with its words.

Colours are names from `aera/web/style.css`; a page resolves them by itself, so that they follow it
from light to dark, and an SVG file gets the light ones.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from textwrap import wrap
from typing import Any

import numpy as np

from aera.arrays import Flags, Floats
from aera.files import Json
from aera.lab.calibrating.families import GATE_FAMILY
from aera.lab.diagnostics import loss_by_difficulty
from aera.lab.frontier import Frontier, Kind, Point, Prices, Trajectories
from aera.lab.judging import Judgement
from aera.lab.learning.paper import continuation_labels
from aera.lab.stats import Estimate, paired_gap, paired_gaps, share_interval, spent_share
from aera.lab.words import bracket, changed_gap, headline_point, signed

FORMATS = {
    **dict.fromkeys(("quality", "money", "threshold"), ",.2f"),
    **dict.fromkeys(("difference", "loss"), "+.1f"),
    **dict.fromkeys(("tokens", "questions", "decisions", "count"), ",.0f"),
    **dict.fromkeys(("low", "high", "p_continue", "paid"), ".3f"),
    **dict.fromkeys(("responses", "accuracy", "observed", "mean", "improvable", "gain"), ".1f"),
}
"""How a number is written, by its field, in tables and beside the pointer."""
Row = dict[str, Any]
Spec = dict[str, Any]

SIZES: Spec = {"labelFontSize": 12, "titleFontSize": 12, "titleColor": "var(--dim)"}
LEGEND: Spec = {
    **SIZES,
    "labelColor": "var(--ink)",
    "orient": "top",
    "labelLimit": 260,
    "symbolSize": 90,
    "columnPadding": 16,
    "layout": {"top": {"anchor": "start", "direction": "vertical", "margin": 8}},
    "symbolOpacity": 1,
    **dict.fromkeys(("symbolBaseFillColor", "symbolBaseStrokeColor"), "var(--ink)"),
}
CONFIG: Spec = {
    "background": "transparent",
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": {
        **SIZES,
        **dict.fromkeys(("gridColor", "domainColor", "tickColor"), "var(--line)"),
        "labelColor": "var(--dim)",
        "titlePadding": 10,
        "labelOverlap": True,
    },
    "legend": LEGEND,
    "text": {"color": "var(--ink)", "fontSize": 12},
    "bar": {"color": "var(--blue)"},
    "point": {"filled": True, "opacity": 1, "color": "var(--blue)"},
    "line": {"color": "var(--blue)"},
    "rule": {"color": "var(--dim)"},
}
TITLE: Spec = {"anchor": "start", "frame": "bounds", "color": "var(--ink)", "fontSize": 15}
TITLE |= {"subtitleColor": "var(--dim)", "subtitleFontSize": 12, "subtitlePadding": 6, "offset": 24}
ALONE: Spec = {
    **CONFIG,
    "background": "white",
    "padding": 16,
    "title": TITLE,
    # The widest of the usual fonts is measured with, so that no reader's is cut off.
    "font": "Verdana, DejaVu Sans, Arial, sans-serif",
    "legend": {**LEGEND, "columns": 4, "columnPadding": 24, "direction": "horizontal"},
}
"""Of a figure in a file of its own, with a title and white paper."""
WIDTH, LETTERS = 680, 92
"""Pixels of such a figure; letters in a line of its caption."""


@dataclass(frozen=True)
class Figure:
    """A picture with its words; the rows behind it are shown as a table on demand."""

    name: str
    title: str
    caption: str
    rows: Sequence[Row]
    columns: Mapping[str, str]
    """Keys of the rows with the headings of the table."""
    layers: Sequence[Spec]
    height: int = 260
    tab: str = ""
    """Its name among figures that take turns in one place."""
    policy: str | None = None
    """Whose rows are drawn, where the page lets one choose."""

    @property
    def spec(self) -> Spec:
        """The whole Vega-Lite value but for CONFIG, which whoever shows it adds."""
        body: Spec = {"data": {"values": list(self.rows)}, "layer": list(self.layers)}
        if self.policy is not None:
            body["params"] = [{"name": "policy", "value": self.policy}]
            body["transform"] = [{"filter": "datum.policy == policy"}]
        return {
            "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
            "description": f"{self.title}. {self.caption}",
            "width": "container",
            "height": self.height,
            "autosize": {"type": "fit-x", "contains": "padding"},
            **body,
        }

    @property
    def alone(self) -> Spec:
        """What is different in a file of its own: its width, and a title with the caption."""
        title = self.title if self.policy is None else f"{self.title}: {self.policy}"
        return {"width": WIDTH, "title": {"text": title, "subtitle": wrap(self.caption, LETTERS)}}

    def as_json(self) -> Json:
        """The figure as the page holds it."""
        names = ("name", "title", "caption", "columns", "tab", "spec", "alone")
        return {**{name: getattr(self, name) for name in names}, "formats": formats(self.columns)}


def formats(columns: Iterable[str]) -> dict[str, str]:
    """How the numbers in these columns are written."""
    return {name: FORMATS[name] for name in columns if name in FORMATS}


def number(field: str, title: str | None, **settings: Any) -> Spec:
    """A quantity on an axis."""
    return {"field": field, "type": "quantitative", "title": title, **settings}


def steps(field: str, title: str, order: Sequence[str]) -> Spec:
    """Checkpoints, evenly spaced, in their order."""
    axis = {"title": title, "labelAngle": 0, "grid": False}
    scale = {"domain": list(order)}
    return {"field": field, "type": "ordinal", "sort": list(order), "scale": scale, "axis": axis}


def encode_names(
    field: str, codes: Mapping[str, str], used: Iterable[str], title: str | None = None
) -> Spec:
    """Names as colours or shapes, of which only the used ones are in the legend."""
    present = set(used)
    domain = [name for name in codes if name in present]
    scale = {"domain": domain, "range": [codes[name] for name in domain]}
    return {"field": field, "type": "nominal", "scale": scale, "legend": {"title": title}}


def tooltip(columns: Mapping[str, str]) -> list[Spec]:
    """What the table says of a row, beside the pointer."""
    return [
        {"field": field, "title": title, **({"format": FORMATS[field]} if field in FORMATS else {})}
        for field, title in columns.items()
    ]


def line(axis: str, value: float, **mark: Any) -> Spec:
    """A straight line across the chart."""
    place = {axis: {"field": "at", "type": "quantitative"}}
    return {**layer("rule", place, **mark), "data": {"values": [{"at": value}]}}


def ends(name: str, gap: Estimate) -> Row:
    """An estimate in a row: its value under a name, its bounds, and these in words."""
    interval = bracket(gap.low, gap.high)
    return {name: gap.value, "low": gap.low, "high": gap.high, "interval": interval}


def layer(kind: str, encoding: Spec, *, where: str | None = None, **mark: Any) -> Spec:
    """Marks of one kind, over all rows or some."""
    some = {} if where is None else {"transform": [{"filter": where}]}
    return {**some, "mark": {"type": kind, **mark}, "encoding": encoding}


def words(place: Spec, field: str, **mark: Any) -> Spec:
    """Text of a field."""
    return layer("text", {**place, "text": {"field": field}}, **mark)


def whisker(place: Spec, along: str = "y", **mark: Any) -> Spec:
    """A bar from the low to the high end of an interval."""
    ends = {along: {**place[along], "field": "low"}, f"{along}2": {"field": "high"}}
    return layer("rule", {**place, **ends}, **mark)


def curve(x: Spec, y: Spec, columns: Mapping[str, str]) -> list[Spec]:
    """Points with their intervals, joined by a line."""
    return [
        whisker({"x": x, "y": y}, color="var(--blue)", opacity=0.6),
        layer("line", {"x": x, "y": y}, strokeWidth=1.5, opacity=0.6),
        layer("point", {"x": x, "y": y, "tooltip": tooltip(columns)}, size=80),
    ]


def limit(axis: str, value: float) -> Spec:
    """What was allowed to be lost."""
    return line(axis, value, strokeDash=[5, 4], color="var(--red)", strokeWidth=1.5)


# --- the frontier ---------------------------------------------------------------------------------


FAMILIES = {
    "learned gate": "var(--blue)",
    "asc": "var(--orange)",
    "esc": "var(--green)",
    "lead": "var(--purple)",
    "majority": "var(--gold)",
    "fixed, plain votes": "var(--grey)",
    "fixed, weighted votes": "var(--sky)",
    "another rule": "var(--ink)",
    "hindsight": "var(--red)",
}
"""Kinds of rules with their colours."""
GROUPED = dict.fromkeys(("aera", "gate", "one-shot"), "learned gate")
GROUPED |= dict.fromkeys(("oracle", "matched-random"), "hindsight")
SWEPT = "swept afterwards"
KINDS = {
    "calibrated": "diamond",
    "controller, unseen": "diamond",
    "controller, in-sample": "cross",
    "as given": "circle",
    SWEPT: "square",
    "hindsight": "triangle-up",
}
"""How a policy came to be on the chart, with its shape."""
JOINED = ("fixed", "aera", "asc")
"""Families whose settings are joined by a line, where nobody chose between them beforehand."""


def in_order(frontier: Frontier) -> list[Point]:
    """The policy spoken of, what else was calibrated, its own full budget, then the others."""
    spoken = headline_point(frontier)
    full = frontier.full_budget(weighted=spoken.weighted).policy

    def rank(point: Point) -> int:
        if point.policy == spoken.policy:
            return 0
        chosen = point.kind in (Kind.CALIBRATED, Kind.CONTROLLER)
        return 1 if chosen else 2 if point.policy == full else 3 + [*Kind].index(point.kind)

    return sorted(frontier.points, key=rank)


def kind_name(point: Point) -> str:
    """How a policy came to be on the chart, which decides what may be said of it."""
    if point.kind is Kind.CONTROLLER:
        return "controller, in-sample" if point.in_sample else "controller, unseen"
    known = {Kind.CALIBRATED: "calibrated", Kind.SWEPT: SWEPT, Kind.HINDSIGHT: "hindsight"}
    return known.get(point.kind, "as given")


def family_name(point: Point) -> str:
    """The kind of rule it is."""
    if point.family == "fixed":
        return "fixed, weighted votes" if point.weighted else "fixed, plain votes"
    name = GROUPED.get(point.family, point.family)
    return name if name in FAMILIES else "another rule"


def frontier_rows(frontier: Frontier, prices: Prices | None) -> list[Row]:
    """One row per policy, with its interval and its difference to all plain votes."""
    points, plain = in_order(frontier), frontier.full_budget()
    shown, own = points[0], frontier.full_budget(weighted=points[0].weighted)
    values = np.array([p.scores if p.graded else p.agreements for p in (plain, *points)])
    rows = list[Row]()
    for point, value, gap in zip(
        points, values[1:], paired_gaps(values[1:] - values[0]), strict=True
    ):
        quality = float(value.mean())
        low, high = (100 * end for end in share_interval(quality, len(value)))
        loose = point.kind in (Kind.FIXED, Kind.BASELINE, Kind.SWEPT) and point.setting is not None
        joined = loose and point.family in JOINED
        spoken = point.policy in (shown.policy, own.policy)
        fixed = point.kind is Kind.FIXED and not point.weighted
        row = {
            "policy": point.policy,
            "family": family_name(point),
            "kind": kind_name(point),
            "quality": round(100 * quality, 2),
            "low": round(low, 2),
            "high": round(high, 2),
            "interval": f"{low:.1f} to {high:.1f}",
            "difference": f"{signed(gap.value)} ({bracket(gap.low, gap.high)})",
            "responses": round(point.responses, 2),
            "tokens": round(point.tokens, 1),
            "barred": spoken or fixed,
            "shown": point.policy == shown.policy,
            "fixed": fixed,
            "line": f"{point.family} {point.weighted}" if joined else None,
            "name": point.policy if spoken or point.policy in (plain.policy, "oracle") else "",
        }
        rows.append(row if prices is None else {**row, "money": round(point.money(prices), 6)})
    return rows


def quality_name(frontier: Frontier) -> str:
    """What policies are compared by."""
    return "accuracy" if frontier.trajectories.grades is not None else "agreement"


def frontier_figures(frontier: Frontier, prices: Prices | None) -> Iterator[Figure]:
    """Quality against spend, in every unit that is known of all policies."""
    rows = frontier_rows(frontier, prices)
    for spend in ("money", "tokens", "responses"):
        if all(row.get(spend, 0) > 0 for row in rows):
            yield _frontier_figure(rows, frontier, spend)


def _frontier_figure(rows: Sequence[Row], frontier: Frontier, spend: str) -> Figure:
    """One point per policy; fixed budgets and sweeps are joined."""
    measure, full = quality_name(frontier), frontier.full_budget().policy
    columns = {"policy": "policy", "kind": "how it was chosen", "quality": f"{measure}, %"}
    columns |= {"interval": "95 %", "difference": f"against {full}, points (95 %)"}
    columns |= {"responses": "responses", "tokens": "tokens"}
    columns |= {"money": "money per 1,000"} if all("money" in row for row in rows) else {}
    axis = {"grid": False, "format": "~s" if spend == "tokens" else "~r", "tickCount": 6}
    scale = {"type": "log", "nice": False, "padding": 48}
    unit = f"{spend} per {'1,000 questions' if spend == 'money' else 'question'}"
    x = number(spend, f"{unit}, log scale", scale=scale, axis=axis)
    y = number("quality", f"{measure}, %", scale={"zero": False, "padding": 16})
    colour = encode_names("family", FAMILIES, (row["family"] for row in rows), "policy")
    shape = encode_names("kind", KINDS, (row["kind"] for row in rows), "how it was chosen")
    small = {"test": f"datum.kind == '{SWEPT}'", "value": 28}
    size = {"condition": [{"test": "datum.shown", "value": 200}, small], "value": 75}
    drawn = {"x": x, "y": y, "color": colour}
    path = {**drawn, "detail": {"field": "line"}}
    # Names stand on a halo that keeps them readable over lines, of plain votes below their point.
    # On a phone there is room for one.
    name = {"dy": {"expr": "datum.fixed ? 16 : -16"}, "baseline": "middle", "fontWeight": 600}
    name |= {"where": "datum.shown || (datum.name && width > 420)"}
    layers = [
        layer("line", path, where="datum.line != null", strokeWidth=1.5, opacity=0.55),
        whisker(drawn, where="datum.barred", opacity=0.5),
        layer("point", {**drawn, "shape": shape, "size": size, "tooltip": tooltip(columns)}),
        words({"x": x, "y": y}, "name", **name, stroke="var(--paper)", strokeWidth=4),
        words({"x": x, "y": y}, "name", **name, fill="var(--ink)"),
    ]
    return Figure(
        f"frontier-{spend}",
        f"{measure.capitalize()} against {spend}",
        "Up and to the left is better. The pointer tells what a point is. Bars are Wilson's 95 % "
        "intervals, of plain fixed budgets, of the policy spoken of and of its full budget; the "
        "table of numbers has all of them, and paired differences.",
        rows,
        columns,
        # A layer without rows makes the browser complain of an infinite axis.
        layers if any(row["line"] for row in rows) else layers[1:],
        height=430,
        tab=spend,
    )


# --- trajectories ---------------------------------------------------------------------------------


TURNS = {"recovery": "var(--blue)", "collapse": "var(--orange)"}


def flow_figure(trajectories: Trajectories) -> Figure:
    """Recoveries upwards and collapses downwards, from each checkpoint to the next."""
    changes = np.diff(trajectories.right.astype(int), axis=1)
    order = [f"{here} → {there}" for here, there in pairwise(trajectories.schedule)]
    rows: list[Row] = [
        {"step": step, "transition": name, "questions": count, "signed": sign * count}
        for column, step in enumerate(order)
        for name, sign in (("recovery", 1), ("collapse", -1))
        for count in [int((changes[:, column] == sign).sum())]
    ]
    columns = {"step": "from → to", "transition": "transition", "questions": "questions"}
    axis = {"labelExpr": "abs(datum.value)", "tickMinStep": 1}
    place = {"x": steps("step", "responses, from one checkpoint to the next", order)}
    place["y"] = number("signed", "questions", axis=axis, scale={"padding": 22})
    colour = encode_names("transition", TURNS, TURNS)
    shift = {"expr": "datum.signed < 0 ? 10 : -8"}
    counts = words(place, "questions", where="datum.questions > 0", dy=shift)
    inked = {**place, "color": colour, "tooltip": tooltip(columns)}
    bars = layer("bar", inked, width={"band": 0.6})
    return Figure(
        "flow",
        "Recoveries and collapses at each step",
        "Upwards: wrong at one checkpoint and right at the next. Downwards: the reverse. Stopping "
        "in time keeps the first and escapes the second.",
        rows,
        columns,
        [bars, line("y", 0, strokeWidth=1), *([counts] if changes.any() else ())],
        height=280,
    )


# --- the gate -------------------------------------------------------------------------------------


BINS = 10


def reliability(chances: Floats, trajectories: Trajectories) -> list[Row]:
    """Tenths of all decisions by p_continue; the last checkpoint is no decision.

    The intervals are Wilson's and count each question once, for its decisions hang together.
    """
    labels: Flags = continuation_labels(trajectories.known_grades, trajectories.tokens)[:, :-1]
    chance = chances[:, :-1]
    questions, columns = np.nonzero(~np.isnan(chance))
    chance, paid = chance[questions, columns], labels[questions, columns]
    rows = list[Row]()
    for part in np.array_split(np.argsort(chance, kind="stable"), BINS):
        if len(part):
            share, count = float(paid[part].mean()), len(np.unique(questions[part]))
            low, high = share_interval(share, count)
            known = {"p_continue": chance[part].mean(), "paid": share, "low": low, "high": high}
            row = {name: round(float(value), 3) for name, value in known.items()}
            rows.append({**row, "decisions": len(part), "questions": count})
    return rows


def reliability_figure(chances: Floats, trajectories: Trajectories, *, unseen: bool) -> Figure:
    """p_continue against how often continuing paid."""
    rows = reliability(chances, trajectories)
    columns = {"p_continue": "p_continue, mean", "paid": "continuing paid, share"}
    columns |= {"low": "95 % from", "high": "to"}
    columns |= {"decisions": "decisions", "questions": "questions"}
    top = min(1.0, max(0.1, *(row[end] for row in rows for end in ("high", "p_continue"))))
    few: Spec = {"scale": {"domain": [0, top], "nice": True}, "axis": {"tickCount": 6}}
    x = number("p_continue", "p_continue, mean of a tenth of the decisions", **few)
    y = number("paid", "share in which continuing paid", **few)
    even = {"x": {**x, "field": "at"}, "y": {**y, "field": "at"}}
    diagonal = layer("line", even, strokeDash=[5, 4], color="var(--dim)", strokeWidth=1.5)
    diagonal["data"] = {"values": [{"at": 0}, {"at": top}]}
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
        [diagonal, *curve(x, y, columns)],
        height=320,
    )


def threshold_figures(
    frontier: Frontier, *, chosen: Sequence[float | None], allowed: float
) -> Iterator[Figure]:
    """Loss along the threshold, where several were swept; what calibration chose is marked."""
    swept = [p for p in frontier.points if p.kind is Kind.SWEPT and p.family == GATE_FAMILY.name]
    if len(swept) <= 2:
        return
    full = frontier.full_budget(weighted=any(point.weighted for point in swept))
    rows: list[Row] = [
        {
            "threshold": point.setting,
            **ends("loss", paired_gap(full.scores, point.scores)),
            "spent": f"{100 - point.token_saving:.0f} %",
            "responses": point.responses,
        }
        for point in swept
    ]
    columns = {"threshold": "threshold", "loss": "loss, points", "interval": "95 %"}
    columns |= {"spent": "share of the tokens", "responses": "responses"}
    few: Spec = {"scale": {"domain": [0, 1]}, "axis": {"tickCount": 5}}
    x = number("threshold", "threshold: stop when p_continue is below", **few)
    y = number("loss", "loss, points", scale={"padding": 16})
    told = (
        f"Upright lines: what calibration chose on other questions ({settings_in_words(chosen)})."
        if chosen
        else "Reading the best one off here is descriptive."
    )
    marks: Spec = {"color": "var(--orange)", "strokeWidth": 2, "opacity": 0.6}
    settings = sorted({each for each in chosen if each is not None})
    yield Figure(
        "thresholds",
        "The choice of the threshold",
        f"Loss against {full.policy}, its full budget, with paired 95 % intervals; the "
        f"dashed line is the {allowed:g} points allowed, the numbers on top are the share of the "
        f"tokens spent. {told}",
        rows,
        columns,
        [
            line("y", 0, strokeWidth=1),
            limit("y", allowed),
            *(line("x", each, **marks) for each in settings),
            *curve(x, y, columns),
            # Above the chart, where no interval and no line can cross it.
            words({"x": x, "y": {"value": -10}}, "spent", fontSize=11),
        ],
        height=320,
    )


def settings_in_words(settings: Iterable[float | None]) -> str:
    """What calibration chose, fold by fold."""
    return ", ".join("full budget" if each is None else f"{each:g}" for each in settings)


# --- single policies ------------------------------------------------------------------------------


def calibrated_figure(done: Judgement, full: Point, *, allowed: float) -> Figure:
    """Every calibrated policy against its full budget, on questions it had no part in."""
    rows = list[Row]()
    for point in done.points():
        gap = paired_gap(point.scores, full.scores) if full.graded else changed_gap(point)
        spent = spent_share(point.spent, full.spent)
        rows.append(
            {
                "name": f"{point.policy}, {spent.value:.0f} %",
                "policy": point.policy,
                **ends("difference", gap),
                "spent": f"{spent.value:.0f} % ({spent.low:.0f} to {spent.high:.0f})",
                "settings": settings_in_words(c.setting for c in done.choices[point.family]),
            }
        )
    lost = "difference, points" if full.graded else "difference in agreement, points"
    columns = {"policy": "policy", "difference": lost, "interval": "95 %"}
    columns |= {"spent": "share of the tokens (95 %)", "settings": "chosen settings"}
    beside = "points against" if full.graded else "points of agreement with"
    x = number(
        "difference", f"{beside} {full.policy}", axis={"tickCount": 8}, scale={"padding": 12}
    )
    axis = {"title": None, "labelLimit": 240, "domain": False, "ticks": False, "labelPadding": 8}
    place = {"x": x, "y": {"field": "name", "type": "nominal", "sort": None, "axis": axis}}
    return Figure(
        "calibrated",
        f"Calibrated policies against {full.policy}",
        "Each setting was chosen on other questions and then judged once on these. Beside its "
        "name: the share of the tokens it spends. Bars are paired 95 % intervals; the dashed line "
        f"marks the {allowed:g} points that were allowed.",
        rows,
        columns,
        [
            line("x", 0, strokeWidth=1),
            limit("x", -allowed),
            whisker(place, "x", strokeWidth=2.5, color="var(--blue)"),
            layer("point", {**place, "tooltip": tooltip(columns)}, shape="diamond", size=130),
        ],
        height=38 * len(rows) + 10,
    )


def stop_figure(points: Sequence[Point]) -> Figure:
    """Where one policy stops; the page's choice of policy sets the parameter."""
    rows: list[Row] = [
        {"policy": point.policy, "checkpoint": checkpoint, "questions": count}
        for point in points
        for checkpoint, count in point.stops.items()
        if count
    ]
    columns = {"policy": "policy", "checkpoint": "responses", "questions": "questions"}
    place = {"x": steps("checkpoint", "responses at the stop", [*points[0].stops])}
    place["y"] = number("questions", "questions", axis={"tickMinStep": 1})
    bars = layer("bar", {**place, "tooltip": tooltip(columns)}, width={"band": 0.7})
    return Figure(
        "stops",
        "Where it stops",
        "Questions that stop at each checkpoint.",
        rows,
        columns,
        [bars, words(place, "questions", dy=-8)],
        policy=points[0].policy,
    )


def difficulty_figure(points: Sequence[Point]) -> Figure:
    """What stopping early costs where the full vote is divided, and where it is not."""
    groups = [(point.policy, group) for point in points for group in loss_by_difficulty(point)]
    rows: list[Row] = [
        {
            "policy": name,
            # In percent: short, because all of them stand in a row on a phone, too.
            "support": "–".join(f"{100 * float(e):.0f}" for e in group["group"][8:].split("-")),
            **{each: group[each] for each in ("loss", "low", "high", "questions", "responses")},
            "interval": bracket(group["low"], group["high"]),
            "note": signed(group["loss"]),
            "size": f"n = {group['questions']}",
        }
        for name, group in sorted(groups, key=lambda pair: str(pair[1]["group"]))
    ]
    columns = {"policy": "policy", "support": "share of the leader, %", "questions": "questions"}
    columns |= {"loss": "loss, points", "interval": "95 %", "responses": "responses"}
    order = list(dict.fromkeys(row["support"] for row in rows))
    place = {"x": steps("support", "share of the leader in %, hard to easy", order)}
    place["y"] = number("loss", "loss, points", scale={"padding": 12})
    return Figure(
        "difficulty",
        "Loss by difficulty",
        "Questions grouped by how divided the vote at the full budget is. Above zero the policy "
        "loses against its full budget, below it gains, because it stopped before a collapse. Bars "
        "are paired 95 % intervals; n is the number of questions, and few of them say little.",
        rows,
        columns,
        [
            line("y", 0, strokeWidth=1),
            whisker(place, color="var(--blue)", strokeWidth=2, opacity=0.6),
            layer("point", {**place, "tooltip": tooltip(columns)}, size=90),
            words(place, "note", dx=8, dy=-9, align="left"),
            words({"x": place["x"], "y": {"value": -10}}, "size", fontSize=11),
        ],
        policy=points[0].policy,
    )
