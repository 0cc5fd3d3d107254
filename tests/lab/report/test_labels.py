"""Names beside points: none covers a point, an interval or another name."""

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from aera.lab.report.labels import Spot, bar_of, box_of, place_labels

WIDTH, HEIGHT = 600, 400
places = st.tuples(
    st.sampled_from(["4", "asc-0.95", "aera-calibrated", ""]),
    st.floats(20, WIDTH - 20),
    st.floats(20, HEIGHT - 20),
    st.booleans(),
)


@settings(max_examples=80, deadline=None)
@given(st.lists(places, min_size=1, max_size=25))
def test_names_cover_neither_each_other_nor_intervals(
    drawn: list[tuple[str, float, float, bool]],
) -> None:
    spots = [Spot(name, x, y, (y - 60, y + 60) if bar else None) for name, x, y, bar in drawn]
    labels = place_labels(spots, width=WIDTH, height=HEIGHT)
    shown = [box_of(spot, label) for spot, label in zip(spots, labels, strict=True) if label.shown]
    assert not any(one.meets(other) for one, other in combinations(shown, 2))
    bars = [bar_of(spot) for spot in spots if spot.bar]
    assert not any(box.meets(bar) for box in shown for bar in bars)
    assert all(box.left >= -3 and box.right <= WIDTH + 3 for box in shown)
    assert not any(label.shown for spot, label in zip(spots, labels, strict=True) if not spot.name)


def test_a_name_alone_stands_beside_its_point() -> None:
    [label] = place_labels([Spot("asc-0.95", 300, 200)], width=WIDTH, height=HEIGHT)
    assert (label.align, label.dy, label.far) == ("left", 0, False)


def test_points_in_a_crowd_get_lines_to_their_names() -> None:
    crowd = [Spot(f"policy-{i}", 300 + i, 200) for i in range(12)]
    labels = place_labels(crowd, width=WIDTH, height=HEIGHT)
    assert sum(label.shown for label in labels) >= 6
    assert any(label.far for label in labels)


def test_what_finds_no_room_is_hidden() -> None:
    crowd = [Spot("a-rather-long-name", 30 + i, 20) for i in range(9)]
    labels = place_labels(crowd, width=60, height=40)
    assert not all(label.shown for label in labels)
