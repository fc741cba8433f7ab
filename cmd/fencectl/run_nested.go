package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/go-fencing/fencing/guard"
)

// The variables in which a command finds its fence, and all that it runs under: the text
// of a fence has no spaces.
const (
	oneFence  = "FENCING_FENCE"
	allFences = "FENCING_FENCES"
)

// enclosing returns the fence of resource that this process runs under, if it does: to
// wait for its lock would be to wait for itself.
func enclosing(resource string) (f guard.Fence, found bool, err error) {
	for _, name := range []string{allFences, oneFence} {
		for text := range strings.FieldsSeq(os.Getenv(name)) {
			if err := f.UnmarshalText([]byte(text)); err != nil {
				return f, false, fmt.Errorf("$%s has something that is no fence; unset it, if it is not of \"fencectl run\"", name) // the text may have a nonce
			}
			if f.Resource == resource {
				return f, true, nil
			}
		}
	}
	return f, false, nil
}

// nested adds a fence to those that this process runs under. The last one of a
// resource comes first, where it is found.
func nested(fence string) string { return strings.TrimSpace(fence + " " + os.Getenv(allFences)) }
