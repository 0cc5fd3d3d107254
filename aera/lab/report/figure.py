"""Figure: a Vega-Lite value with its words, and the few pieces all figures are made of.

Colours are names from `aera/web/style.css`; a page resolves them by itself, so that they follow it
from light to dark, and an SVG file gets the light ones.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

import numpy as np

from aera.core import Schedule
from aera.lab.judging.headline import signed

FORMATS = {
    "quality": ".2f",
    "difference": "+.2f",
    "loss": "+.2f",
    "low": ".3f",
    "high": ".3f",
    "responses": ".1f",
    "tokens": ",.0f",
    "money": ",.2f",
    "p_continue": ".3f",
    "paid": ".3f",
    "threshold": ".2f",
    "questions": ",.0f",
    "decisions": ",.0f",
    "count": ",.0f",
    "first": "+.3f",
    "median": "+.3f",
    "third": "+.3f",
    "left": "+.3f",
    "right": "+.3f",
}
"""How a number is written, by its field, in tables and beside the pointer."""
Row = Mapping[str, Any]
Spec = dict[str, Any]

AXIS: Spec = {
    "labelColor": "var(--dim)",
    "titleColor": "var(--dim)",
    "gridColor": "var(--line)",
    "domainColor": "var(--line)",
    "tickColor": "var(--line)",
    "labelFontSize": 12,
    "titleFontSize": 12,
    "titleFontWeight": 600,
    "titlePadding": 10,
    "labelOverlap": True,
}
LEGEND: Spec = {
    "labelColor": "var(--ink)",
    "titleColor": "var(--dim)",
    "labelFontSize": 12,
    "titleFontSize": 12,
    "orient": "top",
    "labelLimit": 260,
    "symbolSize": 90,
    "columnPadding": 16,
    "layout": {"top": {"anchor": "start", "direction": "vertical", "margin": 8}},
    "symbolOpacity": 1,
    "symbolBaseFillColor": "var(--ink)",
    "symbolBaseStrokeColor": "var(--ink)",
}
CONFIG: Spec = {
    "background": "transparent",
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": AXIS,
    "legend": LEGEND,
    "text": {"color": "var(--ink)", "fontSize": 12},
    "bar": {"color": "var(--blue)"},
    "point": {"filled": True, "opacity": 1},
    "line": {"color": "var(--blue)"},
    "rule": {"color": "var(--dim)"},
}

TITLE: Spec = {
    "anchor": "start",
    "frame": "bounds",
    "color": "var(--ink)",
    "subtitleColor": "var(--dim)",
    "fontSize": 15,
    "subtitleFontSize": 12,
    "subtitleLineHeight": 16,
    "subtitlePadding": 6,
    "offset": 24,
}
"""Of a figure in a file of its own, clear of what stands above the chart."""
ALONE: Spec = {
    **CONFIG,
    "background": "white",
    # The widest of the usual ones is measured with, so that no reader's is cut off.
    "font": "Verdana, DejaVu Sans, Arial, sans-serif",
    "legend": {**LEGEND, "columns": 4, "columnPadding": 24, "direction": "horizontal"},
}
WIDTH, LINE = 680, 92
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
    body: Spec
    """Layers or a mark, without the data."""
    height: int = 260
    tab: str = ""
    """Its name among figures that take turns in one place."""

    @property
    def spec(self) -> Spec:
        """The whole Vega-Lite value but for CONFIG, which whoever shows it adds."""
        return {
            "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
            "description": f"{self.title}. {self.caption}",
            "width": "container",
            "height": self.height,
            "autosize": {"type": "fit-x", "contains": "padding"},
            "data": {"values": list(self.rows)},
            **self.body,
        }

    @property
    def alone(self) -> Spec:
        """The same for a file of its own: of one width, with a title and its caption."""
        chosen = [param["value"] for param in self.body.get("params", ())]
        told = {"text": ": ".join([self.title, *chosen]), "subtitle": wrap(self.caption, LINE)}
        return {**self.spec, "width": WIDTH, "title": {**TITLE, **told}}

    def as_json(self) -> dict[str, Any]:
        """The figure as the page holds it."""
        return {
            "name": self.name,
            "title": self.title,
            "caption": self.caption,
            "columns": self.columns,
            "formats": {name: FORMATS[name] for name in self.columns if name in FORMATS},
            "spec": self.spec,
            "alone": {name: self.alone[name] for name in ("width", "title")},
            "tab": self.tab,
        }


def number(field: str, title: str | None, **settings: Any) -> Spec:
    """A quantity on an axis."""
    return {"field": field, "type": "quantitative", "title": title, **settings}


def nominal(field: str, title: str | None = None, **settings: Any) -> Spec:
    """A name: a colour, a shape, a text."""
    return {"field": field, "type": "nominal", "title": title, **settings}


def name_axis(field: str) -> Spec:
    """Names down the left side, in the order of the rows."""
    axis = {"title": None, "labelLimit": 240, "domain": False, "ticks": False, "labelPadding": 8}
    return {"field": field, "type": "nominal", "sort": None, "axis": axis}


def steps(field: str, title: str, order: Sequence[str]) -> Spec:
    """Checkpoints, evenly spaced, in their order."""
    scale = {"domain": list(order)}
    axis = {"title": title, "labelAngle": 0, "grid": False}
    return {"field": field, "type": "ordinal", "sort": list(order), "scale": scale, "axis": axis}


def encode_names(
    field: str,
    codes: Mapping[str, str],
    used: Iterable[str],
    title: str | None = None,
    **legend: Any,
) -> Spec:
    """Names as colours or shapes, of which only the used ones are in the legend."""
    present = set(used)
    domain = [name for name in codes if name in present]
    scale = {"domain": domain, "range": [codes[name] for name in domain]}
    return {"field": field, "type": "nominal", "scale": scale, "legend": {"title": title, **legend}}


def tooltip(columns: Mapping[str, str]) -> list[Spec]:
    """What the table says of a row, beside the pointer."""
    return [
        {"field": field, "title": title, **({"format": FORMATS[field]} if field in FORMATS else {})}
        for field, title in columns.items()
    ]


def line(axis: str, value: float, **mark: Any) -> Spec:
    """A straight line across the chart."""
    return {
        "data": {"values": [{"at": value}]},
        "mark": {"type": "rule", **mark},
        "encoding": {axis: {"field": "at", "type": "quantitative"}},
    }


def layer(kind: str, encoding: Spec, **mark: Any) -> Spec:
    """Marks of one kind over all rows."""
    return {"mark": {"type": kind, **mark}, "encoding": encoding}


def where(test: str, part: Spec) -> Spec:
    """A layer for some of the rows."""
    return {"transform": [{"filter": test}], **part}


def beyond(place: Spec, text: Spec) -> Spec:
    """Text just past the end of a bar, upwards or downwards."""
    shift = {"expr": f"datum.{place['y']['field']} < 0 ? 10 : -8"}
    return layer("text", {**place, "text": text}, dy=shift)


def bracket(low: float, high: float) -> str:
    """An interval as text; differences and losses carry their sign."""
    return f"[{signed(low)}, {signed(high)}]"


MOST_CHECKPOINTS = 12


def shown_columns(schedule: Schedule) -> list[int]:
    """All checkpoints, or a spread of them that keeps the first and the last."""
    if len(schedule) <= MOST_CHECKPOINTS:
        return list(range(len(schedule)))
    steps = np.geomspace(1, len(schedule), MOST_CHECKPOINTS).round().astype(int) - 1
    return sorted(set(steps.tolist()))
