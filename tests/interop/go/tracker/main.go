// kafka-mq-go's redelivery tracker as a program: tracker -config FILE. It runs until it is told to end.
package main

import (
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/splunk/kafka-mq-go/pkg/logging"
	"github.com/splunk/kafka-mq-go/queue"
	"github.com/splunk/kafka-mq-go/redelivery_tracker/cmd"
)

func main() {
	conf, err := queue.NewConfigFromCLI()
	if err != nil {
		log.Fatal(err)
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, os.Interrupt, syscall.SIGTERM)
	tracker := cmd.Start(logging.NewGlobal("redelivery_tracker"), conf)
	<-end
	tracker.Stop()
}
