package guardotel_test

import (
	"context"
	"fmt"
	"log"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/guard/guardotel"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/memlock"
)

// In a service with global providers New needs no options.
func ExampleNew() {
	spans := tracetest.NewSpanRecorder()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	observer, err := guardotel.New(guardotel.WithTracerProvider(tracer))
	if err != nil {
		log.Fatal(err)
	}
	locker, err := lock.New(memlock.New(), lock.WithGuards(guard.NewMemory()), lock.WithObserver(observer))
	if err != nil {
		log.Fatal(err)
	}

	ctx, request := tracer.Tracer("shop").Start(context.Background(), "POST /orders")
	err = locker.Do(ctx, "inventory:sku-42", func(context.Context) error { return nil })
	request.End()
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range spans.Ended() {
		fmt.Println(s.Name(), "under", s.Parent().IsValid())
	}
	// Output:
	// fencing.acquire under true
	// fencing.raise under true
	// fencing.release under true
	// POST /orders under false
}
