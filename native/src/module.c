/* The Python module: a Kafka consumer that reads offset ranges of one partition into Arrow columns.
 *
 * Policy is not here: errors, ends and gaps are returned to the caller, who decides.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "columns.h"
#include "librdkafka.h"
#include "markers.h"

enum {
    LEAST_VERSION = 0x020B0000, /* 2.11 */
    NEXT_MAJOR_VERSION = 0x03000000,
    AT_ONCE = 1000,                /* messages of one call of librdkafka: about the size of a CPU cache */
    MOST_BYTES = INT32_MAX / 4,    /* of one batch, so that it also holds the largest record that exceeds it */
    TEXT_SIZE = 512,
};

/* ---- librdkafka */

static struct {
#define AS_POINTER(result, name, parameters) result(*name) parameters;
    LIBRDKAFKA_FUNCTIONS(AS_POINTER)
#undef AS_POINTER
} rk;

/* Looks the functions up in the library that `module_path`, confluent-kafka's extension, was linked with. */
static int find_librdkafka(const char *module_path) {
    void *library = dlopen(module_path, RTLD_NOW | RTLD_NOLOAD); /* never closed: the functions are kept */
    if (library == NULL) {
        PyErr_SetString(PyExc_ImportError, "the extension of confluent-kafka is not loaded");
        return -1;
    }
    /* memcpy, because ISO C converts no object pointer to a function pointer */
#define LOOK_UP(result, name, parameters)                                                                        \
    {                                                                                                            \
        void *found = dlsym(library, #name);                                                                     \
        if (found == NULL) {                                                                                     \
            PyErr_SetString(PyExc_ImportError, "the librdkafka of confluent-kafka has no function " #name);      \
            return -1;                                                                                           \
        }                                                                                                        \
        memcpy(&rk.name, &found, sizeof found);                                                                  \
    }
    LIBRDKAFKA_FUNCTIONS(LOOK_UP)
#undef LOOK_UP
    int version = rk.rd_kafka_version();
    if (version < LEAST_VERSION || version >= NEXT_MAJOR_VERSION) {
        PyErr_Format(PyExc_ImportError, "librdkafka %s is not known to this module, which is for 2.11 up to 2.x",
                     rk.rd_kafka_version_str());
        return -1;
    }
    return 0;
}

/* ---- batches: columns on their way to an Arrow library */

typedef struct {
    PyObject_HEAD
    struct ArrowArray array;
    int has_headers;
} Batch;

static PyTypeObject *batch_type, *consumer_type;

static void batch_dealloc(PyObject *self) {
    struct ArrowArray *array = &((Batch *)self)->array;
    PyTypeObject *type = Py_TYPE(self);
    if (array->release != NULL) {
        array->release(array);
    }
    PyObject_Free(self);
    Py_DECREF(type);
}

static void free_schema(PyObject *capsule) {
    struct ArrowSchema *schema = PyCapsule_GetPointer(capsule, "arrow_schema");
    if (schema->release != NULL) {
        schema->release(schema);
    }
    free(schema);
}

static void free_array(PyObject *capsule) {
    struct ArrowArray *array = PyCapsule_GetPointer(capsule, "arrow_array");
    if (array->release != NULL) {
        array->release(array);
    }
    free(array);
}

static PyObject *schema_capsule(int has_headers) {
    struct ArrowSchema *schema = calloc(1, sizeof *schema);
    if (schema == NULL || records_schema(has_headers, schema) < 0) {
        free(schema);
        return PyErr_NoMemory();
    }
    PyObject *capsule = PyCapsule_New(schema, "arrow_schema", free_schema);
    if (capsule == NULL) {
        schema->release(schema);
        free(schema);
    }
    return capsule;
}

/* Moves the array of a batch to a capsule. */
static PyObject *array_capsule(Batch *batch) {
    struct ArrowArray *array = calloc(1, sizeof *array);
    if (array == NULL) {
        return PyErr_NoMemory();
    }
    PyObject *capsule = PyCapsule_New(array, "arrow_array", free_array);
    if (capsule == NULL) {
        free(array);
        return NULL;
    }
    *array = batch->array;
    batch->array.release = NULL;
    return capsule;
}

static PyObject *batch_arrow_c_array(PyObject *self, PyObject *args, PyObject *keywords) {
    static char *names[] = {"requested_schema", NULL};
    Batch *batch = (Batch *)self;
    PyObject *requested = Py_None; /* the protocol lets a producer ignore it */
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|O", names, &requested)) {
        return NULL;
    }
    if (batch->array.release == NULL) {
        PyErr_SetString(PyExc_ValueError, "the columns were handed over before");
        return NULL;
    }
    PyObject *schema = schema_capsule(batch->has_headers);
    PyObject *array = schema == NULL ? NULL : array_capsule(batch);
    PyObject *both = array == NULL ? NULL : PyTuple_Pack(2, schema, array);
    Py_XDECREF(schema);
    Py_XDECREF(array);
    return both;
}

static PyObject *batch_of(Records *records) {
    Batch *batch = PyObject_New(Batch, batch_type);
    if (batch == NULL) {
        return NULL;
    }
    batch->has_headers = records->has_headers;
    batch->array.release = NULL;
    if (records_export(records, &batch->array) < 0) {
        Py_DECREF(batch);
        return PyErr_NoMemory();
    }
    return (PyObject *)batch;
}

/* ---- consumers */

typedef struct {
    PyObject_HEAD
    rd_kafka_t *client; /* NULL: closed */
    rd_kafka_queue_t *queue;
    rd_kafka_message_t **messages; /* received, of which [next, count) are not handed over yet */
    size_t next, count;
    int busy; /* a call is under way, without the GIL */
    pid_t owner;
} Consumer;

static void drop_messages(Consumer *self) {
    while (self->next < self->count) {
        rk.rd_kafka_message_destroy(self->messages[self->next++]);
    }
}

/* Begins a call, which may release the GIL. Two threads never use one consumer. */
static Consumer *begin(PyObject *object) {
    Consumer *self = (Consumer *)object;
    if (self->client == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "the consumer is closed");
        return NULL;
    }
    if (self->busy || self->owner != getpid()) {
        PyErr_SetString(PyExc_RuntimeError, "the consumer is in use by another thread or process");
        return NULL;
    }
    self->busy = 1;
    return self;
}

