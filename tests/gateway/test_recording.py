"""What a gateway records of its audits: a pool to learn from, bounded, and forgotten on demand."""

import asyncio
import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeUpstream
from gateways import ask, free_port, served, visit
from live import boxed, controller_of, in_background
from typer.testing import CliRunner

from aera import Pool, Question, Response, get_task, open_pool
from aera.cli import app
from aera.errors import PoolError, UsageError
from aera.pools.record import Record
from aera.pools.recorded import AuditFolder

KEY = "a-key-that-nobody-may-find"


def asking(text: str) -> dict[str, Any]:
    said = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]
    return {"model": "aera/m", "messages": said}


def recorded(folder: AuditFolder, *texts: str) -> list[str]:
    """The ids of replies to these questions, all audited and recorded."""

    async def scene(house: Any) -> list[str]:
        bearer = {"Authorization": f"Bearer {KEY}"}
        replies = [await house.post(asking(text), headers=bearer) for text in texts]
        while True:
            state = json.loads((await house.get("/state", headers=bearer))[1])
            if state["models"][0]["audits"]["seen"] == len(texts):
                break
            await asyncio.sleep(0.005)
        return [reply[2]["id"] for reply in replies]

    kept = {"audit_share": 1.0, "record": folder.path, "record_max": folder.most}
    settings = {**kept, "keys": [KEY], "controller": controller_of()}
    return visit(scene, FakeUpstream(boxed), **settings)


def test_audited_questions_are_a_pool(tmp_path: Path) -> None:
    folder = AuditFolder(tmp_path / "kept")
    ids = recorded(folder, "how many?", "how much?")
    pool = open_pool(folder.path)
    assert isinstance(pool, Pool)
    assert [*pool.questions] == ids
    assert [q.text for q in pool.questions.values()] == ["how many?", "how much?"]
    assert {q.system for q in pool.questions.values()} == {"Be brief."}
    assert {len(record.responses) for record in pool} == {16}
    assert (pool.task, pool.manifest.responses) == (get_task("numeric"), 32)
    more = recorded(folder, "how often?")
    assert [*open_pool(folder.path).questions] == [*ids, *more]
    content = b"".join(file.read_bytes() for file in folder.path.iterdir())
    assert KEY.encode() not in content
    assert folder.path.stat().st_mode & 0o077 == 0


def test_what_was_recorded_is_forgotten_by_id_and_by_age(tmp_path: Path) -> None:
    folder = AuditFolder(tmp_path / "kept")
    first, second = recorded(folder, "how many?", "how much?")
    open_pool(folder.path)
    said = CliRunner().invoke(app, ["forget", str(folder.path), "--id", first])
    assert "1 audits removed, 1 kept" in said.output
    assert [*open_pool(folder.path).questions] == [second]
    assert "how many" not in (folder.path / "audits.jsonl").read_text()
    CliRunner().invoke(app, ["forget", str(folder.path), "--older", "1"])
    assert [*open_pool(folder.path).questions] == [second]
    CliRunner().invoke(app, ["forget", str(folder.path), "--older", "0"])
    with pytest.raises(PoolError, match="no audits yet"):
        open_pool(folder.path)
    for wrong in ([str(folder.path)], [str(tmp_path), "--id", "x"]):
        assert isinstance(CliRunner().invoke(app, ["forget", *wrong]).exception, UsageError)


def test_no_more_is_recorded_than_there_is_room_for(tmp_path: Path) -> None:
    folder = AuditFolder(tmp_path / "kept", most=4_000)
    recorded(folder, *(f"how many of {number}?" for number in range(6)))
    assert 0 < (folder.path / "audits.jsonl").stat().st_size <= 4_000
    assert 0 < len(open_pool(folder.path)) < 6


def test_a_line_cut_by_a_kill_is_passed_over(tmp_path: Path) -> None:
    folder = AuditFolder(tmp_path / "kept")
    folder.begin(get_task("numeric"))
    record = Record(Question("a", "how many?"), (Response("\\boxed{7}", tokens=3),))
    assert folder.add(record)
    with (folder.path / "audits.jsonl").open("a") as file:
        file.write('{"id": "b", "time"')
    assert [*open_pool(folder.path).questions] == ["a"]
    assert folder.add(Record(Question("c", "how much?"), record.responses))
    assert [*open_pool(folder.path).questions] == ["a", "c"]
    assert folder.forget(["a"], None) == (1, 1)
    assert [*open_pool(folder.path).questions] == ["c"]


def test_a_place_for_something_else_is_refused(tmp_path: Path) -> None:
    folder = AuditFolder(tmp_path / "kept")
    folder.begin(get_task("numeric"))
    folder.begin(get_task("numeric"))
    with pytest.raises(UsageError, match="another task"):
        folder.begin(get_task("choice"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(UsageError, match="holds no recorded audits"):
        AuditFolder(tmp_path / "other").begin(get_task("numeric"))


def test_a_kill_loses_no_answered_request_and_leaves_a_pool(tmp_path: Path) -> None:
    port, folder = free_port(), tmp_path / "kept"
    with in_background(FakeUpstream(boxed, delay=lambda call: 0.02)) as upstream:
        options = ("--upstream", upstream.base_url, "--audit-share", "1", "--record", str(folder))
        with served(port, *options, "--task", "numeric") as process:
            answered = [
                ask(port, "/v1/chat/completions", asking(f"how many of {number}?"))[0]
                for number in range(12)
            ]
            while not (folder / "audits.jsonl").exists():
                time.sleep(0.01)
            process.send_signal(signal.SIGKILL)
            process.wait()
        kept = open_pool(folder)
        assert set(answered) == {200}
        assert 0 < len(kept) <= 12
        assert {len(record.responses) for record in kept} == {128}
        with served(port, *options, "--task", "numeric"):
            assert ask(port, "/v1/chat/completions", asking("and now?"))[0] == 200
            for _ in range(400):
                if len(open_pool(folder)) > len(kept):
                    break
                time.sleep(0.02)
        assert len(open_pool(folder)) == len(kept) + 1
