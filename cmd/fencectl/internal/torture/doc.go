// Package torture runs workers of every variant (the guards of this project, and
// negative controls that lack a part of the protection) through the same faults on
// real servers, and judges what comes of it.
//
// Everything that is chosen is drawn from one seed, a stream for each variant and one
// for the faults that all share, so that a seed repeats the schedule, though not its
// timing.
package torture
