from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from aera import Prefix, Question, Response, Schedule, Tally, Vote, unfold
from aera.core import choice_order

weights = st.floats(0.01, 3)
weighted = st.lists(st.builds(Vote, st.sampled_from("abc"), weight=weights), min_size=16)


def test_choices_are_shuffled_by_seed_and_id() -> None:
    question = Question("q1", "which?", ("w", "x", "y", "z"))
    assert question.arrange(3) == question.arrange(3)
    assert sorted(question.arrange(3).choices) == ["w", "x", "y", "z"]
    orders = {question.arrange(seed).choices for seed in range(200)}
    assert len(orders) == 24


def test_questions_are_shuffled_apart() -> None:
    assert len({choice_order(f"q{i}", 4, seed=0) for i in range(200)}) == 24


def test_only_a_response_cut_by_the_limit_is_truncated() -> None:
    assert Response("", finish_reason="length").truncated
    assert not Response("", finish_reason="stop").truncated
    assert not Response("").truncated


def test_unfolding_gives_a_prefix_per_checkpoint(
    prefixes_of: Callable[..., list[Prefix]],
) -> None:
    prefixes = prefixes_of("ab" * 64)
    assert [len(prefix) for prefix in prefixes] == [4, 8, 16, 32, 64, 128]
    assert [prefix.start for prefix in prefixes] == [0, 4, 8, 16, 32, 64]
    assert [prefix.next_checkpoint for prefix in prefixes] == [8, 16, 32, 64, 128, None]


@given(weighted)
def test_a_tally_built_block_by_block_equals_one_built_at_once(votes: list[Vote]) -> None:
    responses = [Response("", tokens=place) for place, _ in enumerate(votes)]
    last = list(unfold(Question("q", "?"), responses, votes=votes, schedule=Schedule((2, 5, 16))))[
        -1
    ]
    assert last.tally.weights == Tally().add(votes[:16]).weights
    assert last.completion_tokens == sum(range(16))


@given(weighted)
def test_what_was_asked_earlier_does_not_change_what_is_answered_later(votes: list[Vote]) -> None:
    def unfolded() -> list[Prefix]:
        responses = [Response("", tokens=3)] * len(votes)
        return list(
            unfold(Question("q", "?"), responses, votes=votes, schedule=Schedule.parse("1-16"))
        )

    asked, fresh = unfolded(), unfolded()
    for prefix in asked[::3]:
        assert prefix.tally.total > 0
        assert prefix.completion_tokens == 3 * len(prefix)
    assert asked[-1].tally.weights == fresh[-1].tally.weights
    assert asked[-1].completion_tokens == fresh[-1].completion_tokens == 48


def test_redos_and_prompts_are_counted() -> None:
    prefix = Prefix(Question("q", "?"), Schedule()).extend(
        [Response("", prompt_tokens=9)] * 3, [Vote(None, redo=True), Vote("1"), Vote(None)]
    )
    assert (prefix.redos, prefix.prompt_tokens, len(prefix.tally)) == (1, 27, 1)


def test_what_a_prefix_remembers_is_made_once_under_each_key(
    prefix_of: Callable[..., Prefix],
) -> None:
    prefix, made = prefix_of("ab"), list[int]()

    def count(asked: Prefix) -> int:
        made.append(len(asked))
        return 10 * len(made)

    assert [prefix.remember(("one", 1), count) for _ in range(3)] == [10, 10, 10]
    assert prefix.remember(("one", 2), count) == 20
    assert made == [2, 2]


def test_what_grows_takes_every_step_once_however_late_it_is_asked_for(
    prefixes_of: Callable[..., list[Prefix]],
) -> None:
    prefixes, steps = prefixes_of("ab" * 64), list[int]()

    def add(total: int, prefix: Prefix) -> int:
        steps.append(prefix.start)
        return total + len(prefix) - prefix.start

    assert [prefixes[place].grow("total", 0, add) for place in (2, 5, 0, 3)] == [16, 128, 4, 32]
    assert steps == [0, 4, 8, 16, 32, 64]


def test_a_long_chain_of_prefixes_grows_without_recursion() -> None:
    prefix = Prefix(Question("q", "?"), Schedule((2_001,)))
    response, vote = Response(""), Vote("a")
    for _ in range(2_000):
        prefix = prefix.extend([response], [vote])
    assert prefix.grow("length", 0, lambda total, at: total + 1) == 2_000
