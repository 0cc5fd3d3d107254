"""Choose the setting of a family on calibration questions: the paper's rule, or certified.

A loss is one of accuracy, where there are truths, or of agreement: the share of questions whose
answer differs from that of the full budget, which needs none.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import ceil, inf, sqrt

import numpy as np

from aera.arrays import Columns, Floats
from aera.errors import UsageError
from aera.files import Json
from aera.lab.calibrating.certificate import betting_p_values, fixed_sequence, questions_needed
from aera.lab.calibrating.families import Family
from aera.lab.frontier import Trajectories, by_question, pick

ROUGH = 0.02
"""A margin above this, and above the allowed loss, says that too few questions were seen.

A setting may then still seem to gain. Mostly that is luck, and with dozens of settings to choose
from some are lucky, the boldest first.
"""


LIMITED, PRICED = ("max_loss", "alpha", "margin"), ("price", "utility")
"""What says something only where a loss is limited, and only where tokens have a price."""


@dataclass(frozen=True)
class Choice:
    """What calibration decided, and on what grounds. Accuracies and losses are fractions."""

    family: str
    setting: float | None
    """None: nothing was good enough, so the full budget is kept."""
    max_loss: float
    alpha: float | None
    """The certified chance of error; None where nothing is promised."""
    questions: int
    accuracy: float
    reference: float
    """Accuracy of the full budget on the same questions."""
    token_saving: float
    needed: int | None
    """Where certification failed: how many calibration questions it might take."""
    margin: float = 0.0
    """Standard errors by which the loss stayed below the limit, where nothing is certified."""
    by_agreement: bool = False
    """Whether answers were held against those of the full budget, and not against truths."""
    price: float | None = None
    """What the tokens of the full budget cost, where the setting worth most was chosen."""
    utility: float | None = None
    """Reward minus the price of the tokens; at the full budget, `reference` minus the price."""

    @property
    def feasible(self) -> bool:
        """Whether any setting met the goal."""
        return self.setting is not None

    @property
    def limit(self) -> str:
        """What was allowed."""
        return f"{100 * self.max_loss:g} {'% of the answers' if self.by_agreement else 'points'}"

    @property
    def verb(self) -> str:
        """What the limit is about."""
        return "change" if self.by_agreement else "lose"

    @property
    def summary(self) -> str:
        """One sentence for people."""
        if self.price is not None:
            return (
                f"{self.family} {self.setting:g}: worth most at a price of {self.price:g} on "
                f"{self.questions} questions, reward {self.accuracy:.3f} against "
                f"{self.reference:.3f} at the full budget, saving {100 * self.token_saving:.1f} % "
                "of the tokens"
            )
        spare = f", {self.margin:g} standard errors to spare" if self.margin else ""
        where = f"on {self.questions} questions{spare}"
        if self.setting is None:
            how = f"be certified to {self.verb}" if self.alpha else self.verb
            more = f"; about {self.needed} calibration questions would be needed"
            return (
                f"NOT FEASIBLE: no {self.family} setting that was tried could {how} at most "
                f"{self.limit} {where}, so the full budget is kept{more if self.needed else ''}"
            )
        sure = "" if self.alpha is None else f"certified ({1 - self.alpha:.0%}) "
        promise = "to change at most" if self.by_agreement else "within"
        return (
            f"{self.family} {self.setting:g}: {sure}{promise} {self.limit} of the full budget "
            f"{where}, saving {100 * self.token_saving:.1f} % of the tokens"
        )

    def as_json(self) -> Json:
        """As evaluation files and controllers hold it, without what was not asked for."""
        idle = PRICED if self.price is None else LIMITED
        told = {name: value for name, value in asdict(self).items() if name not in idle}
        return {**told, "summary": self.summary}

    def stops(self, family: Family, values: Floats) -> Columns:
        """Where the chosen setting stops on other questions; infeasible means the last column."""
        if self.setting is None:
            return np.full(values.shape[:-1], values.shape[-1] - 1, dtype=np.int64)
        return family.stops(values, self.setting)


@dataclass(frozen=True)
class LossLimit:
    """The cheapest setting that loses at most `max_loss` against the policy's own full budget.

    By itself this is the paper's rule on the sweep: loss as measured, ties to the safer setting.
    With a margin, so many standard errors are added to the loss, on the fine grid, and may not be
    more than is allowed by themselves; by agreement they know of changes not yet seen. With
    `alpha`, P(loss <= max_loss) >= 1 - alpha, by fixed-sequence testing on the fine grid.
    """

    max_loss: float = 0.02
    alpha: float | None = None
    margin: float | None = None
    by_agreement: bool = False
    """Whether a loss is an answer that differs from the full budget's: no truth is looked at."""
    metric: str = "vote"
    """What a loss is one of: the vote, or "re2_mean", the paper's score, which is flattered."""

    def __post_init__(self) -> None:
        if not 0 <= self.max_loss < 1:
            raise UsageError(
                f"the allowed loss is a fraction from 0 up, as 0.02, but got {self.max_loss}"
            )
        if self.alpha is not None and not 0 < self.alpha < 1:
            raise UsageError(
                f"the certified chance of error lies between 0 and 1, as 0.1, but got {self.alpha}"
            )

    @property
    def certified(self) -> bool:
        """Whether it needs questions that nothing was learned from."""
        return self.alpha is not None

    def choose(
        self,
        family: Family,
        trajectories: Trajectories,
        *,
        grid: Sequence[float] | None = None,
        seed: int = 0,
    ) -> Choice:
        """The cheapest setting within the limit; None of them where all lose more.

        A `grid` of one's own goes from the safest setting on, and is left where one loses more.
        """
        known, grades = trajectories.mixed, self.grades(trajectories.mixed)
        plain = self.alpha is None and self.margin is None
        settings = (family.settings if plain else family.fine) if grid is None else grid
        stops = [family.stops(known.values[family.name], setting) for setting in settings]
        lost = [by_question(grades[..., -1] - pick(grades, columns)) for columns in stops]
        losses = np.array(lost).reshape(len(lost), len(grades)).T
        costs = [float(by_question(pick(known.tokens, columns)).sum()) for columns in stops]
        allowed = self._allowed(losses, seed, in_order=grid is not None)
        best = min(allowed, key=lambda i: (costs[i], i), default=None)
        reference = float(by_question(grades[..., -1]).mean())
        full = float(by_question(known.tokens[..., -1]).sum())
        return Choice(
            family=family.name,
            setting=None if best is None else settings[best],
            max_loss=self.max_loss,
            alpha=self.alpha,
            questions=len(losses),
            accuracy=reference if best is None else reference - float(losses[:, best].mean()),
            reference=reference,
            token_saving=0.0 if best is None or not full else 1 - costs[best] / full,
            needed=self._needed(losses) if best is None and stops else None,
            margin=self.errors if self.alpha is None else 0.0,
            by_agreement=self.by_agreement,
        )

    @property
    def errors(self) -> float:
        """Standard errors that are added to a loss; none where no loss is allowed."""
        return (self.margin or 0.0) if self.max_loss else 0.0

    def grades(self, trajectories: Trajectories) -> Floats:
        """What is lost: accuracy, or agreement with the full budget."""
        if self.by_agreement:
            return trajectories.agreement
        return trajectories.by(self.metric).known_grades

    def _allowed(self, losses: Floats, seed: int, *, in_order: bool) -> list[int]:
        """The settings that stay within the limit, by their place on the grid."""
        if self.alpha is not None:
            p_values = betting_p_values(losses, self.max_loss, seed=seed, alpha=self.alpha)
            return list(range(fixed_sequence(p_values, self.alpha)))
        spare = self.errors * losses.std(axis=0) / np.sqrt(len(losses))
        if self.by_agreement:
            spare = self.errors * unseen_error(losses)
        within = losses.mean(axis=0) + spare <= self.max_loss + 1e-12
        within &= spare <= max(self.max_loss, ROUGH) + 1e-12
        if in_order:
            within = np.logical_and.accumulate(within)
        allowed: list[int] = np.flatnonzero(within).tolist()
        return allowed

    def _needed(self, losses: Floats) -> int | None:
        """Questions it would take; the safest setting is tested first and decides.

        None where there were that many already: then it is the losses, not their number.
        """
        if self.alpha is None:
            needed = self._needed_to_spare(losses[:, 0]) if self.by_agreement else 0
        else:
            likely = questions_needed(self.max_loss, self.alpha, losses=losses[:, 0]) or 0
            needed = max(likely, questions_needed(self.max_loss, self.alpha) or 0)
        return needed if needed > len(losses) else None

    def _needed_to_spare(self, losses: Floats) -> int:
        """Questions with changes like these whose unseen error leaves the margin to spare."""
        left, errors = self.max_loss - float(losses.mean()), self.errors
        spread = errors**2 * float(losses.var())
        root = sqrt(spread**2 + (2 * errors * left) ** 2)
        return ceil((spread + root) / (2 * left**2) - 1e-9) if left > 0 else 0


