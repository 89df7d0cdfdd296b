"""What a refused request is told of its fields."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from perdure.admin.described import unfit
from perdure.admin.records.messages import Publish
from perdure.admin.table import operation_of


@pytest.mark.parametrize(
    ("fields", "hint"),
    [
        ({"messages": []}, "messages: array, 1 to 1000 items"),
        ({"messages": ["x"]}, "messages: array, 1 to 1000 items"),
        ({}, "messages: array, 1 to 1000 items"),
        ({"topic": "a"}, "it takes messages, idempotency_key"),
        # What the list takes is not what is wrong with a message of it.
        ({"messages": [{"topic": "a", "qos": 3}]}, ""),
    ],
)
def test_the_hint_is_of_the_field_that_is_wrong(fields: dict[str, Any], hint: str) -> None:
    operation = operation_of(Publish)
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(fields, operation.request)
    problem = unfit(operation, caught.value).problem
    assert (problem.code, problem.hint) == ("bad_request", hint)
    assert problem.message == str(caught.value)
