"""Blocks begun ahead: the same answers sooner, and nothing left behind of what was in vain."""

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from fakes import Call, FakeUpstream
from limits import VirtualClock
from live import QUESTION, controller_of, sampler_of

from aera import ASC, Allocation, Policy, Question, Response, Schedule, get_task
from aera.errors import UpstreamError, UsageError
from aera.evidence.votes import VOTE_FEATURE_NAMES
from aera.network import Network
from aera.policies.ahead import Ahead
from aera.policies.labels import parse_policy
from aera.policies.policy import Bounded
from aera.sampling.budget import Budget
from aera.sampling.health import IDLE, Load
from aera.sampling.spending import Spending
from aera.solving.blocks import Blocks
from aera.solving.feeding import feed_run
from aera.solving.journal import Journal
from aera.solving.run import Run, Unused
from aera.solving.solve import Allocator, solve
from aera.tally import Vote

HURRIES = (0.0, 0.2, 0.5, 0.8, 1.0)
LABELS = (
    "asc-0.95", "asc-0.8", "esc-3", "esc-5", "lead-3", "majority-0.8", "entropy-0.4",
    "first-valid", "fixed-16", "asc-0.95+min8+max16",
)  # fmt: skip
Done = TypeVar("Done")


@dataclass
class Paced:
    """Answers by question and place alone; a call takes as long as its longest response."""

    begun: list[tuple[str, int, int]] = field(default_factory=list)
    """Question, start and number of every call."""
    broken_off: int = 0
    load: Load = IDLE

    async def sample(
        self, question: Question, n: int, *, start: int = 0, deadline: float | None = None
    ) -> list[Response]:
        self.begun.append((question.id, start, n))
        got = [response_to(question, start + place) for place in range(n)]
        try:
            await asyncio.sleep(max(each.tokens for each in got) / 100)
        except asyncio.CancelledError:
            self.broken_off += 1
            raise
        return got


def response_to(question: Question, place: int) -> Response:
    chance = random.Random(f"{question.id} {place}")
    said = chance.choice("1112234" if question.id < "q5" else "1234567")
    return Response(f"\\boxed{{{said}}}", tokens=chance.randint(5, 200), latency_ms=1000)


def in_virtual_time(work: Coroutine[Any, Any, Done]) -> tuple[Done, float]:
    """What comes of it, and the seconds it would have taken."""
    loop = VirtualClock()
    try:
        return loop.run_until_complete(work), loop.now
    finally:
        loop.close()


def certain(chances: Sequence[float], past: Sequence[int] = (4, 8)) -> Ahead:
    """Chances that nothing changes."""
    width, flat = len(VOTE_FEATURE_NAMES), np.array(chances)
    odds = np.log(flat / (1 - flat))
    blank = (np.zeros(width), np.zeros(width), np.ones(width))
    network = Network(*blank, (), np.zeros((len(chances), width)), odds)
    return Ahead(tuple(past), flat, network)


def known_of(allocation: Allocation) -> Allocation:
    """Everything but the time, and what was begun in vain."""
    return replace(allocation, unused=Unused())


@pytest.mark.parametrize("label", LABELS)
def test_the_answer_is_the_same_at_any_hurry(label: str) -> None:
    controller = controller_of(parse_policy(label), (4, 8, 16, 32))
    questions = [Question(f"q{i}", f"question {i}?") for i in range(10)]

    async def solve_all(hurry: float) -> list[Allocation]:
        return [await solve(each, Paced(), controller, hurry=hurry) for each in questions]

    found = {hurry: in_virtual_time(solve_all(hurry)) for hurry in HURRIES}
    plain, slowest = found[0.0]
    assert all(each.unused == Unused() for each in plain)
    for done, seconds in found.values():
        assert [*map(known_of, done)] == plain
        assert seconds <= slowest + 1e-9


def test_a_hurry_waits_less_and_pays_for_what_was_in_vain() -> None:
    controller = controller_of(ASC(0.95), (4, 8, 16, 32))
    questions = [Question(f"q{i}", f"question {i}?") for i in range(10)]

    async def solve_all(hurry: float) -> list[Allocation]:
        return [await solve(each, Paced(), controller, hurry=hurry) for each in questions]

    (slow, took), (fast, sooner) = (in_virtual_time(solve_all(hurry)) for hurry in (0.0, 1.0))
    assert sooner < 0.8 * took
    unused = sum((each.unused for each in fast), Unused())
    assert unused.responses + unused.broken_off > 0
    assert unused.completion_tokens > 0
    saved = [sum(each.tokens_saved for each in done) for done in (slow, fast)]
    assert saved[1] < saved[0]


def test_without_a_hurry_a_block_begins_when_the_one_before_has_ended() -> None:
    sampler = Paced()
    controller = controller_of(parse_policy("fixed-16"), (4, 8, 16))
    plain = replace(controller, policy=Bounded(ASC(0.999), need_vote=True))
    _, took = in_virtual_time(solve(QUESTION, sampler, plain))
    blocks = [range(4), range(4, 8), range(8, 16)]
    longest = [max(response_to(QUESTION, i).tokens for i in block) for block in blocks]
    assert took == pytest.approx(sum(longest) / 100)
    assert [call[1:] for call in sampler.begun] == [(0, 4), (4, 4), (8, 8)]


