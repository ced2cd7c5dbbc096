/* Columns of records in Arrow's layout, and their handover by the Arrow C data interface. Knows no Python. */
#ifndef CURSORQ_COLUMNS_H
#define CURSORQ_COLUMNS_H

#include <stddef.h>
#include <stdint.h>

/* The Arrow C data interface: https://arrow.apache.org/docs/format/CDataInterface.html */
#define ARROW_FLAG_NULLABLE 2

struct ArrowSchema {
    const char *format;
    const char *name;
    const char *metadata;
    int64_t flags;
    int64_t n_children;
    struct ArrowSchema **children;
    struct ArrowSchema *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};

struct ArrowArray {
    int64_t length;
    int64_t null_count;
    int64_t offset;
    int64_t n_buffers;
    int64_t n_children;
    const void **buffers;
    struct ArrowArray **children;
    struct ArrowArray *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};

/* Bytes that grow. All zeros is an empty buffer. */
typedef struct {
    uint8_t *data;
    size_t size, capacity;
} Buffer;

/* A column of binary or text values. */
typedef struct {
    Buffer validity, ends, bytes;
    int64_t count, nulls;
} Binary;

typedef struct {
    int64_t rows;
    Binary key, value;
    Buffer offset, timestamp, timestamp_type;
    int has_headers;                       /* whether there is a column of headers */
    Buffer headers_validity, headers_ends; /* of lists; a record without headers has a null */
    int64_t headers_nulls;
    Binary header_name, header_value;
} Records;

/* What a value points to. A null has no data. */
typedef struct {
    const void *data;
    size_t size;
} Bytes;

/* The functions below return 0, or -1 if there is no memory, or no room: ends are signed 32-bit numbers. */

/* Starts empty columns. Call records_free afterwards, also after a failure. */
int records_init(Records *records, int has_headers);
void records_free(Records *records);

/* Appends a row. `timestamp_ms` and `timestamp_type` are librdkafka's. */
int records_add(Records *records, Bytes key, Bytes value, int64_t offset, int64_t timestamp_ms, int timestamp_type);
/* Appends a header to the row that comes next. A name that is no UTF-8 gets U+FFFD for each wrong byte. */
int records_add_header(Records *records, const char *name, Bytes value);
/* The bytes in keys, values and headers. */
size_t records_size(const Records *records);

/* Hands the columns over as one struct array. They are empty afterwards. */
int records_export(Records *records, struct ArrowArray *array);
/* Fills in the type of that array. */
int records_schema(int has_headers, struct ArrowSchema *schema);

#endif
