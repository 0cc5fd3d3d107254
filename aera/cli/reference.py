"""The commands `policies` and `tasks`: what may be named, and what each of them means."""

from rich import box
from rich.console import Console
from rich.table import Table


def policies() -> None:
    """List the policies that --policies and a gateway's requests may name."""
    from aera.policies.labels import DESCRIPTIONS, LIMITS

    table = _table("label", "stops", "from")
    for each in DESCRIPTIONS:
        table.add_row(each.label, each.meaning, each.source)
    console = Console()
    console.print(table)
    for limit, meaning in LIMITS.items():
        console.print(f"{limit}: {meaning}", highlight=False)


def tasks() -> None:
    """List the tasks that --task may name: how a question is asked and its answer read."""
    from aera.reading.presets import TASKS

    table = _table("name", "answers are", "read from")
    for task in TASKS.values():
        table.add_row(task.name, task.kind, task.describe())
    Console().print(table)


def _table(*names: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for place, name in enumerate(names):
        table.add_column(name, no_wrap=place == 0)
    return table
