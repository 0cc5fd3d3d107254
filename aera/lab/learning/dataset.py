"""Dataset: everything known of the questions of a pool that a learner works on, row by row.

Responses to one question are exchangeable where they were sampled alike, so any order of them is as
good as the stored one, and what holds in many orders is no luck of one. `Dataset.replay` does what
a Run does, for all questions, orders and checkpoints at once.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from itertools import pairwise
from math import inf, lgamma, log, nan, sqrt
from typing import Any

import numpy as np

from aera.arrays import Columns, Flags, Floats
from aera.core import Question, Schedule, beta_confidence
from aera.lab.learning.folds import group_questions
from aera.lab.replay.trajectory import Trajectories, prompt_lengths, re2_means
from aera.lab.truths import Grader, Truths
from aera.policies.features import TINY
from aera.pools.pool import Record, Records, VotedRecord, health_of, read_votes
from aera.reading.task import NOTHING, Readability, Task
from aera.voting.rules import Rule, Scorer, plain_vote
from aera.voting.traits import traits
from aera.workers import SERIAL, Workers, map_named

ORDERS = 20
"""Random orders of its responses in which every question is replayed."""
SUSPECT = 4.5
"""Standard errors by which some responses may differ from the others of their questions."""
AT_ONCE = 64
"""Questions replayed together, which bounds the memory."""
_log_gamma = np.frompyfunc(lgamma, 1, 1)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Questions with what every response says, costs and is worth; arrays (questions, responses).

    Where answers are voted on, a response is worth the grade of its answer. Where a scorer picks
    one, every response votes for its own text by its score, and is worth its reward.
    """

    name: str
    task: Task
    schedule: Schedule
    records: tuple[VotedRecord, ...]
    """Without their texts, which have been read."""
    answers: Columns
    """A number for each different answer to a question, -1 for none."""
    grades: Floats
    traits: Floats
    """With one axis more."""
    said: Floats
    """The grade of what each response says, also of a redo: for the paper's score."""
    redo: Flags
    truths: Truths | None = None
    scores: Floats | None = None
    rewarded: bool = False
    """Whether grades are rewards, any real numbers."""
    readability: Readability = NOTHING
    rule: Rule = plain_vote
    """Which answer a prefix returns; one that counts raw boxes leaves nothing to weights."""
    seed: int = 0
    """Of the random orders."""

    def __len__(self) -> int:
        return len(self.records)

    @property
    def questions(self) -> tuple[Question, ...]:
        """One per row."""
        return tuple(record.question for record in self.records)

    @cached_property
    def groups(self) -> Columns:
        """A number per row, the same for questions that no split may part."""
        return group_questions(self.questions)

    @property
    def voted(self) -> Flags:
        """Which responses vote."""
        return self.answers >= 0

    @cached_property
    def tokens(self) -> Floats:
        """What each response took."""
        return np.array([[float(r.tokens) for r in each.responses] for each in self.records])

    @cached_property
    def orders(self) -> Columns:
        """The stored order of every question's responses, then random ones."""
        questions, responses = self.answers.shape
        places = np.tile(np.arange(responses), (questions, 1 + ORDERS, 1))
        places[:, 1:] = np.random.default_rng(self.seed).permuted(places[:, 1:], axis=2)
        return places

    @cached_property
    def exchangeable(self) -> bool:
        """Whether the responses to all these questions may come in any order."""
        return self.is_exchangeable(np.arange(len(self)))

    def is_exchangeable(self, rows: Columns) -> bool:
        """Whether the responses to these questions may come in any order."""
        return self.rule is plain_vote and self.find_drift(rows) is None

    def find_drift(self, rows: Columns) -> str | None:
        """How responses differ by their place among those of a question; None where they do not.

        Block by block of the schedule, by their tokens and by how many say what the full vote says.
        """
        answers, worst, told = self.answers[rows], SUSPECT, None
        last = np.array([self.schedule.last])
        winner = count_votes(answers[:, None], np.ones((len(rows), 1, 1)), last).winner[:, 0]
        agree = (answers == winner) & (answers >= 0)
        ends = [0, *self.schedule]
        for what, values in (("agree with the vote", agree * 1.0), ("cost", self.tokens[rows])):
            apart = values - values.mean(axis=1, keepdims=True)
            responses = values.shape[1]
            for start, end in pairwise(ends):
                size = end - start
                share = size * (responses - size) / max(1, responses * (responses - 1))
                error = float(np.sqrt((apart**2).sum() * share + 1e-9))
                found = abs(float(apart[:, start:end].sum())) / error
                if found > worst:
                    worst = found
                    told = f"responses {start + 1} to {end} {what} otherwise than the others"
        return told

    def replay(
        self, rows: Columns, weights: Floats | None = None, *, mixed: bool = True
    ) -> Trajectories:
        """These questions with these weights, in the stored order and, if `mixed`, in others."""
        count = 1 + ORDERS if mixed else 1
        given = self.scores if self.scores is not None else np.ones(self.answers.shape)
        weights = given[rows] if weights is None else weights
        parts = [slice(start, start + AT_ONCE) for start in range(0, len(rows), AT_ONCE)]
        done = Trajectories.concat(
            [self._replay(rows[part], weights[part], orders=count) for part in parts]
        )
        return done if self.rule is plain_vote else self._by_rule(rows, done)

    def weigh(self, rows: Columns, weights: Floats | None) -> list[VotedRecord]:
        """The records of these rows with other weights; None leaves them plain."""
        chosen = [self.records[row] for row in rows]
        if weights is None:
            return chosen
        return [each.with_weights(own) for each, own in zip(chosen, weights, strict=True)]

    def _replay(self, rows: Columns, weights: Floats, *, orders: int) -> Trajectories:
        places, ends = self.orders[rows, :orders], np.array(self.schedule.checkpoints)

        def sort(values: Any) -> Any:
            return np.take_along_axis(values[:, None], places, 2)

        tokens = np.cumsum(sort(self.tokens[rows]), axis=2)[..., ends - 1]
        scored = self.scores is not None
        votes = count_votes(sort(self.answers[rows]), sort(weights), ends, best=scored)
        known: dict[str, Any] = {}
        if scored or self.truths is not None:
            worth = np.take_along_axis(sort(self.grades[rows]), votes.place, 2)
            known["grades"] = np.where(votes.winner >= 0, worth, 0.0)
        if not scored and self.truths is not None:
            known["re2_mean"] = re2_means(sort(self.said[rows]), ~sort(self.redo[rows]), ends)
        chosen = [self.records[row] for row in rows]
        return Trajectories(
            question_ids=tuple(record.question.id for record in chosen),
            schedule=self.schedule,
            tokens=tokens,
            agreement=(votes.winner == votes.winner[..., -1:]).astype(np.float64),
            evidence={"majority_ratio": votes.majority, "entropy": votes.entropy},
            prompts=prompt_lengths(chosen),
            rewarded=self.rewarded,
            values={"score": votes.lead} if scored else votes.measures,
            features=votes.features(tokens, ends),
            **known,
        )

    def _by_rule(self, rows: Columns, done: Trajectories) -> Trajectories:
        """The same with the answers that another rule returns, in the stored order."""
        graded, agreed = [], []
        for record in (self.records[row] for row in rows):
            said = [self.rule(prefix).answer for prefix in record.prefixes(self.schedule)]
            agreed.append([float(answer == said[-1]) for answer in said])
            if self.truths is not None:
                graded.append(Grader(self.task, self.truths[record.question.id]).grade(said))
        grades = np.array(graded)[:, None] if graded else None
        return replace(done, agreement=np.array(agreed)[:, None], grades=grades)


