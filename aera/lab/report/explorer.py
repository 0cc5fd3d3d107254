"""Explorer: each question checkpoint by checkpoint, and why each policy stopped where it did."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from aera.aggregation import Rule
from aera.crew import ALONE, Crew
from aera.lab.dials import GATE
from aera.lab.evaluation import Ballot, Part, Source, Terms, parts_of, replay
from aera.lab.frontier import Point
from aera.lab.report.reliability import Foresight
from aera.lab.trajectory import Columns, Floats, Trajectories
from aera.lab.truths import Truths
from aera.policy import Policy
from aera.response import Prefix
from aera.schedule import Schedule

MOST_QUESTIONS = 2_000
"""Beyond so many a page would be slow to open: those to look at are drawn by chance."""
MOST_CHECKPOINTS = 12
MOST_ANSWERS = 4
LONGEST = 600
"""Characters of a question that are shown."""

HINDSIGHT = {
    "oracle": "the cheapest checkpoint with the best grade, known in hindsight only",
    "matched-random": "the stops of another policy, dealt at random",
    "one-shot": "the checkpoint named once, at the first one",
}


def shown_columns(schedule: Schedule) -> list[int]:
    """All checkpoints, or a spread of them that keeps the first and the last."""
    if len(schedule) <= MOST_CHECKPOINTS:
        return list(range(len(schedule)))
    steps = np.geomspace(1, len(schedule), MOST_CHECKPOINTS).round().astype(int) - 1
    return sorted(set(steps.tolist()))


def shown_rows(questions: int, *, seed: int) -> Columns:
    """All questions, or as many as a page can show, in their order."""
    if questions <= MOST_QUESTIONS:
        return np.arange(questions)
    return np.sort(np.random.default_rng(seed).choice(questions, MOST_QUESTIONS, replace=False))


@dataclass(frozen=True)
class Explored:
    """One question: what was asked and voted, and why each replayed policy stopped."""

    told: Mapping[str, Any]
    reasons: Mapping[str, str]


def explore(
    source: Source,
    question_ids: Sequence[str],
    policies: Mapping[str, Policy],
    *,
    terms: Terms,
    crew: Crew = ALONE,
) -> list[Explored]:
    """These questions, read from wherever they are; nothing of the others is kept."""
    work = partial(_explored, wanted=frozenset(question_ids), policies=policies, terms=terms)
    found = {one.told["id"]: one for part in crew.map(work, parts_of(source)) for one in part}
    return [found[question_id] for question_id in question_ids]


def _explored(
    part: Part, *, wanted: frozenset[str], policies: Mapping[str, Policy], terms: Terms
) -> list[Explored]:
    records = ((item.record if isinstance(item, Ballot) else item, item) for item in part)
    own = [item for record, item in records if record.question.id in wanted]
    return [_explore(ballot, policies, terms) for ballot in terms.ballots(own)]


def _explore(ballot: Ballot, policies: Mapping[str, Policy], terms: Terms) -> Explored:
    prefixes, question = ballot.prefixes(terms.schedule), ballot.record.question
    shown = [prefixes[column] for column in shown_columns(terms.schedule)]
    text = question.text
    told = {
        "id": question.id,
        "text": text if len(text) <= LONGEST else f"{text[:LONGEST]} …",
        **_votes(shown, terms.rule),
    }
    runs = {label: replay(prefixes, policy, task=terms.task) for label, policy in policies.items()}
    return Explored(told, {label: run.allocation.reason for label, run in runs.items()})


def describe_questions(
    explored: Sequence[Explored],
    trajectories: Trajectories,
    *,
    rows: Columns,
    truths: Truths | None,
    seen: Foresight | None,
) -> list[dict[str, Any]]:
    """One record per question in these rows; lists run over checkpoints."""
    columns = shown_columns(trajectories.schedule)
    records = []
    for row, one in zip(rows, explored, strict=True):
        record = {
            **one.told,
            "tokens": [int(value) for value in trajectories.tokens[row, columns]],
            "evidence": {
                name: _short(values[row, columns]) for name, values in trajectories.evidence.items()
            },
        }
        if seen is not None:
            record["p_continue"] = _short(seen.p_continue[row, columns])
        if truths is not None:
            record["truth"] = truths[one.told["id"]]
            record["right"] = [int(right) for right in trajectories.right[row]]
        records.append(record)
    return records


def _votes(prefixes: Sequence[Prefix], rule: Rule) -> dict[str, Any]:
    """The answers with the most votes in the end, with their votes at every checkpoint."""
    last = prefixes[-1].tally.weights
    returned = [rule(prefix).answer for prefix in prefixes]
    ranked = sorted(last, key=lambda answer: -last[answer])
    names = ranked[:MOST_ANSWERS]
    # An answer that led once is shown even where it lost its votes' rank later.
    names += [a for a in dict.fromkeys(returned) if a is not None and a in last and a not in names]
    table = [[prefix.tally.weights.get(name, 0.0) for prefix in prefixes] for name in names]
    spare = [p.tally.total - sum(row[i] for row in table) for i, p in enumerate(prefixes)]
    silent = [sum(vote.answer is None for vote in prefix.votes) for prefix in prefixes]
    return {
        "answers": names,
        "votes": [[round(weight, 2) for weight in row] for row in table],
        "others": [round(max(0.0, weight), 2) for weight in spare],
        "silent": silent,
        "returned": returned,
    }


def _short(values: Floats) -> list[float | None]:
    """Three decimals; null where there is no number."""
    return [None if np.isnan(value) else round(float(value), 3) for value in values]


# --- why policies stop --------------------------------------------------------------------------


class Account:
    """Collects the distinct reasons of one policy, and which of them each question had."""

    def __init__(self) -> None:
        self.reasons: dict[str, int] = {}
        self.why: list[int] = []

    def add(self, reason: str) -> None:
        """The next question's reason."""
        self.why.append(self.reasons.setdefault(reason, len(self.reasons)))

    def as_json(self) -> dict[str, Any]:
        """Reasons once, and their numbers question by question."""
        return {"reasons": list(self.reasons), "why": self.why}


