"""What the process is built from: the parts that no running broker shows by itself."""

from __future__ import annotations

import asyncio

import pytest

from perdure.config import Config, Listener, ListenersConfig
from perdure.server.app import TaskWatch, certificate_listeners


async def test_the_first_failure_of_a_task_is_the_one_that_is_raised() -> None:
    watch = TaskWatch()
    waiting = asyncio.ensure_future(watch.run())
    watch.task_failed(ValueError("first"))
    watch.task_failed(ValueError("second"))
    with pytest.raises(ValueError, match="first"):
        await waiting
    watch.close()


async def test_a_watch_that_is_closed_waits_no_longer() -> None:
    watch = TaskWatch()
    waiting = asyncio.ensure_future(watch.run())
    watch.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    watch.task_failed(ValueError("too late"))


def test_certificates_name_users_only_where_that_is_set() -> None:
    named = Listener(
        bind="127.0.0.1:8883",
        certificate="server.pem",
        private_key="server.key",
        username_from_certificate=True,
    )
    plain = Listener(bind="127.0.0.1:8884")
    closed = Listener(bind="127.0.0.1:8885", username_from_certificate=True, enabled=False)
    config = Config(listeners=ListenersConfig(tls=(named, plain), wss=(closed,)))
    assert len(certificate_listeners(config)) == 1
    assert "8883" in certificate_listeners(config)[0]
    assert certificate_listeners(Config()) == []
