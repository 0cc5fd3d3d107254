"""One headline: as strong as its interval, against what was promised, the same everywhere."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lab_fixtures import Bench
from made_questions import trajectories_of

import aera
from aera import get_task, parse_policy
from aera.lab import Choice, Frontier, Point, Trajectories, Truths
from aera.lab.build import Built
from aera.lab.frontier import Kind, fixed_points
from aera.lab.stats import FEW
from aera.lab.summary import Evaluation
from aera.lab.words import (
    NONE_RIGHT,
    Headline,
    certify,
    certify_controller,
    tell_choice,
    uncertified,
)
from aera.solving.controller import default_controller


def choice(setting: float | None, alpha: float | None, **others: Any) -> Choice:
    made = Choice("aera", setting, 0.02, alpha, 120, 0.9, 0.9, 0.5, 300 if alpha else None)
    return replace(made, **others)


def spoken(shown: Trajectories, *points: Point, max_loss: float = 0.02) -> dict[str, Any]:
    return Headline(Frontier(points, shown), False, ".", 100 * max_loss).as_json()


def headline_of(
    lost: int, *, gained: int = 0, questions: int = 400, allowed: float = 0.02, **point: Any
) -> dict[str, Any]:
    """The headline of a policy that loses and gains so many questions for a quarter of the cost."""
    grades = np.ones((questions, 3))
    grades[:lost, 0] = 0
    grades[lost : lost + gained, 1:] = 0
    shown, stops = trajectories_of(grades), np.zeros(questions, dtype=np.int64)
    own = Point("aera-calibrated", stops, shown, **{"kind": Kind.CALIBRATED, **point})
    return spoken(shown, own, max_loss=allowed)


@pytest.mark.parametrize(
    ("lost", "gained", "allowed", "claim", "limit"),
    [
        (0, 0, 0.02, "100.0 % right against 100.0 %", "as accurate within 2 points."),
        (16, 0, 0.08, "96.0 % right against 100.0 %", "4.0 points less, within the 8 allowed."),
        (2, 0, 0.005, "99.5 % right against 100.0 %", "and 2.0 points less cannot be ruled out."),
        (0, 0, 0.005, "100.0 % right against 100.0 %", "no less here, and 1.2 points less cannot"),
        (40, 0, 0.02, "90.0 % right against 100.0 %", "10.0 points less."),
        (0, 40, 0.02, "100.0 % right against 90.0 %", "10.0 points more."),
    ],
)
def test_both_figures_the_price_and_how_sure_come_first_then_what_became_of_the_limit(
    lost: int, gained: int, allowed: float, claim: str, limit: str
) -> None:
    made = headline_of(lost, gained=gained, allowed=allowed)
    assert made["claim"].startswith(f"{claim} for 16 plain votes, at 25 % of the tokens (95 %: ")
    assert made["claim"].endswith(" points)")
    assert limit in made["grounds"]


@pytest.mark.parametrize("questions", [1, 5, FEW - 1])
def test_few_questions_are_too_few_to_say(questions: int) -> None:
    made = headline_of(0, questions=questions)
    assert "too few to say" in made["claim"]
    assert "within" not in made["grounds"]
    assert made["gap"]["low"] < -8


def test_questions_it_was_trained_on_make_no_gain() -> None:
    made = headline_of(0, gained=80, kind=Kind.CONTROLLER, in_sample=True)
    assert made["status"] == "in-sample"
    assert (made["gap"], made["beside"]) == (None, [])
    assert "points" not in made["claim"]
    assert "better" not in made["grounds"]


def test_where_nothing_is_right_the_labels_are_doubted(bench: Bench, tmp_path: Path) -> None:
    Truths(dict.fromkeys(bench.truths, "-7")).save(tmp_path)
    wrong = replace(bench.records, folder=tmp_path)
    assert NONE_RIGHT in aera.evaluate(wrong).remarks
    assert NONE_RIGHT not in aera.evaluate(bench.records).remarks


def test_plain_votes_come_first_and_its_own_full_budget_stands_beside() -> None:
    plain, weighted = np.ones((100, 3)), np.ones((100, 3))
    plain[:30], weighted[:10, 0] = 0, 0
    own, shown = trajectories_of(plain), trajectories_of(weighted)
    stops = np.zeros(100, dtype=np.int64)
    point = Point("aera-0.2", stops, shown, kind=Kind.CONTROLLER, weighted=True)
    made = spoken(shown, *fixed_points(own), *fixed_points(shown, weighted=True), point)
    assert made["claim"].startswith("90.0 % right against 70.0 % for 16 plain votes, at 25 %")
    assert made["reference"] == "weighted-16"
    assert "weighted-16, its own full budget (100.0 % right): 10.0 points less." in made["grounds"]
    assert [row["reference"] for row in made["beside"]] == ["fixed-4", "fixed-8", "fixed-16"]
    assert [row["gap"]["difference"] for row in made["beside"]] == pytest.approx([20, 20, 20])


def test_a_policy_that_never_stops_saves_nothing() -> None:
    shown = trajectories_of(np.ones((60, 3)))
    point = Point("aera-calibrated", np.full(60, 2), shown, kind=Kind.CALIBRATED)
    made = spoken(shown, point)
    assert made["claim"] == "All 16 samples are kept, so nothing is saved"
    assert made["spent"]["percent"] == 100


# --- tables ---------------------------------------------------------------------------------------


def test_a_table_has_five_rows_and_what_was_asked_for(replayed: Evaluation, bench: Bench) -> None:
    rows = replayed.table()
    assert [row[0] for row in rows[1:]] == ["fixed-4", "fixed-32", "asc-0.95", "lead-4", "oracle"]
    assert [row[-1] for row in rows] == [
        "what it is",
        *(f"always {n} plain votes" for n in (4, 32)),
        "stops on a clear leader",
        "stops on a lead in votes",
        "the best stop, in hindsight",
    ]
    assert [row[0] for row in replayed.table(whole=True)[1:]] == [
        point.policy for point in replayed.frontier.points
    ]
    asked = replace(replayed, policies=[parse_policy("esc-3"), parse_policy("esc-5")])
    assert {"esc-3", "esc-5"} < {row[0] for row in asked.table()}
    assert repr(replayed).startswith(replayed.headline["claim"])


# --- the certificate ------------------------------------------------------------------------------


CALIBRATIONS = [
    choice(0.3, 0.1),
    choice(0.3, None, margin=1.0),
    choice(0.3, None, questions=20, margin=1.0),
    choice(None, 0.1),
    choice(None, None),
    None,
]


@pytest.mark.parametrize("chosen", CALIBRATIONS)
@pytest.mark.parametrize(("seen", "task"), [(0, "numeric"), (7, "numeric"), (0, "choice")])
def test_a_certificate_is_one_sentence_that_does_not_contradict_itself(
    chosen: Choice | None, seen: int, task: str
) -> None:
    calibration = {"learned": "somehow", **(asdict(chosen) if chosen else {})}
    controller = replace(default_controller(get_task("numeric")), calibration=calibration)
    certified, told = certify_controller(controller, seen=seen, task=task)
    assert told.lower().count("certified") <= 1
    assert told.count(". ") == 0
    assert told.endswith(".")
    assert told.startswith("Certified: " if certified else "Not ")
    proved = chosen is not None and chosen.feasible and chosen.alpha is not None
    assert certified is (proved and not seen and task == "numeric")


@pytest.mark.parametrize(
    ("choices", "said", "unsaid"),
    [
        ([choice(0.3, 0.1)] * 2, "Certified: P(loss ≤ 2 points against its own full", "Not"),
        ([choice(0.3, None, questions=20, margin=1.0)], "too few to say", "standard error"),
        ([choice(0.3, 0.1), choice(None, 0.1)], "(it takes about 300), so the full", "Certified"),
        ([choice(0.3, 0.1), choice(None, 0.1)], "in 1 of 2 folds", "Certified"),
    ],
)
def test_every_fold_needs_a_certificate(choices: list[Choice], said: str, unsaid: str) -> None:
    certified, told = certify(choices, "")
    assert certified is said.startswith("Certified")
    assert said in told
    assert unsaid not in told


@pytest.mark.parametrize(
    ("protocol", "graded", "why"),
    [("replay", False, "no right answers"), ("replay", True, "nothing was calibrated"),
     ("crossfit", True, "crossfit is descriptive")],
)  # fmt: skip
def test_what_nothing_was_proved_of_says_why(protocol: str, graded: bool, why: str) -> None:
    assert why in uncertified(protocol, graded=graded)[1]


# --- the same everywhere ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def replayed(bench: Bench) -> Evaluation:
    return aera.evaluate(bench.records)


def test_the_model_card_has_the_certificate_of_the_report(built: Built, bench: Bench) -> None:
    unseen = replace(built.controller, fitted=frozenset(), calibrated=frozenset())
    made = aera.evaluate(bench.records, (), controller=unseen)
    assert made.headline["certificate"] == tell_choice(built.choice)[1]
    assert made.headline["certificate"] in built.controller.card
