"""Question, Response, Prefix, Schedule and Tally."""

import math
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from commands import refusal
from hypothesis import given
from hypothesis import strategies as st

from aera import AeraError, Question, Response, Schedule, Tally, Vote, unfold
from aera.core import choice_order
from aera.errors import UsageError
from aera.files import whole_file, whole_folder

weights = st.floats(0.01, 3)
weighted = st.lists(st.builds(Vote, st.sampled_from("abc"), weight=weights), min_size=16)


def test_choices_are_shuffled_by_seed_and_id() -> None:
    question = Question("q1", "which?", ("w", "x", "y", "z"))
    assert question.arrange(3) == question.arrange(3)
    assert sorted(question.arrange(3).choices) == ["w", "x", "y", "z"]
    assert len({question.arrange(seed).choices for seed in range(200)}) == 24
    assert len({choice_order(f"q{i}", 4, seed=0) for i in range(200)}) == 24


@given(weighted)
def test_a_tally_built_block_by_block_equals_one_built_at_once(votes: list[Vote]) -> None:
    responses = [Response("", tokens=place) for place, _ in enumerate(votes)]
    for asked in (0, 1):  # what was asked earlier does not change what is answered later
        prefixes = [
            *unfold(Question("q", "?"), responses, votes=votes, schedule=Schedule((2, 5, 16)))
        ]
        assert all(prefix.tally.total > 0 for prefix in prefixes[:asked])
        last = prefixes[-1]
        assert [*last.tally.weights.items()] == [*Tally().add(votes[:16]).weights.items()]
        assert last.completion_tokens == sum(range(16))


schedules = st.sets(st.integers(1, 300), min_size=1).map(lambda s: Schedule(tuple(sorted(s))))


@pytest.mark.parametrize("points", [(), (0, 4), (4, 4), (8, 4), (-1,)])
def test_checkpoints_must_rise_from_one(points: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match="strictly increasing"):
        Schedule(points)


@pytest.mark.parametrize(
    ("text", "points"),
    [("4,8,16", (4, 8, 16)), (" 1, 2", (1, 2)), ("1-4", (1, 2, 3, 4)), ("7", (7,))],
)
def test_it_is_read_from_text(text: str, points: tuple[int, ...]) -> None:
    assert Schedule.parse(text).checkpoints == points
    assert Schedule.parse(str(Schedule(points))).checkpoints == points


@pytest.mark.parametrize("text", ["", "four", "4,,8", "1-2-3", "-5", "8-4", "4;8", "2.5"])
def test_text_that_is_no_schedule_is_refused_in_one_sentence(text: str) -> None:
    assert refusal(UsageError, Schedule.parse, text)


@given(schedules, st.integers(1, 400))
def test_a_shorter_pool_cuts_it_and_is_used_to_the_end(schedule: Schedule, responses: int) -> None:
    cut = schedule.upto(responses)
    assert cut.last == min(responses, schedule.last)
    assert set(cut) - {cut.last} == {c for c in schedule if c < cut.last}
    with pytest.raises(AeraError):
        schedule.upto(0)


def test_the_usual_checkpoints_double_to_the_end() -> None:
    assert Schedule.doubling(128) == Schedule()
    assert Schedule.doubling(256).checkpoints == (4, 8, 16, 32, 64, 128, 256)
    assert Schedule.doubling(80).checkpoints == (4, 8, 16, 32, 64, 80)
    assert Schedule.doubling(3).checkpoints == (3,)


streams = st.lists(st.sampled_from(["a", "b", "c", None]), max_size=40)


def tally_of(answers: list[str | None]) -> Tally:
    return Tally().add(Vote(answer) for answer in answers)


@given(streams)
def test_leaders_are_those_of_a_counter(answers: list[str | None]) -> None:
    counts = Counter(answer for answer in answers if answer).most_common()
    leaders = tally_of(answers).leaders
    top = [*counts, (None, 0), (None, 0)][:2]
    assert (leaders.answer, leaders.weight, leaders.runner_up) == (*top[0], top[1][1])
    assert leaders.tied == (len(counts) > 1 and counts[0][1] == counts[1][1])


@given(streams)
def test_shares_and_entropy_follow_their_formulas(answers: list[str | None]) -> None:
    tally, counts = tally_of(answers), sorted(Counter(a for a in answers if a).values())
    shares = [count / sum(counts) for count in counts]
    assert tally.majority == (max(shares) if shares else 0)
    second = shares[-2] if len(shares) > 1 else 0
    assert tally.gap == pytest.approx(tally.majority - second)
    bits = -sum(p * math.log(p) for p in shares)
    assert tally.entropy == pytest.approx(bits / math.log(len(shares)) if bits else 0)
    assert all(tally_of([str(i) for i in range(n)]).entropy <= 1 for n in range(2, 60))


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("fails", [False, True])
def test_what_is_written_appears_whole_or_leaves_nothing(tmp_path: Path, fails: bool) -> None:
    out = tmp_path / "out"
    with (
        suppress(InterruptedError),
        whole_folder(out / "folder") as folder,
        whole_file(out / "file") as file,
    ):
        (folder / "inside").touch()
        file.write_text("all")
        assert not {out / "folder", out / "file"} & {*out.iterdir()}
        if fails:
            raise InterruptedError
    made = sorted(path.name for path in out.rglob("*"))
    assert made == ([] if fails else ["file", "folder", "inside"])
