"""Who administers a broker: users, API keys, logins and the record of what they changed.

Users, keys and the first setup are in ``identity.db`` of the data directory, logins in a store of
``tokens``. It must not know HTTP. Invariant: no secret is kept that could be presented, only what
it hashes to; and no change is made without its record, which is written in the same transaction.
"""