/* Ends librdkafka's client. Called without the GIL; waits for its threads. */
static void end_client(Consumer *self) {
    drop_messages(self);
    rk.rd_kafka_consumer_close(self->client);
    rk.rd_kafka_queue_destroy(self->queue);
    rk.rd_kafka_destroy(self->client);
}

static void consumer_dealloc(PyObject *object) {
    Consumer *self = (Consumer *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->client != NULL && self->owner == getpid()) { /* a forked child has no threads of the client */
        Py_BEGIN_ALLOW_THREADS
        end_client(self);
        Py_END_ALLOW_THREADS
    }
    free(self->messages);
    PyObject_Free(object);
    Py_DECREF(type);
}

static PyObject *consumer_close(PyObject *object, PyObject *none) {
    (void)none;
    if (((Consumer *)object)->client == NULL) {
        Py_RETURN_NONE;
    }
    Consumer *self = begin(object);
    if (self == NULL) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    end_client(self);
    Py_END_ALLOW_THREADS
    self->client = NULL;
    self->busy = 0;
    Py_RETURN_NONE;
}

/* Returns the bytes of a text without a zero byte in it. */
static const char *text_of(PyObject *object) {
    Py_ssize_t size;
    const char *text = PyUnicode_AsUTF8AndSize(object, &size);
    if (text != NULL && strlen(text) != (size_t)size) {
        PyErr_SetString(PyExc_ValueError, "a setting has a zero byte");
        return NULL;
    }
    return text;
}

/* Returns the settings of a dict of texts. */
static rd_kafka_conf_t *conf_of(PyObject *settings) {
    char text[TEXT_SIZE];
    Py_ssize_t at = 0;
    PyObject *name, *value;
    rd_kafka_conf_t *conf = rk.rd_kafka_conf_new();
    while (PyDict_Next(settings, &at, &name, &value)) {
        const char *name_text = text_of(name);
        const char *value_text = name_text == NULL ? NULL : text_of(value);
        if (value_text == NULL) {
            rk.rd_kafka_conf_destroy(conf);
            return NULL;
        }
        if (rk.rd_kafka_conf_set(conf, name_text, value_text, text, sizeof text) != RD_KAFKA_CONF_OK) {
            /* without librdkafka's text, which quotes the value: it can be a secret */
            PyErr_Format(PyExc_ValueError, "librdkafka refuses the setting %U", name);
            rk.rd_kafka_conf_destroy(conf);
            return NULL;
        }
    }
    return conf;
}

