"""All compute the same owner, and little moves when a member comes or goes."""

from __future__ import annotations

from perdure.storage.ordered.duties import owner_of

NAMES = ["n1", "n2", "n3", "n4"]
DUTIES = [f"group/{number}" for number in range(2000)]


def test_the_owner_does_not_depend_on_the_order_of_names() -> None:
    for duty in DUTIES[:50]:
        assert owner_of(duty, NAMES) == owner_of(duty, reversed(NAMES))


def test_nobody_is_an_owner_where_nobody_is() -> None:
    assert owner_of("sweep", []) == ""
    assert owner_of("sweep", ["only"]) == "only"


def test_each_has_about_its_share() -> None:
    for name in NAMES:
        share = sum(owner_of(duty, NAMES) == name for duty in DUTIES)
        assert 400 < share < 600


def test_who_goes_leaves_all_others_as_they_were() -> None:
    for duty in DUTIES:
        before = owner_of(duty, NAMES)
        after = owner_of(duty, NAMES[1:])
        assert after == before or before == "n1"


def test_the_owners_are_those_of_every_release() -> None:
    """Nodes of two releases have to agree."""
    assert [owner_of(duty, NAMES) for duty in ("expiry", "wills", "retained", "sys")] == [
        "n3",
        "n2",
        "n1",
        "n1",
    ]
