"""What a response brings, who weighs it, and what of a weigher is kept: nothing else changes."""

from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
from nets import network_of, weigher_of

from aera import ASC, Controller, Fixed, Question, Response, Run, Schedule, Vote, get_task
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
BARE = Response(SAID, 20, -4.0, trace=(-0.2, *UNKNOWN[1:]))
BRING: dict[str, tuple[Response, set[str]]] = {
    "all": (Response(SAID, 20, -4.0, trace=FLAT), {TEXT, LOGPROBS, TRACE}),
    "no trace": (Response(SAID, 20, -4.0), {TEXT, LOGPROBS}),
    "a trace without confidence": (BARE, {TEXT, LOGPROBS}),
    "no logprob": (Response(SAID, 20), {TEXT}),
    "an answer alone": (Response("", 20, answer="36"), set()),
    "an answer and a logprob": (Response("", 20, -4.0, answer="36"), {LOGPROBS}),
    "a logprob that is none": (Response(SAID, 20, float("-inf")), {TEXT}),
}
"""Responses, and the groups of traits that they bring."""
RESPONSES = {name: response for name, (response, _) in BRING.items()}


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


# --- what a response brings, and who weighs it ----------------------------------------------------


@pytest.mark.parametrize(("response", "groups"), BRING.values(), ids=BRING)
def test_a_response_and_its_traits_tell_equal_groups(response: Response, groups: set[str]) -> None:
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
    best = replace(weigher, lower=())
    for by, name in ((best, "all"), (logprobs, "no trace"), (text, "no logprob")):
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
