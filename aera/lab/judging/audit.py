"""The leakage audit: where every input of a controller comes from, and why nothing else enters."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from aera.arrays import Columns
from aera.core import Question, Response
from aera.errors import ControllerError, ProtocolError
from aera.files import read_rows
from aera.lab.judging.perturbation import Perturbed
from aera.lab.learning.folds import deal, group_questions, split_rows
from aera.lab.learning.learner import FEWEST
from aera.lab.truths import Truths
from aera.paper.encoder import Encoder
from aera.paper.features import FEATURES
from aera.policies.features import COUNTS, SPEND, VOTE, VOTE_FEATURES
from aera.policies.gate import PaperGate
from aera.pools.pool import RESPONSE_FIELDS, SOMETIMES, Pool
from aera.solving.controller import Controller
from aera.voting.rules import BestOfN
from aera.voting.traits import TRAIT_NAMES

PROVENANCE = {
    "budget and cost": "the schedule and the token counts of the responses seen",
    "answer distribution": "the votes of the responses seen",
    "temporal change": "the votes at this and at earlier checkpoints",
    "re-solving": "the redo test on the responses seen",
    "semantic state": "embeddings of the responses seen, by a frozen encoder",
    "projection": "the centroid of those embeddings, by a map fitted without labels",
    SPEND: "the token counts of the responses seen",
    VOTE: "the votes of the responses seen, with the weigher's weights where there is one",
    COUNTS: "the votes of the responses seen",
}
TRAIT = "one response seen, and its question: the weigher's"
"""Where every trait comes from."""
WEIGHED = ("logprob", "finish_reason")
"""Fields that enter through a weigher, where a controller has one."""
EXCLUDED = {
    "question_id": "identity: a gate could memorise questions",
    "index": "only orders the responses",
    "seed": "chance, known before generation, says nothing of the answer",
    "latency_ms": "depends on the machine, not on the answer",
    "error": "a failed response abstains; its text is not read",
    "model": "one reasoner per pool",
    "finish_reason": "enters only through the vote",
    "logprob": "enters only through a weigher",
    "responses after the checkpoint": "the future",
    "truths.jsonl": "the truth; only the lab opens it, for labels and grades",
    "grades, labels, trajectories": "made from the truth",
}
OUT_OF_FOLD = (
    "each was judged by what the others taught, which describes these questions and certifies "
    "nothing"
)
"""What calibration is on the questions that teach."""
SHOWN = 3
"""Questions that are named."""
OUTCOME_WORDS = (
    "correct",
    "truth",
    "gold",
    "label",
    "grade",
    "score",
    "reward",
    "target",
    "answer",
)


@dataclass(frozen=True)
class Finding:
    """One thing the audit looked at. `leak` is None when it is clean."""

    subject: str
    provenance: str
    leak: str | None = None


@dataclass(frozen=True)
class Audit:
    """The result of an audit."""

    admitted: tuple[Finding, ...]
    excluded: tuple[Finding, ...]
    checks: tuple[Finding, ...]

    @property
    def leaks(self) -> tuple[Finding, ...]:
        """Everything that must not be there."""
        everything = (*self.admitted, *self.excluded, *self.checks)
        return tuple(finding for finding in everything if finding.leak)


def _exclude(*enters: str) -> tuple[Finding, ...]:
    """What plays no part, but for those that enter here."""
    return tuple(Finding(name, why) for name, why in EXCLUDED.items() if name not in enters)


def _admit(names: Sequence[str]) -> tuple[Finding, ...]:
    known = {feature.name: PROVENANCE[feature.group] for feature in (*FEATURES, *VOTE_FEATURES)}
    known |= dict.fromkeys(TRAIT_NAMES, TRAIT)
    return tuple(
        Finding(name, known[name])
        if name in known
        else Finding(name, "unknown", "no such feature is computed from a prefix")
        for name in names
    )


def audit_pool(path: Path, encoder: Encoder, *, questions: int = 20) -> Audit:
    """Look at a pool's columns and groups, and replace what no evidence and no lesson may know."""
    pool = Pool.open(path)
    names = [feature.name for feature in (*FEATURES, *VOTE_FEATURES)]
    perturbed = replace(_take(pool, questions), encoder=encoder)
    checks = (*_look(pool), *_perturb(perturbed), *_teach(perturbed))
    return Audit(_admit([*names, *TRAIT_NAMES]), _exclude(*WEIGHED), checks)


