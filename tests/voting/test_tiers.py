"""What a response brings, and who weighs it: traces, logprobs, its text, or nobody."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aera import ASC, Controller, Fixed, Question, Response, Run, Schedule, get_task
from aera.network import Layer, Network
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

TASK, SCHEDULE = get_task("gsm8k"), Schedule((2, 4, 8))
QUESTION = Question("q", "Anna has 3 boxes of 12 pens. How many pens?")
SAID = "3 * 12 = 36, so \\boxed{36}"
BUNDLED = Path(__file__).parents[2] / "aera" / "demo" / "controller"
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


def weigher_of(features: tuple[str, ...], fixed: tuple[str, ...] = (), seed: int = 0) -> Weigher:
    """Random weights; traits of the groups in `fixed` never differed in training."""
    size, rng = len(features), np.random.default_rng(seed)
    layer = Layer(rng.normal(size=(6, size)), *rng.normal(size=(3, 6)))
    groups = np.array([trait.group for trait in TRAITS if trait.name in features])
    reach = np.where(np.isin(groups, fixed), 0.0, 50.0)
    ones = np.ones(size)
    frozen = (0 * ones, 0 * ones, 5 * ones, (layer,), rng.normal(size=(1, 6)), np.zeros(1))
    return Weigher(Network(*frozen, lows=-reach, highs=reach), features)


def tiered() -> Weigher:
    logprobs, text = weigher_of(UNTRACED, seed=1), weigher_of(UNTRACED, (LOGPROBS,), seed=2)
    return replace(weigher_of(TRAIT_NAMES), lower=(logprobs, text))


def weight(weigher: Weigher, response: Response) -> float:
    [vote] = weigher.weigh(QUESTION, [response], [TASK.read(response)])
    return vote.weight


# --- what a response brings -----------------------------------------------------------------------


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


# --- who weighs it --------------------------------------------------------------------------------


def test_a_weigher_says_what_it_needs_and_what_to_ask_for() -> None:
    traced, logprobs, text = tiered(), *tiered().lower
    assert [each.tier for each in (traced, logprobs, text)] == ["traces", "logprobs", "text"]
    assert traced.asks == {"logprobs": True, "top_logprobs": 20}
    assert logprobs.asks == {"logprobs": True}
    assert text.asks == {}
    bare = weigher_of(UNTRACED, (TEXT, LOGPROBS))
    assert (bare.tier, bare.needs) == ("counts", frozenset())


def test_each_response_is_weighed_by_the_best_that_it_brings_enough_for() -> None:
    weigher = tiered()
    logprobs, text = weigher.lower
    alone = replace(weigher, lower=())
    assert weight(weigher, RESPONSES["all"]) == weight(alone, RESPONSES["all"])
    assert weight(weigher, RESPONSES["no trace"]) == weight(logprobs, RESPONSES["no trace"])
    assert weight(weigher, RESPONSES["no logprob"]) == weight(text, RESPONSES["no logprob"])


def test_what_nobody_was_taught_for_weighs_the_same_whatever_it_says() -> None:
    weigher = weigher_of(UNTRACED)
    others = [Response(f"{'so ' * n} \\boxed{{{n}}}", 9 + n) for n in range(5)]
    assert len({weight(weigher, each) for each in others}) == 1
    assert len({weight(weigher, replace(each, logprob=-3.0)) for each in others}) == 5
    usual = weight(weigher, others[0])
    seen = np.full((1, len(TRAIT_NAMES)), np.nan)
    assert usual == weigher.weights(seen)[0], "on the scale of the votes that are weighed"


def test_a_block_of_many_kinds_is_weighed_one_by_one() -> None:
    weigher, responses = tiered(), [*RESPONSES.values()]
    votes = [TASK.read(each) for each in responses]
    together = [vote.weight for vote in weigher.weigh(QUESTION, responses, votes)]
    assert together == pytest.approx([weight(weigher, each) for each in responses], abs=1e-9)


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
    made = Controller(TASK, SCHEDULE, ASC(0.9), weigher=tiered())
    made.save(tmp_path / "c")
    loaded = Controller.load(tmp_path / "c")
    assert isinstance(loaded.weigher, Weigher)
    assert [each.needs for each in loaded.weigher.lower] == [{TEXT, LOGPROBS}, {TEXT}]
    assert loaded.asks == {"logprobs": True, "top_logprobs": 20}
    for response in RESPONSES.values():
        assert weight(loaded.weigher, response) == weight(tiered(), response)


def test_the_bundled_controller_knows_no_traces_and_weighs_by_logprobs() -> None:
    weigher = Controller.load(BUNDLED).weigher
    assert isinstance(weigher, Weigher)
    assert (weigher.features, weigher.tier) == (UNTRACED, "logprobs")
    assert [lower.tier for lower in weigher.lower] == ["text"]
    bare, traced = RESPONSES["no trace"], RESPONSES["all"]
    assert weight(weigher, bare) == weight(weigher, traced) == pytest.approx(0.9034, abs=1e-4)
