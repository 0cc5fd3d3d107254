"""What a response brings, who weighs it, and what of a weigher is kept: nothing else changes."""

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
from nets import network_of, weigher_of
from safetensors.numpy import load_file, save_file

from aera import ASC, Controller, Fixed, Question, Response, Run, Schedule, Vote, get_task
from aera.errors import ControllerError
from aera.files import file_hash
from aera.policies.features import VOTE_FEATURE_NAMES
from aera.policies.gate import Gate, Gated
from aera.trace import TRACE_NAMES, UNKNOWN
from aera.voting.traits import (
    GROUPS,
    LOGPROBS,
    TEXT,
    TRACE,
    TRAIT_NAMES,
    TRAITS,
    UNTRACED,
    brought,
    having,
    traits,
)
from aera.voting.weigher import Weigher

SIZE, USED = len(TRAIT_NAMES), len(UNTRACED)
TASK, SCHEDULE = get_task("gsm8k"), Schedule((2, 4, 8))
QUESTION = Question("q", "Anna has 3 boxes of 12 pens. How many pens?")
SAID = "3 * 12 = 36, so \\boxed{36}"
FLAT = tuple(float(place) for place in range(len(TRACE_NAMES)))
RESPONSES = {
    "all": Response(SAID, 20, -4.0, trace=FLAT),
    "no trace": Response(SAID, 20, -4.0),
    "a trace without confidence": Response(SAID, 20, -4.0, trace=(-0.2, *UNKNOWN[1:])),
    "no logprob": Response(SAID, 20),
    "an answer alone": Response("", 20, answer="36"),
    "an answer and a logprob": Response("", 20, -4.0, answer="36"),
    "a logprob that is none": Response(SAID, 20, float("-inf")),
}


def taught_with(features: tuple[str, ...], fixed: tuple[str, ...] = (), seed: int = 0) -> Weigher:
    """Random weights; traits of the groups in `fixed` never differed in training."""
    net = network_of(len(features), seed=seed, reach=50.0)
    groups = np.array([trait.group for trait in TRAITS if trait.name in features])
    reach = np.where(np.isin(groups, fixed), 0.0, 50.0)
    return Weigher(replace(net, lows=-reach, highs=reach), features)


def tiered() -> Weigher:
    logprobs, text = taught_with(UNTRACED, seed=1), taught_with(UNTRACED, (LOGPROBS,), seed=2)
    return replace(taught_with(TRAIT_NAMES), lower=(logprobs, text))


def weight(weigher: Weigher, response: Response) -> float:
    [vote] = weigher.weigh(QUESTION, [response], [TASK.read(response)])
    return vote.weight


def some_responses(seed: int, count: int = 8) -> list[Response]:
    rng = Random(seed)
    ends = ["\\boxed{36}", "\\boxed{36}", "\\boxed{15}", "no idea"]
    texts = ["".join(rng.choices(["3 * 12 = 36 ", "so ", "12\n"], k=5)) for _ in range(count)]
    return [Response(text + rng.choice(ends), 9 + rng.randrange(80), -4.0) for text in texts]


# --- weights --------------------------------------------------------------------------------------

rows_of_traits = st.lists(
    st.floats(allow_infinity=True, allow_nan=True), min_size=SIZE, max_size=SIZE
)


@settings(deadline=None)
@given(rows_of_traits, st.integers(0, 99), st.floats(0, 1e6))
def test_a_weight_lies_between_0_and_1_whatever_the_traits(
    row: list[float], seed: int, spread: float
) -> None:
    net = network_of(USED, seed=seed, reach=1.0)
    (found,) = Weigher(replace(net, weight=spread * net.weight)).weights(np.array([row]))
    assert 0 <= found <= 1


