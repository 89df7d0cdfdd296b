"""``perdure bench``: measures any MQTT broker from outside, over real connections.

The room knows the wire and the machine's ``/proc``; it does not know a broker's code, so that it
measures every broker alike.

::

    stamp -> publisher ---\\                     /--- subscriber -> ledger
                           link -- epoll loop --
    pacing (closed, open) /                     \\--- meter, histogram
    scenarios -> runner -> result -> expectations, report, page
    peers -> compare -> record
"""
