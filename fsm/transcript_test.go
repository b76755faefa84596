package fsm

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
	"rota/jepsen/late"
	"rota/jepsen/model"
	"rota/sched"
	"rota/sched/schedtest"
)

// TestTranscripts plays the stories in testdata. Each `entry` is one log entry,
// one command a line; what it answers and which events it causes is the golden
// output (go test ./fsm -rewrite renews it). After each entry every invariant is
// checked, a second replica that is restored from a snapshot now and then, and
// that knows a newer feature level, must have the same hash, and the model of jepsen/model
// must agree.
func TestTranscripts(t *testing.T) {
	walkTranscripts(t, func(t *testing.T, path string) {
		s := newStory(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return s.play(t, d) })
	})
}

// walkTranscripts visits the stories in testdata, where rapid writes the draws of a property
// that fails, too.
func walkTranscripts(t *testing.T, visit func(t *testing.T, path string)) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if !strings.Contains(path, "testdata/rapid/") {
			visit(t, path)
		}
	})
}

// story is a state machine with what a transcript needs around it.
type story struct {
	state *state.State
	twin  *state.State // replica that restarts from snapshots
	model *model.Model // nil: not asked
	late  *late.Watch
	index uint64
	now   int64
	fail  func(stage)
	// entries are all that were applied.
	entries []*logv1.Entry
}

// newStoryWith is newStory with a limit on request IDs; 0: the default.
func newStoryWith(t rapid.TB, requestsMax uint32) *story {
	s := &story{state: state.New(), twin: state.New(), model: model.New(), late: late.New()}
	s.apply(t, &logv1.Command{Verb: &logv1.Command_Bootstrap{Bootstrap: &logv1.Bootstrap{
		ClusterId: "test", Level: uint32(state.LevelMax) - nextLevels,
		Settings: &logv1.Settings{
			BypassMax: 3, BypassNsMax: int64(10 * time.Second), RetentionNs: int64(time.Hour), EventsMax: 4096,
			RequestsMax: requestsMax,
		},
	}}})
	return s
}

func (s *story) play(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "entry":
		for _, arg := range d.CmdArgs {
			if arg.Key == "at" {
				at, err := time.ParseDuration(arg.Vals[0])
				if err != nil {
					d.Fatalf(t, "%v", err)
				}
				s.now = int64(at)
			}
		}
		var commands []*logv1.Command
		for _, line := range strings.Split(d.Input, "\n") {
			if line != "" {
				commands = append(commands, parseCommand(t, line)...)
			}
		}
		return s.entry(t, commands)
	case "fail":
		s.fail = failpoint(d)
		return "the next entry panics there\n"
	case "show":
		return s.show()
	case "ledger":
		return s.showLedger()
	case "explain":
		var id uint64
		if d.HasArg("generation") {
			return s.explainGeneration(t, d)
		}
		if d.HasArg("migration") {
			return s.explainMigration(t, d)
		}
		d.ScanArgs(t, "action", &id)
		return sched.Explain(s.state, s.state.Action(state.ActionID(id)), s.now) + "\n"
	}
	d.Fatalf(t, "unknown directive %q", d.Cmd)
	return ""
}

// entry applies commands and describes what came of them.
func (s *story) entry(t rapid.TB, commands []*logv1.Command) string {
	before, were := s.state.Meta().Revision, s.state
	var out strings.Builder
	for i, r := range s.apply(t, commands...) {
		fmt.Fprintf(&out, "%d: %s\n", i+1, describeResult(r))
	}
	for rev := before + 1; rev <= s.state.Meta().Revision; rev++ {
		e, ok := s.state.Event(rev)
		if !ok {
			t.Fatalf("event %d is not kept", rev)
		}
		fmt.Fprintf(&out, "   %s\n", s.describeEvent(e))
	}
	out.WriteString(s.resizes(were))
	out.WriteString(s.migrations(were))
	out.WriteString(s.rollouts(were))
	out.WriteString(s.routes(were))
	out.WriteString(s.rewards(were))
	if due, ok := nextDue(s.state); ok {
		fmt.Fprintf(&out, "due at %v\n", time.Duration(due))
	}
	return out.String()
}

