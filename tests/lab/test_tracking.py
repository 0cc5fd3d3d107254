from typing import Any

from aera.lab.tracking import log_evaluation

EVALUATION: dict[str, Any] = {
    "pool": {"name": "p"},
    "points": [
        {"policy": "fixed-4", "status": "as given", "accuracy": 60.0, "responses": 4, "stops": {}},
        {"policy": "asc-0.95", "accuracy": None, "responses": 7.5, "stops": {"4": 1}},
    ],
}


def test_every_figure_of_every_point_is_logged_once_and_flat() -> None:
    logged: list[dict[str, float]] = []
    log_evaluation(EVALUATION, logged.append)
    assert logged == [
        {"fixed-4/accuracy": 60.0, "fixed-4/responses": 4.0, "asc-0.95/responses": 7.5}
    ]


def test_names_can_be_told_apart_by_a_prefix() -> None:
    figures = log_evaluation(EVALUATION, lambda _: None, prefix="gsm8k/")
    assert min(figures) == "gsm8k/asc-0.95/responses"
