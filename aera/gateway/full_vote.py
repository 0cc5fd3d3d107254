"""An audit's work: the vote runs on to the full budget after the answer has left."""

import asyncio
import json
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache, partial

from aera.errors import AeraError
from aera.gateway.account import VotedChoice
from aera.gateway.auditing import CANCELLED, CHANGED, SAME, UNFINISHED, Audit, Found
from aera.gateway.request import find_last_words, find_system
from aera.gateway.voting import Ballot, Gateway
from aera.pools.record import Record
from aera.response import Prefix, Question
from aera.solving.feeding import feed_run, run_off_loop
from aera.solving.run import Run
from aera.tally import Tally
from aera.voting.best_of_n import gives_weights

log = logging.getLogger("aera.gateway")


@cache
def _recording_thread() -> ThreadPoolExecutor:
    """One of its own: whoever waits for the folder's lock keeps no vote waiting."""
    return ThreadPoolExecutor(1, "aera-recording")


def finish_audit(gateway: Gateway, audit: Audit) -> None:
    """The request is over: look at its answer, or at nothing where there is none."""
    auditor = gateway.auditor
    if audit.vote is None:
        auditor.withdraw(audit)
    else:
        auditor.start(_audit(gateway, audit, *audit.vote))


async def _audit(gateway: Gateway, audit: Audit, ballot: Ballot, voted: VotedChoice) -> None:
    again = gateway.reopen(ballot)
    try:
        finished = await _run_on(gateway, again, voted)
        full = again.run.prefix.tally.leaders.answer
        outcome = SAME if finished and full == voted.allocation.answer else CHANGED
        found = _tell(outcome if finished else UNFINISHED, again.run, ballot, voted)
        if finished and gateway.record is not None:
            work = partial(_record, gateway, audit, again, voted)
            await asyncio.get_running_loop().run_in_executor(_recording_thread(), work)
    except asyncio.CancelledError:
        audit.found = _tell(CANCELLED, again.run, ballot, voted)
        raise
    except AeraError:
        found = _tell(UNFINISHED, again.run, ballot, voted)
    except Exception:  # whatever it was: those drawn after it wait for this one
        log.exception("an audit failed")
        found = _tell(UNFINISHED, again.run, ballot, voted)
    gateway.auditor.settle(audit, found)


async def _run_on(gateway: Gateway, again: Ballot, voted: VotedChoice) -> bool:
    """Feed what was paid for already, then what is missing; whether all of it could be had."""
    run, known = again.run, list(voted.responses)
    while known and run.want:
        block, known = known[: run.want], known[run.want :]
        await run_off_loop(gateway.controller, partial(run.feed, block), heavy=run.heavy)
    failure = await feed_run(run, gateway.controller, again.sampler, again.spending)
    return failure is None and len(run.prefix) >= again.plan.schedule.last


def _record(gateway: Gateway, audit: Audit, again: Ballot, voted: VotedChoice) -> None:
    """Keep the question and all its responses; who asked, and with which key, is not kept."""
    folder, auditor = gateway.record, gateway.auditor
    assert folder is not None
    text = gateway.controller.task.question_in(find_last_words(again.body))
    question = Question(voted.id, text, system=find_system(again.body))
    about = {"request": audit.id, "model": auditor.model, "policy": auditor.policy}
    early = {"stopped_at": voted.allocation.responses}
    try:
        room = folder.add(Record(question, again.run.prefix.responses), **about, **early)
    except OSError as error:
        log.warning(json.dumps({"event": "not recorded", "id": audit.id, "why": error.strerror}))
    else:
        if not room:
            why = f"--record-max of {folder.most} bytes is reached; aera forget makes room"
            log.warning(json.dumps({"event": "not recorded", "id": audit.id, "why": why}))


def _tell(outcome: str, run: Run, ballot: Ballot, voted: VotedChoice) -> Found:
    prefix, paid = run.prefix, voted.allocation
    weighted = gives_weights(ballot.plan.weigher) and outcome in (SAME, CHANGED)
    return Found(
        outcome,
        max(0, len(prefix) - paid.responses),
        max(0, prefix.prompt_tokens - paid.prompt_tokens),
        max(0, prefix.completion_tokens - paid.completion_tokens),
        weighted and _plain_answer(prefix) != prefix.tally.leaders.answer,
    )


def _plain_answer(prefix: Prefix) -> str | None:
    """Who would win if every vote counted the same."""
    plain = (replace(vote, weight=1.0, scored=False) for vote in prefix.votes)
    return Tally().add(plain).leaders.answer
