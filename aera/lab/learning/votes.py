"""Our learner: votes that weigh, and a gate on the features of the weighted vote.

It has three teachers. Right answers teach weights and a gate. Where there are none the majority
does: on questions whose full vote is clear its winner is called right, weights are used only where
one half of the responses supports those that the other half taught, and ASC is calibrated by
agreement with the full budget. For best-of-n the scores teach a gate, at a price of tokens.

Everything a choice rests on is out of fold within the questions given, and the mean over random
orders of their responses. Calibration and judgement belong to other questions.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from aera.arrays import Columns, Flags, Floats
from aera.core import Schedule
from aera.errors import ProtocolError, UsageError
from aera.lab.calibrating.calibration import Goal, LossLimit, MostUtility, unseen_error
from aera.lab.calibrating.families import (
    ASC_FAMILY,
    GATE_FAMILY,
    SCORE_FAMILY,
    Family,
    answer_families,
)
from aera.lab.frontier import Trajectories, by_question
from aera.lab.learning.fit import PRICE, fit_gate, fit_tiers, fit_weigher, judge_out_of_fold
from aera.lab.learning.folds import Fold, Split, check_enough, out_of_fold, split_rows
from aera.lab.replay import (
    Dataset,
    ReplaySettings,
    majority_says,
    read_dataset,
    winners,
)
from aera.lab.truths import Truths, grade_all, need_truths
from aera.policies.gate import Gate
from aera.pools.pool import Records
from aera.voting.rules import BestOfN, Rule, plain_vote
from aera.voting.weigher import Weigher
from aera.workers import SERIAL, Workers

LABELS, MAJORITY, SCORES = "labels", "majority", "scores"
TRUTH, SCORE = "truth", "score"
JUDGES = (TRUTH, SCORE)
SHARES = {False: (1.0, 0.0, 0.0), True: (0.5, 0.0, 0.5)}
"""Of the questions, for learning and for calibration, without a certificate and with one."""
MARGIN = 1.96
"""Standard errors that a loss stays below its limit: on few questions the cheapest setting that
seemed to lose little loses more on others."""
SURE = 1.64
"""Standard errors that the gain of weights stays above nothing."""
CLEAR = 0.6
"""Share of the questions, those with the clearest votes, that the majority teaches on."""
HARM = 0.05
"""Agreement that weights may cost between the halves of the responses; more and they are refused.

None to 0.05 where weights gained or did no harm in truth, 0.1 and more where they did most.
"""
UNSURE = 0.02
"""Standard error of that cost above which nothing is known: two hundred questions bring it below.

