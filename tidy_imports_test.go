package rota_test

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// layer says what of ours the packages under a folder may import. A folder in
// the list stands for everything under it, unless a longer one is a layer of
// its own; one that ends in "=" stands for itself alone.
type layer struct {
	folder string
	may    []string
	why    string
}

var layers = []layer{
	{"api", []string{"api"},
		"users of the API must not compile the product into their programs"},
	{"api/client", []string{"api", "internal/clock="},
		"users of the API must not compile the product into their programs; of it they get the clock of leases"},
	{"fsm/state", []string{"api"},
		"state is what everything else decides upon; it decides nothing"},
	{"sched", []string{"fsm/state", "sched"},
		"decisions are pure functions of the state, which they see through its read API"},
	{"sched/plan", []string{"api", "fsm/state", "sched"},
		"plans are proposed as commands, and read nothing but the state"},
	{"fsm", []string{"api", "fsm", "sched"},
		"a replica must be able to apply the log without any server around it"},
	{"server/", []string{"api", "fsm=", "fsm/state", "internal/clock=", "internal/failpoint", "internal/telemetry"},
		"the parts of a server know the state machine and not each other; server wires them"},
	{"server", []string{"api", "fsm=", "fsm/state", "server", "sched=", "sched/plan", "internal/clock=", "internal/failpoint", "internal/telemetry"},
		"server wires its parts, explains and plans; decisions are taken in the state machine"},
	{"server/leader", []string{"api", "fsm/state", "sched=", "sched/plan", "server/lease"},
		"what a leader does runs in a simulation too: it is told the time and what came of its proposals"},
	{"server/replica", []string{"api", "fsm=", "fsm/state", "internal/clock=", "internal/failpoint", "server/replica", "server/entry", "server/quorum"},
		"Raft and the log know the state machine and the rules of the log, and no other part of a server"},
	{"server/entry", []string{"api", "fsm/state"},
		"the rules of entries run in a simulation too: callers and times are given to them"},
	{"server/quorum", []string{"api", "fsm/state"},
		"the rules of majorities run in a simulation too: they are told what was sent and answered"},
	{"server/lease", []string{"api", "fsm/state"},
		"the rules of leases run in a simulation too: they read no clock and stop nowhere"},
	{"agent/plan", []string{"api", "fsm/state"},
		"what an agent decides runs in a simulation too: it is told the time and what came of its steps"},
	{"agent/engine/chunks", []string{"agent/plan"},
		"what becomes of engines is decided without a clock, a process or a socket"},
	{"agent", []string{"api", "agent", "internal/clock=", "internal/failpoint", "internal/s3=", "internal/telemetry"},
		"an agent knows the protocol only, so that it can be upgraded apart from the servers"},
	{"deploy", nil,
		"what is deployed is made of files and the binary, and compiles nothing of the product"},
	{"jepsen", []string{"api", "fsm", "jepsen", "internal/sim", "internal/clock", "internal/failpoint"},
		"fault tests drive binaries from outside, and replay their log"},
	{"jepsen/dst", []string{"api", "fsm", "sched", "jepsen", "internal/sim", "server/leader", "server/lease", "server/entry", "server/quorum", "agent/plan"},
		"a simulation runs what is deterministic: the state machine, what leaders and agents decide, and the rules of the log"},
	{"jepsen/cluster", []string{"api", "jepsen", "internal/clock/clockctl", "internal/process", "server/replica="},
		"a cluster is driven from outside; only logs are read, by those who know their format"},
	{"jepsen/fault", []string{"api", "jepsen", "internal/process", "internal/failpoint"},
		"a fault is done to processes from outside; what it means for rota is for the checkers to say"},
	{"jepsen/workload/witness/engine", []string{"jepsen", "internal/engine/simulated"},
		"an engine under test is the simulated one, and differs only in that the witness sees it"},
	{"cmd", []string{"api", "fsm", "sched", "server", "agent", "jepsen", "cmd", "internal/sim", "internal/engine", "internal/process", "internal/clock", "internal/failpoint", "internal/s3=", "internal/telemetry"},
		"commands wire everything"},
	{"internal/engine/model", nil,
		"what an engine does runs in a simulation too: it is told the time, and knows nothing of rota"},
	{"internal/engine", []string{"internal/engine"},
		"a stand-in for engines knows their interfaces, and nothing of rota"},
	{"internal/sim", []string{"api", "fsm", "sched", "internal/sim", "internal/engine/model", "server/leader", "server/lease", "agent/plan"},
		"the simulator drives what ships, and copies none of it"},
	{"internal/process", nil,
		"it starts processes and knows nothing of what they are"},
	{"internal/telemetry", []string{"api"},
		"servers, agents and gateways say what they do in the same way; it knows none of them"},
	{"internal/s3", nil,
		"it moves objects to and from a store, and knows nothing of what they are"},
	{"internal/need", nil,
		"tests of every package use it"},
	{"internal/clock", []string{"internal/clock"},
		"everything that measures leases builds on it"},
	{"internal/failpoint", nil,
		"everything that writes to disk may have windows in it"},
}

