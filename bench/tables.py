"""Tables that the benches print."""

from collections.abc import Sequence


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """As Markdown, ready for LOG.md."""
    for row in (head, ["---:"] * len(head), *rows):
        print(f"| {' | '.join(row)} |")
    print()
