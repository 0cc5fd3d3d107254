"""One log: killed at any moment it loses nothing, grows, is read while open, and forgets."""

import asyncio
import errno
import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import said
from hypothesis import given, settings
from hypothesis import strategies as st
from misbehaving import Server, begin, run_apart, write_questions

from aera import Pool, Question, Response, get_task, open_pool
from aera.errors import AeraError, PoolError, UpstreamError, UsageError
from aera.pools.log import Log, drop
from aera.pools.pool import Audit, Plan
from aera.pools.stats import RUN_LENGTH, Detector, interval
from aera.sampling.sampler import record

NUMERIC = get_task("numeric")
QUESTIONS = [Question(f"q{i}", f"what is {i}? ü") for i in range(6)]
PLAN = Plan(NUMERIC, 8, {"model": "m"}, 0)
ENDLESS = Plan(NUMERIC, None)


@dataclass
class Stepping:
    """A sampler whose responses depend on question and place alone, as with stepped seeds."""

    asked: list[tuple[str, int]] = field(default_factory=list)
    fails: int = 0
    error: Exception | None = None

    async def sample(
        self, question: Question, n: int, *, start: int = 0, deadline: float | None = None
    ) -> list[Response]:
        if self.error is not None:
            raise self.error
        if self.fails:
            self.fails -= 1
            return [Response("", error="no")] * n
        self.asked += [(question.id, place) for place in range(start, start + n)]
        return [
            Response(f"{question.text} \\boxed{{{i}}}", tokens=i + 1, seed=i, finish_reason="stop")
            for i in range(start, start + n)
        ]


def sampled(
    out: Path,
    responses: int = 8,
    questions: Sequence[Question] = QUESTIONS,
    *,
    sampler: Stepping | None = None,
    watch: Callable[[Log], None] = lambda log: None,
    plan: Plan = PLAN,
) -> Pool | None:
    with Log(out, replace(plan, responses=responses), questions) as log:
        work = record(log, sampler or Stepping(), concurrency=2, block=3, watch=watch)
        return asyncio.run(work)


class Stopped(BaseException):
    """Not an Exception, so that nobody handles it: as good as a kill."""


def stop(log: Log) -> None:
    if log.done - log.resumed > 10:
        raise Stopped


def files(path: Path) -> dict[str, bytes]:
    return {str(each.relative_to(path)): each.read_bytes() for each in path.rglob("*.*")}


def told(path: Path) -> Any:
    return json.loads(said("info", path, "--json"))


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aera.pools.pool.SEGMENT_RESPONSES", 16)


# --- the same as at once --------------------------------------------------------------------------


@settings(max_examples=15)
@given(
    steps=st.lists(st.tuples(st.integers(1, 24), st.integers(1, 6)), min_size=2, max_size=4),
    order=st.permutations(QUESTIONS),
)
def test_a_grown_pool_is_byte_for_byte_what_would_have_been_sampled_at_once(
    tmp_path: Path, steps: list[tuple[int, int]], order: list[Question]
) -> None:
    for name in ("grown", "whole"):
        shutil.rmtree(tmp_path / name, ignore_errors=True)
    rising = zip(*(sorted(column) for column in zip(*steps, strict=True)), strict=True)
    sampler, many, first = Stepping(), 0, 0
    for many, first in rising:
        asked = [question for question in order if question in QUESTIONS[:first]]
        assert sampled(tmp_path / "grown", many, asked, sampler=sampler) is not None
    sampled(tmp_path / "whole", many, [q for q in order if q in QUESTIONS[:first]])
    assert files(tmp_path / "grown") == files(tmp_path / "whole")
    assert len(sampler.asked) == len({*sampler.asked}) == many * first


