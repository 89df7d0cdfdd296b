"""``perdure bench``: measures any MQTT broker from outside, over real connections.

The room knows the wire and the machine's ``/proc``; it does not know a broker's code, and imports
neither ``broker`` nor ``storage`` nor ``session``, so that it measures every broker alike. The one
exception is ``persistence``, which measures stores instead of brokers.

::

    stamp -> publisher ---\\                     /--- subscriber -> ledger
                           link -- epoll loop --
    pacing (closed, open) /                     \\--- meter, histogram
    scenarios -> runner -> result -> expectations, report, page
    peers -> compare -> record
"""
