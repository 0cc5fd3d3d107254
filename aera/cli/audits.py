"""The commands about audits: `aera audits` reads a log, `aera forget` removes recorded ones."""

import json
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from aera.cli.options import say
from aera.errors import UsageError

LogArgument = Annotated[Path, typer.Argument(help="Log of aera serve, a JSON line each.")]


def audits(log: LogArgument) -> None:
    """Show what the audits in a gateway's log say, a line for each policy that was served."""
    try:
        with log.open(encoding="utf-8", errors="replace") as lines:
            found = read_sequences(lines)
    except OSError as error:
        raise UsageError(f'"{log}" cannot be read: {error.strerror}') from None
    if not found:
        raise UsageError(
            f'"{log}" has no audits: start aera serve with --audit-share and --log-level info'
        )
    for sequence in found:
        say(str(sequence))


def forget(
    pool: Annotated[Path, typer.Argument(help="Folder of aera serve --record.")],
    id_: Annotated[
        list[str] | None,
        typer.Option("--id", help="Id of a reply or of its request; repeatable."),
    ] = None,
    older: Annotated[
        float | None, typer.Option(help="Days: whatever was recorded before.", min=0)
    ] = None,
) -> None:
    """Remove recorded audits, by id or by age."""
    from aera.pools.recorded import AuditFolder, is_recorded

    if not id_ and older is None:
        raise UsageError("say what is to be forgotten: --id or --older")
    if not is_recorded(pool):
        raise UsageError(f'"{pool}" holds no recorded audits')
    before = None if older is None else time.time() - older * 86_400
    gone, kept = AuditFolder(pool).forget(frozenset(id_ or ()), before)
    say(f"{pool}: {gone:,} audits removed, {kept:,} kept")


@dataclass
class Sequence:
    """The audits of one policy in one process."""

    first: dict[str, Any]
    outcomes: Counter[str] = field(default_factory=Counter)
    tokens: int = 0
    alarm: str = ""
    """When there was one."""

    def add(self, line: dict[str, Any]) -> None:
        """One more line."""
        self.outcomes[str(line["outcome"])] += 1
        self.tokens += int(line.get("tokens", 0))

    def __str__(self) -> str:
        from aera.gateway.audit import CANCELLED, SAME, interval

        cancelled = self.outcomes[CANCELLED]
        count = self.outcomes.total() - cancelled
        changed = count - self.outcomes[SAME]
        low, high = interval(changed, count)
        first = self.first
        return (
            f'"{first.get("model")}", policy {first.get("policy")}, since {first.get("time")}: '
            f"{count:,} audits, {changed:,} changed ({low:.2%} to {high:.2%}, 95 % at any time); "
            f"{self.tokens:,} tokens; "
            f"{cancelled:,} cancelled; {f'alarm at {self.alarm}' if self.alarm else 'no alarm'}"
        )


def read_sequences(lines: Iterable[str]) -> list[Sequence]:
    """The sequences of a log in the order in which they began; other lines are passed over."""
    from aera.gateway.audit import ALARM, EVENT

    found: dict[Any, Sequence] = {}
    for text in lines:
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if not isinstance(line, dict) or line.get("event") not in (EVENT, ALARM):
            continue
        sequence = found.setdefault(line.get("sequence"), Sequence(line))
        if line["event"] == ALARM:
            sequence.alarm = str(line.get("time"))
        elif "outcome" in line:
            sequence.add(line)
    return list(found.values())
