"""Who a client is (``authenticate``) and what it may do (``authorize``).

The rest of the broker knows the two Protocols and the values that pass through them; ``server``
alone picks the implementations.
"""

from perdure.broker.auth.acl import AclAuthorizer
from perdure.broker.auth.acl_rules import AclRules
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
from perdure.broker.auth.control import AccessControl, AccessFiles, read_files

__all__ = [
    "AccessControl",
    "AccessFiles",
    "AclAuthorizer",
    "AclRules",
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
    "read_files",
]
