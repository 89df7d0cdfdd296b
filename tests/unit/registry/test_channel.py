"""Channels and keys, letter by letter as the seed has them."""

from __future__ import annotations

import zlib

import pytest

from perdure.errors import ConfigError
from perdure.registry.channel import (
    Channel,
    DeviceTransport,
    Keys,
    check_device,
    filter_id_of,
    patterns,
)

ALL = Channel("myapp", "task")
ONE = Channel("myapp", "task", model_id="task-456")
OF_USER = Channel("myapp", "task", "user123")
ONE_OF_USER = Channel("myapp", "task", "user123", "task-456")


@pytest.mark.parametrize(
    ("channel", "key"),
    [
        (ALL, "app:myapp:model:task"),
        (OF_USER, "app:myapp:user:user123:model:task"),
        (ONE, "app:myapp:model:task:id:task-456"),
        (ONE_OF_USER, "app:myapp:user:user123:model:task:id:task-456"),
    ],
)
def test_channel_keys(channel: Channel, key: str) -> None:
    assert channel.key == key
    assert Channel.parse(key) == channel


def test_patterns_in_the_order_of_the_seed() -> None:
    assert patterns(ONE_OF_USER) == [ALL, ONE, OF_USER, ONE_OF_USER]
    assert patterns(ONE) == [ALL, ONE]
    assert patterns(OF_USER) == [ALL, OF_USER]
    assert patterns(ALL) == [ALL]


def test_keys_of_one_partition() -> None:
    keys = Keys(1)
    assert keys.subscription(ALL) == b"nxx:subscription:app:myapp:model:task:partition:0"
    assert (
        keys.subscription(ALL, "abc123")
        == b"nxx:subscription:app:myapp:model:task:filter:abc123:partition:0"
    )
    assert keys.filters(ALL) == b"nxx:filters:app:myapp:model:task"
    assert keys.device("device-123") == b"nxx:device:device-123"


def test_the_partition_is_the_crc_of_the_channel_key() -> None:
    """CRC-32 as everybody has it: 0xCBF43926 of ``123456789``."""
    assert zlib.crc32(b"123456789") == 0xCBF43926
    number = zlib.crc32(b"app:myapp:model:task") % 1024
    for key in (Keys().subscription(ALL), Keys().subscription(ALL, "f")):
        assert key.endswith(b":partition:%d" % number)
    assert Keys().parse_subscription(Keys().subscription(ONE_OF_USER, "f")) == (
        ONE_OF_USER.key,
        "f",
        zlib.crc32(ONE_OF_USER.key.encode()) % 1024,
    )


@pytest.mark.parametrize(
    "key",
    ["", "app:a", "app::model:m", "model:m:app:a", "app:a:model:m:id:", "app:a:model:m:id:x:y:z"],
)
def test_what_is_no_channel(key: str) -> None:
    with pytest.raises(ConfigError):
        Channel.parse(key)


def test_devices() -> None:
    device = DeviceTransport("device-123", "websockets-transport")
    assert str(device) == "device-123|websockets-transport"
    assert DeviceTransport.parse("a|b|mqtt") == DeviceTransport("a|b", "mqtt")
    for text in ("", "a", "|mqtt", "a|"):
        with pytest.raises(ConfigError):
            DeviceTransport.parse(text)
    with pytest.raises(ConfigError):
        check_device(DeviceTransport("a", "m|q"))


def test_partitions_and_filters() -> None:
    for partitions in (0, -1, 1 << 21):
        with pytest.raises(ConfigError):
            Keys(partitions)
    assert filter_id_of("{}") == filter_id_of("{}")
    for key in (b"nxx:device:a", b"nxx:subscription:app:a:model:b", b"x:partition:1"):
        with pytest.raises(ConfigError):
            Keys().parse_subscription(key)
