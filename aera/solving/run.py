"""Run and Allocation: the decision loop, without any input or output.

A Run says how many responses it wants, is fed, and may stop. Replay, live solving, the shared
budget and the gateway are thin loops around it, so they cannot disagree.
"""

import time
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Literal

from aera.core import Leaders, Prefix, Question, Reader, Response, Schedule, Vote, Weighting
from aera.errors import AeraError, RunError, UpstreamError
from aera.policies import rules
from aera.policies.rules import UNREADABLE, Decision, Policy, confident_rule, is_weighted
from aera.reading.task import NOTHING, Readability
from aera.voting.rules import CONFIDENT, Rule, TraceWeights, find_winner, plain_vote

Pace = Literal["quick", "works", "waits"]
"""What deciding takes: next to nothing, embedding or scoring, or waiting for another process."""


@dataclass(frozen=True)
class Step:
    """The decision taken at one checkpoint."""

    checkpoint: int
    decision: Decision
    milliseconds: float = field(default=0.0, compare=False)
    """What deciding took, embedding included."""


@dataclass(frozen=True)
class Allocation:
    """A finished run: the answer, what it cost, and why it ended."""

    question_id: str
    policy: str
    leaders: Leaders
    checkpoint: int
    """The last checkpoint that was reached, 0 if the first one was not."""
    responses: int
    prompt_tokens: int
    completion_tokens: int
    votes: dict[str, float]
    steps: tuple[Step, ...]
    reason: str
    calls: int = 0
    """Calls to the model server, retries included."""
    seconds: float = field(default=0.0, compare=False)
    """What all of it took, where somebody watched the clock."""
    encoder_ms: float = field(default=0.0, compare=False)
    gate_ms: float = field(default=0.0, compare=False)
    error: str | None = None
    """Why it failed, where the model server could not be had."""
    readability: Readability = NOTHING
    """How many of its responses were read, and what the others look like."""
    text: str | None = None
    """The response that stands for the answer."""
    full_budget: int = 0
    """Responses it would have taken without stopping early."""
    lacking: Mapping[str, int] = field(default_factory=dict)
    """Votes that brought less than the weigher needs: what they came without, and how many."""

    @property
    def tokens_saved(self) -> int:
        """Completion tokens that the full budget would have cost beyond these, by their mean.

        What was cut short by a limit, a failure or for want of anything readable saves nothing.
        """
        cut = self.reason.startswith("limit: ") or self.reason == UNREADABLE or self.error
        if cut or not self.responses:
            return 0
        missing = max(0, self.full_budget - self.responses)
        return round(self.completion_tokens / self.responses * missing)

    @property
    def answer(self) -> str | None:
        """The returned answer, None when no response could be read."""
        return self.leaders.answer


