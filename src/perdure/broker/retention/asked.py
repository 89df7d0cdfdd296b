"""What a node asks the others for before it drops what they have to look after.

Generations are each node's own business, and what a client is owed of one is not: it may come to
any node. For a client that is connected elsewhere, and a group that is served there, only that node
can say what was sent, so it is asked: to carry over what is owed up to an offset, or to give it up.
It does so whether it drops anything itself or not. Nobody answers: who has asked looks again.

The format is a ``Request`` in JSON. A later release may add fields that have defaults, none else.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol, final

import msgspec

from perdure.model.reserved import RETENTION_PREFIX

if TYPE_CHECKING:
    from perdure.broker.core import BrokerCore


@final
class Request(msgspec.Struct, frozen=True):
    """What is asked for.

    Attributes:
        until_offset: of the log, inclusive.
        gives_up: it is to be lost, and counted; else it is carried over.
    """

    until_offset: int
    gives_up: bool = False


class Tell(Protocol):
    """Tells the other nodes something that nobody keeps (``Notices.tell``)."""

    def __call__(self, prefix: str, name: str, value: bytes) -> None: ...


class Ask(Protocol):
    """Asks the other nodes (``Asked.ask``)."""

    def __call__(self, until_offset: int, *, gives_up: bool) -> None: ...


def ask_nobody(until_offset: int, *, gives_up: bool) -> None:
    """The ``Ask`` of one that is alone."""


@final
class Asked:
    """Asks the other nodes, and has done what they ask for; of several requests the farthest.

    Args:
        core: what every part stands on.
        tell: tells the others.
        serve: does what another node asks for.
    """

    def __init__(
        self,
        core: BrokerCore,
        tell: Tell,
        serve: Callable[[Request], Coroutine[Any, Any, None]],
    ) -> None:
        self._core = core
        self._tell = tell
        self._serve = serve
        self._wanted: dict[bool, int] = {}
        """How far, by whether it is to be given up."""
        self._is_serving = False

    def ask(self, until_offset: int, *, gives_up: bool) -> None:
        """Ask all other nodes, if there are any."""
        peers = self._core.peers
        if peers is not None:
            value = msgspec.json.encode(Request(until_offset, gives_up))
            self._tell(RETENTION_PREFIX, peers.node, value)

    def heard(self, _name: str, value: bytes) -> None:
        """A node has asked."""
        try:
            request = msgspec.json.decode(value, type=Request)
        except ValueError:
            return  # a later release may ask for something else
        before = self._wanted.get(request.gives_up, 0)
        self._wanted[request.gives_up] = max(before, request.until_offset)

    def settle(self) -> None:
        """Begin, unless that goes on already."""
        if self._wanted and not self._is_serving:
            self._is_serving = True
            self._core.scheduler.spawn(self._run(), name="retention for others")

    async def _run(self) -> None:
        try:
            while self._wanted:
                gives_up = next(iter(self._wanted))
                await self._serve(Request(self._wanted.pop(gives_up), gives_up))
        finally:
            self._is_serving = False
