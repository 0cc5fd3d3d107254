"""The gateway as operators see it: traces, ids, models, gauges and the health check."""

import asyncio
import json
import logging
import re
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from browser import CHROMIUM, browser_tab
from fakes import FakeUpstream
from gateways import BODY, SPLIT, House, lines_of, numbers, posted, proxied, visit
from live import boxed, controller_of

TRACE = "0af7651916cd43dd8448eb211c80319c"
TRACED = {
    "traceparent": f"00-{TRACE}-b7ad6b7169203331-01",
    "tracestate": "a=1,b=2",
    "x-request-id": "client-7",
}


def heads(server: FakeUpstream) -> list[dict[str, str]]:
    """The headers of every call."""
    return [{name.lower(): v for name, v in call.headers.items()} for call in server.calls]


# --- headers that go along ------------------------------------------------------------------------


def test_every_sample_carries_the_trace_and_the_headers_the_operator_named() -> None:
    server, second = numbers(*SPLIT, honours_n=False), FakeUpstream(boxed)
    ours = {"headers": {"X-Own": "ours"}, "keep_headers": ("X-Team", "x-own", "x-hop")}
    stays = {"Authorization": "Bearer mine", "Cookie": "a=b", "X-Other": "1", "X-Hop": "1"}
    given = {**TRACED, **stays, "X-Team": "blue", "X-Own": "theirs", "x-aera-max-samples": "4"}
    given["Connection"] = "keep-alive, X-Hop"
    _, headers, _ = posted(BODY, server, sent=given, second=(second, "big"), **ours)
    assert headers["x-request-id"] == "client-7"
    assert len(server.calls) == 4
    for seen in heads(server):
        assert {**TRACED, "x-team": "blue", "x-own": "ours"}.items() <= seen.items()
        assert not {"authorization", "cookie", "x-other", "x-hop", "x-aera-max-samples"} & {*seen}
    [seen] = heads(second)
    assert TRACED.items() <= seen.items()
    assert "x-team" not in seen, "another server gets nothing else of the client"


@pytest.mark.parametrize("given", [None, "ü", "x" * 129, "a\tb"])
def test_without_an_id_that_can_stand_in_every_log_samples_carry_the_replys(given: Any) -> None:
    server = FakeUpstream(boxed, honours_n=False)
    _, headers, _ = posted(BODY, server, sent={"x-request-id": given} if given else {})
    assert re.fullmatch("[0-9a-f]{32}", headers["x-request-id"])
    assert {seen["x-request-id"] for seen in heads(server)} == {headers["x-request-id"]}
    assert "traceparent" not in heads(server)[0]


# --- the log --------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["m", "aera/m"])
def test_the_log_has_id_trace_key_and_model(caplog: pytest.LogCaptureFixture, model: str) -> None:
    given = {**TRACED, "Authorization": "Bearer the-key-of-somebody"}
    keys = ("the-key-of-somebody",)
    with caplog.at_level(logging.INFO, "aera.gateway"):
        posted({**BODY, "model": model}, sent=given, keys=keys)
    [line] = lines_of(caplog)
    key = sha256(keys[0].encode()).hexdigest()[:8]
    assert {"id": "client-7", "trace": TRACE, "key": key, "model": "m"}.items() <= line.items()
    assert line["ms"] > 0
    if model == "aera/m":
        assert (line["samples"], line["stop-reason"]) == ("4", "lead")
    assert keys[0] not in caplog.text


@pytest.mark.parametrize("own", ["mine", None])
def test_the_clients_id_stands_before_an_upstreams_which_is_logged(
    caplog: pytest.LogCaptureFixture, own: str | None
) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(text="x", headers={"x-request-id": "theirs", "x-aera-samples": "9"})

    sent = {"x-request-id": own} if own else {}
    with caplog.at_level(logging.INFO, "aera.gateway"):
        (_, headers, _), _ = proxied(lambda house: house.fetch("/v1/x", headers=sent), handler)
    assert headers.getall("x-request-id") == [own or "theirs"]
    [line] = lines_of(caplog)
    assert (line["id"], line.get("upstream_id")) == (own or "theirs", "theirs" if own else None)
    assert "samples" not in line


# --- metrics --------------------------------------------------------------------------------------


