"""Plan: what is sampled into a pool, as plan.json keeps it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aera.errors import UsageError, check_count
from aera.files import write_whole
from aera.reading.task import Task, task_from_json
from aera.schedule import Schedule

PLAN = "plan.json"


@dataclass(frozen=True)
class Plan:
    """What to sample. A pool begun with one plan is continued with it, and then perhaps grown."""

    task: Task
    responses: int = 128
    sampler: Mapping[str, Any] = field(default_factory=dict)
    """Model, settings and prompt, as the manifest keeps them."""
    seed: int | None = None
    schedule: Schedule | None = None
    """Checkpoints that the pool keeps; None for the usual ones."""

    def __post_init__(self) -> None:
        check_count("responses", self.responses)
        if self.schedule is not None and self.schedule.last > self.responses:
            raise UsageError(
                f"the schedule goes to {self.schedule.last}, but {self.responses} responses are "
                "sampled; give more --responses or a shorter --schedule"
            )

    def as_json(self) -> dict[str, Any]:
        """The content of plan.json."""
        told = {
            "task": self.task.as_json(),
            "responses": self.responses,
            "sampler": dict(self.sampler),
            "seed": self.seed,
        }
        return told if self.schedule is None else {**told, "schedule": [*self.schedule]}

    def alike(self, other: "Plan") -> bool:
        """Whether only the number of responses and the checkpoints differ, if anything."""
        own = replace(self, schedule=None)
        return same_plan(own, replace(other, responses=self.responses, schedule=None))


def same_plan(one: Plan, other: Plan) -> bool:
    """Whether both say the same, which JSON does not always say in the same words."""
    return json.dumps(one.as_json(), sort_keys=True) == json.dumps(other.as_json(), sort_keys=True)


def read_plan(folder: Path) -> Plan | None:
    """The plan a recording was begun with, also by an older version; None where there is none."""
    try:
        fields = json.loads((folder / PLAN).read_text("utf-8"))
        task = task_from_json(fields["task"])
        points = fields.get("schedule")
        schedule = None if points is None else Schedule(tuple(points))
        return Plan(task, fields["responses"], fields["sampler"], fields["seed"], schedule)
    except (OSError, ValueError, LookupError, TypeError, UsageError):
        return None


def keep_plan(folder: Path, plan: Plan) -> bool:
    """Write a plan that never changes; whether the one that stands there says the same."""
    file = folder / PLAN
    if file.exists():
        there = read_plan(folder)
        return there is not None and same_plan(there, plan)
    write_whole(file, json.dumps(plan.as_json(), indent=2, sort_keys=True) + "\n")
    return True
