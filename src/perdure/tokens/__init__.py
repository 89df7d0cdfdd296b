"""Opaque tokens that devices, browsers and programs present, and stores of millions of them.

A token says whose it is, until when it holds, for which client identifiers, and what it allows.
``open_tokens`` makes a store: embedded, or on Redis in one of the layouts of the seed (002) or in
``planned``, which takes a sixth of the memory of the first of them.
"""

from perdure.tokens.opening import LAYOUTS, open_tokens
from perdure.tokens.shared_store import SharedStore
from perdure.tokens.store import TokenStore
from perdure.tokens.token import Listed, Token, new_id, parse_id, show_id

__all__ = [
    "LAYOUTS",
    "Listed",
    "SharedStore",
    "Token",
    "TokenStore",
    "new_id",
    "open_tokens",
    "parse_id",
    "show_id",
]
