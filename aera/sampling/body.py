"""RequestBody: a request that is serialised once, however many samples are drawn for it."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from io import BytesIO
from types import MappingProxyType
from typing import Any

from aera.errors import UsageError
from aera.reading.task import Task

LARGE = 256 * 1024
"""Bytes beyond which JSON is made and read outside the event loop."""
STRICT = json.JSONEncoder(check_circular=False, allow_nan=False)


class RequestBody(Mapping[str, Any]):
    """The fields of a request and, from the first call on, their JSON; never changed in place.

    `size` is about how long the JSON will be, where somebody knows. `wishes` are fields that it is
    sent with as far as a server takes them (aera.sampling.wishes), and the `task` finds the answer
    whose tokens a trace looks at.
    """

    def __init__(
        self,
        fields: Mapping[str, Any],
        *,
        size: int | None = None,
        wishes: Mapping[str, Any] = MappingProxyType({}),
        task: Task | None = None,
    ) -> None:
        self._fields, self._size = fields, size
        self.wishes, self.task = wishes, task
        self._extended: dict[str, RequestBody] = {}
        self.shows_logprobs = bool(fields.get("logprobs"))
        """Whether whoever asked wants to see logprobs, beside what is wished for."""
        self._common: bytes | None = None
        """All but the spliced fields, without the closing brace."""
        self._made: asyncio.Future[None] | None = None
        seed = fields.get("seed")
        self.seed: int | None = seed if _is_whole(seed) else None

    def __getitem__(self, name: str) -> Any:
        return self._fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def copy(self, fields: Mapping[str, Any]) -> "RequestBody":
        """Other fields with the same wishes."""
        return RequestBody(fields, wishes=self.wishes, task=self.task)

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> "RequestBody":
        """The fields as a body, unless they are one."""
        return fields if isinstance(fields, RequestBody) else cls(fields)

    def extend(self, more: Mapping[str, Any]) -> "RequestBody":
        """The same with more fields and no wishes; made once, so that it is serialised once."""
        key = ",".join(more)
        if key not in self._extended:
            made = RequestBody({**self._fields, **more}, size=self._size, task=self.task)
            made.shows_logprobs = self.shows_logprobs
            self._extended[key] = made
        return self._extended[key]

    @property
    def size(self) -> int:
        """Bytes of its JSON, once it was made."""
        return len(self._common or b"")

    async def prepare(self) -> None:
        """Make the JSON, once; a large one outside the event loop."""
        if self._common is not None:
            return
        size = self._size if self._size is not None else _measure(dict(self._fields), LARGE)
        if size <= LARGE:
            self._serialise()
            return
        if self._made is None:
            self._made = asyncio.ensure_future(asyncio.to_thread(self._serialise))
        await asyncio.shield(self._made)

    def _serialise(self) -> None:
        common = dict(self._fields)
        common.pop("n", None)
        if self.seed is not None:
            del common["seed"]
        try:
            self._common = STRICT.encode(common)[:-1].encode()
        except (ValueError, RecursionError):
            raise UsageError(
                "the request cannot be sent as JSON: it holds Infinity or NaN, or is nested too "
                "deeply"
            ) from None

    def seed_of(self, index: int) -> int | None:
        """The seed of sample `index`, stepped so that no two samples repeat."""
        return None if self.seed is None else self.seed + index

    def content(self, index: int, n: int) -> bytes | BytesIO:
        """What is sent for sample `index`, or for `n` from there on; `prepare` comes first.

        A large one is a file, which aiohttp sends piece by piece.
        """
        assert self._common is not None
        common, end = self._common, ""
        if self.seed is not None:
            end = f', "seed": {self.seed + index}'
        if n > 1:
            end += f', "n": {n}'
        made = common + (end if len(common) > 1 else end[2:]).encode() + b"}"
        return made if len(made) < LARGE else BytesIO(made)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _measure(value: Any, most: int) -> int:
    """About how long the JSON of a value is; counting ends once it is more than `most`."""
    left, size = [value], 0
    while left and size <= most:
        each = left.pop()
        if isinstance(each, str):
            size += len(each)
        elif isinstance(each, dict):
            left.extend(each)
            left.extend(each.values())
        elif isinstance(each, list):
            left.extend(each)
        size += 2
    return size
