import com.softwaremill.kmq.KafkaClients;
import com.softwaremill.kmq.KmqConfig;
import com.softwaremill.kmq.RedeliveryTracker;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.Deserializer;

/** Runs kmq's redelivery tracker until it is stopped. Arguments: brokers, queue topic, markers topic. */
final class KmqTracker {
    private static final long LEASE_MS = 1_000; // for kmq's own consumers; a marker tells its lease itself
    private static final long USE_NOW_AFTER_MS = 1_000; // without a new marker; as in kmq's examples

    public static void main(String[] arguments) throws InterruptedException {
        String queue = arguments[1];
        KmqConfig config = new KmqConfig(
                queue, arguments[2], queue + "-clients", queue + "-redelivery", LEASE_MS, USE_NOW_AFTER_MS);
        RedeliveryTracker.start(new Clients(arguments[0], queue + "-offsets"), config);
        Thread.currentThread().join();
    }

    /** Clients whose consumers all have a group: kmq commits without one, which later Kafka clients refuse. */
    private static final class Clients extends KafkaClients {
        private final String group;

        Clients(String servers, String group) {
            super(servers);
            this.group = group;
        }

        @Override
        public <K, V> KafkaConsumer<K, V> createConsumer(
                String groupId, Class<? extends Deserializer<K>> keys, Class<? extends Deserializer<V>> values) {
            return super.createConsumer(groupId == null ? group : groupId, keys, values);
        }
    }
}
