"""Explorer: each question checkpoint by checkpoint, and why each policy stopped where it did."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from aera.arrays import Columns, Floats
from aera.core import Prefix
from aera.lab.calibrating.calibration import Choice
from aera.lab.calibrating.families import GATE_FAMILY
from aera.lab.replay.frontier import Kind, Point
from aera.lab.replay.replay import ReplaySettings
from aera.lab.replay.trajectory import Trajectories
from aera.lab.report.figure import shown_columns
from aera.lab.report.reliability import Predictions
from aera.lab.report.responses import Room, show_responses
from aera.lab.truths import Truths
from aera.policies.rules import Policy
from aera.pools.pool import Record, Records, VotedRecord
from aera.solving.replay import replay
from aera.voting.rules import Rule
from aera.workers import SERIAL, Workers

MOST_QUESTIONS = 2_000
"""Beyond so many a page would be slow to open: those to look at are drawn by chance."""
MOST_ANSWERS = 4
LONGEST = 600
"""Characters of a question that are shown."""

HINDSIGHT = {
    "oracle": "the cheapest checkpoint with the best grade, known in hindsight only",
    "matched-random": "the stops of another policy, dealt at random",
    "one-shot": "the checkpoint named once, at the first one",
}


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

    def over(self, other: "Explored") -> "Explored":
        """This one's votes and weights, with the texts and the reasons that the other has."""
        pairs = zip(self.told["responses"], other.told["responses"], strict=True)
        texts = [{**own, "text": own["text"] or read["text"]} for own, read in pairs]
        told = {**self.told, "responses": texts}
        return Explored(told, {**other.reasons, **self.reasons})


def explore(
    records: Records,
    question_ids: Sequence[str],
    policies: Mapping[str, Policy],
    *,
    settings: ReplaySettings,
    workers: Workers = SERIAL,
) -> list[Explored]:
    """These questions, read from wherever they are; nothing of the others is kept."""
    wanted = frozenset(question_ids)
    room = Room.of(len(question_ids))
    work = partial(_explore_part, wanted=wanted, policies=policies, settings=settings, room=room)
    found = {one.told["id"]: one for part in workers.map(work, records.parts()) for one in part}
    return [found[question_id] for question_id in question_ids]


def _explore_part(
    part: Iterable[Record],
    *,
    wanted: frozenset[str],
    policies: Mapping[str, Policy],
    settings: ReplaySettings,
    room: Room,
) -> list[Explored]:
    own = [record for record in part if record.question.id in wanted]
    return [_explore(record, policies, settings, room) for record in settings.read(own)]


def _explore(
    record: VotedRecord, policies: Mapping[str, Policy], settings: ReplaySettings, room: Room
) -> Explored:
    prefixes, text = record.prefixes(settings.schedule), record.question.text
    shown = [prefixes[column] for column in shown_columns(settings.schedule)]
    told = {
        "id": record.question.id,
        "text": text if len(text) <= LONGEST else f"{text[:LONGEST]} …",
        **_votes(shown, settings.rule),
        "responses": show_responses(record, room, count=settings.schedule.last),
    }
    reasons = {
        label: replay(prefixes, policy, task=settings.task).allocation.reason
        for label, policy in policies.items()
    }
    return Explored(told, reasons)


def describe_questions(
    explored: Sequence[Explored],
    trajectories: Trajectories,
    *,
    rows: Columns,
    truths: Truths | None,
    seen: Predictions | None,
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
    """The answers with the most weight in the end, with their weights at every checkpoint."""
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
        "weights": [[round(weight, 2) for weight in row] for row in table],
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
    point: Point, explored: Sequence[Explored], *, rows: Columns, seen: Predictions | None
) -> Account:
    """Why a policy stopped, question by question."""
    if not explored or point.policy not in explored[0].reasons:
        return learned_account(point, rows=rows, seen=seen)
    replayed = Account()
    for one in explored:
        replayed.add(one.reasons[point.policy])
    return replayed


def learned_account(point: Point, *, rows: Columns, seen: Predictions | None) -> Account:
    """Why a point that was never replayed stopped: its setting, fold by fold where calibrated."""
    folds: Columns = seen.folds if seen else np.zeros(len(point.columns), dtype=np.int64)
    last = len(point.trajectories.schedule) - 1
    calibrated = point.kind is Kind.CALIBRATED and seen is not None
    choices = seen.choices.get(point.family, ()) if seen and calibrated else ()
    account = Account()
    for column, number in zip(point.columns[rows], folds[rows], strict=True):
        if choices:
            fold = f", fold {number + 1}" if len(choices) > 1 else ""
            account.add(_describe_choice(choices[number], fold, full=column == last))
        elif point.family in HINDSIGHT:
            account.add(HINDSIGHT[point.family])
        else:
            account.add(
                "full budget" if column == last else _describe_stop(point.family, point.setting)
            )
    return account


def _describe_choice(choice: Choice, fold: str, *, full: bool) -> str:
    origin = f"chosen on other questions{fold}"
    if choice.setting is None:
        return f"calibration kept the full budget{fold}"
    if full:
        return f"full budget ({choice.family} {choice.setting:g}, {origin})"
    return f"{_describe_stop(choice.family, choice.setting)}, {origin}"


def _describe_stop(family: str, setting: float | None) -> str:
    shown = "" if setting is None else f"{setting:g}"
    return (
        f"p_continue below {shown}" if family == GATE_FAMILY.name else f"{family} reached {shown}"
    )


def thresholds(
    point: Point, *, rows: Columns, seen: Predictions | None
) -> list[float | None] | None:
    """The gate's threshold for each question, None for a policy without a gate."""
    if point.family != GATE_FAMILY.name or seen is None:
        return None
    if point.kind is not Kind.CALIBRATED:
        return [point.setting] * len(rows)
    choices = seen.choices[GATE_FAMILY.name]
    own = [choice.setting if choice.family == GATE_FAMILY.name else None for choice in choices]
    return [own[fold] for fold in seen.folds[rows]]
