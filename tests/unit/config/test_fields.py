"""Fields: annotations become settings."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from perdure.config.fields import MOST, about, field_types, settings
from perdure.config.schema import Config


class Inner(msgspec.Struct, frozen=True):
    """An inner section."""

    wait_ms: Annotated[int, about("How long.", unit="ms", live=True, ge=1, le=9)] = 5
    names: Annotated[tuple[str, ...], about("Which.")] = ("a",)
    token: Annotated[str, about("The secret.", secret=True)] = ""


class Outer(msgspec.Struct, frozen=True):
    """An outer section."""

    mode: Annotated[Literal["x", "y"], about("How.")] = "y"
    one: Inner = Inner()
    many: tuple[Inner, ...] = ()


def test_leaves_are_listed_with_all_they_say() -> None:
    found = {setting.path: setting for setting in settings(Outer)}
    assert list(found)[:3] == ["mode", "one.wait_ms", "one.names"]
    assert "many[].token" in found
    wait = found["one.wait_ms"]
    assert (wait.kind, wait.unit, wait.reload, wait.default) == (int, "ms", "live", 5)
    assert (wait.minimum, wait.maximum) == (1, 9)
    assert wait.description == "How long."
    assert found["mode"].choices == ("x", "y")
    assert found["mode"].reload == "restart"
    assert found["one.token"].secret


def test_shapes_tell_sections_and_lists() -> None:
    shapes = field_types(Outer)
    assert shapes["one"].section is Inner
    assert not shapes["one"].is_list
    assert shapes["many"].section is Inner
    assert shapes["many"].is_list
    names = field_types(Inner)["names"]
    assert (names.section, names.is_list, names.item) == (None, True, str)
    assert field_types(Inner)["wait_ms"].unit == "ms"
    assert shapes["one"].minimum is None


class Base(msgspec.Struct, frozen=True, kw_only=True):
    """What two sections share."""

    last: Annotated[int, about("The last one.")] = 1


class Derived(Base, frozen=True, kw_only=True):
    """A section with more than that."""

    first: Annotated[int, about("The first one.")] = 2


def test_a_sections_own_fields_come_before_those_it_shares() -> None:
    assert list(field_types(Derived)) == ["first", "last"]
    assert [setting.path for setting in settings(Derived)] == ["first", "last"]


def test_every_number_has_bounds() -> None:
    numbers = [each for each in settings(Config) if each.kind is int]
    assert numbers
    for each in numbers:
        assert each.minimum is not None, each.path
        assert each.maximum is not None, each.path
        assert each.maximum <= MOST[each.unit], each.path
        assert each.minimum <= each.default <= each.maximum, each.path


def test_text_has_none() -> None:
    assert about("Which.").le is None
    assert about("How many.", ge=0).le == 2**32 - 1
    assert about("How large.", unit="bytes", ge=0).le == 2**50
    assert about("How many.", ge=0, le=3).le == 3