Harm costs 4 to 13 points and what gains up to 5, so a looser measurement cannot tell them apart.
"""
DECIDING = 15
"""Labelled questions on which plain and weighted votes differ, from which on labels decide."""


@dataclass(frozen=True, eq=False)
class VoteModel:
    """What some questions taught: weights, where they gain, and a gate, where it has a teacher."""

    teacher: str
    weigher: Weigher | BestOfN | None
    gate: Gate | None
    own: Trajectories
    """The same questions out of fold: every one weighed and judged by models of others."""
    learned: str
    """What was kept, what was left out, and why; all of it measured out of fold."""

    def families(self, goal: Goal) -> Mapping[str, Family]:
        """`aera` is what is used for this goal; the others stand beside it."""
        if self.teacher == SCORES:
            return {"aera": GATE_FAMILY, "score": SCORE_FAMILY}
        if self.teacher == MAJORITY:
            return {"aera": ASC_FAMILY, **{each.name: each for each in answer_families()}}
        assert isinstance(goal, LossLimit)
        tried = replace(goal, alpha=None)

        def saving(family: Family) -> float:
            return tried.choose(family, self.own, grid=self.grid(family)).token_saving

        best = max((GATE_FAMILY, ASC_FAMILY), key=saving)
        return {"aera": best, "gate": GATE_FAMILY, "asc": ASC_FAMILY}

    def grid(self, family: Family) -> tuple[float, ...]:
        """Settings by what they cost on the questions that taught."""
        known = self.own.mixed
        return family.settings_by_cost(known.values[family.name], known.tokens)

    def values(self, table: Dataset, rows: Columns) -> Trajectories:
        """Other questions as this weigher and this gate see them."""
        weights = None
        if isinstance(self.weigher, Weigher):
            weights = self.weigher.weights(table.traits[rows])
        seen = table.replay(rows, weights)
        if self.gate is None:
            return seen
        assert seen.features is not None
        return _with_chances(seen, self.gate.chances(seen.features))


def _with_chances(seen: Trajectories, chances: Floats) -> Trajectories:
    return replace(seen, values={GATE_FAMILY.name: chances, **seen.values})


@dataclass(frozen=True)
class VoteLearner:
    """Weights from the traits of single responses, a linear gate on the weighted vote."""

    teacher: str = LABELS
    weigh: bool = True
    """Whether weights are tried at all."""
    given: Weigher | None = None
    """Weights that were taught elsewhere, tried in the place of new ones."""
    labels: Truths | None = None
    """The right answers to a few questions: they decide on weights that the majority taught."""
    rule: Rule = plain_vote
    best_of_n: BestOfN | None = None
    """Who picks the response, where scores teach."""
    price: float = 0.2
    """What the mean full budget costs then, in units of reward."""
    judge: str | None = None
    """Who says what a response is worth then, truth or score; None: the truth where it is known."""
    workers: Workers = SERIAL
    """Who works on the parts of one fit."""

    def __post_init__(self) -> None:
        MostUtility(self.price)  # refuses what makes no sense
        if self.judge not in (None, *JUDGES):
            raise UsageError(f'--judge is one of {", ".join(JUDGES)}, but got "{self.judge}"')

    @property
    def weighted(self) -> bool:
        """Whether votes may carry weights; a score is none, for equal ones do not add up."""
        return self.weigh and self.teacher != SCORES

    @property
    def margin(self) -> float | None:
        """Standard errors that an uncertified loss must stay below its limit."""
        return None if self.teacher == SCORES else MARGIN

    def prepare(
        self,
        records: Records,
        truths: Truths | None = None,
        *,
        schedule: Schedule | None = None,
        workers: Workers = SERIAL,
    ) -> Dataset:
        """Read what the first responses to every question say and show, and grade them."""
        if self.teacher == LABELS and truths is None:
            raise ProtocolError(f'"{records.name}" has no truths to learn weights from')
        settings = self.replaying(records, truths, schedule or records.schedule)
        return read_dataset(records, settings, workers=workers)

    def replaying(
        self, records: Records, truths: Truths | None, schedule: Schedule
    ) -> ReplaySettings:
        """How a policy is replayed as this learner sees responses."""
        if self.best_of_n is not None:
            truths = need_truths(records, truths) if self.judged_by(truths) == TRUTH else None
        return ReplaySettings(records.task, schedule, truths, self.rule, self.best_of_n)

    def judged_by(self, truths: Truths | None) -> str:
        """Who says what a response is worth, where scores teach."""
        return self.judge or (SCORE if truths is None else TRUTH)

    def split(self, table: Dataset, rows: Columns, *, certified: bool, seed: int) -> Split:
        """A certificate needs questions that nothing was learned from; else all of them teach."""
        return Split(*split_rows(rows, SHARES[certified], groups=table.groups, seed=seed))

    def fit(
        self, table: Dataset, rows: Columns, *, held: Columns | None = None, seed: int
    ) -> VoteModel:
        """Weights and gate from these questions alone; nothing is held out."""
        check_enough(table)
        own = table.replay(rows)
        if self.teacher == SCORES:
            weigher: Weigher | BestOfN | None = self.best_of_n
            learned = f"a gate for best-of-n at a price of {self.price:g} for the full budget"
        else:
            own, weigher, told = self._try_weights(table, rows, own, seed=seed)
            learned = f"{told}; the gate or ASC, whichever is cheaper at the allowed loss"
        if self.teacher == MAJORITY:
            learned = f"without truths: {told}; ASC is what was calibrated"
            return VoteModel(MAJORITY, weigher, None, own, learned)
        price = self.price if self.teacher == SCORES else PRICE
        chances = judge_out_of_fold(own, groups=table.groups[rows], seed=seed, price=price)
        gate = fit_gate(own, price)
        return VoteModel(self.teacher, weigher, gate, _with_chances(own, chances), learned)

    # --- weights ----------------------------------------------------------------------------------

    def _try_weights(
        self, table: Dataset, rows: Columns, plain: Trajectories, *, seed: int
    ) -> tuple[Trajectories, Weigher | None, str]:
        """The questions weighed out of fold, or by somebody who never saw them.

        They stay plain where weights are no use; beside them the weigher, and what was found.
        """
        if not self.weigh:
            return plain, None, "votes are plain"
        taught, teachers = table, rows
        if self.teacher == MAJORITY:
            taught = replace(table, grades=majority_says(table.answers))
            teachers = rows[_clear(taught, rows)]

        def weigh(taught: Dataset, weighed: Dataset) -> Floats:
            if self.given is not None:
                return self.given.weights(weighed.traits[rows])
            work = partial(_weigh_fold, taught, weighed, rows, teachers)
            return out_of_fold(work, table.groups[rows], seed=seed, workers=self.workers)

        weights = weigh(taught, taught)
        if self.teacher == LABELS:
            seen = table.replay(rows, weights)
            kept, found = _gain(seen, plain)
            told = "weights taught elsewhere" if self.given else "learned weights"
            told += (
                f" gain {found} and are used"
                if kept
                else f" ({found}) do not clearly gain, so votes are plain"
            )
        else:
            decided, found = self._ask_labels(table, rows, weights)
            if decided is None:
                kept, why = _support(table, rows, weigh)
                found = why + found
            else:
                kept = decided
            told = f"weights taught {'elsewhere' if self.given else 'by the clear votes'} "
            told += f"({found}) are {'used' if kept else 'refused'}"
            seen = table.replay(rows, weights) if kept else plain
        if not kept:
            return plain, None, told
        return seen, self.given or fit_tiers(*taught.examples(teachers)), told

    def _ask_labels(
        self, table: Dataset, rows: Columns, weights: Floats
    ) -> tuple[bool | None, str]:
        """What labels say of these weights; None where too few of them decide anything."""
        if self.labels is None:
            return None, ""
        pairs = np.stack([winners(table.answers[rows], each) for each in (None, weights)], axis=1)
        right, differ = np.zeros(2), 0
        for row, pair in zip(rows, pairs, strict=True):
            question = table.records[row].question.id
            if question in self.labels.answers and pair[0] != pair[1]:
                said = [_answer(table, row, number) for number in pair]
                right += grade_all(said, self.labels[question], task=table.task)
                differ += 1
        where = f"{differ} labelled questions where they differ from plain votes"
        if differ < DECIDING:
            return None, f"; labels decide from {DECIDING} on, and there are {where}"
        return bool(right[1] >= right[0]), (
            f"right on {right[1]:g} of the {where}, which are right on {right[0]:g}"
        )


def _weigh_fold(
    taught: Dataset, weighed: Dataset, rows: Columns, teachers: Columns, fold: Fold
) -> Floats:
    """The weights of one fold of these rows, taught by the teachers among the others."""
    rest = rows[fold.rest]
    weigher = fit_weigher(*taught.examples(rest[np.isin(rest, teachers)]))
    return weigher.weights(weighed.traits[rows[fold.own]])


def _gain(weighted: Trajectories, plain: Trajectories) -> tuple[bool, str]:
    """Whether weights clearly gain, mean over orders and checkpoints, and what, in words."""
    after, before = weighted.mixed.known_grades, plain.mixed.known_grades
    gains = 100 * by_question((after - before).mean(axis=-1))
    mean, error = float(gains.mean()), float(gains.std() / np.sqrt(len(gains)))
    low, high = mean - SURE * error, mean + SURE * error
    return mean > max(SURE * error, 1e-9), f"{mean:+.1f} points, 90 % [{low:+.1f}, {high:+.1f}]"


# --- the majority as a teacher --------------------------------------------------------------------


def _clear(table: Dataset, rows: Columns) -> Flags:
    """Those of the questions whose full vote is clearest, by the winner's share of it."""
    voted = table.voted[rows]
    shares = (table.grades[rows] * voted).sum(axis=1) / np.maximum(1, voted.sum(axis=1))
    clear: Flags = shares >= np.quantile(shares, 1 - CLEAR)
    return clear


