package main

import (
	"fmt"
	"math"
	"strconv"

	"github.com/spf13/cobra"
)

// A number is the value of a flag. The one of pflag answers nonsense with the words
// of strconv, and prints a default that changes with every version of the schema.
type number[N int | int64] struct {
	value    *N
	name     string
	min, max N
	text     string // as it was given
}

func addNumberFlag[N int | int64](cmd *cobra.Command, value *N, name, usage string, lowest, highest N) {
	cmd.Flags().Var(&number[N]{value: value, name: name, min: lowest, max: highest}, name, usage)
}

func (n *number[N]) String() string { return n.text }
func (*number[N]) Type() string     { return "number" }

func (n *number[N]) Set(text string) error {
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil || value < int64(n.min) || value > int64(n.max) {
		bounds := fmt.Sprintf("from %d to %d", n.min, n.max)
		if int64(n.max) == math.MaxInt64 {
			bounds = fmt.Sprintf("from %d on", n.min)
		}
		return &notANumber{fmt.Sprintf("--%s %q is not a number %s", n.name, text, bounds)}
	}
	*n.value, n.text = N(value), text
	return nil
}

// notANumber says all there is to say: what pflag puts around it repeats it.
type notANumber struct{ text string }

func (e *notANumber) Error() string { return e.text }
