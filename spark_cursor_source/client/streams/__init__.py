"""Streams and named cursors of the plain client, after Liftbridge's client.

Publishing, subscribing, stream settings, and positions under a name. This package imports ``topics``,
``kafka`` and the rooms below. The queues next door do not depend on it.
"""
