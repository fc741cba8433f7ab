package redislock

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-fencing/fencing/internal/rediskeys"
	"github.com/go-fencing/fencing/lock"
)

const (
	feedPing   = time.Second            // between two signs of life that a feed asks for
	feedSilent = 3 * time.Second        // after which its connection is given up
	feedRetry  = 200 * time.Millisecond // before the next one
	feedLinger = time.Second            // that a channel without watchers stays subscribed
	feedCall   = 2 * time.Second        // for one subscription to be sent
)

// A hub hears of releases for everybody who waits. The channel on which the
// release of a lock is published has the name of the lock's key.
type hub struct {
	rdb    redis.UniversalClient
	begun  time.Time     // what the numbers of those who wait count from
	offset time.Duration // and begin with
	mu     sync.Mutex
	feeds  map[string]*feed
}

func newHub(rdb redis.UniversalClient) *hub {
	return &hub{rdb: rdb, begun: time.Now(), offset: 1 + rand.N(time.Duration(1)<<62), feeds: make(map[string]*feed)}
}

// A feed is one connection that listens: one for the whole back end, and in
// Cluster one for each hash tag, since a node hears of its own slots only. It lives
// as long as somebody watches, and a little longer.
type feed struct {
	hub      *hub
	tag      string
	channels map[string]*channel // guarded by the mutex of the hub
	changed  chan struct{}
}

type channel struct {
	watchers   []watcher
	grant      grant     // the last one that was heard of
	subscribed bool      // the server has been asked
	live       bool      // and has confirmed it
	idle       time.Time // since when nobody watches
}

type watcher struct {
	nonce string
	wake  chan struct{}
}

func (w watcher) notify() {
	select {
	case w.wake <- struct{}{}:
	default: // it has a wake-up waiting
	}
}

// Watch implements [lock.Waiter], by pub/sub. Releases are not heard while the
// connection is down; it comes back by itself, and wakes everybody then.
func (b *Backend) Watch(r lock.Request) (wake <-chan struct{}, stop func()) {
	name := b.config.usual(r.Resource, "").Lock
	return b.hub.watch(b.feedOf(name), name, r.Nonce)
}

// feedOf returns the tag of the feed that listens for a lock.
func (b *Backend) feedOf(lock string) (tag string) {
	if _, single := b.rdb.(*redis.Client); single {
		return ""
	}
	return rediskeys.HashTag(lock)
}

// watched reports whether somebody watches the channel, and hears what is published.
func (h *hub) watched(tag, name string) (watched, live bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.channel(tag, name)
	if c == nil || len(c.watchers) == 0 {
		return false, false
	}
	return true, c.live
}

// channel returns the channel if there is one. The caller has the mutex.
func (h *hub) channel(tag, name string) *channel {
	if f := h.feeds[tag]; f != nil {
		return f.channels[name]
	}
	return nil
}

func (h *hub) watch(tag, name, nonce string) (<-chan struct{}, func()) {
	w := watcher{nonce: nonce, wake: make(chan struct{}, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	f := h.feeds[tag]
	if f == nil {
		f = &feed{hub: h, tag: tag, channels: make(map[string]*channel), changed: make(chan struct{}, 1)}
		h.feeds[tag] = f
		go f.run()
	}
	c := f.channels[name]
	if c == nil {
		c = new(channel)
		f.channels[name] = c
	}
	c.watchers = append(c.watchers, w)
	switch {
	case c.live:
		w.notify()
	case !c.subscribed:
		f.change()
	}
	return w.wake, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		c.watchers = slices.DeleteFunc(c.watchers, func(other watcher) bool { return other == w })
		c.idle = time.Now()
	}
}

// change makes run look at the channels.
func (f *feed) change() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// run keeps the feed connected until nobody watches any more.
func (f *feed) run() {
	for {
		f.connect()
		if f.ended() {
			return
		}
		if cluster, ok := f.hub.rdb.(*redis.ClusterClient); ok {
			// The slot may have moved, and a client that only listens is told by
			// nobody where to: it would go to the old node for a minute.
			cluster.ReloadState(context.Background())
		}
		time.Sleep(feedRetry)
	}
}

// ended removes the feed from the hub if nobody watches, and says whether it did.
// All channels have to be subscribed anew otherwise.
func (f *feed) ended() bool {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	for name, c := range f.channels {
		c.subscribed, c.live = false, false
		if c.expired() {
			delete(f.channels, name)
		}
	}
	if len(f.channels) == 0 {
		delete(f.hub.feeds, f.tag)
		return true
	}
	return false
}

func (c *channel) expired() bool { return len(c.watchers) == 0 && time.Since(c.idle) > feedLinger }

// connect subscribes and listens. It returns when the connection is of no use, or
// not needed any more.
func (f *feed) connect() {
	var conn *redis.PubSub
	down := make(chan struct{})
	defer func() {
		if conn != nil {
			_ = conn.Close()
			<-down
		}
	}()
	tick := time.NewTicker(feedPing)
	defer tick.Stop()
	for ping := false; ; {
		add, remove, needed := f.diff()
		if !needed {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), feedCall)
		var err error
		switch {
		case conn == nil:
			conn = f.open(ctx, add)
			go f.listen(conn, down)
		case len(add) > 0:
			err = f.subscribe(ctx, conn, add)
		case ping:
			err = conn.Ping(ctx)
		}
		if err == nil && len(remove) > 0 {
			err = f.unsubscribe(ctx, conn, remove)
		}
		cancel()
		if err != nil {
			return
		}
		select {
		case <-f.changed:
			ping = false
		case <-tick.C:
			ping = true
		case <-down:
			return
		}
	}
}

