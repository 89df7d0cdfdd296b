"""Filters of a list, from the URL to a request."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from starlette.requests import Request

from perdure.web.problems import ApiError

T = TypeVar("T")


def given(request: Request, *names: str) -> dict[str, str]:
    """The named parameters of the query; empty where there are none."""
    return {name: request.query_params.get(name, "") for name in names}


def asked(kind: type[T], fields: dict[str, Any]) -> T:
    """A request of those fields that are not empty.

    Raises:
        ApiError: one of them cannot be taken.
    """
    try:
        return msgspec.convert(
            {name: value for name, value in fields.items() if value != ""}, kind, strict=False
        )
    except msgspec.ValidationError as error:
        raise ApiError("bad_request", str(error)) from error