func (s *story) apply(t rapid.TB, commands ...*logv1.Command) []*logv1.Result {
	t.Helper()
	s.index++
	e := s.entryOf(commands)
	before := s.state.Hash()
	var planted []model.Planted
	if s.fail != nil {
		s.fail = noting(s.fail, &planted)
	}
	next, results, _ := apply(s.state.Copy, s.index, e, sched.Deciders(), s.fail)
	if s.state.Hash() != before {
		t.Fatal("applying an entry changed the state it started from")
	}
	s.twin, _, _ = apply(s.twin.Copy, s.index, e, schedtest.Deciders(nextLevel), s.fail)
	if s.model != nil {
		s.model.Planted = func(uint64) []model.Planted { return planted }
		if err := s.model.Step(s.index, 0, e, results, next); err != nil {
			t.Fatalf("the model does not agree: %v", err)
		}
	}
	s.state, s.fail = next, nil
	if err := s.late.Step(s.state); err != nil {
		t.Fatalf("after entry %d: %v", s.index, err)
	}
	if err := s.state.Check(); err != nil {
		t.Fatalf("after entry %d: %v", s.index, err)
	}
	s.checkWaits(t)
	if s.index%3 == 0 {
		s.twin = roundTrip(t, s.twin)
	}
	if a, b := s.state.Hash(), s.twin.Hash(); a != b {
		t.Fatalf("after entry %d: hash %016x, the restarted replica has %016x", s.index, a, b)
	}
	return results
}

func roundTrip(t rapid.TB, s *state.State) *state.State {
	t.Helper()
	var buf bytes.Buffer
	if err := s.Save(&buf); err != nil {
		t.Fatal(err)
	}
	out, err := state.Restore(&buf)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func describeResult(r *logv1.Result) string {
	if f := r.Refusal; f != nil {
		return fmt.Sprintf("refused %s: %s", f.Reason, f.Message)
	}
	var out []string
	if r.FirstId != 0 {
		out = append(out, fmt.Sprintf("id %d", r.FirstId))
	}
	if r.Count > 1 || r.FirstId == 0 && r.Incarnation == 0 {
		out = append(out, fmt.Sprintf("count %d", r.Count))
	}
	if r.Incarnation != 0 {
		out = append(out, fmt.Sprintf("incarnation %d", r.Incarnation))
	}
	if r.Replayed {
		out = append(out, "replayed")
	}
	return strings.Join(out, ", ")
}

var (
	actionStates     = []string{"", "queued", "running", "succeeded", "failed", "canceled", "lost", "expired"}
	trajectoryStates = []string{"", "pending", "open", "closing", "closed", "lost"}
	nodeStates       = []string{"", "up", "down"}
)

func (s *story) describeEvent(e state.Event) string {
	switch e.Kind {
	case state.EventTrajectory:
		return fmt.Sprintf("trajectory %d %s%s", e.Subject, trajectoryStates[e.State], s.on(e.Node))
	case state.EventNode:
		return fmt.Sprintf("node %s %s", s.nodeName(e.Node), nodeStates[e.State])
	case state.EventJob, state.EventTurn:
		return s.describeLedgerEvent(e)
	}
	out := fmt.Sprintf("action %d %s", e.Subject, actionStates[e.State])
	if state.ActionState(e.State) == state.ActionRunning {
		out += s.on(e.Node)
		if a := s.state.Attempt(e.Node, state.ActionID(e.Subject)); a != nil && a.Number == e.Attempt {
			out += s.given(a) + s.keys(a.Action)
		}
		out += fmt.Sprintf(" attempt %d", e.Attempt)
	}
	return out
}

// given is what an attempt holds.
func (s *story) given(t *state.Attempt) (out string) {
	if t.Cores != (state.CoreSet{}) || t.Chunk.Units == 0 {
		out = " cores " + cmp.Or(coreList(t.Cores), "none")
	}
	if c := t.Chunk; c.Units > 0 {
		out += fmt.Sprintf(" GPUs %s", strings.Trim(strings.ReplaceAll(fmt.Sprint(c.GPUs().Slice()), " ", ","), "[]"))
	}
	if t.SetUpNS > 0 {
		out += fmt.Sprintf(" set-up %v", time.Duration(t.SetUpNS))
	}
	return out
}

func (s *story) on(id state.NodeID) string {
	if id == 0 {
		return ""
	}
	return " on " + s.nodeName(id)
}

func (s *story) nodeName(id state.NodeID) string {
	if n := s.state.Node(id); n != nil {
		return n.Name
	}
	return fmt.Sprint("#", id)
}

// keys says which keys of its quotas an action has.
func (s *story) keys(id state.ActionID) string {
	a := s.state.Action(id)
	out := ""
	for i, key := range a.QuotaKeys {
		out += fmt.Sprintf(" %s/%d", s.state.Quota(a.Needs.Quotas[i].Quota).Name, key+1)
	}
	return out
}

func coreList(c state.CoreSet) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(c.Slice()), " ", ","), "[]")
}

