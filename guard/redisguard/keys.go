package redisguard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/internal/rediskeys"
)

// tagOf returns what decides the slot of a key.
func tagOf(key string) string { return cmp.Or(rediskeys.HashTag(key), key) }

// ownTag is the default of [WithTag]. A name with a closing brace that is no part of a
// tag could not stand between braces; that others may share what it becomes does no
// harm.
func ownTag(resource string) string { return strings.ReplaceAll(tagOf(resource), "}", "%7D") }

func (g *Guard) tagFor(resource string) (string, error) {
	tag := g.tag(resource)
	if tag == "" || strings.Contains(tag, "}") {
		return "", fmt.Errorf("its hash tag %q, from WithTag, must not be empty or have a closing brace: %w", tag, guard.ErrInvalid)
	}
	return tag, nil
}

const kind = ":raised:{"

// fenceKey returns the name of the fence of resource, which has the tag of its data.
func (g *Guard) fenceKey(resource string) (string, error) {
	tag, err := g.tagFor(resource)
	if err != nil {
		return "", err
	}
	key := g.prefix + kind + tag + "}"
	if tag != resource {
		key += ":" + resource
	}
	return key, nil
}

// Key returns a name for data of resource that is in the slot of its fence:
// {tag}:name. Other names are as good if they have the tag anywhere in braces.
func (g *Guard) Key(resource, name string) string { return "{" + g.tag(resource) + "}:" + name }

// entry is what a write needs to enter: the fences of its context whose data is in
// the slot of its keys.
type entry struct {
	held []guard.Fence
	keys []string // of held
}

// entryOf returns the entry of a write to keys, or why there is none.
func (g *Guard) entryOf(ctx context.Context, keys []string) (entry, error) {
	var e entry
	if len(keys) == 0 {
		return e, errors.New("no key is named; a script without keys has no slot, and no fence")
	}
	tag := tagOf(keys[0])
	for _, key := range keys {
		switch {
		case key == "":
			return e, fmt.Errorf("a key is empty: %w", guard.ErrUnguarded)
		case strings.HasPrefix(key, g.prefix+kind):
			return e, fmt.Errorf("key %q is a fence; only Raise writes those: %w", key, guard.ErrUnguarded)
		case tagOf(key) != tag:
			return e, fmt.Errorf("the keys %q and %q are not in one slot; give them one hash tag, such as %q and %q: %w",
				keys[0], key, tagged(tag, keys[0]), tagged(tag, key), guard.ErrUnguarded)
		}
	}
	all := guard.Fences(ctx)
	if len(all) == 0 {
		return e, fmt.Errorf("%w in the context; acquire a lease and use its context", guard.ErrNoFence)
	}
	for _, f := range all {
		if err := f.Validate(); err != nil {
			return e, err
		}
		its, err := g.tagFor(f.Resource)
		if err != nil {
			return e, fmt.Errorf("fence of %q: %w", f.Resource, err)
		}
		if its == tag {
			key, _ := g.fenceKey(f.Resource)
			e.held, e.keys = append(e.held, f), append(e.keys, key)
		}
	}
	if len(e.held) == 0 {
		f := all[0]
		its := g.tag(f.Resource)
		return e, fmt.Errorf("%w of the context is in the slot of key %q: for data of %q name it %q, or anything else with {%s}",
			guard.ErrNoFence, keys[0], f.Resource, tagged(its, keys[0]), its)
	}
	return e, nil
}

// tagged returns a name like key with another hash tag.
func tagged(tag, key string) string {
	switch old := rediskeys.HashTag(key); {
	case old == tag:
		return key
	case old != "":
		return strings.Replace(key, "{"+old+"}", "{"+tag+"}", 1)
	case key == tag:
		return key
	}
	return "{" + tag + "}:" + strings.NewReplacer("{", "", "}", "").Replace(key)
}