static PyObject *consumer_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {"settings", NULL};
    char text[TEXT_SIZE];
    PyObject *settings;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O!", names, &PyDict_Type, &settings)) {
        return NULL;
    }
    Consumer *self = PyObject_New(Consumer, type);
    if (self == NULL) {
        return NULL;
    }
    self->client = NULL;
    self->next = self->count = 0;
    self->busy = 0;
    self->owner = getpid();
    self->messages = calloc(AT_ONCE, sizeof *self->messages);
    if (self->messages == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    rd_kafka_conf_t *conf = conf_of(settings);
    if (conf == NULL) {
        Py_DECREF(self);
        return NULL;
    }
    rd_kafka_t *client;
    Py_BEGIN_ALLOW_THREADS
    client = rk.rd_kafka_new(RD_KAFKA_CONSUMER, conf, text, sizeof text);
    Py_END_ALLOW_THREADS
    if (client == NULL) {
        rk.rd_kafka_conf_destroy(conf);
        Py_DECREF(self);
        PyErr_SetString(PyExc_ValueError, "librdkafka makes no consumer of these settings");
        return NULL;
    }
    self->queue = rk.rd_kafka_poll_set_consumer(client) == 0 ? rk.rd_kafka_queue_get_consumer(client) : NULL;
    if (self->queue == NULL) {
        Py_BEGIN_ALLOW_THREADS
        rk.rd_kafka_destroy(client);
        Py_END_ALLOW_THREADS
        Py_DECREF(self);
        PyErr_SetString(PyExc_ValueError, "a consumer needs the setting group.id");
        return NULL;
    }
    self->client = client;
    return (PyObject *)self;
}

/* ---- assignment */

static PyObject *assign(Consumer *self, const char *topic, int partition, int64_t offset) {
    int code = 0;
    Py_BEGIN_ALLOW_THREADS
    drop_messages(self);
    rd_kafka_topic_partition_list_t *list = rk.rd_kafka_topic_partition_list_new(1);
    if (topic != NULL) {
        rk.rd_kafka_topic_partition_list_add(list, topic, partition);
        rk.rd_kafka_topic_partition_list_set_offset(list, topic, partition, offset);
    }
    code = rk.rd_kafka_assign(self->client, list);
    rk.rd_kafka_topic_partition_list_destroy(list);
    Py_END_ALLOW_THREADS
    self->busy = 0;
    return PyLong_FromLong(code);
}

static PyObject *consumer_assign(PyObject *object, PyObject *args) {
    const char *topic;
    int partition;
    long long offset;
    if (!PyArg_ParseTuple(args, "siL", &topic, &partition, &offset)) {
        return NULL;
    }
    Consumer *self = begin(object);
    return self == NULL ? NULL : assign(self, topic, partition, offset);
}

static PyObject *consumer_unassign(PyObject *object, PyObject *none) {
    (void)none;
    Consumer *self = begin(object);
    return self == NULL ? NULL : assign(self, NULL, 0, 0);
}

/* ---- reading */

/* What to read: offsets in [position, stop) of the partition, until one of the limits is met. */
typedef struct {
    int partition;
    long long position, stop;
    long long most_rows;
    Py_ssize_t most_bytes;
    int wait_ms;
} Range;

/* An error or the end of the partition, which librdkafka returns in place of a record. */
typedef struct {
    int code, partition;
    int64_t offset;
    char text[TEXT_SIZE];
} Event;

static void set_event(Event *event, const rd_kafka_message_t *message) {
    const char *text = rk.rd_kafka_message_errstr(message);
    event->code = message->err;
    event->partition = message->partition;
    event->offset = message->offset;
    strncpy(event->text, text == NULL ? "" : text, sizeof event->text - 1);
}

static int add_headers(Records *records, const rd_kafka_message_t *message) {
    rd_kafka_headers_t *headers;
    const char *name;
    Bytes value;
    if (rk.rd_kafka_message_headers(message, &headers) != 0) {
        return 0;
    }
    for (size_t index = 0;
         rk.rd_kafka_header_get_all(headers, index, &name, &value.data, &value.size) == 0; index++) {
        if (records_add_header(records, name, value) < 0) {
            return -1;
        }
    }
    return 0;
}

static int add_message(Records *records, const rd_kafka_message_t *message) {
    int timestamp_type = 0;
    int64_t timestamp_ms = rk.rd_kafka_message_timestamp(message, &timestamp_type);
    Bytes key = {message->key, message->key_len}, value = {message->payload, message->len};
    if (records->has_headers && add_headers(records, message) < 0) {
        return -1;
    }
    return records_add(records, key, value, message->offset, timestamp_ms, timestamp_type);
}

