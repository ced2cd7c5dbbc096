module cursorq/interop

go 1.21

require (
	// Newer than what kafka-mq-go pins, which cannot talk to Kafka 4; the last one with the import path that it uses.
	github.com/confluentinc/confluent-kafka-go v1.9.2
	github.com/gogo/protobuf v1.3.2
	github.com/splunk/kafka-mq-go v0.0.0
)
