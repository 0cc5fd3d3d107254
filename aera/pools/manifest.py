"""Manifest: what a pool says of itself, and which of its questions count."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from operator import index
from typing import Any

from aera.errors import PoolError, check_count
from aera.files import check_format, written_by
from aera.reading.task import Task, task_from_json
from aera.schedule import Schedule

FORMAT = 4
"""2 had no prompt tokens, 1 no answers without text, systems, groups and questions left out."""


@dataclass(frozen=True)
class Manifest:
    """What a pool says of itself."""

    task: Task
    schedule: Schedule
    questions: int
    """Those that count, as with `responses`."""
    responses: int
    sampler: dict[str, Any]
    seed: int | None
    hashes: dict[str, str]
    each: int
    """Responses a question needs to count; one with fewer is left out."""
    other_counts: Mapping[str, int] | None = field(default_factory=dict)
    """Responses of the questions that have more or fewer than `each`; None where format 1 does
    not say."""
    written_by: str | None = field(default_factory=written_by)
    """The version of aera, where it is known."""

    @property
    def left_out(self) -> dict[str, str]:
        """The questions that do not count, each with the reason."""
        return {
            question_id: f"has {count} response{'s' * (count != 1)}, fewer than {self.each}"
            for question_id, count in (self.other_counts or {}).items()
            if count < self.each
        }

    def with_counts(self, counts: Mapping[str, int], *, each: int) -> "Manifest":
        """The same for another number of responses, by how many each question has."""
        check_count("responses", each)
        kept = [count for count in counts.values() if count >= each]
        if not kept:
            most = max(counts.values(), default=0)
            raise PoolError(f"no question has {each} responses, the most are {most}; ask for fewer")
        others = {name: count for name, count in counts.items() if count != each}
        return replace(
            self,
            schedule=Schedule.doubling(each),
            questions=len(kept),
            responses=sum(kept),
            each=each,
            other_counts=others,
        )

    def as_json(self) -> dict[str, Any]:
        """The content of manifest.json."""
        return {
            "format": FORMAT,
            "written_by": self.written_by,
            "task": self.task.as_json(),
            "prompt_template": self.task.template,
            "schedule": list(self.schedule),
            "sampler": self.sampler,
            "seed": self.seed,
            "counts": {"questions": self.questions, "responses": self.responses},
            "responses_each": self.each,
            "other_counts": dict(self.other_counts or {}),
            "left_out": self.left_out,
            "hashes": self.hashes,
        }


def manifest_of(fields: dict[str, Any], where: str) -> Manifest:
    """The manifest that manifest.json holds; a newer format is refused."""
    check_format(fields, FORMAT, where=where, error=PoolError)
    schedule = Schedule(tuple(map(index, fields["schedule"])))
    told = fields["format"] >= 2
    return Manifest(
        task=task_from_json(fields["task"]),
        schedule=schedule,
        questions=fields["counts"]["questions"],
        responses=fields["counts"]["responses"],
        sampler=fields["sampler"],
        seed=fields["seed"],
        hashes=fields["hashes"],
        each=index(fields["responses_each"]) if told else schedule.last,
        other_counts={k: index(n) for k, n in fields["other_counts"].items()} if told else None,
        written_by=fields.get("written_by"),
    )


def best_count(counts: Iterable[int]) -> int:
    """The number of responses that keeps most of them: N times the questions with at least N.

    Where two numbers keep as many, the smaller one, which keeps more questions.
    """
    falling = sorted(counts, reverse=True)
    kept = [(count * place, place) for place, count in enumerate(falling, start=1)]
    return falling[max(kept)[1] - 1] if kept else 0
