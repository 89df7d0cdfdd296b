"""Whatever packet is encoded is decoded the same, both versions, both directions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from perdure.model import Will
from perdure.mqtt import packets as p
from perdure.mqtt.encode import encode, forward_properties, properties_from_forward
from perdure.mqtt.packets import EMPTY, Packet, Properties, Publish, SubscribeFilter
from perdure.mqtt.properties import FLAG, TABLE, TEXT, UINT16, UINT32, WILL, PropertySpec
from perdure.mqtt.reason_codes import FROM_CLIENT, FROM_SERVER
from tests.unit.mqtt.feeding import decoded

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
# What names something holds no control characters and no non-characters (``name_of``).
names = st.text(st.characters(exclude_categories=["Cs", "Cc", "Cn"]), max_size=20)
topics = names.filter(lambda name: name and not set(name) & {"+", "#"})
filters = names.filter(bool)
blobs = st.binary(max_size=200)
packet_ids = st.integers(1, 65_535)
pairs = st.lists(st.tuples(texts, texts), min_size=1, max_size=3).map(tuple)


def _value(spec: PropertySpec) -> st.SearchStrategy[object]:
    low = 1 if spec.nonzero else 0
    if spec.name == "user_properties":
        return pairs
    if spec.name == "subscription_identifiers":
        return st.tuples(st.integers(1, 268_435_455))
    if spec.name == "response_topic":
        return topics
    if spec.type == FLAG:
        return st.integers(0, 1)
    if spec.type == UINT16:
        return st.integers(low, 0xFFFF)
    if spec.type == UINT32:
        return st.integers(low, 0xFFFF_FFFF)
    return texts if spec.type == TEXT else blobs


def properties(kind: int, *without: str) -> st.SearchStrategy[Properties]:
    """Properties that this packet may carry, ``EMPTY`` among them."""
    values = {s.name: _value(s) for s in TABLE if kind in s.kinds and s.name not in without}
    made = st.fixed_dictionaries({}, optional=values).map(lambda kw: Properties(**kw))  # type: ignore[arg-type]
    if kind in (p.CONNECT, p.CONNACK):
        return made.map(_without_stray_auth_data)
    return made


def _without_stray_auth_data(made: Properties) -> Properties:
    if made.authentication_method is None:
        made.authentication_data = None
    return made


def _reasons(kind: int, *, from_client: bool) -> st.SearchStrategy[int]:
    allowed = FROM_CLIENT if from_client else FROM_SERVER
    return st.sampled_from(sorted(code for code, packet in allowed if packet == kind))


forwards = properties(
    p.PUBLISH, "message_expiry_interval", "topic_alias", "subscription_identifiers"
)


@st.composite
def wills(draw: st.DrawFn, version: int) -> Will:
    """A will, with its properties in 5.0."""
    topic, payload, qos = draw(topics), draw(blobs), draw(st.integers(0, 2))
    if version == 4:
        return Will(topic, payload, qos, draw(st.booleans()))
    return Will(
        topic,
        payload,
        qos,
        draw(st.booleans()),
        draw(forwards.map(forward_properties)),
        draw(st.integers(0, 0xFFFF_FFFF)),
        draw(st.none() | st.integers(0, 0xFFFF_FFFF)),
    )


@st.composite
def connects(draw: st.DrawFn, version: int) -> Packet:
    """CONNECT."""
    username = draw(st.none() | names)
    password = draw(st.none() | blobs) if version == 5 or username is not None else None
    return p.Connect(
        version,
        draw(st.booleans()),
        draw(st.integers(0, 65_535)),
        draw(names),
        username,
        password,
        draw(st.none() | wills(version)),
        draw(properties(p.CONNECT)) if version == 5 else EMPTY,
    )


@st.composite
def publishes(draw: st.DrawFn, version: int, *, from_client: bool) -> Packet:
    """PUBLISH."""
    qos = draw(st.integers(0, 2))
    publish = Publish(
        draw(topics),
        draw(blobs),
        qos,
        draw(st.booleans()),
        draw(st.booleans()) if qos else False,
        draw(packet_ids) if qos else 0,
    )
    if version == 5:
        publish.topic_alias = draw(st.integers(0, 65_535))
        if publish.topic_alias and draw(st.booleans()):
            publish.topic = ""
        publish.expiry_s = draw(st.integers(-1, 0xFFFF_FFFF))
        publish.forward = draw(forwards.map(forward_properties))
        if not from_client:
            publish.identifiers = draw(st.lists(st.integers(1, 268_435_455), max_size=3).map(tuple))
    return publish


@st.composite
def acks(draw: st.DrawFn, version: int) -> Packet:
    """PUBACK, PUBREC, PUBREL or PUBCOMP."""
    kind = draw(st.integers(p.PUBACK, p.PUBCOMP))
    if version == 4:
        return p.Ack(kind, draw(packet_ids))
    carried = draw(st.none() | properties(kind).filter(lambda made: made != EMPTY))
    return p.Ack(kind, draw(packet_ids), draw(_reasons(kind, from_client=True)), carried)


@st.composite
def subscribes(draw: st.DrawFn, version: int) -> Packet:
    """SUBSCRIBE."""
    wanted = []
    for _ in range(draw(st.integers(1, 3))):
        topic_filter, qos = draw(filters), draw(st.integers(0, 2))
        if version == 4:
            wanted.append(SubscribeFilter(topic_filter, qos))
        else:
            no_local = draw(st.booleans()) and not topic_filter.startswith("$share/")
            handling = draw(st.integers(0, 2))
            wanted.append(
                SubscribeFilter(topic_filter, qos, no_local, draw(st.booleans()), handling)
            )
    return p.Subscribe(
        draw(packet_ids), wanted, draw(properties(p.SUBSCRIBE)) if version == 5 else EMPTY
    )


@st.composite
def answers(draw: st.DrawFn, version: int) -> Packet:
    """SUBACK or UNSUBACK."""
    kind = draw(st.sampled_from([p.SUBACK, p.UNSUBACK]))
    if version == 4:
        if kind == p.UNSUBACK:
            return p.Unsuback(draw(packet_ids), [])
        codes = st.sampled_from([0, 1, 2, 0x80])
        return p.Suback(draw(packet_ids), draw(st.lists(codes, min_size=1)))
    reasons = draw(st.lists(_reasons(kind, from_client=False), min_size=1, max_size=5))
    made = p.Suback if kind == p.SUBACK else p.Unsuback
    return made(draw(packet_ids), reasons, draw(properties(kind)))


@st.composite
def endings(draw: st.DrawFn, *, from_client: bool) -> Packet:
    """DISCONNECT of 5.0."""
    without = "server_reference" if from_client else "session_expiry_interval"
    reason = draw(_reasons(p.DISCONNECT, from_client=from_client))
    return p.Disconnect(reason, draw(properties(p.DISCONNECT, without)))


@st.composite
def auths(draw: st.DrawFn, *, from_client: bool) -> Packet:
    """AUTH."""
    carried = draw(properties(p.AUTH))
    if carried.authentication_method is None:
        carried.authentication_method = draw(texts)
    return p.Auth(draw(_reasons(p.AUTH, from_client=from_client)), carried)


@st.composite
def connacks(draw: st.DrawFn, version: int) -> Packet:
    """CONNACK."""
    if version == 4:
        reason = draw(st.integers(0, 5))
        return p.Connack(draw(st.booleans()) and not reason, reason)
    reason = draw(_reasons(p.CONNACK, from_client=False))
    return p.Connack(draw(st.booleans()) and not reason, reason, draw(properties(p.CONNACK)))


def from_client(version: int) -> st.SearchStrategy[Packet]:
    """What a client sends."""
    either = [
        connects(version),
        publishes(version, from_client=True),
        acks(version),
        subscribes(version),
        st.builds(
            p.Unsubscribe,
            packet_ids,
            st.lists(filters, min_size=1, max_size=3),
            properties(p.UNSUBSCRIBE) if version == 5 else st.just(EMPTY),
        ),
        st.builds(p.Pingreq),
    ]
    if version == 5:
        return st.one_of(*either, endings(from_client=True), auths(from_client=True))
    return st.one_of(*either, st.builds(p.Disconnect))


def from_server(version: int) -> st.SearchStrategy[Packet]:
    """What a server sends."""
    either = [
        connacks(version),
        publishes(version, from_client=False),
        acks(version),
        answers(version),
        st.builds(p.Pingresp),
    ]
    if version == 5:
        return st.one_of(*either, endings(from_client=False), auths(from_client=False))
    return st.one_of(*either)


@given(from_client(4))
def test_client_3_1_1(packet: Packet) -> None:
    assert decoded(encode(packet, 4), 4, from_client=True) == [packet]


@given(from_client(5))
def test_client_5_0(packet: Packet) -> None:
    assert decoded(encode(packet, 5), 5, from_client=True) == [packet]


@given(from_server(4))
def test_server_3_1_1(packet: Packet) -> None:
    assert decoded(encode(packet, 4), 4, from_client=False) == [packet]


@given(from_server(5))
def test_server_5_0(packet: Packet) -> None:
    assert decoded(encode(packet, 5), 5, from_client=False) == [packet]


@given(forwards)
def test_forwarded_properties(carried: Properties) -> None:
    assert properties_from_forward(forward_properties(carried)) == carried


def test_the_will_has_a_strategy_for_each_of_its_properties() -> None:
    names = {spec.name for spec in TABLE if WILL in spec.kinds}
    assert names == {
        "payload_format_indicator",
        "message_expiry_interval",
        "content_type",
        "response_topic",
        "correlation_data",
        "will_delay_interval",
        "user_properties",
    }
