"""Send an evaluation to whatever keeps track of experiments."""

from collections.abc import Callable, Mapping
from typing import Any


def log_evaluation(
    evaluation: Mapping[str, Any], log: Callable[[dict[str, float]], object], *, prefix: str = ""
) -> dict[str, float]:
    """Log every figure of every point as one flat dictionary, and return it.

    `log` is `wandb.log`, `mlflow.log_metrics`, `trackio.log` or any other function that takes
    names and numbers; names are `policy/figure`.
    """
    figures = {
        f"{prefix}{point['policy']}/{name}": float(value)
        for point in evaluation["points"]
        for name, value in point.items()
        if isinstance(value, int | float)
    }
    log(figures)
    return figures
