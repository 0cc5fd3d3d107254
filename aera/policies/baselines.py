"""Published stopping rules on our checkpoints: ASC, ESC, semantic consensus."""

from dataclasses import dataclass, field

from aera.errors import check_count, check_share
from aera.evidence.encoder import Encoder
from aera.evidence.semantics import semantics
from aera.policies.policy import Decision, when, write_number
from aera.response import Prefix
from aera.tally import beta_confidence


@dataclass(frozen=True)
class ASC:
    """Adaptive-Consistency: stop when the leader beats the runner-up with this confidence."""

    confidence: float = 0.95
    weighted: bool = field(default=False, compare=False)
    """Whether the confidence was chosen on weighted votes."""

    def __post_init__(self) -> None:
        check_share("asc", self.confidence)

    def decide(self, prefix: Prefix) -> Decision:
        leaders = prefix.tally.leaders
        sure = leaders.answer is not None and (
            beta_confidence(leaders.weight, leaders.runner_up) >= self.confidence
        )
        return when(sure, "confident leader")

    def __str__(self) -> str:
        return f"asc-{write_number(self.confidence)}"


@dataclass(frozen=True)
class ESC:
    """Early-Stopping Self-Consistency: stop when the last `window` responses all agree.

    A response that cannot be read breaks the agreement; the answer is the vote of the prefix.
    """

    window: int = 5

    def __post_init__(self) -> None:
        check_count("esc", self.window)

    def decide(self, prefix: Prefix) -> Decision:
        recent = prefix.votes[-self.window :]
        answers = {vote.answer for vote in recent}
        agree = len(recent) == self.window and len(answers) == 1 and None not in answers
        return when(agree, "unanimous window")

    def __str__(self) -> str:
        return f"esc-{self.window}"


@dataclass(frozen=True)
class Consensus:
    """Stop when the mean cosine over all pairs of responses has risen this high."""

    encoder: Encoder
    share: float

    def __post_init__(self) -> None:
        check_share("consensus", self.share)

    def decide(self, prefix: Prefix) -> Decision:
        close = semantics(prefix, self.encoder).consensus >= self.share
        return when(len(prefix.tally) > 0 and close, "semantic consensus")

    def __str__(self) -> str:
        return f"consensus-{self.share:g}"
