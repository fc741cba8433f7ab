package gormguard

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strings"

	"gorm.io/gorm"

	"github.com/go-fencing/fencing/gormguard/internal/rawsql"
	"github.com/go-fencing/fencing/guard"
)

// A link is one callback of GORM, in whose place or around which the guard has to
// stand.
type link struct{ before, core, after string }

// GORM's own, in each chain that builds statements that write.
var (
	createLink = link{"gorm:before_create", "gorm:create", "gorm:save_after_associations"}
	updateLink = link{"gorm:before_update", "gorm:update", "gorm:save_after_associations"}
	deleteLink = link{"gorm:before_delete", "gorm:delete", "gorm:after_delete"}
)

const (
	beginLink = "gorm:begin_transaction" // missing with SkipDefaultTransaction
	endLink   = "gorm:commit_or_rollback_transaction"
)

// takeCallbacks stands in all six chains. Every callback that it names must be
// there: GORM puts one that is to come before a missing one at the very end, and
// says nothing.
func (p *Plugin) takeCallbacks(db *gorm.DB) error {
	chains := db.Callback()
	type positions interface {
		Get(name string) func(*gorm.DB)
	}
	for _, c := range []struct {
		chain positions
		names []string
	}{
		{chains.Create(), []string{createLink.before, createLink.core, createLink.after}},
		{chains.Update(), []string{"gorm:setup_reflect_value", updateLink.before, updateLink.core, updateLink.after}},
		{chains.Delete(), []string{deleteLink.before, "gorm:delete_before_associations", deleteLink.core, deleteLink.after}},
		{chains.Row(), []string{"gorm:row"}},
		{chains.Raw(), []string{"gorm:raw"}},
	} {
		for _, name := range append(c.names, beginLink, endLink) {
			fn := c.chain.Get(name)
			if fn == nil && (name == beginLink || name == endLink) {
				continue
			}
			if fn == nil || !original(fn) {
				return fmt.Errorf("gormguard: another plugin has replaced or removed the callback %s: use gormguard before it, so that its statements are guarded too", name)
			}
		}
	}
	first := func(chain positions, name string) string {
		if chain.Get(beginLink) != nil {
			return beginLink
		}
		return name
	}
	return errors.Join(
		chains.Create().Before(first(chains.Create(), createLink.before)).Register("gormguard:connect", p.connect),
		chains.Create().Before(createLink.before).Register("gormguard:enter", p.enterEarly),
		chains.Create().Before(createLink.core).Register("gormguard:resource", asking(p.checkInsertedResources)),
		chains.Create().Before(createLink.core).Register("gormguard:plan", p.planCreate),
		chains.Create().After(createLink.core).Before(createLink.after).Register("gormguard:verify", p.verifyCreate),
		chains.Create().After(endLink).Register("gormguard:finish", p.finish),

		chains.Update().Before(first(chains.Update(), "gorm:setup_reflect_value")).Register("gormguard:connect", p.connect),
		chains.Update().Before(updateLink.before).Register("gormguard:enter", p.enterEarly),
		chains.Update().Before(updateLink.core).Register("gormguard:resource", asking(p.checkUpdatedResources)),
		chains.Update().Before(updateLink.core).Register("gormguard:plan", p.planUpdate),
		chains.Update().After(updateLink.core).Before(updateLink.after).Register("gormguard:verify", p.verify),
		chains.Update().After(endLink).Register("gormguard:finish", p.finish),

		chains.Delete().Before(first(chains.Delete(), deleteLink.before)).Register("gormguard:connect", p.connect),
		chains.Delete().Before(deleteLink.before).Register("gormguard:enter", p.enterEarly),
		chains.Delete().Before("gorm:delete_before_associations").Register("gormguard:resource", asking(p.checkDeletedResources)),
		chains.Delete().Before(deleteLink.core).Register("gormguard:plan", p.planDelete),
		chains.Delete().After(deleteLink.core).Before(deleteLink.after).Register("gormguard:verify", p.verify),
		chains.Delete().After(endLink).Register("gormguard:finish", p.finish),

		chains.Query().Before("gorm:query").Register("gormguard:connect", p.connect),
		chains.Query().After("gorm:query").Register("gormguard:finish", p.finish),
		chains.Row().Before("gorm:row").Register("gormguard:connect", p.connectRows),
		chains.Raw().Before("gorm:raw").Register("gormguard:connect", p.connect),
	)
}

// original reports whether a callback is GORM's own.
func original(fn func(*gorm.DB)) bool {
	f := runtime.FuncForPC(reflect.ValueOf(fn).Pointer())
	return f != nil && strings.HasPrefix(f.Name(), "gorm.io/gorm/callbacks.")
}

