module github.com/go-fencing/fencing/guard/grpcfence

go 1.26.0

require (
	github.com/go-fencing/fencing v0.0.0
	github.com/stretchr/testify v1.12.1
	google.golang.org/grpc v1.83.2
)

replace github.com/go-fencing/fencing => ../../
