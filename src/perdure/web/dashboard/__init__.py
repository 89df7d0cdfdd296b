"""The dashboard: pages made on the server, a little script for what lives.

A page asks the administration service as the API does, with the rights of whoever looks at it. It
knows no broker and keeps nothing: what it shows was true at the time it says.
"""
