"""The paper's figures on our pools, as SVG files in docs/figures."""

import json
from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

import numpy as np
import vl_convert
from paper_claims import AGAINST, Published
from pools import ROOT

from aera.lab import ANSWER_COLOURS, COLOUR, Trajectories, change_figure, figure, palette

FOLDER = ROOT / "docs" / "figures"
EVIDENCE = {
    "share of the leading answer": "var(--blue)",
    "certainty (1 - entropy)": "var(--purple)",
    "semantic consensus": "var(--green)",
}
SOURCES = {
    "GPQA, in the paper": "var(--grey)",
    "csqa": "var(--orange)",
    "gsm8k": "var(--blue)",
}
POLICIES = {
    "the paper's gate": "var(--blue)",
    "ASC": "var(--orange)",
    "ESC": "var(--green)",
    "fixed budget": "var(--grey)",
    "majority": "var(--purple)",
    "entropy": "var(--sky)",
    "consensus": "var(--gold)",
}
SHAPES = {
    "the paper's gate": "diamond",
    "ASC": "circle",
    "ESC": "triangle-up",
    "fixed budget": "square",
    "majority": "cross",
    "entropy": "triangle-down",
    "consensus": "stroke",
}
STEPS = {
    "sample a block": "to 4, 8, 16, 32, 64 or 128 responses",
    "read the prefix": "answers, redos, tokens",
    "evidence (AEC)": "55 numbers, no truth among them",
    "residual gate": "p that more will help",
    "stop": "p < τ, or 128: return the vote",
}
"""The method from left to right: what happens, and with what."""


def draw(name: str, title: str, body: figure.Spec) -> None:
    """Write one figure on white paper, with its title for those who cannot see it."""
    heading = {
        "text": title,
        "anchor": "start",
        "fontSize": 14,
        "color": "var(--ink)",
        "offset": 14,
    }
    legend = {**figure.CONFIG["legend"], "columnPadding": 40}
    font = "Arial, Helvetica, sans-serif"
    plain = {**figure.CONFIG, "background": "white", "font": font, "legend": legend}
    spec = {"padding": 24, "title": heading, **body, "config": plain}
    colours = palette()
    resolved = COLOUR.sub(lambda found: colours[found[1]], json.dumps(spec))
    svg = vl_convert.vegalite_to_svg(json.loads(resolved))
    FOLDER.mkdir(parents=True, exist_ok=True)
    titled = svg.replace(">", f"><title>{escape(title)}</title>", 1)
    (FOLDER / f"{name}.svg").write_text(titled + "\n", "utf-8")


# --- one question ---------------------------------------------------------------------------------


def recovers_then_collapses(trajectories: Trajectories) -> list[int]:
    """Questions that turn right and later wrong again, the plainest first.

    Plain is wrong at both ends, then right for long, then a leading share that rises at the collapse.
    """
    right = trajectories.right
    moved = np.diff(right.astype(int), axis=1)
    majority = trajectories.changes("majority_ratio")
    found = []
    for row, change in enumerate(moved):
        rises, falls = np.flatnonzero(change == 1), np.flatnonzero(change == -1)
        if len(rises) and len(falls) and falls[-1] > rises[0]:
            inner = not right[row, 0] and not right[row, -1]
            rise = float(majority[row, falls[-1]])
            found.append((not inner, -int(right[row].sum()), -rise, row))
    return [place[-1] for place in sorted(found)]


