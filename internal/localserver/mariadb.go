package localserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// MariaDBOptions are the wishes for a MariaDB server.
type MariaDBOptions struct {
	// Settings are server variables. They take precedence over the defaults here:
	// no flush to the disk at a commit, a small buffer pool, 200 connections,
	// utf8mb4.
	Settings map[string]string
}

// MariaDB is a private MariaDB server with the user "root", who has no password.
// Its data is in the folder "data" of Dir.
type MariaDB struct{ server }

// StartMariaDB makes a new data directory and starts a server on it. It returns
// when the server answers; ctx bounds only that. ErrNotInstalled if the machine
// has no MariaDB.
func StartMariaDB(ctx context.Context, o MariaDBOptions) (*MariaDB, error) {
	path, err := findTool("mariadbd", "mariadb-server", "mariadb")
	if err != nil {
		return nil, err
	}
	install, err := findTool("mariadb-install-db", "mariadb-server", "mariadb")
	if err != nil {
		return nil, err
	}
	p, err := newProcess("mariadb", path, "mysql")
	if err != nil {
		return nil, err
	}
	s := &MariaDB{server{process: p, end: terminate}}
	s.ready = s.answers
	// A server that starts removes what others have left in its folder for temporary
	// tables, and takes those of servers that run for it.
	p.env = append(p.env, "TMPDIR="+p.dir)
	// --no-defaults here and below: the machine's own configuration is meant for
	// another server.
	init := p.command(ctx, install, "--no-defaults", "--datadir="+s.data(), "--auth-root-authentication-method=normal",
		"--skip-test-db", "--skip-name-resolve", "--innodb-flush-log-at-trx-commit=0", "--innodb-log-file-size=8M")
	if out, err := init.CombinedOutput(); err != nil {
		return nil, errors.Join(fmt.Errorf("localserver: mariadb-install-db: %w:\n%s", cmp.Or(context.Cause(ctx), err), out), s.Stop())
	}
	if err := s.launch(ctx, func(port int) error { p.args = s.arguments(port, o.Settings); return nil }); err != nil {
		return nil, err
	}
	return s, nil
}

// DSN returns the data source name of a database, as go-sql-driver/mysql reads it;
// "" means no database.
func (s *MariaDB) DSN(database string) string { return "root@tcp(" + s.Addr() + ")/" + database }

func (s *MariaDB) data() string { return filepath.Join(s.dir, "data") }

func (s *MariaDB) socket() string { return filepath.Join(s.dir, "s") }

func (s *MariaDB) arguments(port int, settings map[string]string) []string {
	all := map[string]string{
		"datadir":                        s.data(),
		"socket":                         s.socket(),
		"pid-file":                       filepath.Join(s.dir, "pid"),
		"bind-address":                   "127.0.0.1",
		"port":                           strconv.Itoa(port),
		"max-connections":                "200",
		"character-set-server":           "utf8mb4",
		"innodb-flush-log-at-trx-commit": "0",
		"innodb-buffer-pool-size":        "32M",
		"innodb-log-file-size":           "8M",
	}
	maps.Copy(all, settings)
	args := []string{"--no-defaults", "--skip-name-resolve"}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		args = append(args, "--"+name+"="+all[name])
	}
	return args
}

// answers waits for the greeting on the socket, by which this server is told from
// another one that took the port; the server opens it after the port.
func (s *MariaDB) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", s.socket())
	if err != nil {
		return err
	}
	defer closeQuietly(conn)
	deadline, _ := ctx.Deadline()
	if err := conn.SetReadDeadline(deadline); err != nil {
		return err
	}
	header := make([]byte, 5) // of the packet, and the protocol's version or 255 for an error
	if _, err := io.ReadFull(conn, header); err != nil {
		return err
	}
	if header[4] != 10 {
		return fmt.Errorf("localserver: MariaDB greets with protocol %d", header[4])
	}
	return nil
}
