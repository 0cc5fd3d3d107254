import gzip
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from foreign import APPLES, DATA, PENS, imported, refused

from aera import Question, Response
from aera.lab import Truths
from aera.lab.formats.recognising import recognise
from aera.pools import parquet


@pytest.fixture
def log() -> dict[str, Any]:
    """The logged file, to be changed."""
    parsed: dict[str, Any] = json.loads((DATA / "inspect.json").read_text("utf-8"))
    return parsed


def written(path: Path, log: dict[str, Any]) -> Path:
    path.write_text(json.dumps(log), "utf-8")
    return path


@pytest.mark.parametrize("name", ["inspect.json", "inspect.eval"])
def test_epochs_become_responses_in_order_and_a_failure_stays_one(
    tmp_path: Path, name: str
) -> None:
    pool = imported(DATA / name, tmp_path / "pool")
    apples, pens = pool
    assert (apples.question, pens.question) == (Question("apples", APPLES), Question("pens", PENS))
    assert [each.tokens for each in apples.responses] == [5, 6, 0, 8]
    assert apples.responses[2].error == "RuntimeError('server went away')"
    assert (pens.responses[3].text, pens.responses[3].finish_reason) == (
        "12 + 3 = \\boxed{15}",
        "stop",
    )
    assert Truths.open(pool.path) == Truths({"apples": "7", "pens": "36"})
    assert "tokens" not in pool.manifest.sampler


def test_an_archive_needs_what_unpacks_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(parquet, "import_module", absent)
    said = refused(DATA / "inspect.eval", tmp_path / "pool")
    assert said == 'this needs pyarrow: pip install "aera[data]"'


def test_an_archive_packed_as_usual_needs_nothing(tmp_path: Path, log: dict[str, Any]) -> None:
    with zipfile.ZipFile(tmp_path / "log.eval", "w", zipfile.ZIP_DEFLATED) as archive:
        for place, sample in enumerate(log["samples"]):
            archive.writestr(f"samples/{place}.json", json.dumps(sample))
    assert len(imported(tmp_path / "log.eval", tmp_path / "pool")) == 2


def test_a_log_on_one_line_or_gzipped_is_recognised(tmp_path: Path, log: dict[str, Any]) -> None:
    assert recognise(written(tmp_path / "log.json", log)) == "inspect"
    (tmp_path / "log.gz").write_bytes(gzip.compress((DATA / "inspect.json").read_bytes()))
    assert len(imported(tmp_path / "log.gz", tmp_path / "pool")) == 2


def test_messages_thoughts_and_several_choices_are_read(
    tmp_path: Path, log: dict[str, Any]
) -> None:
    sample = log["samples"][0]
    sample["input"] = [{"role": "system", "content": "s"}, {"role": "user", "content": "how many?"}]
    sample["target"] = ["7"]
    parts = [{"type": "reasoning", "reasoning": "3+4"}, {"type": "text", "text": "\\boxed{7}"}]
    choice = {"message": {"content": parts}, "stop_reason": "max_tokens"}
    sample["output"] = {"choices": [choice, choice], "usage": {"output_tokens": 20}}
    pool = imported(written(tmp_path / "log.json", {**log, "samples": [sample]}), tmp_path / "pool")
    record = next(iter(pool))
    said = Response("<think>3+4</think>\\boxed{7}", 10, finish_reason="length")
    assert (record.question.text, record.question.system) == ("how many?", "s")
    assert record.responses == (said, said)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epoch": "one"}, 'the field "epoch" is'),
        ({"id": None}, 'the field "id" is None'),
        ({"target": ["7", "8"]}, "the question apples has another answer than before"),
        ({"target": "8"}, "the question apples has another answer than before"),
        ({"output": {"choices": ["x"]}}, "a choice that is no object"),
        ({"choices": 5}, 'the field "choices" is 5'),
    ],
)
def test_a_bad_sample_is_named(
    tmp_path: Path, log: dict[str, Any], change: dict[str, Any], message: str
) -> None:
    log["samples"] = [log["samples"][0], {**log["samples"][2], **change}]
    said = refused(written(tmp_path / "log.json", log), tmp_path / "pool")
    assert said.startswith("log.json, sample 1: ")
    assert message in said


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{\n  "eval": {', "log.json: not JSON"),
        (b'{\n "eval": {}\n}', 'log.json: the field "samples" is missing'),
        (b'{\n "eval": {}, "samples": [1]\n}', "log.json, sample 0: a JSON object is needed"),
        (b'{\n "eval": {}, "samples": []\n}', "log.json holds no question"),
    ],
)
def test_a_bad_log_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "log.json").write_bytes(content)
    said = refused(tmp_path / "log.json", tmp_path / "pool", format_name="inspect")
    assert said.startswith(message)


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    content = bytearray((DATA / "inspect.eval").read_bytes())
    content[900:1200] = bytes(300)
    (tmp_path / "log.eval").write_bytes(content)
    assert refused(tmp_path / "log.eval", tmp_path / "pool").startswith("log.eval, samples/")
    (tmp_path / "cut.eval").write_bytes(content[:2000])
    assert refused(tmp_path / "cut.eval", tmp_path / "pool").startswith("cut.eval cannot be read")
