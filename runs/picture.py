"""The picture of the README: every policy of runs/held.py, from its published tables.

Up is points against 128 plain votes, with paired 95 % intervals; across is the share of their
tokens.
"""

import json
import re
from collections.abc import Iterator
from xml.sax.saxutils import escape

import vl_convert
from published import ROOT, digest, read

from aera.lab import COLOUR, figures, palette

FOLDER = ROOT / "docs" / "figures"

COLOURS = {
    "AERA": "#0b62a8",
    "ASC, same votes": "#c77700",
    "ASC, plain votes": "#9a3412",
    "others, same votes": "#7c3aed",
    "others, plain votes": "#a8a29e",
    "fixed budgets, plain votes": "#6b7280",
}
FEWEST = 16
"""The smallest fixed budget that is drawn; fewer are far below everything else."""
NUMBER = re.compile(r"[-+]?\d+\.\d+")


TABLES = ("held", "held-losses", "held-budgets")


def drawn_from() -> str:
    """The digest of the tables that it shows, which it carries with it."""
    return digest("".join(read(name).tables[0].markdown() for name in TABLES))


def points() -> Iterator[dict[str, object]]:
    """One point per policy and allowed loss."""
    policies, losses, plain = (read(name).tables[0].by_name() for name in TABLES)
    for label, cells in losses.items():
        policy, _, allowed = label.rpartition(", ")
        if allowed.endswith("allowed"):
            yield place(policy, cells, allowed.removesuffix(" allowed"))
    for label, cells in policies.items():
        kind, _, votes = label.removesuffix(", untrained").partition(", ")
        if votes and kind != "ASC":
            yield place(f"others, {votes}", cells, kind)
    full = float(plain["128"][0])
    for budget, cells in plain.items():
        if int(budget) < FEWEST:
            continue
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
        "scale": {"type": "log", "domain": [8, 110]},
        "axis": {"values": [8, 12, 25, 50, 100]},
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
    both: dict[str, object] = {"x": x, "y": y, "color": colour}
    swept = {"filter": "!test(/^others/, datum.policy)"}
    bars = {"filter": "isValid(datum.low)"}
    labels: list[dict[str, object]] = [
        {
            "transform": [{"filter": f"test(/^{policies}/, datum.policy)"}],
            "mark": {"type": "text", "dx": -9, "dy": up, "fontSize": 11},
            "encoding": {**both, "text": {"field": "label"}},
        }
        for policies, up in (("AERA|^ASC|^others, same", -9), ("others, plain|^fixed", 13))
    ]
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
        *labels,
    ]


def draw(name: str, title: str, body: figures.Spec) -> None:
    """Write one figure on white paper, with its title for those who cannot see it."""
    heading = {
        "text": title,
        "anchor": "start",
        "fontSize": 14,
        "color": "var(--ink)",
        "offset": 14,
    }
    legend = {**figures.CONFIG["legend"], "columnPadding": 40}
    font = "Arial, Helvetica, sans-serif"
    plain = {**figures.CONFIG, "background": "white", "font": font, "legend": legend}
    spec = {"padding": 24, "title": heading, **body, "config": plain}
    colours = palette()
    resolved = COLOUR.sub(lambda found: colours[found[1]], json.dumps(spec))
    svg = vl_convert.vegalite_to_svg(json.loads(resolved))
    FOLDER.mkdir(parents=True, exist_ok=True)
    titled = svg.replace(">", f"><title>{escape(title)}</title>", 1)
    (FOLDER / f"{name}.svg").write_text(titled + "\n", "utf-8")


def main() -> None:
    draw(
        "frontier",
        "519 held-out GSM8K questions; 0 to 3 points allowed to be lost; 95 % intervals",
        {"width": 640, "height": 340, "data": {"values": [*points()]}, "layer": layers()},
    )
    path = FOLDER / "frontier.svg"
    told = f"</title><desc>{drawn_from()}</desc>"
    path.write_text(path.read_text("utf-8").replace("</title>", told, 1), "utf-8")


if __name__ == "__main__":
    main()
