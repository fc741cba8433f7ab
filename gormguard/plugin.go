package gormguard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"

	"gorm.io/gorm"

	"github.com/go-fencing/fencing/gormguard/internal/rawsql"
	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/sqltext"
	"github.com/go-fencing/fencing/sqlguard"
)

// A Mode is what a [Plugin] holds writes to guarded tables to.
type Mode uint8

const (
	// ModeFence: the transaction of the write has entered every fence of the
	// statement's context. It needs the fence schema of package migrations.
	ModeFence Mode = iota

	// ModeRow: the row was last written under no later token than that of the
	// statement's context, which is stamped on it. It needs the version column.
	ModeRow

	// ModeBoth: ModeFence, and the row is stamped and compared as in ModeRow.
	ModeBoth
)

func (m Mode) fences() bool { return m != ModeRow }
func (m Mode) stamps() bool { return m != ModeFence }

// A Plugin guards one *gorm.DB, and after db.Use it is the [guard.Guard] of that
// database. It is safe for concurrent use.
type Plugin struct {
	mode     Mode
	column   string
	given    []string // tables, as written
	samples  []any
	observer guard.Observer
	guardOps []sqlguard.Option
	wrong    error // with the options themselves

	tables   *rawsql.Tables
	models   sync.Map // *schema.Schema to *model
	prepared preparedTexts

	mu      sync.Mutex
	plugins map[string]gorm.Plugin // identifies the database that the plugin is on
	dialect sqlguard.Dialect
	guard   atomic.Pointer[sqlguard.Guard]
}

var (
	_ gorm.Plugin = (*Plugin)(nil)
	_ guard.Guard = (*Plugin)(nil)
)

// An Option configures a [Plugin].
type Option func(*Plugin)

// WithTables guards tables by their names, written as in SQL: items, app.items,
// "Odd Table". The schema is not told apart: app.items guards every items. The tables
// must be there when the plugin is put on the database: a name that is misspelt would
// guard nothing.
func WithTables(names ...string) Option {
	return func(p *Plugin) { p.given = append(p.given, names...) }
}

// WithModels guards the tables of models that have a field with the tag fence, or
// the method of [Fenced], from the beginning. A model that is not given here is
// found when GORM meets it first; until then raw SQL on its table passes.
func WithModels(models ...any) Option {
	return func(p *Plugin) { p.samples = append(p.samples, models...) }
}

// WithColumn names the version column of tables whose model has no field with the
// tag fence. Defaults to "fence_token".
func WithColumn(name string) Option { return func(p *Plugin) { p.column = name } }

// WithMode sets the mode. Defaults to ModeFence.
func WithMode(m Mode) Option { return func(p *Plugin) { p.mode = m } }

// WithObserver reports [guard.EventRaised], [guard.EventCommitted] of transactions
// that have entered, [guard.EventRefused], and with [guard.EventUnguarded] every
// write that [Unguarded] let through, whose Err is an *[UnguardedError]. Of a raise
// by a locker with an observer it is that one which is told.
func WithObserver(ob guard.Observer) Option { return func(p *Plugin) { p.observer = ob } }

// WithGuardOptions configures the guard that raises and enters, for example with
// the schema of the fence functions in Postgres: sqlguard.WithSchema("locks").
func WithGuardOptions(opts ...sqlguard.Option) Option {
	return func(p *Plugin) { p.guardOps = append(p.guardOps, opts...) }
}

// New returns a plugin for db.Use. What is wrong with the options is reported
// there.
func New(opts ...Option) *Plugin {
	p := &Plugin{column: "fence_token", tables: rawsql.NewTables()}
	for _, opt := range opts {
		if opt == nil {
			p.wrong = errors.New("gormguard: an option is nil")
			continue
		}
		opt(p)
	}
	return p
}

// Name implements [gorm.Plugin].
func (p *Plugin) Name() string { return "fencing:gormguard" }

