"""Published rules against another implementation: scorio, which shares no code with ours."""

from math import ceil
from random import Random

import pytest
from scorio import aggregate

from aera import ASC, ESC, Question, Response, Schedule
from aera.core import Prefix, Vote
from aera.trace import TRACE_NAMES, UNKNOWN
from aera.voting.rules import CONFIDENT_SUREST as SUREST
from aera.voting.rules import FEWEST, SCALE, cisc_vote, deepconf_vote, plain_vote

PLACE = TRACE_NAMES.index("trace_confidence")
SEEDS = range(40)


def sampled(seed: int, most: int = 128) -> tuple[Prefix, list[str | None], list[float]]:
    """A prefix with its answers and how sure each response was."""
    rng = Random(seed)
    count, likely = rng.randrange(1, most), rng.choice(["AB", "AAB", "ABCDE", "AAAAAAB"])
    answers = [None if rng.random() < 0.1 else rng.choice(likely) for _ in range(count)]
    sureness = [round(rng.gauss(12, 3), 2) for _ in answers]
    traces = [(*UNKNOWN[:PLACE], sure, *UNKNOWN[PLACE + 1 :]) for sure in sureness]
    responses = [Response("", 1, trace=trace) for trace in traces]
    empty = Prefix(Question("q", "?"), Schedule((128,)))
    return empty.extend(responses, [Vote(answer) for answer in answers]), answers, sureness


@pytest.mark.parametrize("seed", SEEDS)
def test_votes_select_what_scorio_selects(seed: int) -> None:
    prefix, answers, sureness = sampled(seed)
    valid = sum(answer is not None for answer in answers)
    keep = min(valid, max(FEWEST, ceil(SUREST * valid)))
    assert plain_vote(prefix).answer == aggregate.majority_vote(answers)
    softmax = aggregate.softmax_weighted_vote(answers, sureness, temperature=SCALE)
    assert cisc_vote(prefix).answer == softmax
    if valid:
        assert deepconf_vote(prefix).answer == aggregate.filtered_vote(
            answers, sureness, keep=int(keep)
        )


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
def test_asc_stops_where_scorio_stops(seed: int, confidence: float) -> None:
    prefix, answers, _ = sampled(seed, most=24)
    if any(answer is not None for answer in answers):
        wanted = aggregate.adaptive_consistency_stop(answers, threshold=confidence)
        assert ASC(confidence).decide(prefix).stop == wanted


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("window", [2, 3, 5])
def test_esc_stops_where_scorio_stops(seed: int, window: int) -> None:
    prefix, answers, _ = sampled(seed, most=24)
    enough = len(answers) >= window
    assert ESC(window).decide(prefix).stop == (enough and aggregate.esc_stop(answers[-window:]))
