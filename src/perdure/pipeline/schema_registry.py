"""Fetches schemas by their numbers from a schema registry (Confluent's HTTP interface)."""

from __future__ import annotations

import base64
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Final

import msgspec

from perdure.errors import StorageUnavailable
from perdure.payloads.schemas import Fetch
from perdure.pipeline.payload_rules import Rule

TIMEOUT_S: Final = 10
SCHEMA_BYTES_MAX: Final = 4 * 1024 * 1024


class _Answer(msgspec.Struct):
    schema: str
    schemaType: str = "AVRO"


def fetcher(rule: Rule) -> Fetch:
    """Who fetches for a rule."""

    def fetch(number: int) -> str:
        request = urllib.request.Request(  # noqa: S310 - checked where the rule was made
            f"{rule.registry.rstrip('/')}/schemas/ids/{number}",
            headers={"Accept": "application/vnd.schemaregistry.v1+json"},
        )
        if rule.registry_auth:
            word = base64.b64encode(rule.registry_auth.encode()).decode()
            request.add_header("Authorization", f"Basic {word}")
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:  # noqa: S310
                answer = msgspec.json.decode(response.read(SCHEMA_BYTES_MAX), type=_Answer)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 404:
                raise KeyError(f"the registry has no schema {number}") from None
            raise StorageUnavailable(
                f"schema registry {rule.registry} answered {error.code}"
            ) from None
        except (OSError, HTTPException, ValueError) as error:
            # Some of them have no text.
            reason = str(error) or type(error).__name__
            raise StorageUnavailable(f"schema registry {rule.registry}: {reason}") from None
        if answer.schemaType != "AVRO":
            raise KeyError(f"schema {number} is {answer.schemaType}, and Avro was declared")
        return answer.schema

    return fetch
