"""The models of a gateway by their names: which of them a request is for, and their list."""

import json
from typing import Any

import aiohttp
from starlette.responses import Response
from starlette.types import Receive, Scope

from aera.errors import UpstreamError, UsageError
from aera.gateway.openai import DeniedError, Json
from aera.gateway.proxy import DisconnectWatch, forward_request, parse_large
from aera.gateway.request import PREFIX, write_body
from aera.gateway.serving import SERVING, OpenModel
from aera.sampling.exchange import read_reply

MODELS = "/v1/models"
LISTED = {"object": "model", "created": 0, "owned_by": "aera"}
"""Fields of a model in the list of models."""


async def list_models(scope: Scope, receive: Receive) -> Response:
    """The models that may be asked for, each also under the name that votes."""
    serving, client = scope[SERVING], scope["aera.client"]
    told = [] if serving.plain else list(serving.models)  # all are the upstream's own names
    listed: list[dict[str, Any]] = [{"id": name, **LISTED} for name in told]
    if serving.others is not None:
        status, kind, content = await fetch(scope, receive, serving.others)
        try:
            data = json.loads(content)["data"]
            listed += [model for model in data if model["id"] not in told]
        except (ValueError, KeyError, TypeError):
            if not told:
                return Response(content, status, media_type=kind)
    if client.models:
        listed = [model for model in listed if model["id"] in client.models]
    plain = [model for model in listed if not str(model["id"]).startswith(PREFIX)]
    voting = [{**model, "id": f"{PREFIX}{model['id']}"} for model in plain]
    return Json({"object": "list", "data": [*listed, *voting]})


async def route_body(scope: Scope, content: bytes) -> tuple[OpenModel, bytes]:
    """The model that a request on some route is for, and the request in that server's words."""
    serving, client = scope[SERVING], scope["aera.client"]
    body: dict[str, Any] = {}
    if not serving.plain or client.models:
        try:
            body = await parse_large(content) if content else {}
        except DeniedError:
            raise
        except UsageError:
            pass  # what it is instead is for the upstream to say
    name = body.get("model")
    if not isinstance(name, str):
        return serving.find(serving.default, client), content
    model = serving.find(name, client)
    theirs = model.translate(name)
    return model, content if theirs == name else write_body({**body, "model": theirs})


async def fetch(scope: Scope, receive: Receive, model: OpenModel) -> tuple[int, str, bytes]:
    """What an upstream says, read to its end: status, type and content."""
    proxied, upstream = forward_request(scope, b""), model.upstream(scope["headers"])
    async with DisconnectWatch(receive):
        reply, place = await upstream.send(proxied)
        try:
            content = await read_reply(reply, model.served.upstreams[0].largest_reply)
        except (aiohttp.ClientError, OSError):
            raise UpstreamError("the model server broke off", status=502) from None
        finally:
            reply.close()
            upstream.release(place)
    return reply.status, reply.content_type, content