# --- votes ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Votes:
    """How votes stand, shape (questions, orders, checkpoints)."""

    winner: Columns
    """The leading answer, -1 without a vote; of equals the one that was seen first."""
    place: Columns
    """Where in its order it was first seen."""
    lead: Floats
    rival: Floats
    total: Floats
    lead_count: Columns
    rival_count: Columns
    """The largest count of any other answer, which need not be the rival by weight."""
    valid: Columns
    entropy: Floats
    tail: Columns
    """How many of the latest responses agree without a gap."""

    @property
    def majority(self) -> Floats:
        """Share of the valid weight behind the leader, 0 without a vote."""
        share: Floats = self.lead / np.where(self.total > 0, self.total, 1.0)
        return share

    @cached_property
    def confidence(self) -> Floats:
        """The chance that the leader is ahead of the runner-up in truth."""
        return confidences(self.lead, self.rival)

    @property
    def measures(self) -> dict[str, Floats]:
        """What the families of rules on answers look at, by their name."""
        seen = self.winner >= 0
        return {
            "asc": np.where(seen, self.confidence, -inf),
            "esc": self.tail.astype(np.float64),
            "lead": self.lead - self.rival,
            "majority": np.where(seen, self.majority, -inf),
            "entropy": np.where(seen, self.entropy, inf),
        }

    def features(self, tokens: Floats, ends: Columns) -> Floats:
        """The features of the vote (aera/policies/features.py), on one axis more."""
        lead, rival, both = self.lead, self.rival, self.lead + self.rival
        whole = np.where(self.total > 0, self.total, 1.0)
        left = (ends[-1] - ends) * both / ends
        share = (lead + 1) / (both + 2)
        spread = left * share * (1 - share) * (both + 2 + left) / (both + 3)
        ahead = (lead - rival + left * (2 * share - 1)) / (2 * np.sqrt(spread + 0.05))
        horizon, logs = np.clip(ahead, -4.0, 6.0), np.broadcast_to(np.log(ends), lead.shape)
        changed = self.winner[..., 1:] != self.winner[..., :-1]
        columns = np.arange(len(ends))
        since = np.maximum.accumulate(np.where(changed, columns[1:], 0), axis=-1)
        persistence = columns - np.concatenate([np.zeros_like(since[..., :1]), since], axis=-1) + 1
        plain = confidences(self.lead_count, self.rival_count)
        found: Floats = np.stack(
            [
                logs,
                np.log1p(tokens / ends),
                self.majority,
                (lead - rival) / whole,
                np.log1p(lead),
                np.log1p(rival),
                lead / np.maximum(1, self.lead_count),
                self.total / np.maximum(1, self.valid),
                np.log(TINY + 1 - self.confidence),
                np.log(TINY + 1 - plain),
                persistence,
                horizon,
                horizon * logs,
            ],
            axis=-1,
        )
        return found


