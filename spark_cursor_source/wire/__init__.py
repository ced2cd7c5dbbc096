"""Conversion between values of ``core`` and stored bytes: record values, headers, and JSON offsets.

Decoding is strict: bytes that are not surely valid raise an error, and are never taken for an ack. Tests keep
stored bytes of earlier versions readable. This package imports ``core`` and ``errors``.
"""