// ruleOf is the layer with the longest folder that holds dir.
func ruleOf(dir string) (rule layer, found bool) {
	for _, l := range layers {
		if within(dir, l.folder) && len(l.folder) > len(rule.folder) {
			rule, found = l, true
		}
	}
	return rule, found
}

// within reports whether the folder stands for dir.
func within(dir, folder string) bool {
	if exact, ok := strings.CutSuffix(folder, "="); ok {
		return dir == exact
	}
	return dir == folder || strings.HasPrefix(dir, strings.TrimSuffix(folder, "/")+"/")
}

// imports checks who of ours imports whom, tests excepted: a test may put
// together what the product keeps apart.
func imports(files []file) (findings []string) {
	for _, f := range files {
		if f.test() {
			continue
		}
		rule, ok := ruleOf(f.dir())
		if !ok {
			findings = append(findings, f.path+" is under no folder that has an import rule: add one to layers")
			continue
		}
		for _, target := range ours(f) {
			if !mayImport(rule, f.dir(), target) {
				findings = append(findings, fmt.Sprintf("%s imports %s: %s", f.path, target, rule.why))
			}
		}
	}
	return findings
}

func mayImport(rule layer, dir, target string) bool {
	// A part of a server may have packages of its own below it.
	if rule.folder == "server/" && partOf(dir) == partOf(target) {
		return true
	}
	return slices.ContainsFunc(rule.may, func(folder string) bool { return within(target, folder) })
}

// partOf is the first two elements of a path.
func partOf(dir string) string {
	parts := strings.SplitN(dir, "/", 3)
	return path.Join(parts[:min(2, len(parts))]...)
}