def count_votes(answers: Columns, weights: Floats, ends: Columns, *, best: bool = False) -> Votes:
    """Count votes in every order, shape (questions, orders, responses), as a Tally does.

    With `best`, the largest weight of an answer counts, for scores do not add up.
    """
    shape, kinds = answers.shape, int(answers.max(initial=0)) + 1
    rows = np.arange(shape[0] * shape[1])
    flat = answers.reshape(len(rows), -1)
    own = np.broadcast_to(weights, shape).reshape(flat.shape)
    there = flat >= 0
    cells = rows[:, None] * kinds + flat
    seen = np.full(len(rows) * kinds, shape[2])
    firsts = np.broadcast_to(np.arange(shape[2]), flat.shape)
    seen[cells[there][::-1]] = firsts[there][::-1]  # of several places the last one stays
    first = seen.reshape(-1, kinds)
    table, counts = np.zeros(len(seen)), np.zeros(len(seen), np.int64)
    found: dict[str, list[Any]] = {each.name: [] for each in fields(Votes)}
    start = 0
    for end in ends:
        block = cells[:, start:end][there[:, start:end]]
        added = own[:, start:end][there[:, start:end]]
        (np.maximum if best else np.add).at(table, block, added)
        counts += np.bincount(block, minlength=len(counts))
        number, held = counts.reshape(-1, kinds), table.reshape(-1, kinds)
        known = np.where(number > 0, held, -1.0)
        lead = known.max(axis=1)
        winner = np.where(known == lead[:, None], first, shape[2] + 1).argmin(axis=1)
        others, rest = known.copy(), number.copy()
        others[rows, winner] = -1.0
        rest[rows, winner] = 0
        total = held.sum(axis=1)
        voted = lead >= 0
        told = {
            "winner": np.where(voted, winner, -1),
            "place": np.where(voted, first[rows, winner], 0),
            "lead": np.maximum(lead, 0.0),
            "rival": np.maximum(others.max(axis=1), 0.0),
            "total": total,
            "lead_count": number[rows, winner],
            "rival_count": rest.max(axis=1),
            "valid": number.sum(axis=1),
            "entropy": _entropy(held, total),
            "tail": _tail(flat[:, :end]),
        }
        for name, values in told.items():
            found[name].append(values.reshape(shape[:2]))
        start = end
    return Votes(**{name: np.stack(values, axis=-1) for name, values in found.items()})


def _entropy(held: Floats, total: Floats) -> Floats:
    """Of the shares, divided by its maximum for that many answers."""
    shares = held / np.where(total > 0, total, 1.0)[:, None]
    kinds = (held > 0).sum(axis=1)
    logs = np.log(np.where(held > 0, shares, 1.0))
    entropy = -(shares * logs).sum(axis=1) / np.log(np.maximum(2, kinds))
    return np.where(kinds < 2, 0.0, np.minimum(1.0, entropy))


def _tail(answers: Columns) -> Columns:
    """How many of the last responses of each row say the same as the last one."""
    broken = (answers != answers[:, -1:])[:, ::-1]
    length = np.where(broken.any(axis=1), broken.argmax(axis=1), answers.shape[1])
    return np.where(answers[:, -1] >= 0, length, 0)