def _look(pool: Pool) -> Iterator[Finding]:
    """What can be seen without changing anything."""
    yield from _columns(pool)
    yield _groups([*pool.questions.values()])


def _take(pool: Pool, count: int) -> Perturbed:
    """The first questions of a pool, those with a truth where any has one."""
    truths = Truths.open(pool.path)
    known = (each for each in pool if truths is None or each.question.id in truths.answers)
    records = tuple(islice(known, count))
    if truths is not None:
        truths = Truths({each.question.id: truths[each.question.id] for each in records})
    return Perturbed(records, truths, pool.task, pool.schedule)


def _columns(pool: Pool) -> Iterator[Finding]:
    """Columns a pool should not have: outcomes beside what was observed."""
    response_columns = {"question_id", "index", *RESPONSE_FIELDS, *SOMETIMES}
    allowed = {
        "questions.jsonl": {"id", "question", "choices", "system", "group"},
        **{file.name: response_columns for file in pool.segments},
    }
    for name, columns in allowed.items():
        found: set[str] = set()
        for present in read_rows(pool.path / name, lambda line: set(json.loads(line))):
            found |= present
        for column in sorted(found - columns):
            outcome = any(word in column.lower() for word in OUTCOME_WORDS)
            kind = "an outcome beside the responses" if outcome else "not a column of a pool"
            yield Finding(f"{name}: {column}", "unknown", kind)
        yield Finding(name, f"columns {', '.join(sorted(found & columns))}")


def _groups(questions: Sequence[Question]) -> Finding:
    """Questions that a split must keep together: those of one group, and those of one text."""
    groups, rows = group_questions(questions), np.arange(len(questions))
    count = len(set(groups.tolist()))
    shared = len(questions) - count
    told = f"{len(questions)} questions in {count} groups, by their group or their words"
    together = f"; {shared} would teach about another, and no split parts them" if shared else ""
    sides = [(fold.own, fold.rest) for fold in deal(groups, seed=0)]
    fit, tune = split_rows(rows, (0.5, 0.5), groups=groups, seed=0)
    parted = [key for one, other in (*sides, (fit, tune)) for key in _keys(questions, one, other)]
    leak = f'"{parted[0]:.60}" stands on both sides of a split' if parted else None
    return Finding("groups", told + together, leak)


def _keys(questions: Sequence[Question], one: Columns, other: Columns) -> set[str]:
    """What makes a question on one side one with a question on the other."""
    own, others = ({key for row in rows for key in questions[row].keys} for rows in (one, other))
    return own & others


def _perturb(perturbed: Perturbed) -> Iterator[Finding]:
    """Inputs at each checkpoint must survive any change of what comes after it, and of truths."""
    count, places = len(perturbed.records), ", ".join(map(str, perturbed.schedule.checkpoints[:-1]))
    for kind, moved in perturbed.move_future().items():
        done = f"recomputed on {count} questions at {places} with every later response replaced"
        yield Finding(kind, done, moved)
    for kind, moved in perturbed.move_truths().items():
        yield Finding(kind, f"recomputed on {count} questions with every truth replaced", moved)


