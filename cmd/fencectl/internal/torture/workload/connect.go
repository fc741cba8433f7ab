package workload

import (
	"context"
	"crypto/tls"
	"net"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
)

// connect makes the clients. Each of their connections goes through the worker's own
// link, whatever the URL says, so that TLS still sees the name of the server.
func (p *program) connect(ctx context.Context) (closing func(), err error) {
	rdb, err := redis.ParseURL(p.Redis)
	if err != nil {
		return nil, err
	}
	rdb.DisableIdentity = true
	rdb.ContextTimeoutEnabled = true
	rdb.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) {
		c, err := through(ctx, p.RedisLink)
		if err != nil || rdb.TLSConfig == nil {
			return c, err
		}
		return tls.Client(c, rdb.TLSConfig), nil
	}
	redis.SetLogger(silence{})
	p.rdb = redis.NewClient(rdb)

	config, err := pgxpool.ParseConfig(p.Postgres)
	if err != nil {
		return nil, err
	}
	config.MaxConns = 4
	p.prepare(config.ConnConfig)
	// By default only connections that were idle for a second are checked; a server
	// that restarts faster would fail the operation instead of what is tortured.
	config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return true }
	if p.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, err
	}
	closeStore, err := p.open(config.ConnConfig.Copy())
	if err != nil {
		return nil, err
	}
	closeLocks, err := p.openLocks()
	if err != nil {
		return nil, err
	}
	return func() {
		closeLocks()
		closeStore()
		p.pool.Close()
		_ = p.rdb.Close() // at the end there is nothing to lose
	}, nil
}

func (p *program) prepare(c *pgx.ConnConfig) {
	c.RuntimeParams["application_name"] = p.Name
	c.RuntimeParams["search_path"] = p.DataSchema
	c.LookupFunc = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil }
	c.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) { return through(ctx, p.PostgresLink) }
}

func through(ctx context.Context, link string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", link)
}

// silence keeps the client quiet about servers that are down on purpose.
type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}
