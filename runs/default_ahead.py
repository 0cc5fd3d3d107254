"""The chance that later blocks are wanted, for ASC(0.95) on plain votes: aera/policies/ahead.json.

Learned on the bundled responses alone. Whoever begins blocks ahead without a controller of their
own uses it; how well it foresees changes what is begun in vain, never an answer.
"""

import json
from pathlib import Path

import numpy as np

from aera import ASC, Schedule, get_task
from aera.lab.formats.importing import import_jsonl
from aera.lab.learning.ahead import AheadFit
from aera.lab.replay.replay import ReplaySettings
from aera.pools.pool import Pool

ROOT = Path(__file__).parents[1]


def round_all(value: object) -> object:
    """Six digits are enough, and make the file readable."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, list):
        return [round_all(each) for each in value]
    return (
        {name: round_all(each) for name, each in value.items()}
        if isinstance(value, dict)
        else value
    )


def main() -> None:
    out, task, schedule = ROOT / "out" / "pools" / "demo", get_task("gsm8k"), Schedule()
    if not out.exists():
        import_jsonl(ROOT / "aera" / "demo" / "gsm8k.jsonl.gz", out, task=task)
    settings = ReplaySettings(task, schedule)
    voted = settings.read(Pool.open(out))
    stops = settings.replay(voted, [ASC(0.95)]).columns[:, 0]
    made = AheadFit().fit(voted, np.asarray(stops), schedule, seed=0)
    assert made is not None
    path = ROOT / "aera" / "policies" / "ahead.json"
    path.write_text(json.dumps(round_all(made.as_json()), indent=1) + "\n", "utf-8")
    print(f"{path.name}: {len(voted)} questions")


if __name__ == "__main__":
    main()
