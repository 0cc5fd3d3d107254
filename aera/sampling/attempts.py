"""Attempts: what came of one call to a model server and its retries."""

import asyncio
from dataclasses import dataclass, replace

from aera.errors import UpstreamError
from aera.response import Response


@dataclass(frozen=True)
class Attempts:
    """What came of one call and its retries: responses, or the error that was the last."""

    calls: int
    """Calls that were made, which may be none."""
    responses: tuple[Response, ...] = ()
    error: UpstreamError | None = None

    def fail(self) -> Response:
        """The record of a completion that could not be had; a refusal for good is raised."""
        assert self.error is not None
        if not self.error.retryable and self.error.status is not None:
            raise self.error.after(self.calls)
        return self.records(1)[0]

    def records(self, n: int) -> list[Response]:
        """The records of `n` completions that one call was to give; its calls count once."""
        failed = Response("", error=str(self.error), calls=self.calls, source=self.error)
        return [failed, *[replace(failed, calls=0)] * (n - 1)]


def keep_result(task: "asyncio.Task[Response]", refused: UpstreamError) -> Response:
    """What came of a call; of one that was refused or broken off, the record of that."""
    error = refused if task.cancelled() else task.exception()
    if error is None:
        return task.result()
    told = error if isinstance(error, UpstreamError) else refused
    return Attempts(0 if task.cancelled() else told.calls, error=told).records(1)[0]
