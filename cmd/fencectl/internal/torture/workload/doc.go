// Package workload is the program that the torture tortures: a worker, in a process
// of its own, that locks, reads, writes, commits and releases through the public API,
// in one of the variants. It tells each step, waits at those where it was told to,
// and may be stopped, killed and cut off anywhere.
//
// It never repeats an operation under the same fence, except by Once: after a commit
// without a reply that would be a second attempt that the fence cannot tell from the
// first (S24).
package workload
