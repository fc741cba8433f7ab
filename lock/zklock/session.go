package zklock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

const (
	// answerWait is after how long a server that says nothing is left for the next one, or
	// a third of the time that the call has, if that is less. But not before hasteWait: a
	// caller in a hurry must not cost all others their connection.
	answerWait = 3 * time.Second
	hasteWait  = 250 * time.Millisecond
	// giveUp bounds every call, also where its context does not.
	giveUp   = 10 * time.Second
	tryPause = 50 * time.Millisecond // before the next try
)

var (
	errClosed   = errors.New("the back end is closed")
	errNoAnswer = fmt.Errorf("no answer within %v: %w", giveUp, context.DeadlineExceeded)
)

// A session is the connection of a back end to ZooKeeper. The client keeps it, moves it
// from server to server, and begins another one when it has expired.
type session struct {
	config *config
	once   bool // it ends with its first connection
	conn   *zk.Conn
	begun  time.Time
	life   context.Context // ends when it is closed
	end    context.CancelFunc
	login  chan []credential // what has not been given yet

	mu      sync.Mutex
	wire    *wire
	timeout time.Duration // that was granted; 0 until then
	failure error         // of the last connection, nil once there is a session
}

func newSession(servers []string, c *config, once bool) (*session, error) {
	s := &session{config: c, once: once, begun: time.Now(), login: make(chan []credential, 1)}
	s.life, s.end = context.WithCancel(context.Background())
	s.login <- c.auth
	s.mu.Lock() // it dials already
	defer s.mu.Unlock()
	conn, _, err := zk.Connect(servers, c.timeout, zk.WithDialer(s.dial), zk.WithHostProvider(new(hosts)), zk.WithLogger(silent{}), zk.WithLogInfo(false))
	s.conn = conn
	return s, err
}

// silent is the client's logger: what matters is in the errors.
type silent struct{}

func (silent) Printf(string, ...any) {}

func (s *session) note(failure error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failure = failure
}

func (s *session) granted(timeout time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timeout, s.failure = timeout, nil
}

// state returns the timeout that was granted, and why there is no connection.
func (s *session) state() (timeout time.Duration, failure error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.timeout, s.failure
}

// bound returns the context of the calls that one method makes.
func (s *session) bound(ctx context.Context) (context.Context, context.CancelFunc, error) {
	if ctx.Err() != nil {
		return nil, nil, ended(ctx)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, giveUp, errNoAnswer)
	if err := s.authenticate(ctx); err != nil {
		cancel()
		return nil, nil, err
	}
	return ctx, cancel, nil
}

// authenticate gives the credentials once; the client repeats them at each connection.
func (s *session) authenticate(ctx context.Context) error {
	select {
	case rest := <-s.login:
		defer func() { s.login <- rest }()
		for ; len(rest) > 0; rest = rest[1:] {
			if _, err := try(ctx, s, func(c *zk.Conn) (struct{}, error) {
				return struct{}{}, c.AddAuth(rest[0].scheme, []byte(rest[0].secret))
			}); err != nil {
				return err
			}
		}
		return nil
	case <-ctx.Done():
		return ended(ctx)
	case <-s.life.Done():
		return errClosed
	}
}

// try repeats a call that was interrupted, which may have been carried out all the
// same.
func try[T any](ctx context.Context, s *session, f func(*zk.Conn) (T, error)) (T, error) {
	for {
		value, err := call(ctx, s, f)
		if !interrupted(err) || !s.pause(ctx, tryPause) {
			return value, s.over(ctx, err)
		}
	}
}

// call returns by the end of ctx even if f does not, which then goes on by itself: the
// client knows no contexts. A server that does not answer in time is left, so that the
// client goes on to the next.
func call[T any](ctx context.Context, s *session, f func(*zk.Conn) (T, error)) (value T, err error) {
	type outcome struct {
		value T
		err   error
	}
	if s.life.Err() != nil {
		return value, errClosed
	}
	done := make(chan outcome, 1)
	begun := time.Now()
	go func() {
		value, err := f(s.conn)
		done <- outcome{value, err}
	}()
	limit := answerWait
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, max(time.Until(end)/3, min(hasteWait, s.config.timeout/12)))
	}
	tick := time.NewTicker(limit)
	defer tick.Stop()
	for {
		select {
		case o := <-done:
			return o.value, o.err
		case <-tick.C:
			s.leave(begun)
			begun = time.Now()
		case <-ctx.Done():
			return value, ended(ctx)
		case <-s.life.Done():
			return value, errClosed
		}
	}
}

// over adds to the error of an interrupted call why it is not repeated.
func (s *session) over(ctx context.Context, err error) error {
	switch {
	case !interrupted(err):
		return err
	case s.life.Err() != nil:
		return errClosed
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", ended(ctx), err)
	}
	return err
}

// ended says that ctx has ended, and why.
func ended(ctx context.Context) error {
	if cause := context.Cause(ctx); !errors.Is(cause, ctx.Err()) {
		return fmt.Errorf("%w: %w", ctx.Err(), cause)
	}
	return context.Cause(ctx)
}

// leave ends the connection to a server that has said nothing since then. One that has
// not granted the session yet has a time limit of its own.
func (s *session) leave(since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wire != nil && s.wire.greeted.Load() && time.Duration(s.wire.heard.Load()) < since.Sub(s.begun) {
		_ = s.wire.Close()
	}
}

// interrupted: the call may or may not have been carried out.
func interrupted(err error) bool {
	for _, e := range []error{zk.ErrConnectionClosed, zk.ErrNoServer, zk.ErrSessionExpired, zk.ErrSessionMoved, zk.ErrClosing} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// pause returns false if the time for it is over.
func (s *session) pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	case <-s.life.Done():
		return false
	}
}

func (s *session) close() {
	s.end()
	s.conn.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wire != nil { // the client would wait for its server's answer
		_ = s.wire.Close()
	}
}
