"""Choose the setting of a dial on calibration questions: the paper's rule, and a certified one."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from aera.lab.certificate import betting_p_values, fixed_sequence, questions_needed
from aera.lab.dials import Dial
from aera.lab.trajectory import Columns, Floats, Trajectories, pick


@dataclass(frozen=True)
class Choice:
    """What calibration decided, and on what grounds. Accuracies and losses are fractions."""

    dial: str
    setting: float | None
    """None: nothing was good enough, so the full budget is kept."""
    max_loss: float
    alpha: float | None
    """The certified chance of error; None for the paper's rule, which promises nothing."""
    questions: int
    accuracy: float
    reference: float
    """Accuracy of the full budget on the same questions."""
    token_saving: float
    needed: int | None
    """Where certification failed: how many calibration questions it might take."""
    margin: float = 0.0
    """Standard errors by which the loss stayed below the limit, where nothing is certified."""

    @property
    def feasible(self) -> bool:
        """Whether any setting met the demand."""
        return self.setting is not None

    @property
    def safely(self) -> str:
        """How the limit was kept, to be said after it."""
        return f", {self.margin:g} standard error to spare" if self.margin else ""

    @property
    def verdict(self) -> str:
        """One sentence for people."""
        limit = f"{100 * self.max_loss:g} points"
        if self.setting is None:
            more = (
                f"; about {self.needed} calibration questions would be needed"
                if self.needed
                else ""
            )
            how = "be certified to lose" if self.alpha else "lose"
            return (
                f"NOT FEASIBLE: no {self.dial} setting that was tried could {how} at most "
                f"{limit} on {self.questions} questions{self.safely}, so the full budget is "
                f"kept{more}"
            )
        promise = "within" if self.alpha is None else f"certified ({1 - self.alpha:.0%}) within"
        return (
            f"{self.dial} {self.setting:g}: {promise} {limit} of the full budget on "
            f"{self.questions} questions{self.safely}, saving {100 * self.token_saving:.1f} % of "
            "the tokens"
        )


def calibrate(
    dial: Dial,
    values: Floats,
    trajectories: Trajectories,
    *,
    max_loss: float = 0.02,
    alpha: float | None = None,
    margin: float | None = None,
    seed: int = 0,
) -> Choice:
    """The cheapest setting that loses at most `max_loss` against the full budget.

    By itself this is the paper's rule on the sweep: loss as measured, ties to the safer setting.
    With a margin, so many standard errors are added to the loss, on the fine grid. With `alpha`,
    P(loss <= max_loss) >= 1 - alpha, by fixed-sequence testing on the fine grid.
    """
    grid = dial.settings if alpha is None and margin is None else dial.fine
    columns = [dial.stops(values, setting) for setting in grid]
    losses = _losses(columns, trajectories)
    if alpha is None:
        error = losses.std(axis=0) / np.sqrt(len(losses))
        likely = losses.mean(axis=0) + (margin or 0.0) * error
        allowed = np.flatnonzero(likely <= max_loss + 1e-12).tolist()
    else:
        p_values = betting_p_values(losses, max_loss, seed=seed, alpha=alpha)
        allowed = list(range(fixed_sequence(p_values, alpha)))
    costs = [pick(trajectories.tokens, column).sum() for column in columns]
    best = min(allowed, key=lambda i: (costs[i], i), default=None)
    reference = float(_grades(trajectories)[:, -1].mean())
    return Choice(
        dial=dial.name,
        setting=None if best is None else grid[best],
        max_loss=max_loss,
        alpha=alpha,
        questions=len(losses),
        accuracy=reference if best is None else reference - float(losses[:, best].mean()),
        reference=reference,
        token_saving=0.0 if best is None else _saving(costs[best], trajectories),
        needed=_needed(losses, max_loss, alpha) if best is None and alpha else None,
        margin=(margin or 0.0) if alpha is None else 0.0,
    )


def _saving(cost: float, trajectories: Trajectories) -> float:
    full = float(trajectories.tokens[:, -1].sum())
    return 1 - float(cost) / full if full else 0.0


def _needed(losses: Floats, max_loss: float, alpha: float) -> int | None:
    """Questions it would take; the safest setting is tested first, so its losses decide.

    None where there were that many already: then it is the losses, not their number.
    """
    likely = questions_needed(max_loss, alpha, losses=losses[:, 0]) or 0
    needed = max(likely, questions_needed(max_loss, alpha) or 0)
    return needed if needed > len(losses) else None


def _grades(trajectories: Trajectories) -> Floats:
    assert trajectories.grades is not None, "calibration needs truths"
    return trajectories.grades


def _losses(columns: Sequence[Columns], trajectories: Trajectories) -> Floats:
    """Grade at the full budget minus grade at the stop, shape (questions, settings)."""
    grades = _grades(trajectories)
    return np.stack([grades[:, -1] - pick(grades, column) for column in columns], axis=1)


def chosen_stops(choice: Choice, dial: Dial, values: Floats) -> Columns:
    """Where a calibrated dial stops on other questions; infeasible means the last column."""
    if choice.setting is None:
        return np.full(len(values), values.shape[1] - 1, dtype=np.int64)
    return dial.stops(values, choice.setting)