def test_a_missing_trait_counts_as_the_median_and_one_beyond_the_range_as_its_edge() -> None:
    net, rng = network_of(USED, reach=1.0), np.random.default_rng(1)
    weigher = Weigher(replace(net, medians=np.full(USED, 0.25)))
    seen = rng.normal(size=(20, SIZE)) * 3
    held = np.clip(seen, -1, 1)
    np.testing.assert_array_equal(weigher.weights(seen), weigher.weights(held))
    gaps = rng.random(seen.shape) < 0.3
    gaps[:, [TRAIT_NAMES.index("token_length"), TRAIT_NAMES.index("mean_logprob")]] = False
    missing, filled = np.where(gaps, np.nan, seen), np.where(gaps, 0.25, seen)
    np.testing.assert_array_equal(weigher.weights(missing), weigher.weights(filled))


def test_votes_get_their_weights_and_nothing_else_changes() -> None:
    weigher, responses = weigher_of(), some_responses(1)
    votes = [Vote("36", True, "raw"), Vote(None, raw="?"), *map(TASK.read, responses[2:])]
    weighed = weigher.weigh(QUESTION, responses, votes)
    assert [replace(vote, weight=1.0) for vote in weighed] == votes
    wanted = weigher.weights(traits(QUESTION, responses, votes))
    assert [vote.weight for vote in weighed] == wanted.tolist()
    assert len({vote.weight for vote in weighed}) > 3


@pytest.mark.parametrize(
    "names", [UNTRACED[::-1], UNTRACED[1:], (*UNTRACED[:-1], "truth"), TRAIT_NAMES]
)
def test_other_traits_or_another_order_are_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(ControllerError, match="train it again"):
        Weigher(weigher_of().network, names)


# --- what a response brings, and who weighs it ----------------------------------------------------


@pytest.mark.parametrize(
    ("name", "groups"),
    [
        ("all", {TEXT, LOGPROBS, TRACE}),
        ("no trace", {TEXT, LOGPROBS}),
        ("a trace without confidence", {TEXT, LOGPROBS}),
        ("no logprob", {TEXT}),
        ("an answer alone", set()),
        ("an answer and a logprob", {LOGPROBS}),
        ("a logprob that is none", {TEXT}),
    ],
)
def test_a_response_and_its_row_of_traits_tell_the_same_groups(name: str, groups: set[str]) -> None:
    response = RESPONSES[name]
    seen = traits(QUESTION, [response], [TASK.read(response)])
    assert brought(response) == groups
    assert {group for group in GROUPS if having(seen, group).all()} == groups


def test_a_weigher_says_what_it_needs_and_what_to_ask_for() -> None:
    traced, logprobs, text = tiered(), *tiered().lower
    assert [each.tier for each in (traced, logprobs, text)] == ["traces", "logprobs", "text"]
    assert traced.asks == {"logprobs": True, "top_logprobs": 20}
    assert (logprobs.asks, text.asks) == ({"logprobs": True}, {})
    bare = taught_with(UNTRACED, (TEXT, LOGPROBS))
    assert (bare.tier, bare.needs) == ("counts", frozenset())


def test_each_response_is_weighed_by_the_best_that_it_brings_enough_for() -> None:
    weigher, responses = tiered(), [*RESPONSES.values()]
    logprobs, text = weigher.lower
    for by, name in (
        (replace(weigher, lower=()), "all"),
        (logprobs, "no trace"),
        (text, "no logprob"),
    ):
        assert weight(weigher, RESPONSES[name]) == weight(by, RESPONSES[name])
    votes = [TASK.read(each) for each in responses]
    together = [vote.weight for vote in weigher.weigh(QUESTION, responses, votes)]
    assert together == pytest.approx([weight(weigher, each) for each in responses], abs=1e-9)


def test_what_nobody_was_taught_for_weighs_the_same_whatever_it_says() -> None:
    weigher = taught_with(UNTRACED)
    others = [Response(f"{'so ' * n} \\boxed{{{n}}}", 9 + n) for n in range(5)]
    assert len({weight(weigher, each) for each in others}) == 1
    assert len({weight(weigher, replace(each, logprob=-3.0)) for each in others}) == 5
    seen = np.full((1, SIZE), np.nan)
    usual = weigher.weights(seen)[0]
    assert weight(weigher, others[0]) == usual, "on the scale of the votes that are weighed"


