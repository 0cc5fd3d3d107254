"""The command that serves: `aera serve`."""

import logging
import os
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from aera.cli.live import (
    CAOption,
    ConcurrencyOption,
    HeaderOption,
    KeyOption,
    ModelOption,
    headers_from,
)
from aera.errors import UsageError


def serve(
    upstream: Annotated[
        list[str],
        typer.Option(envvar="AERA_UPSTREAM", help="Server, up to /v1; again for each replica."),
    ],
    model: ModelOption,
    controller: Annotated[
        Path | None, typer.Option(envvar="AERA_CONTROLLER", help="Else ASC 0.95 on plain votes.")
    ] = None,
    task: Annotated[
        str, typer.Option(help="How to read replies without a controller.")
    ] = "expression",
    host: Annotated[str, typer.Option(envvar="AERA_HOST", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(envvar="AERA_PORT", help="Which port.")] = 8001,
    vote_by_default: Annotated[
        bool, typer.Option(help="Vote on plain model names too, not only aera/MODEL.")
    ] = False,
    instruction: Annotated[
        bool, typer.Option(help="Append the task's answer instruction to questions.")
    ] = False,
    keys_env: Annotated[
        str, typer.Option(help="Environment variable with the keys clients need, by comma.")
    ] = "AERA_KEYS",
    escalate_to: Annotated[
        str | None, typer.Option(envvar="AERA_ESCALATE_TO", help="URL#MODEL for undecided ones.")
    ] = None,
    log_level: Annotated[
        str, typer.Option(envvar="AERA_LOG_LEVEL", help="info logs a JSON line per request.")
    ] = "info",
    header: HeaderOption = None,
    ca_file: CAOption = None,
    api_key_env: KeyOption = "OPENAI_API_KEY",
    concurrency: ConcurrencyOption = 256,
) -> None:
    """Serve voted answers behind the OpenAI API: ask for aera/MODEL."""
    import uvicorn

    from aera.controller import Controller
    from aera.gateway import default_controller
    from aera.server import Serving, create_app
    from aera.task import get_task
    from aera.upstream import Endpoint

    keys = tuple(key.strip() for key in os.environ.get(keys_env, "").split(",") if key.strip())
    if not keys and not _is_loopback(host):
        raise UsageError(
            f"{host} can be reached from outside, so clients need keys: set {keys_env}, or listen "
            "on 127.0.0.1"
        )
    chosen = Controller.load(controller) if controller else default_controller(get_task(task))

    def endpoint(url: str) -> Endpoint:
        return Endpoint(url, api_key_env, headers_from(header or ()), ca_file, concurrency)

    second = None
    if escalate_to is not None:
        url, found, name = escalate_to.partition("#")
        if not found or not name:
            raise UsageError(f'--escalate-to takes URL#MODEL, but got "{escalate_to}"')
        second = (endpoint(url), name)
    replicas = tuple(endpoint(url) for url in upstream)
    serving = Serving(
        replicas, model, chosen, vote_by_default, instruction, keys, escalation=second
    )
    logging.basicConfig(format="%(asctime)s %(message)s", level=log_level.upper())
    console = Console(stderr=True)
    console.print(
        f"AERA on http://{host}:{port}/v1 for {', '.join(upstream)}, policy {chosen.policy}"
    )
    console.print(f'ask for "aera/{model}"; the page is at http://{host}:{port}/', highlight=False)
    uvicorn.run(create_app(serving), host=host, port=port, log_level="warning", access_log=False)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
