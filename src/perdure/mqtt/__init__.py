"""The wire protocol, MQTT 3.1.1 and 5.0, without I/O: bytes in, packets out, and back.

- ``packets``: the values; ``reason_codes``: their reasons.
- ``decode``: bytes -> packets; ``encode``: packets -> bytes.
- ``aliases``: topic aliases of one connection.
- ``client_protocol``: a whole client, for the command line, the bench tool and tests.
"""
