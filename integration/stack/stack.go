// Package stack starts the Redis and Postgres servers of the tests, and breaks them
// on demand. They are containers where a Docker engine answers, else processes from
// the machine's own binaries; the tests cannot tell the difference.
//
// FENCING_TEST_SERVERS=containers or =processes allows one of the two only.
// FENCING_TEST_REDIS_IMAGE and FENCING_TEST_POSTGRES_IMAGE name other images than
// redis:7-alpine and postgres:17-alpine. Where there are no servers at all the
// tests are skipped, or fail if CI=true.
package stack

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-fencing/fencing/internal/localserver"
)

// The variables that this package reads.
const (
	ServersEnv       = "FENCING_TEST_SERVERS"
	RedisImageEnv    = "FENCING_TEST_REDIS_IMAGE"
	PostgresImageEnv = "FENCING_TEST_POSTGRES_IMAGE"
)

const (
	startBound = 3 * time.Minute // for a server to answer, on a machine that is busy
	callBound  = time.Minute     // for anything else
)

// An engine starts servers of one kind.
type engine interface {
	startRedis(ctx context.Context, args []string) (machine, error)
	startPostgres(ctx context.Context, settings map[string]string) (machine, error)

	// wire connects a replica to its master.
	wire(ctx context.Context, master, replica machine) (wire, error)

	// describe names the kind and, given the servers' own words, the versions.
	describe(redis, postgres string) string
	close() error
}

// A machine is one server, as a process or as a container.
type machine interface {
	Addr() string
	Kill() error                       // by SIGKILL
	Restart(ctx context.Context) error // after Kill: the same files, the same address
	Pause() error                      // nothing answers, no connection ends
	Resume() error
	Stop() error // for good, with all data

	user() (name, password string)
	save(ctx context.Context, path string) error // of a killed server: its data, to a path that does not exist
	load(ctx context.Context, path string) error // of a killed server: what was saved there in place of its data; "" for none
}

// The servers of this test process.
var servers struct {
	engine
	redis    machine
	postgres machine
	err      error // why there are none
}

// Main runs the tests of a package and exits. Call it from TestMain.
func Main(m *testing.M) {
	if reaping() {
		reap()
	}
	moreParallel()
	redis.SetLogger(silence{})
	if err := start(); err != nil {
		if os.Getenv("CI") == "true" || os.Getenv(ServersEnv) != "" {
			fmt.Println("servers: none:", err)
			os.Exit(1)
		}
		servers.err = err
		fmt.Println("servers: none, tests are skipped:", err)
	}
	code := m.Run()
	if err := stop(); err != nil {
		fmt.Println("servers:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// silence keeps the client quiet about servers that are down on purpose.
type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// moreParallel raises the default number of parallel tests: they wait for leases
// and timeouts most of the time.
func moreParallel() {
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		_ = flag.Set("test.parallel", "6") // it exists in every test binary
	}
}

// start chooses the kind of servers by starting those that the tests share: an
// engine that answers may still have no images, or refuse to run them.
func start() error {
	note := ""
	switch wanted := os.Getenv(ServersEnv); wanted {
	case "", "containers":
		d, err := dockerEngine()
		if err == nil {
			err = startOn(d, note)
		}
		if err == nil || wanted != "" {
			return err
		}
		note = fmt.Sprintf("; no containers: %v", err)
		fallthrough
	case "processes":
		return startOn(processes{}, note)
	default:
		return fmt.Errorf("%s=%q is neither containers nor processes", ServersEnv, wanted)
	}
}

func startOn(e engine, note string) (err error) {
	servers.engine = e
	ctx, cancel := context.WithTimeout(context.Background(), startBound)
	defer cancel()
	postgres := background(func() (machine, error) { return servers.startPostgres(ctx, nil) })
	servers.redis, err = servers.startRedis(ctx, nil)
	p := <-postgres
	servers.postgres = p.machine
	err = errors.Join(err, p.err)
	var redisVersion, postgresVersion string
	if err == nil {
		redisVersion, err = askRedis(ctx, servers.redis)
	}
	if err == nil {
		postgresVersion, err = askPostgres(ctx, servers.postgres)
	}
	if err != nil {
		return errors.Join(err, stop())
	}
	fmt.Printf("servers: %s%s\n", servers.describe(redisVersion, postgresVersion), note)
	return nil
}

type made struct {
	machine
	err error
}

func background(f func() (machine, error)) <-chan made {
	done := make(chan made, 1)
	go func() {
		m, err := f()
		done <- made{m, err}
	}()
	return done
}

func stop() error {
	var errs []error
	for _, m := range []machine{servers.redis, servers.postgres} {
		if m != nil {
			errs = append(errs, m.Stop())
		}
	}
	if servers.engine != nil {
		errs = append(errs, servers.close())
	}
	servers.engine, servers.redis, servers.postgres = nil, nil, nil
	return errors.Join(errs...)
}

// need skips or fails a test for want of servers.
func need(t testing.TB) {
	t.Helper()
	switch {
	case servers.err != nil && errors.Is(servers.err, localserver.ErrNotInstalled):
		t.Skip(servers.err)
	case servers.err != nil:
		t.Fatal(servers.err)
	case servers.engine == nil:
		t.Fatal("stack: TestMain must call stack.Main")
	}
}