def begun_at_once(
    hurry: float, *, policy: Policy | None = None, load: Load | None = None, **given: Any
) -> list[int]:
    """Where the calls begin that are made before anything has come back."""
    sampler = Paced(load=load or IDLE)
    controller = replace(controller_of(policy), ahead=certain((0.6, 0.3)))

    async def scene() -> list[int]:
        task = asyncio.create_task(solve(QUESTION, sampler, controller, hurry=hurry, **given))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        begun = [start for _, start, _ in sampler.begun]
        await task
        return begun

    return in_virtual_time(scene())[0]


def test_a_block_begins_ahead_where_its_chance_is_high_enough() -> None:
    assert begun_at_once(0.0) == [0]
    assert begun_at_once(0.39) == [0]
    assert begun_at_once(0.41) == [0, 4]
    assert begun_at_once(0.71) == [0, 4, 8]
    assert begun_at_once(1.0) == [0, 4, 8]


def test_nothing_begins_beyond_the_maximum_of_a_policy() -> None:
    assert begun_at_once(1.0, policy=Bounded(ASC(0.95), maximum=8)) == [0, 4]


def test_a_busy_or_slow_server_is_spared() -> None:
    assert begun_at_once(0.71, load=Load(busy=0.5)) == [0, 4, 8]
    assert begun_at_once(0.71, load=Load(busy=0.7)) == [0, 4]
    assert begun_at_once(1.0, load=Load(busy=1.0)) == [0]
    assert begun_at_once(0.71, load=Load(slowness=1.5)) == [0, 4, 8]
    assert begun_at_once(0.71, load=Load(slowness=2.1)) == [0, 4]
    assert begun_at_once(0.71, load=Load(slowness=3.0)) == [0]


def test_a_limit_without_room_for_a_whole_block_begins_none_ahead() -> None:
    assert begun_at_once(1.0, budget=Budget(responses=16)) == [0]  # nobody knows what one takes


def test_a_batch_under_a_limit_is_in_no_hurry() -> None:
    limited = Allocator(Paced(), controller_of(), budget=Budget(tokens=1000), hurry=0.8)
    assert limited.hurry == 0
    assert Allocator(Paced(), controller_of(), hurry=0.8).hurry == 0.8


@pytest.mark.parametrize("hurry", [-0.1, 1.1, float("nan")])
def test_what_is_no_hurry_is_refused(hurry: float) -> None:
    with pytest.raises(UsageError, match="between 0 and 1"):
        asyncio.run(solve(QUESTION, Paced(), controller_of(), hurry=hurry))


def test_what_fails_ahead_is_asked_for_again_when_it_is_wanted() -> None:
    @dataclass
    class Fails(Paced):
        failures: int = 1

        async def sample(self, question: Question, n: int, **given: Any) -> list[Response]:
            if given["start"] and self.failures:
                self.failures -= 1
                raise UpstreamError("not now")
            return await super().sample(question, n, **given)

    controller = replace(controller_of(ASC(0.999)), ahead=certain((0.9, 0.9)))
    with_fault, _ = in_virtual_time(solve(QUESTION, Fails(), controller, hurry=0.5))
    without, _ = in_virtual_time(solve(QUESTION, Paced(), controller))
    assert with_fault.error is None
    assert known_of(with_fault) == without


def test_what_was_begun_ahead_is_in_the_journal_and_used_when_going_on(tmp_path: Path) -> None:
    controller = replace(controller_of(ASC(0.999)), ahead=certain((0.9, 0.9)))
    body: Callable[[Question], dict[str, Any]] = lambda question: {"q": question.text}  # noqa: E731

    async def begin() -> None:
        with Journal(tmp_path / "journal", body) as journal:
            blocks_of = Allocator(Paced(), controller, journal=journal, hurry=0.5)
            async with asyncio.timeout(1.5):
                _ = [each async for each in blocks_of.solve([QUESTION])]

    with pytest.raises(TimeoutError):
        in_virtual_time(begin())
    sampler = Paced()

    async def go_on() -> list[Allocation]:
        with Journal(tmp_path / "journal", body) as journal:
            assert journal.paid
            allocator = Allocator(sampler, controller, journal=journal, hurry=0.5)
            return [each async for each in allocator.solve([QUESTION])]

    [found], _ = in_virtual_time(go_on())
    asked = sum(n for _, _, n in sampler.begun)
    plain, _ = in_virtual_time(solve(QUESTION, Paced(), controller))
    assert asked < 16
    assert found.answer == plain.answer
    assert found.responses == 16


# --- over sockets ---------------------------------------------------------------------------------


def slow_beyond(call: Call) -> float:
    """The first block comes soon, the others take their time."""
    return 0.02 if call.body["seed"] < 4 else 5.0


def agreeing(call: Call, place: int) -> Response:
    return Response("\\boxed{7}", tokens=10)


