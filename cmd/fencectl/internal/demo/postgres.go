package demo

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/go-fencing/fencing/cmd/fencectl/internal/target"
	"github.com/go-fencing/fencing/internal/localserver"
	"github.com/go-fencing/fencing/migrations"
	"github.com/go-fencing/fencing/pgguard"
)

// A postgresStage is the Postgres that the demo plays on: two schemas of its own
// in the user's database, or in that of a private server.
type postgresStage struct {
	pgInventory
	url         string
	says        string
	fenceSchema string
	pool        *pgxpool.Pool
	server      *localserver.Postgres // nil if it is the user's
}

var _ stage = (*postgresStage)(nil)

var startPostgres = localserver.StartPostgres

// openPostgres takes the user's database, or starts a server if address is nil.
func openPostgres(ctx context.Context, address *target.Postgres, name string) (*postgresStage, error) {
	s := &postgresStage{pgInventory: pgInventory{schema: name}, fenceSchema: name + "_fence"}
	if address == nil {
		var err error
		s.server, err = startPostgres(ctx, localserver.PostgresOptions{})
		switch {
		case errors.Is(err, localserver.ErrNotInstalled):
			return nil, err
		case err != nil:
			return nil, target.Unreachable(err)
		}
		if address, err = target.ParsePostgres(target.Setting{Source: "postgres", Value: s.server.URL("")}); err != nil {
			return nil, errors.Join(err, s.server.Stop())
		}
	}
	s.url = address.Value
	err := s.build(ctx, address)
	if err != nil {
		return nil, errors.Join(err, detached(ctx, s.close))
	}
	return s, nil
}

func (s *postgresStage) build(ctx context.Context, address *target.Postgres) (err error) {
	if s.pool, err = address.Pool(ctx, 2); err != nil {
		return err
	}
	s.db = s.pool
	var version string
	if err := s.pool.QueryRow(ctx, "SHOW server_version").Scan(&version); err != nil {
		return address.Unusable(err)
	}
	s.says = fmt.Sprintf("PostgreSQL %s, a private server at %s", version, address.HostPort())
	if s.server == nil {
		s.says = fmt.Sprintf("PostgreSQL %s, %s, schema %s", version, address, s.schema)
	}
	schema := pgx.Identifier{s.schema}.Sanitize()
	if err := migrations.Up(ctx, s.pool, migrations.WithSchema(s.fenceSchema)); err != nil {
		return address.Unusable(err)
	}
	_, err = s.pool.Exec(ctx, "CREATE SCHEMA "+schema+";"+
		" COMMENT ON SCHEMA "+schema+" IS 'made by fencectl demo; it can be dropped';"+
		" CREATE TABLE "+s.table()+" (sku text PRIMARY KEY, stock integer NOT NULL);"+
		fmt.Sprintf(" INSERT INTO %s VALUES ('%s', %d)", s.table(), sku, opening))
	if err != nil {
		return address.Unusable(err)
	}
	return nil
}

func (s *postgresStage) store() Store  { return Postgres }
func (s *postgresStage) about() string { return s.says }

func (s *postgresStage) tell(to *setup) {
	to.Store, to.Postgres, to.Schema, to.FenceSchema = Postgres, s.url, s.schema, s.fenceSchema
}

// refused asks for the SQLSTATE of a stale fence: proof that the server refused.
func (s *postgresStage) refused(f *failure) bool { return f.SQLState == "UF001" }

func (s *postgresStage) close(ctx context.Context) error {
	if s.server != nil {
		if s.pool != nil {
			s.pool.Close()
		}
		return s.server.Stop()
	}
	if s.pool == nil {
		return nil
	}
	defer s.pool.Close()
	drop := fmt.Sprintf("DROP SCHEMA IF EXISTS %s, %s CASCADE", pgx.Identifier{s.schema}.Sanitize(), pgx.Identifier{s.fenceSchema}.Sanitize())
	if _, err := s.pool.Exec(ctx, drop); err != nil {
		return fmt.Errorf("the schemas %s and %s may be left in the database: %w", s.schema, s.fenceSchema, err)
	}
	return nil
}

// postgresStore is what a worker has of a database: the inventory without and with
// a guard, and the guard.
func postgresStore(ctx context.Context, s setup) (*workerStore, error) {
	address, err := target.ParsePostgres(target.Setting{Source: "--postgres", Value: s.Postgres})
	if err != nil {
		return nil, err
	}
	pool, err := address.Pool(ctx, 4)
	if err != nil {
		return nil, err
	}
	g, err := pgguard.New(pool, pgguard.WithSchema(s.FenceSchema))
	if err != nil {
		pool.Close()
		return nil, err
	}
	return &workerStore{plain: pgInventory{s.Schema, pool}, guarded: pgInventory{s.Schema, g}, guard: g, close: pool.Close}, nil
}
