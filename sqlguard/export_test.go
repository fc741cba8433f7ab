package sqlguard

import "context"

var (
	CheckControl = checkControl
	PlainRead    = plainRead
	ArrayText    = arrayText
)

// OpenInMySQL asks as in MySQL, also in MariaDB.
func OpenInMySQL(ctx context.Context, tx Tx) (bool, error) {
	return new(mysqlEngine).openInMySQL(ctx, sqlSession{tx})
}

// FenceTable is what the migrations have to make.
const FenceTable = fenceTable
