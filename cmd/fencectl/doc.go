// Fencectl shows what fencing does, sets a database up for it, looks after it, and
// runs commands under it.
//
//	fencectl demo                                   the lost update, and the same history refused
//	fencectl migrate up|down|status                 the fence schema of a database
//	fencectl migrate print --tool goose             the same as files for a migration tool
//	fencectl protect inventory --resource "'inventory:' || sku" --trigger
//	fencectl run nightly-report -- ./report.sh      a command under a lock and its fence
//	fencectl ls inventory:                          who holds what
//	fencectl doctor                                 what makes it unsafe, or a nuisance
//	fencectl rebase inventory:sku-42                back into use after a poisoned counter or fence
//	fencectl torture --seconds 60                   the guards under faults, and controls that must break
//	fencectl version
//
// Results go to stdout, everything else to stderr. Exit codes:
//
//	0    done, and the answer is good
//	1    done, and the answer is bad: the history of the demo or the torture is not
//	     clean, the fence schema is not up to date, tables in use or a rebase forbid to
//	     remove it, a lock is held or was lost, or the doctor has found a fault
//	2    bad usage or bad input, and nothing was changed; or a torture that shows
//	     nothing
//	3    a server could not be reached, refused or failed, or stdout could not be written
//	130  interrupted, or whoever reads stdout has gone
//
// "fencectl run" has those of its command.
package main
