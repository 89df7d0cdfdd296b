"""The table of storage backends holds what its readers take for granted."""

from __future__ import annotations

import typing

import pytest

from perdure.config.backends import BACKENDS, load
from perdure.config.schema import StorageConfig
from perdure.errors import ConfigError


@pytest.mark.parametrize("name", BACKENDS)
def test_what_a_line_names_is_there(name: str) -> None:
    backend = BACKENDS[name]
    assert bool(backend.opens) != bool(backend.driver)
    if backend.driver:
        section = StorageConfig(backend=name).server
        assert load(name, backend.driver).configured(section, "me").place
        assert section.url.partition("://")[0] in backend.schemes
    else:
        assert callable(load(name, backend.opens))


def test_the_configuration_takes_these_names_and_no_others() -> None:
    hint = typing.get_type_hints(StorageConfig, include_extras=False)["backend"]
    assert typing.get_args(hint) == tuple(BACKENDS)


def test_an_extra_that_is_missing_is_named() -> None:
    with pytest.raises(ConfigError) as caught:
        load("redis", "no_such_package_here.driver:Driver")
    assert "no_such_package_here" in caught.value.message
    assert caught.value.hint == "pip install 'perdure[redis]'"


def test_an_error_of_ours_is_not_taken_for_a_missing_extra() -> None:
    with pytest.raises(ModuleNotFoundError):
        load("redis", "perdure.storage.none:Driver")