// takePool stands in front of the pool of a database, below a cache of prepared
// statements, which GORM looks for by its type.
func (p *Plugin) takePool(db *gorm.DB) {
	if cache, ok := db.ConnPool.(*gorm.PreparedStmtDB); ok {
		cache.ConnPool = p.view(cache.ConnPool)
		return
	}
	db.ConnPool = p.view(db.ConnPool)
	if db.Statement != nil {
		db.Statement.ConnPool = db.ConnPool
	}
}

// view returns the guarded form of a pool or a transaction.
func (p *Plugin) view(conn gorm.ConnPool) gorm.ConnPool {
	switch c := conn.(type) {
	case nil:
		return c
	case *pool:
		if c.plugin == p { // and not that of another *gorm.DB on the same pool
			return c
		}
	}
	if t, ok := p.viewOf(conn, &txState{foreign: true}); ok {
		return t
	}
	return &pool{plugin: p, inner: conn}
}

// connect guards the pool that the statement really uses: a plugin, Connection or
// PrepareStmt may have put another one in the place of that of the database.
func (p *Plugin) connect(db *gorm.DB) {
	stmt := db.Statement
	if stmt.Schema != nil {
		p.model(stmt.Schema)
	}
	stmt.ConnPool = p.view(stmt.ConnPool)
}

// connectRows is connect where the caller will read the rows. The plugin sees to the
// errors of its own.
func (p *Plugin) connectRows(db *gorm.DB) {
	p.connect(db)
	_, own := db.Statement.Settings.Load(questionKey{})
	if t, ok := db.Statement.ConnPool.(*transaction); ok && !own {
		view := *t
		view.rows = true
		db.Statement.ConnPool = &view
	}
}

// enterEarly comes before the hooks of the model: they must not run for a holder
// whose write will be refused.
func (p *Plugin) enterEarly(db *gorm.DB) {
	stmt := db.Statement
	if db.Error != nil || db.DryRun {
		return
	}
	table := p.target(stmt)
	if table == "" || stmt.Context.Value(unguardedKey{}) != nil {
		return
	}
	if stmt.Schema != nil {
		if m := p.model(stmt.Schema); m.err != nil {
			_ = db.AddError(m.err)
			return
		}
	}
	if len(guard.Fences(stmt.Context)) == 0 {
		_ = db.AddError(p.refuse(stmt.Context, noFence(table)))
		return
	}
	if t, ok := stmt.ConnPool.(*transaction); ok && p.mode.fences() {
		if err := t.enter(stmt.Context); err != nil {
			_ = db.AddError(err)
		}
	}
}

// target returns the guarded table that a chain names before its SQL is built.
func (p *Plugin) target(stmt *gorm.Statement) string {
	if stmt.Schema != nil {
		if m := p.model(stmt.Schema); m.guarded && stmt.TableExpr == nil {
			return stmt.Schema.Table
		}
	}
	if p.tables.Has(stmt.Table) {
		return stmt.Table
	}
	if stmt.TableExpr != nil {
		if name := p.mentioned(stmt.TableExpr.SQL); name != "" {
			return name
		}
	}
	return p.redirected(stmt)
}

// mentioned returns the first guarded name in a piece of SQL.
func (p *Plugin) mentioned(sql string) string {
	l := p.lexer(sql)
	for {
		t, ok := l.Next()
		if !ok {
			return ""
		}
		if t.Kind != rawsql.Punct && p.tables.Has(t.Text) {
			return t.Text
		}
	}
}

type refusalKey struct{}

// A remembered refusal belongs to one statement: GORM copies settings into nested
// ones.
type remembered struct {
	stmt *gorm.Statement
	err  error
}

// remember keeps a refusal, because GORM's AddError lets only the last error be
// found by errors.Is.
func remember(db *gorm.DB) {
	if db.Error != nil && isRefusal(db.Error) {
		db.Statement.Settings.Store(refusalKey{}, &remembered{db.Statement, db.Error})
	}
}

// finish is the last callback. What rows have failed with, only GORM has seen so far.
func (p *Plugin) finish(db *gorm.DB) {
	if db.Error == nil {
		return
	}
	if t, ok := db.Statement.ConnPool.(*transaction); ok {
		t.failed(db.Statement.Context, db.Error)
	}
	db.Error = because(db.Statement.Context, db.Error)
	v, ok := db.Statement.Settings.Load(refusalKey{})
	if !ok {
		return
	}
	if r := v.(*remembered); r.stmt == db.Statement && !errors.Is(db.Error, r.err) {
		db.Error = fmt.Errorf("%w; %w", r.err, db.Error)
		if db.Statement.Result != nil {
			db.Statement.Result.Error = db.Error
		}
	}
}