// ours are the packages of this module that a file imports, without "rota/".
func ours(f file) (dirs []string) {
	for _, spec := range f.syntax.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue
		}
		if dir, ok := strings.CutPrefix(name, "rota/"); ok {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

func TestPackagesImportOnlyWhatTheirLayerAllows(t *testing.T) {
	report(t, imports(goFiles(t)))

	for _, c := range []struct {
		file, target string
		refused      bool
	}{
		{"api/client/x.go", "api/pki", false},
		{"api/client/x.go", "fsm/state", true},
		{"api/client/x.go", "internal/clock", false},
		{"api/client/x.go", "internal/clock/clockctl", true},
		{"api/httpx/x.go", "internal/clock", true},
		{"api/pki/x.go", "internal/need", true},
		{"fsm/state/x.go", "api/gen/log/v1", false},
		{"fsm/state/x.go", "fsm", true},
		{"fsm/state/x.go", "sched", true},
		{"sched/order/x.go", "fsm/state", false},
		{"sched/order/x.go", "fsm", true},
		{"sched/x.go", "api/gen/rota/v1", true},
		{"fsm/x.go", "sched/place", false},
		{"fsm/x.go", "server/replica", true},
		{"server/rpc/x.go", "fsm", false},
		{"server/rpc/x.go", "fsm/state", false},
		{"server/rpc/x.go", "internal/sim", true},
		{"server/rpc/x.go", "server/replica", true},
		{"server/rpc/x.go", "sched", true},
		{"server/replica/x.go", "server/replica/wal", false},
		{"server/x.go", "server/rpc", false},
		{"server/x.go", "sched/plan", false},
		{"server/x.go", "sched/order", true},
		{"server/x.go", "agent", true},
		{"agent/runtime/x.go", "agent/journal", false},
		{"agent/x.go", "server/gossip", true},
		{"agent/x.go", "fsm/state", true},
		{"agent/x_test.go", "server/gossip", false},
		{"agent/x.go", "internal/clock", false},
		{"server/replica/x.go", "internal/failpoint", false},
		{"server/replica/x.go", "internal/clock/clockctl", true},
		{"server/replica/x.go", "server/entry", false},
		{"server/replica/x.go", "server/rpc", true},
		{"server/rpc/x.go", "server/quorum", true},
		{"server/entry/x.go", "fsm", true},
		{"server/quorum/x.go", "server/entry", true},
		{"server/lease/x.go", "internal/clock", true},
		{"agent/plan/x.go", "fsm/state", false},
		{"agent/plan/x.go", "internal/failpoint", true},
		{"agent/plan/x.go", "agent/runtime", true},
		{"agent/engine/chunks/x.go", "agent/engine", true},
		{"agent/runtime/x.go", "agent/plan", false},
		{"internal/sim/x.go", "agent/plan", false},
		{"internal/sim/x.go", "agent", true},
		{"internal/sim/x.go", "server/leader", false},
		{"internal/sim/x.go", "server/replica", true},
		{"jepsen/cluster/x.go", "internal/clock/clockctl", false},
		{"jepsen/dst/x.go", "server/lease", false},
		{"jepsen/dst/x.go", "server/quorum", false},
		{"jepsen/dst/x.go", "server", true},
		{"jepsen/check/x.go", "internal/sim", false},
		{"jepsen/check/x.go", "server", true},
		{"jepsen/check/x.go", "server/replica", true},
		{"jepsen/cluster/x.go", "server/replica", false},
		{"jepsen/cluster/x.go", "agent/runtime", true},
		{"jepsen/fault/x.go", "internal/process", false},
		{"jepsen/fault/x.go", "fsm", true},
		{"jepsen/scenario/x.go", "internal/process", true},
		{"cmd/rota/x.go", "server", false},
		{"elsewhere/x.go", "api", true},
	} {
		broken := parse(t, c.file, fmt.Sprintf("package x\nimport _ %q\n", "rota/"+c.target))
		if got := imports([]file{broken}); (len(got) > 0) != c.refused {
			t.Errorf("%s imports %s: findings %q, want refused %v", c.file, c.target, got, c.refused)
		}
	}
}

// keepers say which files alone may use a module, so that its quirks are dealt
// with in one place.
var keepers = []struct {
	module string
	in     []string // folders or files
	why    string
}{
	{"github.com/hashicorp/raft", []string{"fsm/machine.go", "server/mux/raft.go", "server/replica"},
		"the state machine knows Raft in one file, and only replica knows what is wrong with it"},
	{"github.com/hashicorp/raft-boltdb", []string{"server/replica"},
		"a log store without checksums and the high-water mark loses entries silently"},
	{"github.com/hashicorp/raft-wal", []string{"server/replica"},
		"a log store that cuts off a damaged tail loses entries silently"},
	{"go.etcd.io/bbolt", []string{"server/replica"},
		"a log store without checksums and the high-water mark loses entries silently"},
	{"github.com/hashicorp/memberlist", []string{"server/gossip"},
		"gossip is a hint, and gossip keeps it one"},
}

func keptModules(files []file) (findings []string) {
	for _, f := range files {
		for _, spec := range f.syntax.Imports {
			name := strings.Trim(spec.Path.Value, `"`)
			for _, k := range keepers {
				allowed := f.test() || slices.ContainsFunc(k.in, func(in string) bool { return f.path == in || within(f.dir(), in) })
				if (name == k.module || strings.HasPrefix(name, k.module+"/")) && !allowed {
					findings = append(findings, fmt.Sprintf("%s imports %s: %s", f.path, name, k.why))
				}
			}
		}
	}
	return findings
}

func TestModulesWithQuirksAreUsedInOnePlace(t *testing.T) {
	// The benchmark of a bare Raft is the exception that measures the rule.
	var files []file
	for _, f := range goFiles(t) {
		if !within(f.dir(), "cmd/internal/bench") {
			files = append(files, f)
		}
	}
	report(t, keptModules(files))

	expect(t, keptModules([]file{
		parse(t, "fsm/x.go", "package fsm\nimport _ \"github.com/hashicorp/raft\"\n"),
		parse(t, "fsm/machine.go", "package fsm\nimport _ \"github.com/hashicorp/raft\"\n"),
		parse(t, "server/rpc/x.go", "package rpc\nimport _ \"github.com/hashicorp/raft-boltdb/v2\"\n"),
		parse(t, "server/rpc/y.go", "package rpc\nimport _ \"github.com/hashicorp/raft-wal/fs\"\n"),
		parse(t, "server/replica/x.go", "package replica\nimport _ \"go.etcd.io/bbolt\"\n"),
		parse(t, "agent/x.go", "package agent\nimport _ \"github.com/hashicorp/memberlist\"\n"),
	}), "fsm/x.go", "server/rpc/x.go", "server/rpc/y.go", "agent/x.go")
}
