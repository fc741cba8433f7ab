package torture

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/go-fencing/fencing/cmd/fencectl/internal/target"
	"github.com/go-fencing/fencing/cmd/fencectl/internal/torture/workload"
	"github.com/go-fencing/fencing/internal/history"
	"github.com/go-fencing/fencing/internal/localserver"
	"github.com/go-fencing/fencing/migrations"
)

const detachedBound = 30 * time.Second // to clean up

// A stage is the servers that a run has, and what it made there.
type stage struct {
	name        string // of the schema with the data, the keys in Redis and the clients in Postgres
	fenceSchema string
	url         string
	addr        string // of Postgres, for the links
	about       []string

	pool     *pgxpool.Pool
	postgres *localserver.Postgres // nil if it is the user's
	redis    redisSide
	slot     string // of the logical decoding; "" where a table stands in for it
}

func openStage(ctx context.Context, o Options, resources []string) (*stage, error) {
	s := &stage{name: "fencectl_torture_" + strings.ToLower(rand.Text()[:8])}
	s.fenceSchema = s.name + "_fence"
	err := s.open(ctx, o, resources)
	if err != nil {
		return nil, errors.Join(err, s.close(ctx))
	}
	return s, nil
}

func (s *stage) open(ctx context.Context, o Options, resources []string) (err error) {
	if s.redis, err = openRedis(ctx, o.Redis, s.name); err != nil {
		return err
	}
	s.about = append(s.about, s.redis.about())
	address := o.Postgres
	if address == nil {
		s.postgres, err = localserver.StartPostgres(ctx, localserver.PostgresOptions{Settings: map[string]string{"wal_level": "logical", "track_commit_timestamp": "on"}})
		switch {
		case errors.Is(err, localserver.ErrNotInstalled):
			return err
		case err != nil:
			return target.Unreachable(err)
		}
		if address, err = target.ParsePostgres(target.Setting{Source: "postgres", Value: s.postgres.URL("")}); err != nil {
			return err
		}
	}
	config := address.Config.ConnConfig
	s.url, s.addr = address.Value, net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port)))
	if s.pool, err = address.Pool(ctx, 4); err != nil {
		return err
	}
	if err := s.build(ctx, resources); err != nil {
		return address.Unusable(err)
	}
	if err := s.rehearse(ctx, config.Copy()); err != nil {
		return address.Unusable(err)
	}
	var version string
	if err := s.pool.QueryRow(ctx, "SHOW server_version").Scan(&version); err != nil {
		return address.Unusable(err)
	}
	kind := fmt.Sprintf("%s, schema %s", address, s.name)
	if s.postgres != nil {
		kind = "a private server"
	}
	s.about = append(s.about, fmt.Sprintf("PostgreSQL %s, %s; commit order from %s", version, kind, s.log()))
	return nil
}

// tables are those of the history, and no constraint of them would stop a wrong
// write: the oracle must see it.
const tables = history.Tables + `
CREATE TABLE account (resource text NOT NULL, side text NOT NULL, value bigint NOT NULL);
CREATE TABLE item (resource text NOT NULL, op text NOT NULL);
CREATE TABLE effect (resource text NOT NULL, op text NOT NULL, what text NOT NULL, amount bigint NOT NULL);
CREATE TABLE lax_fence (resource text PRIMARY KEY, token bigint NOT NULL, nonce text NOT NULL);
CREATE TABLE commits (place bigint GENERATED ALWAYS AS IDENTITY, op text NOT NULL);`

// note keeps the order of commits in the table commits: the lock that the deferred
// trigger takes is held until the commit is done.
const note = `
CREATE FUNCTION note_commit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(TG_TABLE_SCHEMA, 1));
    EXECUTE format('INSERT INTO %I.commits (op) VALUES ($1)', TG_TABLE_SCHEMA) USING NEW.op;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER note_commit AFTER INSERT ON history DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note_commit();`

func (s *stage) build(ctx context.Context, resources []string) error {
	if err := migrations.Up(ctx, s.pool, migrations.WithSchema(s.fenceSchema)); err != nil {
		return err
	}
	schema := pgx.Identifier{s.name}.Sanitize()
	err := s.inSchema(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "CREATE SCHEMA "+schema+"; COMMENT ON SCHEMA "+schema+" IS 'made by fencectl torture; it can be dropped';"+tables)
		if err != nil {
			return err
		}
		if s.postgres == nil {
			if _, err := tx.Exec(ctx, note); err != nil {
				return err
			}
		}
		_, err = tx.Exec(ctx, `WITH r AS (INSERT INTO balance (resource) SELECT unnest($1::text[]) RETURNING resource)
			INSERT INTO account SELECT resource, side, CASE side WHEN 'left' THEN $2::bigint ELSE 0 END FROM r, unnest('{left,right}'::text[]) side`, resources, workload.Total)
		return err
	})
	if err != nil || s.postgres == nil {
		return err
	}
	_, err = s.pool.Exec(ctx, "SELECT pg_create_logical_replication_slot($1, 'test_decoding')", s.name)
	if err != nil {
		return err
	}
	s.slot = s.name
	return nil
}

// rehearse connects as the workers will, which a pooler may not let them.
func (s *stage) rehearse(ctx context.Context, config *pgx.ConnConfig) error {
	config.RuntimeParams["search_path"] = s.name
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	var rows int
	err = conn.QueryRow(ctx, "SELECT count(*) FROM history").Scan(&rows)
	return errors.Join(err, conn.Close(ctx))
}

func (s *stage) inSchema(ctx context.Context, fn func(tx pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT set_config('search_path', $1, true)", s.name); err != nil {
			return err
		}
		return fn(tx)
	})
}

func (s *stage) log() string {
	if s.slot != "" {
		return "logical decoding"
	}
	return "a trigger that takes a lock"
}

// close removes what the run has made.
func (s *stage) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), detachedBound)
	defer cancel()
	err := s.redis.close(ctx)
	if s.pool != nil {
		defer s.pool.Close()
	}
	if s.postgres != nil {
		return errors.Join(err, s.postgres.Stop())
	}
	if s.pool == nil {
		return err
	}
	_, dropped := s.pool.Exec(ctx, fmt.Sprintf("DROP SCHEMA IF EXISTS %s, %s CASCADE", pgx.Identifier{s.name}.Sanitize(), pgx.Identifier{s.fenceSchema}.Sanitize()))
	if dropped != nil {
		dropped = fmt.Errorf("the schemas %s and %s may be left in the database: %w", s.name, s.fenceSchema, dropped)
	}
	return errors.Join(err, dropped)
}