def draw_trajectory(trajectories: Trajectories) -> str:
    """One question that recovers, then collapses, with its evidence; what there is to see."""
    row = recovers_then_collapses(trajectories)[0]
    names = [str(checkpoint) for checkpoint in trajectories.schedule]
    seen = trajectories.evidence
    values = (
        seen["majority_ratio"][row],
        1 - seen["entropy"][row],
        seen["semantic_consensus"][row],
    )
    lines = [
        {"checkpoint": checkpoint, "evidence": evidence, "value": float(value)}
        for evidence, series in zip(EVIDENCE, values, strict=True)
        for checkpoint, value in zip(names, series, strict=True)
    ]
    marks = [
        {"checkpoint": checkpoint, "answer": "right" if right else "wrong"}
        for checkpoint, right in zip(names, trajectories.right[row], strict=True)
    ]
    x = figure.steps("checkpoint", "responses", names)
    bare = {**x, "axis": None}
    middle = {"x": bare, "y": {"value": 13}}
    answer = figure.encode_names("answer", ANSWER_COLOURS, ANSWER_COLOURS)
    strip = [
        figure.layer("rect", {"x": bare, "color": {**answer, "legend": None}}, stroke="white"),
        figure.layer(
            "text", {**middle, "text": figure.nominal("answer")}, color="white", fontWeight="bold"
        ),
    ]
    y = figure.number("value", "evidence", scale={"domain": [0, 1]})
    colour = figure.encode_names(
        "evidence", EVIDENCE, EVIDENCE, orient="bottom", direction="horizontal"
    )
    place = {"x": x, "y": y, "color": colour}
    lower = [figure.layer("line", place, strokeWidth=2.5), figure.layer("point", place, size=60)]
    question = trajectories.question_ids[row]
    panels = [
        {"data": {"values": marks}, "width": 600, "height": 26, "layer": strip},
        {"data": {"values": lines}, "width": 600, "height": 220, "layer": lower},
    ]
    draw(
        "paper-trajectory",
        f"{question}: the answer recovers, then collapses",
        {"vconcat": panels, "spacing": 10, "resolve": {"scale": {"color": "independent"}}},
    )
    fall = int(np.flatnonzero(np.diff(trajectories.right[row].astype(int)) == -1)[-1])
    moved = [
        f"{kind} {np.diff(series)[fall]:+.3f}"
        for kind, series in zip(EVIDENCE, values, strict=True)
    ]
    step = f"from {names[fall]} to {names[fall + 1]} responses"
    return (
        f"{question} turns right and then wrong again; at the collapse, {step}: {', '.join(moved)}."
    )


# --- evidence against correctness -----------------------------------------------------------------


def draw_evidence(page: Published) -> None:
    """How often evidence moves against correctness: the paper's shares beside ours."""
    kinds = ("leading share", "certainty", "consensus", "all three")
    rows: list[dict[str, Any]] = []
    told = page.rows("transitions", 1)
    ways = {
        "collapse": ("collapse while rising", "Collapses while the evidence rises"),
        "recovery": ("recovery while falling", "Recoveries while the evidence falls"),
    }
    for transition, (suffix, panel) in ways.items():
        count, paper = AGAINST[transition]
        sources: dict[str, tuple[int, Sequence[int | None]]] = {
            "GPQA, in the paper": (count, paper)
        }
        for pool in ("csqa", "gsm8k"):
            cells = [int(cell) for cell in told[f"{pool} {suffix}"]]
            sources[pool] = (cells[0], cells[1:])
        for source, (whole, counts) in sources.items():
            for kind, part in zip(kinds, counts, strict=True):
                if part is not None:
                    label = f"{part} of {whole}"
                    share = 100 * part / whole
                    rows.append({"panel": panel, "source": source, "kind": kind, "share": share, "label": label})  # fmt: skip
    names = list(SOURCES)
    place = {
        "y": {"field": "kind", "type": "nominal", "sort": list(kinds), "axis": {"title": None, "domain": False, "ticks": False, "labelPadding": 8}},
        "yOffset": {"field": "source", "type": "nominal", "sort": names, "scale": {"domain": names, "paddingInner": 0.15}},
        "x": figure.number("share", "% of them", scale={"domain": [0, 115]}, axis={"values": [0, 25, 50, 75, 100], "grid": False}),
    }  # fmt: skip
    colour = figure.encode_names(
        "source", SOURCES, SOURCES, symbolType="square", direction="horizontal"
    )
    layers = [
        figure.layer("bar", {**place, "color": colour}),
        figure.layer(
            "text", {**place, "text": figure.nominal("label")}, align="left", dx=5, fontSize=11
        ),
    ]
    panels = [
        {
            "title": {"text": panel, "anchor": "start", "fontSize": 13, "fontWeight": 600},
            "width": 310,
            "height": 300,
            "transform": [{"filter": f"datum.panel == '{panel}'"}],
            "layer": layers,
        }
        for _, panel in ways.values()
    ]
    draw(
        "paper-evidence",
        "Evidence that moves against correctness",
        {"data": {"values": rows}, "hconcat": panels, "spacing": 36},
    )


def draw_boxes(name: str, trajectories: Trajectories) -> None:
    """How the evidence moves with each transition."""
    spec = change_figure(trajectories).spec
    del spec["$schema"], spec["description"], spec["autosize"]
    draw(
        "paper-boxes", f"{name}: change of the evidence by transition", {**spec, "width": 560}
    )  # fmt: skip


def overlapping(trajectories: Trajectories) -> list[str]:
    """Evidence whose middle halves overlap between recovery and collapse."""
    boxes = {(row["evidence"], row["transition"]): row for row in change_figure(trajectories).rows}
    kinds = list(dict.fromkeys(evidence for evidence, _ in boxes))
    return [
        kind
        for kind in kinds
        if max(boxes[kind, way]["first"] for way in ("recovery", "collapse"))
        <= min(boxes[kind, way]["third"] for way in ("recovery", "collapse"))
    ]


