// Package interleavings plays histories of two and three sessions on a real Postgres,
// step by step, in every guard mode and at every isolation level, and writes down what
// the server did. That a step is BLOCKED is an outcome like any other.
//
// Each file of testdata is one scenario: who does what in which order, and below that
// what came of it. A step that has to wait for another session's transaction holds back
// the rest of its session, as it would in a program, so the order played is the one that
// the mode allows. The verdict compares the data with the acknowledgements.
//
// The modes are this project's guard, as it is shipped, and what looks like it would do:
// see [Modes]. A scenario in which none of the others fails would show nothing, and is
// refused by the test unless it says so.
//
// The scenarios of a lost or late reply, of standbys, poolers and restores need more than
// sessions; they are in the tests of pgguard (S23, S24 with Once, S26, S41, S43),
// migrations (S39) and lock (S27, S40).
package interleavings
