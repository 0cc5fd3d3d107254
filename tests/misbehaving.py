"""Model servers that misbehave and keep a ledger of their own, and `aera` as processes before them.

with Server(usage=False, hidden=True) as server:
    run("solve", "--base-url", server.url, ..., cwd=folder)
    print(server.completion_tokens)          # what it billed, whatever it said

It imports nothing of aera: what it counts is no opinion of ours.
"""

import asyncio
import json
import random
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web
from commands import command
from fakes import in_background, serving
from gateways import CHAT, exchange, free_port, served

FAULTS = {"429": (429, "{}"), "500": (500, "{}"), "half": (200, '{"choices": [{"mess')}
FAULTS |= {"html": (200, "<html>hello</html>")}
MODES: dict[str, dict[str, Any]] = {
    "well-behaved": {},
    "ignores n": {"takes_n": False},
    "no usage": {"usage": False},
    "usage of zeros": {"zeros": True},
    "no usage, one token a character": {"usage": False, "characters": 1},
    "no usage, hidden reasoning": {"usage": False, "hidden": True},
    "hidden reasoning": {"hidden": True},
    "three choices more": {"surplus": 3},
    "two choices fewer": {"surplus": -2},
    "billed 500s": {"fault": "500"},
    "truncated JSON": {"fault": "half"},
    "not JSON": {"fault": "html"},
    "429s": {"fault": "429", "every": 7},
    "hangs": {"fault": "hang", "every": 5},
    "usage, then 5 kB": {"padding": 5_000},
    "says 999,999,999 tokens": {"says": 999_999_999},
}