func (s *story) showQuotas(out *strings.Builder) {
	s.state.Quotas(func(q *state.Quota) bool {
		held, windowed, limit := q.Total()
		fmt.Fprintf(out, "quota %s: %d held and %d in windows of %d, %d queued", q.Name, held, windowed, limit, s.state.Waiting(state.QueueOf(state.QuotaQueue, q.ID)))
		if q.Halted != "" {
			fmt.Fprintf(out, ", halted: %s", q.Halted)
		}
		if q.Throttled > 0 {
			fmt.Fprintf(out, ", throttled %d times", q.Throttled)
		}
		if q.Settled > 0 {
			fmt.Fprintf(out, ", settled %d times to %d units", q.Settled, q.SettledUnits)
		}
		if over := q.Overdrawn(); q.Settled > 0 && over > 0 {
			fmt.Fprintf(out, ", overdrawn by %d", over)
		}
		for _, p := range q.Pressures {
			fmt.Fprintf(out, ", key %d has %d.%03d units from %v on", p.Key+1, p.Limit/1000, p.Limit%1000, time.Duration(p.PausedUntil))
		}
		out.WriteString("\n")
		return true
	})
}

func (s *story) show() string {
	var out strings.Builder
	s.state.Nodes(0, func(n *state.Node) bool {
		fmt.Fprintf(&out, "node %s: %s, free cores {%s}, free memory %d", n.Name, nodeStates[n.State], coreList(n.Free), n.FreeMemory)
		if n.LowDisk {
			fmt.Fprintf(&out, ", low on disk, drained besides: %v", n.Drained)
		}
		if n.ReservedFor != 0 {
			fmt.Fprintf(&out, ", reserved for %d", n.ReservedFor)
		}
		if n.Bandwidth > 0 {
			fmt.Fprintf(&out, ", free bandwidth %d", n.FreeBandwidth)
		}
		if n.GPUs.Class != 0 {
			fmt.Fprintf(&out, ", free GPUs %v", n.GPUs.Free.Slice())
		}
		if text := n.OutOfUseText(n.OutOfUse()); text != "" || n.Trusted != 0 {
			fmt.Fprintf(&out, ", %s, trusted GPUs %v", text, n.Trusted.Slice())
		}
		out.WriteString("\n")
		for _, m := range s.state.ModelsOn(n.ID) {
			fmt.Fprintf(&out, "  %s of %d bytes on GPUs %v, used at %v\n", m.Model, m.Bytes, m.Chunk.GPUs().Slice(), time.Duration(m.UsedAt))
		}
		for _, e := range s.state.EnginesOn(n.ID) {
			fmt.Fprintf(&out, "  engine of %s on GPUs %v: state %d of generation %d, %d starts and %d failures, since %v %s\n",
				e.Model, e.Chunk.GPUs().Slice(), e.State, e.Generation, e.Starts, e.Failures, time.Duration(e.ChangedAt), e.Message)
		}
		return true
	})
	s.state.Trajectories(0, func(t *state.Trajectory) bool {
		if t.State == state.TrajectoryOpen && t.Spread.Group != "" {
			fmt.Fprintf(&out, "trajectory %d: group %s, %s=%s with %d of them\n", t.ID, t.Spread.Group, t.Spread.Label, t.Spread.Domain, s.state.InDomain(t, t.Spread.Domain))
		}
		return true
	})
	s.state.Pools(func(p *state.Pool) bool {
		fmt.Fprintf(&out, "pool %s: %d queued", p.Name, s.state.Waiting(state.QueueOf(state.PoolQueue, p.ID)))
		if p.Halted != "" {
			fmt.Fprintf(&out, ", halted: %s", p.Halted)
		}
		out.WriteString("\n")
		return true
	})
	s.state.Classes(0, func(c *state.Class) bool {
		fmt.Fprintf(&out, "class %s:", c.Name)
		for _, w := range c.Seen {
			fmt.Fprintf(&out, " %d x %d cores %v,", w.Attempts, w.Units, time.Duration(w.MeanNS))
		}
		for _, z := range c.Sizes {
			fmt.Fprintf(&out, " %d of size %d with %v,", z.Attempts, z.Octave, time.Duration(z.MeanNS))
		}
		fmt.Fprintf(&out, " %d live\n", s.state.ClassLive(c.ID))
		return true
	})
	s.state.Engines(func(e *state.Engine) bool {
		fmt.Fprintf(&out, "engine of %s: generation %d, %d set-ups of %v\n", e.Model, e.Generation, e.SetUps, time.Duration(e.SetUpNS))
		return true
	})
	s.showQuotas(&out)
	fmt.Fprintf(&out, "requests %d, kept actions %d\n", s.state.RequestCount(), s.state.Counts().Ended)
	return out.String()
}

