import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import refusal
from nets import paper_gate_of, weigher_of
from safetensors.numpy import load_file, save
from streams import edit

from aera import Prefix, Question, Response, Schedule, Vote, get_task, unfold
from aera.errors import ControllerError, UsageError
from aera.files import file_hash
from aera.paper.encoder import StaticEncoder
from aera.paper.features import NAMES, PaperGate
from aera.policies.gate import Gated
from aera.policies.rules import ASC, Bounded, Fixed, Policy, range_of
from aera.solving.controller import Controller, question_hashes
from aera.voting.traits import TRAIT_NAMES, UNTRACED

SCHEDULE = Schedule((2, 4, 8))


@pytest.fixture(scope="module")
def gate() -> PaperGate:
    return paper_gate_of(StaticEncoder.load())


def hashes_of(*questions: Question) -> frozenset[str]:
    return frozenset(question_hashes(each)[0] for each in questions)


@pytest.fixture(scope="module")
def controller(gate: PaperGate) -> Controller:
    return Controller(
        task=get_task("gsm8k"),
        schedule=SCHEDULE,
        policy=Gated(gate, 0.3),
        gate=gate,
        weigher=weigher_of(),
        calibration={"setting": 0.3, "feasible": True},
        fitted=hashes_of(Question("a", "one?"), Question("b", "two?")),
        calibrated=hashes_of(Question("c", "three?")),
    )


@pytest.fixture
def saved(controller: Controller, tmp_path: Path) -> Path:
    replace(controller, card="# A card\n").save(tmp_path / "c")
    return tmp_path / "c"


@pytest.fixture
def prefixes() -> list[Prefix]:
    texts = [f"the sum of {i} and {i + 1} is {2 * i + 1}" for i in range(7)] + [""]
    responses = [Response(text, len(text)) for text in texts]
    votes = [Vote(answer) for answer in ["1", "2", "1", None, "1", "1", "3", None]]
    return list(unfold(Question("q", "?"), responses, votes=votes, schedule=SCHEDULE))


def refused(path: Path) -> str:
    """The one sentence with which a controller is refused."""
    said = refusal(ControllerError, Controller.load, path)
    assert str(path) in said or "trained" in said
    return said


# --- saved and loaded -----------------------------------------------------------------------------


def test_a_loaded_controller_is_and_decides_as_the_saved_one(
    controller: Controller, saved: Path, prefixes: list[Prefix]
) -> None:
    edit(saved, ahead={"past": [2, 4]})  # a field that means nothing any more
    loaded = Controller.load(saved)
    found = [loaded.gate.p_continue(prefix) for prefix in prefixes]
    for prefix in prefixes:
        prefix.memo.clear()
    assert found == [controller.gate.p_continue(prefix) for prefix in prefixes]
    assert len(set(found)) == len(prefixes)
    assert (loaded.task, loaded.schedule) == (controller.task, controller.schedule)
    assert (str(loaded.policy), loaded.calibration) == ("aera-0.30", controller.calibration)
    assert (loaded.fitted, loaded.calibrated) == (controller.fitted, controller.calibrated)
    asked = [Question("a", "one?"), Question("x", "new?"), Question("c", "three?")]
    assert controller.find_seen(asked) == loaded.find_seen(asked) == ["a", "c"]
    assert (saved / "README.md").read_text() == "# A card\n"
    assert loaded.pace == "works"
    seen = np.random.default_rng(4).normal(size=(30, len(TRAIT_NAMES))) * 3
    np.testing.assert_array_equal(loaded.weigher.weights(seen), weigher_of().weights(seen))


