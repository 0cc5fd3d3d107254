"""How requests with the same options are voted on: policy, schedule, weights and limits."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

from aera.errors import UsageError
from aera.gateway.ceilings import Ceilings
from aera.gateway.options import RequestOptions
from aera.gateway.stopping import ServedVote
from aera.policies.gate import Gated, Guarded
from aera.policies.labels import (
    ON_WEIGHTS,
    WEIGHTED,
    confident_rule,
    parse_policy,
    strip_weighted,
)
from aera.policies.policy import Bounded, Confident, Fixed, Policy, bounds_of
from aera.sampling.budget import Budget
from aera.schedule import Schedule
from aera.solving.controller import Controller
from aera.voting.best_of_n import gives_weights
from aera.voting.weigher import Weighting

PLANS_KEPT = 1_024
EVALUATED = {
    "oracle": "it knows the right answers, which no live question has",
    "matched-random": "it shuffles the stops of other questions",
    "eb": "it learns from the recorded answers of other questions",
    "consensus": "it compares all pairs of recorded responses",
    "one-shot": "it is trained and judged on recorded responses",
}
"""Labels that `aera evaluate` prints and nobody can be served by, and why."""
ALARMED = "the full budget, for audits say that early answers change too often"


@dataclass(frozen=True)
class Shape:
    """What a plan depends on beside the options."""

    greedy: bool = False
    """Whether the temperature is 0, so that all samples are the same."""
    choices: int = 1
    free: bool = False
    """Whether tool calls or JSON are voted on."""


@dataclass(frozen=True, eq=False)
class VotePlan:
    """How requests with the same options are voted on."""

    policy: Policy
    schedule: Schedule
    budget: Budget
    weigher: Weighting | None = None
    notes: tuple[str, ...] = ()
    abroad: bool = False
    """Whether plain votes stand in for a controller that is not at home."""


@dataclass(frozen=True, eq=False)
class Planner:
    """Makes plans, within the operator's ceilings."""

    controller: Controller
    ceilings: Ceilings = field(default_factory=Ceilings)
    minimum: int | None = None
    """Samples below which nobody is answered, whatever a request asks for."""

    @cached_property
    def plan(self) -> Callable[[RequestOptions, Shape], VotePlan]:
        """The plan for some options; the same ones come often."""
        return lru_cache(PLANS_KEPT)(self._make)

    def _make(self, asked: RequestOptions, shape: Shape) -> VotePlan:
        options, cut = self.ceilings.limit_options(asked)
        budget = Budget(tokens=options.max_tokens_total, seconds=options.deadline_s)
        policy, weigher = self._choose(options)
        if shape.greedy:
            note = "temperature 0 gives one sample, nothing to vote on"
            served = ServedVote(Fixed(1), most=1, fixed=True)
            return VotePlan(served, Schedule((1,)), budget, weigher, (*cut, note))
        bounded, notes = self._bound(policy, options, self._allowed(shape))
        least, most = bounds_of(bounded, self.controller.schedule.last)
        fixed = isinstance(policy, Fixed)
        if isinstance(policy, Fixed):  # nothing to decide on the way: one block, one prompt
            schedule = Schedule((max(least, min(policy.responses, most)),))
        else:
            schedule = _add_bounds(self.controller.schedule, least, most)
        if shape.choices > 1 and self._allowed(shape) < self.controller.schedule.last:
            notes = (*notes, f"each of {shape.choices} choices may take {most} samples here")
        inner = _inner(policy)
        served = ServedVote(
            bounded,
            most=min(most, schedule.last),
            least=least,
            free=shape.free,
            by_counting=weigher is None and not isinstance(inner, Guarded | Confident),
            fixed=fixed,
        )
        return VotePlan(served, schedule, budget, weigher, (*cut, *notes))

    def _allowed(self, shape: Shape) -> int:
        """Samples that one vote may take."""
        shared = self.ceilings.samples // shape.choices
        if shared < 1:
            raise UsageError(
                f'"n" of {shape.choices} needs more than the {self.ceilings.samples} samples that '
                "a request may take here"
            )
        return min(self.controller.schedule.last, shared)

    def _bound(
        self, policy: Policy, options: RequestOptions, allowed: int
    ) -> tuple[Bounded, tuple[str, ...]]:
        """The policy within the request's and the operator's bounds, and what was not granted."""
        if isinstance(policy, Fixed) and policy.responses > allowed:
            raise UsageError(f"{policy} is above the {allowed} samples that a vote may take here")
        least = max(self.minimum or 0, options.min_samples or 0)
        most = min(allowed, options.max_samples or allowed)
        # A maximum that the schedule does not reach is none: its end is the full budget.
        maximum = most if most < self.controller.schedule.last else None
        own_least, own_most = bounds_of(policy, most)
        if max(least, own_least) > min(most, own_most):
            raise UsageError(
                f"the minimum of {max(least, own_least)} samples is above the maximum of "
                f"{min(most, own_most)}"
            )
        notes = []
        if options.max_samples is not None and options.max_samples > allowed:
            notes.append(f"max_samples was cut from {options.max_samples} to {allowed}")
        if isinstance(policy, Fixed) and not least <= policy.responses <= most:
            notes.append(f"{policy} was held between {least} and {most} samples")
        return Bounded(policy, minimum=least or None, maximum=maximum), tuple(notes)

    def _choose(self, options: RequestOptions) -> tuple[Policy, Weighting | None]:
        """The policy and its weights: the controller's, unless the request names others."""
        gate = self.controller.gate
        policy, weigher = self._named(options.policy)
        inner = _inner(policy)
        if isinstance(inner, Gated):
            guarded = Guarded(inner)
            policy = replace(policy, policy=guarded) if isinstance(policy, Bounded) else guarded
        if options.threshold is None:
            return policy, weigher
        if gate is None or (options.policy and not isinstance(policy, Guarded)):
            raise UsageError('"aera.threshold" needs a controller with a gate, and its policy')
        return Guarded(Gated(gate, options.threshold)), self.controller.weigher

    def _named(self, label: str | None) -> tuple[Policy, Weighting | None]:
        """The policy behind a label that `aera evaluate` prints; None is the controller's own."""
        own, gate = self.controller, self.controller.gate
        if label is None:
            return own.policy, own.weigher
        label = label.strip()
        kind = "one-shot" if label == "one-shot" else label.split("+")[0].partition("-")[0]
        reason = EVALUATED.get(label.split("+")[0], EVALUATED.get(kind))
        if reason is not None:
            raise UsageError(f'"{label:.40}" is for aera evaluate only: {reason}')
        if kind == "aera":
            if gate is None:
                raise UsageError(f'"{label:.40}" needs a controller with a gate (--controller)')
            made = parse_policy(label, {"aera": lambda value: Guarded(Gated(gate, float(value)))})
            return made, own.weigher
        if label.startswith(WEIGHTED) or label.endswith(ON_WEIGHTS):
            if not gives_weights(own.weigher):
                raise UsageError(
                    f'"{label:.40}" is on weighted votes, and no controller here has weights; '
                    f'on plain votes it is "{strip_weighted(label):.40}"'
                )
            return parse_policy(strip_weighted(label)), own.weigher
        policy = parse_policy(label)
        if confident_rule(policy) is not None and "top_logprobs" not in own.asks:
            raise UsageError(
                f'"{label:.40}" needs top_logprobs, which are asked for with --weights traces'
            )
        # A scorer is no weight: what it scores is voted on under every label.
        return policy, None if gives_weights(own.weigher) else own.weigher


def on_full_budget(plan: VotePlan) -> VotePlan:
    """The same without stopping early."""
    served = plan.policy
    if not isinstance(served, ServedVote) or served.fixed:
        return plan
    fixed = replace(served, policy=Fixed(served.most), fixed=True)
    schedule = Schedule((served.most,))  # nothing to decide on the way: one block, one prompt
    return replace(plan, policy=fixed, schedule=schedule, notes=(*plan.notes, ALARMED))


def _inner(policy: Policy) -> Policy:
    """A policy without the limits around it."""
    return policy.policy if isinstance(policy, Bounded) else policy


def _add_bounds(schedule: Schedule, least: int, most: int) -> Schedule:
    """The schedule with checkpoints at the minimum and at the maximum, so that both hold exactly.

    Later checkpoints stay, though none is reached: a gate knows how far the full budget is.
    """
    return Schedule(tuple(sorted({*schedule, most, *([least] if least else [])})))
