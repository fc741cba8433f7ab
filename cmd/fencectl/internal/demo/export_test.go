package demo

import (
	"context"

	"github.com/go-fencing/fencing/internal/localserver"
)

var (
	Judge    = judge
	Conclude = Result.conclude
)

// StartPostgres replaces what starts a private server.
func StartPostgres(start func(context.Context, localserver.PostgresOptions) (*localserver.Postgres, error)) {
	startPostgres = start
}
