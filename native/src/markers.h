/* Markers of kafka-mq-go (V1), which are small protobuf messages. Knows no Python. */
#ifndef CURSORQ_MARKERS_H
#define CURSORQ_MARKERS_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    int64_t kind, partition, offset, lease_ms;
} Marker;

/* Decodes a marker in the usual form: fields in ascending order, each at most once, no unknown ones.
 * Returns 0 for any other bytes, which may still be a marker: the caller has a strict decoder for those. */
int marker_decode(const uint8_t *data, size_t size, Marker *marker);

#endif
