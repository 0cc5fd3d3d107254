"""What can go wrong, as one tree.

AeraError                 everything raised on purpose; its text is one sentence for the user
├── UsageError            the call was wrong: an unknown name, an impossible value (exit code 2)
├── PoolError             a pool or a file to import that is missing, damaged or unreadable
├── RunError              a Run that was fed what it did not want
├── UpstreamError         a model server that refused, failed or could not be reached
├── ControllerError       a controller or its encoder that is missing, damaged or does not fit
└── ProtocolError         an evaluation that would not prove what it claims

    try:
        pool = aera.Pool.open("pools/gsm8k")
    except aera.AeraError as error:
        sys.exit(f"{error}")
"""

import copyreg
from copy import copy
from dataclasses import KW_ONLY, dataclass
from typing import Any

TRAIN_AGAIN = "train it again with aera train POOL --out DIRECTORY"
"""What to do about a controller that this version cannot run."""


class AeraError(Exception):
    """Base of every error this package raises on purpose."""


class UsageError(AeraError):
    """The call was wrong; the sentence names the argument, what was needed and what came."""


class PoolError(AeraError):
    """A pool is missing, incomplete, damaged or unreadable, or a line to import cannot be used."""


class RunError(AeraError):
    """A Run was fed more than it wanted, or asked for an allocation before it stopped."""


class ControllerError(AeraError):
    """A controller or its encoder is missing, foreign, damaged, or does not fit its use."""


class ProtocolError(AeraError):
    """An evaluation would not prove what it claims, such as a test on questions already seen."""


@dataclass(eq=False, repr=False)
class UpstreamError(AeraError):
    """A model server refused, failed or could not be reached; keeps what it said."""

    message: str
    _: KW_ONLY
    status: int | None = None
    kind: str | None = None
    code: str | int | None = None
    param: str | None = None
    """The field of the request that it is about."""
    retry_after: float | None = None
    retryable: bool | None = None
    unbilled: bool = False
    """Whether it is certain that nothing was generated."""
    body: object = None
    detail: str | None = None
    """For logs only: what names the server's address, which is nobody else's business."""
    calls: int = 1
    """How many calls were made before it was raised."""
    final: bool = False
    """Whether every other question would be refused alike: a wrong key, model, address or setting,
    or nothing left to pay with."""

    def __post_init__(self) -> None:
        if self.retryable is None:
            # Without a status there was no reply at all, and the next try may get one.
            self.retryable = self.status is None
        spent = self.status == 429 and not self.retryable
        self.final = self.final or spent or self.status in (401, 402, 404)
        label = " ".join(str(part) for part in ("upstream", self.status, self.kind) if part)
        self.args = (f"{label}: {self.message}",)

    def __reduce__(self) -> tuple[Any, ...]:
        """Travels between processes as it is; its text is not put together a second time."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]

    def after(self, calls: int) -> "UpstreamError":
        """The same error as it is raised when so many calls were made; this one stays as it is."""
        if calls == self.calls:
            return self
        same = copy(self)
        same.calls = calls
        return same


def check_share(name: str, value: float) -> None:
    """Refuse a setting that is not a share between 0 and 1."""
    if not 0.0 <= value <= 1.0:
        raise UsageError(f"{name} needs a value between 0 and 1, but got {value}")


def check_count(name: str, value: int) -> None:
    """Refuse a setting that is not a positive number of responses."""
    if value < 1:
        raise UsageError(f"{name} needs a whole number from 1 up, but got {value}")
