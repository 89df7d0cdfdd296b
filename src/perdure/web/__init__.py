"""The HTTP interface, in processes of its own beside the broker's.

A child process answers requests and reads the log as any reader beside the broker does: nothing
of it runs on the broker's loop, shares its memory or can stop it. It knows the data directory and
the admin socket, not the broker. ``docs/adr/0007-http-in-a-process-of-its-own.md`` says why.
"""
