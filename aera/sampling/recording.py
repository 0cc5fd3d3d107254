"""Record: sample into a log everything that is missing there."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from aera.errors import UpstreamError
from aera.files import to_line
from aera.pools.log import Log, append
from aera.pools.pool import Pool
from aera.response import Question, Response
from aera.sampling.budget import Budget, Ledger
from aera.sampling.sampler import Sampler, bound_of, sample_held
from aera.trace import ServedTokens

HOPELESS = 64
"""Failures without a single response after which a server is taken for dead."""


async def record(
    log: Log,
    sampler: Sampler,
    *,
    concurrency: int = 64,
    block: int = 16,
    ledger: Ledger | None = None,
    watch: Callable[[Log], None] = lambda log: None,
    raw: Path | None = None,
) -> Pool | None:
    """Sample everything that is missing; returns the pool, or None where some is missing.

    Nothing is asked for beyond a limit; what was recorded before counts against it. With `raw`, the
    logprobs of every token go to a file of their own. A question the server refuses for good does
    not stop the others. Every call is kept as it comes back, so that a kill loses only those under
    way.
    """
    ledger = ledger or Ledger(Budget())
    ledger.book(log.paid)
    work = iter([(each, part) for each in log.questions for part in log.missing(each, block=block)])

    async def ask(question: Question, stretch: range) -> int:
        """Ask for what a limit allows of a stretch; returns how many that were, 0 at the limit."""
        held = await ledger.reserve(len(stretch), bound_of(sampler, question, ledger))
        if held is None:
            return 0

        def keep(start: int, came: Sequence[Response]) -> None:
            log.add(question, start, came)
            if raw is not None:
                append(raw, [*_raw_lines(question, start, came)])

        held.heard = keep
        try:
            got = await sample_held(sampler, question, held, start=stretch.start)
        except UpstreamError as error:
            if error.final:
                raise  # a wrong key, model or address is wrong for every question
            got = [Response("", error=str(error)) for _ in range(held.responses)]
        finally:
            held.close()
        for index, response in enumerate(got, start=stretch.start):
            if response.error is not None and not ledger.late:
                log.add(question, index, [response])
        return held.responses

    async def worker() -> None:
        for question, stretch in work:
            rest = stretch
            while rest:
                asked = await ask(question, rest)
                if not asked:
                    return
                watch(log)
                if log.done == log.resumed and log.failures >= HOPELESS:
                    raise UpstreamError(f"{log.failures} failures and no response: {log.trouble}")
                rest = rest[asked:]

    workers = [asyncio.create_task(worker()) for _ in range(concurrency)]
    try:
        await asyncio.gather(*workers)
    finally:
        for task in workers:
            task.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    return log.seal()


def _raw_lines(question: Question, start: int, responses: Sequence[Response]) -> Iterator[str]:
    """The logprobs of the tokens as they came; a response that was asked for again comes again."""
    for index, response in enumerate(responses, start=start):
        tokens = getattr(response.source, "tokens", None)
        if isinstance(tokens, ServedTokens):
            sure = tokens.confidence
            yield to_line(
                {
                    "question_id": question.id,
                    "index": index,
                    "logprob": tokens.logprobs.round(4).tolist(),
                    "confidence": None if sure is None else sure.round(3).tolist(),
                }
            )
