"""Object storage on this machine: moto's server, which speaks S3 on a real port."""

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.request import Request, urlopen

Address = Callable[[str], str]
"""The URI of a name in the bucket."""
SECRET = "hush"


@contextmanager
def served_bucket() -> Iterator[Address]:
    """An empty bucket, for as long as the block lasts."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=quiet, stderr=quiet) as server:
        try:
            _wait_for(port)
            urlopen(Request(f"http://127.0.0.1:{port}/bucket", method="PUT")).close()
            settings = f"endpoint_override=127.0.0.1:{port}&scheme=http"
            yield lambda name: f"s3://key:{SECRET}@bucket/{name}?{settings}"
        finally:
            server.terminate()


def _wait_for(port: int) -> None:
    patience = time.monotonic() + 30
    while time.monotonic() < patience:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError("the storage does not listen")
