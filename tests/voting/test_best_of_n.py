"""Best-of-n: the best response so far is what is returned, in replay and live."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from live import gathered
from streams import record_of

from aera import BestOfN, Budget, Controller, Fixed, Lead, RecordedSampler, Run, get_task, solve
from aera.core import Prefix, Question, Response, Schedule, Vote
from aera.errors import UsageError
from aera.pools.pool import Plan, Pool, write_pool
from aera.voting.rules import load_scorer
from aera.voting.traits import traits
from aera.voting.weigher import ChanceRight

QUESTION = Question("q", "how good?")
SCHEDULE = Schedule((2, 4, 8))
BUNDLED = Path(__file__).parents[2] / "aera" / "demo" / "controller"


@dataclass(frozen=True)
class Length:
    """Long texts are good."""

    def score(self, question: Question, responses: Sequence[Response]) -> list[float]:
        return [len(response.text) / 10 for response in responses]


def by_table(scores: Mapping[str, float]) -> BestOfN:
    """Texts have known scores."""
    told = SimpleNamespace(score=lambda question, said: [scores[each.text] for each in said])
    return BestOfN(told)


def replies(*texts: str) -> list[Response]:
    return [Response(text, tokens=5) for text in texts]


# --- what is returned -----------------------------------------------------------------------------

scored = st.lists(st.tuples(st.sampled_from("abcdef"), st.booleans()), min_size=8, max_size=8)
tables = st.fixed_dictionaries({name: st.sampled_from([0.0, 0.2, 0.5, 3.0]) for name in "abcdef"})


@given(said=scored, scores=tables)
def test_the_first_of_the_highest_scored_responses_leads_at_every_checkpoint(
    said: list[tuple[str, bool]], scores: dict[str, float]
) -> None:
    responses = [Response(text, error="lost" if failed else None) for text, failed in said]
    scale, task = by_table(scores), get_task("numeric")
    run = Run(QUESTION, Fixed(8), task=task, schedule=SCHEDULE, weigher=scale)
    while run.want:
        run.feed(responses[run.delivered : run.delivered + run.want])
    prefix: Prefix | None = run.prefix
    while prefix is not None:
        good = [r.text for r in prefix.responses if r.error is None]
        best = max(good, key=scores.__getitem__, default=None)
        leaders = prefix.tally.leaders
        assert (leaders.answer, leaders.weight) == (best, scores[best] if best else 0.0)
        prefix = prefix.previous


def test_what_failed_is_blank_or_unscored_abstains() -> None:
    responses = [Response("lost", error="broke off"), *replies("  \n", "dull"), Response("")]
    scale = by_table({"dull": nan})
    votes = scale.weigh(QUESTION, responses, [Vote("7")] * 4)
    assert [vote.answer for vote in votes] == [None] * 4


# --- a weigher as a reward model ------------------------------------------------------------------


def test_a_weigher_scores_what_can_be_read_by_its_chance_of_being_right() -> None:
    weigher, task = Controller.load(BUNDLED).weigher, get_task("gsm8k")
    responses = replies("6 * 7 = 42, so \\boxed{42}", "no idea", "6 * 7 = 48, so \\boxed{48}")
    votes = [task.read(response) for response in responses]
    right, none, wrong = ChanceRight(weigher, task).score(QUESTION, responses)
    chances = weigher.weights(traits(QUESTION, responses, votes))
    assert (right, none, wrong) == (chances[0], 0.0, chances[2])


# --- in a controller ------------------------------------------------------------------------------


def controller_of(scale: BestOfN | None, policy: Any = None) -> Controller:
    return Controller(get_task("numeric"), SCHEDULE, policy or Fixed(8), weigher=scale)


def test_a_saved_controller_gets_its_scorer_back(tmp_path: Path) -> None:
    made = controller_of(BestOfN(Length()))
    made.save(tmp_path / "c")
    again = Controller.load(tmp_path / "c", scorer=Length())
    assert again.weigher == made.weigher
    assert again.asks == {}
    assert again.pace == "works"
    run = again.start(QUESTION)
    run.feed(replies(*"abcdefg", "long"))
    assert run.allocation.answer == "long"


# --- by name --------------------------------------------------------------------------------------


def judge() -> Length:
    return Length()


strict = Length()


def test_a_scorer_is_found_by_the_name_of_itself_or_of_what_makes_it() -> None:
    for name in ("Length", "strict", "judge"):
        scorer = load_scorer(f"{__name__}:{name}")
        assert scorer.score(QUESTION, replies("a", "ab")) == [0.1, 0.2]
    for named, said in (
        ("judges", 'named as MODULE:NAME, but got "judges"'),
        ("math:pi", '"math:pi" is no scorer: it has no method score'),
        ("builtins:dict", '"builtins:dict" is no scorer'),
        ("math:sqrt", "makes no scorer: TypeError"),
        ("os:abort_", 'the module "os" has no "abort_"'),
    ):
        with pytest.raises(UsageError, match=rf"\A.*{said}.*\Z"):
            load_scorer(named)


# --- in a controller, live ------------------------------------------------------------------------


def test_an_unfinished_block_is_scored_off_the_event_loop_too(pool: Pool) -> None:
    class Patient:
        def score(self, question: Question, responses: Sequence[Response]) -> list[float]:
            with pytest.raises(RuntimeError):
                asyncio.get_running_loop()
            return [1.0] * len(responses)

    question, budget = next(iter(pool.questions.values())), Budget(responses=3)
    controller = controller_of(BestOfN(Patient()), Lead(9))
    made = asyncio.run(solve(question, RecordedSampler(pool), controller, budget=budget))
    assert (made.responses, made.reason, made.error) == (3, "limit: responses", None)


@pytest.fixture
def pool(tmp_path: Path) -> Pool:
    records = [record_of(f"q{n}", "1" * 8) for n in range(1, 7)]
    return write_pool(tmp_path, records, Plan(get_task("numeric")))


@pytest.mark.parametrize(
    ("scores", "said"),
    [
        ([-1.0] * 4, "a score is 0 or more and finite, but Moody gave -1"),
        ([float("inf")] * 4, "Moody gave inf"),
        ([1.0], "Moody gave 1 scores for 4 responses"),
        (None, "Moody failed: TypeError"),
        (OSError("gone"), "Moody failed: OSError: gone"),
    ],
)
def test_a_bad_score_is_the_failure_of_one_question(pool: Pool, scores: Any, said: str) -> None:
    class Moody:
        def score(self, question: Question, responses: Sequence[Response]) -> list[float]:
            bad = question.id == "q2" and len(responses) == 4
            if bad and isinstance(scores, Exception):
                raise scores
            return scores if bad else [1.0] * len(responses)

    controller = controller_of(BestOfN(Moody()), Lead(9))
    for shared in (False, True):
        known: Any = {"budget": Budget(tokens=10_000), "shared": shared}
        work = gathered(pool.questions.values(), RecordedSampler(pool), controller, **known)
        done = asyncio.run(work)
        [bad] = [made for made in done if made.error is not None]
        assert (bad.question_id, bad.reason, len(done)) == ("q2", "failed", 6)
        assert said in str(bad.error)
        assert bad.responses == 8, "what was paid for is counted"
        assert bad.answer is not None, "and earlier blocks still answer"
