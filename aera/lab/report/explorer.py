"""Explorer: each question checkpoint by checkpoint, and why each policy stopped where it did."""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from aera.arrays import Columns, Floats
from aera.core import Prefix, Response, Vote
from aera.lab.calibrating.families import GATE_FAMILY
from aera.lab.frontier import Kind, Point, Trajectories
from aera.lab.replay import ReplaySettings
from aera.lab.report.figures import Predictions, shown_columns
from aera.lab.truths import Truths
from aera.pools.pool import HeldRecords, Record, Records, VotedRecord
from aera.voting.rules import Rule
from aera.workers import SERIAL, Workers

MOST_QUESTIONS = 2_000
"""Beyond so many a page would be slow to open: those to look at are drawn by chance."""
MOST_ANSWERS = 4
LONGEST = 600
"""Characters of a question that are shown."""
MOST_CHARACTERS = 550_000
"""Of all responses on a page."""
MOST_RESPONSES, FEWEST = 8, 2
"""Responses of one question."""
LONGEST_RESPONSE = 1_000
"""Characters of one response; the middle of a longer one is left out."""
WORTH = 600
"""Characters that make a response worth showing, where there are many questions."""

HINDSIGHT = {
    "oracle": "the cheapest checkpoint with the best grade, known in hindsight only",
    "matched-random": "the stops of another policy, dealt at random",
    "one-shot": "the checkpoint named once, at the first one",
    "first-valid": "the first response that could be read",
}
Told = dict[str, Any]


# --- responses -----------------------------------------------------------------------------------


