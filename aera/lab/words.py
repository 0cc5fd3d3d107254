"""Words: everything that is said of an evaluation or a calibration, and how far it reaches.

The terminal, the JSON file, the page and the model card show these sentences as they are.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from aera.files import Json
from aera.lab.calibrating.calibration import Choice
from aera.lab.calibrating.certificate import questions_needed
from aera.lab.calibrating.families import GATE_FAMILY
from aera.lab.frontier import (
    QUESTIONS,
    Frontier,
    Kind,
    Point,
    Prices,
    Trajectories,
    fixed_points,
    write_money,
)
from aera.lab.stats import FEW, Estimate, paired_gap, spent_share
from aera.policies.rules import UNTRAINED
from aera.solving.controller import Controller
from aera.voting.rules import BestOfN

DEFAULT, CAREFUL = str(UNTRAINED), "asc-0.95"
"""Spoken of where nothing was learned: what solve and serve do without a controller. The careful
rule stands beside it."""
SHOWN_THRESHOLD = 0.3
"""The threshold whose diagnostics are shown, as in the paper."""
ALPHA = 0.1
"""The chance of error of the certificate that is advised."""
LOSSES = (0.01, 0.02, 0.03, 0.05, 0.08, 0.1, 0.15, 0.2, 0.3)
"""Allowed losses that are advised; beyond them a promise is worth little."""
ENOUGH = 300
"""Questions below which a threshold without a certificate is not to be trusted."""
SHOWN = 5
"""Rows of a table that nobody asked more of."""

Cell = Callable[[Point], str]


def signed(value: float, digits: int = 1) -> str:
    """A difference with its sign, and nothing is never below zero."""
    return f"{value if round(value, digits) else 0.0:+.{digits}f}"


def bracket(low: float, high: float) -> str:
    """An interval of a difference."""
    return f"{signed(low)} to {signed(high)}"


# --- tables of policies ---------------------------------------------------------------------------


def table_columns(
    trajectories: Trajectories,
    *,
    price: float | None = None,
    prices: Prices | None = None,
    means: bool = False,
) -> dict[str, Cell]:
    """Headings with what stands below them; with `means`, the paper's score where it is known."""
    quality: dict[str, Cell] = {"agrees": lambda point: f"{point.agreement:.1f} %"}
    if trajectories.rewarded:
        quality = {"reward": lambda point: f"{point.reward:.3f}"}
    elif trajectories.grades is not None:
        quality = {"right": lambda point: f"{point.accuracy:.1f} %"}
    if means and trajectories.re2_mean is not None:
        quality["re2_mean"] = lambda point: f"{point.re2_mean:.1f} %"
    if price is not None and trajectories.grades is not None:
        quality["utility"] = lambda point: f"{point.utility(price):.3f}"
    spend: dict[str, Cell] = {
        "responses": lambda point: f"{point.responses:.1f}",
        "tokens": lambda point: f"{point.tokens:,.0f}",
        "of all": lambda point: f"{_spent(point):.0f} %",
    }
    if prices is not None:
        spend["money"] = lambda point: write_money(point.money(prices))
    return {"policy": lambda point: point.policy, **quality, **spend}


def _spent(point: Point) -> float:
    """Percent of what the full budget takes: tokens, or responses where tokens are not known."""
    return 100 - (point.token_saving if point.tokens else point.response_saving)


