#include "columns.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---- blocks: large memory that is used again, because the kernel clears each page of new memory */

enum {
    LEAST_BLOCK = 1 << 16,    /* malloc itself uses smaller memory again */
    MOST_KEPT_BLOCKS = 16,    /* two batches of columns */
    MOST_KEPT_BYTES = 1 << 25 /* four batches of the largest usual size */
};

typedef struct {
    uint8_t *data;
    size_t capacity;
} Block;

static struct {
    atomic_flag in_use; /* who finds it set does without kept blocks: nobody waits, and a fork cannot block */
    int count;
    size_t bytes;
    Block blocks[MOST_KEPT_BLOCKS];
} kept = {.in_use = ATOMIC_FLAG_INIT};

/* Returns the smallest kept block with this capacity, or one without data. */
static Block take_kept(size_t capacity) {
    Block best = {NULL, 0};
    int best_at = -1;
    if (atomic_flag_test_and_set(&kept.in_use)) {
        return best;
    }
    for (int at = 0; at < kept.count; at++) {
        size_t size = kept.blocks[at].capacity;
        if (size >= capacity && (best_at < 0 || size < best.capacity)) {
            best_at = at;
            best = kept.blocks[at];
        }
    }
    if (best_at >= 0) {
        kept.blocks[best_at] = kept.blocks[--kept.count];
        kept.bytes -= best.capacity;
    }
    atomic_flag_clear(&kept.in_use);
    return best;
}

static Block new_block(size_t capacity) {
    Block block = {NULL, capacity};
    if (capacity >= LEAST_BLOCK) {
        Block found = take_kept(capacity);
        if (found.data != NULL) {
            return found;
        }
    }
    block.data = malloc(capacity);
    return block;
}

/* Keeps a block, or frees it if there are enough. */
static void free_block(Block block) {
    if (block.capacity >= LEAST_BLOCK && !atomic_flag_test_and_set(&kept.in_use)) {
        if (kept.count < MOST_KEPT_BLOCKS && block.capacity <= MOST_KEPT_BYTES - kept.bytes) {
            kept.blocks[kept.count++] = block;
            kept.bytes += block.capacity;
            block.data = NULL;
        }
        atomic_flag_clear(&kept.in_use);
    }
    free(block.data);
}

/* ---- buffers */

static int buffer_grow(Buffer *buffer, size_t more) {
    if (more > SIZE_MAX / 4 || buffer->size > SIZE_MAX / 4) {
        return -1;
    }
    size_t capacity = 2 * buffer->capacity > 1024 ? 2 * buffer->capacity : 1024;
    if (capacity < buffer->size + more) {
        capacity = buffer->size + more;
    }
    Block grown = new_block(capacity);
    if (grown.data == NULL) {
        return -1;
    }
    if (buffer->size > 0) { /* memcpy takes no null pointer */
        memcpy(grown.data, buffer->data, buffer->size);
    }
    free_block((Block){buffer->data, buffer->capacity});
    buffer->data = grown.data;
    buffer->capacity = grown.capacity;
    return 0;
}

/* Inline, so that the copy of a number is a store and not a call. */
static inline int buffer_add(Buffer *buffer, const void *data, size_t size) {
    if (size > buffer->capacity - buffer->size && buffer_grow(buffer, size) < 0) {
        return -1;
    }
    if (size > 0) {
        memcpy(buffer->data + buffer->size, data, size);
        buffer->size += size;
    }
    return 0;
}

static void buffer_free(Buffer *buffer) {
    free_block((Block){buffer->data, buffer->capacity});
    memset(buffer, 0, sizeof *buffer);
}

/* Appends bit number `index` to a bitmap that has this many bits. */
static int bitmap_add(Buffer *bitmap, int64_t index, int is_set) {
    static const uint8_t no_bits = 0;
    if (index % 8 == 0 && buffer_add(bitmap, &no_bits, 1) < 0) {
        return -1;
    }
    if (is_set) {
        bitmap->data[index / 8] |= (uint8_t)(1u << (index % 8));
    }
    return 0;
}

