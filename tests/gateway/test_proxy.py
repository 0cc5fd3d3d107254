"""Reading a request, and noticing that its client has left."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from starlette.requests import ClientDisconnect

from aera.errors import UsageError
from aera.gateway.proxy import DEEPEST, DisconnectWatch, parse_body


async def attended(work: Callable[[asyncio.Event], Any], *, leaves: bool = False) -> Any:
    """What comes of some work for a client, who leaves as soon as the work waits, or stays."""
    left = asyncio.Event()
    if leaves:
        left.set()

    async def receive() -> dict[str, Any]:
        await left.wait()
        return {"type": "http.disconnect"}

    async with DisconnectWatch(receive):
        return await work(left)


async def long(left: asyncio.Event) -> str:
    await asyncio.sleep(60)
    return "done"


def test_work_for_a_client_who_stays_is_done_and_nothing_is_left_running() -> None:
    async def scene() -> tuple[str, int]:
        async def quick(left: asyncio.Event) -> str:
            await asyncio.sleep(0)
            return "done"

        said = await attended(quick)
        await asyncio.sleep(0)
        return said, len(asyncio.all_tasks())

    assert asyncio.run(scene()) == ("done", 1)


def test_work_for_a_client_who_leaves_is_cancelled_at_once() -> None:
    async def scene() -> int:
        with pytest.raises(ClientDisconnect):
            await asyncio.wait_for(attended(long, leaves=True), 5)
        task = asyncio.current_task()
        assert task is not None
        return task.cancelling()

    assert asyncio.run(scene()) == 0


def test_work_that_fails_fails_as_it_did() -> None:
    async def fails(left: asyncio.Event) -> None:
        await asyncio.sleep(0)
        raise UsageError("no")

    with pytest.raises(UsageError):
        asyncio.run(attended(fails))


def test_work_that_somebody_else_cancels_is_cancelled_even_if_the_client_left_too() -> None:
    async def scene() -> None:
        leaving: list[asyncio.Event] = []

        async def waits(left: asyncio.Event) -> None:
            leaving.append(left)
            await long(left)

        work = asyncio.create_task(attended(waits))
        await asyncio.sleep(0.01)
        leaving[0].set()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    asyncio.run(scene())


@pytest.mark.parametrize("bracket", ["[]", "{}"])
def test_a_request_may_be_nested_so_deep_and_no_deeper(bracket: str) -> None:
    def nested(levels: int) -> bytes:
        inner: Any = "{[" * DEEPEST  # brackets in a text are no levels
        for _ in range(levels - 1):
            inner = [inner] if bracket == "[]" else {"a": inner}
        return json.dumps({"a": inner}).encode()

    assert asyncio.run(parse_body(nested(DEEPEST)))
    with pytest.raises(UsageError, match="nested deeper"):
        asyncio.run(parse_body(nested(DEEPEST + 1)))
