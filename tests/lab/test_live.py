import asyncio
import re
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from commands import refusal, said
from foreign_questions import BUNDLED
from lab_fixtures import Bench
from rich.console import Console

from aera import ASC, Controller, Pool, RecordedSampler
from aera.errors import ProtocolError
from aera.lab import Truths, grade, live_test, question_hashes
from aera.lab.live import run_demo


def test_it_solves_over_http_and_shows_what_that_was_worth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The figures of the table are those of the live run, for replay decides alike."""
    out = tmp_path / "pool"
    text = said("demo", "--questions", 60, "--pace", 0, "--out", out)
    quiet = Console(file=StringIO(), width=80)
    records, live = run_demo(quiet, Pool.open(out), BUNDLED, questions=60, pace=0.0)
    assert len({allocation.question_id for allocation in live}) == 60
    assert all(a.error is None and a.calls > 0 and a.prompt_tokens > 0 for a in live)
    truths = Truths.open(out)
    right = sum(grade(a.answer, truths[a.question_id], task=records.task) for a in live) / 60
    whole = [record for record in Pool.open(out) if record.question.id in records.questions]
    full = sum(response.tokens for record in whole for response in record.responses)
    share = 100 * sum(allocation.completion_tokens for allocation in live) / full
    told = rf"{100 * right:.1f} % right against [\d.]+ % for 128 plain votes, at {share:.0f} %"
    assert re.search(rf"^{told} of the tokens \(95 %: .* points\)\.$", text, re.MULTILINE)
    assert re.search(rf"aera-[\d.]+ +{100 * right:.1f} % .* {share:.0f} % +the controller", text)
    assert "60/60 stopped" in text
    assert re.search(r"60 questions solved live with \d+ calls in [\d.]+ s", text)
    assert "Next: " in text.splitlines()[-1]
    monkeypatch.setenv("COLUMNS", "80")
    assert "…" not in said("evaluate", out, "--all"), "no number is cut"
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", text), "nobody's terminal is steered"
    assert max(map(len, quiet.file.getvalue().splitlines())) <= 80  # type: ignore[attr-defined]


def test_a_frozen_controller_is_tested_on_questions_it_never_saw(bench: Bench) -> None:
    pool, sampler = bench.pool, RecordedSampler(bench.pool)
    frozen, asked = Controller(pool.task, pool.schedule, ASC(0.9)), [*pool.questions.values()][:20]
    done = asyncio.run(live_test(frozen, asked, bench.truths, sampler=sampler))
    ours, full = done.scores, done.reference_scores
    assert [each.responses for each in done.reference] == [32] * 20
    assert done.difference().value == pytest.approx(100 * (ours - full).mean())
    assert 20 < done.token_saving(prompts=False).value < 90
    known = replace(frozen, fitted=frozenset(question_hashes(asked[3])))
    test = live_test(known, asked, bench.truths, sampler=sampler)
    assert asked[3].id in refusal(ProtocolError, asyncio.run, test)
