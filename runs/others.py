"""Answers and tokens recorded by others, without texts: nested, 2 points allowed, five split seeds.

The pools are those of the repository jkomiyama/BoInf-code-publish (commit fbcb097): GPQA-Diamond,
MATH-500 and AIME 2024/2025, sampled from Phi-4-reasoning and gpt-oss-20b. POOLS has them in its
folder `others`.
"""

from pathlib import Path

from judged import FULL, judged
from pools import held, pools_argument, publish, table
from rivals import Outcome, gap, share

from aera import ASC
from aera.lab import evaluate

NAMES = {
    "others/gpqa-phi4": "GPQA-Diamond, Phi-4-reasoning",
    "others/math500-phi4": "MATH-500, Phi-4-reasoning",
    "others/aime-phi4": "AIME 2024/25, Phi-4-reasoning",
    "others/aime-gptoss20b": "AIME 2024/25, gpt-oss-20b",
}


def rows_of(folder: Path, name: str) -> list[list[str]]:
    """The full budget, ASC(0.95) and both calibrated policies, on plain or weighted votes."""
    records, truths = held(folder, name)
    plain, found = evaluate(records, [ASC(0.95)], truths=truths), judged(folder, name)
    full, own = Outcome.of(plain.full_budget()), found.at("weighted", FULL)
    shown = {
        plain.full_budget().policy: full,
        "asc-0.95": Outcome.of(plain[ASC(0.95)]),
        "AERA": found.at("weighted", "aera"),
        "ASC, calibrated alike": found.at("weighted", "asc"),
    }
    return [
        [
            f"{NAMES[name]}: {label}",
            f"{len(full.scores)}",
            f"{100 * done.scores.mean():.2f}",
            *gap(done, full),
            " ".join(gap(done, own)),
            " ".join(share(done, full)),
        ]
        for label, done in shown.items()
    ]


HEADER = ["pool: policy", "questions", "accuracy %", "against all plain votes", "95 %"]
HEADER += ["against AERA's full budget", "tokens, % of all votes"]


def main(folder: Path) -> None:
    publish("others", table(HEADER, [row for name in NAMES for row in rows_of(folder, name)]))


if __name__ == "__main__":
    main(pools_argument(__doc__ or ""))
