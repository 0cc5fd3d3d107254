"""Inspect: stop the epochs of a sample as soon as the controller finds that more are not worth it.

    stopping = VoteStopping(controller)
    task = Task(..., epochs=64, early_stopping=stopping, cleanup=stopping.collect)

Decisions come from the completions alone. Inspect shows its hook the scores; they are not looked
at, so that the evaluation stays one of the model and not of the stopping rule.
"""

import asyncio
from functools import partial
from importlib import import_module
from typing import Any

from aera.core import Question, Response
from aera.errors import UsageError
from aera.files import Json
from aera.solving.controller import Controller
from aera.solving.run import Run
from aera.solving.solve import look_at, off_loop


class VoteStopping:
    """Inspect's EarlyStopping, decided by a controller.

    Epochs vote in their order, whichever finishes first. Those already begun when the decision
    falls are not called back, so keep `max_samples` at or below the number of samples. The last
    checkpoint of the schedule is the most epochs a sample gets.
    """

    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self._runs: dict[str | int, Run] = {}
        self._early: dict[str | int, dict[int, Response]] = {}
        self._locks: dict[str | int, asyncio.Lock] = {}
        """One decision at a time: it may be taken in a thread, and epochs end as they like."""
        self._stopped = 0

    async def start_task(self, task: Any, samples: list[Any], epochs: int) -> str:
        """Begin to decide every sample of a task."""
        self._runs, lookout = {}, self.controller.make_lookout()
        for sample, question in zip(samples, map(_question, samples), strict=True):
            self._runs[sample.id] = look_at(question, self.controller, lookout).start(question)
        self._early = {each.id: {} for each in samples}
        self._locks = {each.id: asyncio.Lock() for each in samples}
        self._stopped = 0
        return f"aera {self.controller.label}"

    async def schedule_sample(self, id: str | int, epoch: int) -> Any:  # noqa: A002
        """An EarlyStop where the sample's votes have been decided, else None."""
        run = self._runs[id]
        async with self._locks[id]:
            if run.want:
                return None
        self._stopped += 1
        stop = import_module("inspect_ai.util").EarlyStop
        return stop(id=id, epoch=epoch, reason=run.reason, metadata=_account(run))

    async def collect(self, state: Any) -> None:
        """Take the completion of an epoch; this is the task's `cleanup`, and sees no score."""
        key, response = state.sample_id, _response(state.output)
        async with self._locks[key]:
            await off_loop(self._runs[key], partial(self._take, key, state.epoch, response))

    async def complete_sample(self, id: str | int, epoch: int, scores: object) -> None:  # noqa: A002
        """Inspect says that an epoch is done. Its scores are not looked at."""
        run = self._runs[id]
        async with self._locks[id]:
            missing = run.want and epoch > run.delivered and epoch not in self._early[id]
        if missing:
            raise UsageError(
                "the completions do not arrive: give the task cleanup=stopping.collect"
            )

    async def complete_task(self) -> Json:
        """The voted answers and what they took, for the log."""
        for run in self._runs.values():
            await off_loop(run, partial(run.end, "epochs"))
        return {
            "policy": self.controller.label,
            "stopped_epochs": self._stopped,
            "samples": {str(key): _account(run) for key, run in self._runs.items()},
        }

    def _take(self, key: str | int, epoch: int, response: Response) -> None:
        """Feed the run whatever is next in the order of the epochs."""
        run, early = self._runs[key], self._early[key]
        if epoch > run.delivered:  # an epoch that was tried again votes once
            early[epoch] = response
        while run.want and run.delivered + 1 in early:
            run.feed([early.pop(run.delivered + 1)])


def _question(sample: Any) -> Question:
    said = sample.input
    text = said if isinstance(said, str) else "\n".join(message.text for message in said)
    return Question(str(sample.id), text, tuple(sample.choices or ()))


def _response(output: Any) -> Response:
    """An epoch's output as a response; an epoch that failed abstains."""
    if not output.choices:
        return Response("", error=output.error or "no completion")
    tokens = output.usage.output_tokens if output.usage else 0
    reason = "length" if output.stop_reason == "max_tokens" else output.stop_reason
    listed = getattr(output.choices[0], "logprobs", None)
    logprob = sum(each.logprob for each in listed.content) if listed and listed.content else None
    return Response(output.completion, tokens, logprob, finish_reason=reason, model=output.model)


def _account(run: Run) -> Json:
    """What became of a sample's votes."""
    done = run.allocation
    return {"answer": done.answer, "epochs": done.responses, "reason": done.reason}
