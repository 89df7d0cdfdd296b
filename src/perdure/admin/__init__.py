"""The administration of a running broker as records: what can be asked, who may ask it.

One table (``table.OPERATIONS``) says each operation's name, request, result, right and HTTP route.
The socket server, the command line and the HTTP interface read it; none of them has requests of its
own. Nothing here knows a broker: ``server.administration`` answers.
"""
