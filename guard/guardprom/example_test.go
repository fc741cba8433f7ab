package guardprom_test

import (
	"context"
	"fmt"
	"log"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/guard/guardprom"
	"github.com/go-fencing/fencing/lock"
	"github.com/go-fencing/fencing/lock/memlock"
)

// One observer for the locker and for the guards, which take it by their own
// WithObserver.
func ExampleNew() {
	reg := prometheus.NewRegistry() // or prometheus.DefaultRegisterer
	observer, err := guardprom.New(reg)
	if err != nil {
		log.Fatal(err)
	}
	locker, err := lock.New(memlock.New(), lock.WithGuards(guard.NewMemory()), lock.WithObserver(observer))
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		if err := locker.Do(context.Background(), "inventory:sku-42", func(context.Context) error { return nil }); err != nil {
			log.Fatal(err)
		}
	}

	families, err := reg.Gather()
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "fencing_acquisitions_total" {
			for _, m := range f.GetMetric() {
				fmt.Println(f.GetName(), m.GetLabel()[0].GetValue(), m.GetCounter().GetValue())
			}
		}
	}
	// Output:
	// fencing_acquisitions_total failed 0
	// fencing_acquisitions_total held 0
	// fencing_acquisitions_total ok 2
}