def find_room(questions: int) -> tuple[int, int]:
    """How many responses of each of so many questions there is room for, and how much of each."""
    own = MOST_CHARACTERS // max(1, questions)
    count = max(FEWEST, min(MOST_RESPONSES, own // WORTH))
    return count, min(LONGEST_RESPONSE, own // count)


def show_responses(record: VotedRecord, room: tuple[int, int], *, count: int) -> list[Told]:
    """Some of the first `count` responses, in their order.

    The first one, one for each answer that many gave, one that could not be read, then the next.
    """
    most, characters = room
    said = [vote.answer for vote in record.votes[:count]]
    # By how many gave it, not by weight: whoever weighs otherwise sees the same responses.
    frequent = [answer for answer, _ in Counter(a for a in said if a is not None).most_common(most)]
    unread = [said.index(None)] if None in said else []
    wanted = [0, *(said.index(answer) for answer in frequent[:4]), *unread]
    wanted += [*(said.index(answer) for answer in frequent[4:]), *range(len(said))]
    places = sorted(list(dict.fromkeys(wanted))[:most])
    return [_show(at, record.responses[at], record.votes[at], characters) for at in places]


def _show(place: int, response: Response, vote: Vote, characters: int) -> Told:
    told = {
        "number": place + 1,
        "answer": vote.answer,
        "weight": round(vote.weight, 3),
        "tokens": response.tokens,
        "text": shorten(response.text or (response.answer or ""), characters),
    }
    if vote.answer is not None:
        return told
    cut = "cut off before an answer" if response.truncated else "no answer could be found"
    return {**told, "why": "failed" if response.error is not None else cut}


def shorten(text: str, most: int) -> str:
    """The beginning and, where an answer would stand, more of the end."""
    if len(text) <= most:
        return text
    head, tail = most // 3, most - most // 3
    return f"{text[:head]} … [{len(text) - most:,} characters left out] … {text[-tail:]}"


# --- questions -----------------------------------------------------------------------------------


def shown_rows(questions: int, *, seed: int) -> Columns:
    """All questions, or as many as a page can show, in their order."""
    if questions <= MOST_QUESTIONS:
        return np.arange(questions)
    return np.sort(np.random.default_rng(seed).choice(questions, MOST_QUESTIONS, replace=False))


def describe_questions(
    explored: Sequence[Told],
    trajectories: Trajectories,
    *,
    truths: Truths | None,
    rows: Columns,
    seen: Predictions | None,
) -> list[Told]:
    """One record per question in these rows; lists run over checkpoints."""
    columns, records = shown_columns(trajectories.schedule), list[Told]()
    for row, told in zip(rows, explored, strict=True):
        record = {
            **told,
            "tokens": [int(value) for value in trajectories.tokens[row, columns]],
            "evidence": {
                name: _short(values[row, columns]) for name, values in trajectories.evidence.items()
            },
        }
        if seen is not None:
            record["p_continue"] = _short(seen.p_continue[row, columns])
        if truths is not None:
            record["truth"] = truths[told["id"]]
            record["right"] = [int(right) for right in trajectories.right[row]]
        records.append(record)
    return records


def explore(
    records: Records,
    names: Sequence[str],
    settings: ReplaySettings,
    *,
    learned: Sequence[VotedRecord] = (),
    workers: Workers = SERIAL,
) -> list[Told]:
    """These questions, read from wherever they are; nothing of the others is kept.

    What a protocol learned has votes with the weights of their fold, but it may have no texts.
    """
    found = _read(records, names, settings, workers)
    if learned:
        own = HeldRecords(learned, settings.task, settings.schedule)
        for name, told in _read(own, names, settings, workers).items():
            texts = zip(told["responses"], found[name]["responses"], strict=True)
            told["responses"] = [
                {**one, "text": one["text"] or whole["text"]} for one, whole in texts
            ]
            found[name] = told
    return [found[name] for name in names]


def _read(
    records: Records, names: Sequence[str], settings: ReplaySettings, workers: Workers
) -> dict[str, Told]:
    room = find_room(len(names))
    work = partial(_read_part, wanted=frozenset(names), settings=settings, room=room)
    return {told["id"]: told for part in workers.map(work, records.parts()) for told in part}


def _read_part(
    part: Iterable[Record],
    *,
    wanted: frozenset[str],
    settings: ReplaySettings,
    room: tuple[int, int],
) -> list[Told]:
    own = [record for record in part if record.question.id in wanted]
    schedule, told = settings.schedule, list[Told]()
    for record in settings.read(own):
        prefixes, text = record.prefixes(schedule), record.question.text
        shown = [prefixes[column] for column in shown_columns(schedule)]
        told.append(
            {
                "id": record.question.id,
                "text": text if len(text) <= LONGEST else f"{text[:LONGEST]} …",
                **_votes(shown, settings.rule),
                "responses": show_responses(record, room, count=schedule.last),
            }
        )
    return told


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


def account(point: Point, *, rows: Columns, seen: Predictions | None) -> Told:
    """Where a policy stopped and why, question by question; each reason is written once."""
    folds = seen.folds if seen else np.zeros(len(point.columns), dtype=np.int64)
    choices = seen.choices.get(point.family, ()) if seen and point.kind is Kind.CALIBRATED else ()
    last, reasons, why, below = len(point.trajectories.schedule) - 1, dict[str, int](), [], []
    for row in rows:
        setting, family, where = point.setting, point.family, ""
        if choices:
            choice = choices[folds[row]]
            setting, family = choice.setting, choice.family
            where = f"fold {folds[row] + 1}" if len(choices) > 1 else ""
        said = None if seen is None else seen.p_continue[row, point.columns[row]]
        asked = family != GATE_FAMILY.name or said is None or said < (setting or 0.0)
        reason = _describe_stop(family, setting, full=point.columns[row] == last, asked=asked)
        if choices:
            origin = "kept by calibration" if setting is None else "chosen on other questions"
            reason = ", ".join(filter(None, (reason, origin, where)))
        why.append(reasons.setdefault(reason, len(reasons)))
        below.append(setting if family == GATE_FAMILY.name else None)
    told = {"policy": point.policy, "stops": point.columns[rows].tolist()}
    told |= {"reasons": list(reasons), "why": why}
    gated = seen is not None and point.family == GATE_FAMILY.name
    return {**told, "thresholds": below} if gated else told


def _describe_stop(family: str, setting: float | None, *, full: bool, asked: bool) -> str:
    if family in HINDSIGHT:
        return HINDSIGHT[family]
    if family == Kind.FIXED.value:
        return "fixed budget"
    if full or setting is None:
        return "full budget"
    if family != GATE_FAMILY.name:
        return f"{family} reached {setting:g}"
    return f"p_continue below {setting:g}" if asked else "stopped before the gate was asked"
