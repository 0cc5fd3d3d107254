"""Replay: what recorded responses say, and what policies would have done on them, in two ways.

ReplaySettings shows them to any policy, one checkpoint after the other, as a Run does live. Where a
scorer picks one of n, every response votes for its own text by its score, and what is returned is
worth what a judge says, or the score itself.

A Dataset is everything that learners work on, row by row. Responses to one question are
exchangeable where they were sampled alike, so any order of them is as good as the stored one, and
what holds in many orders is no luck of one. `Dataset.replay` does what a Run does, for all
questions, orders and checkpoints at once.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from itertools import pairwise
from math import inf, lgamma, log, nan, sqrt
from typing import Any

import numpy as np

from aera.arrays import Columns, Flags, Floats
from aera.core import Prefix, Question, Schedule, Vote, Weighting, beta_confidence
from aera.errors import UsageError
from aera.lab.frontier import (
    Frontier,
    Point,
    Trajectories,
    oracle_point,
    point_of,
    prompt_lengths,
    re2_means,
)
from aera.lab.learning.folds import group_questions
from aera.lab.truths import Truths, grade_all
from aera.policies.gate import TINY
from aera.policies.rules import Policy, confident_rule
from aera.pools.pool import Record, Records, VotedRecord, health_of, read_votes
from aera.reading.task import NOTHING, Readability, Task
from aera.solving.run import replay
from aera.voting.rules import CONFIDENT, BestOfN, Rule, gives_weights, plain_vote
from aera.voting.traits import TRACE, brought, traits
from aera.workers import SERIAL, Workers, map_named

ORDERS = 20
"""Random orders of its responses in which every question is replayed."""
SUSPECT = 4.5
"""Standard errors by which some responses may differ from the others of their questions."""
AT_ONCE = 64
"""Questions replayed together, which bounds the memory."""
_log_gamma = np.frompyfunc(lgamma, 1, 1)


@dataclass(frozen=True)
class ReplaySettings:
    """What a replay depends on besides the responses."""

    task: Task
    schedule: Schedule
    truths: Truths | None = None
    """They say what the best of n is worth, too; without them the score itself is its reward."""
    rule: Rule = plain_vote
    weigher: Weighting | None = None

    @property
    def scored(self) -> bool:
        """Whether a scorer picks one of n; nothing has to be readable then."""
        return isinstance(self.weigher, BestOfN)

    @property
    def rewarded(self) -> bool:
        """Whether rewards are any real numbers; who knows the truth says right or wrong."""
        return self.scored and self.truths is None

    def read(self, part: Iterable[Record]) -> list[VotedRecord]:
        """The votes of a part, weighed where there is a weigher."""
        if self.scored:
            part = [
                VotedRecord(each.question, each.responses, (Vote(None),) * len(each.responses))
                for each in part
            ]
        voted, weigher, last = read_votes(part, self.task), self.weigher, self.schedule.last
        if weigher is None:
            return voted
        some = [each.first(last) for each in voted] if self.scored else voted
        return [each.weigh(weigher) for each in some]

    def describe(
        self, part: Iterable[Record], name: str = "", *, learned: bool = False
    ) -> "Dataset":
        """What the first responses to the questions of a part say and are worth.

        With what they show of themselves where it is to be learned from; their texts then stay
        behind.
        """
        voted = [record.first(self.schedule.last) for record in self.read(part)]
        seen = np.zeros((len(voted), self.schedule.last, 0))
        if self.scored:
            grades = said = np.array([self.reward(each) for each in voted])
        else:
            grades, said = self.grade(voted, [[vote.answer for vote in v.votes] for v in voted])
        if learned and not self.scored:
            seen = np.array([traits(each.question, each.responses, each.votes) for each in voted])
        return Dataset(
            name=name,
            settings=self,
            records=tuple(record.without_texts() if learned else record for record in voted),
            answers=np.array([number_answers(each.votes) for each in voted], dtype=np.int64),
            weights=np.array([[vote.weight for vote in each.votes] for each in voted]),
            grades=grades,
            traits=seen,
            said=said,
            redo=np.array([[vote.redo for vote in each.votes] for each in voted]),
            readability=NOTHING if self.scored else health_of(voted),
        )

    def replay(self, part: Iterable[Record], policies: Sequence[Policy] = ()) -> Frontier:
        """Replay every policy on every question of a part, in the stored order."""
        records = [*part]
        data = self.describe(records)
        paths = [record.prefixes(self.schedule) for record in data.records] if policies else []
        points = [self._follow(policy, paths, data.stored) for policy in policies]
        health = data.readability
        if self.scored and not self.rewarded:
            health = health_of(read_votes(records, self.task))
        return Frontier(tuple(points), data.stored, health)

    def grade(
        self, seen: Sequence[VotedRecord], answers: Sequence[Sequence[str | None]]
    ) -> tuple[Floats, Floats]:
        """Grades of answers, and of what each response says, a redo included; NaN unknown."""
        rows = []
        for each, own in zip(seen, answers, strict=True):
            said = [vote.raw if vote.redo else vote.answer for vote in each.votes]
            graded = [nan] * (len(own) + len(said))
            if self.truths is not None:
                truth = self.truths[each.question.id]
                graded = grade_all([*own, *said], truth, task=self.task)
            rows.append((graded[: len(own)], graded[len(own) :]))
        return np.array([grades for grades, _ in rows]), np.array([said for _, said in rows])

    def by_rule(self, seen: Sequence[VotedRecord]) -> tuple[Floats, Floats]:
        """Agreement and grades, by checkpoint, of the answers that the rule returns."""
        paths = [each.prefixes(self.schedule) for each in seen]
        answers = [[self.rule(prefix).answer for prefix in path] for path in paths]
        agreement = np.array([[float(a == each[-1]) for a in each] for each in answers])
        return agreement, self.grade(seen, answers)[0]

    def reward(self, seen: VotedRecord) -> list[float]:
        """What each response is worth where a scorer picks, each text read once."""
        if self.truths is None:
            return [vote.weight for vote in seen.votes]
        said: dict[str | None, str | None] = {None: None}
        for vote, response in zip(seen.votes, seen.responses, strict=True):
            if vote.answer not in said:
                said[vote.answer] = self.task.read(response).answer
        truth, answers = self.truths[seen.question.id], [said[vote.answer] for vote in seen.votes]
        return grade_all(answers, truth, task=self.task)

    def _follow(
        self, policy: Policy, paths: Sequence[Sequence[Prefix]], seen: Trajectories
    ) -> Point:
        """Where a policy stops on every question, and what its gate says on the way."""
        column = {checkpoint: place for place, checkpoint in enumerate(self.schedule)}
        stops, said = np.zeros(len(paths), np.int64), np.full(seen.tokens.shape, nan)
        for row, path in enumerate(paths):
            run = replay(path, policy, task=self.task, rule=self.rule)
            stops[row] = column[len(run.prefix.responses)]
            chances = [step.decision.p_continue for step in run.steps]
            said[row, : len(chances)] = [nan if p is None else p for p in chances]
        weighted = gives_weights(self.weigher)
        return point_of(policy, stops, seen, weighted=weighted, p_continue=said)

    def evaluate(
        self, records: Records, policies: Sequence[Policy], *, workers: Workers = SERIAL
    ) -> Frontier:
        """Replay every policy; one whose answer another rule selects is judged by that rule."""
        frontier = self._evaluate(records, policies, workers=workers)
        points, rules = [*frontier.points], [confident_rule(policy) for policy in policies]
        for rule in dict.fromkeys(each for each in rules if each is not None):
            own = [place for place, each in enumerate(rules) if each == rule]
            asked = [policies[place] for place in own]
            check_traced(records, str(asked[0]))
            other = replace(self, rule=CONFIDENT[rule], weigher=None)
            judged = other._evaluate(records, asked, workers=workers).points
            for place, point in zip(own, judged, strict=False):
                points[place] = point
        return replace(frontier, points=tuple(points))

    def _evaluate(
        self, records: Records, policies: Sequence[Policy], *, workers: Workers
    ) -> Frontier:
        """Replay every policy on every question, part by part, by the one rule."""
        work = partial(self.replay, policies=policies)
        frontier = Frontier.concat([*workers.map(work, records.parts())])
        trajectories = frontier.trajectories
        records.check_whole(trajectories.question_ids)
        frontier.readability.check(self.task, records.name)
        if self.truths is None:
            return frontier
        return replace(frontier, points=(*frontier.points, oracle_point(trajectories)))


def check_traced(records: Records, label: str) -> None:
    """Refuse a policy that needs traces where the first question has none."""
    first = next(iter(records), None)
    if first is not None and not any(TRACE in brought(each) for each in first.responses):
        raise UsageError(
            f'"{label}" needs to know how sure the model was of its tokens, and the responses in '
            f'"{records.name}" have no traces'
        )


def evaluate(
    records: Records,
    policies: Sequence[Policy],
    *,
    schedule: Schedule | None = None,
    truths: Truths | None = None,
    rule: Rule = plain_vote,
    weigher: Weighting | None = None,
    workers: Workers = SERIAL,
) -> Frontier:
    """Replay every policy on every question; with truths, grade the answers and add the oracle.

    A pool is read part by part and never held in memory.
    """
    settings = ReplaySettings(records.task, schedule or records.schedule, truths, rule, weigher)
    return settings.evaluate(records, policies, workers=workers)


# --- everything that learners work on -------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Dataset:
    """Questions with what every response says, costs and is worth; arrays (questions, responses).

    Where answers are voted on, a response is worth the grade of its answer. Where a scorer picks
    one, every response votes for its own text by its score, and is worth its reward.
    """

    name: str
    settings: ReplaySettings
    records: tuple[VotedRecord, ...]
    """Without their texts, which have been read."""
    answers: Columns
    """A number for each different answer to a question, -1 for none."""
    weights: Floats
    """Of the votes as they were read: one each, or the scores where a scorer picks."""
    grades: Floats
    traits: Floats
    """With one axis more."""
    said: Floats
    """The grade of what each response says, also of a redo: for the paper's score."""
    redo: Flags
    readability: Readability = NOTHING
    seed: int = 0
    """Of the random orders."""

    def __len__(self) -> int:
        return len(self.records)

    @property
    def task(self) -> Task:
        """What was asked."""
        return self.settings.task

    @property
    def schedule(self) -> Schedule:
        """Its checkpoints."""
        return self.settings.schedule

    @property
    def questions(self) -> tuple[Question, ...]:
        """One per row."""
        return tuple(record.question for record in self.records)

    @cached_property
    def groups(self) -> Columns:
        """A number per row, the same for questions that no split may part."""
        return group_questions(self.questions)

    def examples(self, rows: Columns) -> tuple[Floats, Floats, Flags]:
        """What a weigher learns from: traits, grades, and which of the responses vote."""
        return self.traits[rows], self.grades[rows], self.voted[rows]

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
        """The stored order of every question's responses, then random ones if they may be mixed."""
        questions, responses = self.answers.shape
        others = ORDERS if self.exchangeable else 0
        places = np.tile(np.arange(responses), (questions, 1 + others, 1))
        places[:, 1:] = np.random.default_rng(self.seed).permuted(places[:, 1:], axis=2)
        return places

    @cached_property
    def exchangeable(self) -> bool:
        """Whether the responses to all these questions may come in any order.

        They may where those of no block of the schedule differ from the others of their questions,
        by their tokens or by how many say what the full vote says.
        """
        if self.settings.rule is not plain_vote:
            return False
        ends = [0, *self.schedule]
        agree = majority_says(self.answers)
        for values in (agree, self.tokens):
            apart = values - values.mean(axis=1, keepdims=True)
            responses = values.shape[1]
            for start, end in pairwise(ends):
                size = end - start
                share = size * (responses - size) / max(1, responses * (responses - 1))
                error = float(np.sqrt((apart**2).sum() * share + 1e-9))
                if abs(float(apart[:, start:end].sum())) / error > SUSPECT:
                    return False
        return True

    @cached_property
    def stored(self) -> Trajectories:
        """All questions with their own weights, in the stored order."""
        rows = np.arange(len(self))
        order = np.tile(np.arange(self.answers.shape[1]), (len(rows), 1, 1))
        return replace(self._replay(rows, self.weights, order).stored, features=None)

    def replay(self, rows: Columns, weights: Floats | None = None) -> Trajectories:
        """These questions with these weights, in the stored order and in what others there are."""
        used = self.weights[rows] if weights is None else weights
        parts = [slice(start, start + AT_ONCE) for start in range(0, len(rows), AT_ONCE)]
        done = Trajectories.concat(
            [self._replay(rows[part], used[part], self.orders[rows[part]]) for part in parts]
        )
        return replace(done, voted=tuple(self.records[row] for row in rows), weights=used)

    def _replay(self, rows: Columns, weights: Floats, orders: Columns) -> Trajectories:
        settings, ends = self.settings, np.array(self.schedule.checkpoints)
        chosen = [self.records[row] for row in rows]
        scored, graded = settings.scored, settings.truths is not None

        def sort(values: Any) -> Any:
            return np.take_along_axis(values[:, None], orders, 2)

        tokens = np.cumsum(sort(self.tokens[rows]), axis=2)[..., ends - 1]
        votes = count_votes(sort(self.answers[rows]), sort(weights), ends, best=scored)
        agreement = (votes.winner == votes.winner[..., -1:]).astype(np.float64)
        worth = np.take_along_axis(sort(self.grades[rows]), votes.place, 2)
        grades = np.where(votes.winner >= 0, worth, 0.0)
        if settings.rule is not plain_vote:  # there is the stored order only
            agreement, grades = (each[:, None] for each in settings.by_rule(chosen))
        means = re2_means(sort(self.said[rows]), ~sort(self.redo[rows]), ends)
        shares = {"majority_ratio": votes.majority, "entropy": votes.entropy}
        return Trajectories(
            question_ids=tuple(record.question.id for record in chosen),
            schedule=self.schedule,
            tokens=tokens,
            agreement=agreement,
            evidence={} if scored else shares,
            grades=grades if scored or graded else None,
            re2_mean=means if graded and not scored else None,
            prompts=prompt_lengths(chosen),
            rewarded=settings.rewarded,
            values={"score": votes.lead} if scored else votes.measures,
            features=votes.features(tokens, ends),
        )


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
        """The features of the vote (aera/policies/gate.py), on one axis more."""
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
        persistence = columns - np.pad(since, ((0, 0), (0, 0), (1, 0))) + 1
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
    found: list[Votes] = []
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
        now = Votes(
            winner=np.where(voted, winner, -1),
            place=np.where(voted, first[rows, winner], 0),
            lead=np.maximum(lead, 0.0),
            rival=np.maximum(others.max(axis=1), 0.0),
            total=total,
            lead_count=number[rows, winner],
            rival_count=rest.max(axis=1),
            valid=number.sum(axis=1),
            entropy=_entropy(held, total),
            tail=_tail(flat[:, :end]),
        )
        found.append(now)
        start = end
    stacked = (np.stack([getattr(each, f.name) for each in found], axis=-1) for f in fields(Votes))
    return Votes(*(values.reshape(*shape[:2], len(ends)) for values in stacked))


