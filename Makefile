# Everything that is done with this repository more than once. `make` lists it.

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT  ?= $(shell git rev-parse --short=12 HEAD 2>/dev/null)
LDFLAGS := -s -w -X rota/cmd/internal/cli.Version=$(VERSION) -X rota/cmd/internal/cli.Commit=$(COMMIT)
# One set of flags, so that each package is compiled once. Only the race detector and
# NVML need cgo.
export CGO_ENABLED ?= 0
export GOFLAGS     := $(strip $(GOFLAGS) -trimpath)

# Flags of all tests. The race detector needs a C compiler: `make test TESTFLAGS=`
# does without.
TESTFLAGS ?= -race
# The race detector sleeps for a second at the end of each process, and the tests
# start thousands.
export GORACE ?= atexit_sleep_ms=20
# How many inputs `make fuzz` tries of each target. A time, such as 5m, may end in
# "context deadline exceeded" though no input failed (go.dev/issue/75804).
FUZZTIME ?= 100000x

# Packages with tests of their own of what -tags faults adds.
FAULTPKGS := ./internal/clock/... ./internal/failpoint ./agent/runtime

# Computations without goroutines of their own, but for some that share nothing: there is
# nothing for the race detector to find, and with it they take five times as long. What
# others do beside the state machine of fsm is in the tests of RACINGTESTS.
PUREPKGS := . ./fsm ./sched/... ./agent/plan ./internal/sim/... ./jepsen/model ./jepsen/dst ./jepsen/check ./jepsen/mutant
# The longest of the rest begin first, so that none of them is left alone at the end.
LONGPKGS := ./server/replica ./cmd/rota/e2e
RACINGTESTS := -run 'Beside|WaitApplied' ./fsm
OTHERPKGS = $$(go list $(LONGPKGS); go list ./... | grep -vxFf <(go list $(PUREPKGS) $(LONGPKGS)))

# Runs tests: $(1) are the flags, $(2) the packages. With RERUNS=1 a test that failed runs
# once more when all others have ended: a test with real processes may be late on a busy
# machine. bin/rerun-tests.txt lists those tests. A data race is final at once, and so is
# a fourth failure.
RERUNS ?= 0
ifeq ($(RERUNS),0)
gotest = $(if $(filter -race,$(1)),CGO_ENABLED=1 )go test $(1) $(2)
else
gotest = mkdir -p bin; rm -f bin/rerun.txt; $(if $(filter -race,$(1)),CGO_ENABLED=1 )go tool -modfile=.ci/test.mod gotestsum --format standard-quiet \
	--rerun-fails=$(RERUNS) --rerun-fails-max-failures=3 --rerun-fails-abort-on-data-race --rerun-fails-run-root-test \
	--rerun-fails-report=bin/rerun.txt --packages="$$(echo $(2))" -- $(1); if [ -f bin/rerun.txt ]; then cat bin/rerun.txt >> bin/rerun-tests.txt; fi
endif

LINT := go tool -modfile=.ci/lint.mod golangci-lint
BUF  := go tool -modfile=tools.mod buf
# Writes the reference of the API to standard output.
DOCGEN = (cd api && $(BUF) build -o -) | go run ./api/internal/docgen

# Formatted are the files of the repository, not those of other checkouts in it.
GOFILES = $$(git ls-files --cached --others --exclude-standard '*.go' | grep -v '^api/gen/')

##@ Use

.PHONY: help
help: ## List the targets
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/rota: one static binary for servers, agents and the CLI
	go build -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

.PHONY: package
package: build ## Build a Debian package in bin
	deploy/debian/build.sh

.PHONY: image
image: build ## Write a container image to bin/rota.tar, without a container engine
	go run ./deploy/image -binary bin/rota -out bin/rota.tar -tag rota:$(VERSION) -version $(VERSION)

.PHONY: operators-day
operators-day: build ## Take a secured cluster through an operator's day, with real processes
	deploy/operators-day.sh

