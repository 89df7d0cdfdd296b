"""What a node refuses to begin with."""

from __future__ import annotations

import pytest

from perdure.config.load import load
from perdure.errors import ConfigError
from perdure.server.cluster_start import check_packets

RECORD_BYTES = 64 * 1024
MOST = RECORD_BYTES * 128


@pytest.mark.parametrize("size", [MOST, MOST + 1])
def test_every_message_that_clients_may_send_must_fit_into_the_log(size: int) -> None:
    config = load(environ={}, sets=[f"mqtt.packet_size_max={size}"]).config
    if size <= MOST:
        check_packets(config, RECORD_BYTES)
        return
    with pytest.raises(ConfigError, match="8388609 bytes, and the log takes 8388608") as refused:
        check_packets(config, RECORD_BYTES)
    assert refused.value.path == "mqtt.packet_size_max"
    assert "max.message.bytes" in refused.value.hint
