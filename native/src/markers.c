#include "markers.h"

#include <string.h>

enum {
    TYPE = 0x10, MESSAGE_ID = 0x1A, LEASE = 0x20, KEY = 0x2A, VALUE = 0x32, /* protobuf tags of fields 2 to 6 */
    ID_PARTITION = 0x08, ID_OFFSET = 0x10,
    KEEP_ALIVE = 2, /* the last kind */
};

typedef struct {
    const uint8_t *at, *end;
} Reader;

/* Passes a tag if it is the next byte. */
static int pass_tag(Reader *reader, uint8_t tag) {
    if (reader->at == reader->end || *reader->at != tag) {
        return 0;
    }
    reader->at += 1;
    return 1;
}

/* Reads a number below 2^63. 0: it is none. */
static int read_number(Reader *reader, int64_t *number) {
    uint64_t found = 0;
    for (int shift = 0; shift < 63 && reader->at < reader->end; shift += 7) {
        uint8_t byte = *reader->at++;
        found |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *number = (int64_t)found;
            return 1;
        }
    }
    return 0;
}

/* The functions for fields leave the value as it is if the field is missing. 0: the field is invalid. */
static int number_field(Reader *reader, uint8_t tag, int64_t *number) {
    return !pass_tag(reader, tag) || read_number(reader, number);
}

static int small_field(Reader *reader, uint8_t tag, int64_t *number) {
    if (!pass_tag(reader, tag)) {
        return 1;
    }
    if (reader->at == reader->end || *reader->at > 0x7F) {
        return 0;
    }
    *number = *reader->at++;
    return 1;
}

static int skip_field(Reader *reader, uint8_t tag) {
    int64_t size = 0;
    if (!number_field(reader, tag, &size) || size > reader->end - reader->at) {
        return 0;
    }
    reader->at += size;
    return 1;
}

static int read_message_id(Reader *reader, Marker *marker) {
    int64_t size = -1;
    if (!small_field(reader, MESSAGE_ID, &size) || size < 0 || size > reader->end - reader->at) {
        return 0;
    }
    Reader id = {reader->at, reader->at + size};
    reader->at = id.end;
    return number_field(&id, ID_PARTITION, &marker->partition) && marker->partition <= INT32_MAX &&
           number_field(&id, ID_OFFSET, &marker->offset) && id.at == id.end;
}

int marker_decode(const uint8_t *data, size_t size, Marker *marker) {
    if (size == 0) {
        return 0;
    }
    Reader reader = {data, data + size};
    memset(marker, 0, sizeof *marker);
    return small_field(&reader, TYPE, &marker->kind) && marker->kind <= KEEP_ALIVE &&
           read_message_id(&reader, marker) && number_field(&reader, LEASE, &marker->lease_ms) &&
           skip_field(&reader, KEY) && skip_field(&reader, VALUE) && reader.at == reader.end;
}