def confidences(first: Floats | Columns, second: Floats | Columns) -> Floats:
    """`beta_confidence` of arrays; of whole counts, once for every pair."""
    if np.any(first % 1) or np.any(second % 1):
        return _beta_half(np.asarray(second + 1.0), np.asarray(first + 1.0))
    pairs, where = np.unique(first.ravel() * 1e6 + second.ravel(), return_inverse=True)
    found = [beta_confidence(*divmod(pair, 1e6)) for pair in pairs.tolist()]
    told: Floats = np.array(found)[where].reshape(first.shape)
    return told


def _beta_half(a: Floats, b: Floats) -> Floats:
    """The regularised incomplete beta function at 1/2 by its continued fraction, b at least a."""
    big, small = np.maximum(a, b), np.minimum(a, b)
    gammas = _log_gamma(big + small) - _log_gamma(big) - _log_gamma(small)
    front = np.exp(gammas.astype(np.float64) - (big + small) * log(2)) / big
    value = np.ones_like(big)
    terms = 40 + int(2 * sqrt(float((big + small).max(initial=0.0))))
    for m in range(terms, 0, -1):
        even = m * (small - m) / ((big + 2 * m - 1) * (big + 2 * m)) / 2
        odd = -(big + m - 1) * (big + small + m - 1) / ((big + 2 * m - 2) * (big + 2 * m - 1)) / 2
        value = 1.0 + odd / (1.0 + even / value)
    tail = front / value
    told: Floats = np.where(a < b, 1.0 - tail, tail)
    return told


# --- reading a pool -------------------------------------------------------------------------------


def describe_pool(
    records: Records,
    truths: Truths | None,
    *,
    schedule: Schedule | None = None,
    workers: Workers = SERIAL,
) -> Dataset:
    """The traits of the first responses to every question, and their grades by the truths."""
    chosen = schedule or records.schedule
    work = partial(_describe, name=records.name, task=records.task, schedule=chosen, truths=truths)
    parts = map_named(workers, work, records.parts(), "traits")
    return concat(parts, records)


def concat(parts: Sequence[Dataset], records: Records) -> Dataset:
    """The questions of all parts of a pool."""
    arrays = ("answers", "grades", "traits", "said", "redo")
    stacked: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts]) for name in arrays
    }
    if parts[0].scores is not None:
        stacked["scores"] = np.concatenate([part.scores for part in parts])
    held = tuple(record for part in parts for record in part.records)
    records.check_whole(record.question.id for record in held)
    health = Readability().join(part.readability for part in parts)
    return replace(parts[0], records=held, readability=health, **stacked)


def _describe(
    part: Iterable[Record], *, name: str, task: Task, schedule: Schedule, truths: Truths | None
) -> Dataset:
    """One part; texts stay behind."""
    voted = [record.first(schedule.last) for record in read_votes(part, task)]
    grades, said = _grade(voted, task, truths)
    seen = np.array([traits(each.question, each.responses, each.votes) for each in voted])
    return Dataset(
        name=name,
        task=task,
        schedule=schedule,
        records=tuple(record.without_texts() for record in voted),
        answers=number_answers([[vote.answer for vote in each.votes] for each in voted]),
        grades=grades,
        traits=seen,
        said=said,
        redo=np.array([[vote.redo for vote in each.votes] for each in voted]),
        truths=truths,
        readability=health_of(voted),
    )


def number_answers(answers: Sequence[Sequence[str | None]]) -> Columns:
    """A number for each different answer to a question, in the order they are seen; -1 for none."""
    rows = []
    for own in answers:
        numbers: dict[str | None, int] = {None: -1}
        rows.append([numbers.setdefault(answer, len(numbers) - 1) for answer in own])
    return np.array(rows, dtype=np.int64)


def _grade(
    voted: Sequence[VotedRecord], task: Task, truths: Truths | None
) -> tuple[Floats, Floats]:
    """Grades of the answers, and of what each response says, a redo included."""
    if truths is None:
        unknown = np.full((len(voted), len(voted[0].votes) if voted else 0), nan)
        return unknown, unknown
    rows = []
    for record in voted:
        said = [vote.raw if vote.redo else vote.answer for vote in record.votes]
        grader = Grader(task, truths[record.question.id])
        graded = grader.grade([*(vote.answer for vote in record.votes), *said])
        rows.append([graded[: len(said)], graded[len(said) :]])
    found = np.array(rows)
    return found[:, 0], found[:, 1]


def judge_all(record: VotedRecord, judge: Scorer) -> list[float]:
    """The judge's score of every response that may be picked, each text judged once."""
    known: dict[str | None, float] = {None: 0.0}
    for response, vote in zip(record.responses, record.votes, strict=True):
        if vote.answer not in known:
            [known[vote.answer]] = judge.score(record.question, [response])
    return [known[vote.answer] for vote in record.votes]
