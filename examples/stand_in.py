"""Recorded responses as a model server: python examples/stand_in.py POOL --port 8000"""

import asyncio
import sys

import uvicorn

from aera import Pool, RecordedUpstream
from aera.gateway.app import Gateway
from aera.gateway.config import Config, ModelConfig, UpstreamConfig


async def main(path: str, port: int) -> None:
    async with RecordedUpstream(Pool.open(path)) as upstream:
        # It listens on a port of its own choice; a gateway that only passes on gives it ours.
        server = UpstreamConfig("recorded", (upstream.base_url,))
        model = ModelConfig("recorded", other_names=True)
        app = Gateway(Config(upstream=(server,), model=(model,)), {})
        await uvicorn.Server(uvicorn.Config(app, port=port, log_level="warning")).serve()


if len(sys.argv) != 4:
    sys.exit(__doc__)
asyncio.run(main(sys.argv[1], int(sys.argv[3])))
