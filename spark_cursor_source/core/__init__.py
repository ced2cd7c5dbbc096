"""The queue protocol as pure rules and values: markers, leases, cursors, batches and tracker states.

The package does no I/O and reads no clock: callers pass in broker times and broker responses. Decisions are
returned as values. The package imports only ``errors``. ``wire`` turns the values into bytes.
"""