static int add_end(Buffer *ends, size_t end) {
    if (end > INT32_MAX) { /* a record of more than a gigabyte */
        return -1;
    }
    int32_t narrow = (int32_t)end;
    return buffer_add(ends, &narrow, sizeof narrow);
}

/* ---- columns of bytes */

static int binary_init(Binary *column) {
    return add_end(&column->ends, 0);
}

static void binary_free(Binary *column) {
    buffer_free(&column->validity);
    buffer_free(&column->ends);
    buffer_free(&column->bytes);
}

/* Ends a value whose bytes were appended. */
static int binary_end(Binary *column, int is_valid) {
    if (bitmap_add(&column->validity, column->count, is_valid) < 0) {
        return -1;
    }
    if (add_end(&column->ends, column->bytes.size) < 0) {
        return -1;
    }
    column->count += 1;
    column->nulls += !is_valid;
    return 0;
}

static int binary_add(Binary *column, Bytes value) {
    if (value.data != NULL && buffer_add(&column->bytes, value.data, value.size) < 0) {
        return -1;
    }
    return binary_end(column, value.data != NULL);
}

/* ---- text */

/* Returns the length of the UTF-8 character at `text`, which ends with a zero byte. 0: it is none. */
static size_t utf8_length(const uint8_t *text) {
    uint8_t first = text[0], lowest = 0x80, highest = 0xBF;
    size_t length;
    if (first < 0x80) {
        return 1;
    }
    if (first < 0xC2 || first > 0xF4) {
        return 0;
    }
    length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    /* no longer form than needed, no surrogates, nothing above U+10FFFF */
    if (first == 0xE0) {
        lowest = 0xA0;
    } else if (first == 0xED) {
        highest = 0x9F;
    } else if (first == 0xF0) {
        lowest = 0x90;
    } else if (first == 0xF4) {
        highest = 0x8F;
    }
    if (text[1] < lowest || text[1] > highest) {
        return 0;
    }
    for (size_t at = 2; at < length; at++) { /* a zero byte ends the loop, too */
        if ((text[at] & 0xC0) != 0x80) {
            return 0;
        }
    }
    return length;
}

static int text_add(Binary *column, const char *text) {
    const uint8_t *at = (const uint8_t *)text;
    while (*at != 0) {
        const uint8_t *start = at;
        size_t length;
        while (*at != 0 && (length = utf8_length(at)) > 0) {
            at += length;
        }
        if (buffer_add(&column->bytes, start, (size_t)(at - start)) < 0) {
            return -1;
        }
        if (*at != 0) {
            if (buffer_add(&column->bytes, "\xEF\xBF\xBD", 3) < 0) {
                return -1;
            }
            at += 1;
        }
    }
    return binary_end(column, 1);
}

/* ---- records */

int records_init(Records *records, int has_headers) {
    memset(records, 0, sizeof *records);
    records->has_headers = has_headers;
    if (binary_init(&records->key) < 0 || binary_init(&records->value) < 0) {
        return -1;
    }
    if (!has_headers) {
        return 0;
    }
    if (binary_init(&records->header_name) < 0 || binary_init(&records->header_value) < 0) {
        return -1;
    }
    return add_end(&records->headers_ends, 0);
}

void records_free(Records *records) {
    binary_free(&records->key);
    binary_free(&records->value);
    buffer_free(&records->offset);
    buffer_free(&records->timestamp);
    buffer_free(&records->timestamp_type);
    buffer_free(&records->headers_validity);
    buffer_free(&records->headers_ends);
    binary_free(&records->header_name);
    binary_free(&records->header_value);
    records->rows = 0;
}

