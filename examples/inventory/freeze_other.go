//go:build !unix

package main

import "os"

// Where a process cannot be stopped from outside, a worker that halts just sits
// there. Its lease ends all the same, by lock.WithMaxHold.
func freeze(*os.Process) error { return nil }

func thaw(*os.Process) error { return nil }
