"""Individual-ack queues on Kafka for Spark Structured Streaming."""
