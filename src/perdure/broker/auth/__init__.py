"""Who a client is (``authenticate``) and what it may do (``authorize``).

The rest of the broker knows the two Protocols and the values that pass through them; ``server``
alone picks the implementations.
"""

from perdure.broker.auth.authenticate import (
    AnonymousPolicy,
    Authenticator,
    AuthRequest,
    AuthResult,
    AuthState,
    AuthStep,
    EnhancedMethod,
    EnhancedMethods,
)
from perdure.broker.auth.authorize import AllowAll, Authorizer, Identity

__all__ = [
    "AllowAll",
    "AnonymousPolicy",
    "AuthRequest",
    "AuthResult",
    "AuthState",
    "AuthStep",
    "Authenticator",
    "Authorizer",
    "EnhancedMethod",
    "EnhancedMethods",
    "Identity",
]
