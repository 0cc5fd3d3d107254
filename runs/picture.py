"""The picture of the README: accuracy against tokens on gsm8k, from the published nested points."""

import re

import numpy as np
from paper_figures import draw
from pools import PAGE, pools_argument, vote_table

from aera.lab.calibrating.families import ASC_FAMILY
from aera.lab.replay.trajectory import pick

COLOURS = {
    "AERA": "#0b62a8",
    "ASC, untrained": "#c77700",
    "fixed budgets": "#6b7280",
}


def published() -> list[dict[str, object]]:
    """AERA's points from the results page."""
    found = re.findall(
        r"^\| gsm8k AERA, ([\d.]+) allowed \| ([\d.]+) \| ([\d.]+) \|",
        PAGE.read_text("utf-8"),
        re.M,
    )
    return [
        {
            "policy": "AERA",
            "accuracy": float(accuracy),
            "tokens": float(share),
            "label": f"{loss} allowed",
        }
        for loss, accuracy, share in found
    ]


def main() -> None:
    ready = vote_table(pools_argument(__doc__ or ""), "gsm8k")
    plain = ready.replay(np.arange(len(ready)), None)
    tokens, grades = plain.trajectories.tokens, plain.trajectories.known_grades
    whole = tokens[:, -1].mean()
    rows = published()
    for column, checkpoint in enumerate(ready.schedule):
        rows.append(
            {
                "policy": "fixed budgets",
                "accuracy": 100 * grades[:, column].mean(),
                "tokens": 100 * tokens[:, column].mean() / whole,
                "label": f"{checkpoint}",
            }
        )
    for setting in (0.8, 0.9, 0.95, 0.99):
        stops = ASC_FAMILY.stops(plain.confidence, setting)
        rows.append(
            {
                "policy": "ASC, untrained",
                "accuracy": 100 * pick(grades, stops).mean(),
                "tokens": 100 * pick(tokens, stops).mean() / whole,
                "label": f"{setting:g}",
            }
        )
    x = {"field": "tokens", "type": "quantitative", "title": "tokens, % of 128 samples (log scale)"}
    y = {"field": "accuracy", "type": "quantitative", "title": "accuracy, %"}
    encoding = {
        "x": {
            **x,
            "scale": {"type": "log", "domain": [2.8, 110]},
            "axis": {"values": [3, 6, 12, 25, 50, 100]},
        },
        "y": {**y, "scale": {"domain": [62, 79]}},
        "color": {
            "field": "policy",
            "scale": {"domain": list(COLOURS), "range": list(COLOURS.values())},
            "legend": {
                "title": None,
                "orient": "bottom-right",
                "labelFontSize": 13,
                "symbolSize": 120,
            },
        },
    }
    draw(
        "frontier",
        "800 GSM8K questions, a 1.5B reasoner, 128 recorded responses each",
        {
            "width": 640,
            "height": 300,
            "data": {"values": rows},
            "layer": [
                {"mark": {"type": "line", "strokeWidth": 2}, "encoding": encoding},
                {
                    "mark": {"type": "point", "filled": True, "size": 70, "opacity": 1},
                    "encoding": encoding,
                },
                *(
                    {
                        "transform": [{"filter": f"datum.policy == '{policy}'"}],
                        "mark": {"type": "text", "dy": place, "fontSize": 11},
                        "encoding": {**encoding, "text": {"field": "label"}},
                    }
                    for policy, place in (("fixed budgets", 14), ("ASC, untrained", -11))
                ),
            ],
        },
    )


if __name__ == "__main__":
    main()
