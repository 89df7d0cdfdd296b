"""A Kafka topic as the target: a plain record for each message, once.

Each batch is one transaction of one producer, whose transactional id is the forwarder's: a second
writer fences the first, and what that had not committed is gone for whoever reads what is
committed. How far the topic is, is read from its end: the offset of the last of our records there.
"""