def test_what_is_not_wanted_is_broken_off_at_the_server_and_leaves_nothing_behind() -> None:
    async def scene() -> tuple[Allocation, FakeUpstream, float, int, int]:
        controller = replace(controller_of(ASC(0.8)), ahead=certain((0.9, 0.9)))
        server = FakeUpstream(agreeing, delay=slow_beyond)
        async with server, sampler_of(server) as sampler:
            spending, run = Spending(Budget()), controller.start(QUESTION)
            blocks = Blocks(run, sampler, controller, spending, hurry=0.9)
            assert await feed_run(run, controller, blocks) is None
            ended = time.monotonic()
            while server.aborted < 2 and time.monotonic() < ended + 2:
                await asyncio.sleep(0.005)
            closed = time.monotonic() - ended
            left = sampler.upstream.permits.active + len(spending._open)
            tasks = sum("RequestHandler" not in str(task) for task in asyncio.all_tasks()) - 1
            return run.allocation, server, closed, left, tasks

    allocation, server, closed, left, tasks = asyncio.run(scene())
    assert allocation.answer == "7"
    assert allocation.responses == 4
    assert allocation.unused.broken_off == 12
    assert 0 < allocation.unused.completion_tokens <= 120
    assert server.aborted == 2
    assert server.active == 0
    assert closed < 0.1
    assert left == 0
    assert tasks == 0


def test_a_checkpoint_is_judged_in_the_order_asked_not_of_arrival() -> None:
    """The first four take longest and say 7; whoever is quick says 1."""

    def answer(call: Call, place: int) -> Response:
        early = call.body["seed"] + place < 4
        return Response(f"\\boxed{{{7 if early else 1}}}", tokens=40 if early else 4)

    def delay(call: Call) -> float:
        return 0.2 if call.body["seed"] < 4 else 0.01

    async def scene() -> Allocation:
        controller = replace(controller_of(ASC(0.95)), ahead=certain((0.9, 0.9)))
        server = FakeUpstream(answer, delay=delay, honours_n=False)
        async with server, sampler_of(server) as sampler:
            return await solve(QUESTION, sampler, controller, hurry=1.0)

    allocation = asyncio.run(scene())
    assert allocation.answer == "7"
    assert allocation.responses == 4
    assert allocation.unused.responses == 12


def test_what_has_come_is_looked_at_before_its_block_is_whole() -> None:
    """Answers that differ make later blocks likelier; they begin while the last one is missing."""
    width, features = len(VOTE_FEATURE_NAMES), [*VOTE_FEATURE_NAMES]
    weight = np.zeros((2, width))
    weight[:, features.index("lead_share")] = -20
    blank = (np.zeros(width), np.zeros(width), np.ones(width))
    network = Network(*blank, (), weight, np.array([15.0, 15.0]))
    ahead = Ahead((4, 8), np.array([0.1, 0.1]), network)
    starts: list[int] = []

    def answer(call: Call, place: int) -> Response:
        starts.append(call.body["seed"])
        return Response(f"\\boxed{{{call.body['seed']}}}", tokens=10)

    def delay(call: Call) -> float:
        return 0.3 if call.body["seed"] == 3 else 0.01

    async def scene() -> None:
        controller = replace(controller_of(ASC(0.95)), ahead=ahead)
        server = FakeUpstream(answer, delay=delay, honours_n=False)
        async with server, sampler_of(server) as sampler:
            await solve(QUESTION, sampler, controller, hurry=0.5)

    asyncio.run(scene())
    assert starts.index(4) < starts.index(3)


def test_a_run_previews_what_it_would_see_and_decides_nothing() -> None:
    run = Run(QUESTION, ASC(0.95), task=get_task("numeric"), schedule=Schedule((4, 8)))
    run.feed([Response("\\boxed{1}", tokens=3)])
    seen = run.preview([Response("\\boxed{2}", tokens=5)])
    assert [vote.answer for vote in seen.votes] == ["1", "2"]
    assert seen.completion_tokens == 8
    assert run.want == 3
    assert not run.steps
    assert len(run.prefix) == 0


@pytest.mark.parametrize("looks_back", [False, True])
def test_what_comes_one_by_one_is_weighed_once(looks_back: bool) -> None:
    sizes = []

    class Counting:
        def weigh(
            self, question: Question, responses: Sequence[Response], votes: Sequence[Vote]
        ) -> Sequence[Vote]:
            sizes.append(len(responses))
            return [replace(vote, weight=0.5) for vote in votes]

    weigher = Counting()
    weigher.looks_back = looks_back  # type: ignore[attr-defined]
    known: Any = {"task": get_task("numeric"), "schedule": Schedule((8,)), "weigher": weigher}
    run = Run(QUESTION, ASC(0.95), **known)
    came = [Response(f"\\boxed{{{place}}}", tokens=3) for place in range(4)]
    for count in (1, 2, 4):
        seen = run.preview(came[:count])
        assert [vote.weight for vote in seen.votes] == [0.5] * count
    assert sizes == ([1, 2, 4] if looks_back else [1, 1, 2])
