package lock

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"time"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/sequencer"
)

// The bounds of WithTTL. Below the floor a lease ends before its holder can use
// it; above the ceiling a crashed holder blocks everyone for longer than a day.
const (
	MinTTL = 10 * time.Millisecond
	MaxTTL = 24 * time.Hour
)

type config struct {
	ttl        time.Duration
	renewEvery time.Duration
	noRenewal  bool
	maxHold    time.Duration
	maxWait    time.Duration
	retryWait  time.Duration
	maxRetries int // negative: unlimited
	holder     string
	fair       bool
	guards     []guard.Guard
	sequencer  sequencer.Sequencer
	sequenced  bool
	observer   guard.Observer
}

// An Option configures a [Locker].
type Option func(*config)

// WithTTL sets how long a lock lives without renewal: how long others wait for a
// crashed holder. Defaults to 30s, from [MinTTL] to [MaxTTL].
func WithTTL(d time.Duration) Option { return func(c *config) { c.ttl = d } }

// WithRenewEvery sets the time between renewals, 1ms at least. Defaults to a third
// of the TTL.
func WithRenewEvery(d time.Duration) Option { return func(c *config) { c.renewEvery = d } }

// WithoutRenewal lets every lease end after one TTL.
func WithoutRenewal() Option { return func(c *config) { c.noRenewal = true } }

// WithMaxHold ends a lease after d, however often it could be renewed: a bound on
// a holder that hangs. Defaults to no bound. The time to raise its fence is part of d: an
// acquisition that takes longer fails with ErrLost.
func WithMaxHold(d time.Duration) Option { return func(c *config) { c.maxHold = d } }

// WithMaxWait bounds how long Acquire, AcquireAll and Do take to get the locks, waiting for
// their holders included, and not how long the work under them may take, as the end of
// the context does. The error is context.DeadlineExceeded, and ErrHeld if the lock was
// held by another. Defaults to no bound.
func WithMaxWait(d time.Duration) Option { return func(c *config) { c.maxWait = d } }

// WithRetryWait sets the mean time between two attempts while a lock is held by
// another and the back end does not wake those who wait; each wait is drawn from
// half to one and a half of it. Defaults to 50ms. Who would be woken asks by itself
// about once a second, in case that was lost.
func WithRetryWait(d time.Duration) Option { return func(c *config) { c.retryWait = d } }

// WithMaxRetries bounds the attempts after the first one; Acquire then returns
// ErrHeld. Defaults to no bound, as does a negative n: the context bounds the wait, and
// [WithMaxWait]. With a bound every waiter polls, and is not woken; it is served by a
// [Granter] as others are.
func WithMaxRetries(n int) Option { return func(c *config) { c.maxRetries = n } }

// WithHolder sets the label that other waiters and operators see. Defaults to
// host name and process id.
func WithHolder(label string) Option { return func(c *config) { c.holder = label } }

// WithGuards names the stores in which every acquisition is raised before Acquire
// returns.
func WithGuards(guards ...guard.Guard) Option {
	return func(c *config) { c.guards = append(c.guards, guards...) }
}

// WithSequencer takes the tokens from s instead of from the back end, for locks
// that have none of their own. The lock is checked again after the token was
// drawn, so that the order of tokens is the order of holders.
func WithSequencer(s sequencer.Sequencer) Option {
	return func(c *config) { c.sequencer, c.sequenced = s, true }
}

// WithFair serves waiters strictly first come, first served, also across processes,
// which must all use it. It needs a back end that implements [FairBackend]. Without it
// the waiters of one locker are served in order; and of several lockers, those that
// wait at a [Granter] in the order in which it refused them, as far as it knows that
// they still wait.
func WithFair() Option { return func(c *config) { c.fair = true } }

// WithObserver tells o of every wait, acquisition, raise, repair, renewal, loss and
// release. It also tells of the raises in the guards, which then do not tell their
// own observers of them; writes only the guards can tell of. Join several with
// [guard.Observers].
func WithObserver(o guard.Observer) Option { return func(c *config) { c.observer = o } }

func newConfig(opts []Option) (*config, error) {
	c := &config{ttl: 30 * time.Second, retryWait: 50 * time.Millisecond, maxRetries: -1}
	for _, opt := range opts {
		if opt == nil {
			return nil, errors.New("lock: an option is nil")
		}
		opt(c)
	}
	if c.ttl < MinTTL || c.ttl > MaxTTL {
		return nil, fmt.Errorf("lock: TTL %v is not from %v to %v", c.ttl, MinTTL, MaxTTL)
	}
	if c.noRenewal && c.renewEvery != 0 {
		return nil, fmt.Errorf("lock: WithRenewEvery(%v) and WithoutRenewal exclude each other", c.renewEvery)
	}
	if c.renewEvery == 0 {
		c.renewEvery = c.ttl / 3
	}
	if c.renewEvery < time.Millisecond {
		return nil, fmt.Errorf("lock: renewing every %v would do nothing else; 1ms is the least", c.renewEvery)
	}
	if c.renewEvery >= c.ttl-margin(c.ttl) {
		return nil, fmt.Errorf("lock: renewing every %v cannot keep a lease with a TTL of %v alive; renew more often or lengthen the TTL", c.renewEvery, c.ttl)
	}
	if c.maxHold < 0 {
		return nil, fmt.Errorf("lock: longest hold %v is negative", c.maxHold)
	}
	if c.maxWait < 0 {
		return nil, fmt.Errorf("lock: longest wait %v is negative; TryAcquire does not wait", c.maxWait)
	}
	if c.retryWait <= 0 {
		return nil, fmt.Errorf("lock: retry wait %v is not positive", c.retryWait)
	}
	for i, g := range c.guards {
		if isNil(g) {
			return nil, fmt.Errorf("lock: guard %d is nil", i)
		}
	}
	if c.sequenced && isNil(c.sequencer) {
		return nil, errors.New("lock: the sequencer is nil")
	}
	if c.holder == "" {
		host, _ := os.Hostname()
		c.holder = fmt.Sprintf("%s/%d", host, os.Getpid())
	}
	probe := guard.Fence{Resource: "-", Token: 1, Nonce: "-", Holder: c.holder}
	if err := probe.Validate(); err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	return c, nil
}

// isNil also finds the nil pointer that somebody's constructor returned with an
// error.
func isNil(v any) bool {
	if v == nil {
		return true
	}
	r := reflect.ValueOf(v)
	return r.Kind() == reflect.Pointer && r.IsNil()
}

// margin is the part of the TTL that a holder does not count on: the clocks of
// holder and back end may run at rates that differ by a percent, and a timer may
// fire late. It is the drift term of the Redlock description (redis.io).
func margin(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }
