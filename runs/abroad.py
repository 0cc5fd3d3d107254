"""The bundled controller away from home: what it loses, when it notices, and how often in error.

POOLS also holds traces/ (gsm8k-half, math500) and others/ (see runs/others.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median

import numpy as np
from pools import ROOT, interval, open_pool, pools_argument, publish, table

from aera import ASC, Controller, Question
from aera.lab import WINDOW, Flags, Floats, Home, Lookout, Truths, evaluate, hold, paired_bootstrap

POOLS = {
    "gsm8k": "gsm8k, unseen questions",
    "traces/gsm8k-half": "gsm8k, unseen questions, the 0.5B",
    "svamp": "svamp",
    "csqa": "csqa",
    "math": "math",
    "traces/math500": "math500",
    "others/math500-phi4": "math500, Phi-4-reasoning",
}
ORDERS = 200
PLAIN = ASC(0.95)


@cache
def questions_of(folder: Path, name: str) -> list[Question]:
    return [*open_pool(folder, name).questions.values()]


# --- noticing -------------------------------------------------------------------------------------


def walk(home: Home | None, questions: Sequence[Question], order: Sequence[int]) -> list[int]:
    """What a lookout says of questions in one order: 0 home, 1 doubt, 2 abroad."""
    lookout = Lookout(home)
    return [lookout.see(questions[place]) + lookout.abroad for place in order]


def find_first(said: Sequence[int]) -> float:
    """How many questions it took to call it abroad."""
    return said.index(2) + 1 if 2 in said else float("inf")


def random_orders(count: int) -> list[list[int]]:
    rng = np.random.default_rng(0)
    return [rng.permutation(count).tolist() for _ in range(ORDERS)]


def share_noticed(home: Home | None, questions: Sequence[Question]) -> str:
    """Percent of orders in which it calls itself abroad within the first questions."""
    noticed = [
        find_first(walk(home, questions, order[:WINDOW])) <= WINDOW
        for order in random_orders(len(questions))
    ]
    return f"{100 * np.mean(noticed):.1f}"


# --- losing ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Judged:
    """Questions that a controller has not seen, by itself and by plain votes."""

    questions: list[Question]
    own: Floats
    own_tokens: Floats
    plain: Floats
    plain_tokens: Floats


def judge(folder: Path, name: str, controller: Controller) -> Judged:
    pool = open_pool(folder, name)
    truths, records = Truths.open(pool.path), hold(pool)
    assert truths is not None
    plain = evaluate(records, [PLAIN], truths=truths)[PLAIN]
    own = evaluate(records, [controller.policy], truths=truths, weigher=controller.weigher).points[
        0
    ]
    ids = plain.trajectories.question_ids
    seen = set(controller.find_seen(pool.questions.values()))
    rows = np.array([row for row, key in enumerate(ids) if key not in seen])
    return Judged(
        [pool.questions[ids[row]] for row in rows],
        own.scores[rows],
        own.spent[rows],
        plain.scores[rows],
        plain.spent[rows],
    )


def row_of(name: str, judged: Judged, controller: Controller) -> list[str]:
    """All questions counted, also those answered before anything was noticed."""
    count = len(judged.questions)
    orders = random_orders(count)
    stood_in: Flags = np.zeros((ORDERS, count), bool)
    firsts = []
    for said, order in zip(stood_in, orders, strict=True):
        verdicts = walk(controller.home, judged.questions, order)
        said[order] = np.array(verdicts) > 0
        firsts.append(find_first(verdicts))
    share = stood_in.mean(axis=0)
    scores = share * judged.plain + (1 - share) * judged.own
    tokens = share * judged.plain_tokens + (1 - share) * judged.own_tokens
    trusted = paired_bootstrap(100 * judged.own, 100 * judged.plain, seed=0)
    guarded = paired_bootstrap(100 * scores, 100 * judged.plain, seed=0)
    lookout = controller.make_lookout()
    batch = judged.plain if lookout.survey(judged.questions) else judged.own
    orders_lost = (np.where(stood_in, judged.plain, judged.own) - judged.plain).mean(axis=1)
    within = np.mean([first <= WINDOW for first in firsts])
    return [
        POOLS[name],
        f"{count}",
        f"{100 * judged.plain.mean():.2f}",
        f"{trusted.difference:+.2f} {interval(trusted.low, trusted.high)}",
        f"{guarded.difference:+.2f} {interval(guarded.low, guarded.high)}",
        f"{100 * orders_lost.min():+.2f}",
        f"{100 * (batch - judged.plain).mean():+.2f}",
        f"{100 * tokens.sum() / judged.plain_tokens.sum():.0f}",
        f"{100 * within:.1f}",
        f"{median(firsts):.0f}" if np.isfinite(median(firsts)) else "never",
    ]


# --- other homes ----------------------------------------------------------------------------------


def half(questions: Sequence[Question], part: int) -> list[Question]:
    return [each for place, each in enumerate(questions) if place % 2 == part]


def homes_table(folder: Path) -> str:
    """Every pool in turn is home, taught by every second question; the others walk in."""
    names = ("gsm8k", "svamp", "csqa", "math")
    met = {"its other half": "", **{POOLS[n].partition(",")[0]: n for n in names}}
    met |= {"math500": "traces/math500"}
    rows = []
    for name in names:
        home = Home.of(half(questions_of(folder, name), 0))
        walks = []
        for other in met.values():
            if other == name:
                walks.append("")
                continue
            asked = questions_of(folder, other) if other else half(questions_of(folder, name), 1)
            walks.append(share_noticed(home, asked))
        rows.append([name, *walks])
    return table(["home", *met], rows)


def main() -> None:
    folder = pools_argument(__doc__ or "")
    controller = Controller.load(ROOT / "aera" / "demo" / "controller")
    rows = [row_of(name, judge(folder, name, controller), controller) for name in POOLS]
    header = [
        "met", "questions", "ASC(0.95) %", "trusted, against ASC", "with its lookout, against ASC",
        "its worst order", "as a batch", "tokens, % of ASC's", f"abroad within {WINDOW}, % of orders",
        "after questions, median",
    ]  # fmt: skip
    publish("abroad", table(header, rows))
    later = Home.of(questions_of(folder, "gsm8k")[400:])
    early = questions_of(folder, "gsm8k")[:400]
    weaker = questions_of(folder, "traces/gsm8k-half")
    said = [
        ["400 unseen questions of the 1.5B", share_noticed(later, early)],
        ["300 unseen questions of the 0.5B", share_noticed(later, weaker)],
    ]
    publish("abroad-home", table(["home: gsm8k 400 to 799", "abroad, % of orders"], said))
    publish("abroad-homes", homes_table(folder))


if __name__ == "__main__":
    main()
