/* The part of librdkafka's public API that this module calls. It is the same in every 2.x.
 *
 * librdkafka is not linked. Its functions are looked up in the library that confluent-kafka has loaded, so that
 * both use one librdkafka.
 */
#ifndef CURSORQ_LIBRDKAFKA_H
#define CURSORQ_LIBRDKAFKA_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct rd_kafka_s rd_kafka_t;
typedef struct rd_kafka_conf_s rd_kafka_conf_t;
typedef struct rd_kafka_topic_s rd_kafka_topic_t;
typedef struct rd_kafka_topic_conf_s rd_kafka_topic_conf_t;
typedef struct rd_kafka_queue_s rd_kafka_queue_t;
typedef struct rd_kafka_headers_s rd_kafka_headers_t;
typedef struct rd_kafka_topic_partition_list_s rd_kafka_topic_partition_list_t;
typedef struct rd_kafka_topic_partition_s rd_kafka_topic_partition_t;

/* Enumerations of librdkafka, which are ints in its ABI. */
typedef int rd_kafka_type_t;
typedef int rd_kafka_resp_err_t;
typedef int rd_kafka_conf_res_t;
typedef int rd_kafka_timestamp_type_t;

enum { RD_KAFKA_CONSUMER = 1, RD_KAFKA_CONF_OK = 0 };

typedef struct rd_kafka_message_s {
    rd_kafka_resp_err_t err;
    rd_kafka_topic_t *rkt;
    int32_t partition;
    void *payload; /* the text of the error if err is set */
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *_private;
} rd_kafka_message_t;

typedef struct rd_kafka_metadata_partition {
    int32_t id;
    rd_kafka_resp_err_t err;
    int32_t leader;
    int replica_cnt;
    int32_t *replicas;
    int isr_cnt;
    int32_t *isrs;
} rd_kafka_metadata_partition_t;

typedef struct rd_kafka_metadata_topic {
    char *topic;
    int partition_cnt;
    rd_kafka_metadata_partition_t *partitions;
    rd_kafka_resp_err_t err;
} rd_kafka_metadata_topic_t;

typedef struct rd_kafka_metadata {
    int broker_cnt;
    void *brokers;
    int topic_cnt;
    rd_kafka_metadata_topic_t *topics;
    int32_t orig_broker_id;
    char *orig_broker_name;
} rd_kafka_metadata_t;

/* FUNCTION(result, name, parameters) for each function that is called. */
#define LIBRDKAFKA_FUNCTIONS(FUNCTION)                                                                           \
    FUNCTION(int, rd_kafka_version, (void))                                                                      \
    FUNCTION(const char *, rd_kafka_version_str, (void))                                                         \
    FUNCTION(rd_kafka_conf_t *, rd_kafka_conf_new, (void))                                                       \
    FUNCTION(void, rd_kafka_conf_destroy, (rd_kafka_conf_t *))                                                   \
    FUNCTION(rd_kafka_conf_res_t, rd_kafka_conf_set,                                                             \
             (rd_kafka_conf_t *, const char *, const char *, char *, size_t))                                    \
    FUNCTION(rd_kafka_t *, rd_kafka_new, (rd_kafka_type_t, rd_kafka_conf_t *, char *, size_t))                   \
    FUNCTION(void, rd_kafka_destroy, (rd_kafka_t *))                                                             \
    FUNCTION(rd_kafka_resp_err_t, rd_kafka_poll_set_consumer, (rd_kafka_t *))                                    \
    FUNCTION(rd_kafka_resp_err_t, rd_kafka_consumer_close, (rd_kafka_t *))                                       \
    FUNCTION(rd_kafka_queue_t *, rd_kafka_queue_get_consumer, (rd_kafka_t *))                                    \
    FUNCTION(void, rd_kafka_queue_destroy, (rd_kafka_queue_t *))                                                 \
    FUNCTION(ssize_t, rd_kafka_consume_batch_queue, (rd_kafka_queue_t *, int, rd_kafka_message_t **, size_t))    \
    FUNCTION(void, rd_kafka_message_destroy, (rd_kafka_message_t *))                                             \
    FUNCTION(const char *, rd_kafka_message_errstr, (const rd_kafka_message_t *))                                \
    FUNCTION(int64_t, rd_kafka_message_timestamp, (const rd_kafka_message_t *, rd_kafka_timestamp_type_t *))     \
    FUNCTION(rd_kafka_resp_err_t, rd_kafka_message_headers, (const rd_kafka_message_t *, rd_kafka_headers_t **)) \
    FUNCTION(rd_kafka_resp_err_t, rd_kafka_header_get_all,                                                       \
             (const rd_kafka_headers_t *, size_t, const char **, const void **, size_t *))                       \
    FUNCTION(rd_kafka_topic_partition_list_t *, rd_kafka_topic_partition_list_new, (int))                        \
    FUNCTION(void, rd_kafka_topic_partition_list_destroy, (rd_kafka_topic_partition_list_t *))                   \
    FUNCTION(rd_kafka_topic_partition_t *, rd_kafka_topic_partition_list_add,                                    \
             (rd_kafka_topic_partition_list_t *, const char *, int32_t))                                         \
    FUNCTION(rd_kafka_resp_err_t, rd_kafka_topic_partition_list_set_offset,                                      \
             (rd_kafka_topic_partition_list_t *, const char *, int32_t, int64_t))                                \
    FUNCTION(rd_kafka_resp_err_t, rd_kafka_assign, (rd_kafka_t *, const rd_kafka_topic_partition_list_t *))      \
    FUNCTION(rd_kafka_resp_err_t, rd_kafka_query_watermark_offsets,                                              \
             (rd_kafka_t *, const char *, int32_t, int64_t *, int64_t *, int))                                   \
    FUNCTION(rd_kafka_resp_err_t, rd_kafka_get_watermark_offsets,                                                \
             (rd_kafka_t *, const char *, int32_t, int64_t *, int64_t *))                                        \
    FUNCTION(rd_kafka_topic_t *, rd_kafka_topic_new, (rd_kafka_t *, const char *, rd_kafka_topic_conf_t *))      \
    FUNCTION(void, rd_kafka_topic_destroy, (rd_kafka_topic_t *))                                                 \
    FUNCTION(rd_kafka_resp_err_t, rd_kafka_last_error, (void))                                                   \
    FUNCTION(rd_kafka_resp_err_t, rd_kafka_metadata,                                                             \
             (rd_kafka_t *, int, rd_kafka_topic_t *, const rd_kafka_metadata_t **, int))                         \
    FUNCTION(void, rd_kafka_metadata_destroy, (const rd_kafka_metadata_t *))

#endif
