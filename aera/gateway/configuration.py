"""Configuration: the settings that are served, how to read them again, and the way back."""

import time
from collections.abc import Callable

from aera.errors import AeraError
from aera.gateway.serving import prepare
from aera.gateway.settings import GatewaySettings

Load = Callable[[], GatewaySettings]
TAKEN, REFUSED, BACK = "taken", "refused", "back"
"""How a reload ends: the new settings, the old ones, or those before."""

GENERATION = ("generation",)
"""The number among the counts that says which configuration a process serves."""


class Configuration:
    """What is served now and what was before, both in memory."""

    def __init__(self, settings: GatewaySettings, load: Load | None = None) -> None:
        self.current = settings
        self.previous: GatewaySettings | None = None
        self.generation, self.since = 1, time.time()
        self._load = load

    @property
    def readable(self) -> bool:
        """Whether there is anything to read again."""
        return self._load is not None

    def read(self, *, back: bool = False) -> GatewaySettings:
        """The settings as they are written now, or the former ones, checked; may take a while."""
        if back:
            if self.previous is None:
                raise AeraError("there is no configuration to go back to")
            return self.previous
        assert self._load is not None
        try:
            settings = self._load()
            prepare(settings)
        except AeraError:
            raise
        except OSError as error:
            where = f' "{error.filename}"' if error.filename else ""
            raise AeraError(f"{error.strerror or error}{where}") from None
        except Exception as error:  # somebody's own task or scorer: what is served goes on
            raise AeraError(f"{type(error).__name__}: {error}") from error
        return settings

    def take(self, settings: GatewaySettings) -> None:
        """These are served from now on."""
        self.previous, self.current = self.current, settings
        self.generation, self.since = self.generation + 1, time.time()
