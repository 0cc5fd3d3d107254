"""The picture of the README: every policy of runs/held.py, from its published tables.

Up is points against 128 plain votes, with paired 95 % intervals; across is the share of their
tokens.
"""

import re
from collections.abc import Iterator

from paper_claims import Published
from paper_figures import draw
from published import read_sections

COLOURS = {
    "AERA": "#0b62a8",
    "ASC, same votes": "#c77700",
    "ASC, plain votes": "#9a3412",
    "others, same votes": "#7c3aed",
    "others, plain votes": "#a8a29e",
    "fixed budgets, plain votes": "#6b7280",
}
NUMBER = re.compile(r"[-+]?\d+\.\d+")


def points() -> Iterator[dict[str, object]]:
    """One point per policy and allowed loss."""
    page, _ = read_sections()["held"]
    shown = Published(page.read_text("utf-8"))
    for label, cells in shown.rows("held-losses").items():
        policy, _, allowed = label.rpartition(", ")
        if allowed.endswith("allowed"):
            yield place(policy, cells, allowed.removesuffix(" allowed"))
    for label, cells in shown.rows("held").items():
        kind, _, votes = label.partition(", ")
        if votes in ("same votes", "plain votes") and kind != "ASC":
            yield place(f"others, {votes}", cells, kind)
    plain = shown.rows("held-budgets")
    full = float(plain["128"][0])
    for budget, cells in plain.items():
        yield {
            "policy": "fixed budgets, plain votes",
            "tokens": float(cells[3]),
            "points": float(cells[0]) - full,
            "label": budget,
        }


def place(policy: str, cells: list[str], label: str) -> dict[str, object]:
    """A row of a table of policies as a point."""
    gained, low, high = map(float, NUMBER.findall(cells[4]))
    spent = float(NUMBER.findall(cells[3])[0])
    ends = {"low": low, "high": high} if policy == "AERA" or policy.startswith("ASC") else {}
    return {"policy": policy, "tokens": spent, "points": gained, "label": label, **ends}


def layers() -> list[dict[str, object]]:
    """Lines through what has a sweep, bars for intervals, points, and their labels."""
    x = {
        "field": "tokens",
        "type": "quantitative",
        "title": "tokens, % of 128 responses (log scale)",
        "scale": {"type": "log", "domain": [2.8, 110]},
        "axis": {"values": [3, 6, 12, 25, 50, 100]},
    }
    y = {
        "field": "points",
        "type": "quantitative",
        "title": "points against 128 plain votes",
    }
    colour = {
        "field": "policy",
        "scale": {"domain": list(COLOURS), "range": list(COLOURS.values())},
        "legend": {"title": None, "orient": "bottom", "columns": 3, "labelFontSize": 12},
    }
    both = {"x": x, "y": y, "color": colour}
    swept = {"filter": "!test(/^others/, datum.policy)"}
    bars = {"filter": "isValid(datum.low)"}
    return [
        {
            "mark": {"type": "rule", "strokeDash": [4, 4], "color": "#9ca3af"},
            "encoding": {"y": {"datum": 0, "type": "quantitative"}},
        },
        {
            "transform": [bars],
            "mark": {"type": "rule", "opacity": 0.45, "strokeWidth": 1.5},
            "encoding": {**both, "y": {**y, "field": "low"}, "y2": {"field": "high"}},
        },
        {"transform": [swept], "mark": {"type": "line", "strokeWidth": 2}, "encoding": both},
        {"mark": {"type": "point", "filled": True, "size": 60, "opacity": 1}, "encoding": both},
        {
            "mark": {"type": "text", "dy": -10, "fontSize": 10},
            "encoding": {**both, "text": {"field": "label"}},
        },
    ]


def main() -> None:
    draw(
        "frontier",
        "519 held-out GSM8K questions, a 1.5B reasoner: AERA and its rivals",
        {"width": 640, "height": 340, "data": {"values": [*points()]}, "layer": layers()},
    )


if __name__ == "__main__":
    main()
