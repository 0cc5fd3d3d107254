"""Progress: a bar on a terminal while long work goes on, nothing elsewhere."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from rich.console import Console
from rich.progress import track

Item = TypeVar("Item")


def show_progress(items: Sequence[Item], name: str, /) -> Iterable[Item]:
    """The same items, one after the other, with a bar on the terminal."""
    console = Console(stderr=True)
    return track(items, name, console=console, transient=True, disable=not console.is_terminal)