def _entropy(held: Floats, total: Floats) -> Floats:
    """Of the shares, divided by its maximum for that many answers."""
    shares = held / np.where(total > 0, total, 1.0)[:, None]
    kinds = (held > 0).sum(axis=1)
    logs = np.log(np.where(held > 0, shares, 1.0))
    # One after the other: a sum must not know how many answers other questions have.
    entropy = -np.cumsum(shares * logs, axis=1)[:, -1] / np.log(np.maximum(2, kinds))
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


def winners(answers: Columns, weights: Floats | None = None) -> Columns:
    """What each question's vote says; shape (questions, responses) to (questions,)."""
    given = np.ones((1, 1, 1)) if weights is None else weights[:, None]
    last = np.array([answers.shape[1]])
    found: Columns = count_votes(answers[:, None], given, last).winner[:, 0, 0]
    return found


def majority_says(answers: Columns) -> Floats:
    """1 for every response that says what the vote says."""
    said: Floats = ((answers == winners(answers)[:, None]) & (answers >= 0)).astype(np.float64)
    return said


def number_answers(votes: Sequence[Vote]) -> list[int]:
    """A number for each different answer to a question, in the order they are seen; -1 for none."""
    numbers: dict[str | None, int] = {None: -1}
    return [numbers.setdefault(vote.answer, len(numbers) - 1) for vote in votes]


# --- reading a pool -------------------------------------------------------------------------------


def read_dataset(
    records: Records, settings: ReplaySettings, *, workers: Workers = SERIAL
) -> Dataset:
    """The first responses to every question: what they say and show, and what that is worth."""
    work = partial(settings.describe, name=records.name, learned=True)
    what = "scoring" if settings.scored else "traits"
    parts = map_named(workers, work, records.parts(), what)
    held = tuple(record for part in parts for record in part.records)
    records.check_whole(record.question.id for record in held)
    arrays = ("answers", "weights", "grades", "traits", "said", "redo")
    stacked: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts]) for name in arrays
    }
    health = Readability().join(part.readability for part in parts)
    return replace(parts[0], records=held, readability=health, **stacked)
