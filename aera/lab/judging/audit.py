"""The leakage audit: where every input of a controller comes from, and why nothing else enters."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from aera.arrays import Floats
from aera.errors import ControllerError
from aera.evidence.encoder import Encoder
from aera.evidence.paper import FEATURES, scalars
from aera.evidence.semantics import semantics
from aera.evidence.votes import COUNTS, SPEND, VOTE, VOTE_FEATURES
from aera.files import read_rows
from aera.lab.learning.folds import group_questions
from aera.pools.pool import RESPONSE_FIELDS, SOMETIMES, Pool
from aera.pools.record import VotedRecord, read_votes
from aera.response import Prefix, Question, Response
from aera.schedule import Schedule
from aera.solving.controller import Controller
from aera.tally import Vote
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
    "logprob": "not part of the paper's 55 features",
    "responses after the checkpoint": "the future",
    "truths.jsonl": "the truth; only the lab opens it, for labels and grades",
    "grades, labels, trajectories": "made from the truth",
}
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
    """Look at a pool's columns, and change the future to see that no evidence moves."""
    pool = Pool.open(path)
    names = [feature.name for feature in FEATURES]
    excluded = tuple(Finding(name, reason) for name, reason in EXCLUDED.items())
    checks = (
        *_columns(pool),
        _groups([*pool.questions.values()]),
        *_experiments(pool, encoder, questions=questions),
    )
    return Audit(_admit(names), excluded, checks)


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
    count = len(set(group_questions(questions).tolist()))
    shared = len(questions) - count
    told = f"{len(questions)} questions in {count} groups, by their group or their words"
    together = f"; {shared} would teach about another, so no split parts them" if shared else ""
    return Finding("groups", told + together)


def _experiments(pool: Pool, encoder: Encoder, *, questions: int) -> Iterator[Finding]:
    """Evidence at each checkpoint must survive any change of what comes after it."""
    voted = read_votes(islice(pool, questions), pool.task)
    for checkpoint in pool.schedule.checkpoints[:-1]:
        moved = [
            record.question.id
            for record in voted
            if not _same_evidence(record, pool.schedule, checkpoint, encoder)
        ]
        leak = f"the evidence of {moved[0]} moved with the future" if moved else None
        yield Finding(
            f"evidence at {checkpoint}",
            f"recomputed on {len(voted)} questions with every later response replaced",
            leak,
        )


def _same_evidence(
    record: VotedRecord, schedule: Schedule, checkpoint: int, encoder: Encoder
) -> bool:
    column = schedule.checkpoints.index(checkpoint)
    later = len(record.responses) - checkpoint
    responses = (*record.responses[:checkpoint], *[Response("another end", 7)] * later)
    votes = (*record.votes[:checkpoint], *[Vote("never said")] * later)
    changed = VotedRecord(record.question, responses, votes)
    before = _describe(record.prefixes(schedule)[column], encoder)
    after = _describe(changed.prefixes(schedule)[column], encoder)
    return bool(np.array_equal(before, after, equal_nan=True))


def _describe(prefix: Prefix, encoder: Encoder) -> Floats:
    """The scalar features and the centroid, of which the projection is a linear map."""
    return np.concatenate([scalars(prefix, encoder), semantics(prefix, encoder).centroid])


def audit_controller(path: Path) -> Audit:
    """Look at a controller's inputs, and whether fitting and calibration were kept apart."""
    admitted, config = _admit(_inputs(path)), _config(path)
    try:
        controller = Controller.load(path, scorer=_Absent() if config.get("scorer") else None)
    except ControllerError as error:
        failed = Finding("controller", "cannot be loaded", str(error))
        return Audit(admitted, (), (failed,))
    shared = controller.fitted & controller.calibrated
    apart = Finding(
        "fitted and calibrated questions",
        f"{len(controller.fitted)} and {len(controller.calibrated)}, by stored hashes of their "
        "words and groups",
        f"{len(shared)} questions are in both" if shared else None,
    )
    enters = WEIGHED if controller.weigher else ()
    excluded = tuple(Finding(name, why) for name, why in EXCLUDED.items() if name not in enters)
    return Audit(admitted, excluded, (apart,))


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