def unseen_error(changes: Floats) -> Floats:
    """Standard error of the mean change, as if one more event had been seen than was.

    Without it, a handful of questions on which nothing happened would be taken for certainty.
    """
    squares = len(changes) * changes.var(axis=0)
    error: Floats = np.sqrt(squares + 1) / len(changes)
    return error


@dataclass(frozen=True)
class MostUtility:
    """The setting worth most on the questions it is chosen on: reward minus the price of tokens."""

    price: float
    certified: bool = False
    metric: str = "vote"

    def __post_init__(self) -> None:
        if not 0 <= self.price < inf:
            raise UsageError(f"the price of the full budget is 0 or more, but got {self.price}")

    def utility(self, trajectories: Trajectories) -> Floats:
        """What stopping at each checkpoint is worth; a point picks its own."""
        tokens = trajectories.tokens
        share = tokens / max(1e-12, float(tokens[..., -1].mean()))
        worth: Floats = trajectories.by(self.metric).known_grades - self.price * share
        return worth

    def choose(
        self,
        family: Family,
        trajectories: Trajectories,
        *,
        grid: Sequence[float] | None = None,
        seed: int = 0,
    ) -> Choice:
        """The setting worth most."""
        known = trajectories.mixed
        settings = family.fine if grid is None else grid
        stops = [family.stops(known.values[family.name], setting) for setting in settings]
        worth = self.utility(known)
        means = [float(pick(worth, columns).mean()) for columns in stops]
        best = int(np.argmax(means))
        rewards, tokens = known.by(self.metric).known_grades, known.tokens
        full = max(1e-12, float(tokens[..., -1].sum()))
        return Choice(
            family=family.name,
            setting=settings[best],
            max_loss=0.0,
            alpha=None,
            questions=len(worth),
            accuracy=float(pick(rewards, stops[best]).mean()),
            reference=float(rewards[..., -1].mean()),
            token_saving=1 - float(pick(tokens, stops[best]).sum()) / full,
            needed=None,
            price=self.price,
            utility=means[best],
        )


Goal = LossLimit | MostUtility
"""What the setting of a family is chosen for."""
