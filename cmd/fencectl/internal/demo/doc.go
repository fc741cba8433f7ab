// Package demo plays the story that fencing is about, on real servers and with
// real processes, in three acts: the update that is lost under a lock alone, the
// same schedule with a guard, and a Redis that forgets everything.
//
// [Run] directs. The workers are child processes ([Work]) that do one step at a
// time; what pauses one of them is a SIGSTOP.
package demo
