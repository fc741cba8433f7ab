// Gormservice is a small HTTP service over GORM repositories: articles with a
// stock, and orders for them. Several of its processes may run at once.
//
//	go run ./examples/gormservice                # serves on 127.0.0.1:8080
//	go run ./examples/gormservice -unguarded     # the same under the lock alone
//
//	curl -d '{"sku":"pen","stock":3}' 127.0.0.1:8080/articles
//	curl -d '{"buyer":"ann"}' 127.0.0.1:8080/articles/pen/orders
//	curl 127.0.0.1:8080/articles/pen
//	curl -X PUT -d '{"stock":9}' 127.0.0.1:8080/articles/pen/stock   # forgot the lock: refused
//
// What the guard takes is in open.go: one line that makes it the plugin of the
// database, and one that makes it the guard of the locker. The repository in
// repository.go does not know of it. The tables are in the schema
// example_gormservice.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/go-fencing/fencing/examples/internal/servers"
)

func main() {
	var o options
	listen := flag.String("listen", "127.0.0.1:8080", "`address` to serve on")
	flag.BoolVar(&o.unguarded, "unguarded", false, "write under the lock alone")
	flag.DurationVar(&o.ttl, "ttl", 5*time.Second, "how long a lock lives without renewal")
	flag.StringVar(&o.credit, "credit", "", "`URL` that is asked, by GET ?buyer=, whether a buyer has credit (default: everyone has)")
	s := servers.Parse()

	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	if err := run(ctx, s, *listen, o); err != nil {
		fmt.Fprintln(os.Stderr, "gormservice:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, s servers.Servers, listen string, o options) (err error) {
	stop, err := s.Start(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	pool, rdb, err := s.Connect(ctx, "example_gormservice")
	if err != nil {
		return err
	}
	defer pool.Close()
	defer func() { _ = rdb.Close() }() // by then every lock has been released
	service, err := open(ctx, pool, rdb, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, service.locker.Close()) }()

	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	fmt.Printf("listening on http://%s\n", listener.Addr())
	server := http.Server{Handler: service.routes(), ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	// Requests that are being served get the time to finish.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return server.Shutdown(ctx)
}
