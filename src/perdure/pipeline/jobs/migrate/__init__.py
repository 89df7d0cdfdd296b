"""Moves the queues of persistent clients from one store to another. Knows no Spark: what runs the
tasks is given to it.

::

    source.plan -> ranges of clients -> tasks: read, write, read back, compare -> ledger

``endpoints`` says what a URL means, ``postgres``, ``redis``, ``queues`` and ``directory`` read,
``directory`` and ``queues`` write, ``task`` is what runs for one range, ``ledger`` remembers what
is done, ``job`` drives it all.

Invariant: a range is in the ledger only when all its clients were written, made durable, read
back and compared. What a run that was killed has written is recognised by the next one, so no
entry comes twice.
"""
