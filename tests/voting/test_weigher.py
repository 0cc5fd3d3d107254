import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from aera import ASC, Fixed, Policy, Question, Response, Run, Schedule, Vote, get_task, unfold
from aera.arrays import Floats
from aera.errors import ControllerError
from aera.files import file_hash
from aera.network import Layer, Network
from aera.policies.features import VOTE_FEATURE_NAMES
from aera.policies.gate import Gate, Gated
from aera.solving.controller import Controller
from aera.solving.run import replay
from aera.voting.traits import TRAIT_NAMES, UNTRACED, traits
from aera.voting.weigher import Weigher

SIZE, USED = len(TRAIT_NAMES), len(UNTRACED)
QUESTION = Question("q", "Tom has 3 boxes of 12 pens. How many pens?")
SCHEDULE = Schedule((2, 4, 8))
TASK = get_task("numeric")


def network_of(seed: int, inputs: int, spread: float = 1.0) -> Network:
    """Random weights; the range seen in training is -1 to 1, its median 0.25."""
    rng = np.random.default_rng(seed)
    layer = Layer(rng.normal(size=(6, inputs)), *rng.normal(size=(3, 6)))
    head = (spread * rng.normal(size=(1, 6)), rng.normal(size=1))
    ones = np.ones(inputs)
    return Network(0.25 * ones, 0.1 * ones, 2 * ones, (layer,), *head, lows=-ones, highs=ones)


def weigher_of(seed: int = 0, spread: float = 1.0) -> Weigher:
    return Weigher(network_of(seed, USED, spread))


def wide_weigher(seed: int = 0) -> Weigher:
    """One whose range holds real traits, so that responses differ by their weights."""
    ones = np.ones(USED)
    return Weigher(replace(network_of(seed, USED), lows=-100 * ones, highs=100 * ones))


def some_responses(seed: int, count: int = 8) -> list[Response]:
    rng = Random(seed)
    bits = ["3 * 12 = 36 ", "so ", "wait ", "12 pens\n"]
    ends = ["\\boxed{36}", "\\boxed{36}", "\\boxed{15}", "no idea"]
    texts = ["".join(rng.choices(bits, k=rng.randrange(1, 9))) for _ in range(count)]
    return [
        Response(text + rng.choice(ends), tokens=rng.randrange(1, 90), logprob=-9 * rng.random())
        for text in texts
    ]


def controller_of(policy: Policy | None = None, seed: int = 0) -> Controller:
    gate = Gate(network_of(seed, len(VOTE_FEATURE_NAMES)))
    return Controller(TASK, SCHEDULE, policy or Gated(gate, 0.5), gate, wide_weigher(seed))


# --- weights --------------------------------------------------------------------------------------

rows_of_traits = st.lists(
    st.floats(allow_infinity=True, allow_nan=True), min_size=SIZE, max_size=SIZE
)


@settings(deadline=None)
@given(rows_of_traits, st.integers(0, 99), st.floats(0, 1e6))
def test_a_weight_lies_between_0_and_1_whatever_the_traits(
    row: list[float], seed: int, spread: float
) -> None:
    (weight,) = weigher_of(seed, spread).weights(np.array([row]))
    assert 0 <= weight <= 1
    if spread < 1:
        assert 0 < weight < 1


def test_a_missing_trait_counts_as_the_median() -> None:
    weigher, rng = weigher_of(), np.random.default_rng(1)
    seen = rng.uniform(-1, 1, size=(20, SIZE))
    gaps = rng.random(seen.shape) < 0.3
    gaps[:, [TRAIT_NAMES.index("token_length"), TRAIT_NAMES.index("mean_logprob")]] = False
    filled = np.where(gaps, 0.25, seen)
    np.testing.assert_array_equal(
        weigher.weights(np.where(gaps, np.nan, seen)), weigher.weights(filled)
    )


def test_what_lies_beyond_the_range_counts_as_its_edge() -> None:
    weigher, rng = weigher_of(), np.random.default_rng(2)
    seen = rng.normal(size=(20, SIZE)) * 3
    held = np.minimum(np.maximum(seen, -1), 1)
    assert (seen != held).any()
    np.testing.assert_array_equal(weigher.weights(seen), weigher.weights(held))
    far = np.full((1, SIZE), np.inf)
    np.testing.assert_array_equal(weigher.weights(far), weigher.weights(np.ones((1, SIZE))))


def test_votes_get_their_weights_and_nothing_else_changes() -> None:
    weigher = wide_weigher()
    responses = some_responses(1)
    votes = [Vote("36", True, "raw"), Vote(None, raw="?"), *map(TASK.read, responses[2:])]
    weighed = weigher.weigh(QUESTION, responses, votes)
    assert [replace(vote, weight=1.0) for vote in weighed] == votes
    assert weighed[1].answer is None
    wanted: Floats = weigher.weights(traits(QUESTION, responses, votes))
    assert [vote.weight for vote in weighed] == wanted.tolist()
    assert len({vote.weight for vote in weighed}) > 3