// parseCommand reads one line: a verb and key=value arguments.
func sickOf(a args) *logv1.Command {
	c := &logv1.ReportGpus{Node: a.text("node"), Incarnation: a.num("inc", 0), Sick: a.gpus("gpus")}
	if text := a.text("reasons"); text != "" {
		c.Reasons = strings.Split(text, ",")
	}
	return &logv1.Command{Verb: &logv1.Command_ReportGpus{ReportGpus: c}}
}

func parseCommand(t rapid.TB, line string) []*logv1.Command {
	t.Helper()
	words := strings.Fields(line)
	a := args{t, words[1:]}
	one := func(c *logv1.Command) []*logv1.Command { return []*logv1.Command{c} }
	if c := parseLedgerCommand(t, words[0], a); c != nil {
		return one(c)
	}
	if c := parseMigrationCommand(words[0], a); c != nil {
		return one(c)
	}
	if c := parseTrajectoryCommand(words[0], a); c != nil {
		return one(c)
	}
	switch words[0] {
	case "submit":
		return one(submitOf(a))
	case "cancel":
		return one(&logv1.Command{Verb: &logv1.Command_CancelActions{CancelActions: &logv1.CancelActions{Ids: a.ids("ids")}}})
	case "register":
		return one(registerOf(a))
	case "report":
		return one(reportOf(a))
	case "expire":
		return one(&logv1.Command{Verb: &logv1.Command_ExpireNode{ExpireNode: &logv1.ExpireNode{Name: a.text("node"), Incarnation: a.num("inc", 0)}}})
	case "drain":
		return one(&logv1.Command{Verb: &logv1.Command_DrainNode{DrainNode: &logv1.DrainNode{
			Name: a.text("node"), Draining: a.text("undo") == "", Gpus: a.gpus("gpus"), Reason: a.text("reason"),
		}}})
	case "sick":
		return one(sickOf(a))
	case "disk":
		return one(&logv1.Command{Verb: &logv1.Command_ReportDisk{ReportDisk: &logv1.ReportDisk{Name: a.text("node"), Incarnation: a.num("inc", 0), Low: a.text("low") != ""}}})
	case "remove":
		return one(&logv1.Command{Verb: &logv1.Command_RemoveNode{RemoveNode: &logv1.RemoveNode{Name: a.text("node")}}})
	case "resume":
		return one(&logv1.Command{Verb: &logv1.Command_ResumePool{ResumePool: &logv1.ResumePool{Name: a.text("pool")}}})
	case "namespace":
		return one(&logv1.Command{Verb: &logv1.Command_CreateNamespace{CreateNamespace: &logv1.CreateNamespace{Name: a.text("name")}}})
	case "set-namespace":
		return []*logv1.Command{a.updateNamespace()}
	case "delete-namespace":
		return one(&logv1.Command{Verb: &logv1.Command_DeleteNamespace{DeleteNamespace: &logv1.DeleteNamespace{Name: a.text("name")}}})
	case "delete-pool":
		return one(&logv1.Command{Verb: &logv1.Command_DeletePool{DeletePool: &logv1.DeletePool{Name: a.text("name")}}})
	case "delete-class":
		return one(&logv1.Command{Verb: &logv1.Command_DeleteClass{DeleteClass: &logv1.DeleteClass{Name: a.text("name"), Namespace: a.text("ns")}}})
	case "quota":
		return one(&logv1.Command{Verb: &logv1.Command_CreateQuota{CreateQuota: &logv1.CreateQuota{
			Name: a.text("name"), Kind: quotaKinds[a.text("kind")], Limit: uint32(a.num("limit", 0)), WindowNs: a.dur("window"), Keys: uint32(a.num("keys", 0)),
			Adaptive: a.text("adaptive") == "yes",
		}}})
	case "update-quota":
		update := &logv1.UpdateQuota{
			Name: a.text("name"), Limit: uint32(a.num("limit", 0)), Keys: uint32(a.num("keys", 0)), Resume: a.text("resume") != "",
		}
		if text := a.text("adaptive"); text != "" {
			yes := text == "yes"
			update.Adaptive = &yes
		}
		return one(&logv1.Command{Verb: &logv1.Command_UpdateQuota{UpdateQuota: update}})
	case "delete-quota":
		return one(&logv1.Command{Verb: &logv1.Command_DeleteQuota{DeleteQuota: &logv1.DeleteQuota{Name: a.text("name")}}})
	case "engine":
		return one(&logv1.Command{Verb: &logv1.Command_RegisterEngine{RegisterEngine: &logv1.RegisterEngine{Model: a.text("model"), Spec: []byte(a.text("spec"))}}})
	case "remove-engine":
		return one(&logv1.Command{Verb: &logv1.Command_RemoveEngine{RemoveEngine: &logv1.RemoveEngine{Model: a.text("model")}}})
	case "engine-report":
		return one(engineReportOf(a))
	case "tick":
		return one(&logv1.Command{Verb: &logv1.Command_Tick{Tick: &logv1.Tick{}}})
	}
	t.Fatalf("unknown command %q", line)
	return nil
}

