"""Perturbation: what a decision must not know is replaced, and nothing that it looks at may move.

Every later response, every truth, and for learning everything about the questions that are judged.
The inputs are computed where the lab computes them, with truths and later responses at hand.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from aera.arrays import Floats
from aera.core import Prefix, Response, Schedule
from aera.lab.judging.protocols import limit_for
from aera.lab.learning.crowd import CrowdLearner, CrowdModel
from aera.lab.learning.votes import VoteLearner, VoteModel, VoteTable, describe_pool
from aera.lab.learning.weigher import WeigherFit
from aera.lab.truths import Truths
from aera.paper.encoder import Encoder
from aera.paper.features import SCALARS, describe_texts
from aera.policies.features import VOTE_FEATURE_NAMES
from aera.pools.pool import HeldRecords, Record, VotedRecord, read_votes
from aera.reading.task import Task
from aera.solving.controller import Controller, weigher_tensors
from aera.voting.traits import TRAIT_NAMES
from aera.voting.weigher import Weigher

ELSE = Response("never said before: \\boxed{987654321}", 7, -3.0, "length")
"""In the place of every response that must not matter."""

QUICK = WeigherFit(replace(WeigherFit().perceptron, epochs=3))
CROWD, VOTES = CrowdLearner(QUICK), VoteLearner(QUICK)
"""Who learns again: bit for bit the same or not, after however few epochs."""
TAUGHT = 32
"""Responses to each question that they learn from."""

Moved = str | None
"""What moved, in a few words; None where nothing did."""


@dataclass(frozen=True, eq=False)
class Input:
    """One kind of input on some questions."""

    numbers: tuple[str, ...]
    """What the last axis holds."""
    values: Floats
    """Shape (questions, checkpoints or responses, numbers)."""
    each_response: bool = False

    def find_moved(self, other: "Input", schedule: Schedule, column: int) -> tuple[int, str] | None:
        """The first question, and the number, that differs at a checkpoint or before it."""
        end = schedule.checkpoints[column] if self.each_response else column + 1
        before, after = self.values[:, :end], other.values[:, :end]
        differs = (before != after) & ~(np.isnan(before) & np.isnan(after))
        if not differs.any():
            return None
        row, _, number = np.argwhere(differs)[0]
        return int(row), self.numbers[number]


@dataclass(frozen=True, eq=False)
class Perturbed:
    """Some questions of a pool, to be seen with and without what a decision must not know."""

    records: tuple[Record, ...]
    truths: Truths | None
    """Of all of these questions; None where there are none to replace."""
    task: Task
    schedule: Schedule
    encoder: Encoder | None = None
    """For the paper's features; None where nobody looks at them."""
    controller: Controller | None = None
    """Whose weights, evidence and decisions are looked at; None: those of plain votes."""

    def move_future(self) -> dict[str, Moved]:
        """By kind of input, what moved when every response after a checkpoint was replaced."""
        known = self._known
        moved: dict[str, Moved] = dict.fromkeys(known)
        for column, checkpoint in enumerate(self.schedule.checkpoints[:-1]):
            changed = tuple(replace_later(record, checkpoint) for record in self.records)
            inputs = self._inputs(changed, self.truths)
            for kind in known:
                found = known[kind].find_moved(inputs[kind], self.schedule, column)
                moved[kind] = moved[kind] or self._tell(found, f"at {checkpoint} with the future")
        return moved

    def move_truths(self) -> dict[str, Moved]:
        """By kind of input, what moved when every truth was replaced."""
        if self.truths is None:
            return {}
        known = self._known
        inputs = self._inputs(self.records, replace_truths(self.truths))
        last = len(self.schedule) - 1
        return {
            kind: self._tell(each.find_moved(inputs[kind], self.schedule, last), "with the truths")
            for kind, each in known.items()
        }

    def move_learning(self) -> dict[tuple[str, str], Moved]:
        """By teacher and what was replaced, what every other question now teaches otherwise.

        The crowd may know no truth, and nobody anything of a question that is judged.
        """
        truths, judged = self.truths, {each.question.id for each in self.records[1::2]}
        strange = tuple(
            replace_later(each, 0) if each.question.id in judged else each for each in self.records
        )
        taught = self._learn(CROWD, self.records, truths)
        moved = {
            ("taught by the crowd", "judged question"): _differ(
                taught, self._learn(CROWD, strange, truths)
            )
        }
        if truths is None:
            return moved
        others = replace_truths(truths)
        mixed = Truths({key: (others if key in judged else truths)[key] for key in truths})
        return {
            **moved,
            ("taught by the crowd", "truth"): _differ(
                taught, self._learn(CROWD, self.records, others)
            ),
            ("taught by truths", "judged question and its truth"): _differ(
                self._learn(VOTES, self.records, truths), self._learn(VOTES, strange, mixed)
            ),
        }

    @cached_property
    def _known(self) -> dict[str, Input]:
        """As everything stands."""
        return self._inputs(self.records, self.truths)

    def _tell(self, found: tuple[int, str] | None, why: str) -> Moved:
        if found is None:
            return None
        row, number = found
        return f"{number} of {self.records[row].question.id} moved {why}"

    def _inputs(self, records: Sequence[Record], truths: Truths | None) -> dict[str, Input]:
        """Everything that decisions on these records look at, and what comes of it."""
        voted = [record.first(self.schedule.last) for record in read_votes(records, self.task)]
        table = describe_pool(HeldRecords(voted, self.task, self.schedule), truths)
        seen = {"traits": Input(TRAIT_NAMES, table.responses.traits, each_response=True)}
        weights = self._weights(table, voted)
        evidence = table.replay(np.arange(len(voted)), weights).evidence
        if weights is not None:
            seen["weights"] = Input(("the weight",), weights[..., None], each_response=True)
            voted = [each.with_weights(own) for each, own in zip(voted, weights, strict=True)]
        seen["vote features"] = Input(VOTE_FEATURE_NAMES, evidence)
        return seen | self._decide([record.prefixes(self.schedule) for record in voted])

    def _weights(self, table: VoteTable, voted: Sequence[VotedRecord]) -> Floats | None:
        weigher = self.controller.weigher if self.controller else None
        if weigher is None:
            return None
        if isinstance(weigher, Weigher):
            return weigher.weights(table.responses.traits)
        return np.array([[vote.weight for vote in each.weigh(weigher).votes] for each in voted])

    def _decide(self, chains: Sequence[Sequence[Prefix]]) -> dict[str, Input]:
        """What a run would look at, and what would come of it, at every checkpoint."""
        seen = dict[str, Input]()
        if self.encoder is not None:
            texts = np.concatenate(describe_texts(chains, self.encoder), axis=2)
            names = [feature.name for feature in SCALARS]
            centre = ["the centroid"] * (texts.shape[2] - len(names))
            seen["the paper's features"] = Input((*names, *centre), texts)
        if self.controller is None:
            return seen
        gate, policy = self.controller.gate, self.controller.policy
        if gate is not None:
            seen["p_continue"] = _measure("p_continue", gate.p_continue, chains)
        stops = _measure("the decision", lambda prefix: policy.decide(prefix).stop, chains)
        return {**seen, "decisions": stops}

    def _learn(
        self, learner: CrowdLearner | VoteLearner, records: Sequence[Record], truths: Truths | None
    ) -> dict[str, bytes]:
        """Everything that every other question shows and teaches, and how it is calibrated."""
        held = HeldRecords(read_votes(records, self.task), self.task, self.schedule)
        table = learner.prepare(held, truths, schedule=self.schedule.upto(TAUGHT))
        rows = np.arange(len(table))[::2]
        model: VoteModel | CrowdModel = learner.fit(table, rows, seed=0)
        shown = table.responses.subset(rows)
        limit = limit_for(learner, 0.02, by_agreement=isinstance(learner, CrowdLearner))
        return {
            "the traits of responses": shown.traits.tobytes(),
            "what responses are worth": shown.grades.tobytes() + shown.voted.tobytes(),
            "the gate": _bytes(model.gate.tensors() if model.gate else {}),
            "the weigher": _bytes(weigher_tensors(model.weigher) if model.weigher else {}),
            "what it sees out of fold": _bytes(model.own.values),
            "the setting": repr(model.own.choose(model.families["aera"], limit, seed=0)).encode(),
            "what it gains": repr(
                model.support if isinstance(model, CrowdModel) else model.gain
            ).encode(),
        }


def replace_later(record: Record, checkpoint: int) -> Record:
    """The same question with every response after a checkpoint replaced."""
    later = len(record.responses) - checkpoint
    return Record(record.question, (*record.responses[:checkpoint], *[ELSE] * later))


def replace_truths(truths: Truths) -> Truths:
    """A wrong truth for every question: the next of those that there are."""
    known = sorted(set(truths.answers.values()))
    following = dict(zip(known, [*known[1:], known[0]], strict=True))
    return Truths({key: following[answer] for key, answer in truths.answers.items()})


def _measure(
    name: str, measure: Callable[[Prefix], float], chains: Sequence[Sequence[Prefix]]
) -> Input:
    told = [[[float(measure(prefix))] for prefix in chain] for chain in chains]
    return Input((name,), np.array(told))


def _bytes(arrays: Mapping[str, Floats]) -> bytes:
    return b"".join(name.encode() + np.ascontiguousarray(arrays[name]).tobytes() for name in arrays)


def _differ(taught: Mapping[str, bytes], again: Mapping[str, bytes]) -> Moved:
    return next((f"{part} moved" for part in taught if taught[part] != again[part]), None)