class Run:
    """One question under one policy. Feed it `want` responses, in as many deliveries as you like.

    run = controller.start(question)
    while run.want:
        run.feed(sampler.sample(question, run.want))
    print(run.allocation.answer)
    """

    def __init__(
        self,
        question: Question,
        policy: Policy,
        *,
        task: Reader,
        schedule: Schedule,
        rule: Rule | None = None,
        weigher: Weighting | None = None,
        label: str | None = None,
        pace: Pace = "quick",
    ) -> None:
        self.policy = policy
        self.label = label or str(policy)
        """What the allocation calls the policy."""
        self.prefix = Prefix(question, schedule)
        self.reason: str | None = None
        """Why it has stopped."""
        self._task = task
        self._confident = confident_rule(policy)
        self._rule = rule or CONFIDENT.get(self._confident or "", plain_vote)
        self._weigher = weigher
        self._waiting: list[Response] = []
        self._read: list[Vote] = []
        """What those say; read on delivery, for a reader may take its time."""
        self.steps: list[Step] = []
        self.pace = pace
        """How long reading and deciding may take; `solve` keeps what is slow off the event loop."""
        self.error: AeraError | None = None
        """Why it could not go on."""

    @property
    def question(self) -> Question:
        """The question being decided."""
        return self.prefix.question

    @property
    def delivered(self) -> int:
        """How many responses it has been fed."""
        return len(self.prefix) + len(self._waiting)

    @property
    def want(self) -> int:
        """How many more responses complete the current block; 0 once stopped."""
        checkpoint = self.prefix.next_checkpoint if self.reason is None else None
        return 0 if checkpoint is None else checkpoint - len(self.prefix) - len(self._waiting)

    def feed(self, responses: Sequence[Response]) -> None:
        """Deliver some of the wanted responses; a completed block leads to a decision."""
        want = self.want
        if len(responses) > want:
            raise RunError(
                f"question {self.prefix.question.id} wants {want} more responses, "
                f"but was fed {len(responses)}"
            )
        if self._weigher is None and is_weighted(self.policy):
            raise RunError(
                f"{self.label} was calibrated on weighted votes, and this run has no weights: "
                "begin it with controller.start(question)"
            )
        self._waiting.extend(responses)
        self._read.extend([self._task.read(response) for response in responses])
        if self._waiting and len(responses) == want:
            self.see(self.prefix.extend(self._waiting, self._weigh()))

    def see(self, prefix: Prefix) -> None:
        """Take the decision at the next checkpoint, whose prefix may have been prepared before."""
        self.prefix, self._waiting, self._read = prefix, [], []
        begun = time.perf_counter()
        decision = self.policy.decide(prefix)
        took = 1000 * (time.perf_counter() - begun)
        if not decision.stop and prefix.next_checkpoint is None:
            decision = decision.force("full budget")
        self.steps.append(Step(len(prefix), decision, took))
        if decision.stop:
            self.reason = decision.reason

    def end(self, reason: str, *, abstain: bool = False) -> None:
        """Stop from outside, for a limit that was hit; an unfinished block still votes.

        It abstains, and counts as spent all the same, where reading or weighing it has failed. A
        run that has stopped by itself keeps its own reason.
        """
        if self.reason is not None:
            return
        if self._waiting:
            silent = [Vote(None)] * len(self._waiting)
            votes = silent if abstain else self._weigh()
            self.prefix = self.prefix.extend(self._waiting, votes)
        self._waiting, self._read = [], []
        self.reason = reason

    def fail(self, error: AeraError, responses: Sequence[Response] = ()) -> None:
        """End a run that cannot go on, for responses that all failed or cannot be judged.

        What came before votes; what could not be read or weighed abstains.
        """
        self.error = error
        self._waiting.extend(responses)
        self._read.extend(Vote(None) for _ in responses)
        if isinstance(error, UpstreamError):
            self.end("upstream failed")
        else:
            self.end("failed", abstain=True)

    def cut_off(self, reason: str, late: Sequence[Response], votes: Sequence[Vote]) -> "Run":
        """What there is of it now, ended; whoever still reads in another thread is left alone."""
        same = copy(self)
        same.steps, same._waiting, same._read = [*self.steps], [], []
        same.prefix = self.prefix.extend(late, votes) if late else self.prefix
        same.end(reason)
        return same

    @property
    def allocation(self) -> Allocation:
        """What came out; only once the run has stopped."""
        if self.reason is None:
            raise RunError(
                f"question {self.prefix.question.id} is still running: it wants {self.want} "
                "more responses"
            )
        encoder = self.prefix.encoder_ms
        leaders = self._rule(self.prefix)
        unseen = self.error.calls if isinstance(self.error, UpstreamError) else 0
        winner = find_winner(self.prefix, leaders.answer)
        return Allocation(
            question_id=self.prefix.question.id,
            policy=self.label,
            leaders=leaders,
            checkpoint=self.steps[-1].checkpoint if self.steps else 0,
            responses=len(self.prefix),
            prompt_tokens=self.prefix.prompt_tokens,
            completion_tokens=self.prefix.completion_tokens,
            votes=dict(self.prefix.tally.weights),
            steps=tuple(self.steps),
            reason=self.reason,
            calls=sum(response.calls for response in self.prefix.responses) + unseen,
            encoder_ms=encoder,
            gate_ms=max(0.0, sum(step.milliseconds for step in self.steps) - encoder),
            error=None if self.error is None else str(self.error),
            readability=Readability.of(self.question.id, self.prefix.responses, self.prefix.votes),
            text=winner.text if winner else None,
            full_budget=rules.range_of(self.policy, self.prefix.schedule.last)[1],
            lacking=self._count_lacking(),
        )

    def _count_lacking(self) -> dict[str, int]:
        """Votes that brought less than the weigher needs, where it can tell."""
        weigher = TraceWeights() if self._confident else self._weigher
        count = getattr(weigher, "count_lacking", None)
        return dict(count(self.prefix.responses, self.prefix.votes)) if count else {}

    def _weigh(self) -> Sequence[Vote]:
        """The votes that wait behind the prefix, with their weights."""
        weigher, prefix = self._weigher, self.prefix
        if weigher is None:
            return self._read
        if not getattr(weigher, "looks_back", False):
            return [*weigher.weigh(self.question, self._waiting, self._read)]
        everything = prefix.extend(self._waiting, self._read)
        weighed = weigher.weigh(self.question, everything.responses, everything.votes)
        return [*weighed][len(prefix) :]


def replay(
    prefixes: Sequence[Prefix], policy: Policy, *, task: Reader, rule: Rule = plain_vote
) -> Run:
    """Show the prefixes of recorded responses to one policy until it stops; no truth is seen."""
    first = prefixes[0]
    run = Run(first.question, policy, task=task, schedule=first.schedule, rule=rule)
    for prefix in prefixes:
        run.see(prefix)
        if run.reason is not None:
            break
    return run
