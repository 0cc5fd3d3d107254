"""What is wished for beside a request: full traces, else logprobs, else nothing."""

from math import isnan

import pytest
from fakes import Call
from live import BODY, asked, using
from traced import TracedUpstream

from aera import Response, get_task
from aera.errors import UpstreamError
from aera.sampling.client import GIVES, LONG_LISTS, RequestBody
from aera.sampling.replies import trim_logprobs
from aera.trace import FULL, TRACE_NAMES

_, TOKENS, FULLY = GIVES


def say(call: Call, place: int) -> str:
    return "three and four make \\boxed{7}."


def ask(server: TracedUpstream, *blocks: int, **wishes: object) -> list[Response]:
    """What came of these blocks."""
    body = RequestBody({**BODY, **wishes}, wishes=FULL, task=get_task("numeric"))
    return [each for block in asked(server, *blocks, body=body) for each in block]


def trace_of(response: Response) -> dict[str, float]:
    assert response.trace is not None
    return dict(zip(TRACE_NAMES, response.trace, strict=True))


def test_full_traces_are_asked_for_and_kept_small() -> None:
    server = TracedUpstream(say)
    got = ask(server, 4)
    assert {call.body["top_logprobs"] for call in server.calls} == {20}
    trace = trace_of(got[0])
    assert trace["trace_answer_logprob"] == pytest.approx(-1.5), "the box holds the 7 alone"
    assert trace["trace_answer_confidence"] == pytest.approx(1.5 + 9.5)
    assert trace["trace_least"] == pytest.approx(-1.5)
    assert not any(map(isnan, trace.values()))
    assert got[0].source["logprobs"] is None, "the lists themselves are not held"  # type: ignore[index]


@pytest.mark.parametrize(
    ("refuses", "tops"), [("top_logprobs", [20, None, None]), ("logprobs", [20, None, None, None])]
)
def test_what_is_refused_is_asked_for_once(refuses: str, tops: list[int | None]) -> None:
    server = TracedUpstream(say, refuses=frozenset({refuses}))
    got = ask(server, 1, 1)
    assert [call.body.get("top_logprobs") for call in server.calls] == tops
    assert [response.text for response in got] == [say(server.calls[0], 0)] * 2
    assert [response.trace is not None for response in got] == [refuses == "top_logprobs"] * 2


def test_fewer_likely_tokens_are_no_confidence() -> None:
    trace = trace_of(ask(TracedUpstream(say, most=5), 1)[0])
    assert isnan(trace["trace_confidence"])
    assert not isnan(trace["trace_logprob"])


def test_a_bad_request_is_told_as_it_came_and_changes_nothing() -> None:
    server = TracedUpstream(say, refuses=frozenset({"messages"}))
    with pytest.raises(UpstreamError, match="messages is not supported"):
        ask(server, 1)


def test_long_replies_come_in_parts_in_their_order() -> None:
    server = TracedUpstream(lambda call, place: f"\\boxed{{{call.body['seed'] + place}}}")
    got = ask(server, 3 * LONG_LISTS + 1, seed=0)
    assert [response.text for response in got] == [f"\\boxed{{{i}}}" for i in range(len(got))]
    assert max(call.n for call in server.calls) == LONG_LISTS


def test_a_client_keeps_its_own_logprobs_and_no_others() -> None:
    got = ask(TracedUpstream(say), 1, logprobs=True, top_logprobs=2)
    source = got[0].source
    assert isinstance(source, dict)
    shown = trim_logprobs(source, {"logprobs": True, "top_logprobs": 2})
    assert {len(row["top_logprobs"]) for row in shown["logprobs"]["content"]} == {2}
    shown = trim_logprobs(source, {"logprobs": True})
    assert {len(row["top_logprobs"]) for row in shown["logprobs"]["content"]} == {0}
    assert trim_logprobs(source, {})["logprobs"] is None
    assert not isnan(trace_of(got[0])["trace_confidence"])


@pytest.mark.parametrize(("most", "gives", "takes_n"), [(20, FULLY, True), (3, TOKENS, False)])
def test_a_server_can_be_asked_what_it_gives(most: int, gives: str, takes_n: bool) -> None:
    server = TracedUpstream(say, most=most, honours_n=takes_n)
    told = using(server, lambda upstream: upstream.probe("m"))
    assert told == {"gives": gives, "takes_n": takes_n}
