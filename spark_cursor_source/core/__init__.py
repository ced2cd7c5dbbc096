"""The queue protocol as pure rules and values: markers, leases, cursors, batches, the tracker's states.

Nothing here does I/O or asks for the time: callers pass broker times and broker answers in. Decisions come
back as values. It imports ``errors`` only. ``wire`` turns the values into bytes.
"""
