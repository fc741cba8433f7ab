package workload

import (
	"errors"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/history"
	"github.com/go-fencing/fencing/lock"
)

var sentinels = map[string]error{
	"stale": guard.ErrStale, "conflict": guard.ErrConflict, "not raised": guard.ErrNotRaised, "no fence": guard.ErrNoFence,
	"blocked": guard.ErrBlocked, "commit unknown": guard.ErrCommitUnknown,
	"held": lock.ErrHeld, "lost": lock.ErrLost, "release unknown": lock.ErrUnknown,
}

func (r *Report) explain(err error) {
	if err == nil {
		return
	}
	r.Error = err.Error()
	for name, sentinel := range sentinels {
		if errors.Is(err, sentinel) {
			r.Is = append(r.Is, name)
		}
	}
}

// outcomeOf says what a call came to. Where nobody refused it and it was sent, an
// error may mean anything.
func outcomeOf(err error, sent bool) history.Outcome {
	switch {
	case err == nil:
		return history.Committed
	case errors.Is(err, guard.ErrCommitUnknown):
		return history.Unknown
	case errors.Is(err, guard.ErrStale), errors.Is(err, guard.ErrNotRaised), errors.Is(err, guard.ErrNoFence):
		return history.Refused
	case sent:
		return history.Unknown
	}
	return history.Failed
}