// engineReportOf reads node=n1 inc=1 model=m gpus=FIRST+NUMBER state=ready setup=5s starts=1, and gone=yes.
func engineReportOf(a args) *logv1.Command {
	r := &logv1.EngineReport{
		Model: a.text("model"), Generation: a.num("gen", 1), State: uint32(engineStates[a.text("state")]), Message: a.text("message"),
		Starts: a.num("starts", 0), Wakes: a.num("wakes", 0), Sleeps: a.num("sleeps", 0), Failures: a.num("failures", 0),
		SetUpNs: a.dur("setup"), Gone: a.text("gone") != "",
	}
	if _, err := fmt.Sscanf(a.text("gpus"), "%d+%d", &r.First, &r.Gpus); err != nil {
		a.t.Fatalf("gpus=%s: %v", a.text("gpus"), err)
	}
	return &logv1.Command{Verb: &logv1.Command_ReportEngines{ReportEngines: &logv1.ReportEngines{
		Node: a.text("node"), Incarnation: a.num("inc", 0), Reports: []*logv1.EngineReport{r},
	}}}
}

var engineStates = map[string]state.EngineState{
	"waiting": state.EngineWaiting, "starting": state.EngineStarting, "waking": state.EngineWaking, "ready": state.EngineReady,
	"falling-asleep": state.EngineFallingAsleep, "asleep": state.EngineAsleep, "failed": state.EngineFailed, "unknown": 9,
}

func submitOf(a args) *logv1.Command {
	c := &logv1.SubmitActions{Request: a.request(), Namespace: a.text("ns")}
	for range a.num("n", 1) {
		c.Actions = append(c.Actions, &logv1.Action{
			Pool: a.text("pool"), TrajectoryId: a.num("traj", 0), MemoryBytes: a.num("memory", 0),
			CoresMin: uint32(a.num("cores", 1)), CoresMax: uint32(a.num("max", a.num("cores", 1))),
			QueueTimeoutNs: a.dur("timeout"), AttemptsMax: uint32(a.num("attempts", 1)), Spec: []byte("spec"),
			Class: a.text("class"), Needs: a.needs(), Fixed: a.text("fixed") != "", SizeHint: a.num("size", 0),
			GangSize: uint32(a.num("gang", 0)), GangSpread: a.text("spread") != "",
			Labels: a.labels(),
		})
		if set := c.Actions[len(c.Actions)-1]; len(set.Needs.GetCores()) > 0 {
			set.CoresMin, set.CoresMax = set.Needs.Cores[0], set.Needs.Cores[len(set.Needs.Cores)-1]
		}
	}
	return &logv1.Command{Verb: &logv1.Command_SubmitActions{SubmitActions: c}}
}

