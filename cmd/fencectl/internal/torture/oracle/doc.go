// Package oracle judges what a torture has left behind, by several witnesses that
// know nothing of each other: the rows of the history and what the workers were told
// (package history), the order of commits as the server's log has it, the invariants
// of the accounts and the items, and porcupine, which looks for an order of all calls
// in which a fenced register would have given the same answers.
package oracle