static int is_full(const Records *records, const Range *range, const rd_kafka_message_t *next) {
    if (records->rows == 0) {
        return 0;
    }
    return records->rows >= range->most_rows ||
           records_size(records) + next->key_len + next->len > (size_t)range->most_bytes;
}

/* Hands received messages over until a limit, the end of the range, or an event. 1: go on, 0: done, -1: no memory. */
static int take_messages(Consumer *self, Range *range, Records *records, Event *event) {
    while (self->next < self->count) {
        rd_kafka_message_t *message = self->messages[self->next];
        if (message->err != 0) {
            set_event(event, message);
            rk.rd_kafka_message_destroy(message);
            self->next += 1;
            return 0;
        }
        if (message->partition == range->partition && message->offset >= range->position) {
            if (message->offset >= range->stop) {
                range->position = range->stop; /* between the last record and this one is none */
                return 0;
            }
            if (is_full(records, range, message)) {
                return 0;
            }
            if (add_message(records, message) < 0) {
                return -1;
            }
            range->position = message->offset + 1;
        }
        rk.rd_kafka_message_destroy(message);
        self->next += 1;
    }
    return range->position < range->stop;
}

/* Receives what is there, and waits only if nothing is. */
static int receive(Consumer *self, int wait_ms) {
    ssize_t count = rk.rd_kafka_consume_batch_queue(self->queue, 0, self->messages, AT_ONCE);
    if (count <= 0 && wait_ms > 0) {
        count = rk.rd_kafka_consume_batch_queue(self->queue, wait_ms, self->messages, 1);
    }
    self->next = 0;
    self->count = count > 0 ? (size_t)count : 0;
    return self->count > 0;
}

static int read_range(Consumer *self, Range *range, Records *records, Event *event) {
    for (;;) {
        int more = take_messages(self, range, records, event);
        if (more <= 0) {
            return more;
        }
        /* Waiting with rows in hand is cheaper than many small batches, which would be joined afterwards. */
        if (records->rows >= range->most_rows || !receive(self, range->wait_ms)) {
            return 0;
        }
    }
}

static PyObject *event_or_none(const Event *event) {
    if (event->code == 0) {
        Py_RETURN_NONE;
    }
    PyObject *text = PyUnicode_DecodeUTF8(event->text, (Py_ssize_t)strlen(event->text), "replace");
    return text == NULL ? NULL
                        : Py_BuildValue("iiLN", event->code, event->partition, (long long)event->offset, text);
}

static PyObject *result_of(Records *records, const Range *range, const Event *event) {
    PyObject *batch;
    if (records->rows > 0) {
        batch = batch_of(records);
    } else {
        batch = Py_None;
        Py_INCREF(batch);
    }
    if (batch == NULL) {
        return NULL;
    }
    PyObject *happened = event_or_none(event);
    if (happened == NULL) {
        Py_DECREF(batch);
        return NULL;
    }
    return Py_BuildValue("NLN", batch, range->position, happened);
}

static PyObject *consumer_read(PyObject *object, PyObject *args, PyObject *keywords) {
    static char *names[] = {"partition", "start", "stop", "rows", "bytes", "wait_ms", "headers", NULL};
    Range range;
    Records records;
    Event event;
    int has_headers, failed;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "iLLLnip", names, &range.partition, &range.position, &range.stop,
                                     &range.most_rows, &range.most_bytes, &range.wait_ms, &has_headers)) {
        return NULL;
    }
    if (range.most_rows < 1 || range.most_bytes < 1) {
        PyErr_SetString(PyExc_ValueError, "rows and bytes are at least 1");
        return NULL;
    }
    range.most_bytes = range.most_bytes < MOST_BYTES ? range.most_bytes : MOST_BYTES;
    memset(&event, 0, sizeof event);
    Consumer *self = begin(object);
    if (self == NULL) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    failed = records_init(&records, has_headers) < 0 || read_range(self, &range, &records, &event) < 0;
    Py_END_ALLOW_THREADS
    self->busy = 0;
    PyObject *result = failed ? PyErr_NoMemory() : result_of(&records, &range, &event);
    records_free(&records);
    return result;
}

/* ---- questions to the brokers */

