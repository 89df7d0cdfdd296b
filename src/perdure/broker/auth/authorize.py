"""The seam of authorisation: what a client may publish, subscribe to and be given.

Holds ``Identity``, the ``Authorizer`` and the one that allows all. It must not know
packets, connections or how a client proved its name.

Invariant: no client publishes below ``$SYS`` and ``$audit``, whatever the rules say; and the latter
is read by superusers, and by others only where a rule names it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final, final

from mypy_extensions import mypyc_attr

_SYS: Final = "$SYS"
_SYS_PREFIX: Final = "$SYS/"
_AUDIT: Final = "$audit"
_AUDIT_PREFIX: Final = "$audit/"


def is_own_topic(topic: str) -> bool:
    """Whether the topic belongs to the broker itself."""
    return topic.startswith((_SYS_PREFIX, _AUDIT_PREFIX)) or topic in (_SYS, _AUDIT)


def is_audit_topic(topic: str) -> bool:
    """Whether a topic, or a topic filter, is of the record of administrators' changes."""
    return topic.startswith(_AUDIT_PREFIX) or topic == _AUDIT


@final
class Identity:
    """Whom an authorizer decides on.

    Attributes:
        client_id: client identifier.
        username: proved user name; None = anonymous.
        superuser: exempt from the ACL.
        method: what proved the user name; ``anonymous`` without one.
        proof: the entry of the credentials file that the client fitted; None = it was no such
            entry. The connection may stay while the entry does.
        access: the authorizer's own cache of decisions for this identity. It lives and dies
            with the identity, so that there is no table of identities to bound or to clean up.
        grant: what the login allows beside the ACL file; None = nothing is said of it.
        expires_us: monotonic time at which the login ends; 0 = never.
        recheck_us: monotonic time at which its method is asked again; 0 = never by itself.
    """

    __slots__ = (
        "access",
        "client_id",
        "expires_us",
        "grant",
        "method",
        "proof",
        "recheck_us",
        "superuser",
        "username",
    )

    def __init__(
        self,
        client_id: str,
        username: str | None = None,
        superuser: bool = False,
        *,
        method: str = "",
        proof: object | None = None,
        grant: object | None = None,
        expires_us: int = 0,
        recheck_us: int = 0,
    ) -> None:
        self.client_id: str = client_id
        self.username: str | None = username
        self.superuser: bool = superuser
        self.method: str = method
        self.proof: object | None = proof
        self.access: object | None = None
        self.grant: object | None = grant
        self.expires_us: int = expires_us
        self.recheck_us: int = recheck_us

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Identity)
            and self.client_id == other.client_id
            and self.username == other.username
            and self.superuser == other.superuser
        )

    def __hash__(self) -> int:
        return hash((self.client_id, self.username, self.superuser))

    def __repr__(self) -> str:
        return f"Identity({self.client_id!r}, {self.username!r}, superuser={self.superuser})"


@mypyc_attr(allow_interpreted_subclasses=True)
class Authorizer(ABC):
    """Decides on topics. Synchronous and quick: it stands in the path of every message.

    Filters come without any ``$share/{group}/`` or ``$replay/{from}/`` prefix.

    Attributes:
        allow_all: all but ``$audit`` may be subscribed and delivered, all but what is the
            broker's own (``is_own_topic``) published, and nobody is
            muted. The hot path then calls the authorizer only for a topic that begins with ``$``.
            It is asked for each message, so it is no property.
    """

    __slots__ = ("_muted", "allow_all")

    def __init__(self, *, allow_all: bool) -> None:
        self._muted: frozenset[str] = frozenset()
        self.allow_all: bool = allow_all

    @property
    @abstractmethod
    def generation(self) -> int:
        """Grows when the rules change; decisions kept elsewhere are void then."""

    @abstractmethod
    def publish(self, identity: Identity, topic: str) -> bool:
        """Whether the client may publish to the topic (also as its will)."""

    @abstractmethod
    def subscribe(self, identity: Identity, topic_filter: str) -> bool:
        """Whether the client may hold the subscription; what it gets is up to ``deliver``."""

    @abstractmethod
    def deliver(self, identity: Identity, topic: str, publisher: str = "") -> bool:
        """Whether a message on the topic may go to the client: live, queued, retained, replay.

        The publisher is a client identifier; empty = the broker itself.
        """

    @abstractmethod
    def has_rules(self) -> bool:
        """Whether anything but the broker's own topics and who is muted is decided on."""

    def mute(self, publishers: frozenset[str]) -> None:
        """From now on nothing of these clients may be delivered, and of all others it may."""
        self._muted = publishers
        self.allow_all = not publishers and not self.has_rules()

    def mutes(self, publisher: str) -> bool:
        """Whether nothing of a client may be delivered."""
        return publisher in self._muted


@final
class AllowAll(Authorizer):
    """No rules: everyone may do everything, except what the module says of the broker's topics."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(allow_all=True)

    @property
    def generation(self) -> int:
        """Never changes."""
        return 0

    def publish(self, identity: Identity, topic: str) -> bool:
        """All but the broker's own."""
        return not is_own_topic(topic)

    def subscribe(self, identity: Identity, topic_filter: str) -> bool:
        """All but ``$audit``, which superusers may have."""
        return identity.superuser or not is_audit_topic(topic_filter)

    def deliver(self, identity: Identity, topic: str, publisher: str = "") -> bool:
        """All but ``$audit`` and what the muted have published."""
        return publisher not in self._muted and self.subscribe(identity, topic)

    def has_rules(self) -> bool:
        """None."""
        return False
