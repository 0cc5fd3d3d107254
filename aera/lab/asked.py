"""What somebody asks for by name: policies by their labels, and the checkpoints to decide at."""

from collections.abc import Sequence
from dataclasses import dataclass

from aera.core import Schedule
from aera.errors import UsageError
from aera.paper.encoder import load_encoder
from aera.paper.features import Consensus
from aera.policies.gate import Gated
from aera.policies.rules import (
    GATED,
    Fixed,
    Maker,
    Policy,
    parse_policy,
    standard_policies,
    strip_weighted,
)
from aera.solving.controller import Controller
from aera.voting.rules import gives_weights


@dataclass(frozen=True)
class Asked:
    """Policies to replay, by the votes that they look at."""

    plain: tuple[Policy, ...]
    """On plain votes; on scores where there is a scorer."""
    own: tuple[Policy, ...] = ()
    """On a controller's votes, or with its gate."""


def ask_policies(
    labels: str | Sequence[Policy] | None,
    schedule: Schedule,
    *,
    controller: Controller | None = None,
    scored: bool = False,
    encoder: str | None = None,
) -> Asked:
    """The policies of a comma-separated list; without one the standard ones, or fixed budgets.

    Policies that are no labels stay as they are, on plain votes.
    """
    if labels is None:
        fixed = [Fixed(checkpoint) for checkpoint in schedule]
        return Asked((*(fixed if scored else standard_policies(schedule)),))
    if not isinstance(labels, str):
        return Asked((*labels,))
    named = [label.strip() for label in labels.split(",")]
    ours = [label for label in named if needs_controller(label)]
    rest = [label for label in named if label not in ours]
    own = tuple(_own_policy(label, controller, schedule) for label in ours)
    if scored:
        fixed_only = (_scored_policy(label, schedule) for label in rest if label != "oracle")
        return Asked((*fixed_only,), own)
    if not rest:
        return Asked((), own)
    plain = parse_policies(",".join(rest), schedule, encoder=encoder)
    return Asked((*plain,), own)


def parse_policies(labels: str, schedule: Schedule, *, encoder: str | None = None) -> list[Policy]:
    """The policies of a comma-separated list."""
    more: dict[str, Maker] = {
        "consensus": lambda setting: Consensus(load_encoder(encoder), float(setting))
    }
    # The oracle needs no policy: hindsight adds it wherever there are truths.
    named = [label.strip() for label in labels.split(",") if label.strip() != "oracle"]
    policies = [parse_policy(label, more) for label in named]
    for label, policy in zip(named, policies, strict=True):
        check_fixed(label, policy, schedule)
    return policies


def needs_controller(label: str) -> bool:
    """Whether a label is of a gate, or of a policy on weighted votes."""
    return label.startswith(GATED) or label != strip_weighted(label)


def gate_threshold(label: str) -> float:
    """The threshold of a gate's label."""
    try:
        return float(label.removeprefix(GATED))
    except ValueError:
        raise UsageError(
            f'a gate is named by its threshold, as aera-0.17, but got "{label}"'
        ) from None


def check_fixed(label: str, policy: Policy, schedule: Schedule) -> None:
    """Refuse a fixed budget at which nobody looks."""
    if isinstance(policy, Fixed) and policy.responses not in schedule.checkpoints:
        raise UsageError(f"{label} is no checkpoint of {schedule}; --schedule sets others")


def _own_policy(label: str, controller: Controller | None, schedule: Schedule) -> Policy:
    """A policy on a controller's votes, or its gate at another threshold."""
    if controller is None:
        if label.startswith(GATED):
            raise UsageError(f'"{label}" is a gate, and a gate belongs to a --controller')
        return parse_policy(label)  # says whose weights they are, and refuses
    if label.startswith(GATED):
        if controller.gate is None:
            raise UsageError(f'"{label}" needs a gate, and this controller has none')
        return Gated(controller.gate, gate_threshold(label))
    if not gives_weights(controller.weigher):
        raise UsageError(
            f'"{label}" is on weighted votes, and this controller has no weights; the policy '
            f'without them is "{strip_weighted(label)}"'
        )
    policy = parse_policy(strip_weighted(label))
    check_fixed(label, policy, schedule)
    return policy


def _scored_policy(label: str, schedule: Schedule) -> Policy:
    """A policy of best-of-n, where nothing is voted on."""
    if not label.startswith("fixed-"):
        raise UsageError(
            f'"{label}" counts votes, and best-of-n has none: a scorer goes with fixed-N, and '
            "with aera-T where a controller has a gate"
        )
    policy = parse_policy(label)
    check_fixed(label, policy, schedule)
    return policy


def choose_schedule(
    own: Schedule, asked: Schedule | str | None, *, most: int | None = None, recorded: int
) -> Schedule:
    """The checkpoints asked for, else the own ones; cut at the `most` responses to be used."""
    schedule = (Schedule.parse(asked) if isinstance(asked, str) else asked) or own
    if most is None:
        return schedule
    if not 1 <= most <= recorded:
        raise UsageError(
            f"--max-samples goes from 1 to {recorded}, the responses recorded for each question, "
            f"but got {most}"
        )
    return schedule.upto(most)
