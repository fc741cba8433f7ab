package demo

var (
	Judge    = judge
	Conclude = Result.conclude
)
