"""The worker of equivalence.py: math-verify in a process of its own, which may be killed.

Hears expressions and seconds, and says of one expression "tried", of two "same" or "different".
Where it falls silent, the expression hangs. It imports nothing of aera, ends with the process that
started it, and is run as a script.
"""

import math
import resource
import sys
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any

STARTING = 60.0
"""Seconds to load sympy."""
MEMORY = 2 << 30
"""Bytes after which a tower of powers gets no more."""


def bound(seconds: float) -> None:
    """Die of the next question where nobody is left to kill this process, and leave no core.

    What takes too much memory fails early, before it takes the machine's.
    """
    used = resource.getrusage(resource.RUSAGE_SELF)
    processor = math.ceil(used.ru_utime + used.ru_stime + seconds) + 1
    limits = {"RLIMIT_CPU": processor, "RLIMIT_AS": MEMORY, "RLIMIT_CORE": 0}
    for name, limit in limits.items():
        place = getattr(resource, name)
        with suppress(ValueError, OSError):  # not every system knows each
            resource.setrlimit(place, (limit, resource.getrlimit(place)[1]))


def parse(expression: str) -> list[Any]:
    """What math-verify makes of an expression, nothing where it fails."""
    library = import_module("math_verify")
    config = [library.LatexExtractionConfig()]
    try:
        return [*library.parse(f"${expression}$", extraction_config=config, parsing_timeout=None)]
    except Exception:  # noqa: BLE001 - sympy raises whatever it likes
        return []


@lru_cache(maxsize=4096)
def try_alone(expression: str) -> list[Any]:
    """The same, compared with a number once: what hangs there is the expression's own fault."""
    found = parse(expression)
    same(found, parse("1"))
    return found


def same(one: list[Any], other: list[Any]) -> bool:
    """Whether they are equal whichever is taken for the right one, for math-verify may differ."""
    verify = import_module("math_verify").verify
    try:
        orders = ((one, other), (other, one))
        return all(verify(*order, timeout_seconds=None) for order in orders)
    except Exception:  # noqa: BLE001 - as above, and MemoryError at the bound
        return False


def main() -> None:
    """Answer until nobody asks any more."""
    pipe = Connection(int(sys.argv[1]))
    bound(STARTING)
    try_alone("x+1")
    pipe.send("ready")
    with suppress(EOFError):
        while True:
            expressions, seconds = pipe.recv()
            bound(seconds)
            found = [try_alone(expression) for expression in expressions]
            alone = len(found) == 1
            pipe.send("tried" if alone else "same" if same(*found) else "different")


if __name__ == "__main__":
    main()