// needs reads set=1,2,4 (cores), what is known of how long it takes: single=10s,
// serial=100000 (ppm), points=2:950000,4:800000, and net=100 quotas=NAME:UNITS,...
// gpus=1,2,4 gpuclass=H100 gpumem=20 model=m setup=5s.
func (a args) needs() *logv1.Needs {
	n := &logv1.Needs{BandwidthBps: a.num("net", 0), Quotas: a.quotas(), Profile: a.profile()}
	for _, u := range a.ids("set") {
		n.Cores = append(n.Cores, uint32(u))
	}
	if a.text("gpus") != "" {
		n.Gpus = &logv1.Gpus{Class: a.text("gpuclass"), MemoryBytes: a.num("gpumem", 0), Model: a.text("model"), SetupNs: a.dur("setup")}
		for _, k := range a.ids("gpus") {
			n.Gpus.Degrees = append(n.Gpus.Degrees, uint32(k))
		}
	}
	if n.Gpus == nil && n.Profile == nil && n.BandwidthBps == 0 && n.Quotas == nil && n.Cores == nil {
		return nil
	}
	return n
}

// profile reads what is known of how long an action takes.
func (a args) profile() *logv1.Profile {
	p := &logv1.Profile{SingleNs: a.dur("single"), Serial: a.text("serial") != "", SerialPpm: int64(a.num("serial", 0))}
	for _, point := range strings.FieldsFunc(a.text("points"), func(r rune) bool { return r == ',' }) {
		units, ratio, _ := strings.Cut(point, ":")
		q := args{a.t, []string{"u=" + units, "r=" + ratio}}
		p.Points = append(p.Points, &logv1.Point{Units: uint32(q.num("u", 0)), RatioPpm: int64(q.num("r", 0))})
	}
	if p.SingleNs == 0 && !p.Serial && len(p.Points) == 0 {
		return nil
	}
	return p
}

var quotaKinds = map[string]uint32{"concurrency": 1, "fixed": 2, "sliding": 3}

// quotas reads quotas=NAME:UNITS,...
func (a args) quotas() []*logv1.QuotaUse { return a.uses("quotas") }

// uses reads such a list.
func (a args) uses(word string) (uses []*logv1.QuotaUse) {
	if a.text(word) == "" {
		return nil
	}
	for _, use := range strings.Split(a.text(word), ",") {
		name, units, _ := strings.Cut(use, ":")
		count, err := strconv.ParseUint(cmp.Or(units, "1"), 10, 32)
		if err != nil {
			a.t.Fatalf("%s=%s: %v", word, use, err)
		}
		uses = append(uses, &logv1.QuotaUse{Quota: name, Units: uint32(count)})
	}
	return uses
}

func registerOf(a args) *logv1.Command {
	c := &logv1.RegisterNode{
		Name: a.text("node"), Incarnation: a.num("inc", 0), JournalId: "j-" + a.text("node") + a.text("journal"),
		Pool: a.text("pool"), MemoryBytes: a.num("memory", 1000), BandwidthBps: a.num("net", 0),
		Resizes: a.text("resizes") != "", CacheBytes: a.num("cache", 0),
		Containers: a.text("containers") != "", ShareAfterNs: a.dur("share"),
	}
	for _, l := range strings.FieldsFunc(a.text("labels"), func(r rune) bool { return r == ',' }) {
		key, value, _ := strings.Cut(l, ":")
		c.Labels = append(c.Labels, &logv1.Label{Key: key, Value: value})
	}
	if class, count, ok := strings.Cut(a.text("gpus"), ":"); ok {
		n, err := strconv.ParseUint(count, 10, 32)
		if err != nil {
			a.t.Fatalf("gpus=%s: %v", a.text("gpus"), err)
		}
		c.Gpus = &logv1.GpuInventory{Class: class, Count: uint32(n), MemoryBytes: a.num("gpumem", 80)}
	}
	cpu := uint32(0)
	for _, n := range strings.Split(a.text("numa"), "+") {
		size, err := strconv.Atoi(n)
		if err != nil {
			a.t.Fatalf("numa=%s: %v", a.text("numa"), err)
		}
		var cpus []uint32
		for range size {
			cpus = append(cpus, cpu)
			cpu++
		}
		c.NumaNodes = append(c.NumaNodes, &logv1.NumaNode{Cpus: cpus})
	}
	return &logv1.Command{Verb: &logv1.Command_RegisterNode{RegisterNode: c}}
}