// diff returns which channels are to be subscribed and unsubscribed, and whether any
// is needed at all.
func (f *feed) diff() (add, remove []string, needed bool) {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	for name, c := range f.channels {
		switch {
		case c.expired():
			delete(f.channels, name)
			if c.subscribed {
				remove = append(remove, name)
			}
		case !c.subscribed:
			c.subscribed = true
			add = append(add, name)
		}
	}
	return add, remove, len(f.channels) > 0
}

// listen wakes those whose channels come into effect or bring a message.
func (f *feed) listen(conn *redis.PubSub, down chan<- struct{}) {
	defer close(down)
	for {
		// What is wrong with the connection, or with where it leads, ends it: in
		// Cluster a slot may have moved to another node.
		message, err := conn.ReceiveTimeout(context.Background(), feedSilent)
		if err != nil {
			return
		}
		switch m := message.(type) {
		case *redis.Subscription:
			switch m.Kind {
			case "subscribe", "ssubscribe":
				f.wake(m.Channel, "")
			case "sunsubscribe", "unsubscribe":
				if f.wanted(m.Channel) { // by the server, whose slot has moved
					return
				}
			}
		case *redis.Message:
			f.wake(m.Channel, m.Payload)
		}
	}
}

// wake wakes those who watch a channel; if it is the turn of one nonce, then only
// that one and those who do not queue. A grant to another back end concerns nobody here,
// unless it says not to which.
func (f *feed) wake(name, message string) {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	c := f.channels[name]
	if c == nil {
		return
	}
	c.live = true
	nonce := message
	if g, ok := parseGrant(message); ok {
		if _, ours := f.hub.asked(g.number); !ours && g.number != 0 {
			return
		}
		c.grant, nonce = g, ""
	}
	for _, w := range c.watchers {
		if nonce == "" || w.nonce == "" || w.nonce == nonce {
			w.notify()
		}
	}
}

func (f *feed) wanted(name string) bool {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	c := f.channels[name]
	return c != nil && c.subscribed
}

// sharded reports whether the messages of a client go to the node of their slot
// only, and not to the whole Cluster.
func sharded(rdb redis.UniversalClient) bool {
	_, cluster := rdb.(*redis.ClusterClient)
	return cluster
}

func (f *feed) open(ctx context.Context, names []string) *redis.PubSub {
	if sharded(f.hub.rdb) {
		return f.hub.rdb.SSubscribe(ctx, names...)
	}
	return f.hub.rdb.Subscribe(ctx, names...)
}

func (f *feed) subscribe(ctx context.Context, conn *redis.PubSub, names []string) error {
	if sharded(f.hub.rdb) {
		return conn.SSubscribe(ctx, names...)
	}
	return conn.Subscribe(ctx, names...)
}

func (f *feed) unsubscribe(ctx context.Context, conn *redis.PubSub, names []string) error {
	if sharded(f.hub.rdb) {
		return conn.SUnsubscribe(ctx, names...)
	}
	return conn.Unsubscribe(ctx, names...)
}
