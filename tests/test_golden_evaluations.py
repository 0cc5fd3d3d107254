"""Evaluations as they came out before, number by number: four protocols by four teachers.

Each case runs `aera evaluate --json` on a small pool cut from the bundled one, and compares with
golden/evaluations/CASE.json. What policies did (`points`, `calibration`) is compared exactly.
What is said about chance (`intervals`: bounds and p) has a key of its own and 1e-9, so that a
better method changes only that key. A case that is refused pins the sentence.

AERA_GOLDEN=write pytest tests/test_golden_evaluations.py writes the files anew; look at the diff.
"""

import json
from collections.abc import Iterator
from contextlib import chdir
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from commands import said
from foreign_questions import DEMO, demo_rows
from golden.files import WRITE
from streams import write_rows

from aera import AeraError

HERE = Path(__file__).parent
GOLDEN = HERE / "golden" / "evaluations"
LOSS = ("--max-loss", "0.1")
PROTOCOLS = ("replay", "crossfit", "nested", "holdout")
SCORER = """
class Short:
    def score(self, question, responses):
        return [100 / (100 + len(response.text)) for response in responses]
"""
TEACHERS: dict[str, tuple[str, ...]] = {
    "votes": ("labelled", *LOSS),
    "paper": ("labelled", "--paper", *LOSS),
    "majority": ("bare", *LOSS),
    "scores": ("labelled", "--scorer", "golden_judges:Short"),
}
CASES = {
    f"{protocol}-{teacher}": (*words, "--protocol", protocol)
    for protocol, (teacher, words) in product(PROTOCOLS, TEACHERS.items())
}
# Replay learns nothing, so there the two gates are saved ones or none; crossfit is always the
# paper's, and its other half would only cost time.
CASES["replay-votes"] += ("--controller", str(DEMO / "controller"), "--max-samples", "16")
del CASES["crossfit-votes"]
# Weights are used only where they gain, which 40 questions do not show.
CASES["holdout-votes"] = ("wide", *CASES["holdout-votes"][1:])
POINT = (
    *("policy", "accuracy", "re2_mean", "agreement", "responses", "tokens"),
    *("response_saving", "token_saving"),
)
CHOICE = ("family", "setting", "questions", "accuracy", "reference", "token_saving")
CHANCE = (
    *("policy", "reference", "difference", "percent", "mean", "observed", "low", "high", "p"),
    *("better", "worse"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a pool, one without labels, a wide one, and a scorer; commands run there."""
    made = tmp_path_factory.mktemp("golden")
    labelled, wide = demo_rows(40, 16), demo_rows(responses=8)
    bare = [{name: row[name] for name in row if name != "answer"} for row in labelled]
    (made / "golden_judges.py").write_text(SCORER, "utf-8")
    with chdir(made), pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(made))
        for name, content in (("labelled", labelled), ("bare", bare), ("wide", wide)):
            said("import", write_rows(Path(f"{name}.jsonl"), content), "--out", name)
        yield made


def evaluated(words: tuple[str, ...]) -> dict[str, Any]:
    """What the command says of these words, cut to what is compared; or how it refuses them."""
    try:
        said("evaluate", *words, "--seed", 0, "--json", "evaluation.json")
    except AeraError as error:
        return {"refused": str(error)}
    return cut(json.loads(Path("evaluation.json").read_text("utf-8")))


def cut(whole: dict[str, Any]) -> dict[str, Any]:
    """The numbers of an evaluation; sentences may be put better.

    Of the comparisons, the headline's own and those with its reference are enough.
    """
    head = whole.get("headline") or {}
    names = {head.get("policy"), head.get("reference")}
    compared = [row for row in whole["comparisons"] if names & {row["policy"], row["reference"]}]
    sections = {name: whole.get(name) or [] for name in ("mixtures", "matched_random", "changed")}
    sections |= {"comparisons": compared, "savings": whole.get("savings") or []}
    about = {f"headline {n}": [head[n]] for n in ("spent", "gap", "changed") if head.get(n)}
    return {
        "pool": whole["pool"],
        "headline": [head.get(name) for name in ("policy", "reference", "certified")],
        "points": [
            [*(row.get(name) for name in POINT), *row["stops"].values()] for row in whole["points"]
        ],
        "calibration": [
            [rule, *(choice.get(name) for name in CHOICE)]
            for rule, choices in (whole.get("calibration") or {}).items()
            for choice in (choices if isinstance(choices, list) else [choices])
        ],
        "intervals": [
            [section, *(row[name] for name in CHANCE if name in row)]
            for section, rows in (sections | about).items()
            for row in rows
        ],
    }


def written(made: dict[str, Any]) -> str:
    """A line for each row, so that a diff reads as a table."""
    parts = []
    for name, value in made.items():
        text = json.dumps(value)
        if isinstance(value, list) and value and isinstance(value[0], list):
            text = "[\n" + ",\n".join(f"  {json.dumps(row)}" for row in value) + "\n ]"
        parts.append(f" {json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


@pytest.mark.parametrize("case", CASES)
def test_an_evaluation_is_what_it_was(case: str, folder: Path) -> None:
    file, made = GOLDEN / f"{case}.json", evaluated(CASES[case])
    if WRITE:
        file.write_text(written(made), "utf-8")
    kept = json.loads(file.read_text("utf-8"))
    made_chance, kept_chance = made.pop("intervals", []), kept.pop("intervals", [])
    assert made == kept
    for now, before in zip(made_chance, kept_chance, strict=True):
        assert now == pytest.approx(before, abs=1e-9)


def test_every_golden_evaluation_has_its_case() -> None:
    assert {file.stem for file in GOLDEN.glob("*.json")} == set(CASES)
