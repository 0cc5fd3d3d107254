"""How requests with the same options are voted on: the controller they get, and their limits."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

from aera.errors import UsageError
from aera.gateway.ceilings import Ceilings
from aera.gateway.options import RequestOptions
from aera.policies.policy import Fixed, range_of
from aera.sampling.budget import Budget
from aera.solving.controller import Controller

PLANS_KEPT = 1_024
ALARMED = "the full budget, for audits say that early answers change too often"


@dataclass(frozen=True)
class Shape:
    """What a plan depends on beside the options."""

    greedy: bool = False
    """Whether the temperature is 0, so that all samples are the same."""
    choices: int = 1


@dataclass(frozen=True, eq=False)
class VotePlan:
    """How requests with the same options are voted on."""

    controller: Controller
    budget: Budget
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
        options, notes = self.ceilings.limit_options(asked)
        budget = Budget(tokens=options.max_tokens_total, seconds=options.deadline_s)
        chosen = self.controller
        if options.policy is not None:
            chosen = chosen.run_by(options.policy.strip())
        if options.threshold is not None:
            chosen = chosen.at(options.threshold)
        if shape.greedy:
            note = "temperature 0 gives one sample, nothing to vote on"
            return VotePlan(replace(chosen, policy=Fixed(1)), budget, (*notes, note))
        bounded, cut = self._bound(chosen, options, self._allowed(shape))
        if shape.choices > 1 and self._allowed(shape) < chosen.schedule.last:
            _, most = range_of(bounded.policy, bounded.schedule.last)
            cut = (*cut, f"each of {shape.choices} choices may take {most} samples here")
        return VotePlan(bounded, budget, (*notes, *cut))

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
        self, chosen: Controller, options: RequestOptions, allowed: int
    ) -> tuple[Controller, tuple[str, ...]]:
        """The controller within the request's and the operator's bounds, and what was cut."""
        fixed = chosen.policy if isinstance(chosen.policy, Fixed) else None
        if fixed is not None and fixed.responses > allowed:
            raise UsageError(f"{fixed} is above the {allowed} samples that a vote may take here")
        least = max(self.minimum or 0, options.min_samples or 0)
        most = min(allowed, options.max_samples or allowed)
        notes = []
        if options.max_samples is not None and options.max_samples > allowed:
            notes.append(f"max_samples was cut from {options.max_samples} to {allowed}")
        if fixed is not None and not least <= fixed.responses <= most:
            notes.append(f"{fixed} was held between {least} and {most} samples")
        return chosen.bounded(least or None, most), tuple(notes)


def on_full_budget(plan: VotePlan) -> VotePlan:
    """The same without stopping early."""
    _, most = range_of(plan.controller.policy, plan.controller.schedule.last)
    fixed = replace(plan.controller, policy=Fixed(most))
    return replace(plan, controller=fixed, notes=(*plan.notes, ALARMED))
