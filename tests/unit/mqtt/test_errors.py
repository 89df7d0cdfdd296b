"""What a peer does against the protocol has the reason code that the specification gives it."""

from __future__ import annotations

import pytest

from perdure.errors import MqttError
from perdure.mqtt.errors import MalformedPacket, ProtocolViolation


@pytest.mark.parametrize(("error", "code"), [(MalformedPacket, 0x81), (ProtocolViolation, 0x82)])
def test_an_error_tells_its_reason_code(
    error: type[MalformedPacket | ProtocolViolation], code: int
) -> None:
    raised = error("why")
    assert isinstance(raised, MqttError)
    assert (raised.reason_code, raised.message) == (code, "why")
