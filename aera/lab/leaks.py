"""The leakage audit: where every input of a controller comes from, and why nothing else enters.

That no input moves with later responses, with truths or with judged questions is a test of ours.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aera.errors import ControllerError
from aera.files import read_rows
from aera.lab.learning.folds import group_questions
from aera.paper.features import FEATURES
from aera.policies.gate import COUNTS, SPEND, VOTE, VOTE_FEATURES
from aera.pools.pool import RESPONSE_FIELDS, SOMETIMES, Pool
from aera.solving.controller import Controller, read_config
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
INPUTS = {feature.name: PROVENANCE[feature.group] for feature in (*FEATURES, *VOTE_FEATURES)}
INPUTS |= dict.fromkeys(TRAIT_NAMES, "one response seen, and its question: the weigher's")
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
WEIGHED = ("logprob", "finish_reason")  # enter through a weigher, where a controller has one
# What calibration is on the questions that teach.
OUT_OF_FOLD = "each was judged by what the others taught, which certifies nothing"
SHOWN = 3  # questions that are named
OUTCOMES = ("correct", "truth", "gold", "label", "grade", "score", "reward", "target", "answer")


@dataclass(frozen=True)
class Finding:
    """One thing the audit looked at. `leak` is None when it is clean."""

    subject: str
    provenance: str
    leak: str | None = None
    part: str = "checks"


def check_pool(path: Path) -> list[Finding]:
    """Look at a pool's columns, and at what keeps its questions apart."""
    return [*_admit(INPUTS), *_exclude(WEIGHED), *_look(Pool.open(path))]


def check_controller(path: Path, pool: Path | None = None) -> list[Finding]:
    """Look at a controller's inputs and whom it was taught and calibrated by.

    With a pool, also at whether its questions had a part in that.
    """
    found: list[Finding] = []
    try:
        config = read_config(path)
        found += _admit(_inputs(config))
        # A scorer is not kept with a controller, and is not asked here.
        scored = isinstance(config, dict) and config.get("scorer")
        absent: Any = object() if scored else None
        controller = Controller.load(path, scorer=absent)
    except ControllerError as error:
        return [*found, Finding("controller", "cannot be loaded", str(error))]
    found += [*_exclude(WEIGHED if controller.weigher else ()), _apart(controller)]
    if pool is not None:
        opened = Pool.open(pool)
        found += [_seen(controller, opened), *_look(opened)]
    return found


def _admit(names: Iterable[str]) -> Iterator[Finding]:
    for name in names:
        leak = None if name in INPUTS else "no such feature is computed from a prefix"
        yield Finding(name, INPUTS.get(name, "unknown"), leak, "admitted inputs")


def _exclude(enters: Sequence[str]) -> Iterator[Finding]:
    """What plays no part, but for those that enter here."""
    for name, why in EXCLUDED.items():
        if name not in enters:
            yield Finding(name, why, None, "excluded")


# --- a pool ---------------------------------------------------------------------------------------


def _look(pool: Pool) -> Iterator[Finding]:
    """Columns a pool should not have, outcomes beside what was observed; and its groups."""
    told = {"question_id", "index", *RESPONSE_FIELDS, *SOMETIMES}
    allowed = {"questions.jsonl": {"id", "question", "choices", "system", "group"}}
    for name, columns in (allowed | {file.name: told for file in pool.segments}).items():
        found: set[str] = set()
        for present in read_rows(pool.path / name, set):
            found |= present
        for column in sorted(found - columns):
            outcome = any(word in column.lower() for word in OUTCOMES)
            kind = "an outcome beside the responses" if outcome else "not a column of a pool"
            yield Finding(f"{name}: {column}", "unknown", kind)
        yield Finding(name, f"columns {', '.join(sorted(found & columns))}")
    questions = [*pool.questions.values()]
    count = len(set(group_questions(questions).tolist()))
    said = f"{len(questions)} questions in {count} groups, by their group or their words"
    if shared := len(questions) - count:
        said += f"; {shared} would teach about another, and no split parts them"
    yield Finding("groups", said)


# --- a controller ---------------------------------------------------------------------------------


def _apart(controller: Controller) -> Finding:
    """Who taught and who calibrated, as it really was."""
    fitted, calibrated = controller.fitted, controller.calibrated
    told, shared = controller.calibration, fitted & calibrated
    certified, leak = told.get("alpha") is not None, None
    how = f"{len(fitted)} and {len(calibrated)}"
    if not calibrated and not certified:
        # Before they were kept, no hashes of calibration meant that those of the fit calibrated.
        old = f"{len(fitted)} that taught and, by an older version, calibrated: {OUT_OF_FOLD}"
        how = old if fitted and "setting" in told else "nothing was calibrated"
    elif calibrated <= fitted and told.get("out_of_fold") and not certified:
        how = f"the same {len(calibrated)}: {OUT_OF_FOLD}"
    elif shared or not calibrated:
        leak = f"{len(shared)} questions are in both" if shared else "certified on no question"
    else:
        how += ", disjoint"
    by = "by stored hashes of words and groups"
    return Finding("fitted and calibrated questions", f"{how}; {by}", leak)


def _seen(controller: Controller, pool: Pool) -> Finding:
    """Whether the questions of a pool had a part in a controller."""
    seen = controller.find_seen(pool.questions.values())
    some = ", ".join(seen[:SHOWN]) + (", ..." if len(seen) > SHOWN else "")
    test = f" ({some}) had a part in it, so this is no test of it" if seen else " had a part in it"
    return Finding("questions of the pool", f"{len(seen)} of {len(pool.questions)}{test}")


def _inputs(config: Any) -> list[str]:
    """The inputs a controller says it has, however broken the rest of it is."""
    try:
        lower = [name for names in config.get("lower_traits", ()) for name in names]
        return [*dict.fromkeys(map(str, (*config["features"], *config.get("traits", ()), *lower)))]
    except (TypeError, KeyError, AttributeError):
        return []