# --- frontier -------------------------------------------------------------------------------------


def draw_frontier(
    swept: Mapping[str, Mapping[str, Mapping[str, Sequence[tuple[float, float]]]]],
) -> None:
    """Complete sweeps, metrics by pools: points of (responses, score in %) by policy."""
    lines = [{"hconcat": _panels(pools, metric), "spacing": 36} for metric, pools in swept.items()]
    draw("paper-frontier", "Complete offline frontiers", {"vconcat": lines, "spacing": 36})


def _panels(
    pools: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]], metric: str
) -> list[figure.Spec]:
    """One panel for each pool, in one metric."""
    colour = figure.encode_names("policy", POLICIES, POLICIES, direction="horizontal")
    shape = figure.encode_names("policy", SHAPES, SHAPES, direction="horizontal")
    panels = []
    for pool, policies in pools.items():
        rows = [
            {"policy": policy, "responses": responses, "accuracy": accuracy}
            for policy, points in policies.items()
            for responses, accuracy in sorted(points)
        ]
        ticks = {"values": [4, 8, 16, 32, 64, 128], "grid": False}
        x = figure.number("responses", "responses (log scale)", scale={"type": "log", "domain": [3.7, 140]}, axis=ticks)  # fmt: skip
        y = figure.number("accuracy", f"{metric}, %", scale={"zero": False, "padding": 12})
        place = {"x": x, "y": y, "color": colour}
        panels.append(
            {
                "title": {
                    "text": f"{pool}, {metric}",
                    "anchor": "start",
                    "fontSize": 13,
                    "fontWeight": 600,
                },
                "data": {"values": rows},
                "width": 330,
                "height": 300,
                "layer": [
                    figure.layer("line", place, strokeWidth=1.8, opacity=0.75),
                    figure.layer("point", {**place, "shape": shape}, size=65),
                ],
            }
        )
    return panels


# --- overview -------------------------------------------------------------------------------------


def draw_overview() -> None:
    """The method: sample a block, look at the prefix, ask the gate, go round or stop."""
    colours = palette()
    ink, dim, blue = (colours[name] for name in ("--ink", "--dim", "--blue"))
    width, apart, top, low = 176, 208, 64, 128
    title = "AERA: after every block the gate is asked whether more is worth it"
    parts = [_words(24, 36, title, ink, anchor="start", weight="bold")]
    for place, (what, how) in enumerate(STEPS.items()):
        left = 24 + place * apart
        middle = left + width / 2
        box = f'x="{left}" y="{top}" width="{width}" height="64" rx="8"'
        parts.append(f'<rect {box} fill="{colours["--panel"]}" stroke="{blue}"/>')
        parts.append(_words(middle, top + 28, what, ink, weight="bold"))
        parts.append(_words(middle, top + 48, how, dim, size=10))
        if place:
            parts.append(_arrow([(left - apart + width, top + 32), (left, top + 32)], ink))
    start, end = 24 + width / 2, 24 + 3 * apart + width / 2
    parts.append(_arrow([(end, low), (end, low + 40), (start, low + 40), (start, low)], blue))
    again = "p ≥ τ: continue with the next block, and look again"
    parts.append(_words((start + end) / 2, low + 60, again, blue, size=12))
    across, down = 48 + 4 * apart + width, low + 84
    size = f'width="{across}" height="{down}"'
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {across} {down}">'
    whole = [svg, f"<title>{title}</title>", f'<rect {size} fill="white"/>', *parts, "</svg>\n"]
    (FOLDER / "paper-overview.svg").write_text("\n".join(whole), "utf-8")


def _words(
    x: float,
    y: float,
    text: str,
    colour: str,
    *,
    anchor: str = "middle",
    weight: str = "normal",
    size: int = 14,
) -> str:
    font = f'font-family="Arial, Helvetica, sans-serif" font-size="{size}" font-weight="{weight}"'
    place = f'x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{colour}"'
    return f"<text {place} {font}>{escape(text)}</text>"


def _arrow(corners: Sequence[tuple[float, float]], colour: str) -> str:
    """A line through the corners with a head at its end."""
    (x, y), (before_x, before_y) = corners[-1], corners[-2]
    along = (np.sign(x - before_x), np.sign(y - before_y))
    back = (x - 8 * along[0], y - 8 * along[1])
    side = (4 * along[1], 4 * along[0])
    head = [(x, y), (back[0] + side[0], back[1] + side[1]), (back[0] - side[0], back[1] - side[1])]
    line, tip = (" ".join(f"{a:g},{b:g}" for a, b in each) for each in (corners, head))
    drawn = f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.6"/>'
    return f'{drawn}<polygon points="{tip}" fill="{colour}"/>'
