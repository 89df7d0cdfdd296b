"""Properties as a value."""

from __future__ import annotations

from perdure.mqtt.packets import EMPTY, Properties


def test_properties_say_what_is_there() -> None:
    properties = Properties(reason_string="r", maximum_qos=0, user_properties=(("a", "b"),))
    assert properties.present() == {
        "maximum_qos": 0,
        "reason_string": "r",
        "user_properties": (("a", "b"),),
    }
    assert repr(properties) == (
        "Properties(maximum_qos=0, reason_string='r', user_properties=(('a', 'b'),))"
    )


def test_a_copy_can_be_changed_alone() -> None:
    properties = Properties(reason_string="r", receive_maximum=3)
    copy = properties.copy()
    assert copy == properties
    copy.reason_string = None
    assert properties.reason_string == "r"
    assert copy.receive_maximum == 3
    assert Properties() == EMPTY
