"""What a request has proved, for those who ask later whether it still holds."""

from __future__ import annotations

from typing import final

import msgspec

from perdure.admin.rights import Principal


@final
class Proof(msgspec.Struct, frozen=True):
    """Somebody who has proved who they are.

    Attributes:
        principal: who.
        login: digest of the login (``logins``); empty for what is no login.
        generation: of the user, when the login began.
        until_s: Unix time at which the login ends in any case; 0 = it does not say.
    """

    principal: Principal
    login: str = ""
    generation: int = 0
    until_s: int = 0
