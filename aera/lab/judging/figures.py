"""Stated: the figures of a policy that somebody stated, so that nothing was chosen by them."""

from dataclasses import dataclass

from aera.lab.judging.bootstrap import bootstrap_ratio, paired_bootstrap
from aera.lab.judging.difference import FEW, paired_gap
from aera.lab.replay.frontier import Point, fixed_points


@dataclass(frozen=True)
class Stated:
    """What a stated policy kept, lost and saved on a pool. Accuracies and losses are fractions."""

    policy: str
    full_budget: str
    """Its own: the last checkpoint, with its own votes."""
    questions: int
    accuracy: float
    """Mean reward where a scorer picks the response."""
    reference: float
    """The same at the full budget, on the same questions."""
    gain: float
    """`accuracy` minus `reference`: below 0 it lost."""
    gain_low: float
    gain_high: float
    agreement: float
    """Share of the answers that equal those at the full budget."""
    saved: str
    """What is saved is counted in: tokens, or responses where a pool does not know its tokens."""
    token_saving: float
    saving_low: float
    saving_high: float
    out_of_fold: bool
    """Whether its votes or its gate were learned; then each question is judged by others."""
    rewarded: bool = False

    @classmethod
    def of(cls, point: Point, *, learned: bool, seed: int) -> "Stated":
        """The figures of one policy."""
        full = fixed_points(point.trajectories, weighted=point.weighted)[-1]
        rewarded = point.trajectories.rewarded
        if rewarded:
            told = paired_bootstrap(point.scores, full.scores, seed=seed)
            gain, low, high = told.difference, told.low, told.high
        else:
            gap = paired_gap(point.scores, full.scores)
            gain, low, high = gap.difference / 100, gap.low / 100, gap.high / 100
        unit, name = ("spent", "tokens") if full.tokens else ("counts", "responses")
        saving = bootstrap_ratio(getattr(point, unit), getattr(full, unit), seed=seed)
        return cls(
            policy=point.policy,
            full_budget=full.policy,
            questions=len(point.columns),
            accuracy=float(point.scores.mean()),
            reference=float(full.scores.mean()),
            gain=gain,
            gain_low=low,
            gain_high=high,
            agreement=point.agreement / 100,
            saved=name,
            token_saving=saving.percent / 100,
            saving_low=saving.low / 100,
            saving_high=saving.high / 100,
            out_of_fold=learned,
            rewarded=rewarded,
        )

    @property
    def feasible(self) -> bool:
        """It runs as stated, whatever it loses."""
        return True

    @property
    def kept(self) -> str:
        """What it is worth beside the full budget."""
        if self.rewarded:
            return f"reward {self.accuracy:.3f}, {self.full_budget} {self.reference:.3f}"
        return (
            f"{100 * self.accuracy:.2f} % right, {self.full_budget} {100 * self.reference:.2f} %, "
            f"{100 * self.agreement:.1f} % of the answers the same"
        )

    @property
    def summary(self) -> str:
        """One sentence for people."""
        scale, unit, digits = (1, "of reward", 3) if self.rewarded else (100, "points", 2)
        gain, low, high = (
            f"{scale * value:+.{digits}f}" for value in (self.gain, self.gain_low, self.gain_high)
        )
        fold = ", each judged by what others taught" if self.out_of_fold else ""
        fold += ", too few to say what it loses on others" if self.questions < FEW else ""
        return (
            f"{self.policy} was stated, not chosen: {gain} {unit} against {self.full_budget}, 95 % "
            f"[{low}, {high}], and {100 * self.token_saving:.1f} % of the {self.saved} saved, 95 % "
            f"[{100 * self.saving_low:.1f}, {100 * self.saving_high:.1f}], on {self.questions} "
            f"questions{fold}"
        )
