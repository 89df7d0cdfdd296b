"""Decides by an ACL file (``acl_rules``), and remembers what it has decided."""

from __future__ import annotations

from typing import Final, final

from perdure.broker.auth.acl_rules import Access, AclRules
from perdure.broker.auth.authorize import Authorizer, Identity, is_audit_topic, is_own_topic

DECISIONS_MAX: Final = 256
"""Topics remembered for each identity and direction; a client uses few, a scan gains nothing."""

DECISION_BYTES: Final = 160
"""What a remembered decision takes besides the topic's characters: the string and its place in a
dict that grows by doubling."""

CACHE_BYTES: Final = 16 * 1024 * 1024
"""Decisions remembered over all identities, unless it is said otherwise: about 80,000 of them."""

_NO_RULES: Final = AclRules((), {}, ())
"""For a login that comes with rules where there is no file."""


@final
class AclAuthorizer(Authorizer):
    """Decides by the lines of an ACL file; without one, as ``AllowAll`` does.

    Args:
        rules: the file; None = there is none.
        cache_bytes: bound of what is remembered, over all identities; all of it is forgotten when
            it is reached.
        grants: logins may come with rules of their own (``grant``).
    """

    __slots__ = ("_cache_bytes_max", "_filled", "_generation", "_grants", "_rules", "cache_bytes")

    def __init__(
        self, rules: AclRules | None, *, cache_bytes: int = CACHE_BYTES, grants: bool = False
    ) -> None:
        super().__init__(allow_all=rules is None and not grants)
        self._grants = grants
        self._rules: AclRules | None = rules
        self._generation: int = 0
        self._cache_bytes_max: int = cache_bytes
        self.cache_bytes: int = 0
        """What the remembered decisions take, those of identities that have gone included."""
        # Who has remembered something since all was forgotten last. It keeps what it names alive,
        # so that everything that is counted here can also be given back.
        self._filled: dict[Access, None] = {}

    @property
    def generation(self) -> int:
        """Grows with each ``reload``."""
        return self._generation

    def reload(self, rules: AclRules | None, *, cache_bytes: int = CACHE_BYTES) -> None:
        """Decide by other rules from now on; remembered decisions are void."""
        self._rules = rules
        self._cache_bytes_max = cache_bytes
        self._forget()
        self.mute(self._muted)
        self._generation += 1

    def has_rules(self) -> bool:
        """Whether there is a file, or may be a grant."""
        return self._rules is not None or self._grants

    def publish(self, identity: Identity, topic: str) -> bool:
        """Whether the client may publish to the topic."""
        rules = self._rules_for(identity)
        if rules is None:
            return not is_own_topic(topic)
        access = identity.access
        if not isinstance(access, Access) or access.rules is not rules:
            access = identity.access = rules.access(identity)
        decisions = access.publish
        decision = decisions.get(topic)
        if decision is None:
            decision = not is_own_topic(topic) and access.may_write(topic)
            self._remember(access, decisions, topic, decision)
        return decision

    def subscribe(self, identity: Identity, topic_filter: str) -> bool:
        """Whether the subscription can ever yield something; ``deliver`` decides on each."""
        rules = self._rules_for(identity)
        if rules is None:
            return identity.superuser or not is_audit_topic(topic_filter)
        access = identity.access
        if not isinstance(access, Access) or access.rules is not rules:
            access = identity.access = rules.access(identity)
        return access.may_read_some(topic_filter)

    def deliver(self, identity: Identity, topic: str, publisher: str = "") -> bool:
        """Whether a message on the topic may go to the client."""
        if publisher in self._muted:
            return False
        rules = self._rules_for(identity)
        if rules is None:
            return identity.superuser or not is_audit_topic(topic)
        access = identity.access
        if not isinstance(access, Access) or access.rules is not rules:
            access = identity.access = rules.access(identity)
        decisions = access.deliver
        decision = decisions.get(topic)
        if decision is None:
            decision = access.may_read(topic)
            self._remember(access, decisions, topic, decision)
        return decision

    def _rules_for(self, identity: Identity) -> AclRules | None:
        """The lines that are asked about a client, its grant beside them; None = it may all."""
        if identity.superuser:
            return None
        rules = self._rules
        return _NO_RULES if rules is None and identity.grant is not None else rules

    def _remember(
        self, access: Access, decisions: dict[str, bool], topic: str, decision: bool
    ) -> None:
        size = len(topic) + DECISION_BYTES
        if self.cache_bytes + size > self._cache_bytes_max:
            self._forget()
            if size > self._cache_bytes_max:
                return
        if len(decisions) >= DECISIONS_MAX:
            # They stay counted until all is forgotten: the bound errs on the side of less.
            decisions.clear()
        decisions[topic] = decision
        self.cache_bytes += size
        self._filled[access] = None

    def _forget(self) -> None:
        for access in self._filled:
            access.publish.clear()
            access.deliver.clear()
        self._filled.clear()
        self.cache_bytes = 0