static int end_headers(Records *records) {
    int32_t before;
    memcpy(&before, records->headers_ends.data + records->headers_ends.size - sizeof before, sizeof before);
    int some = records->header_name.count > before;
    if (bitmap_add(&records->headers_validity, records->rows, some) < 0) {
        return -1;
    }
    records->headers_nulls += !some;
    return add_end(&records->headers_ends, (size_t)records->header_name.count);
}

int records_add(Records *records, Bytes key, Bytes value, int64_t offset, int64_t timestamp_ms, int timestamp_type) {
    /* unsigned, because a producer can give any timestamp, and the overflow of a signed number is undefined */
    uint64_t timestamp_us = (uint64_t)timestamp_ms * 1000u;
    int32_t type = timestamp_type - 1; /* librdkafka counts from 0 (none), Spark from -1 */
    if (binary_add(&records->key, key) < 0 || binary_add(&records->value, value) < 0 ||
        buffer_add(&records->offset, &offset, sizeof offset) < 0 ||
        buffer_add(&records->timestamp, &timestamp_us, sizeof timestamp_us) < 0 ||
        buffer_add(&records->timestamp_type, &type, sizeof type) < 0) {
        return -1;
    }
    if (records->has_headers && end_headers(records) < 0) {
        return -1;
    }
    records->rows += 1;
    return 0;
}

int records_add_header(Records *records, const char *name, Bytes value) {
    if (text_add(&records->header_name, name) < 0) {
        return -1;
    }
    return binary_add(&records->header_value, value);
}

size_t records_size(const Records *records) {
    return records->key.bytes.size + records->value.bytes.size + records->header_name.bytes.size +
           records->header_value.bytes.size;
}

/* ---- handover of the data */

enum { MOST_BUFFERS = 3, MOST_CHILDREN = 6 };

/* What an exported array owns. */
typedef struct {
    const void *buffers[MOST_BUFFERS];
    size_t capacities[MOST_BUFFERS];
    struct ArrowArray *children[MOST_CHILDREN];
    struct ArrowArray children_of_it[MOST_CHILDREN];
} ArrayOwned;

static void release_array(struct ArrowArray *array) {
    ArrayOwned *owned = array->private_data;
    for (int64_t number = 0; number < array->n_children; number++) {
        struct ArrowArray *child = array->children[number];
        if (child->release != NULL) { /* else the consumer has moved it away */
            child->release(child);
        }
    }
    for (int64_t number = 0; number < array->n_buffers; number++) {
        free_block((Block){(uint8_t *)owned->buffers[number], owned->capacities[number]});
    }
    free(owned);
    array->release = NULL;
}

static int export_array(struct ArrowArray *array, int64_t length, int64_t n_buffers, int64_t n_children) {
    memset(array, 0, sizeof *array);
    ArrayOwned *owned = calloc(1, sizeof *owned);
    if (owned == NULL) {
        return -1;
    }
    for (int64_t number = 0; number < n_children; number++) {
        owned->children[number] = &owned->children_of_it[number];
    }
    array->length = length;
    array->n_buffers = n_buffers;
    array->n_children = n_children;
    array->buffers = owned->buffers;
    array->children = n_children > 0 ? owned->children : NULL;
    array->private_data = owned;
    array->release = release_array;
    return 0;
}

/* Hands one buffer over. */
static void move_buffer(struct ArrowArray *array, int number, Buffer *buffer) {
    ArrayOwned *owned = array->private_data;
    owned->buffers[number] = buffer->data;
    owned->capacities[number] = buffer->capacity;
    memset(buffer, 0, sizeof *buffer);
}

static void move_validity(struct ArrowArray *array, Buffer *validity, int64_t nulls) {
    array->null_count = nulls;
    if (nulls > 0) {
        move_buffer(array, 0, validity);
    } else {
        buffer_free(validity);
    }
}

static int export_numbers(struct ArrowArray *array, int64_t length, Buffer *numbers) {
    if (export_array(array, length, 2, 0) < 0) {
        return -1;
    }
    move_buffer(array, 1, numbers);
    return 0;
}

