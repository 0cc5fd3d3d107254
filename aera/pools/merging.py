"""Merge pools: one question after the other, its responses one pool after the other."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from aera.errors import UsageError
from aera.pools.parquet import ParquetPool
from aera.pools.pool import Pool
from aera.pools.record import Drawn, Record
from aera.response import Question, Response

Stored = Pool | ParquetPool


def check_alike(pools: Sequence[Stored]) -> None:
    """Refuse pools whose responses were asked for, or would be read, in different ways."""
    first = pools[0]
    ours = _asked(first)
    for pool in pools[1:]:
        for name, value in _asked(pool).items():
            if value != ours[name]:
                raise UsageError(
                    f'"{first.name}" and "{pool.name}" cannot be merged, their {name} differs: '
                    f"{_shown(ours[name])} and {_shown(value)}; import or sample one of them again"
                )


def _asked(pool: Stored) -> dict[str, object]:
    """What pools must have in common: the task with its prompt, and the system message."""
    task = pool.task.as_json()
    named = {f"task's {name}": value for name, value in task.items() if name != "template"}
    return {"prompt": task["template"], **named, "system": pool.manifest.sampler.get("system")}


def _shown(value: object) -> str:
    return "nothing" if value is None else f"{value!r:.60}"


def merge_questions(pools: Sequence[Stored]) -> dict[str, Question]:
    """All questions by id, in the order of the pools; one id for two questions is refused."""
    merged: dict[str, Question] = {}
    for pool in pools:
        for question in _stored_questions(pool).values():
            known = merged.get(question.id, question)
            if replace(known, group=None) != replace(question, group=None):
                raise UsageError(
                    f'question {question.id} in "{pool.name}" has another text, other choices or '
                    "another system message than before; give one of the two another id"
                )
            merged[question.id] = replace(known, group=known.group or question.group)
    return merged


def merge_records(pools: Sequence[Stored], questions: Mapping[str, Question]) -> Iterator[Record]:
    """Every question with its responses in all pools, also those that are left out in some."""
    drawn = [(pool, _stored_questions(pool), Drawn(_everything(pool))) for pool in pools]
    for question in questions.values():
        responses: list[Response] = []
        for pool, known, records in drawn:
            found = records.take(question.id) if question.id in known else None
            if found is not None:
                _check_new(question, responses, found.responses, where=pool.name)
                responses += found.responses
        yield Record(question, tuple(responses))


def _check_new(
    question: Question, before: Sequence[Response], added: Sequence[Response], *, where: str
) -> None:
    """Refuse responses that are there already: the same seed gave the same text."""
    known = {(r.seed, r.model, r.text) for r in before if r.seed is not None}
    for response in added:
        if (response.seed, response.model, response.text) in known:
            raise UsageError(
                f'the response to question {question.id} with seed {response.seed} in "{where}" '
                "is in an earlier pool too; leave that pool out, or sample it with another --seed"
            )


def merge_sampler(pools: Sequence[Stored]) -> dict[str, Any]:
    """The settings all pools share, and what each has of its own."""
    samplers = [pool.manifest.sampler for pool in pools]
    shared = {
        name: value
        for name, value in samplers[0].items()
        if all(name in other and other[name] == value for other in samplers)
    }
    own = [{k: v for k, v in each.items() if k not in shared} for each in samplers]
    sources = [{"pool": pool.name, **told} for pool, told in zip(pools, own, strict=True)]
    return {**shared, "merged_from": sources}


def merge_seed(pools: Sequence[Stored]) -> int | None:
    """The seed, where all pools have the same."""
    seeds = {pool.manifest.seed for pool in pools}
    return seeds.pop() if len(seeds) == 1 else None


def _stored_questions(pool: Stored) -> dict[str, Question]:
    return pool.stored_questions if isinstance(pool, Pool) else pool.questions


def _everything(pool: Stored) -> Iterator[Record]:
    return pool.everything() if isinstance(pool, Pool) else iter(pool)
