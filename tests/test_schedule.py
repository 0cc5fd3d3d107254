import pytest
from hypothesis import given
from hypothesis import strategies as st

from aera import AeraError, Schedule
from aera.errors import UsageError

schedules = st.sets(st.integers(1, 300), min_size=1).map(lambda s: Schedule(tuple(sorted(s))))


def test_the_default_is_the_papers() -> None:
    assert tuple(Schedule()) == (4, 8, 16, 32, 64, 128)
    assert (Schedule().first, Schedule().last, len(Schedule())) == (4, 128, 6)


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


@pytest.mark.parametrize("text", ["", "four", "4,,8", "1-2-3", "-5", "8-4", "4;8", "2.5"])
def test_text_that_is_no_schedule_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        Schedule.parse(text)
    assert "\n" not in str(caught.value)


@given(schedules)
def test_its_text_reads_back(schedule: Schedule) -> None:
    assert Schedule.parse(str(schedule)) == schedule


@given(schedules, st.integers(0, 400))
def test_after_is_the_first_checkpoint_beyond(schedule: Schedule, count: int) -> None:
    later = [c for c in schedule if c > count]
    assert schedule.after(count) == (later[0] if later else None)


@given(schedules, st.integers(1, 400))
def test_a_shorter_pool_cuts_it_but_keeps_its_whole_length_in_use(
    schedule: Schedule, responses: int
) -> None:
    cut = schedule.upto(responses)
    assert cut.last == min(responses, schedule.last)
    assert set(cut) - {cut.last} == {c for c in schedule if c < cut.last}


def test_it_cannot_be_cut_to_nothing() -> None:
    with pytest.raises(AeraError):
        Schedule().upto(0)


def test_a_range_means_after_each_response() -> None:
    assert Schedule.parse("1-5").checkpoints == (1, 2, 3, 4, 5)


def test_the_usual_checkpoints_double_to_the_end() -> None:
    assert Schedule.doubling(128) == Schedule()
    assert Schedule.doubling(256).checkpoints == (4, 8, 16, 32, 64, 128, 256)
    assert Schedule.doubling(80).checkpoints == (4, 8, 16, 32, 64, 80)
    assert Schedule.doubling(3).checkpoints == (3,)