def test_what_came_with_less_is_counted_and_said() -> None:
    responses = [RESPONSES[name] for name in ("all", "no trace", "no logprob", "no logprob")]
    responses += [RESPONSES["an answer alone"], Response("no idea", 5)]
    run = Run(QUESTION, Fixed(8), task=TASK, schedule=SCHEDULE, weigher=tiered())
    while run.want:
        run.feed((responses * 3)[len(run.prefix) : len(run.prefix) + run.want])
    assert run.allocation.lacking == {
        "came without traces and were weighed by their text and logprobs alone": 2,
        "came without logprobs and traces and were weighed by their text alone": 2,
        "came without text and logprobs and traces and all weigh the same": 1,
    }


# --- on disk --------------------------------------------------------------------------------------


def test_lower_weighers_are_saved_with_the_one_above_them(tmp_path: Path) -> None:
    Controller(TASK, SCHEDULE, ASC(0.9), weigher=tiered()).save(tmp_path / "c")
    loaded = Controller.load(tmp_path / "c")
    assert isinstance(loaded.weigher, Weigher)
    assert [each.needs for each in loaded.weigher.lower] == [{TEXT, LOGPROBS}, {TEXT}]
    assert loaded.asks == {"logprobs": True, "top_logprobs": 20}
    for response in RESPONSES.values():
        assert weight(loaded.weigher, response) == weight(tiered(), response)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A controller with a gate and a weigher."""
    gate = Gate(network_of(len(VOTE_FEATURE_NAMES), reach=1.0))
    Controller(TASK, SCHEDULE, Gated(gate, 0.5), gate, weigher_of()).save(tmp_path / "c")
    return tmp_path / "c"


def test_a_loaded_controller_weighs_and_decides_as_the_saved_one(saved: Path) -> None:
    loaded, responses = Controller.load(saved), some_responses(5)
    assert isinstance(loaded.weigher, Weigher)
    seen = np.random.default_rng(4).normal(size=(30, SIZE)) * 3
    np.testing.assert_array_equal(loaded.weigher.weights(seen), weigher_of().weights(seen))
    gate = Gate(network_of(len(VOTE_FEATURE_NAMES), reach=1.0))
    made = Controller(TASK, SCHEDULE, Gated(gate, 0.5), gate, weigher_of())
    runs = [each.start(QUESTION) for each in (made, loaded)]
    for run in runs:
        while run.want:
            run.feed(responses[run.delivered : run.delivered + run.want])
    assert runs[0].allocation == runs[1].allocation


def edit(path: Path, **fields: Any) -> None:
    """Other fields in config.json; "gone" takes one away."""
    config = {**json.loads((path / "config.json").read_text()), **fields}
    gone = [name for name, value in fields.items() if value == "gone"]
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


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (no_weigher, WEIGHER),
        (lambda t: t.pop("weigher.weight"), WEIGHER),
        (lambda t: t.update({"weigher.medians": np.zeros(SIZE - 1)}), WEIGHER),
        (lambda t: t.update({"weigher.lows": np.zeros(SIZE + 1)}), WEIGHER),
        (lambda t: t.pop("weigher.layer0.scale"), WEIGHER),
        (lambda t: t.pop("weight"), "does not hold a gate"),
        ({"traits": ["truth"]}, INPUTS),
        ({"traits": [*UNTRACED[::-1]]}, INPUTS),
        ({"traits": []}, INPUTS),
        ({"traits": 3}, "not a controller"),
        ({"traits": "gone"}, "not a controller"),
        ({"model_sha256": None, "threshold": None, "policy": "asc-0.9"}, WEIGHER),
        ({"features": [*VOTE_FEATURE_NAMES[::-1]]}, INPUTS),
    ],
)
def test_damaged_arrays_and_other_inputs_on_disk_are_refused_in_one_sentence(
    damage: Any, complaint: str, saved: Path
) -> None:
    if callable(damage):
        rewrite(saved, damage)
    else:
        edit(saved, **damage)
    with pytest.raises(ControllerError, match=complaint) as refusal:
        Controller.load(saved)
    assert "\n" not in str(refusal.value)
    assert "Error(" not in str(refusal.value)
