"""``make hostile``: what well-behaved clients notice while one client attacks the broker.

Each attack is a process of its own against a freshly started broker with its defaults; beside it
100 clients send 1,000 messages a second. What is promised: the broker lives, these clients see
p99 under 100 ms and lose nothing, and the broker's memory grows by less than 64 MiB.
"""
