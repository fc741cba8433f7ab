package gormguard

import (
	"errors"

	"gorm.io/gorm"
)

// Enter enters the fences of tx's context now, in the transaction of tx. It is not
// needed for safety: the first guarded write does the same. Call it first in a
// transaction that reads before it writes, so that a holder who is stale finds out
// before it has done any work, and locks nothing that others wait for meanwhile.
//
// It returns [guard.ErrNoFence] if the context carries no fence, and the errors of
// sqlguard.Enter. After an error the transaction can only be rolled back.
func Enter(tx *gorm.DB) error {
	p, ok := tx.Plugins[(&Plugin{}).Name()].(*Plugin)
	if !ok {
		return errors.New("gormguard: enter: this database has no plugin; call db.Use first")
	}
	t, ok := p.view(tx.Statement.ConnPool).(*transaction)
	if !ok {
		return errors.New("gormguard: enter: there is no transaction")
	}
	return t.enter(tx.Statement.Context)
}
