"""Reads payloads of rows as their topics' rules say."""

from __future__ import annotations

from typing import Any, final

from perdure.payloads.values import Undecodable
from perdure.pipeline.payload_rules import Decoders, Rule
from perdure.pipeline.schema_registry import fetcher


@final
class PayloadReader:
    """Decodes the payloads of batches.

    Args:
        rules: the first that matches a topic holds; JSON, if none does.
    """

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        self._decoders = Decoders(rules, fetcher)

    def read(self, rows: Any) -> tuple[list[object], int]:
        """What the payloads of a batch say, None for nothing, and how many are not as declared.

        Raises:
            StorageUnavailable: a schema registry cannot be reached.
        """
        topics = rows.column("topic").dictionary_encode()
        rules = [self._decoders.rule(topic) for topic in topics.dictionary.to_pylist()]
        types = rows.column("content_type").to_pylist()
        decoded: list[object] = []
        failed = 0
        payloads = rows.column("payload").to_pylist()
        for index, payload, kind in zip(topics.indices.to_pylist(), payloads, types, strict=True):
            rule = rules[index]
            try:
                decoded.append(self._decoders.decode(rule, payload, kind))
            except Undecodable:
                decoded.append(None)
                # Without a rule nobody said that it should be JSON.
                failed += rule is not None and rule.kind != "detect"
        return decoded, failed
