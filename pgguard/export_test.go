package pgguard

// The lexical checks are tested against the server's own reading.
var (
	CheckInTx  = checkInTx
	CheckAlone = checkAlone
)
