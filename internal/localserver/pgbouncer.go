package localserver

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// PgBouncer is a private PgBouncer in transaction mode.
type PgBouncer struct {
	server
	database string
}

// StartPgBouncer starts a PgBouncer in front of the database that target names.
// ErrNotInstalled if the machine has no pgbouncer.
func StartPgBouncer(ctx context.Context, target string) (*PgBouncer, error) {
	to, err := pgx.ParseConfig(target)
	if err != nil {
		return nil, fmt.Errorf("localserver: pgbouncer: %w", err) // pgx leaves the password out
	}
	path, err := findTool("pgbouncer", "pgbouncer", "pgbouncer")
	if err != nil {
		return nil, err
	}
	p, err := newProcess("pgbouncer", path, "postgres")
	if err != nil {
		return nil, err
	}
	// By force: it has nothing to save, and what a gentle signal waits for differs
	// between its versions.
	s := &PgBouncer{server: server{process: p, end: os.Kill}, database: to.Database}
	s.ready = s.answers
	ini := filepath.Join(p.dir, "pgbouncer.ini")
	p.args = []string{ini}
	err = s.launch(ctx, func(port int) error {
		if err := os.WriteFile(ini, []byte(bouncerConfig(to, port)), 0o600); err != nil {
			return err
		}
		return p.user.own(ini)
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// URL returns the connection string of the database behind the PgBouncer.
func (s *PgBouncer) URL() string { return postgresURL(s.port, s.database) }

func bouncerConfig(to *pgx.ConnConfig, port int) string {
	quote := func(v string) string { return "'" + strings.ReplaceAll(v, "'", "''") + "'" }
	password := ""
	if to.Password != "" { // PgBouncer does not read an empty one
		password = "password=" + quote(to.Password)
	}
	return fmt.Sprintf(`[databases]
* = host=%s port=%d user=%s %s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
max_client_conn = 500
default_pool_size = 20
ignore_startup_parameters = extra_float_digits
`, quote(to.Host), to.Port, quote(to.User), password, port)
}

func (s *PgBouncer) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	config, err := pgx.ParseConfig(s.URL())
	if err != nil {
		return err
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }() // after a probe there is nothing to lose
	return conn.Ping(ctx)
}

func postgresURL(port int, database string) string {
	u := url.URL{
		Scheme: "postgres", User: url.User("postgres"), Path: "/" + database,
		Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), RawQuery: "sslmode=disable",
	}
	return u.String()
}