def dying_at(number: int, patch: pytest.MonkeyPatch) -> list[str]:
    """Die at file operation `number`: before it is carried out, or amid it if it writes."""
    done: list[str] = []

    def fatal(owner: Any, name: str) -> Callable[..., Any]:
        honest = getattr(owner, name)

        def operation(path: Any, *arguments: Any, **options: Any) -> Any:
            done.append(f"{name} {path}")
            last = len(done) == number
            if last and name == "write_text":
                honest(path, arguments[0][: len(arguments[0]) // 2], "utf-8")
            if last:
                raise Stopped
            return honest(path, *arguments, **options)

        return operation

    for name in ("write_text", "replace", "unlink", "mkdir"):
        patch.setattr(Path, name, fatal(Path, name))
    patch.setattr(os, "open", fatal(os, "open"))
    patch.setattr(shutil, "rmtree", fatal(shutil, "rmtree"))
    return done


def deaths(work: Callable[[], object], out: Path, first: Path | None) -> Iterator[str]:
    """Do the same work anew, dying one file operation later each time; says at which."""
    for number in count(1):
        shutil.rmtree(out, ignore_errors=True)
        if first is not None:
            shutil.copytree(first, out)
        with pytest.MonkeyPatch.context() as patch:
            done = dying_at(number, patch)
            with suppress(Stopped):
                work()
                assert 12 < number == len(done) + 1
                return
        yield done[number - 1]


@pytest.mark.parametrize("grown", [False, True])
def test_a_death_at_any_file_operation_loses_nothing(tmp_path: Path, grown: bool) -> None:
    first, whole, out = tmp_path / "first", tmp_path / "whole", tmp_path / "pool"
    old = [*(sampled(first, 8, QUESTIONS[1:]) or ())] if grown else []
    new = [*(sampled(whole, 16) or ())]
    sampler = Stepping()
    for last in deaths(lambda: sampled(out, 16, sampler=sampler), out, first if grown else None):
        if (out / "manifest.json").exists():
            assert [*Pool.open(out)] in (old, new), last
        elif grown:
            with pytest.raises(PoolError, match="is being rewritten; run the same command again"):
                Pool.open(out)
        assert sampled(out, 16, sampler=sampler) is not None
        assert files(out) == files(whole), last
        assert len(sampler.asked) <= len({*sampler.asked}) + 3, "more than the call under way"
        sampler.asked.clear()


@pytest.mark.parametrize("imported", [False, True])
def test_a_death_while_something_is_dropped_leaves_a_pool(tmp_path: Path, imported: bool) -> None:
    first, without, out = tmp_path / "first", tmp_path / "without", tmp_path / "pool"
    sampled(first)
    sampled(without, 8, QUESTIONS[1:])
    for place in (first, without) if imported else ():
        (place / "plan.json").unlink()
    for last in deaths(lambda: drop(out, ["q0"]), out, first):
        if not (out / "manifest.json").exists():
            with pytest.raises(PoolError, match="is being rewritten; run the same command again"):
                Pool.open(out)
        drop(out, ["q0"])
        (out / "dropped.jsonl").unlink()
        assert files(out) == files(without), last


def test_what_failed_is_noted_and_asked_for_again_and_the_old_pool_stays(tmp_path: Path) -> None:
    before = [*(sampled(tmp_path) or ())]
    assert sampled(tmp_path, 16, sampler=Stepping(fails=2)) is None
    noted = (tmp_path / "growing" / "failures.jsonl").read_text().splitlines()
    assert {json.loads(line)["error"] for line in noted} == {"no"}
    assert told(tmp_path)["growing"]["failures"] == len(noted) > 0
    assert [*Pool.open(tmp_path)] == before
    with pytest.raises(UsageError, match=r"\(responses\); continue with those in growing/plan"):
        sampled(tmp_path, 32)
    sampler = Stepping()
    grown = sampled(tmp_path, 16, sampler=sampler)
    assert (len(sampler.asked), grown and {len(each.responses) for each in grown}) == (6, {16})


@pytest.mark.parametrize("status", [400, 401])
def test_a_refused_question_stops_no_other_and_a_wrong_key_all(tmp_path: Path, status: int) -> None:
    sampler = Stepping(error=UpstreamError("no", status=status))
    with pytest.raises(UpstreamError, match="no response: .*no" if status == 400 else "401: no"):
        sampled(tmp_path, 64, sampler=sampler)


def test_half_a_line_is_cut_and_named_and_one_damaged_in_the_middle_refused(tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        sampled(tmp_path, watch=stop)
    segment = tmp_path / "open-00000.jsonl"
    whole = segment.read_bytes()
    segment.write_bytes(whole[:-9])
    lines = whole.count(b"\n")
    with Log(tmp_path, PLAN, QUESTIONS) as log:
        assert (log.damaged, log.done) == ([f"open-00000.jsonl, line {lines}"], lines - 1)
    segment.write_bytes(b"{\n" + whole)
    with pytest.raises(PoolError, match=r"open-00000\.jsonl, line 1: .*remove the line"):
        sampled(tmp_path)


# --- what is refused ------------------------------------------------------------------------------

OTHER = [replace(QUESTIONS[0], text="else?"), *QUESTIONS[1:]]


@pytest.mark.parametrize(
    ("plan", "questions", "sentence"),
    [
        (replace(PLAN, sampler={"model": "other"}), QUESTIONS, r"other settings \(model\)"),
        (replace(PLAN, seed=1), QUESTIONS, r"other settings \(seed\)"),
        (replace(PLAN, task=get_task("gsm8k")), QUESTIONS, r"other settings \(task\)"),
        (replace(PLAN, responses=4), QUESTIONS, "was (sampled|begun) with other settings"),
        (PLAN, QUESTIONS[1:], "other questions"),
        (PLAN, OTHER, "other questions"),
        (ENDLESS, QUESTIONS, "other settings"),
    ],
)
@pytest.mark.parametrize("finished", [True, False])
def test_another_plan_is_refused_and_nothing_touched(
    tmp_path: Path, plan: Plan, questions: list[Question], sentence: str, finished: bool
) -> None:
    sampled(tmp_path, sampler=Stepping(fails=0 if finished else 1))
    before = files(tmp_path)
    with pytest.raises(UsageError, match=sentence):
        Log(tmp_path, plan, questions)
    assert files(tmp_path) == before


def test_a_place_with_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "growing").mkdir()
    (tmp_path / "growing" / "roses.txt").write_text("precious")
    with pytest.raises(UsageError, match="no pool begun by sampling"):
        sampled(tmp_path)
    assert files(tmp_path) == {"growing/roses.txt": b"precious"}


def test_only_one_writes_at_a_time_and_the_other_is_told_who_does(tmp_path: Path) -> None:
    with Log(tmp_path, PLAN, QUESTIONS, command="aera sample") as log:
        log.add(QUESTIONS[0], 0, [Response("1", 1)])
        since = r"by aera sample \(process \d+\) since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
        with pytest.raises(UsageError, match=since):
            Log(tmp_path, PLAN, QUESTIONS)
        assert len(open_pool(tmp_path)) == 1
    Log(tmp_path, PLAN, QUESTIONS).close()
    assert not (tmp_path / "lock").exists()


def test_a_full_disk_names_the_file_and_leaves_no_half_line(tmp_path: Path) -> None:
    with Log(tmp_path, PLAN, QUESTIONS) as log:
        (tmp_path / "open-00000.jsonl").symlink_to("/dev/full")
        with pytest.raises(OSError, match=r"open-00000\.jsonl") as caught:
            log.add(QUESTIONS[0], 0, [Response("1", 1)])
        assert caught.value.errno == errno.ENOSPC
        assert log.missing(QUESTIONS[0], block=8) == [range(8)]


# --- read while open ------------------------------------------------------------------------------


def test_an_open_log_is_a_pool_of_its_whole_lines_and_is_not_touched(tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        sampled(tmp_path, watch=stop)
    with (tmp_path / "open-00000.jsonl").open("a") as file:
        file.write('{"question_id": "ü')
    before = files(tmp_path)
    pool, found = open_pool(tmp_path), told(tmp_path)
    assert isinstance(pool, Pool)
    assert min(len(each.responses) for each in pool) == pool.manifest.each
    assert (found["kind"], found["wanted"], found["done"]) == ("unfinished pool", 48, 14)
    assert sum(pool.stored_counts.values()) == 14
    assert files(tmp_path) == before


def test_a_log_without_an_end_remembers_what_was_asked(tmp_path: Path) -> None:
    asking = replace(ENDLESS, request=lambda question: {"prompt": question.text})
    with Log(tmp_path, asking, QUESTIONS[:2]) as log:
        log.add(QUESTIONS[0], 0, [Response("0", 1), Response("1", 1)])
        log.add(QUESTIONS[0], 3, [Response("3", 1)])
    with Log(tmp_path, asking, QUESTIONS) as log:
        assert [each.text for each in log.recall(QUESTIONS[0], 0, 8)] == ["0", "1"]
        assert (log.gap(QUESTIONS[0], 2, 8), log.gap(QUESTIONS[1], 0, 8)) == (1, 8)
        assert (len(log.paid), len(log.seal() or ())) == (3, 1)
    before = files(tmp_path)
    with pytest.raises(UsageError, match="another request for question q0"):
        Log(tmp_path, asking, OTHER)
    assert files(tmp_path) == before


# --- audits ---------------------------------------------------------------------------------------


def audit(
    log: Log, name: str, changed: bool = False, most: int | None = 4_000, **about: Any
) -> bool:
    responses = (*(Response(f"\\boxed{{{i % 2}}}", tokens=3) for i in range(4)),)
    known = {"time": time.time(), "model": "m", "policy": "asc-0.95", "limit": 0.02, **about}
    question = Question(name, f"how many {name}?", system="Be brief.")
    outcome = "changed" if changed else "same"
    return log.add_audit(Audit(question, responses, outcome=outcome, **known), most=most)


def test_recorded_audits_are_a_private_pool_that_info_judges(tmp_path: Path) -> None:
    out = tmp_path / "kept"
    with Log(out, ENDLESS, command="aera serve", private=True) as log:
        assert [audit(log, name, changed=name == "b") for name in "abc"] == [True] * 3
        with (out / "audits.jsonl").open("a") as file:
            file.write('{"id": "d", "ti')  # as a kill leaves it
        pool = open_pool(out)
        assert [*pool.questions] == ["a", "b", "c"]
        assert {len(each.responses) for each in pool} == {4}
        assert {each.stat().st_mode & 0o077 for each in (out, *out.iterdir())} == {0}
    with Log(out, ENDLESS, command="aera serve", private=True) as log:
        assert log.damaged == ["audits.jsonl, line 4"]
        assert [audit(log, name) for name in "efgh"].count(False) > 0  # no more room
    with pytest.raises(UsageError, match="another task"):
        Log(out, replace(ENDLESS, task=get_task("choice")), private=True)
    [found] = told(out)["audits"]
    assert (found["judged"], found["changed"], found["alarm"]) == (found["audits"], 1, None)
    assert 0 < found["low"] < found["changed"] / found["judged"] < found["high"] < 1
    assert "the answer changed in 1 (" in said("info", out)
    assert "no alarm of more than 2.00%" in said("info", out)


def test_a_folder_that_others_can_read_takes_no_audits(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with pytest.raises(UsageError, match=r"others can read .* chmod go= "):
        Log(tmp_path, ENDLESS, private=True)
    assert [*tmp_path.iterdir()] == []


def test_many_changed_answers_are_an_alarm(tmp_path: Path) -> None:
    with Log(tmp_path / "kept", ENDLESS, private=True) as log:
        for number in range(12):
            assert audit(log, str(number), changed=True, most=None, time=1e9 + number)
    assert told(tmp_path / "kept")["audits"][0]["alarm"].startswith("2001-09-09T01:46:4")


# --- dropping -------------------------------------------------------------------------------------


def test_what_is_dropped_stays_away_also_while_it_is_under_way(tmp_path: Path) -> None:
    out = tmp_path / "kept"
    with Log(out, ENDLESS, private=True) as log:
        audit(log, "a", request="r-a", time=100.0)
        audit(log, "b", time=200.0)
        assert "0 erased; 1 await" in said("drop", out, "--ids", "r-a,tardy")
        assert [*open_pool(out).questions] == ["b"]
        assert told(out)["awaiting"] == 1
        audit(log, "tardy", time=300.0)
        audit(log, "c", time=300.0)
        assert told(out)["awaiting"] == 0
        assert "many a" not in (out / "audits.jsonl").read_text()
        said("drop", out, "--before", "1970-01-01T00:04:10+00:00")
        audit(log, "older", time=240.0)
        assert [*open_pool(out).questions] == ["c"]
    assert "tardy" not in (out / "audits.jsonl").read_text()
    with Log(out, ENDLESS, private=True) as log:
        audit(log, "tardy")
    assert [*open_pool(out).questions] == ["c"]


@pytest.mark.parametrize("imported", [True, False])
def test_a_dropped_question_is_erased_and_never_asked_again(tmp_path: Path, imported: bool) -> None:
    out, without = tmp_path / "pool", tmp_path / "without"
    sampled(out)
    sampled(without, 8, QUESTIONS[1:])
    for place in (out, without) if imported else ():
        (place / "plan.json").unlink()
    assert "1 erased" in said("drop", out, "--ids", "q0")
    found = files(out)
    assert b"q0" in found.pop("dropped.jsonl")
    assert found == files(without)
    if not imported:
        sampler = Stepping()
        grown = sampled(out, 12, sampler=sampler)
        assert ([*grown.questions], len(sampler.asked)) == ([q.id for q in QUESTIONS[1:]], 20)


def test_a_question_dropped_while_it_is_sampled_is_not_paid_for(tmp_path: Path) -> None:
    def watch(log: Log) -> None:
        if log.done == 30:
            said("drop", tmp_path, "--ids", "q1,q4")

    sampler = Stepping()
    pool = sampled(tmp_path, watch=watch, sampler=sampler)
    assert [*pool.questions] == ["q0", "q2", "q3", "q5"]
    assert "q4" not in {name for name, _ in sampler.asked}
    assert told(tmp_path)["awaiting"] == 0


def test_a_pool_that_is_not_finished_forgets_a_question_and_its_failures(tmp_path: Path) -> None:
    sampled(tmp_path, sampler=Stepping(fails=1))

    def holding() -> list[str]:
        return sorted(name for name, content in files(tmp_path).items() if b'"q0"' in content)

    assert holding() == ["failures.jsonl", "open-00000.jsonl", "questions.jsonl"]
    assert "1 erased" in said("drop", tmp_path, "--ids", "q0")
    assert holding() == ["dropped.jsonl"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "say what is to be dropped"),
        (("--before", "2026-01-31"), "does not say when"),
        (("--before", "soon"), "a date such as"),
        (("--ids", "q0,q1,q2,q3,q4,q5"), "nothing would be left"),
    ],
)
def test_what_cannot_be_dropped_stays(tmp_path: Path, words: tuple[str, ...], why: str) -> None:
    sampled(tmp_path)
    with pytest.raises(AeraError, match=why):
        said("drop", tmp_path, *words)
    assert len(open_pool(tmp_path)) == 6


# --- kills ----------------------------------------------------------------------------------------


def test_kills_while_sampling_and_growing_lose_only_the_calls_under_way(tmp_path: Path) -> None:
    write_questions(tmp_path / "asked.jsonl", [each.text for each in QUESTIONS])
    words = ("sample", "asked.jsonl", "--out", "pool", "--model", "m", "--task", "numeric")
    with Server(delay=0.02) as server:
        to = ("--block", 1, "--concurrency", 3, "--base-url", server.url, "--responses")
        for responses in (8, 16):
            before = server.calls
            with begin(tmp_path, *words, *to, responses) as process:
                while process.poll() is None and server.calls < before + 12:
                    time.sleep(0.001)
                process.kill()
            assert process.returncode == -signal.SIGKILL
            done = run_apart(tmp_path, *words, *to, responses)
            assert done.returncode == 0, done.stderr
            assert 48 <= server.calls - before <= 48 + 3
    assert {len(each.responses) for each in Pool.open(tmp_path / "pool")} == {16}
    assert not (tmp_path / "pool" / "growing").exists()


# --- the interval and the alarm of audits ---------------------------------------------------------

LIMIT = 0.02


def noticed_after(outcomes: np.ndarray) -> int | None:
    """Audits until the alarm."""
    detector = Detector(LIMIT)
    for seen, changed in enumerate(outcomes, 1):
        detector.see(bool(changed))
        if detector.alarmed:
            return seen
    return None


def test_a_change_after_a_thousand_calm_audits_is_noticed_within_300() -> None:
    random = np.random.default_rng(0)
    chances = np.repeat([LIMIT / 2, 4 * LIMIT], [1_000, 300])
    found = [noticed_after(random.random(1_300) < chances) for _ in range(40)]
    assert sum(each is not None and each > 1_000 for each in found) >= 36


def test_nothing_is_noticed_where_nothing_changes() -> None:
    random = np.random.default_rng(1)
    found = [noticed_after(random.random(2_000) < LIMIT / 2) for _ in range(20)]
    assert found.count(None) >= 19


def test_an_alarm_stays_and_its_numbers_do_not_grow_without_bound() -> None:
    detector = Detector(0.5)
    for changed in [True] * 3_000 + [False] * 3_000:
        detector.see(changed)
    assert detector.alarmed
    assert 0 <= detector.level < RUN_LENGTH


def test_a_few_changes_are_too_many_where_none_was_promised() -> None:
    detector = Detector(0.0)
    raised = [detector.see(changed) for changed in [False] * 5_000 + [True] * 3]
    assert (raised.count(True), any(raised[:5_000])) == (1, False)


@pytest.mark.parametrize("chances", [(0.02, 0.02), (0.2, 0.005), (0.01, 0.08)])
def test_the_interval_has_the_running_mean_after_every_audit(chances: tuple[float, float]) -> None:
    random = np.random.default_rng(2)
    each = np.repeat(chances, 300)
    means = np.cumsum(each) / np.arange(1, 601)
    missed = 0
    for _ in range(40):
        changed = np.cumsum(random.random(600) < each)
        counts = zip(changed.tolist(), range(1, 601), strict=True)
        bounds = np.array([interval(*pair) for pair in islice(counts, 9, None, 10)])
        seen = means[9::10]
        missed += not ((bounds[:, 0] <= seen) & (seen <= bounds[:, 1])).all()
    assert missed <= 4


def test_the_interval_has_the_share_and_narrows() -> None:
    assert interval(0, 0) == (0.0, 1.0)
    for changed, audits in ((0, 1), (1, 1), (0, 100), (3, 300), (50, 50), (20, 1_000)):
        low, high = interval(changed, audits)
        assert 0 <= low <= changed / audits <= high <= 1
    assert interval(0, 100)[1] < 0.08
    assert interval(20, 1_000)[0] > 0.008
