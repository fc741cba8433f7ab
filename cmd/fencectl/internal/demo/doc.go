// Package demo plays the story that fencing is about, on real servers and with
// real processes, in four acts: the update that is lost under a lock alone, the
// same schedule with a guard, a write between a read and its write, and a Redis
// that forgets everything. The stock is in Postgres, or where there is none in
// SQLite.
//
// [Run] directs. The workers are child processes ([Work]) that do one step at a
// time; what pauses one of them is a SIGSTOP.
package demo
