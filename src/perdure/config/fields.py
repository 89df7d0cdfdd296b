"""What a setting says about itself: description, unit, reload, and how to list all of them.

A field of a section is ``Annotated[type, about(...)]``. This module turns a section class into
``Setting`` values; the loader, ``perdure config`` and the reference page all read those, so that
a setting is described in one place. It knows no section by name.
"""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias, final

import msgspec

Unit: TypeAlias = Literal["", "s", "ms", "us", "bytes", "address", "path"]
"""What a value is measured in; durations and sizes are ints in this unit."""

MOST: Final[Mapping[Unit, int]] = {
    "": 0xFFFF_FFFF,
    "s": 0xFFFF_FFFF,
    "ms": 0xFFFF_FFFF,
    "us": 0xFFFF_FFFF,
    "bytes": 2**50,
}
"""Greatest value of a number that has no bound of its own, by unit: more is a slip of the hand, and
what is computed from it still fits into 64 bits."""

Reload: TypeAlias = Literal["live", "restart"]


def about(
    description: str,
    *,
    unit: Unit = "",
    live: bool = False,
    secret: bool = False,
    ge: int | None = None,
    le: int | None = None,
) -> msgspec.Meta:
    """The annotation of a setting.

    Args:
        description: one or two sentences for an operator.
        unit: how text such as ``30s`` or ``64MiB`` is read, and the unit of the result.
        live: takes effect at a reload (SIGHUP), without a restart.
        secret: never shown or logged.
        ge: least value allowed; every number has one.
        le: greatest value allowed; None = that of ``MOST``, for a number.
    """
    if ge is not None and le is None:
        le = MOST[unit]
    reload: Reload = "live" if live else "restart"
    return msgspec.Meta(
        description=description,
        ge=ge,
        le=le,
        extra={"unit": unit, "reload": reload, "secret": secret},
    )


@final
class Setting(msgspec.Struct, frozen=True):
    """One leaf of the configuration.

    Attributes:
        path: dotted path; a list of sections is marked ``[]`` (``listeners.tcp[].bind``), sections
            by name the type of one (``forwarders.<mqtt>.url``).
        kind: the plain type: bool, int, str or list.
        choices: the only values allowed; empty = any.
        default: as the section declares it.
        description, unit, reload, secret: see ``about``.
        minimum, maximum: bounds, or None.
    """

    path: str
    kind: type
    choices: tuple[str, ...]
    default: Any
    description: str
    unit: Unit
    reload: Reload
    secret: bool
    minimum: int | None
    maximum: int | None


@final
class FieldType(msgspec.Struct, frozen=True):
    """The shape of one field's annotation.

    Attributes:
        section: the Struct class, if the field is a section or a list of sections.
        is_list: the field holds a list.
        kind: plain type of a leaf (bool, int, str, list).
        item: type of a list's items; the kind itself otherwise.
        choices: of a ``Literal``.
        meta: the annotation made by ``about``, or None.
        variants: the field holds sections by name, each of the class that its ``type`` names.
    """

    section: type[msgspec.Struct] | None
    is_list: bool
    kind: type
    item: type
    choices: tuple[str, ...]
    meta: msgspec.Meta | None
    variants: Mapping[str, type[msgspec.Struct]] = {}

    @property
    def unit(self) -> Unit:
        """Unit of the value."""
        unit: Unit = (self.meta.extra or {}).get("unit", "") if self.meta else ""
        return unit

    @property
    def secret(self) -> bool:
        """Whether the value is never shown."""
        return bool((self.meta.extra or {}).get("secret", False)) if self.meta else False

    @property
    def minimum(self) -> int | None:
        """Least value allowed."""
        return None if self.meta is None or self.meta.ge is None else int(self.meta.ge)

    @property
    def maximum(self) -> int | None:
        """Greatest value allowed."""
        return None if self.meta is None or self.meta.le is None else int(self.meta.le)


@functools.cache
def field_types(section: type[msgspec.Struct]) -> dict[str, FieldType]:
    """The shape of each field of a section: its own as declared, then those it shares."""
    hints = typing.get_type_hints(section, include_extras=True)
    own = inspect.get_annotations(section)
    names = sorted(section.__struct_fields__, key=lambda name: name not in own)
    return {name: _shape(hints[name]) for name in names}


def _shape(hint: Any) -> FieldType:
    meta: msgspec.Meta | None = None
    if typing.get_origin(hint) is Annotated:
        hint, *extras = typing.get_args(hint)
        meta = next((extra for extra in extras if isinstance(extra, msgspec.Meta)), None)
    origin = typing.get_origin(hint)
    if origin is Literal:
        return FieldType(None, False, str, str, tuple(typing.get_args(hint)), meta)
    if origin is tuple:
        item = typing.get_args(hint)[0]
        section = item if isinstance(item, type) and issubclass(item, msgspec.Struct) else None
        return FieldType(section, True, list, item, (), meta)
    if origin is dict:
        item = typing.get_args(hint)[1]
        kinds = typing.get_args(item) or (item,)
        variants = {str(kind.__struct_config__.tag): kind for kind in kinds}
        return FieldType(None, False, dict, item, (), meta, variants)
    assert isinstance(hint, type), f"unsupported annotation {hint!r}"
    assert not isinstance(hint, types.GenericAlias), f"unsupported annotation {hint!r}"
    section = hint if issubclass(hint, msgspec.Struct) else None
    return FieldType(section, False, hint, hint, (), meta)


def settings(section: type[msgspec.Struct], prefix: str = "") -> Iterator[Setting]:
    """All leaves below a section, in declared order."""
    defaults = section()
    for name, shape in field_types(section).items():
        path = f"{prefix}.{name}" if prefix else name
        if shape.section is not None:
            yield from settings(shape.section, f"{path}[]" if shape.is_list else path)
            continue
        if shape.variants:
            for tag, variant in shape.variants.items():
                yield from settings(variant, f"{path}.<{tag}>")
            continue
        assert shape.meta is not None, f"{path} has no description"
        extra = shape.meta.extra or {}
        yield Setting(
            path=path,
            kind=shape.kind,
            choices=shape.choices,
            default=getattr(defaults, name),
            description=shape.meta.description or "",
            unit=shape.unit,
            reload=extra.get("reload", "restart"),
            secret=shape.secret,
            minimum=shape.minimum,
            maximum=shape.maximum,
        )
