"""Which topics have payloads of which format, and the decoders for them.

Rules travel to tasks with the texts of their schemas in them; a decoder is made where it is used,
once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, final

import msgspec

from perdure.config.schema import PayloadConfig
from perdure.errors import ConfigError, MqttError
from perdure.payloads import schemaless
from perdure.payloads.cbor import cbor
from perdure.payloads.formats import decoder_of_type, mime_type
from perdure.payloads.schemaless import Decoder
from perdure.payloads.schemas import (
    Fetch,
    avro_columns,
    avro_decoder,
    proto_columns,
    proto_decoder,
    registry_decoder,
)
from perdure.payloads.sparkplug import sparkplug
from perdure.payloads.values import Undecodable
from perdure.pipeline.fields import ARROW, column_name
from perdure.pipeline.tables import TableSpec, reserved
from perdure.topic.matching import compile_filter, covers
from perdure.topic.names import validate_topic_filter

LEVELS_MAX: Final = 65_536

KINDS: Final = ("json", "cbor", "msgpack", "csv", "sparkplug", "protobuf", "avro", "detect")

_CSV: Final = schemaless.csv_decoder((), ",")


class Rule(msgspec.Struct, frozen=True):
    """Payloads of some topics.

    Attributes:
        topic: filter.
        kind: one of ``KINDS``.
        schema: text of an Avro schema, or a FileDescriptorSet; empty = none.
        message: full name, for protobuf.
        registry: URL of a schema registry; empty = none.
        registry_auth: ``user:password`` for it, a secret.
        columns: (name, type) of CSV fields; the type may be empty.
        delimiter: of CSV.
    """

    topic: str
    kind: str
    schema: bytes = b""
    message: str = ""
    registry: str = ""
    registry_auth: str = ""
    columns: tuple[tuple[str, str], ...] = ()
    delimiter: str = ","

    def __repr__(self) -> str:
        return f"Rule({self.topic!r}, {self.kind!r})"


def declared(rule: Rule) -> Mapping[str, str]:
    """The columns that a rule's schema declares, which values do not change."""
    if rule.kind == "csv":
        return {name: kind for name, kind in rule.columns if kind}
    if rule.kind == "avro" and rule.schema:
        return avro_columns(rule.schema.decode())
    if rule.kind == "protobuf":
        return proto_columns(rule.schema, rule.message)
    return {}


def declared_for(spec: TableSpec, rules: Sequence[Rule]) -> dict[str, str]:
    """The columns that schemas declare for a table: of every rule whose topics it may have."""
    found: dict[str, str] = {}
    if not spec.has_fields:
        return found
    taken = reserved(spec)
    for rule in rules:
        if covers(rule.topic, spec.filter) or covers(spec.filter, rule.topic):
            for name, kind in declared(rule).items():
                found.setdefault(column_name(name, taken), kind)
    return found


def rule_of(config: PayloadConfig) -> Rule:
    """A rule from its settings, with its schema read and tried.

    Raises:
        ConfigError: something in it cannot be used.
    """
    try:
        if config.format in {"avro", "protobuf"}:
            require(config)
        columns = tuple(_csv_column(text) for text in config.columns)
        schema = Path(config.schema).read_bytes() if config.schema else b""
        validate_topic_filter(config.topic, levels_max=LEVELS_MAX)
        rule = Rule(
            config.topic,
            config.format,
            schema,
            config.message,
            config.registry,
            config.registry_auth,
            columns,
            config.delimiter,
        )
        declared(rule)
        Decoders([rule], lambda _: lambda number: str(number)).made(rule)
    except (OSError, ValueError, ImportError, MqttError) as error:
        hint = "pip install 'perdure[payloads]'" if isinstance(error, ImportError) else ""
        raise ConfigError(
            f"payloads of {config.topic}: {error}", path="pipeline.payloads", hint=hint
        ) from None
    return rule


def require(config: PayloadConfig) -> None:
    """Refuse a rule without what its format needs.

    Raises:
        ValueError: with what that is.
    """
    if config.format == "protobuf" and not (config.schema and config.message):
        raise ValueError("protobuf needs schema (protoc --include_imports -o FILE) and message")
    if config.format == "avro" and bool(config.schema) == bool(config.registry):
        raise ValueError("avro needs either schema or registry")


def _csv_column(text: str) -> tuple[str, str]:
    name, _, kind = text.partition(":")
    if not name or kind not in {"", *ARROW}:
        raise ValueError(f"column {text!r}: expected name or name:type, one of {', '.join(ARROW)}")
    return name, kind


@final
class Decoders:
    """The decoders of rules.

    Args:
        rules: the first that matches a topic holds; JSON, if none does.
        fetch: makes who fetches schemas of a registry.
    """

    def __init__(self, rules: Sequence[Rule], fetch: Callable[[Rule], Fetch]) -> None:
        self._rules = [(compile_filter(rule.topic), rule) for rule in rules]
        self._fetch = fetch
        self._made: dict[Rule, Decoder] = {}

    def rule(self, topic: str) -> Rule | None:
        """The rule for a topic."""
        return next((rule for wanted, rule in self._rules if wanted.matches(topic)), None)

    def decode(self, rule: Rule | None, payload: bytes, content_type: str | None) -> object:
        """What a payload says.

        Raises:
            Undecodable: it is not what the rule says.
        """
        if rule is None:
            return schemaless.json(payload)
        if rule.kind == "detect":
            return detected(payload, content_type)
        return self.made(rule)(payload)

    def made(self, rule: Rule) -> Decoder:
        """The decoder of a rule, made once."""
        decoder = self._made.get(rule)
        if decoder is None:
            decoder = self._made[rule] = self._make(rule)
        return decoder

    def _make(self, rule: Rule) -> Decoder:
        if rule.kind == "csv":
            return schemaless.csv_decoder([name for name, _ in rule.columns], rule.delimiter)
        if rule.kind == "protobuf":
            return proto_decoder(rule.schema, rule.message, has_header=bool(rule.registry))
        if rule.kind == "avro":
            if rule.registry:
                return registry_decoder(self._fetch(rule))
            return avro_decoder(rule.schema.decode())
        plain: Mapping[str, Decoder] = {
            "json": schemaless.json,
            "cbor": cbor,
            "msgpack": schemaless.msgpack,
            "sparkplug": sparkplug,
            "detect": schemaless.json,
        }
        return plain[rule.kind]


def detected(payload: bytes, content_type: str | None) -> object:
    """What a payload says whose format nobody declared.

    The content type decides, if it is a known one. Else it is JSON, or a CBOR or MessagePack map
    that fills all of the payload: other values of those are found in almost any bytes.

    Raises:
        Undecodable: it is none of them.
    """
    known = _CSV if mime_type(content_type) == "text/csv" else decoder_of_type(content_type)
    if known is not None:
        return known(payload)
    for decoder in (schemaless.json, cbor, schemaless.msgpack):
        try:
            value = decoder(payload)
        except Undecodable:
            continue
        if decoder is schemaless.json or (isinstance(value, dict) and value):
            return value
    raise Undecodable("no format is recognised")
