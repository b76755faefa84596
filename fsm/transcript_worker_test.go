package fsm

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// parseWorkerCommand reads
//
//	worker name=w policy=p node=n slots=2 profile=1:10ms,4:20ms prefill=1s hardware=h version=1
//	update-worker name=w draining=yes version=2 up=yes
//	remove-worker name=w
//	affinity policy=p class=c hardware=a,b cost=50 spill=100 remove=yes
//	generated traj=1 worker=w turns=1 out=100 context=200 took=2s tool=1s finish=stop now=yes failed=v message=m req=r1
//	predicted traj=1 turns=1 tokens=500 p50=400 p90=900 left=3
//	suspend-trajectory id=1 resume=yes
//	move-generation traj=1 from=w to=v
//
// and leaves other verbs to parseAccessCommand.
func parseWorkerCommand(verb string, a args) *logv1.Command {
	switch verb {
	case "worker":
		return &logv1.Command{Verb: &logv1.Command_RegisterWorker{RegisterWorker: &logv1.RegisterWorker{
			Name: a.text("name"), Policy: a.text("policy"), Url: "http://" + a.text("name"), Slots: uint32(a.num("slots", 0)), Profile: a.points(),
			Prefill_1KNs: a.dur("prefill"), Cost: a.num("cost", 0), Hardware: a.text("hardware"), Version: a.num("version", 0), Node: a.text("node"),
			Pool: a.text("pool"), StartNs: a.dur("start"),
		}}}
	case "update-worker":
		c := &logv1.UpdateWorker{Name: a.text("name"), Up: a.text("up") != ""}
		if text := a.text("draining"); text != "" {
			draining := text == "yes"
			c.Draining = &draining
		}
		if a.text("version") != "" {
			version := a.num("version", 0)
			c.Version = &version
		}
		return &logv1.Command{Verb: &logv1.Command_UpdateWorker{UpdateWorker: c}}
	case "remove-worker":
		return &logv1.Command{Verb: &logv1.Command_RemoveWorker{RemoveWorker: &logv1.RemoveWorker{Name: a.text("name")}}}
	case "affinity":
		return &logv1.Command{Verb: &logv1.Command_SetAffinity{SetAffinity: &logv1.SetAffinity{
			Policy: a.text("policy"), TaskClass: a.text("class"), Hardware: a.kinds(), CostPercent: uint32(a.num("cost", 0)), SpillPercent: uint32(a.num("spill", 0)), Remove: a.text("remove") != "",
		}}}
	case "generated":
		return &logv1.Command{Verb: &logv1.Command_ReportGenerations{ReportGenerations: a.generated()}}
	case "predicted":
		return &logv1.Command{Verb: &logv1.Command_PredictGenerations{PredictGenerations: &logv1.PredictGenerations{Predictions: []*logv1.GenerationPrediction{{
			TrajectoryId: a.num("traj", 0), Turns: uint32(a.num("turns", 0)), Tokens: a.num("tokens", 0), TokensP50: a.num("p50", 0), TokensP90: a.num("p90", 0),
			TurnsLeft: uint32(a.num("left", 0)),
		}}}}}
	case "suspend-trajectory":
		return &logv1.Command{Verb: &logv1.Command_SuspendTrajectory{SuspendTrajectory: &logv1.SuspendTrajectory{Id: a.num("id", 0), Resume: a.text("resume") != ""}}}
	case "move-generation":
		return &logv1.Command{Verb: &logv1.Command_MoveGenerations{MoveGenerations: &logv1.MoveGenerations{Moves: []*logv1.GenerationMove{{
			TrajectoryId: a.num("traj", 0), From: a.text("from"), To: a.text("to"),
		}}}}}
	}
	if c := parsePoolCommand(verb, a); c != nil {
		return c
	}
	return parseAccessCommand(verb, a)
}

func (a args) generated() *logv1.ReportGenerations {
	c := &logv1.ReportGenerations{Request: a.request()}
	if a.text("traj") != "" {
		c.Generations = []*logv1.GenerationReport{{
			TrajectoryId: a.num("traj", 0), Worker: a.text("worker"), Turns: uint32(a.num("turns", 0)), OutputTokens: a.num("out", 0),
			ContextTokens: a.num("context", 0), GenerateNs: a.dur("took"), ToolNs: a.dur("tool"), FinishReason: a.text("finish"), Generating: a.text("now") != "",
		}}
	}
	if a.text("failed") != "" {
		c.Workers = []*logv1.WorkerReport{{Worker: a.text("failed"), Failed: true, Message: a.text("message")}}
	}
	return c
}

// points reads a profile; without one it is a token in 10 ms.
func (a args) points() (points []*logv1.WorkerProfilePoint) {
	text := a.text("profile")
	if text == "" {
		text = "1:10ms"
	}
	for _, point := range strings.Split(text, ",") {
		batch, takes, _ := strings.Cut(point, ":")
		q := args{a.t, []string{"b=" + batch, "t=" + takes}}
		points = append(points, &logv1.WorkerProfilePoint{BatchSize: uint32(q.num("b", 0)), TokenNs: q.dur("t")})
	}
	return points
}

// generation reads what a trajectory is to generate; nil: nothing.
func (a args) generation() *logv1.GenerationSpec {
	if a.text("policy") == "" {
		return nil
	}
	return &logv1.GenerationSpec{
		Policy: a.text("policy"), TaskClass: a.text("class"), PromptTokens: uint32(a.num("prompt", 0)),
		Hardware: a.kinds(),
	}
}