static int export_binary(struct ArrowArray *array, Binary *column) {
    if (export_array(array, column->count, 3, 0) < 0) {
        return -1;
    }
    move_validity(array, &column->validity, column->nulls);
    move_buffer(array, 1, &column->ends);
    move_buffer(array, 2, &column->bytes);
    return 0;
}

static int export_headers(struct ArrowArray *array, Records *records) {
    if (export_array(array, records->rows, 2, 1) < 0) {
        return -1;
    }
    move_validity(array, &records->headers_validity, records->headers_nulls);
    move_buffer(array, 1, &records->headers_ends);
    struct ArrowArray *pairs = array->children[0];
    if (export_array(pairs, records->header_name.count, 1, 2) < 0) {
        return -1;
    }
    return export_binary(pairs->children[0], &records->header_name) < 0 ||
                   export_binary(pairs->children[1], &records->header_value) < 0
               ? -1
               : 0;
}

int records_export(Records *records, struct ArrowArray *array) {
    if (export_array(array, records->rows, 1, records->has_headers ? 6 : 5) < 0) {
        return -1;
    }
    struct ArrowArray **columns = array->children;
    if (export_binary(columns[0], &records->key) < 0 || export_binary(columns[1], &records->value) < 0 ||
        export_numbers(columns[2], records->rows, &records->offset) < 0 ||
        export_numbers(columns[3], records->rows, &records->timestamp) < 0 ||
        export_numbers(columns[4], records->rows, &records->timestamp_type) < 0 ||
        (records->has_headers && export_headers(columns[5], records) < 0)) {
        array->release(array); /* what was not moved yet is released by records_free */
        return -1;
    }
    return 0;
}

/* ---- handover of the type */

typedef struct Field {
    const char *format, *name;
    const struct Field *children;
    int n_children;
} Field;

static const Field PAIR[] = {{"u", "key", NULL, 0}, {"z", "value", NULL, 0}};
static const Field ELEMENT[] = {{"+s", "element", PAIR, 2}};
static const Field COLUMNS[] = {
    {"z", "key", NULL, 0},         {"z", "value", NULL, 0},          {"l", "offset", NULL, 0},
    {"tsu:UTC", "timestamp", NULL, 0}, {"i", "timestampType", NULL, 0}, {"+l", "headers", ELEMENT, 1},
};
static const Field WITHOUT_HEADERS = {"+s", "", COLUMNS, 5};
static const Field WITH_HEADERS = {"+s", "", COLUMNS, 6};

typedef struct {
    struct ArrowSchema *children[MOST_CHILDREN];
    struct ArrowSchema children_of_it[MOST_CHILDREN];
} SchemaOwned;

static void release_schema(struct ArrowSchema *schema) {
    for (int64_t number = 0; number < schema->n_children; number++) {
        struct ArrowSchema *child = schema->children[number];
        if (child->release != NULL) {
            child->release(child);
        }
    }
    free(schema->private_data);
    schema->release = NULL;
}

static int export_field(const Field *field, struct ArrowSchema *schema) {
    memset(schema, 0, sizeof *schema);
    SchemaOwned *owned = calloc(1, sizeof *owned);
    if (owned == NULL) {
        return -1;
    }
    for (int number = 0; number < field->n_children; number++) {
        owned->children[number] = &owned->children_of_it[number];
    }
    schema->format = field->format;
    schema->name = field->name;
    schema->flags = ARROW_FLAG_NULLABLE;
    schema->n_children = field->n_children;
    schema->children = field->n_children > 0 ? owned->children : NULL;
    schema->private_data = owned;
    schema->release = release_schema;
    for (int number = 0; number < field->n_children; number++) {
        if (export_field(&field->children[number], schema->children[number]) < 0) {
            schema->release(schema);
            return -1;
        }
    }
    return 0;
}

int records_schema(int has_headers, struct ArrowSchema *schema) {
    return export_field(has_headers ? &WITH_HEADERS : &WITHOUT_HEADERS, schema);
}
