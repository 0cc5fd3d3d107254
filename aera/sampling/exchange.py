"""One exchange with a model server: a request out, a bounded reply in, or why there is none."""

import asyncio
import json
import os
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from multidict import CIMultiDict

from aera.errors import UpstreamError, UsageError
from aera.sampling.body import LARGE
from aera.sampling.refusal import redirect_refusal, refusal


def open_session(
    base_url: str, *, key: str, headers: Mapping[str, str], ca_file: str | None
) -> aiohttp.ClientSession:
    """Connections to one server with its own key and headers; what it stores is not sent back."""
    own = CIMultiDict({"Authorization": f"Bearer {key}"} if key else {})
    for name, value in headers.items():
        own[name] = value
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=tls_context(ca_file)),
        headers=own,
        # A cookie would be one client's, sent along with the requests of all others.
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None),
        proxy=_proxy(base_url),
    )


def _proxy(base_url: str) -> str | None:
    """The environment's proxy; aiohttp's trust_env would let ~/.netrc overrule the key."""
    parts = urlsplit(base_url)
    host = parts.hostname or ""
    own = host in ("localhost", "::1") or host.startswith("127.")
    return None if own or proxy_bypass(host) else getproxies().get(parts.scheme)


def tls_context(ca_file: str | None) -> ssl.SSLContext | bool:
    """Whom to trust; True is whom the system trusts."""
    if ca_file is None:
        return True
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise UsageError(f'the CA file "{ca_file}" cannot be used: {error}') from None


async def read_reply(reply: aiohttp.ClientResponse, most: int, *, cut: bool = False) -> bytes:
    """The content of a reply of up to `most` bytes; more is refused, or cut off."""
    content = await reply.content.readany()
    parts, size = [content], len(content)
    while size <= most and content and not reply.content.at_eof():
        content = await reply.content.readany()
        parts.append(content)
        size += len(content)
    whole = b"".join(parts) if len(parts) > 1 else content
    if size <= most:
        return whole
    reply.close()
    if cut:
        return whole[:most]
    raise UpstreamError(f"the reply is larger than {most} bytes", status=502, retryable=False)


async def decode_reply(reply: aiohttp.ClientResponse, most: int, *, named: bool = True) -> Any:
    """The JSON of a reply; a refusal or a redirect is raised, which names where to if `named`."""
    status = reply.status
    if 300 <= status < 400:
        reply.close()
        raise redirect_refusal(status, reply.headers.get("Location"), named=named)
    if not 200 <= status < 300:
        raise refusal(status, await read_reply(reply, LARGE, cut=True), reply.headers)
    content = await read_reply(reply, most)
    try:
        if len(content) > LARGE:
            return await asyncio.to_thread(json.loads, content)
        return json.loads(content)
    except (ValueError, RecursionError):
        shown = content[:80].decode("utf-8", "replace")
        raise UpstreamError(f"the reply is not JSON but {shown!r}", retryable=True) from None


def connection_error(error: Exception, *, retryable: bool = True) -> UpstreamError:
    """Why there was no reply, in words that name neither host nor port; those are in the detail.

    Where no connection came about, nothing was generated, and it need not be `retryable`.
    """
    unreached = isinstance(error, aiohttp.ClientConnectorError)
    text = f"the connection failed: {_cause(error)}"
    made = UpstreamError(text, retryable=retryable or not unreached, unbilled=unreached)
    made.detail = str(error) or type(error).__name__
    return made


def _cause(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "its name could not be resolved"
    if isinstance(error, aiohttp.ClientSSLError):
        return "its certificate could not be verified, or it does not speak TLS"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "the server closed it"
    number = error.errno if isinstance(error, OSError) else None
    return os.strerror(number).lower() if number and number > 0 else type(error).__name__
