"""What somebody asks for by name: policies by their labels, and the checkpoints to decide at."""

from collections.abc import Mapping, Sequence

from aera.core import Schedule
from aera.errors import UsageError, check_share
from aera.paper.encoder import load_encoder
from aera.paper.features import Consensus
from aera.policies.rules import (
    FIXED,
    GATED,
    Fixed,
    Maker,
    Policy,
    check_runs_live,
    parse_policy,
    standard_policies,
    strip_weighted,
)
from aera.solving.controller import Controller


def ask_policies(
    asked: str | Sequence[Policy] | None,
    schedule: Schedule,
    *,
    controller: Controller | None = None,
    scored: bool = False,
    encoder: str | None = None,
) -> tuple[list[Policy], list[Policy]]:
    """Policies to replay on plain votes or scores, and on a controller's votes or with its gate.

    They are those of a comma-separated list; without one the standard ones, or fixed budgets.
    Policies that are no labels stay as they are, on plain votes.
    """
    if asked is None:
        return [*map(Fixed, schedule)] if scored else [*standard_policies(schedule)], []
    if not isinstance(asked, str):
        return [*asked], []
    plain, own = list[Policy](), list[Policy]()
    more = {"consensus": lambda setting: Consensus(load_encoder(encoder), float(setting))}
    for label in map(str.strip, asked.split(",")):
        if needs_controller(label):
            own.append(_own_policy(label, controller, schedule))
        elif label == "oracle":
            continue  # it needs no policy: hindsight adds it wherever there are truths
        elif scored and not label.startswith(FIXED):
            raise UsageError(
                f'"{label}" counts votes, and best-of-n has none: a scorer goes with fixed-N, and '
                "with aera-T where a controller has a gate"
            )
        else:
            plain.append(_parse(label, schedule, more))
    return plain, own


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


def check_label(label: str, schedule: Schedule, *, scored: bool, paper: bool) -> None:
    """Refuse what no controller can run, before anything is learned."""
    check_runs_live(label)
    if label.startswith(GATED):
        check_share("aera", gate_threshold(label))
    elif scored and not label.startswith(FIXED):
        raise UsageError(
            f'--policy "{label}" counts votes, and best-of-n has none: a scorer goes with fixed-N '
            "and aera-T"
        )
    elif paper and needs_controller(label):
        raise UsageError(f'--policy "{label}" needs learned weights, and --paper learns none')
    else:
        _parse(label, schedule)


def _parse(label: str, schedule: Schedule, more: Mapping[str, Maker] | None = None) -> Policy:
    """The policy of a label, weighted or not; a fixed budget at which nobody looks is refused."""
    return _looked_at(parse_policy(strip_weighted(label), more or {}), schedule, label)


def _looked_at(policy: Policy, schedule: Schedule, label: str) -> Policy:
    if isinstance(policy, Fixed) and policy.responses not in schedule.checkpoints:
        raise UsageError(f"{label} is no checkpoint of {schedule}; --schedule sets others")
    return policy


def _own_policy(label: str, controller: Controller | None, schedule: Schedule) -> Policy:
    """A policy on a controller's votes, or its gate at another threshold."""
    if controller is not None:
        return _looked_at(controller.run_by(label).policy, schedule, label)
    if label.startswith(GATED):
        raise UsageError(f'"{label}" is a gate, and a gate belongs to a --controller')
    return parse_policy(label)  # says whose weights they are, and refuses


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
