"""Choice of a partition by the key, as Kafka's Java producer and Spark's Kafka sink choose it."""

from __future__ import annotations

_SEED, _FACTOR, _SHIFT = 0x9747B28C, 0x5BD1E995, 24
_WORD = 0xFFFFFFFF


def partition_of(key: bytes, partitions: int) -> int:
    """Returns the partition of a key. The hash is murmur2 with Kafka's seed.

    >>> [partition_of(key, 2**31) for key in (b"21", b"foobar", b"a-little-bit-long-string")]
    [1173551340, 1357151166, 1161502112]
    """
    return (_murmur2(key) & 0x7FFFFFFF) % partitions


def _murmur2(data: bytes) -> int:
    length = len(data)
    value = _SEED ^ length
    whole = length - length % 4
    for at in range(0, whole, 4):
        word = _mixed(int.from_bytes(data[at : at + 4], "little"))
        value = (value * _FACTOR & _WORD) ^ word
    if whole < length:
        value = (value ^ int.from_bytes(data[whole:], "little")) * _FACTOR & _WORD
    value = (value ^ value >> 13) * _FACTOR & _WORD
    return value ^ value >> 15


def _mixed(word: int) -> int:
    word = word * _FACTOR & _WORD
    return (word ^ word >> _SHIFT) * _FACTOR & _WORD