.PHONY: demo
demo: build ## Watch a cluster run coding agents, lose its leader and resize suites (a minute)
	bin/rota demo

.PHONY: bench
bench: build ## Measure submissions, executions, failover and a long queue
	bin/rota bench submit
	bin/rota bench run
	bin/rota bench failover
	bin/rota bench queue

.PHONY: evaluate
evaluate: build ## Simulate the evaluation and put its tables into docs/evaluation.md (half an hour or less)
	bin/rota sim document docs/evaluation.md

.PHONY: bench-etcd
bench-etcd: build bin/etcd-bench ## Measure submissions beside an etcd on this machine; ends with a line of JSON
	bin/rota bench etcd

# A module of its own: the client library of etcd is no business of rota.
bin/etcd-bench: $(wildcard cmd/etcd-bench/*)
	cd cmd/etcd-bench && go build -o $(CURDIR)/bin/ .

##@ Develop

# Many tests wait, so there is one more at a time than there are CPUs. What vet has
# to say is said by `make check`.
.PHONY: test
test: compile ## Run all tests; what this machine lacks is skipped, unless ROTA_REQUIRE names it
	rm -f bin/rerun-tests.txt
	go test $(filter-out -race,$(TESTFLAGS)) -vet=off $(PUREPKGS)
	$(if $(filter -race,$(TESTFLAGS)),CGO_ENABLED=1 )go test $(TESTFLAGS) -vet=off $(RACINGTESTS)
	$(call gotest,$(TESTFLAGS) -vet=off -p $$(($$(getconf _NPROCESSORS_ONLN) + 1)) -timeout 30m,$(OTHERPKGS))
	$(call gotest,$(TESTFLAGS) -vet=off -timeout 10m -tags faults,$(FAULTPKGS))
	if command -v cc > /dev/null; then CGO_ENABLED=1 go test -vet=off -timeout 2m -tags nvml ./agent/inventory; fi
	if command -v cc > /dev/null; then go test -vet=off -timeout 2m -tags cuda -run CUDA ./agent/tensor/...; fi

# One package at a time: they look at what is in use of the same GPU.
.PHONY: test-gpu
test-gpu: ## Run the tests that need a GPU, a Python whose torch sees it, and a C compiler
	CGO_ENABLED=1 ROTA_REQUIRE=$${ROTA_REQUIRE:-gpu} go test -vet=off -count=1 -p 1 -timeout 10m -tags nvml,cuda -run GPU \
		./agent/inventory ./agent/engine ./agent/runtime ./agent/tensor/... ./cmd/rota

.PHONY: bench-gpu
bench-gpu: ## Measure copies of states to a GPU and back, beside plain copies of the driver
	CGO_ENABLED=1 ROTA_REQUIRE=gpu go test -vet=off -timeout 10m -tags cuda -run '^$$' -bench GPU -benchtime 5x ./agent/tensor

# Compilers beside tests with real processes would make leases late, so all is
# compiled before anything runs: what tests build, and, as `go list -export` does
# it without linking, the tests.
.PHONY: compile
compile: COMPILE = $(if $(filter -race,$(TESTFLAGS)),CGO_ENABLED=1 go list -race,go list) -test -export
compile:
	go build ./...
	go build -tags faults ./...
	go list -test -export $(PUREPKGS) > /dev/null
	$(COMPILE) $(OTHERPKGS) $(lastword $(RACINGTESTS)) > /dev/null
	$(COMPILE) -tags faults $(FAULTPKGS) > /dev/null

.PHONY: race
race: TESTFLAGS := -race -count=3
race: test ## Run all tests three times with the race detector

# How many hours `make dst` simulates, and which scenarios `make jepsen` runs.
SEEDS ?= 50
SCENARIOS ?= ci

.PHONY: dst
dst: bin/rota-jepsen ## Simulate 50 hours of clusters under faults, on the real state machine (minutes)
	bin/rota-jepsen dst --seeds $(SEEDS)

.PHONY: jepsen
jepsen: bin/rota-jepsen ## Break clusters of real processes in every way, as root (8 minutes)
	bin/rota-jepsen run $(SCENARIOS) --void-retries 1 -o json

.PHONY: mutants
mutants: bin/rota-jepsen ## Plant bugs and see that they are noticed, as root (an hour)
	bin/rota-jepsen mutants -o json

# Each kind of fault at least 30 times, those that take their time in runs of
# their own, and 10,000 simulated hours.
.PHONY: jepsen-nightly
jepsen-nightly: bin/rota-jepsen ## The same for hours: each fault 30 times, 200 power losses, 200 flipped bits
	bin/rota-jepsen run leader-kills -o json
	bin/rota-jepsen run power-losses --repeat 8 -o json
	bin/rota-jepsen run power-losses bit-flips --log-store boltdb -o json
	bin/rota-jepsen run bit-flips --repeat 8 -o json
	bin/rota-jepsen run agent-partitions --repeat 4 -o json
	bin/rota-jepsen run lying-fsyncs wiped-disks deposed-leaders crash-points pause-agents -o json
	bin/rota-jepsen run ci --repeat 30 -o json
	bin/rota-jepsen dst --seeds 10000 -o json
	bin/rota-jepsen dst --scenario partitions --seeds 200 -o json

.PHONY: bin/rota-jepsen
bin/rota-jepsen:
	go build -o bin/ ./cmd/rota-jepsen

.PHONY: fuzz
fuzz: ## Try FUZZTIME inputs of every fuzz target (100000x)
	@grep -rlE --include='*_test.go' '^func Fuzz' . | sort | while read -r file; do \
		sed -nE 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/p' "$$file" | while read -r target; do \
			echo "== $$target in $$(dirname "$$file")"; \
			go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) "$$(dirname "$$file")" < /dev/null; \
		done; \
	done

.PHONY: check
check: check-format check-vet check-lint check-proto check-generated check-modules check-tidy ## Everything that can be said about the code without running it

.PHONY: check-format
check-format:
	@unformatted=$$(gofmt -l $(GOFILES)); \
	if [ -n "$$unformatted" ]; then printf 'run make fmt for:\n%s\n' "$$unformatted"; exit 1; fi

.PHONY: check-vet
check-vet:
	go vet ./...
	go vet -tags faults ./...
	go vet -tags nextlevel ./fsm/... ./server
	if command -v cc > /dev/null; then CGO_ENABLED=1 go vet -tags nvml ./agent/... ./cmd/rota; fi
	go vet -tags cuda ./agent/tensor/...
	cd cmd/etcd-bench && go vet .

.PHONY: check-lint
check-lint:
	$(LINT) run ./...
	$(LINT) run --build-tags faults ./internal/... ./agent/...

.PHONY: check-proto
check-proto:
	cd api && $(BUF) lint

# What is generated is what the sources say, whatever else is uncommitted.
.PHONY: check-generated
check-generated:
	@fresh=$$(mktemp -d); trap 'rm -rf "$$fresh"' EXIT; \
	(cd api && $(BUF) generate -o "$$fresh"); \
	diff -r "$$fresh/gen" api/gen || { echo 'api/gen is not what the protos say: run make generate'; exit 1; }; \
	$(DOCGEN) > "$$fresh/api.md"; \
	diff "$$fresh/api.md" docs/api.md || { echo 'docs/api.md is not what the protos say: run make generate'; exit 1; }

.PHONY: check-modules
check-modules:
	go mod tidy -diff
	cd cmd/etcd-bench && go mod tidy -diff

.PHONY: check-tidy
check-tidy:
	go test -count=1 .

.PHONY: generate
generate: ## Generate Go code and docs/api.md from the protos
	cd api && $(BUF) generate
	$(DOCGEN) > docs/api.md

.PHONY: fmt
fmt: ## Format the code
	gofmt -w $(GOFILES)
	cd api && $(BUF) format -w

.PHONY: clean
clean: ## Remove what was built
	rm -rf bin
	go clean -testcache