def shown_points(frontier: Frontier, asked: Collection[str] = ()) -> list[Point]:
    """What was asked for, and the policy spoken of between what it should be compared with."""
    fixed = [p.policy for p in frontier.points if p.kind is Kind.FIXED and not p.weighted]
    spoken, middle = headline_point(frontier).policy, fixed[(len(fixed) - 1) // 2 :][:1]
    wanted = {*fixed[:1], *fixed[-1:], CAREFUL, spoken, "oracle"}
    known = {point.policy for point in frontier.points}
    kept = wanted & known if len(wanted & known) >= SHOWN else wanted | {*middle}
    order = {Kind.FIXED: 0, Kind.HINDSIGHT: 2}
    return sorted(
        (point for point in frontier.points if point.policy in kept | {*asked}),
        key=lambda point: (order.get(point.kind, 1), point.policy == spoken),
    )


REMARKS = {
    "asc": "stops on a clear leader",
    "lead": "stops on a lead in votes",
    "esc": "stops when the last agree",
    "oracle": "the best stop, in hindsight",
    "matched-random": "the stops of another policy, dealt at random",
    "one-shot": "the checkpoint named once, at the first one",
    "first-valid": "the first response that could be read",
}
"""What policies do, by their family."""


def remark(point: Point) -> str:
    """What a policy does, or how it came about."""
    if point.kind is Kind.FIXED:
        return f"always {point.responses:.0f} {'weighted' if point.weighted else 'plain'} votes"
    known = {
        Kind.CONTROLLER: "the controller" + (", on questions it knows" if point.in_sample else ""),
        Kind.CALIBRATED: "calibrated on other questions",
        Kind.SWEPT: "read off afterwards",
    }
    return known.get(point.kind, REMARKS.get(point.family, ""))


# --- the headline of an evaluation ----------------------------------------------------------------


def headline_point(frontier: Frontier) -> Point:
    """The policy to speak of: calibrated, deployed or the default, never the best one seen."""
    points = frontier.points
    for kind in (Kind.CALIBRATED, Kind.CONTROLLER):
        chosen = [point for point in points if point.kind is kind]
        if chosen:
            return chosen[0]
    known = {point.policy: point for point in points}
    for label in (GATE_FAMILY.label(SHOWN_THRESHOLD), DEFAULT, CAREFUL):
        if label in known:
            return known[label]
    plain = (Kind.FIXED, Kind.HINDSIGHT)
    return next((point for point in points if point.kind not in plain), points[0])


@dataclass(frozen=True, eq=False)
class Headline:
    """One policy, named before its result was seen, against plain votes and its own full budget.

    Without truths, and on questions it was trained on, there is no gap.
    """

    frontier: Frontier
    certified: bool
    certificate: str
    allowed: float
    """Points that may be lost."""
    by_agreement: bool = False
    """Whether calibration held answers against those of the full budget."""

    @cached_property
    def point(self) -> Point:
        """The policy to speak of."""
        return headline_point(self.frontier)

    @cached_property
    def plain(self) -> Point:
        """All plain votes."""
        return self.frontier.full_budget()

    @cached_property
    def full(self) -> Point:
        """All votes as the policy weighs them."""
        return self.frontier.full_budget(weighted=self.point.weighted)

    def gap(self, other: Point) -> Estimate | None:
        """Its accuracy against another, where that is a test."""
        tested = self.point.graded and not self.point.in_sample
        return paired_gap(self.point.scores, other.scores) if tested else None

    @property
    def spent(self) -> Estimate:
        """Percent of what its full budget takes."""
        unit = "spent" if self.full.tokens else "counts"
        return spent_share(getattr(self.point, unit), getattr(self.full, unit))

    @property
    def changed(self) -> Estimate | None:
        """Answers that are not those of its full budget, where calibration counted them."""
        counted = self.by_agreement and self.point.kind is Kind.CALIBRATED
        return changed_gap(self.point) if counted else None

    @property
    def status(self) -> str:
        """What kind of test it is, if any."""
        calibrated = self.point.kind is Kind.CALIBRATED
        if not self.point.graded:
            return "on questions kept apart, without truths" if calibrated else "dry run"
        if self.point.kind is Kind.CONTROLLER:
            return "in-sample" if self.point.in_sample else "a test on unseen questions"
        return "a test on questions kept apart" if calibrated else "descriptive"

    @property
    def stops(self) -> bool:
        """Whether it ever stops before its full budget."""
        return bool(np.any(self.point.columns != self.full.columns))

    @property
    def claim(self) -> str:
        """What is right, for how much, and how sure that is, against all plain votes."""
        point, full, plain, apart = self.point, self.full, self.plain, self.gap(self.plain)
        right = sure = ""
        if apart is not None:
            right = f"{point.accuracy:.1f} % right against {plain.accuracy:.1f} % for "
            right += f"{plain.responses:.0f} plain votes"
            sure = f"(95 %: {bracket(apart.low, apart.high)} points)"
        if not self.stops:
            kept = f"All {full.responses:.0f} samples are kept, so nothing is saved"
            alike = apart is None or full.policy == plain.policy
            return kept if alike else f"{kept}: {right} {sure}"
        price = f"{self.spent.value:.0f} % of the {'tokens' if full.tokens else 'responses'}"
        if not point.graded:
            same = f"{point.agreement:.1f} % of the answers equal those of {full.policy}"
            return f"{same}, for {price}"
        if apart is None:
            return f"Questions it was trained on say nothing of its accuracy; it spends {price}"
        told = f"{right}, at {price} {sure}"
        if apart.questions >= FEW:
            return told
        counted = "question is" if apart.questions == 1 else "questions are"
        return f"{apart.questions} {counted} too few to say what it costs: {told}"

    @property
    def grounds(self) -> str:
        """What the claim rests on, and what became of the limit against its own full budget."""
        point, full = self.point, self.full
        apart, gap = self.gap(self.plain), self.gap(full)
        named = f"{point.policy} ({self.status})"
        used = f"{point.responses:.1f} responses each"
        if not point.graded:
            return f"{named}, against {full.policy}, its full budget: {used}."
        if apart is None or gap is None:
            return (
                f"{named}: {point.accuracy:.1f} % right, {full.policy}, its full budget, "
                f"{full.accuracy:.1f} %; {used}."
            )
        counted = f"{apart.better} of {apart.questions} answers better and {apart.worse} worse"
        if np.any((point.scores - self.plain.scores) % 1):
            counted += " in some order of the responses"
        said = f"{named}: {counted}, {used}."
        if apart.questions < FEW or not self.stops:
            return said
        own = f"{full.policy}, its own full budget ({full.accuracy:.1f} % right)"
        return f"{said} Beside {own}: {compare_in_words(gap, self.allowed)}."

    @property
    def lines(self) -> list[str]:
        """Everything that is said."""
        said, changed = [f"{self.claim}.", self.grounds], self.changed
        if changed is not None:
            ends = f"{abs(changed.high):.1f} to {-changed.low:.1f}"
            said.append(
                f"{changed.worse} of {changed.questions} answers differ from {self.full.policy}'s: "
                f"{abs(changed.value):.1f} % (95 %: {ends} %)."
            )
        return [*said, self.certificate]

    def as_json(self) -> Json:
        """As an evaluation file holds it."""
        told = ("claim", "grounds", "status", "certified", "certificate", "lines")
        gap, changed = self.gap(self.full), self.changed
        fixed = (p for p in self.frontier.points if p.kind is Kind.FIXED and not p.weighted)
        others = {point.policy: point for point in (*fixed, self.plain)}
        return {
            "policy": self.point.policy,
            "reference": self.full.policy,
            **{name: getattr(self, name) for name in told},
            "spent": self.spent.as_json("percent"),
            "gap": gap and gap.as_json("difference"),
            "changed": changed and changed.as_json("difference"),
            "beside": [
                {
                    "reference": other.policy,
                    "accuracy": other.accuracy,
                    "responses": other.responses,
                    "gap": apart.as_json("difference"),
                    "full": other.responses == other.trajectories.schedule.last,
                }
                for other in others.values()
                if other.policy not in (self.full.policy, self.point.policy)
                and (apart := self.gap(other))
            ],
        }


def changed_gap(point: Point) -> Estimate:
    """How many answers are not those of the full budget; every one of them counts as worse."""
    gap = paired_gap(point.agreements, np.ones_like(point.agreements))
    return replace(gap, high=min(0.0, gap.high))  # nothing agrees more than it agrees with itself


def compare_in_words(gap: Estimate, allowed: float) -> str:
    """The difference as far as its interval lets one speak of it."""
    less = f"{-gap.value:.1f} points less"
    if gap.low > 0:
        return f"{gap.value:.1f} points more"
    if gap.low >= -allowed and gap.high >= 0:
        return f"as accurate within {allowed:g} points"
    if gap.low >= -allowed:
        return f"{less}, within the {allowed:g} allowed"
    if gap.high < 0:
        return less
    seen = f"{less} here" if gap.value < -0.05 else "no less here"
    return f"{seen}, and {-gap.low:.1f} points less cannot be ruled out"


# --- certified or not -----------------------------------------------------------------------------


NONE_RIGHT = (
    "not one answer is right: are the labels what the task reads? (truths.jsonl of the pool)"
)
LIKE_THOSE = ", for questions, a reasoner and sampling like those"


def uncertified(protocol: str, *, graded: bool) -> tuple[bool, str]:
    """Why nothing can be proved where nothing was calibrated."""
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


def certify_controller(controller: Controller, *, seen: int, task: str) -> tuple[bool, str]:
    """A finished controller brings its certificate along, for questions like its own.

    `seen` says how many of these questions it knows.
    """
    choice, own = _read_choice(controller.calibration), controller.task.name
    if seen:
        proved = choice is not None and choice.feasible and choice.alpha is not None
        rest = f"; for new ones {_promise(choice)} was proved" if choice and proved else ""
        return False, f"Not tested here: {seen} of these questions were seen in training{rest}."
    if own != task:
        return False, f"Not certified here: it was calibrated for {own}, and this is {task}."
    if choice is None:
        return False, "Not certified: its calibration left no record."
    return certify([choice], LIKE_THOSE)


def _read_choice(calibration: Mapping[str, Any]) -> Choice | None:
    """What a controller's record says was chosen; None where its policy was stated."""
    if not {"setting", "alpha", "max_loss", "questions"} <= set(calibration):
        return None
    names = [each.name for each in fields(Choice) if each.name in calibration]
    return Choice(**{name: calibration[name] for name in names})


def certify(choices: Sequence[Choice], where: str) -> tuple[bool, str]:
    """Whether a bound was proved in every fold, and one sentence about it."""
    first, folds = choices[0], len(choices)
    each = " in each fold" if folds > 1 else ""
    if failed := [choice for choice in choices if not choice.feasible]:
        part = f" in {len(failed)} of {folds} folds" if folds > 1 else ""
        return False, f"Not certified: {_failure(failed[0])}{part}."
    if first.alpha is None:
        return False, f"Not certified: {_measured(first, each)}."
    return True, (
        f"Certified: {_promise(first)}, proved on {first.questions} questions{each} that "
        f"nothing was learned from{where}."
    )


def _promise(choice: Choice) -> str:
    sure = 100 * (1 - (choice.alpha or 0.0))
    if choice.by_agreement:
        return f"P(answers that differ from its own full budget's ≤ {_points(choice)}) ≥ {sure:g} %"
    return f"P(loss ≤ {_points(choice)} against its own full budget) ≥ {sure:g} %"


def _points(choice: Choice) -> str:
    return f"{100 * choice.max_loss:g} {'%' if choice.by_agreement else 'points'}"


def _failure(choice: Choice) -> str:
    """Why the full budget is kept."""
    shown = "proved" if choice.alpha is not None else "seen"
    more = f" (it takes about {choice.needed})" if choice.needed else ""
    return (
        f"no setting could be {shown} to {choice.verb} at most {_points(choice)} on "
        f"{choice.questions} questions{more}, so the full budget is kept"
    )


def _measured(choice: Choice, each: str) -> str:
    """What calibration without a certificate did, which is no promise."""
    verb, verbs = ("changed", "changes") if choice.by_agreement else ("lost", "loses")
    spare = f" with {choice.margin:g} standard errors to spare, which promises nothing"
    far = spare if choice.margin else ""
    if choice.questions < FEW:
        far = f", too few to say what it {verbs} on others"
    return (
        f"the setting is the cheapest that {verb} at most {_points(choice)} on {choice.questions} "
        f"calibration questions{each}{far}"
    )


# --- a calibration and its card -------------------------------------------------------------------


def tell_choice(choice: Choice) -> list[str]:
    """What was chosen, and what that promises for questions yet to be asked."""
    if not choice.feasible:
        chosen = "NOT FEASIBLE, so the full budget is kept"
    else:
        saved = f"{100 * choice.token_saving:.1f} % of the tokens saved in calibration"
        chosen = f"{choice.family} {choice.setting:g}, {saved}"
    return [f"{chosen}.", certify([choice], LIKE_THOSE)[1]]


def advise(choice: Choice, allows: float | None) -> list[str]:
    """Where nothing was feasible, or on few questions: what would do; a way without a refusal.

    `allows` is the smallest allowed loss for which something is feasible here.
    """
    said = []
    if allows is not None:
        wider = replace(choice, max_loss=allows)
        said.append(f"these questions allow a limit of {wider.limit}: --max-loss {allows:g}")
    if choice.alpha is None and choice.questions < ENOUGH:
        needed, way = questions_needed(choice.max_loss, ALPHA), "record more questions"
        if needed is not None and choice.questions // 2 < needed:  # half of them certify
            way = f"a certificate of {_points(choice)} takes {2 * needed} questions at least"
        elif needed is not None:
            way = f"ask for a certificate (--certify {ALPHA:g}), or {way}"
        more = f": expect other ones to {choice.verb} more" if choice.feasible else ""
        said.append(f"{choice.questions} questions are few{more}; {way}")
    return said


def describe_choice(controller: Controller, choice: Choice) -> list[str]:
    """What calibration chose, as lines of a model card."""
    chosen, certificate = tell_choice(choice)
    lines = [f"**Setting**: {chosen}", f"**Certificate**: {certificate}"]
    if not choice.by_agreement:
        return [
            *lines,
            f"**Accuracy in calibration**, which is no test: {100 * choice.accuracy:.2f} %, its "
            f"own full budget\n  {100 * choice.reference:.2f} %, on {choice.questions} questions.",
        ]
    lines += [
        f"**Agreement in calibration**, which is no test: {100 * choice.accuracy:.2f} % of the "
        f"answers are those of\n  its own full budget, on {choice.questions} questions.",
        "**Without truths**: accuracy lost against that full budget cannot exceed the share that "
        "differs;\n  how right the full budget is, nobody has looked.",
    ]
    home = controller.home
    if home is not None and home.deciding:
        lines.append(
            f"**Weights**: {home.deciding:.0f} of the {controller.schedule.last} votes of the "
            "full budget decide in effect."
        )
    return lines


def tell_stated(
    point: Point, full: Point, gain: Estimate, saving: Estimate, *, out_of_fold: bool
) -> tuple[str, str]:
    """What a policy that somebody stated lost and saved on a pool; and what both are worth there.

    A gain is of reward or in points, and a saving of tokens, or of responses where those are not
    known.
    """
    unit, digits = ("of reward", 3) if point.trajectories.rewarded else ("points", 2)
    gained, low, high = (f"{end:+.{digits}f}" for end in (gain.value, gain.low, gain.high))
    saved, least, most = (f"{end:.1f}" for end in (saving.value, saving.low, saving.high))
    fold = ", each judged by what others taught" if out_of_fold else ""
    fold += ", too few to say what it loses on others" if gain.questions < FEW else ""
    said = (
        f"{point.policy} was stated, not chosen: {gained} {unit} against {full.policy}, 95 % "
        f"[{low}, {high}], and {saved} % of the {'tokens' if full.tokens else 'responses'} saved, "
        f"95 % [{least}, {most}], on {gain.questions} questions{fold}"
    )
    if point.accuracy is None or full.accuracy is None:
        return said, f"reward {point.scores.mean():.3f}, {full.policy} {full.scores.mean():.3f}"
    same = f"{point.agreement:.1f} % of the answers the same"
    return said, f"{point.accuracy:.2f} % right, {full.policy} {full.accuracy:.2f} %, {same}"


def make_card(controller: Controller, lines: Sequence[str]) -> str:
    """A model card with the front matter model hubs read."""
    gate = len(controller.gate.features) if controller.gate else 0
    scored = isinstance(controller.weigher, BestOfN)
    told = "".join(f"- {line}\n" for line in lines)
    command = f"aera solve --controller PATH{' --scorer MODULE:NAME' if scored else ''}"
    return f"""---
library_name: aera
license: apache-2.0
tags: [adaptive-inference, {"best-of-n" if scored else "self-consistency"}, early-stopping]
---

# AERA controller for {controller.task.name}

After each checkpoint ({controller.schedule}) it decides whether another block of responses is worth
paying for. Policy: `{controller.label}`.

{told}- **Inputs**: {gate} features of the responses seen so far, listed in `config.json`.
- **Limits**: one reasoner, one benchmark, one sampling setting. Calibrate again when any of them
  changes; a calibration figure is no test result.

    {command} --base-url URL --model M "a question"
"""


# --- money ----------------------------------------------------------------------------------------


def tell_money(point: Point, prices: Prices) -> list[str]:
    """What a policy saves in money against its full budget, and what the figures leave out."""
    said = [
        f"money is for {QUESTIONS:,} questions, at {prices.prompt:g} for a million prompt and "
        f"{prices.completion:g} for a million completion tokens; every block bills the prompt once"
    ]
    if point.kind is not Kind.FIXED:
        full = fixed_points(point.trajectories, weighted=point.weighted)[-1]
        own, most = point.money(prices), full.money(prices)
        share = 100 * own / most if most else 100.0
        said.append(
            f"{point.policy} costs {write_money(own)} for {QUESTIONS:,} questions, {share:.0f} % "
            f"of what {full.policy} costs, {write_money(most)}"
        )
    lengths, questions = point.trajectories.prompts, len(point.columns)
    unknown = questions if lengths is None else int(np.count_nonzero(lengths == 0))
    if prices.prompt and unknown:
        said.append(
            f"no response to {unknown} of {questions} questions recorded its prompt tokens, so "
            "money leaves their prompts out"
        )
    return said
