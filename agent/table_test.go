package agent

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/protobuf/types/known/durationpb"

	rotav1 "rota/api/gen/rota/v1"

	"rota/agent/httpcall"
	"rota/agent/inventory"
	"rota/agent/runtime"
)

func specs() specifier {
	return specifier{node: "node-1", inv: &inventory.Inventory{NUMA: [][]int{{0, 1, 2, 3}}, Pinned: true}, runtimeDir: "/var/lib/rota"}
}

// world is a table with a clock that stands still.
func world() *table {
	t := newTable(hclog.NewNullLogger(), func() int64 { return 1 })
	t.enter(7, 100)
	return t
}

func k(action uint64) runtime.Key { return runtime.Key{Action: action, Attempt: 1, Incarnation: 7} }

// desired builds a desired state; negative IDs are to stop.
func desired(index uint64, actions ...int) *rotav1.WatchNodeResponse {
	m := &rotav1.WatchNodeResponse{Index: index}
	for _, id := range actions {
		a := assignment(uint64(max(id, -id)))
		a.Stop = id < 0
		m.Assignments = append(m.Assignments, a)
	}
	return m
}

// startAll does what the workers do with what is wanted.
func startAll(t *table) {
	t.accepted(t.toAccept(true))
	for _, spec := range t.toStart(true) {
		t.started(spec.Key, nil)
	}
}

// phases shows the table.
func phases(t *table) string {
	m := map[uint64]string{}
	names := []string{"wanted", "accepted", "starting", "running", "ended", "reported"}
	for key, a := range t.attempts {
		if m[key.Action] = names[a.phase]; a.kill != 0 {
			m[key.Action] += "!"
		}
	}
	return fmt.Sprint(m) // maps are printed in the order of keys
}

