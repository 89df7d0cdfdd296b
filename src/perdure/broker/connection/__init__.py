"""One client's connection: packets in, decisions, packets out."""
