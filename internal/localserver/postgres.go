package localserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// PostgresOptions are the wishes for a Postgres server.
type PostgresOptions struct {
	// Settings are entries of postgresql.conf. They take precedence over the
	// defaults here: max_connections 200, everything else as Postgres ships it,
	// fsync included.
	Settings map[string]string
}

// Postgres is a private Postgres server with the superuser "postgres". Its data
// is in the folder "data" of Dir.
type Postgres struct{ server }

// StartPostgres makes a new cluster and starts it. It returns when the server
// answers; ctx bounds only that. ErrNotInstalled if the machine has no Postgres.
func StartPostgres(ctx context.Context, o PostgresOptions) (*Postgres, error) {
	bin, err := findPostgres()
	if err != nil {
		return nil, err
	}
	p, err := newProcess("postgres", filepath.Join(bin, "postgres"), "postgres")
	if err != nil {
		return nil, err
	}
	s := &Postgres{server{process: p, end: interrupt}}
	s.ready = s.answers
	// Without --no-sync initdb takes twice as long; only a crash of the machine
	// could tell the difference, and that loses the directory's user as well.
	initdb := p.command(ctx, filepath.Join(bin, "initdb"), "--pgdata="+s.data(), "--username=postgres",
		"--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync")
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, errors.Join(fmt.Errorf("localserver: initdb: %w:\n%s", cmp.Or(context.Cause(ctx), err), out), s.Stop())
	}
	if err := s.launch(ctx, func(port int) error { p.args = s.arguments(port, o.Settings); return nil }); err != nil {
		return nil, err
	}
	return s, nil
}

// URL returns the connection string of a database; "" means the database "postgres".
func (s *Postgres) URL(database string) string {
	if database == "" {
		database = "postgres"
	}
	return postgresURL(s.port, database)
}

func (s *Postgres) data() string { return filepath.Join(s.dir, "data") }

func (s *Postgres) arguments(port int, settings map[string]string) []string {
	sockets := s.dir
	if len(sockets) > 80 { // the path of a socket may have 103 bytes on every system
		sockets = ""
	}
	all := map[string]string{
		"listen_addresses":        "127.0.0.1",
		"port":                    strconv.Itoa(port),
		"unix_socket_directories": sockets,
		"max_connections":         "200",
		// In the data directory, so that a killed server leaves nothing in /dev/shm.
		"dynamic_shared_memory_type": "mmap",
	}
	maps.Copy(all, settings)
	args := []string{"-D", s.data()}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		args = append(args, "-c", name+"="+all[name])
	}
	return args
}

// answers tells this server from another one that took the port.
func (s *Postgres) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.URL(""))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }() // after a probe there is nothing to lose
	var data string
	if err := conn.QueryRow(ctx, "SHOW data_directory").Scan(&data); err != nil {
		return err
	}
	mine, err := os.Stat(s.data())
	if err != nil {
		return err
	}
	theirs, err := os.Stat(data)
	if err != nil || !os.SameFile(mine, theirs) {
		return fmt.Errorf("another Postgres answers at %s: address already in use", s.Addr())
	}
	return nil
}
