"""A task of one's own, from questions to the gateway, as commands over real sockets."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from commands import Aera
from fakes import Call, FakeUpstream, in_background
from gateways import ask, free_port, served

QUESTIONS = 24
FIELD = 'kind = "json"\npath = "result.sure"\nprompt = "Is it? {question} Answer in JSON."\n'
PATTERN = 'kind = "yes-no"\npattern = "^FINAL[: ]+([a-z]+)"\nprompt = "Q: {question}"\n'
PYTHON = """
from aera import Task

def last_word(text):
    return text.split()[-1].strip(".").lower()

task = Task("spoken", "text", "Say it: {question}", normalise=(), reader="spoken:last_word")
"""
WAYS = {
    "field.toml": (FIELD, lambda yes: json.dumps({"result": {"sure": yes}}), ("true", "false")),
    "marked.toml": (PATTERN, lambda yes: f"Hm.\nFINAL: {'yes' if yes else 'no'}", ("yes", "no")),
    "spoken.py": (PYTHON, lambda yes: f"So: {'Yes' if yes else 'No'}.", ("yes", "no")),
}


def answering(say: Any) -> FakeUpstream:
    """Right in most samples; the question's number says what is right."""

    def answer(call: Call, place: int) -> str:
        number = int("".join(c for c in call.prompt if c.isdecimal()) or 0)
        chance = random.Random(f"{number} {call.body.get('seed', call.number)} {place}")
        right = number % 2 == 0
        return str(say(right if chance.random() < 0.85 else not right))

    return FakeUpstream(answer)


@pytest.mark.parametrize("name", WAYS)
def test_an_own_task_goes_from_questions_to_gateway(name: str, aera: Aera, tmp_path: Path) -> None:
    content, say, (yes, no) = WAYS[name]
    (tmp_path / name).write_text(content)
    task = "spoken:task" if name.endswith(".py") else name
    rows = [
        {"id": f"q{n}", "question": f"number {n}?", "answer": yes if n % 2 == 0 else no}
        for n in range(QUESTIONS)
    ]
    (tmp_path / "asked.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with in_background(answering(say)) as upstream:
        server = ("--base-url", upstream.base_url, "--model", "m")
        asking = ("--task", task, "--out", "pool", "--responses", 8, *server)
        for command in (
            ("sample", "asked.jsonl", *asking),
            ("evaluate", "pool", "--policies", "fixed-8", "--json", "e.json"),
            ("train", "pool", "--out", "controller", "--max-loss", 0.2),
        ):
            done = aera(*command)
            assert done.returncode == 0, done.stderr
        found = json.loads((tmp_path / "e.json").read_text())
        assert found["readability"]["share"] == 1.0
        assert found["points"][0]["accuracy"] > 80
        done = aera("solve", "number 100?", "--controller", "controller", *server)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["answer"] == yes
        options = ("--upstream", upstream.base_url, "--model", "m", "--controller", "controller")
        port = free_port()
        said = [{"role": "user", "content": "number 101?"}]
        with served(port, *options, folder=tmp_path):
            body = {"model": "aera/m", "messages": said, "seed": 0}
            account = ask(port, "/v1/chat/completions", body)[1]["aera"]
        assert account["answer"] == no
        assert not account["warnings"]