def _support(
    table: Dataset, rows: Columns, weigh: Callable[[Dataset, Dataset], Floats]
) -> tuple[bool, str]:
    """One half of the responses teaches; what becomes of the vote of the other half?

    Returns whether the weights may be used, and what was found, to be said after them.
    """
    halves = [(table.answers[:, i::2], table.traits[:, i::2]) for i in (0, 1)]
    first, second = (
        replace(table, answers=said, traits=shown, grades=majority_says(said))
        for said, shown in halves
    )
    answers = table.answers[rows]
    said = winners(answers[:, 0::2])
    agrees = said == winners(answers[:, 1::2])
    still = said == winners(answers[:, 1::2], weigh(first, second))
    cost = float(agrees.mean() - still.mean())
    error = float(unseen_error(agrees.astype(np.float64) - still))
    found = f"{-100 * cost:+.1f} ± {100 * error:.1f} points of agreement between halves"
    if error > UNSURE:
        return False, f"{found}, too few questions to say"
    side = "within" if cost <= HARM else "beyond"
    return cost <= HARM, f"{found}, {side} the {100 * HARM:g} allowed"


def _answer(table: Dataset, row: int, number: int) -> str | None:
    """The answer behind a number."""
    votes = table.records[row].votes
    return None if number < 0 else votes[int(np.argmax(table.answers[row] == number))].answer