func reportOf(a args) *logv1.Command {
	reason := state.EndExited
	switch a.text("reason") {
	case "killed":
		reason = state.EndSignaled
	case "supervisor-lost":
		reason = state.EndSupervisorLost
	}
	return &logv1.Command{Verb: &logv1.Command_ReportAttempts{ReportAttempts: &logv1.ReportAttempts{
		Node: a.text("node"), Incarnation: a.num("inc", 1),
		Reports: []*logv1.AttemptReport{{
			ActionId: a.num("action", 0), Attempt: uint32(a.num("attempt", 1)),
			Reason: uint32(reason), ExitCode: int32(a.num("exit", 0)), ExecNs: a.dur("exec"),
			Throttled: a.text("throttled") != "", RetryNs: a.dur("retry"), Usage: a.uses("usage"),
		}},
	}}}
}

// args are the key=value words of a line.
type args struct {
	t     rapid.TB
	words []string
}

func (a args) text(key string) string {
	i := slices.IndexFunc(a.words, func(w string) bool { return strings.HasPrefix(w, key+"=") })
	if i < 0 {
		return ""
	}
	return strings.TrimPrefix(a.words[i], key+"=")
}

func (a args) num(key string, otherwise uint64) uint64 {
	v := a.text(key)
	if v == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil {
		a.t.Fatalf("%s=%s: %v", key, v, err)
	}
	return n
}

func (a args) dur(key string) int64 {
	v := a.text(key)
	if v == "" {
		return 0
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		a.t.Fatalf("%s=%s: %v", key, v, err)
	}
	return int64(d)
}

func (a args) ids(key string) []uint64 {
	var out []uint64
	for _, w := range strings.FieldsFunc(a.text(key), func(r rune) bool { return r == ',' }) {
		n, err := strconv.ParseUint(w, 10, 64)
		if err != nil {
			a.t.Fatalf("%s: %v", key, err)
		}
		out = append(out, n)
	}
	return out
}

func (a args) request() *logv1.Request {
	if a.text("req") == "" {
		return nil
	}
	return &logv1.Request{Id: a.text("req"), ExpireNs: a.dur("expires"), Digest: a.num("digest", 0)}
}

// gpus is a set of GPUs, such as gpus=0,3.
func (a args) gpus(key string) (set uint64) {
	for _, gpu := range a.ids(key) {
		set |= 1 << gpu
	}
	return set
}

func parseTrajectoryCommand(word string, a args) *logv1.Command {
	switch word {
	case "open":
		return &logv1.Command{Verb: &logv1.Command_OpenTrajectory{OpenTrajectory: &logv1.OpenTrajectory{
			Request: a.request(), MemoryBytes: a.num("memory", 0), IdleTimeoutNs: a.dur("idle"), Pool: a.text("pool"),
			Namespace: a.text("ns"), SpreadGroup: a.text("group"), SpreadLabel: a.text("label"),
			Objective: uint32(a.num("objective", 0)), Spec: []byte(a.text("spec")), Rollout: a.membership(), Generation: a.generation(),
			TimeoutNs: a.dur("timeout"), PauseAtTimeout: a.text("end") == "pause",
			Labels: a.labels(), Container: a.text("container") != "", SnapshotId: a.num("snapshot", 0),
		}}}
	case "close":
		return &logv1.Command{Verb: &logv1.Command_CloseTrajectory{CloseTrajectory: &logv1.CloseTrajectory{Id: a.num("id", 0)}}}
	case "extend":
		return &logv1.Command{Verb: &logv1.Command_ExtendTrajectory{ExtendTrajectory: &logv1.ExtendTrajectory{
			Id: a.num("id", 0), TimeoutNs: a.dur("timeout"), OnlyLater: a.text("later") != "",
		}}}
	}
	return parsePauseCommand(word, a)
}
