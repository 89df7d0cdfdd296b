"""Wills: published when they are due, if their session's owner may still publish there."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import msgspec

from perdure.broker.auth.authorize import Identity
from perdure.model import Message, SessionRecord
from perdure.observe.instruments import add
from perdure.session.will import will_message

if TYPE_CHECKING:
    from perdure.broker.access.ban_enforcer import BanEnforcer
    from perdure.broker.core import BrokerCore
    from perdure.broker.publish.path import PublishPath


@final
class WillPublisher:
    """Publishes wills.

    Args:
        core: what every part stands on.
        ban_enforcer, publish_path: what else it uses.
    """

    def __init__(
        self, core: BrokerCore, *, ban_enforcer: BanEnforcer, publish_path: PublishPath
    ) -> None:
        self._core = core
        self._ban_enforcer: BanEnforcer = ban_enforcer
        self._publish_path: PublishPath = publish_path

    def publish(self, record: SessionRecord, identity: Identity | None = None) -> Message | None:
        """Publish the will of a session now, as part of the open batch; returns it, None if it may
        not be published.

        Rights are asked again: between the CONNECT and this its user may have been removed or
        banned, or the topic been withdrawn.

        Args:
            record: the session.
            identity: who held it until now; None = nobody did.
        """
        core = self._core
        will, client_id = record.will, record.client_id
        assert will is not None
        if self._ban_enforcer.mutes(client_id):
            why = "banned"
        elif not self._may_publish(record, will.topic, identity):
            why = "not authorized"
        elif will.qos and self._publish_path.refusal():
            why = "storage is full or not available"
        else:
            why = ""
        if why:
            core.log.warning("will.refused", client_id=client_id, topic=will.topic, reason=why)
            return None
        if will.retain:
            limit = self._publish_path.retained_room.refuses(
                will.topic, will.payload, will.properties
            )
            if limit:
                add(core.metrics.limit_refusals, (limit,))
                will = msgspec.structs.replace(will, retain=False)
        core.metrics.wills_published += 1
        if core.peers is not None:
            self._publish_path.speaks(record)
        pipeline = core.pipeline
        message = will_message(will, client_id, pipeline.now_us, pipeline.published_us())
        self._publish_path.take(message)
        core.pipeline.schedule()
        return message

    def _may_publish(
        self, record: SessionRecord, topic: str, identity: Identity | None = None
    ) -> bool:
        """Whether the owner of a session may publish to a topic now, with a connection
        (``identity``) or without."""
        core = self._core
        username = record.username or None
        if not core.standing.stands(username, record.method):
            return False
        if self._ban_enforcer.bans_user(username):
            return False
        authorizer = core.authorizer
        if authorizer.allow_all and topic[0] != "$":
            return True
        if identity is None:
            superuser = core.standing.is_superuser(username)
            identity = Identity(
                record.client_id,
                username,
                superuser,
                method=record.method,
                grant=core.standing.grant_without_login(record.method),
            )
        return authorizer.publish(identity, topic)
