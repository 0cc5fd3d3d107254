"""AllowedRoutes: which paths under /v1 are passed on."""

from collections.abc import Iterable
from dataclasses import dataclass

from aera.errors import UsageError
from aera.gateway.openai import DeniedError

ALWAYS = ("/v1/chat/completions", "/v1/responses", "/v1/models")
BELOW = ("/v1/responses/",)
MODEL = "/v1/models/"
"""Models can be looked at, but not deleted, unless that is allowed."""


@dataclass(frozen=True)
class AllowedRoutes:
    """Paths as they are, and beginnings of paths; without any, all are allowed."""

    paths: frozenset[str] = frozenset()
    beginnings: tuple[str, ...] = ()

    @classmethod
    def of(cls, given: Iterable[str]) -> "AllowedRoutes":
        """From paths; one that ends in * is a beginning. Chats, responses and models stay."""
        routes = list(given)
        for route in routes:
            if not route.startswith("/v1/") or "*" in route[:-1] or "?" in route:
                raise UsageError(
                    f'"{route:.80}" is no route: --route takes a path as /v1/embeddings, or the '
                    "beginning of paths as /v1/files*"
                )
        if not routes:
            return cls()
        beginnings = [route[:-1] for route in routes if route.endswith("*")]
        return cls(frozenset({*routes, *ALWAYS}), (*beginnings, *BELOW))

    def check(self, path: str, method: str) -> None:
        """Refuse a path that is not among them."""
        if not self.paths or path in self.paths or path.startswith(self.beginnings):
            return
        if method not in ("GET", "HEAD") or not path.startswith(MODEL):
            text = f'"{path:.80}" is not offered here; the operator allows it with --route'
            raise DeniedError(text, status=403, code="route_not_allowed")