def test_models_that_answered_are_labels_and_made_up_ones_are_not() -> None:
    async def act(house: House) -> Any:
        for model in ("aera/big", "big", "small", "made-up"):
            await house.post({**BODY, "model": model}, headers={"Authorization": "Bearer k"})
        return await house.metrics()

    async def handler(request: web.Request) -> web.Response:
        body = json.loads(await request.read())
        if body["model"] == "made-up":
            return web.json_response({"error": {"message": "no such model"}}, status=404)
        message = {"message": {"content": "\\boxed{7}"}}
        return web.json_response({"choices": [message] * body.get("n", 1)})

    seen = proxied(act, handler, keys=("k",))[0]
    assert seen["aera_requests_total", "big", "chat", "200"] == 2
    assert seen["aera_requests_total", "small", "chat", "200"] == 1
    assert seen["aera_requests_total", "other", "chat", "404"] == 1
    key = sha256(b"k").hexdigest()[:8]
    assert seen["aera_key_requests_total", key, "big"] == 2
    kinds = ("completion", "prompt")
    spent = sum(seen["aera_tokens_total", kind, "big"] for kind in kinds)
    assert seen["aera_key_tokens_total", key, "big"] == spent
    assert seen["aera_stops_total", "big", "lead"] == 1


def test_gauges_show_what_is_under_way_and_waits_at_each_replica() -> None:
    server, dead = FakeUpstream(boxed, honours_n=False), "http://user:word@127.0.0.1:1/v1"

    async def act(house: House) -> Any:
        await house.post()  # by which it is known that `n` is not taken, and who is dead
        server.mute = True
        asking = asyncio.create_task(house.post({**BODY, "aera": {"policy": "fixed-8"}}))
        async with asyncio.timeout(60):
            while server.active < 3:
                await asyncio.sleep(0.005)
        during, text = await house.metrics(), (await house.get("/metrics"))[1]
        assert "word" not in text
        server.mute = False
        await asking
        return during, await house.metrics()

    seen, rest = visit(act, dead, server, concurrency=3)
    alive, gone = (server.base_url.removesuffix("/v1"), "m"), ("http://127.0.0.1:1", "m")
    assert [key[1:] for key in seen if key[0] == "aera_upstream_up"] == [gone, alive]
    gauges = ("inflight", "waiting", "permits", "up")
    assert [seen[f"aera_upstream_{each}", *alive] for each in gauges] == [3, 5, 3, 1]
    assert (seen["aera_upstream_up", *gone], seen["aera_active_requests",]) == (0, 1)
    assert rest["aera_upstream_inflight", *alive] == rest["aera_upstream_waiting", *alive] == 0
    assert rest["aera_active_requests",] == 0


# --- the page -------------------------------------------------------------------------------------


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_the_page_shows_the_latest_votes_and_how_they_went_over_time(tmp_path: Path) -> None:
    async def act(house: House) -> tuple[str, list[tuple[int, int]]]:
        for _ in range(3):
            assert (await house.post(BODY))[0] == 200
        async with browser_tab(tmp_path) as tab:
            await tab.look(1280, "dark")
            await tab.open(f"{house.url}/")
            page, sizes = await tab.value("document.querySelector('main').outerHTML"), []
            for width in (1280, 390):
                await tab.look(width)
                sizes.append((width, await tab.value("document.documentElement.scrollWidth")))
            assert tab.logged == []
            assert all(url.startswith(house.url) for url in tab.requested)
            return page, sizes

    kind = {"controller": controller_of(schedule=(4, 8)), "audit_share": 1.0, "prices": (0.5, 1.5)}
    page, sizes = visit(act, **kind)
    assert page.count("<td>confident leader</td>") == 3
    assert page.count('title="7">7</td>') == 3
    assert page.count('title="m">m</td>') == 3
    assert re.search(r'<td title="chatcmpl-[0-9a-f]{32}">…[0-9a-f]{6}</td>', page)
    assert re.search(r"<td title=\"20\d\d-[^\"]+Z\">\d\d:\d\d:\d\d</td>", page)
    assert "policy asc-0.95, checkpoints 4, 8" in page
    assert "confident leader: 3" in page
    drawn = re.findall(r'aria-label="([a-z ]+) from [^"]+ now ([\d.,]+)"', page)
    names = ["questions a minute", "samples a question", "tokens saved", "money saved"]
    assert [name for name, _ in drawn] == names
    assert drawn[1][1] == "4"
    assert '<th class="number" hidden="">unread</th>' in page, "a column without a figure"
    audits = page.partition('id="audits"')[2].partition("</tbody>")[0]
    assert re.search(r'<td>m</td><td class="number">\d</td><td class="number">0</td>', audits)
    assert "0.00 % (0.00 % to" in audits
    assert all(wide <= width for width, wide in sizes), "nothing is wider than the page"
