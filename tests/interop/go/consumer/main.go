// kafka-mq-go's consumer of one queue id as a program: QUEUE=orders consumer -config FILE.
//
// It acks each message and prints "acked" and the payload. A message whose payload begins with "leave" it interrupts
// the first time that it sees this payload; the copy that comes back has another offset.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/splunk/kafka-mq-go/pkg/kafka"
	"github.com/splunk/kafka-mq-go/queue"
)

func main() {
	conf, err := queue.NewConfigFromCLI()
	check(err)
	service, err := queue.NewService(kafka.NewClientFactory(), conf)
	check(err)
	consumer, err := service.GetOrCreateQueue(os.Getenv("QUEUE")).Consumer()
	check(err)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	left := map[string]bool{}
	for ctx.Err() == nil {
		message, err := consumer.Receive(ctx)
		check(err)
		if message == nil {
			continue
		}
		payload := string(message.Payload())
		if strings.HasPrefix(payload, "leave") && !left[payload] {
			left[payload] = true
			check(message.Interrupt())
			continue
		}
		check(message.Ack())
		fmt.Println("acked", payload)
	}
	check(consumer.Close())
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