// Initialize implements [gorm.Plugin]; call db.Use. It refuses a dialect that it
// does not know, a database whose callbacks another plugin has replaced, and in
// ModeRow and ModeBoth a guarded table without a suitable version column.
func (p *Plugin) Initialize(db *gorm.DB) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.plugins != nil {
		if reflect.ValueOf(p.plugins).UnsafePointer() == reflect.ValueOf(db.Plugins).UnsafePointer() {
			// dbresolver opens its sources and replicas with the configuration of
			// the database, plugins included, and uses only their pools.
			p.takePool(db)
			return nil
		}
		return errors.New("gormguard: this plugin is on another database already; make one for each")
	}
	if p.wrong != nil {
		return p.wrong
	}
	dialect, err := sqlguard.ParseDialect(db.Name())
	if err != nil {
		return fmt.Errorf("gormguard: %w", err)
	}
	if p.mode > ModeBoth {
		return fmt.Errorf("gormguard: WithMode(%d): there is no such mode; take ModeFence, ModeRow or ModeBoth", p.mode)
	}
	if p.column == "" {
		return fmt.Errorf("gormguard: WithColumn(%q): the version column needs a name", p.column)
	}
	p.dialect = dialect
	if err := p.register(db); err != nil {
		return err
	}
	if err := p.observe(db); err != nil {
		return err
	}
	if err := p.takeCallbacks(db); err != nil {
		return err
	}
	if p.mode.stamps() {
		p.takeBuilders(db)
	}
	if p.dialect == sqlguard.MySQL {
		takeRestricted(db)
	}
	p.takePool(db)
	p.plugins = db.Plugins
	return nil
}

// register reads the tables and models of the options.
func (p *Plugin) register(db *gorm.DB) error {
	for _, s := range p.given {
		name, err := rawsql.ParseTable(s)
		if err != nil {
			return err
		}
		if !p.mode.stamps() { // else the column is looked for
			if err := mustExist(db, s); err != nil {
				return err
			}
		}
		p.tables.Add(name, p.column)
	}
	for _, sample := range p.samples {
		stmt := &gorm.Statement{DB: db}
		if err := stmt.Parse(sample); err != nil {
			return fmt.Errorf("gormguard: model %T: %w", sample, err)
		}
		m := p.model(stmt.Schema)
		if m.err != nil {
			return m.err
		}
		if !m.guarded {
			return fmt.Errorf("gormguard: model %T has neither a field with the tag fence nor a method FenceResource, and its table is not in WithTables", sample)
		}
	}
	if !p.mode.stamps() {
		return nil
	}
	for _, name := range p.tables.Names() {
		column, _ := p.tables.Column(name)
		if err := p.checkColumn(db, p.spelling(name), column); err != nil {
			return err
		}
	}
	return nil
}

// spelling returns a table as it was given, which may name its schema.
func (p *Plugin) spelling(name string) string {
	for _, s := range p.given {
		if got, err := rawsql.ParseTable(s); err == nil && got == name {
			return s
		}
	}
	return name
}

// observe makes the guard that raises and enters.
func (p *Plugin) observe(db *gorm.DB) error {
	sqlDB, err := db.DB()
	if err != nil || sqlDB == nil {
		if len(p.guardOps) > 0 {
			return fmt.Errorf("gormguard: WithGuardOptions needs a database with a *sql.DB: %w", cmp.Or(err, gorm.ErrInvalidDB))
		}
		return nil // a pool of another kind: everything but Raise works
	}
	opts := p.guardOps
	if p.observer != nil {
		opts = append([]sqlguard.Option{sqlguard.WithObserver(p.observer)}, opts...)
	}
	g, err := sqlguard.New(sqlDB, p.dialect, opts...)
	p.guard.Store(g)
	return err
}

// Raise implements [guard.Guard] in the database that the plugin is on, on the
// pool of the *gorm.DB and in a transaction of its own.
func (p *Plugin) Raise(ctx context.Context, f guard.Fence) error {
	g := p.guard.Load()
	if g == nil {
		return fmt.Errorf("gormguard: raise %q: the plugin is not on a database, or that has no *sql.DB; call db.Use first", f.Resource)
	}
	return g.Raise(ctx, f)
}

func (p *Plugin) classify(sql string) rawsql.Verdict {
	return rawsql.Classify(sql, sqltext.Dialect(p.dialect), p.tables)
}

func (p *Plugin) lexer(sql string) rawsql.Lexer {
	return rawsql.Lexer{SQL: sql, Dialect: sqltext.Dialect(p.dialect)}
}
