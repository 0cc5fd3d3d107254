"""Limits: what is reserved, booked and given back, and what servers say or leave unsaid."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aera import Budget, Response
from aera.errors import UsageError
from aera.sampling.budget import Bound, Held, Ledger, Usage
from aera.sampling.sampler import request_bound


def said(*tokens: int, prompt: int = 0) -> list[Response]:
    first, *others = (Response("x", tokens=each) for each in tokens)
    return [replace(first, prompt_tokens=prompt), *others]


def taken(ledger: Ledger, want: int, bound: Bound | None = None) -> Held:
    return ledger.take(want, bound or Bound(100, 10))


def answer(held: Held, n: int, tokens: int, **usage: Any) -> None:
    """A call for so many, of which the server says what it took."""
    assert held.begin(n)
    told = {"prompt_tokens": 5, "completion_tokens": n * tokens, "choices": n, **usage}
    held.receive(0, said(*[tokens] * n), Usage(**told))


# --- whatever happens -----------------------------------------------------------------------------

acts = st.lists(
    st.tuples(
        st.sampled_from(["take", "begin", "receive", "unsaid", "back", "lose", "close", "below"]),
        st.integers(0, 4),
        st.integers(1, 6),
        st.integers(1, 50),
    ),
    max_size=60,
)


@settings(max_examples=300)
@given(acts, st.sampled_from(["responses", "tokens", "money", "both"]), st.booleans())
def test_no_order_of_events_takes_more_than_the_limit(
    acts: list[tuple[str, int, int, int]], kind: str, with_prompts: bool
) -> None:
    limits: dict[str, Any] = {
        "responses": {"responses": 20},
        "tokens": {"tokens": 1_000, "with_prompts": with_prompts},
        "money": {"money": 1e-3, "prompt_price": 0.5, "completion_price": 1.0},
        "both": {"responses": 15, "tokens": 700},
    }
    budget = Budget(**limits[kind])
    top = Ledger(budget)
    ledgers = [top, Ledger(Budget(tokens=500), above=[top])]
    billed = dict.fromkeys(ledgers, (0, 0, 0))
    open_: list[tuple[Held, list[int]]] = []

    def bill(held: Held, *more: int) -> None:
        for ledger in {held.ledger, top}:
            billed[ledger] = tuple(a + b for a, b in zip(billed[ledger], more, strict=True))  # type: ignore[assignment]

    for act, which, count, tokens in acts:
        held, out = open_[which % len(open_)] if open_ else (None, [])
        if act in ("take", "below"):
            made = ledgers[act == "below"].take(count, Bound(50, 20))
            if made is not None:
                assert made.responses <= count
                open_.append((made, []))
        elif held is None:
            continue
        elif act == "begin":
            if held.begin(count):
                out.append(count)
        elif act == "close":
            # What never came back was billed in full.
            each = held.max_tokens or 50
            bill(held, sum(out), 20 * sum(out), each * sum(out))
            held.close()
            open_.remove((held, out))
        elif out:
            n, most = out.pop(), held.max_tokens or 50
            each = min(tokens, most)
            if act == "receive":
                held.receive(0, said(*[each] * n), Usage(20, n * each, n))
                bill(held, n, 20, n * each)
            elif act == "unsaid":
                held.receive(0, said(*[1] * n), Usage(None, None, n))
                bill(held, n, 20, n * most)
            elif act == "lose":
                held.lose(n)
                bill(held, n, 20 * n, n * most)
            else:
                held.give_back(n)
        for ledger in ledgers:
            spent = ledger.budget.costs(*billed[ledger])
            assert all(a <= b + 1e-12 for a, b in zip(spent, ledger.budget.limits, strict=True))
    for held, _ in open_:
        held.close()
    used = top.spent.responses + top.lost.responses
    whole = top.take(1_000, Bound(1, 0))
    if kind == "responses":
        assert (whole.responses if whole else 0) == 20 - used, "everything else is free again"


# --- what servers say -----------------------------------------------------------------------------


@pytest.mark.parametrize(("claim", "next_one"), [(999_999_999, 100), (300, 300)])
def test_a_bill_beyond_what_was_reserved_is_cut(claim: int, next_one: int) -> None:
    ledger = Ledger(Budget(tokens=10_000))
    answer(taken(ledger, 1), 1, 100, completion_tokens=claim)
    assert ledger.spent.completion_tokens == 100
    answer(taken(ledger, 1), 1, 100, completion_tokens=next_one)
    assert ledger.spent.completion_tokens == 100 + next_one


def test_a_prompt_is_reserved_by_its_bytes_until_the_server_has_counted_it() -> None:
    ledger = Ledger(Budget(money=100e-6, prompt_price=1.0))
    bound = Bound(10, 60)
    first = taken(ledger, 4, bound)
    assert first.responses == 1
    answer(first, 1, 9, prompt_tokens=8)
    first.close()
    assert taken(ledger, 99, bound).responses == 92 // 8
    answer(held := taken(ledger, 0 + 1, Bound(10, 4)), 1, 9, prompt_tokens=10**6)
    held.close()
    assert ledger.spent.prompt_tokens == 8 + 4


def test_a_prompt_is_bounded_by_bytes_a_template_and_images() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:" + "x" * 9_999}}
    plain = request_bound({"messages": [{"role": "user", "content": "12数"}], "max_tokens": 7})
    seen = request_bound({"messages": [{"role": "user", "content": ["12数", image]}]})
    assert (plain.max_tokens, seen.max_tokens) == (7, None)
    assert 4 + 4 + 7 + 5 + 256 <= plain.prompt_tokens <= 350
    assert 4_096 + 256 <= seen.prompt_tokens <= 4_096 + 350
    hidden = {"type": "file", "role": "user", "content": "x" * 99_999}
    behind = {**image, "text": "x" * 99_999}
    for message in (hidden, {"role": "user", "content": [behind]}):
        bound = request_bound({"messages": [message]})
        assert bound.prompt_tokens > 99_999, "only what a medium holds itself is no text"


def test_a_response_of_unknown_length_is_tried_out_and_the_last_ones_are_cut() -> None:
    ledger = Ledger(Budget(responses=3, tokens=1_000))
    assert taken(ledger, 8, Bound()).responses == 3
    assert ledger.take(1, Bound()) is None, "the others wait for what it shows"
    ledger = Ledger(Budget(tokens=1_000))
    ledger.book(said(*[30] * 31))
    held = taken(ledger, 4, Bound(500))
    assert (held.responses, held.max_tokens) == (1, 70)


WRONG = ({"tokens": 0}, {"responses": -1}, {"money": 1}, {"seconds": 0.0}, {"prompt_price": -1.0})


@pytest.mark.parametrize("wrong", WRONG)
def test_an_impossible_limit_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Budget(**wrong)


# --- waiting --------------------------------------------------------------------------------------


async def test_earlier_turns_are_served_first_and_the_rest_is_told_that_there_is_no_room() -> None:
    ledger = Ledger(Budget(tokens=250))
    order: list[str] = []
    first = taken(ledger, 2)

    async def ask(turn: int) -> None:
        held = await ledger.reserve(1, Bound(100), turn=turn)
        order.append(f"{turn}: {held is not None}")
        if held is not None:
            answer(held, 1, 100)
            held.close()

    tasks = [asyncio.create_task(ask(turn)) for turn in (3, 1, 2)]
    await asyncio.sleep(0)
    answer(first, 2, 50)
    first.close()
    await asyncio.gather(*tasks)
    assert ledger.exhausted
    assert order == ["1: True", "2: False", "3: False"]


async def test_who_stops_waiting_holds_up_nobody_and_keeps_nothing() -> None:
    ledger = Ledger(Budget(tokens=1_000))
    first = taken(ledger, 1)
    large = asyncio.create_task(ledger.reserve(1, Bound(950), turn=0))
    small = asyncio.create_task(ledger.reserve(1, Bound(50), turn=1))
    await asyncio.sleep(0)
    assert not small.done(), "it is not its turn"
    large.cancel()
    held = await small
    gone = asyncio.create_task(ledger.reserve(1, Bound(950)))
    await asyncio.sleep(0)
    for each in (first, held):
        each.close()
    await asyncio.sleep(0)
    gone.cancel()  # together with what it waited for
    await asyncio.gather(large, gone, return_exceptions=True)
    assert taken(ledger, 99, Bound(100)).responses == 10


async def test_what_is_held_below_is_held_above_and_its_end_wakes_the_others() -> None:
    key = Ledger(Budget(tokens=500))
    one, other = (Ledger(Budget(), above=[key]) for _ in range(2))
    held = taken(one, 5)
    waiting = asyncio.create_task(other.reserve(2, Bound(100)))
    await asyncio.sleep(0)
    assert not waiting.done()
    answer(held, 5, 60)
    held.close()
    got = await waiting
    assert (got.responses, key.spent.completion_tokens, other.limit) == (2, 300, "key")


def test_a_period_forgets_and_says_how_long_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    key = Ledger(Budget(tokens=600, with_prompts=True), period=60.0)
    key.book(said(800, prompt=100))
    assert (key.take(1, Bound(10)), key.wait()) == (None, 30.0)
    now = 31.0
    assert (key.wait(), taken(key, 1, Bound(5, 4)).responses) == (0, 1)
    now = 10_000.0
    key.book(said(700))
    assert key.wait() == pytest.approx(10.0), "idle time is no credit"