// kinds reads kinds of hardware.
func (a args) kinds() []string {
	return strings.FieldsFunc(a.text("hardware"), func(r rune) bool { return r == ',' })
}

var workerStates = []string{"", "up", "stale", "down", "draining"}

// routes says what gateways would hear of: workers in another state, and trajectories with another
// route.
func (s *story) routes(were *state.State) string {
	var out strings.Builder
	s.state.Workers("", func(w *state.Worker) bool {
		now, old := s.state.WorkerState(w), were.Worker(w.Name)
		if old == nil || were.WorkerState(old) != now {
			fmt.Fprintf(&out, "   worker %s %s", w.Name, workerStates[now])
			if w.Message != "" {
				fmt.Fprintf(&out, " until %v: %s", time.Duration(w.RetryAt), w.Message)
			}
			out.WriteString("\n")
		}
		return true
	})
	were.Workers("", func(w *state.Worker) bool {
		if s.state.Worker(w.Name) == nil {
			fmt.Fprintf(&out, "   worker %s removed\n", w.Name)
		}
		return true
	})
	s.state.Generations(0, func(g *state.Generation) bool {
		old := were.Generation(g.Trajectory)
		switch {
		case old != nil && old.Worker == g.Worker && old.Priority == g.Priority && old.Suspended == g.Suspended && old.Ended == g.Ended:
		case g.Ended:
			fmt.Fprintf(&out, "   route of trajectory %d ended after %d turns and %d tokens\n", g.Trajectory, g.Trace.Turns, g.Trace.OutputTokens)
		case g.Worker == "":
			fmt.Fprintf(&out, "   route of trajectory %d to none, priority %d, suspended %v\n", g.Trajectory, g.Priority, g.Suspended)
		default:
			fmt.Fprintf(&out, "   route of trajectory %d to %s, priority %d, suspended %v\n", g.Trajectory, g.Worker, g.Priority, g.Suspended)
		}
		return true
	})
	return out.String() + s.showPools(were) + s.showSnapshots(were)
}

func (s *story) explainGeneration(t *testing.T, d *datadriven.TestData) string {
	var id uint64
	d.ScanArgs(t, "generation", &id)
	g := s.state.Generation(state.TrajectoryID(id))
	text := fmt.Sprintf("%s (predicted %d, moved %d times)\n", ExplainGeneration(s.state, g), g.Predicted, g.Moves)
	if v := g.Service; v.Said {
		text += fmt.Sprintf("by the service: %d and %d tokens, %d turns; by rota: %d tokens; at first: %d\n", v.P50, v.P90, v.Turns, v.Own, g.FirstPredicted)
	}
	return text
}

// workerLine draws what operators, trainers and gateways say; IDs are near those that exist.
func workerLine(n func(string, int) int, s *story) string {
	name := fmt.Sprintf("w%d", 1+n("worker", 2))
	id := n("traj", int(s.state.Meta().LastTrajectory)+1)
	at := name
	if g := s.state.Generation(state.TrajectoryID(id)); g != nil && n("known", 3) > 0 {
		at = g.Worker
	}
	policy := []string{"p", "p", "q"}[n("policy", 2)]
	switch n("change", 10) {
	case 0, 1:
		return fmt.Sprintf("worker name=%s node=n%d policy=%s slots=%d profile=%s prefill=%dms hardware=%s cost=%d version=%d", name, 1+n("node", 2), policy, n("slots", 3),
			[]string{"1:10ms", "1:10ms,4:30ms", "2:20ms,8:5ms"}[n("profile", 2)], n("prefill", 3), []string{"", "a", "b"}[n("hardware", 2)], n("price", 3), n("version", 3))
	case 2:
		return fmt.Sprintf("update-worker name=%s draining=%s version=%s up=%s", name, []string{"", "yes", "no"}[n("draining", 2)], []string{"", "1", "2", "3"}[n("version", 3)], []string{"", "yes"}[n("up", 1)])
	case 3:
		return []string{"remove-worker name=" + name, fmt.Sprintf("publish policy=%s version=%d", policy, n("version", 3))}[n("which", 1)]
	case 4:
		return fmt.Sprintf("suspend-trajectory id=%d resume=%s", id, []string{"", "yes"}[n("resume", 1)])
	case 5:
		return fmt.Sprintf("move-generation traj=%d from=%s to=w%d", id, at, 1+n("to", 2))
	case 9:
		return fmt.Sprintf("affinity policy=%s class=%s hardware=%s cost=%d spill=%d remove=%s", policy, []string{"", "c"}[n("class", 1)], []string{"", "a", "b,a"}[n("hardware", 2)], 60*n("cost", 2), 50*n("spill", 2), []string{"", "", "yes"}[n("remove", 2)])
	case 6, 7, 8:
		return fmt.Sprintf("generated traj=%d worker=%s turns=%d out=%d context=%d took=%ds tool=%dms finish=%s now=%s failed=%s req=%s", id, at, n("turns", 2), 100*n("out", 20), 100*n("context", 9),
			n("took", 9), n("tool", 900), []string{"stop", "tool_calls"}[n("finish", 1)], []string{"", "yes"}[n("now", 1)], []string{"", "", "", name}[n("failed", 3)], []string{"", "", "g1", "g2"}[n("req", 3)])
	}
	return fmt.Sprintf("open idle=%ds policy=%s class=%s prompt=%d hardware=%s", n("idle", 40), policy, []string{"", "c"}[n("class", 1)], 100*n("prompt", 9), []string{"", "a", "b,a", "a,b", "x"}[n("hardware", 4)])
}
