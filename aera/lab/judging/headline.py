"""Headline: what an evaluation shows, in words, and how far that reaches.

One value for everybody: the terminal, the JSON file and the page show its sentences as they are,
and a model card has its certificate from the same place.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from aera.lab.calibrating.families import GATE_FAMILY
from aera.lab.judging.certified import certify_choices, certify_controller
from aera.lab.judging.difference import FEW, Gap, Spent, paired_gap, spent_share
from aera.lab.replay.frontier import Frontier, Kind, Point

DEFAULT = "asc-0.95"
"""Shown where nothing was learned: what the gateway does without a controller."""
SHOWN_THRESHOLD = 0.3
"""The threshold whose diagnostics are shown, as in the paper."""


@dataclass(frozen=True)
class Beside:
    """A fixed budget of plain votes, to compare the policy with."""

    reference: str
    accuracy: float
    responses: float
    gap: Gap
    """The policy against it."""
    full: bool
    """Whether it is as large as the policy's own."""

    @property
    def sentence(self) -> str:
        """The difference with its interval."""
        return f"Against {self.reference}, plain votes: {self.accuracy:.2f} %; {_told(self.gap)}."


@dataclass(frozen=True)
class Headline:
    """One policy, named before its result was seen, against the full budget it was promised on."""

    policy: str
    reference: str
    """Its own full budget: weighted where its votes are."""
    claim: str
    grounds: str
    """The figures behind the claim."""
    status: str
    """Whether these questions test the policy or only describe it."""
    certified: bool
    certificate: str
    """Certified how, or why not."""
    spent: Spent
    """Its share of the full budget's tokens, or of the responses where tokens are not known."""
    gap: Gap | None = None
    """None without truths, and on questions it was trained on."""
    beside: tuple[Beside, ...] = ()
    """Fixed budgets of plain votes; none where there is no gap."""
    changed: Gap | None = None
    """Answers that are not those of the full budget, where that was what was allowed."""

    @property
    def lines(self) -> list[str]:
        """Everything it says, one sentence each."""
        told = [f"{self.claim} ({self.status}).", self.grounds]
        told += [] if self.changed is None else [_tell_changed(self.changed, self.reference)]
        return [*told, *(each.sentence for each in self.beside if each.full), self.certificate]

    def as_json(self) -> dict[str, Any]:
        """As an evaluation file holds it."""
        return {**asdict(self), "beside": [*map(asdict, self.beside)], "lines": self.lines}


def headline_point(frontier: Frontier) -> Point:
    """The policy to speak of: calibrated, deployed or the default, never the best one seen."""
    points = frontier.points
    for kind in (Kind.CALIBRATED, Kind.CONTROLLER):
        chosen = [point for point in points if point.kind is kind]
        if chosen:
            return chosen[0]
    known = {point.policy: point for point in points}
    for label in (GATE_FAMILY.label(SHOWN_THRESHOLD), DEFAULT):
        if label in known:
            return known[label]
    plain = (Kind.FIXED, Kind.HINDSIGHT)
    return next((point for point in points if point.kind not in plain), points[0])


def make_headline(
    frontier: Frontier,
    *,
    protocol: str,
    task: str,
    sections: Mapping[str, Any],
    max_loss: float,
) -> Headline:
    """`sections` are what a protocol or a controller has to say; `max_loss` where they do not."""
    point = headline_point(frontier)
    full = frontier.full_budget(weighted=point.weighted)
    spent = _spent(point, full)
    certified, certificate = _certificate(protocol, task, sections, graded=point.graded)
    tested = point.graded and not point.in_sample
    agreed = any(choice.get("by_agreement") for choice in _choices(sections))
    gap = paired_gap(point.scores, full.scores) if tested else None
    unit = "tokens" if full.tokens else "responses"
    price = f"{spent.percent:.0f} % of the {unit}"
    return Headline(
        policy=point.policy,
        reference=full.policy,
        claim=_claim(point, full, gap, price=price, allowed=100 * _allowed(sections, max_loss)),
        grounds=_grounds(point, full, gap, spent, unit),
        status=_status(point),
        certified=certified,
        certificate=certificate,
        spent=spent,
        gap=gap,
        beside=_beside(point, frontier) if tested else (),
        changed=changed_gap(point) if agreed and point.kind is Kind.CALIBRATED else None,
    )


def changed_gap(point: Point) -> Gap:
    """How many answers are not those of the full budget; every one of them counts as worse."""
    gap = paired_gap(point.agreements, np.ones_like(point.agreements))
    return replace(gap, high=min(0.0, gap.high))  # nothing agrees more than it agrees with itself


def _tell_changed(changed: Gap, reference: str) -> str:
    share = f"{abs(changed.difference):.2f} %, 95 % [{abs(changed.high):.2f}, {-changed.low:.2f}]"
    return f"{changed.worse} of {changed.questions} answers differ from {reference}'s: {share}."


def _status(point: Point) -> str:
    if not point.graded and point.kind is Kind.CALIBRATED:
        return "on questions kept apart, without truths"
    if not point.graded:
        return "dry run"
    if point.kind is Kind.CONTROLLER:
        return "in-sample" if point.in_sample else "a test on unseen questions"
    return "a test on questions kept apart" if point.kind is Kind.CALIBRATED else "descriptive"


