"""Compare with an independent quick implementation, and name the questions on which we differ.

That implementation read the last number (or letter) inside the last box and compared expressions as
text. `simple_read` does the same, so what it reproduces is the difference the readers make.
"""

import re
from dataclasses import replace
from pathlib import Path

from pools import TASKS, held, pools_argument, publish, table

from aera import Response, Task, Vote, parse_policy
from aera.lab import Frontier, HeldRecords, Truths, evaluate, last_boxed, needs_redo

POLICIES = [
    *("fixed-4", "fixed-8", "fixed-16", "fixed-32", "fixed-64", "fixed-128"),
    *("asc-0.8", "asc-0.9", "asc-0.95", "asc-0.99", "esc-3", "esc-5", "first-valid", "oracle"),
]
FIGURES = {  # vote, responses and mean score of the independent implementation, as in POLICIES
    "gsm8k": (
        (64.00, 69.75, 72.50, 72.38, 73.38, 74.00, 72.62, 73.75, 73.62, 74.00, 73.88, 73.88, 64.00, 77.88),
        (4, 8, 16, 32, 64, 128, 20.05, 33.72, 40.08, 53.96, 56.23, 81.13, 4.00, 6.68),
        (54.25, 54.23, 54.58, 54.28, 54.30, 54.11, 57.17, 57.72, 57.70, 56.02, 57.49, 55.90, 54.25, 56.65),
    ),
    "svamp": (
        (81.25, 85.16, 86.33, 85.94, 86.33, 87.11, 87.11, 87.11, 87.11, 87.11, 87.11, 87.50, 81.25, 90.62),
        (4, 8, 16, 32, 64, 128, 12.77, 18.91, 21.19, 32.62, 29.23, 45.88, 4.00, 5.97),
        (74.41, 75.21, 74.71, 74.43, 74.25, 74.34, 76.53, 77.22, 77.14, 75.99, 77.10, 75.70, 74.41, 76.25),
    ),
    "csqa": (
        (50.00, 56.64, 56.64, 55.86, 59.77, 57.42, 55.47, 57.03, 57.03, 57.42, 57.81, 58.20, 50.00, 70.31),
        (4, 8, 16, 32, 64, 128, 21.23, 38.06, 48.11, 69.06, 45.61, 87.06, 4.00, 7.75),
        (46.94, 48.18, 48.00, 47.33, 47.11, 47.15, 49.52, 50.26, 49.61, 48.13, 49.55, 48.29, 46.94, 51.64),
    ),
    "math": (
        (30.56, 32.64, 36.81, 40.97, 43.75, 45.14, 40.97, 43.75, 44.44, 45.14, 43.75, 45.14, 30.56, 50.69),
        (4, 8, 16, 32, 64, 128, 47.61, 66.06, 74.00, 87.11, 85.83, 107.67, 4.08, 10.75),
        (27.08, 27.55, 28.17, 27.91, 28.08, 27.89, 29.03, 28.78, 29.23, 29.10, 28.99, 28.91, 27.08, 30.65),
    ),
}  # fmt: skip
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


def simple_answer(raw: str, kind: str) -> str | None:
    """What a quick normaliser makes of a box."""
    if kind == "numeric":
        found = NUMBER.findall(raw.replace("{,}", ","))
        return f"{float(found[-1].replace(',', '')):g}" if found else raw
    if kind == "choice":
        letters = re.findall(r"[A-J]", raw)
        return letters[0] if letters else raw
    text = re.sub(r"\\(left|right|!|,|;| )|\s|\$", "", raw)
    return text.replace("dfrac", "frac").replace("tfrac", "frac").rstrip(".")


def simple_read(response: Response, kind: str) -> Vote:
    redo = needs_redo(response.text)
    raw = last_boxed(response.text)
    return Vote(None if redo or raw is None else simple_answer(raw, kind), redo, raw)


def simple_frontier(records: HeldRecords, truths: Truths) -> Frontier:
    """The same replay on votes read the simple way."""
    kind = records.task.kind
    read = [
        replace(record, votes=tuple(simple_read(r, kind) for r in record.responses))
        for record in records
    ]
    simple = Truths({key: simple_answer(truth, kind) or truth for key, truth in truths.items()})
    as_text = _Literal(**records.task.as_json())  # type: ignore[arg-type]
    return replayed(HeldRecords(read, as_text, records.schedule), simple)


class _Literal(Task):
    """Answers are the same when their texts are."""

    def canonical(self, raw: str) -> str:
        return raw


def replayed(records: HeldRecords, truths: Truths) -> Frontier:
    return evaluate(records, [parse_policy(label) for label in POLICIES[:-1]], truths=truths)


def main(folder: Path) -> None:
    rows, named = [], []
    for name in TASKS:
        records, truths = held(folder, name, redo=True)
        ours, simple = replayed(records, truths), simple_frontier(records, truths)
        for label, accuracy, responses, mean in zip(POLICIES, *FIGURES[name], strict=True):
            point, other = ours[label], simple[label]
            rows.append(
                [
                    f"{name} {label}",
                    f"{accuracy:.2f}",
                    f"{other.accuracy:.2f}",
                    f"{point.accuracy:.2f}",
                    f"{responses:.2f}",
                    f"{other.responses:.2f}",
                    f"{point.responses:.2f}",
                    f"{mean:.2f}",
                    f"{other.re2_mean:.2f}",
                    f"{point.re2_mean:.2f}",
                ]
            )
        named.append(differing(name, ours, simple))
    header = ["policy", "theirs, vote %", "simple reader %", "ours %"]
    header += ["theirs resp.", "simple", "ours", "theirs, mean %", "simple reader %", "ours %"]
    publish("reference", "\n".join([table(header, rows), "", *named]))


def differing(name: str, ours: Frontier, simple: Frontier) -> str:
    """Questions right with one reader and wrong with the other at any checkpoint."""
    one, other = ours.trajectories.right, simple.trajectories.right
    ids = ours.trajectories.question_ids
    gained = [ids[i] for i in range(len(ids)) if (one[i] & ~other[i]).any()]
    lost = [ids[i] for i in range(len(ids)) if (~one[i] & other[i]).any()]

    def name_axis(group: list[str]) -> str:
        return ", ".join(group) or "none"

    return f"- **{name}**: right only with our reader: {name_axis(gained)}; only with the simple one: {name_axis(lost)}."


if __name__ == "__main__":
    main(pools_argument(__doc__ or ""))
