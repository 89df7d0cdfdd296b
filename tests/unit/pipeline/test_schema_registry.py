"""A schema registry that answers what it should not: it is waited for, as one that is away."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

pytest.importorskip("pyarrow")

from perdure.errors import StorageUnavailable
from perdure.pipeline.payload_rules import Rule
from perdure.pipeline.schema_registry import fetcher


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """A server that says one thing to one request, and its address."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        thread.join()


@pytest.mark.parametrize(
    "answer",
    [
        b"no HTTP at all\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{",
        b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
        b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n",
        b"",
    ],
)
def test_an_answer_that_is_none(answer: bytes) -> None:
    with answering(answer) as url, pytest.raises(StorageUnavailable, match="schema registry"):
        fetcher(Rule("#", "avro", registry=url))(1)
