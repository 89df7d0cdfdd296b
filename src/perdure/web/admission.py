"""Whether somebody who is known may have a route; asked for requests, and for parts of a stream."""

from __future__ import annotations

from perdure.admin.rights import Principal, may, what_is_missing
from perdure.web.problems import ApiError
from perdure.web.routing import WebRoute


def check_may_have(principal: Principal, route: WebRoute) -> None:
    """Refuse a route to whoever may not have it.

    Raises:
        ApiError: the role, the scopes or the topics of the principal do not allow it.
    """
    if route.right is None or route.is_about_asker:
        return
    narrowed = principal.topic_filters and not (route.broker_decides or route.narrows)
    if not may(principal, route.right, route.operation) or narrowed:
        raise ApiError(
            "forbidden",
            f"{principal.name} ({principal.role}) may not have this",
            hint=what_is_missing(principal, route.right, route.operation),
        )
