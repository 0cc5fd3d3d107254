"""The command `label`: a small file of the questions where a right answer would decide most."""

from pathlib import Path
from typing import Annotated

import typer

from aera.cli.endpoint import load_controller
from aera.cli.options import EquivalenceOption, PoolArgument, say
from aera.errors import check_count

OutOption = Annotated[Path, typer.Option(help="The table to fill in, as labels.csv.")]
ControllerOption = Annotated[
    Path | None, typer.Option(help="Compare this controller and its weights with plain votes.")
]
PoliciesOption = Annotated[
    str, typer.Option(help="Policies by label that are compared with the full budget.")
]
CountOption = Annotated[int, typer.Option("--questions", help="Most questions to list.")]


def label(
    pool: PoolArgument,
    out: OutOption,
    controller: ControllerOption = None,
    policies: PoliciesOption = "asc-0.95",
    questions: CountOption = 50,
    equivalence: EquivalenceOption = False,
) -> None:
    """List the questions where a right answer would decide most, as a table to fill in.

    Those are the ones on which plain and weighted votes, or two policies, answer differently.
    """
    from aera.lab.judging.labelling import find_candidates, usual_ways, write_labels
    from aera.policies.labels import parse_policy
    from aera.pools.open import open_pool

    check_count("--questions", questions)
    loaded = load_controller(controller, equivalence=equivalence) if controller else None
    records = open_pool(pool, equivalence=loaded.task.equivalence if loaded else equivalence)
    stated = [parse_policy(each) for each in policies.split(",")]
    ways = usual_ways(
        records.schedule,
        [loaded.policy, *stated] if loaded else stated,
        loaded.weigher if loaded else None,
    )
    found = find_candidates(records, ways)
    total = len(records.questions)
    if not found:
        say(f"all {total:,} questions are answered alike; no label would decide anything")
        return
    kept = found[:questions]
    write_labels(out, kept)
    by_chance = len(kept) * len(found) / total
    say(
        f"{out}: {len(kept):,} of the {len(found):,} questions, of {total:,}, that are answered "
        f"differently; {len(kept):,} drawn by chance would hold {by_chance:.1f} of them"
    )
    say("fill in the column answer; a question that you cannot decide stays empty")