def _teach(perturbed: Perturbed) -> Iterator[Finding]:
    """What questions teach must survive any change of the questions that are judged."""
    count = len(perturbed.records)
    if count < FEWEST or len(perturbed.schedule) < 2:
        yield Finding("learning", f"not perturbed: {count} questions are too few to learn from")
        return
    try:
        found = perturbed.move_learning()
    except ProtocolError as error:
        yield Finding("learning", f"not perturbed: {error}")
        return
    half = (count + 1) // 2
    for (subject, what), moved in found.items():
        done = f"learned again from {half} of {count} questions with every {what} replaced"
        yield Finding(subject, done, moved)


def audit_controller(path: Path, pool: Path | None = None, *, questions: int = 20) -> Audit:
    """Look at a controller's inputs and whom it was taught and calibrated by.

    With a pool, its weights, evidence and decisions there are perturbed too.
    """
    admitted, config = _admit(_inputs(path)), _config(path)
    try:
        controller = Controller.load(path, scorer=_Absent() if config.get("scorer") else None)
    except ControllerError as error:
        failed = Finding("controller", "cannot be loaded", str(error))
        return Audit(admitted, (), (failed,))
    excluded = _exclude(*(WEIGHED if controller.weigher else ()))
    checks = (_apart(controller), *(_bring(controller, Pool.open(pool), questions) if pool else ()))
    return Audit(admitted, excluded, checks)


def _apart(controller: Controller) -> Finding:
    """Who taught and who calibrated, as it really was."""
    fitted, calibrated = controller.fitted, controller.calibrated
    told, shared = controller.calibration, fitted & calibrated
    certified, leak = told.get("alpha") is not None, None
    count = f"{len(fitted)} and {len(calibrated)}"
    if not calibrated and not certified:
        # Before they were kept, no hashes of calibration meant that those of the fit calibrated.
        old = f"{len(fitted)} that taught and, by an older version, calibrated: {OUT_OF_FOLD}"
        how = old if fitted and "setting" in told else "nothing was calibrated"
    elif calibrated <= fitted and told.get("out_of_fold") and not certified:
        how = f"the same {len(calibrated)}: {OUT_OF_FOLD}"
    elif shared or not calibrated:
        how = count
        leak = f"{len(shared)} questions are in both" if shared else "certified on no question"
    else:
        how = f"{count}, disjoint"
    return Finding(
        "fitted and calibrated questions", f"{how}; by stored hashes of words and groups", leak
    )


def _bring(controller: Controller, pool: Pool, questions: int) -> Iterator[Finding]:
    """A controller on the questions of a pool."""
    seen = controller.find_seen(pool.questions.values())
    some = ", ".join(seen[:SHOWN]) + (", ..." if len(seen) > SHOWN else "")
    test = f" ({some}) had a part in it, so this is no test of it" if seen else " had a part in it"
    yield Finding("questions of the pool", f"{len(seen)} of {len(pool.questions)}{test}")
    yield from _look(pool)
    gate, taken = controller.gate, _take(pool, questions)
    if isinstance(controller.weigher, BestOfN):
        why = "not perturbed: a scorer gives them, which is not kept with a controller"
        yield Finding("scores", why)
    else:
        own = replace(
            taken,
            task=controller.task,
            schedule=controller.schedule.upto(pool.schedule.last),
            controller=controller,
            encoder=gate.encoder if isinstance(gate, PaperGate) else None,
        )
        yield from _perturb(own)
    yield from _teach(taken)


class _Absent:
    """In the place of a scorer, which is not kept with a controller and not asked here."""

    def score(self, question: Question, responses: Sequence[Response]) -> list[float]:
        raise NotImplementedError


def _inputs(path: Path) -> list[str]:
    """The inputs a controller says it has, however broken the rest of it is."""
    config = _config(path)
    try:
        lower = [name for names in config.get("lower_traits", ()) for name in names]
        inputs = (*config["features"], *config.get("traits", ()), *lower)
        return [*dict.fromkeys(map(str, inputs))]
    except (TypeError, KeyError):
        return []


def _config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads((path / "config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return config if isinstance(config, dict) else {}
