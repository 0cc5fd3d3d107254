"""Labels: names beside their points, where they cover no interval, no point and no other name."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import cos, pi, sin

LETTER = 6.4
"""Pixels that a letter takes at the size of the figures' text."""
LINE = 13
RADIUS = 5
EDGE = 2
"""Pixels that a label may stand outside of the chart, on any side."""
REACHES, DIRECTIONS = (28, 42, 60, 82, 108, 140), 16
"""Where a label stands at the end of a line: its lengths in pixels, and its directions."""


@dataclass(frozen=True)
class Spot:
    """A point of a chart in pixels, from the upper left."""

    name: str
    x: float
    y: float
    bar: tuple[float, float] | None = None
    """The upper and lower end of its interval, where that is drawn."""
    radius: float = RADIUS


@dataclass(frozen=True)
class Label:
    """Where a name stands, from its point; hidden where there is no room for it."""

    dx: float
    dy: float
    align: str
    shown: bool = True
    far: bool = False
    """Whether a line must lead to it."""


@dataclass(frozen=True)
class _Box:
    left: float
    top: float
    right: float
    bottom: float

    def holds(self, x: float, y: float) -> bool:
        return self.left < x < self.right and self.top < y < self.bottom

    def meets(self, other: "_Box") -> bool:
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )


def place_labels(spots: Sequence[Spot], *, width: float, height: float) -> list[Label]:
    """One label for each spot, the first ones first; what finds no room is hidden."""
    taken = [_around(spot) for spot in spots]
    taken += [bar_of(spot) for spot in spots if spot.bar is not None]
    names: list[_Box] = []
    found = []
    for spot in spots:
        label = _place(spot, taken, names, width=width, height=height)
        found.append(label)
        if label.shown:
            taken.append(box_of(spot, label))
            names.append(taken[-1])
    return found


def _place(
    spot: Spot, taken: Sequence[_Box], names: Sequence[_Box], *, width: float, height: float
) -> Label:
    if not spot.name:
        return Label(0.0, 0.0, "center", shown=False)
    for label in (*_places(spot.radius), *_far_places()):
        box = box_of(spot, label)
        inside = box.left >= -EDGE and box.right <= width + EDGE
        inside = inside and box.top >= -EDGE and box.bottom <= height + EDGE
        led = not label.far or not any(
            name.holds(*at) for name in names for at in _way(spot, label)
        )
        if inside and led and not any(box.meets(other) for other in taken):
            return label
    return Label(0.0, 0.0, "center", shown=False)


def _way(spot: Spot, label: Label) -> list[tuple[float, float]]:
    """Points along the line that leads to a far label."""
    return [(spot.x + label.dx * i / 12, spot.y + label.dy * i / 12) for i in range(1, 12)]


def _far_places() -> Iterator[Label]:
    """At the end of a line, as short as may be, rather sideways than upright."""
    for reach in REACHES:
        for step in range(DIRECTIONS):
            angle = 2 * pi * (step + 0.5) / DIRECTIONS
            dx, dy = reach * cos(angle), reach * sin(angle)
            yield Label(dx, dy, "left" if dx > 0 else "right", far=True)


def _places(radius: float) -> list[Label]:
    """Where a label may stand beside its point, the best places first."""
    near, across = radius + 4.0, radius + 9.0
    places = [(near, 0.0, "left"), (-near, 0.0, "right")]
    places += [(0.0, across, "center"), (0.0, -across, "center")]
    places += [(4.0, across, "left"), (4.0, -across, "left")]
    places += [(-4.0, across, "right"), (-4.0, -across, "right")]
    places += [(near, 10.0, "left"), (near, -10.0, "left")]
    places += [(-near, 10.0, "right"), (-near, -10.0, "right")]
    return [Label(*place) for place in places]


def box_of(spot: Spot, label: Label) -> _Box:
    wide = LETTER * len(spot.name) + 2
    x, y = spot.x + label.dx, spot.y + label.dy
    left = x - wide * {"left": 0.0, "center": 0.5, "right": 1.0}[label.align]
    return _Box(left, y - LINE / 2, left + wide, y + LINE / 2)


def _around(spot: Spot) -> _Box:
    reach = spot.radius
    return _Box(spot.x - reach, spot.y - reach, spot.x + reach, spot.y + reach)


def bar_of(spot: Spot) -> _Box:
    assert spot.bar is not None
    return _Box(spot.x - 1.5, spot.bar[0], spot.x + 1.5, spot.bar[1])
