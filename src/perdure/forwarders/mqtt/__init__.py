"""The bridge: another MQTT broker as the target, as the source, or both, over one connection.

Out, the forwarder's session is the sending side of an MQTT session at the other broker: the pure
``session.outbound`` numbers what is sent, so that after any crash the same message has the same
packet identifier, and QoS 2 is once wherever the other broker keeps our session. In, identifiers of
QoS 2 are stored in the batch of their message, and acknowledgements leave when that is durable.
"""