def _allowed(sections: Mapping[str, Any], otherwise: float) -> float:
    """The loss that calibration allowed, as a fraction."""
    choices = _choices(sections)
    known = choices[0] if choices else sections.get("controller", {}).get("calibration", {})
    found = known.get("max_loss")
    return otherwise if found is None else float(found)


def _choices(sections: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """What calibration chose for the headline's policy, once per fold."""
    own: Sequence[Mapping[str, Any]] = next(iter(sections.get("calibration", {}).values()), ())
    return own


def _spent(point: Point, full: Point) -> Spent:
    """In tokens; in responses where the pool does not know its tokens."""
    if full.tokens:
        return spent_share(point.spent, full.spent)
    return spent_share(point.counts, full.counts)


def _beside(point: Point, frontier: Frontier) -> tuple[Beside, ...]:
    """Every fixed budget of plain votes but the one it is compared with anyway."""
    fixed = (each for each in frontier.points if each.kind is Kind.FIXED and not each.weighted)
    plain = {each.policy: each for each in (*fixed, frontier.full_budget())}
    own, last = frontier.full_budget(weighted=point.weighted).policy, frontier.full_budget().policy
    return tuple(
        Beside(
            name,
            each.accuracy or 0.0,
            each.responses,
            paired_gap(point.scores, each.scores),
            full=name == last,
        )
        for name, each in plain.items()
        if name not in (own, point.policy)
    )


# --- in words -----------------------------------------------------------------------------------


def _claim(point: Point, full: Point, gap: Gap | None, *, price: str, allowed: float) -> str:
    """The difference as far as its interval and the number of questions let one speak of it."""
    questions = len(point.columns)
    if not np.any(point.columns != full.columns):
        return "The full budget is kept, so nothing is saved"
    if not point.graded:
        return f"{point.agreement:.1f} % of the answers equal those of {full.policy}, for {price}"
    if gap is None:
        return f"Questions it was trained on say nothing of its accuracy; it spends {price}"
    if questions < FEW:
        counted = "question is" if questions == 1 else "questions are"
        return f"{questions} {counted} too few to say what it costs in accuracy; it spends {price}"
    return f"{compare_in_words(gap, full.policy, allowed)} for {price}"


def compare_in_words(gap: Gap, reference: str, allowed: float) -> str:
    """The difference as far as its interval lets one speak of it."""
    less = f"{-gap.difference:.1f} points less accuracy than {reference}"
    if gap.low > 0:
        return f"{gap.difference:.1f} points more accuracy than {reference}"
    if gap.low >= -allowed and gap.high >= 0:
        return f"The accuracy of {reference}, within {allowed:g} points,"
    if gap.low >= -allowed:
        return f"{less}, within the {allowed:g} allowed,"
    if gap.high < 0:
        return less
    seen = f"{less} here" if gap.difference < -0.05 else f"No less accuracy than {reference} here"
    return f"{seen}, where {-gap.low:.1f} points less cannot be ruled out,"


def _grounds(point: Point, full: Point, gap: Gap | None, spent: Spent, unit: str) -> str:
    few = len(point.columns) < FEW
    share = "" if few else f", 95 % [{spent.low:.1f}, {spent.high:.1f}]"
    used = f"{spent.percent:.1f} % of the {unit}{share}; {point.responses:.1f} responses each"
    if not point.graded:
        return f"{point.policy} against {full.policy}, its full budget: {used}."
    right = f"{point.policy}: {point.accuracy:.2f} % right; {full.policy}, its full budget"
    if gap is None:
        return f"{right}: {full.accuracy:.2f} %, both in-sample; {used}."
    return f"{right}: {full.accuracy:.2f} %; {_told(gap)}; {used}."


def _told(gap: Gap) -> str:
    """A difference with its interval, and what it rests on."""
    interval = f"95 % [{signed(gap.low)}, {signed(gap.high)}]"
    counted = f"{gap.better} of {gap.questions} answers better and {gap.worse} worse"
    return f"{signed(gap.difference)} points, {interval}, {counted}"


def signed(value: float, digits: int = 2) -> str:
    """A difference with its sign; nothing has none."""
    return f"{value:+.{digits}f}" if round(value, digits) else f"{0:.{digits}f}"


def _certificate(
    protocol: str, task: str, sections: Mapping[str, Any], *, graded: bool
) -> tuple[bool, str]:
    """Whether a bound was proved on questions apart from those judged, and if not, why."""
    if choices := _choices(sections):
        return certify_choices(choices)
    if known := sections.get("controller"):
        return certify_controller(known, task)
    if not graded:
        return False, "Not certified: there are no right answers to measure a loss with."
    if protocol == "crossfit":
        return False, (
            "Not certified: crossfit is descriptive, for the gate never saw the question it "
            "judges, but its threshold was not chosen on other questions."
        )
    return False, (
        "Not certified: nothing was calibrated, policies were replayed as given, and picking the "
        "best of them afterwards is descriptive only."
    )
