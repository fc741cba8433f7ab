# Every target sets up what it needs; see scripts/deps.
MODULES := . lock/etcdlock guard/grpcfence integration benchmarks
TESTFLAGS ?= -race -shuffle=on -timeout=25m
FUZZTIME ?= 1m
TORTURETIME ?= 600
GOFUMPT := go run mvdan.cc/gofumpt@v0.12.0
STATICCHECK := go run honnef.co/go/tools/cmd/staticcheck@v0.8.2

.PHONY: test demo torture bench lint mutants fuzz deps

test: deps ## every test of every module, on real servers
	@set -e; for m in $(MODULES); do echo "== $$m"; (cd $$m && go test $(TESTFLAGS) ./...); done

demo: ## the lost update, and the same history refused
	CGO_ENABLED=0 go run ./cmd/fencectl demo

torture: deps ## the guards under faults for ten minutes, beside controls that must break; SEED=42 repeats a run
	go build -o bin/fencectl ./cmd/fencectl
	bin/fencectl torture --seconds $(TORTURETIME) --out bin/torture $(if $(SEED),--seed $(SEED))

bench: deps ## guarded against unguarded, in the same run
	go test -run '^$$' -bench . -benchmem ./pgguard ./sqlguard ./gormguard/... ./lock/redislock ./lock/redlock ./lock/pglock ./lock/zklock ./lock/filelock ./guard/fencewire ./guard/redisguard ./guard/objectguard ./migrations ./sequencer/...
	cd benchmarks && go run .

lint: ## what CI checks besides the tests
	@set -e; for m in $(MODULES); do (cd $$m; echo "== $$m"; \
	  odd=$$($(GOFUMPT) -l .); test -z "$$odd" || { echo "not formatted: $$odd"; exit 1; }; \
	  go vet ./...; $(STATICCHECK) ./...; go mod tidy -diff); done

mutants: deps ## break each rule on purpose and see which tests fail
	go run ./scripts/mutants

fuzz: deps ## each fuzz target for FUZZTIME
	@set -e; grep -rl --include='*_test.go' '^func Fuzz' . | while read -r file; do \
	  for target in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' $$file); do \
	    echo "== $$file $$target"; (cd $$(dirname $$file) && go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) .); done; done

deps:
	@scripts/deps
