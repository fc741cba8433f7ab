package pglock

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/go-fencing/fencing/lock"
)

const (
	channelName = "fencing_lease" // as in the migration

	listenCall   = 5 * time.Second        // for each exchange with the server
	listenCheck  = time.Second            // between two looks whether anybody watches still
	listenPing   = 5 * time.Second        // between two signs of life that are asked for
	listenRetry  = 200 * time.Millisecond // before the next connection, twice as long after each failure
	listenGiveUp = 30 * time.Second       // up to this
)

// A hub hears of releases for everybody who waits. It has a connection as long as
// somebody watches, and a little longer.
type hub struct {
	backend *Backend

	mu       sync.Mutex
	watchers map[string][]watcher // by the hash of the resource
	running  bool
	live     bool // notifications arrive
	idle     time.Time
}

type watcher struct {
	nonce string // hash, "" if it does not queue
	wake  chan struct{}
}

func (w watcher) notify() {
	select {
	case w.wake <- struct{}{}:
	default: // it has a wake-up waiting
	}
}

func newHub(b *Backend) *hub { return &hub{backend: b, watchers: make(map[string][]watcher)} }

// Watch implements [lock.Waiter], by LISTEN on one connection beside the pool. It is
// made when somebody waits and closed a second or two after nobody does. Releases
// are not heard while it is down; it comes back by itself, and wakes everybody
// then. Where notifications do not arrive, as behind a PgBouncer in transaction
// mode, the watch never comes into effect.
func (b *Backend) Watch(r lock.Request) (wake <-chan struct{}, stop func()) {
	w := watcher{wake: make(chan struct{}, 1)}
	if b.config.polling {
		return w.wake, func() {}
	}
	if r.Nonce != "" {
		w.nonce = hash(r.Nonce)
	}
	h, name := b.hub, hash(r.Resource)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watchers[name] = append(h.watchers[name], w)
	if h.live {
		w.notify()
	}
	if !h.running {
		h.running = true
		go h.run()
	}
	return w.wake, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		rest := slices.DeleteFunc(h.watchers[name], func(other watcher) bool { return other == w })
		if h.watchers[name] = rest; len(rest) == 0 {
			delete(h.watchers, name)
		}
		h.idle = time.Now()
	}
}

// hash is fencing.lease_hash.
func hash(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:16])
}

// run keeps the hub connected until nobody watches any more.
func (h *hub) run() {
	for pause := listenRetry; ; pause = min(2*pause, listenGiveUp) {
		if h.listen() {
			pause = listenRetry
		}
		// In small steps, so that it ends soon after the last watcher.
		for end := time.Now().Add(pause); time.Now().Before(end); {
			if h.ended() {
				return
			}
			time.Sleep(min(listenCheck, time.Until(end)))
		}
	}
}

// needed reports whether somebody watches, or did until a moment ago.
func (h *hub) needed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.watchers) > 0 || time.Since(h.idle) < listenCheck
}

// ended notes that the hub does not run any more, unless it is needed.
func (h *hub) ended() bool {
	needed := h.needed()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.running = needed || len(h.watchers) > 0
	return !h.running
}

func (h *hub) setLive(live bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.live = live
	if !live {
		return
	}
	for _, watchers := range h.watchers {
		for _, w := range watchers {
			w.notify()
		}
	}
}

// listen returns when the connection is of no use, or not needed any more, and
// whether it ever was of use.
func (h *hub) listen() (worked bool) {
	conn, err := h.connect()
	if err != nil {
		return false
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), listenCall)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	if h.prove(conn) != nil {
		return false
	}
	h.setLive(true)
	defer h.setLive(false)
	for heard := time.Now(); h.needed(); {
		payload, err := wait(conn, listenCheck)
		switch {
		case err == nil:
			heard = time.Now()
			h.wake(payload)
		case conn.IsClosed():
			return true
		case time.Since(heard) > listenPing:
			if ping(conn) != nil {
				return true
			}
			heard = time.Now()
		}
	}
	return true
}

// connect opens the connection as the pool would. It is not taken out of the pool,
// which may have no other.
func (h *hub) connect() (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), listenCall)
	defer cancel()
	pool := h.backend.pool.Config() // a copy
	config := pool.ConnConfig
	if to := h.backend.config.listen; to != nil {
		config = to.Copy()
	} else if pool.BeforeConnect != nil { // it may bring a fresh password
		if err := pool.BeforeConnect(ctx, config); err != nil {
			return nil, err
		}
	}
	config.OnNotification = nil // or WaitForNotification would get none
	if config.RuntimeParams == nil {
		config.RuntimeParams = make(map[string]string)
	}
	name := config.RuntimeParams["application_name"]
	config.RuntimeParams["application_name"] = strings.TrimSpace(name + " fencing-listener")
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if err := subscribe(ctx, conn); err != nil {
		_ = conn.Close(ctx)
		return nil, err
	}
	return conn, nil
}

// subscribe refuses to listen through a pooler, which has a process id of its own:
// a session of the server that listens is another client's a moment later, and
// stays so.
func subscribe(ctx context.Context, conn *pgx.Conn) error {
	var pid uint32
	if err := conn.QueryRow(ctx, "select pg_catalog.pg_backend_pid()", pgx.QueryExecModeSimpleProtocol).Scan(&pid); err != nil {
		return err
	}
	if pid != conn.PgConn().PID() {
		return errors.New("the connection goes through a pooler")
	}
	_, err := conn.Exec(ctx, "listen "+channelName)
	return err
}

// prove shows that notifications arrive from where the pool's sessions are.
func (h *hub) prove(conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(context.Background(), listenCall)
	defer cancel()
	hello := "hello " + rand.Text()
	if _, err := h.backend.pool.Exec(ctx, "select pg_catalog.pg_notify($1, $2)", channelName, hello); err != nil {
		return err
	}
	for end := time.Now().Add(listenCall); ; {
		payload, err := wait(conn, time.Until(end))
		if err != nil {
			return fmt.Errorf("notifications do not arrive: %w", err)
		}
		if payload == hello {
			return nil
		}
	}
}

// wait returns the next notification. The connection outlives the end of limit.
func wait(conn *pgx.Conn, limit time.Duration) (payload string, err error) {
	if limit <= 0 {
		return "", context.DeadlineExceeded
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	n, err := conn.WaitForNotification(ctx)
	if err != nil {
		return "", err
	}
	if n == nil {
		return "", errors.New("no notification")
	}
	return n.Payload, nil
}

// ping finds out that the other end is gone, which a read alone never does.
func ping(conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(context.Background(), listenCall)
	defer cancel()
	return conn.Ping(ctx)
}

// wake wakes those who watch a resource; if it is the turn of one nonce, then only
// that one and those who do not queue.
func (h *hub) wake(payload string) {
	name, turn, _ := strings.Cut(payload, " ")
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range h.watchers[name] {
		if turn == "" || w.nonce == "" || w.nonce == turn {
			w.notify()
		}
	}
}