def account(
    point: Point, explored: Sequence[Explored], *, rows: Columns, seen: Foresight | None
) -> Account:
    """Why a policy stopped, question by question."""
    if not explored or point.policy not in explored[0].reasons:
        return learned_account(point, rows=rows, seen=seen)
    replayed = Account()
    for one in explored:
        replayed.add(one.reasons[point.policy])
    return replayed


def learned_account(point: Point, *, rows: Columns, seen: Foresight | None) -> Account:
    """Why a point that was never replayed stopped: its setting, fold by fold where calibrated."""
    folds: Columns = seen.folds if seen else np.zeros(len(point.columns), dtype=np.int64)
    last = len(point.trajectories.schedule) - 1
    name = point.policy.removesuffix("-calibrated")
    choices = seen.choices.get(name, ()) if seen and name != point.policy else ()
    account = Account()
    for column, number in zip(point.columns[rows], folds[rows], strict=True):
        if choices:
            fold = f", fold {number + 1}" if len(choices) > 1 else ""
            account.add(_chosen(name, choices[number].setting, fold, full=column == last))
        elif column == last and point.policy not in HINDSIGHT:
            account.add("full budget")
        else:
            account.add(HINDSIGHT.get(point.policy) or _reached(*_parsed(point.policy)))
    return account


def _chosen(name: str, setting: float | None, fold: str, *, full: bool) -> str:
    origin = f"chosen on other questions{fold}"
    if setting is None:
        return f"calibration kept the full budget{fold}"
    return f"full budget ({name} {setting:g}, {origin})" if full else (
        f"{_reached(name, f'{setting:g}')}, {origin}"
    )  # fmt: skip


def _parsed(label: str) -> tuple[str, str]:
    name, _, setting = label.partition("-")
    return name, setting


def _reached(name: str, setting: str) -> str:
    return f"p_continue below {setting}" if name == GATE.name else f"{name} reached {setting}"


def thresholds(point: Point, *, rows: Columns, seen: Foresight | None) -> list[float | None] | None:
    """The gate's threshold for each question, None for a policy without a gate."""
    name, setting = _parsed(point.policy)
    if name != GATE.name or seen is None:
        return None
    if setting != "calibrated":
        return [float(setting.partition("+")[0])] * len(rows)
    return [seen.choices[GATE.name][fold].setting for fold in seen.folds[rows]]
