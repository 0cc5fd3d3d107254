"""Replay: what recorded responses say, and what policies would have done on them, in two ways.

ReplaySettings shows them to any policy, one checkpoint after the other, as a Run does live. Where a
scorer picks one of n, every response votes for its own text by its score, and what is returned is
worth what a judge says, or the score itself.

A Dataset is everything that learners work on, row by row. Responses to one question are
exchangeable where they were sampled alike, so any order of them is as good as the stored one, and
what holds in many orders is no luck of one. `Dataset.replay` does what a Run does, for all
questions, orders and checkpoints at once.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from itertools import pairwise
from math import inf, lgamma, log, nan, sqrt
from typing import Any

import numpy as np

from aera.arrays import Columns, Flags, Floats
from aera.core import Leaders, Prefix, Question, Schedule, Vote, Weighting, beta_confidence
from aera.errors import UsageError
from aera.lab.frontier import (
    Frontier,
    Trajectories,
    oracle_point,
    point_of,
    prompt_lengths,
    re2_means,
)
from aera.lab.learning.folds import group_questions
from aera.lab.truths import Grader, Truths, TruthScorer
from aera.policies.gate import TINY
from aera.policies.rules import Policy, confident_rule
from aera.pools.pool import Record, Records, VotedRecord, health_of, read_votes
from aera.reading.task import NOTHING, Readability, Task
from aera.solving.run import replay
from aera.voting.rules import CONFIDENT, BestOfN, Rule, Scorer, gives_weights, plain_vote
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
    rule: Rule = plain_vote
    weigher: Weighting | None = None
    judge: Scorer | None = None
    """Who says what the best of n is worth; without one, the score itself is the reward."""

    @property
    def scored(self) -> bool:
        """Whether a scorer picks one of n; nothing has to be readable then."""
        return isinstance(self.weigher, BestOfN)

    @property
    def rewarded(self) -> bool:
        """Whether rewards are any real numbers; who knows the truth says right or wrong."""
        return self.scored and not isinstance(self.judge, TruthScorer)

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

    def replay(self, part: Iterable[Record], policies: Sequence[Policy] = ()) -> "Replayed":
        """Replay every policy on every question of a part."""
        records = [*part]
        voted = self.read(records)
        paths = [record.prefixes(self.schedule) for record in voted]
        leaders = [[self.rule(prefix) for prefix in path] for path in paths]
        answers = [[each.answer for each in own] for own in leaders]

        def measure(value: Callable[[Prefix], float]) -> Floats:
            return np.array([[value(prefix) for prefix in path] for path in paths])

        known: dict[str, Any] = {"evidence": {}}
        if self.scored:
            pairs = zip(paths, leaders, strict=True)
            known["grades"] = np.array([self.reward(path[-1], own) for path, own in pairs])
        else:
            known["evidence"] = {
                "majority_ratio": measure(lambda prefix: prefix.tally.majority),
                "entropy": measure(lambda prefix: prefix.tally.entropy),
            }
        if self.truths is not None:
            whole, ends = [path[-1] for path in paths], np.array(self.schedule.checkpoints)
            known["grades"], said = self.grade(whole, answers)
            kept = np.array([[not vote.redo for vote in each.votes] for each in whole])
            known["re2_mean"] = re2_means(said, kept, ends)
        trajectories = Trajectories(
            question_ids=tuple(record.question.id for record in voted),
            schedule=self.schedule,
            tokens=measure(lambda prefix: float(prefix.completion_tokens)),
            agreement=np.array([[float(a == each[-1]) for a in each] for each in answers]),
            prompts=prompt_lengths(voted),
            rewarded=self.rewarded,
            **known,
        )
        if self.scored:
            voted = [] if self.rewarded else read_votes(records, self.task)
        return Replayed(trajectories, *self._run(policies, paths), health_of(voted))

    def grade(
        self, seen: Sequence[Prefix | VotedRecord], answers: Sequence[Sequence[str | None]]
    ) -> tuple[Floats, Floats]:
        """Grades of answers, and of what each response says, a redo included; NaN unknown."""
        rows = []
        for each, own in zip(seen, answers, strict=True):
            said = [vote.raw if vote.redo else vote.answer for vote in each.votes]
            graded = [nan] * (len(own) + len(said))
            if self.truths is not None:
                graded = Grader(self.task, self.truths[each.question.id]).grade([*own, *said])
            rows.append((graded[: len(own)], graded[len(own) :]))
        return np.array([grades for grades, _ in rows]), np.array([said for _, said in rows])

    def reward(self, seen: Prefix | VotedRecord, picked: Sequence[Leaders | Vote]) -> list[float]:
        """What picked responses are worth, each text judged once."""
        if self.judge is None:
            return [each.weight for each in picked]
        known: dict[str | None, float] = {None: 0.0}
        for each in picked:
            if each.answer not in known:
                own = next(response for response in seen.responses if response.text == each.answer)
                [known[each.answer]] = self.judge.score(seen.question, [own])
        return [known[each.answer] for each in picked]

    def _run(
        self, policies: Sequence[Policy], paths: Sequence[Sequence[Prefix]]
    ) -> tuple[Columns, Floats]:
        """Where each policy stopped, and what its gate said on the way."""
        column = {checkpoint: place for place, checkpoint in enumerate(self.schedule)}
        stops = np.zeros((len(paths), len(policies)), np.int64)
        chances = np.full((*stops.shape, len(column)), nan)
        for row, path in enumerate(paths):
            for place, policy in enumerate(policies):
                run = replay(path, policy, task=self.task, rule=self.rule)
                stops[row, place] = column[len(run.prefix.responses)]
                said = [step.decision.p_continue for step in run.steps]
                chances[row, place, : len(said)] = [nan if p is None else p for p in said]
        return stops, chances

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
        done = [*workers.map(partial(self.replay, policies=policies), records.parts())]
        columns = np.concatenate([each.columns for each in done])
        chances = np.concatenate([each.chances for each in done])
        trajectories = Trajectories.concat([each.trajectories for each in done])
        readability = Readability().join(each.readability for each in done)
        records.check_whole(trajectories.question_ids)
        readability.check(self.task, records.name)
        weighted = gives_weights(self.weigher)
        points = [
            point_of(
                policy,
                columns[:, place],
                trajectories,
                weighted=weighted,
                p_continue=None if np.isnan(chances[:, place]).all() else chances[:, place],
            )
            for place, policy in enumerate(policies)
        ]
        if self.truths is not None:
            points.append(oracle_point(trajectories))
        return Frontier(tuple(points), trajectories, readability)


def check_traced(records: Records, label: str) -> None:
    """Refuse a policy that needs traces where the first question has none."""
    first = next(iter(records), None)
    if first is not None and not any(TRACE in brought(each) for each in first.responses):
        raise UsageError(
            f'"{label}" needs to know how sure the model was of its tokens, and the responses in '
            f'"{records.name}" have no traces'
        )


@dataclass(frozen=True, eq=False)
class Replayed:
    """What policies did on the questions of a part."""

    trajectories: Trajectories
    columns: Columns
    """Where each policy stopped, shape (questions, policies)."""
    chances: Floats
    """What its gate said at each checkpoint; NaN where it was not asked."""
    readability: Readability = NOTHING


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
        """Whether the responses to these questions may come in any order.

        They may where those of no block of the schedule differ from the others of their questions,
        by their tokens or by how many say what the full vote says.
        """
        if self.rule is not plain_vote:
            return False
        answers, ends = self.answers[rows], [0, *self.schedule]
        last = np.array(ends[-1:])
        winner = count_votes(answers[:, None], np.ones((len(rows), 1, 1)), last).winner[:, 0]
        agree = (answers == winner) & (answers >= 0)
        for values in (agree * 1.0, self.tokens[rows]):
            apart = values - values.mean(axis=1, keepdims=True)
            responses = values.shape[1]
            for start, end in pairwise(ends):
                size = end - start
                share = size * (responses - size) / max(1, responses * (responses - 1))
                error = float(np.sqrt((apart**2).sum() * share + 1e-9))
                if abs(float(apart[:, start:end].sum())) / error > SUSPECT:
                    return False
        return True

    def replay(
        self, rows: Columns, weights: Floats | None = None, *, mixed: bool = True
    ) -> Trajectories:
        """These questions with these weights, in the stored order and, if `mixed`, in others."""
        count = 1 + ORDERS if mixed else 1
        given = self.scores if self.scores is not None else np.ones(self.answers.shape)
        used = given[rows] if weights is None else weights
        parts = [slice(start, start + AT_ONCE) for start in range(0, len(rows), AT_ONCE)]
        done = Trajectories.concat(
            [self._replay(rows[part], used[part], orders=count) for part in parts]
        )
        records = [self.records[row] for row in rows]
        if weights is not None:
            records = [each.with_weights(w) for each, w in zip(records, weights, strict=True)]
        done = replace(done, records=tuple(records))
        return done if self.rule is plain_vote else self._by_rule(rows, done)

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
        settings = ReplaySettings(self.task, self.schedule, self.truths, self.rule)
        seen = settings.replay([self.records[row] for row in rows]).trajectories
        grades = None if seen.grades is None else seen.grades[:, None]
        return replace(done, agreement=seen.agreement[:, None], grades=grades)


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


def read_dataset(
    records: Records, settings: ReplaySettings, *, workers: Workers = SERIAL
) -> Dataset:
    """The first responses to every question: what they say and show, and what that is worth."""
    work = partial(_describe, name=records.name, settings=settings)
    what = "scoring" if settings.scored else "traits"
    parts = map_named(workers, work, records.parts(), what)
    held = tuple(record for part in parts for record in part.records)
    records.check_whole(record.question.id for record in held)
    arrays = ("answers", "grades", "traits", "said", "redo", *(["scores"] * settings.scored))
    stacked: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts]) for name in arrays
    }
    health = Readability().join(part.readability for part in parts)
    return replace(parts[0], records=held, readability=health, **stacked)


def _describe(part: Iterable[Record], *, name: str, settings: ReplaySettings) -> Dataset:
    """One part; texts stay behind."""
    voted = [record.first(settings.schedule.last) for record in settings.read(part)]
    answers = [[vote.answer for vote in each.votes] for each in voted]
    scores = None
    if settings.scored:
        scores = np.array([[vote.weight for vote in each.votes] for each in voted])
        seen = np.zeros((*scores.shape, 0))
        grades = said = np.array([settings.reward(each, each.votes) for each in voted])
    else:
        seen = np.array([traits(each.question, each.responses, each.votes) for each in voted])
        grades, said = settings.grade(voted, answers)
    return Dataset(
        name=name,
        task=settings.task,
        schedule=settings.schedule,
        records=tuple(record.without_texts() for record in voted),
        answers=_number(answers),
        grades=grades,
        traits=seen,
        said=said,
        redo=np.array([[vote.redo for vote in each.votes] for each in voted]),
        truths=settings.truths,
        scores=scores,
        rewarded=settings.rewarded,
        readability=NOTHING if settings.scored else health_of(voted),
        rule=settings.rule,
    )


def _number(answers: Sequence[Sequence[str | None]]) -> Columns:
    """A number for each different answer to a question, in the order they are seen; -1 for none."""
    rows = []
    for own in answers:
        numbers: dict[str | None, int] = {None: -1}
        rows.append([numbers.setdefault(answer, len(numbers) - 1) for answer in own])
    return np.array(rows, dtype=np.int64)
