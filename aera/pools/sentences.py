"""Sentences about a pool that was made, what counts in it and what does not."""

from collections.abc import Mapping
from itertools import islice

from aera.pools.manifest import Manifest

FEW = 3
"""Questions that are named of those that something is the matter with."""


def tell_pool(manifest: Manifest, where: object) -> list[str]:
    """How large a pool is, which questions do not count, and whether more responses could."""
    counts = f"{manifest.questions} questions, {manifest.responses:,} responses"
    lines = [f"{where}: {counts}, task {manifest.task.name}, checkpoints {manifest.schedule}"]
    if left_out := manifest.left_out:
        lines.append(f"left out: {name_few(left_out)}")
    if manifest.responses > manifest.questions * manifest.each:
        lines.append(
            f"some questions have more than the {manifest.each} responses that count; "
            "--responses raises it"
        )
    return lines


def name_few(reasons: Mapping[str, str]) -> str:
    """How many questions, and the first three by name, each with its reason."""
    few = [f"{name} ({why})" for name, why in islice(reasons.items(), FEW)]
    ending = ", …" if len(reasons) > FEW else ""
    count = f"{len(reasons):,} question{'s' * (len(reasons) > 1)}"
    return f"{count}: {', '.join(few)}{ending}"
