"""An evaluation as a file: points, comparisons and the shapes of the trajectories."""

from dataclasses import asdict
from typing import Any

import numpy as np

from aera.lab.bootstrap import compare_all
from aera.lab.frontier import Frontier
from aera.lab.trajectory import Trajectories
from aera.pool import Pool


def summarize(frontier: Frontier, pool: Pool, *, protocol: str, seed: int) -> dict[str, Any]:
    """The evaluation JSON. Accuracies, savings and differences are in percent."""
    trajectories = frontier.trajectories
    graded = trajectories.grades is not None
    return {
        "pool": {
            "name": pool.path.name,
            "task": pool.task.name,
            "questions": len(trajectories.question_ids),
            "schedule": list(trajectories.schedule),
        },
        "protocol": protocol,
        "seed": seed,
        "points": [point.as_json() for point in frontier.points],
        "comparisons": comparisons(frontier, seed=seed) if graded else [],
        "trajectories": _shapes(trajectories) if graded else None,
    }


def comparisons(frontier: Frontier, *, seed: int, resamples: int = 20_000) -> list[dict[str, Any]]:
    """Every point against every fixed budget, paired by question."""
    references = [point for point in frontier.points if point.policy.startswith("fixed-")]
    if not references:
        return []
    scores = np.array([100 * point.scores for point in frontier.points])
    fixed = np.array([100 * point.scores for point in references])
    table = compare_all(scores, fixed, resamples=resamples, seed=seed)
    return [
        {"policy": point.policy, "reference": reference.policy, **asdict(interval)}
        for point, row in zip(frontier.points, table, strict=True)
        for reference, interval in zip(references, row, strict=True)
        if point.policy != reference.policy
    ]


def _shapes(trajectories: Trajectories) -> dict[str, Any]:
    return {
        "shapes": trajectories.shapes(),
        "transitions": [asdict(row) for row in trajectories.transitions()],
    }