static PyObject *consumer_watermarks(PyObject *object, PyObject *args) {
    const char *topic;
    int partition, timeout_ms, code;
    int64_t low = -1, high = -1;
    if (!PyArg_ParseTuple(args, "sii", &topic, &partition, &timeout_ms)) {
        return NULL;
    }
    Consumer *self = begin(object);
    if (self == NULL) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    code = timeout_ms < 0
               ? rk.rd_kafka_get_watermark_offsets(self->client, topic, partition, &low, &high)
               : rk.rd_kafka_query_watermark_offsets(self->client, topic, partition, &low, &high, timeout_ms);
    Py_END_ALLOW_THREADS
    self->busy = 0;
    return Py_BuildValue("iLL", code, (long long)low, (long long)high);
}

/* Returns (error of the request, error of the topic, numbers of its partitions). */
static PyObject *partitions_of(int code, const rd_kafka_metadata_t *metadata) {
    PyObject *numbers = PyList_New(0);
    int topic_code = 0;
    if (numbers == NULL) {
        return NULL;
    }
    if (metadata != NULL && metadata->topic_cnt > 0) {
        const rd_kafka_metadata_topic_t *topic = &metadata->topics[0];
        topic_code = topic->err;
        for (int index = 0; index < topic->partition_cnt; index++) {
            PyObject *number = PyLong_FromLong(topic->partitions[index].id);
            int failed = number == NULL || PyList_Append(numbers, number) < 0;
            Py_XDECREF(number);
            if (failed) {
                Py_DECREF(numbers);
                return NULL;
            }
        }
    }
    return Py_BuildValue("iiN", code, topic_code, numbers);
}

static PyObject *consumer_partitions(PyObject *object, PyObject *args) {
    const char *name;
    int timeout_ms, code;
    const rd_kafka_metadata_t *metadata = NULL;
    if (!PyArg_ParseTuple(args, "si", &name, &timeout_ms)) {
        return NULL;
    }
    Consumer *self = begin(object);
    if (self == NULL) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    rd_kafka_topic_t *topic = rk.rd_kafka_topic_new(self->client, name, NULL);
    if (topic == NULL) {
        code = rk.rd_kafka_last_error();
    } else {
        code = rk.rd_kafka_metadata(self->client, 0, topic, &metadata, timeout_ms);
        rk.rd_kafka_topic_destroy(topic);
    }
    Py_END_ALLOW_THREADS
    self->busy = 0;
    PyObject *result = partitions_of(code, code == 0 ? metadata : NULL);
    if (code == 0 && metadata != NULL) {
        rk.rd_kafka_metadata_destroy(metadata);
    }
    return result;
}

/* ---- markers */

/* Decodes the values of a binary column. `numbers` gets four columns: kind, partition, offset, lease in ms. */
static int decode_values(const Py_buffer *ends, Py_ssize_t first, const Py_buffer *bytes, const Py_buffer *numbers,
                         const Py_buffer *usual) {
    Py_ssize_t count = usual->len, limit = ends->len / (Py_ssize_t)sizeof(int32_t);
    int64_t *columns = numbers->buf;
    uint8_t *is_usual = usual->buf;
    if (numbers->len / 4 / (Py_ssize_t)sizeof(int64_t) < count || first < 0 || count >= limit || first >= limit - count) {
        return -1;
    }
    const int32_t *places = (const int32_t *)ends->buf + first;
    for (Py_ssize_t row = 0; row < count; row++) {
        int32_t start = places[row], end = places[row + 1];
        Marker marker;
        if (start < 0 || end < start || end > bytes->len) {
            return -1;
        }
        is_usual[row] = (uint8_t)marker_decode((const uint8_t *)bytes->buf + start, (size_t)(end - start), &marker);
        if (is_usual[row]) {
            columns[row] = marker.kind;
            columns[count + row] = marker.partition;
            columns[2 * count + row] = marker.offset;
            columns[3 * count + row] = marker.lease_ms;
        }
    }
    return 0;
}

static PyObject *decode_v1(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer ends, bytes, numbers, usual;
    Py_ssize_t first;
    int failed;
    if (!PyArg_ParseTuple(args, "y*ny*w*w*", &ends, &first, &bytes, &numbers, &usual)) {
        return NULL;
    }
    if ((uintptr_t)ends.buf % sizeof(int32_t) != 0 || (uintptr_t)numbers.buf % sizeof(int64_t) != 0) {
        failed = 1;
    } else {
        Py_BEGIN_ALLOW_THREADS
        failed = decode_values(&ends, first, &bytes, &numbers, &usual) < 0;
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&ends);
    PyBuffer_Release(&bytes);
    PyBuffer_Release(&numbers);
    PyBuffer_Release(&usual);
    if (failed) {
        PyErr_SetString(PyExc_ValueError, "the buffers do not fit each other");
        return NULL;
    }
    Py_RETURN_NONE;
}

