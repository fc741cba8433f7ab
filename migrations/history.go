package migrations

import (
	"embed"
	"sync"
)

// FS holds the history as NNNN_name.up.sql and NNNN_name.down.sql, for the
// default schema "fencing". golang-migrate reads it with iofs.New(FS, ".").
//
//go:embed *.sql
var FS embed.FS

// A step is one migration of the history.
type step struct{ name, up, down string }

// history returns the steps in order; the first one leads from version 0 to 1.
var history = sync.OnceValues(func() ([]step, error) { return readHistory(FS, ".") })

// Latest is the version of the schema that this library was made for.
const Latest = 5
