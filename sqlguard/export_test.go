package sqlguard

var (
	CheckControl = checkControl
	PlainRead    = plainRead
	ArrayText    = arrayText
)

// FenceTable is what the migrations have to make.
const FenceTable = fenceTable