/* ---- the module */

static PyMethodDef module_methods[] = {
    {"decode_v1", decode_v1, METH_VARARGS,
     "decode_v1(ends, first, bytes, numbers, usual): decodes markers of kafka-mq-go, the values of a binary column.\n\n"
     "Fills in numbers (four columns of int64: kind, partition, offset, lease in ms), and usual (a byte for each\n"
     "marker: 0 if it is not in the usual form)."},
    {NULL, NULL, 0, NULL},
};

static PyMethodDef batch_methods[] = {
    {"__arrow_c_array__", (PyCFunction)(void (*)(void))batch_arrow_c_array, METH_VARARGS | METH_KEYWORDS,
     "Hands the columns over, once: (schema capsule, array capsule)."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot batch_slots[] = {
    {Py_tp_doc, "Columns of records, for any library with Arrow's PyCapsule interface."},
    {Py_tp_dealloc, batch_dealloc},
    {Py_tp_methods, batch_methods},
    {0, NULL},
};

static PyType_Spec batch_spec = {
    .name = "spark_cursor_source_native.Batch",
    .basicsize = sizeof(Batch),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = batch_slots,
};

static PyMethodDef consumer_methods[] = {
    {"assign", consumer_assign, METH_VARARGS,
     "assign(topic, partition, offset): fetches this partition alone. Returns librdkafka's error code, or 0."},
    {"unassign", consumer_unassign, METH_NOARGS, "Ends fetching. Returns librdkafka's error code, or 0."},
    {"read", (PyCFunction)(void (*)(void))consumer_read, METH_VARARGS | METH_KEYWORDS,
     "read(partition, start, stop, rows, bytes, wait_ms, headers): reads records with start <= offset < stop.\n\n"
     "Returns (batch or None, next offset, event or None). An event is (code, partition, offset, text): an error\n"
     "or the end of the partition. It ends the batch."},
    {"watermarks", consumer_watermarks, METH_VARARGS,
     "watermarks(topic, partition, timeout_ms): returns (code, low, high); cached ones if the timeout is negative."},
    {"partitions", consumer_partitions, METH_VARARGS,
     "partitions(topic, timeout_ms): returns (code, code of the topic, partition numbers)."},
    {"close", consumer_close, METH_NOARGS, "Ends the client."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot consumer_slots[] = {
    {Py_tp_doc, "Consumer(settings): a consumer of librdkafka's settings, a dict of texts. One thread uses it."},
    {Py_tp_new, consumer_new},
    {Py_tp_dealloc, consumer_dealloc},
    {Py_tp_methods, consumer_methods},
    {0, NULL},
};

static PyType_Spec consumer_spec = {
    .name = "spark_cursor_source_native.Consumer",
    .basicsize = sizeof(Consumer),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = consumer_slots,
};

/* Loads confluent-kafka's extension and finds its librdkafka. */
static int load_librdkafka(void) {
    PyObject *extension = PyImport_ImportModule("confluent_kafka.cimpl");
    PyObject *path = extension == NULL ? NULL : PyObject_GetAttrString(extension, "__file__");
    const char *text = path == NULL ? NULL : PyUnicode_AsUTF8AndSize(path, NULL);
    int result = text == NULL ? -1 : find_librdkafka(text);
    Py_XDECREF(path);
    Py_XDECREF(extension);
    return result;
}

static PyTypeObject *add_type(PyObject *module, const char *name, PyType_Spec *spec) {
    PyObject *type = PyType_FromSpec(spec);
    if (type != NULL && PyModule_AddObjectRef(module, name, type) < 0) {
        Py_CLEAR(type);
    }
    return (PyTypeObject *)type;
}

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "spark_cursor_source_native",
    .m_doc = "Reads Kafka records into Arrow columns, with the librdkafka of confluent-kafka.",
    .m_size = -1,
    .m_methods = module_methods,
};

PyMODINIT_FUNC PyInit_spark_cursor_source_native(void) {
    if (load_librdkafka() < 0) {
        return NULL;
    }
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL) {
        return NULL;
    }
    batch_type = add_type(module, "Batch", &batch_spec);
    consumer_type = add_type(module, "Consumer", &consumer_spec);
    if (batch_type == NULL || consumer_type == NULL ||
        PyModule_AddStringConstant(module, "LIBRDKAFKA_VERSION", rk.rd_kafka_version_str()) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
