"""Short forms say what the long ones do, and the usual ones are short enough for Redis to pack."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from perdure.registry import Channel, DeviceTransport, Keys, filter_id_of
from perdure.registry.packing import lengthen, shorten
from perdure.registry.writes import expiry_entry, parse_expiry

_PART = st.text("ab:0f \x01\x0e\x00é|{}", min_size=1, max_size=20)
_NAMES = st.sampled_from(
    [" subscription:app:", ":filter:", ":partition:", ":model:", "websockets-transport", "9c33"]
)


@given(st.lists(_PART | _NAMES | st.just("0123456789abcdef"), max_size=8))
def test_there_and_back(parts: list[str]) -> None:
    text = "".join(parts).encode()
    assert lengthen(shorten(text)) == text


@given(st.sampled_from(["", "f", filter_id_of("{}"), "0123456789ABCDEF"]), st.booleans())
def test_an_expiry_names_a_subscription(filter_id: str, is_odd: bool) -> None:
    keys = Keys(1024, "x:")
    device = DeviceTransport("pump 7| subscription:app:z" if is_odd else "pump-7", "mqtt")
    key = keys.subscription(Channel("plant", "task", "ada", "9"), filter_id)
    assert parse_expiry(keys, expiry_entry(keys, device, key)) == (device, key)


def test_the_usual_ones_are_short() -> None:
    keys = Keys(1024)
    device = DeviceTransport("device-0000001", "websockets-transport")
    key = keys.subscription(Channel("plant", "task", "user-999"), filter_id_of("{}"))
    assert len(key) + len(str(device)) > 110
    assert len(expiry_entry(keys, device, key)) <= 56