@pytest.mark.parametrize(
    "names", [UNTRACED[::-1], UNTRACED[1:], (*UNTRACED[:-1], "truth"), TRAIT_NAMES]
)
def test_other_traits_or_another_order_are_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(ControllerError, match="train it again"):
        Weigher(weigher_of().network, names)


# --- in a run -------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [ASC(0.9), Fixed(8), "gate"])
@pytest.mark.parametrize("seed", [0, 1, 2, 4])
def test_a_run_with_a_weigher_does_what_replay_of_weighed_votes_does(
    policy: Policy | str, seed: int
) -> None:
    controller = controller_of(seed=seed)
    chosen = controller.policy if isinstance(policy, str) else policy
    responses, weigher = some_responses(seed), controller.weigher
    assert weigher is not None
    run = Run(QUESTION, chosen, task=TASK, schedule=SCHEDULE, weigher=weigher)
    rng = Random(seed)
    while run.want:  # in deliveries of any size
        place = run.delivered
        run.feed(responses[place : place + rng.randint(1, run.want)])
    votes = weigher.weigh(QUESTION, responses, [*map(TASK.read, responses)])
    prefixes = list(unfold(QUESTION, responses, votes=votes, schedule=SCHEDULE))
    replayed = replay(prefixes, chosen, task=TASK)
    made, wanted = run.allocation, replayed.allocation
    assert [made.answer, made.reason] == [wanted.answer, wanted.reason]
    assert made.checkpoint == wanted.checkpoint
    # Which rows are multiplied together may move the last bits, and nothing else.
    assert made.votes == pytest.approx(wanted.votes, rel=1e-12)
    assert any(weight % 1 for weight in made.votes.values())


# --- in a controller ------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    controller_of().save(tmp_path / "c")
    return tmp_path / "c"


@pytest.mark.parametrize("policy", [None, ASC(0.9), Fixed(8)])
def test_a_saved_weigher_gives_the_same_weights(policy: Policy | None, tmp_path: Path) -> None:
    made = controller_of(policy)
    made.save(tmp_path)
    loaded = Controller.load(tmp_path)
    assert loaded.weigher is not None
    assert made.weigher is not None
    seen = np.random.default_rng(4).normal(size=(30, SIZE)) * 3
    np.testing.assert_array_equal(loaded.weigher.weights(seen), made.weigher.weights(seen))
    assert loaded.pace == "quick"
    runs, responses = [each.start(QUESTION) for each in (made, loaded)], some_responses(5)
    for run in runs:
        while run.want:
            run.feed(responses[run.delivered : run.delivered + run.want])
    assert runs[0].allocation == runs[1].allocation


def edit(path: Path, *gone: str, **fields: Any) -> None:
    """Other fields in config.json, and some of them gone."""
    config = {**json.loads((path / "config.json").read_text()), **fields}
    kept = {name: value for name, value in config.items() if name not in gone}
    (path / "config.json").write_text(json.dumps(kept))


def rewrite(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Other arrays, with the hash that goes with them."""
    tensors = load_file(path / "model.safetensors")
    change(tensors)
    save_file(tensors, path / "model.safetensors")
    edit(path, model_sha256=file_hash(path / "model.safetensors"))


def no_weigher(tensors: dict[str, Any]) -> None:
    for name in [name for name in tensors if name.startswith("weigher.")]:
        del tensors[name]


WEIGHER, INPUTS = "does not hold a weigher", "other inputs"


def refused(saved: Path, complaint: str) -> None:
    with pytest.raises(ControllerError, match=complaint) as refusal:
        Controller.load(saved)
    assert "\n" not in str(refusal.value)
    assert "Error(" not in str(refusal.value)


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (no_weigher, WEIGHER),
        (lambda t: t.pop("weigher.weight"), WEIGHER),
        (lambda t: t.update({"weigher.medians": np.zeros(SIZE - 1)}), WEIGHER),
        (lambda t: t.update({"weigher.lows": np.zeros(SIZE + 1)}), WEIGHER),
        (lambda t: t.pop("weigher.layer0.scale"), WEIGHER),
        (lambda t: t.pop("weight"), "does not hold a gate"),
    ],
)
def test_damaged_arrays_are_refused_in_one_sentence(
    damage: Callable[[dict[str, Any]], Any], complaint: str, saved: Path
) -> None:
    rewrite(saved, damage)
    refused(saved, complaint)


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"traits": ["truth"]}, INPUTS),
        ({"traits": [*UNTRACED[::-1]]}, INPUTS),
        ({"traits": []}, INPUTS),
        ({"traits": 3}, "not a controller"),
        ({"traits": None}, "not a controller"),
        ({"model_sha256": None, "threshold": None, "policy": "asc-0.9"}, WEIGHER),
        ({"features": [*VOTE_FEATURE_NAMES[::-1]]}, INPUTS),
    ],
)
def test_other_inputs_on_disk_are_refused_in_one_sentence(
    fields: dict[str, Any], complaint: str, saved: Path
) -> None:
    edit(saved, *(name for name in ("traits",) if fields.get(name, 0) is None), **fields)
    refused(saved, complaint)
