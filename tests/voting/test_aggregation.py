from collections import Counter
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aera import Prefix, Vote
from aera.voting.rules import plain_vote, re2_vote

raws = st.sampled_from(["10", "9", "x", None, " 9", "1/2"])
re2_votes = st.lists(st.builds(lambda redo, raw: Vote(None, redo, raw), st.booleans(), raws))


def naive_re2(votes: list[Vote]) -> str | None:
    """Vote first: mode of the boxed contents, shortest then alphabetical in ties."""
    boxed = [v.raw for v in votes if not v.redo and v.raw is not None]
    boxed = boxed or [v.raw for v in votes if v.raw is not None]
    if not boxed:
        return None
    return min(Counter(boxed).items(), key=lambda item: (-item[1], len(item[0]), item[0]))[0]


def test_a_tie_goes_to_the_answer_seen_first(prefix_of: Callable[..., Prefix]) -> None:
    chosen = plain_vote(prefix_of("baab"))
    assert (chosen.answer, chosen.support, chosen.total, chosen.tied) == ("b", 2, 4, True)


def test_nothing_readable_gives_no_answer(prefix_of: Callable[..., Prefix]) -> None:
    for rule in (plain_vote, re2_vote):
        chosen = rule(prefix_of("....."))
        assert (chosen.answer, chosen.support, chosen.total, chosen.tied) == (None, 0, 0, False)


@given(st.lists(st.sampled_from("ab.c"), min_size=1), st.randoms())
def test_order_matters_to_the_vote_only_in_a_tie(
    prefix_of: Callable[..., Prefix], answers: list[str], rng: Random
) -> None:
    first = plain_vote(prefix_of(answers))
    second = plain_vote(prefix_of(rng.sample(answers, len(answers))))
    assert first.tied or first == second


def test_weights_decide_the_vote(prefix_of: Callable[..., Prefix]) -> None:
    votes = [Vote("a"), Vote("a"), Vote("b", weight=2.5)]
    assert plain_vote(prefix_of(votes)).answer == "b"


@given(re2_votes)
def test_re2_vote_is_the_written_rule(prefix_of: Callable[..., Prefix], votes: list[Vote]) -> None:
    assert re2_vote(prefix_of(votes)).answer == naive_re2(votes)


@pytest.mark.parametrize(
    ("raw", "winner"), [(["10", "9"], "9"), (["b", "a"], "a"), (["bb", "bb", "a"], "bb")]
)
def test_re2_ties_go_to_the_shortest_then_the_alphabet(
    prefix_of: Callable[..., Prefix], raw: list[str], winner: str
) -> None:
    chosen = re2_vote(prefix_of([Vote(None, raw=text) for text in raw]))
    assert (chosen.answer, chosen.tied) == (winner, len(raw) == 2)


def test_re2_redos_vote_only_when_nobody_else_does(prefix_of: Callable[..., Prefix]) -> None:
    redos = [Vote(None, redo=True, raw="3")] * 5
    assert re2_vote(prefix_of(redos)).answer == "3"
    assert re2_vote(prefix_of([*redos, Vote("4", raw="4")])).answer == "4"


def test_re2_compares_boxes_as_written(prefix_of: Callable[..., Prefix]) -> None:
    votes = [Vote("0.5", raw="1/2"), Vote("0.5", raw="0.5"), Vote("3", raw="3"), Vote("3", raw="3")]
    assert re2_vote(prefix_of(votes)).answer == "3"
    assert plain_vote(prefix_of(votes)).answer == "0.5"
