"""Where a request comes from: pages of other origins may not use a gateway that needs no key."""

from collections.abc import Sequence
from dataclasses import dataclass

from aera.gateway.openai import DeniedError

LOCAL = ("localhost", "127.0.0.1", "::1")
FORMS = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data")
"""Bodies that a page of another origin can send without asking first."""
CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
Headers = Sequence[tuple[bytes, bytes]]


@dataclass(frozen=True)
class OriginCheck:
    """Takes requests to known hosts only; without any name, all of them."""

    hosts: frozenset[str] = frozenset()

    def refusal(self, path: str, method: str, headers: Headers) -> DeniedError | None:
        """Why a request is refused, if so.

        A browser sends `Origin` with whatever a page of another origin posts, and a name that was
        bound to this machine afterwards stands in `Host`.
        """
        if not self.hosts:
            return None
        host = origin = kind = ""
        hosts = 0
        for name, value in headers:
            if name == b"host":
                host, hosts = value.decode("latin-1").lower(), hosts + 1
            elif name == b"origin":
                origin = value.decode("latin-1").lower()
            elif name == b"content-type":
                kind = value.decode("latin-1").partition(";")[0].strip().lower()
        if hosts > 1:
            text = "a request takes one Host header, but this one has several"
            return DeniedError(text, status=400, code="invalid_header")
        if host_name(host) not in self.hosts:
            text = f'the host "{host:.80}" is not served here; --allowed-host adds one'
            return DeniedError(text, status=421, code="unknown_host")
        if origin and origin.partition("://")[2] != host:
            text = f'pages of "{origin:.80}" may not ask here'
            return DeniedError(text, status=403, code="foreign_origin")
        if method == "POST" and path.startswith("/v1/") and self._is_form(path, kind):
            text = f'the content type must be application/json, but is "{kind:.80}"'
            return DeniedError(text, status=415, code="unsupported_media_type")
        return None

    def _is_form(self, path: str, kind: str) -> bool:
        """Uploads are forms on other routes than those that vote."""
        return kind in (FORMS if path in (CHAT, RESPONSES) else FORMS[:2])


def host_name(host: str) -> str:
    """The name in a Host header, without its port and the dot of a full name."""
    if host.startswith("["):
        name, _, port = host[1:].partition("]")
        return name if port[:1] in ("", ":") else host
    name = host.rpartition(":")[0] if host.count(":") == 1 else host
    return name.removesuffix(".")