@dataclass
class Server:
    """A model server; bills as soon as it is asked, so a client that leaves has been billed."""

    tokens: int = 40
    """Of a response; about, and never more than max_tokens."""
    usage: bool = True
    zeros: bool = False
    """Whether usage is there and nothing but zeros."""
    characters: int = 4
    """Of its text to a token."""
    hidden: bool = False
    """Whether most of the tokens are not in the text."""
    surplus: int = 0
    """Choices beyond those asked for; usage counts them."""
    takes_n: bool = True
    fault: str = ""
    """One of FAULTS, or "hang"; all are billed but 429."""
    every: int = 3
    after: int = 3
    """The first call that meets the fault; then every so many."""
    says: int | None = None
    """Completion tokens that the reply to call `after` claims, whatever was billed."""
    padding: int = 0
    """Bytes that follow usage."""
    agree: bool = False
    """Whether everybody says seven."""
    delay: float = 0.0
    held: int | None = None
    """Calls after this many wait until it is None."""
    calls: int = 0
    choices: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    asked: Counter[tuple[str, int]] = field(default_factory=Counter)
    """How often each response was asked for, by its prompt and seed."""
    seen: list[tuple[str, Any]] = field(default_factory=list)
    """Path and model of every request."""

    # --- the ledger -------------------------------------------------------------------------------

    def money(self, prompt_price: float, completion_price: float) -> float:
        """What was billed, at prices of a million tokens."""
        return (self.prompt_tokens * prompt_price + self.completion_tokens * completion_price) / 1e6

    @property
    def total(self) -> int:
        """All tokens that were billed."""
        return self.prompt_tokens + self.completion_tokens

    @property
    def twice(self) -> int:
        """Responses that were asked for again."""
        return sum(self.asked.values()) - len(self.asked)

    # --- what it does -----------------------------------------------------------------------------

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        content = await request.read()
        body: Any = {}
        with suppress(ValueError):
            body = json.loads(content)
        self.seen.append((request.path, body.get("model")))
        if request.path == "/v1/models":
            return web.json_response({"object": "list", "data": [{"id": "m", "object": "model"}]})
        if not request.path.endswith("/chat/completions"):
            return web.json_response({"text": "heard"})
        self.calls += 1
        number = self.calls
        broken = number >= self.after and (number - self.after) % self.every == 0
        fault = self.fault if broken else ""
        if fault == "429":
            return web.Response(status=429, text="{}", headers={"Retry-After": "1"})
        reply = self._bill(body, number)
        while fault == "hang" or (self.held is not None and number > self.held):
            await asyncio.sleep(0.02)
        await asyncio.sleep(self.delay)
        if fault:
            status, text = FAULTS[fault]
            return web.Response(status=status, text=text, content_type="application/json")
        if body.get("stream"):
            return await self._stream(request, body, reply)
        return web.json_response(reply)

    def _bill(self, body: Mapping[str, Any], number: int) -> dict[str, Any]:
        """Count a call as it comes in, and what it will be answered."""
        prompt = "\n".join(str(message["content"]) for message in body["messages"])
        wanted = int(body.get("n") or 1) if self.takes_n else 1
        count, first = max(1, wanted + self.surplus), body.get("seed") or 0
        texts, lengths = [], []
        for place in range(count):
            chance = random.Random(f"{prompt}{first + place}")
            length = max(1, chance.randint(self.tokens // 2, self.tokens * 3 // 2))
            lengths.append(min(length, body.get("max_tokens") or length))
            answer = "7" if self.agree else chance.choice("123456789")
            shown = 1 if self.hidden else lengths[-1]
            letters = "word" if self.characters == 4 else "字"
            texts.append(f"{letters * shown} \\boxed{{{answer}}}")
        self.asked.update((prompt, first + place) for place in range(wanted))
        digits = sum(letter.isdigit() for letter in prompt)
        spent = digits + (len(prompt) - digits) // 4 + 8
        self.prompt_tokens += spent
        self.completion_tokens += sum(lengths)
        self.choices += count
        said_by = [{"role": "assistant", "content": text} for text in texts]
        choices = [
            {"index": place, "message": message, "finish_reason": "stop"}
            for place, message in enumerate(said_by)
        ]
        said = self.says if self.says is not None and number == self.after else sum(lengths)
        usage = {"prompt_tokens": spent, "completion_tokens": said, "total_tokens": spent + said}
        usage = dict.fromkeys(usage, 0) if self.zeros else usage
        reply = {"id": f"r{number}", "object": "chat.completion", "model": body.get("model")}
        reply |= {"choices": choices, **({"usage": usage} if self.usage else {})}
        return {**reply, **({"padding": "x" * self.padding} if self.padding else {})}

    async def _stream(
        self, request: web.Request, body: Mapping[str, Any], reply: dict[str, Any]
    ) -> web.StreamResponse:
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        events = []
        for choice in reply["choices"]:
            place, message = choice["index"], choice["message"]
            events.append({"choices": [{"index": place, "delta": message, "finish_reason": None}]})
            events.append({"choices": [{"index": place, "delta": {}, "finish_reason": "stop"}]})
        if (body.get("stream_options") or {}).get("include_usage") and "usage" in reply:
            events.append({"choices": [], "usage": reply["usage"]})
        for each in events:
            await stream.write(f"data: {json.dumps({'id': 'r', **each})}\n\n".encode())
        await stream.write(b"data: [DONE]\n\n")
        return stream

    # --- a thread and a port of its own -----------------------------------------------------------

    def __enter__(self) -> "Server":
        self._running = in_background(serving(self._answer))
        self.url = self._running.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._running.__exit__(None, None, None)


# --- aera as processes ----------------------------------------------------------------------------


def begin(cwd: Path, *arguments: object, **how: Any) -> "subprocess.Popen[str]":
    """`aera` as a process that goes on by itself."""
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command(*arguments), cwd=cwd, **pipes, **how)


def run_apart(cwd: Path, *arguments: object, **how: Any) -> "subprocess.CompletedProcess[str]":
    """`aera` as a process, to its end."""
    given: Any = {"capture_output": True, "text": True, "timeout": 60, **how}
    return subprocess.run(command(*arguments), cwd=cwd, check=False, **given)


def write_questions(path: Path, texts: Sequence[str]) -> Path:
    """A file of questions that every command reads."""
    rows = [json.dumps({"id": str(i), "question": text}) for i, text in enumerate(texts)]
    path.write_text("".join(f"{row}\n" for row in rows), "utf-8")
    return path


class Gateway:
    """`aera serve` as a process, by a file of settings; keys are called by their names."""

    def __init__(
        self,
        folder: Path,
        *urls: str,
        model: str = "",
        keys: str = "",
        limits: str = "",
        port: int = 0,
    ) -> None:
        names = [line.split('"')[1] for line in keys.splitlines() if line.startswith("name")]
        self._variables = {f"KEY_{name}": f"key-{name}-of-some-length" for name in names}
        for name in names:
            keys = keys.replace(f'name = "{name}"', f'name = "{name}"\nenv = "KEY_{name}"')
        self._file = folder / "gateway.toml"
        upstream = f'[[upstream]]\nname = "server"\nurls = {json.dumps(urls)}\n'
        models = model if "[[model]]" in model else f'[[model]]\nname = "m"\n{model}\n'
        self._file.write_text(f"{upstream}\n{models}\n{keys}\n[limits]\n{limits}\n")
        self.port = port or free_port()

    def __enter__(self) -> "Gateway":
        options = "--config", str(self._file), "--port", str(self.port)
        # Nobody reads what it says, and a pipe that is full would stop it.
        quiet = subprocess.DEVNULL
        self._running = served(self.port, *options, stderr=quiet, **self._variables)
        self.process = self._running.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._running.__exit__(None, None, None)

    def ask(
        self, path: str = CHAT, body: Any = None, key: str = "", **how: Any
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers and content of one request."""
        secret = f"key-{key}-of-some-length" if key else None
        return exchange(self.port, path, body, secret, **{"timeout": 20, **how})

    def chat(
        self, text: str, *, model: str = "aera/m", key: str = "", how: Any = None, **fields: Any
    ) -> tuple[int, Any]:
        """Status and JSON of one chat; fields are the request's, `how` is for `ask`."""
        said = [{"role": "user", "content": text}]
        body = {"model": model, "messages": said, **fields}
        status, _, content = self.ask(body=body, key=key, **how or {})
        with suppress(ValueError):
            return status, json.loads(content)
        return status, content
