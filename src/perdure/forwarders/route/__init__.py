"""One Spark job that fills the Kafka topics of all applications, and queues of devices on Redis.

A forwarder for each application reads the log once for each; this reads it once for all. The
records, and who may write them, are the forwarder's own: either may go on where the other stopped.
"""