func TestDesiredStates(t *testing.T) {
	exited := func(id uint64) func(*table) {
		return func(t *table) { t.Exited(runtime.Exit{Key: k(id), Reason: runtime.ReasonExited}) }
	}
	see := func(index uint64, actions ...int) func(*table) {
		return func(t *table) { t.desire(7, desired(index, actions...), specs()) }
	}
	ack := func(index uint64) func(*table) {
		return func(t *table) { _, exits := t.toReport(10, reportBytesMax); t.acked(exits, index) }
	}
	for name, c := range map[string]struct {
		steps []func(*table)
		want  string
	}{
		"a grant":                                {[]func(*table){see(101, 1), startAll}, "map[1:running]"},
		"the same twice":                         {[]func(*table){see(101, 1), startAll, see(101, 1), startAll}, "map[1:running]"},
		"from before the registration":           {[]func(*table){see(99, 1), startAll}, "map[]"},
		"of the registration":                    {[]func(*table){see(100, 1), startAll}, "map[1:running]"},
		"an older one does not kill":             {[]func(*table){see(102, 1, 2), startAll, see(101, 1)}, "map[1:running 2:running]"},
		"an older one does not start":            {[]func(*table){see(102), see(101, 1), startAll}, "map[]"},
		"no longer desired":                      {[]func(*table){see(101, 1, 2), startAll, see(102, 2)}, "map[1:running! 2:running]"},
		"no longer desired before it started":    {[]func(*table){see(101, 1), see(102), startAll}, "map[]"},
		"to stop":                                {[]func(*table){see(101, 1), startAll, see(102, -1)}, "map[1:running!]"},
		"to stop before it started":              {[]func(*table){see(101, 1), see(102, -1), startAll}, "map[1:ended]"},
		"to stop before it was heard of":         {[]func(*table){see(101, -1), startAll}, "map[1:ended]"},
		"stopped once is stopped":                {[]func(*table){see(101, -1), see(102, 1), startAll}, "map[1:ended]"},
		"ended, still desired":                   {[]func(*table){see(101, 1), startAll, exited(1), see(102, 1), startAll}, "map[1:ended]"},
		"ended, the cluster knows":               {[]func(*table){see(101, 1), startAll, exited(1), see(102)}, "map[]"},
		"reported, an older state still has it":  {[]func(*table){see(101, 1), startAll, exited(1), ack(110), see(105, 1), startAll}, "map[1:reported]"},
		"reported and gone":                      {[]func(*table){see(101, 1), startAll, exited(1), ack(110), see(105)}, "map[]"},
		"reported, but a newer state has it":     {[]func(*table){see(101, 1), startAll, exited(1), ack(110), see(110, 1), startAll}, "map[1:ended]"},
		"a report that was not confirmed":        {[]func(*table){see(101, 1), startAll, exited(1), ack(0)}, "map[1:ended]"},
		"an end that is told twice":              {[]func(*table){see(101, 1), startAll, exited(1), ack(110), exited(1)}, "map[1:reported]"},
		"fenced by an older state":               {[]func(*table){see(101, 1), startAll, fence(100)}, "map[1:running]"},
		"an end of something unknown":            {[]func(*table){exited(9)}, "map[]"},
		"a state of another incarnation":         {[]func(*table){func(t *table) { t.desire(6, desired(500, 1), specs()) }, startAll}, "map[]"},
		"evicted":                                {[]func(*table){see(101, 1, 2), startAll, see(102, 1, 2, 3), evict, startAll}, "map[1:running! 2:running!]"},
		"evicted, then desired by a late stream": {[]func(*table){see(101), evict, see(102, 1), startAll}, "map[]"},
		"accepted, then evicted": {
			[]func(*table){see(101, 1), func(t *table) { t.accepted(t.toAccept(true)) }, evict, startAll}, "map[1:ended]"},
	} {
		t.Run(name, func(t *testing.T) {
			w := world()
			for _, step := range c.steps {
				step(w)
			}
			if got := phases(w); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

func evict(t *table) { t.evict(0, runtime.ReasonNodeLost) }

func fence(index uint64) func(*table) {
	return func(t *table) {
		if t.desire(7, &rotav1.WatchNodeResponse{Index: index, Fenced: true}, specs()) != nil {
			evict(t)
		}
	}
}

func TestNothingIsAcceptedOrStartedWithoutALease(t *testing.T) {
	w := world()
	w.desire(7, desired(101, 1, -2), specs())
	if keys := w.toAccept(false); len(keys) != 1 || keys[0] != k(2) {
		t.Errorf("accepted %v without a lease, want only what is refused", keys)
	}
	w.accepted(w.toAccept(true))
	if specs := w.toStart(false); len(specs) != 0 {
		t.Errorf("started %v without a lease", specs)
	}
}

func TestAnswersOfStart(t *testing.T) {
	for name, c := range map[string]struct {
		err      error
		want     string
		disarmed bool
		fatal    bool
	}{
		"started":                {nil, "map[1:running]", false, false},
		"the deadline passed":    {runtime.ErrDeadlinePassed, "map[1:accepted]", true, false},
		"the supervisor ends":    {runtime.ErrStopping, "map[1:accepted]", true, false},
		"too many":               {runtime.ErrTooMany, "map[1:accepted]", false, false},
		"cannot be described":    {runtime.ErrInvalidSpec, "map[1:ended]", false, false},
		"no journal":             {runtime.ErrJournal, "map[1:accepted]", false, true},
		"nobody knows, so asked": {runtime.ErrLost, "map[1:running]", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := world()
			w.desire(7, desired(101, 1), specs())
			w.accepted(w.toAccept(true))
			w.toStart(true)
			disarmed, fatal := w.started(k(1), c.err)
			if got := phases(w); got != c.want || disarmed != c.disarmed || (fatal != nil) != c.fatal {
				t.Errorf("%s disarmed %v fatal %v, want %s %v %v", got, disarmed, fatal, c.want, c.disarmed, c.fatal)
			}
		})
	}
}

// An answer that never came is settled by a list made afterwards.
func TestAnUnansweredStartIsSettledByAList(t *testing.T) {
	for name, c := range map[string]struct {
		running []runtime.Key
		want    string
	}{"it runs": {[]runtime.Key{k(1)}, "map[1:running]"}, "it does not": {nil, "map[1:ended]"}} {
		t.Run(name, func(t *testing.T) {
			w := world()
			w.desire(7, desired(101, 1), specs())
			w.accepted(w.toAccept(true))
			w.toStart(true)
			w.started(k(1), runtime.ErrLost)
			thought, due := w.takeAudit(false)
			if !due {
				t.Fatal("nobody asked for a list")
			}
			w.audited(thought, c.running, nil)
			if got := phases(w); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

func TestWhatTheRuntimeAndTheJournalMayForget(t *testing.T) {
	w := world()
	w.desire(7, desired(101, 1), specs())
	startAll(w)
	w.Exited(runtime.Exit{Key: k(1), Reason: runtime.ReasonExited})
	if !w.takeChores().none() {
		t.Error("something is forgotten before the report was confirmed")
	}
	_, exits := w.toReport(10, reportBytesMax)
	w.acked(exits, 110)
	if c := w.takeChores(); len(c.reported) != 1 || len(c.forget) != 1 || len(c.done) != 0 {
		t.Errorf("after the report: %+v", c)
	}
	w.desire(7, desired(110), specs())
	if c := w.takeChores(); len(c.done) != 1 {
		t.Errorf("after the cluster has forgotten: %+v", c)
	}
}

func TestAKillIsRepeated(t *testing.T) {
	now := int64(1)
	w := newTable(hclog.NewNullLogger(), func() int64 { return now })
	w.enter(7, 100)
	w.desire(7, desired(101, 1), specs())
	startAll(w)
	w.desire(7, desired(102), specs())
	for _, step := range []struct {
		after int64
		kills int
	}{{0, 1}, {1, 0}, {int64(killAgain), 1}} {
		now += step.after
		if kills := w.toKill(); len(kills) != step.kills {
			t.Errorf("%d ns later: %d kills, want %d", step.after, len(kills), step.kills)
		}
	}
}

func TestTheEnvironmentOfACommand(t *testing.T) {
	a := assignment(41, "make", "-j", "{{cores}}", "x={{cores}}/{{cores}}")
	a.Cpus, a.TrajectoryId = []uint32{3, 1}, 5
	a.Command.Env = map[string]string{"CI": "1", "PATH": "/opt/bin", "ROTA_TOKEN": "forged", "ROTA_X": "1"}
	spec, err := specs().spec(k(41), a)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(spec.Argv, spec.CPUs); got != "[make -j 2 x=2/2] [1 3]" {
		t.Errorf("started as %s", got)
	}
	want := map[string]bool{}
	for _, kv := range []string{
		"CI=1", "PATH=/opt/bin", "LANG=C.UTF-8", "TMPDIR=/tmp", "HOME=/var/lib/rota/work/41.1.7",
		"ROTA_CORES=2", "ROTA_CPUS=1,3", "ROTA_TOKEN=41.1.7", "ROTA_TOKEN_ATTEMPT=1", "ROTA_ACTION_ID=41",
		"ROTA_TRAJECTORY_ID=5", "ROTA_NAMESPACE=default", "ROTA_NODE=node-1",
	} {
		want[kv] = true
	}
	got := map[string]bool{}
	for _, kv := range spec.Env {
		got[kv] = true
	}
	if !maps.Equal(got, want) {
		t.Errorf("environment %q", spec.Env)
	}
}

// TestAnHTTPCall is made by the agent's own program, and is not on its command line.
func TestAnHTTPCall(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://proxy:3128")
	call := &rotav1.HttpCall{Url: "http://engine/{{cores}}", Headers: map[string]string{"Authorization": "secret"}}
	text, err := httpcall.Encode(call)
	if err != nil {
		t.Fatal(err)
	}
	a := assignment(41)
	a.Command, a.Http, a.Cpus, a.RunTimeout = nil, call, nil, durationpb.New(time.Minute)
	s := specs()
	s.self = "/opt/{{cores}}/rota"
	spec, err := s.spec(k(41), a)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(spec.Argv, spec.CPUs, spec.Timeout); got != "[/opt/{{cores}}/rota http-call] [] 1m0s" {
		t.Errorf("started as %s", got)
	}
	for _, want := range []string{"ROTA_HTTP_CALL=" + text, "HTTPS_PROXY=http://proxy:3128", "ROTA_TOKEN_ATTEMPT=1"} {
		if !slices.Contains(spec.Env, want) {
			t.Errorf("environment %q lacks %s", spec.Env, want)
		}
	}
	s.self = ""
	if _, err := s.spec(k(41), a); err == nil {
		t.Error("a node that does not know its own program starts a call")
	}
}

// TestACommandWithoutCores is told of one core, and which keys of its quotas it has.
func TestACommandWithoutCores(t *testing.T) {
	a := assignment(41, "make", "-j", "{{cores}}")
	a.Cpus, a.QuotaKeys = nil, []*rotav1.QuotaKey{{Quota: "open-ai.v2", Key: 3}}
	spec, err := specs().spec(k(41), a)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(spec.Argv, spec.CPUs); got != "[make -j 1] []" {
		t.Errorf("started as %s", got)
	}
	for _, want := range []string{"ROTA_CORES=1", "ROTA_QUOTA_OPEN_AI_V2=3"} {
		if !slices.Contains(spec.Env, want) {
			t.Errorf("environment %q lacks %s", spec.Env, want)
		}
	}
	if slices.ContainsFunc(spec.Env, func(kv string) bool { return strings.HasPrefix(kv, "ROTA_CPUS=") }) {
		t.Errorf("environment %q names CPUs", spec.Env)
	}
}