@pytest.mark.parametrize("policy", [Fixed(8), ASC(0.95), Bounded(ASC(0.9), minimum=4)])
def test_a_policy_without_a_gate_needs_no_model(policy: Policy, tmp_path: Path) -> None:
    Controller(get_task("numeric"), SCHEDULE, policy).save(tmp_path)
    loaded = Controller.load(tmp_path)
    assert (str(loaded.policy), loaded.gate) == (str(policy), None)
    assert loaded.pace == "quick"
    assert not (tmp_path / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("policy", "label"), [(ASC(0.71), "asc-0.71+weighted"), (Fixed(8), "weighted-8")]
)
def test_labels_tell_weighted_from_plain_votes(policy: Policy, label: str, tmp_path: Path) -> None:
    plain = Controller(get_task("numeric"), SCHEDULE, policy)
    weighted = replace(plain, weigher=weigher_of())
    assert (plain.label, weighted.label) == (str(policy), label)
    weighted.save(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["policy"] == label
    assert Controller.load(tmp_path).policy == policy
    edit(tmp_path, policy=str(policy))  # as controllers were saved before
    assert Controller.load(tmp_path).label == label
    plain.save(tmp_path / "plain")
    edit(tmp_path / "plain", policy=label)
    assert "other votes" in refused(tmp_path / "plain")


def test_what_could_not_be_loaded_is_not_saved(controller: Controller, tmp_path: Path) -> None:
    class Even:
        def weigh(self, question: object, responses: object, votes: list[Vote]) -> list[Vote]:
            return votes

    bounded = replace(controller, policy=Bounded(controller.policy))
    for made, said in (
        (bounded, str(bounded.policy)),
        (replace(controller, weigher=Even()), "cannot keep a Even; save it with weigher=None"),
    ):
        with pytest.raises(ControllerError, match=re.escape(said)):
            made.save(tmp_path / "c")
    assert not (tmp_path / "c").exists()


# --- refusals -------------------------------------------------------------------------------------


def truncate(path: Path) -> None:
    model = path / "model.safetensors"
    model.write_bytes(model.read_bytes()[:-100])


def flip(path: Path) -> None:
    model = path / "model.safetensors"
    content = bytearray(model.read_bytes())
    content[-1] ^= 1
    model.write_bytes(content)


def rewrite(path: Path, content: bytes) -> None:
    """Other arrays, with the hash that goes with them."""
    (path / "model.safetensors").write_bytes(content)
    edit(path, model_sha256=file_hash(path / "model.safetensors"))


def change(**changed: int | tuple[int, ...] | None) -> Callable[[Path], None]:
    """Arrays of other shapes, or of none: then they and those below them are gone."""

    def damage(path: Path) -> None:
        tensors = load_file(path / "model.safetensors")
        for name, shape in changed.items():
            named = name.replace("__", ".")
            if shape is None:
                tensors = {n: array for n, array in tensors.items() if not n.startswith(named)}
            else:
                tensors[named] = np.zeros(shape)
        rewrite(path, save(tensors))

    return damage


WEIGHER, INPUTS = "does not hold a weigher", "other inputs"
DAMAGE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "truncated model": (truncate, "not the file it was saved with"),
    "one changed bit": (flip, "not the file it was saved with"),
    "missing model": (lambda path: (path / "model.safetensors").unlink(), "is missing"),
    "foreign tensors": (lambda p: rewrite(p, save({"a": np.zeros(3)})), "does not hold a gate"),
    "tensors of another shape": (change(layer1__weight=(32, 63)), "does not hold a gate"),
    "half a gate": (change(weight=None), "does not hold a gate"),
    "no weigher": (change(weigher=None), WEIGHER),
    "half a weigher": (change(weigher__weight=None), WEIGHER),
    "a weigher without a scale": (change(weigher__layer0__scale=None), WEIGHER),
    "a median too few": (change(weigher__medians=len(UNTRACED) - 1), WEIGHER),
    "a bound too many": (change(weigher__lows=len(UNTRACED) + 1), WEIGHER),
    "an unknown trait": (lambda path: edit(path, traits=["truth"]), INPUTS),
    "traits in another order": (lambda path: edit(path, traits=[*UNTRACED[::-1]]), INPUTS),
    "no traits": (lambda path: edit(path, traits=[]), INPUTS),
    "traits that are none": (lambda path: edit(path, traits=3), "not a controller"),
    "features in another order": (lambda path: edit(path, features=[*NAMES[::-1]]), INPUTS),
    "a feature too few": (lambda path: edit(path, features=[*NAMES[1:]]), INPUTS),
    "another feature": (lambda path: edit(path, features=[*NAMES[:-1], "z_next"]), INPUTS),
    "another encoder": (lambda p: edit(p, encoder={"name": None, "identity": "other"}), "other"),
    "no tensors at all": (lambda path: rewrite(path, b"not a model"), "cannot be read"),
    "missing config": (lambda path: (path / "config.json").unlink(), "there is no controller"),
    "missing calibration": (lambda path: (path / "calibration.json").unlink(), "is missing"),
    "foreign JSON": (lambda path: (path / "config.json").write_text('{"a": 1}'), "format"),
    "a list": (lambda path: (path / "config.json").write_text("[1]"), "not a controller"),
    "no JSON": (lambda path: (path / "config.json").write_text("{"), "cannot be read"),
    "no text": (lambda path: (path / "config.json").write_bytes(b"\xff"), "cannot be read"),
    "a later format": (lambda path: edit(path, format=2), "format 2"),
    "a later version": (
        lambda path: edit(path, format=3, written_by="9.1"),
        "format 3, which aera 9.1 wrote, and this version reads up to format 1",
    ),
    "a schedule that falls": (lambda path: edit(path, schedule=[8, 4]), "increasing"),
    "an unknown policy": (lambda path: edit(path, threshold=None, policy="luck-7"), "luck-7"),
    "an impossible threshold": (lambda path: edit(path, threshold=7), "between 0 and 1"),
    "unknown weights": (lambda path: edit(path, weights="gone"), "gone"),
    "an unknown task": (lambda path: edit(path, task={"name": "x", "kind": "y"}), '"y"'),
    "a damaged home": (lambda path: edit(path, home={"questions": 3}), "of this version"),
    "a home of no facts": (lambda path: edit(path, home={"spread": {}, "questions": 3}), "a home"),
    "a home that is none": (lambda path: edit(path, home=7), "of this version"),
    "no gate": (lambda path: edit(path, model_sha256=None, traits=[]), "without a gate"),
    "traits without their arrays": (lambda path: edit(path, model_sha256=None), WEIGHER),
}


WAYS_OUT = ("aera train POOL --out DIRECTORY", "copy the whole controller again", "-U aera")
UNREADABLE = ("cannot be read", "is missing", "there is no controller")


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_or_foreign_controller_is_refused_in_one_sentence(name: str, saved: Path) -> None:
    damage, complaint = DAMAGE[name]
    damage(saved)
    sentence = refused(saved)
    assert complaint in sentence
    assert sentence.endswith(WAYS_OUT) or complaint in UNREADABLE
    assert "Error(" not in sentence


def test_another_threshold_keeps_the_bounds_and_both_hold_exactly(controller: Controller) -> None:
    other = controller.bounded(3, 6).at(0.9)
    assert [*other.schedule] == [2, 3, 4, 6, 8]
    assert (str(other.policy), range_of(other.policy, 8)) == ("aera-0.90+min3+max6", (3, 6))
    with pytest.raises(UsageError, match="above the maximum"):
        controller.bounded(6, 3)
