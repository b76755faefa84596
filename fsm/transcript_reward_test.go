package fsm

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// parseRewardCommand reads
//
//	reward name=f cores=1 min=0 max=4 concurrency=2 idle=60s timeout=30s start=120s spec=x version=1
//	remove-reward name=f
//	calls of=f gateway=g running=3 waiting=2 calls=9 failed=1 took=3s req=r1
//	replica id=1 gateway=g ready=yes idle=yes failed=yes message=m
//
// and returns nil for another verb.
func parseRewardCommand(verb string, a args) *logv1.Command {
	seconds := func(name string, most int64) int64 {
		if a.text(name) == "" {
			return most * int64(time.Second)
		}
		return a.dur(name)
	}
	switch verb {
	case "reward":
		cores := uint32(a.num("cores", 1))
		return &logv1.Command{Verb: &logv1.Command_RegisterReward{RegisterReward: &logv1.RegisterReward{
			Name: a.text("name"), Namespace: a.text("ns"), Version: a.num("version", 0), Spec: []byte("spec" + a.text("spec")),
			Action: &logv1.Action{Pool: a.text("pool"), CoresMin: cores, CoresMax: cores, AttemptsMax: 1, Fixed: true, MemoryBytes: a.num("memory", 0), Spec: []byte(a.text("command"))},
			Min:    uint32(a.num("min", 0)), Max: uint32(a.num("max", 4)), Concurrency: uint32(a.num("concurrency", 1)),
			IdleNs: seconds("idle", 60), TimeoutNs: seconds("timeout", 30), StartNs: seconds("start", 120),
		}}}
	case "remove-reward":
		return &logv1.Command{Verb: &logv1.Command_RemoveReward{RemoveReward: &logv1.RemoveReward{Name: a.text("name")}}}
	case "calls":
		return &logv1.Command{Verb: &logv1.Command_ReportRewards{ReportRewards: &logv1.ReportRewards{
			Request: a.request(), Gateway: a.text("gateway"), Demands: []*logv1.RewardDemand{{
				Name: a.text("of"), Running: uint32(a.num("running", 0)), Waiting: uint32(a.num("waiting", 0)),
				Calls: a.num("calls", 0), FailedCalls: a.num("failed", 0), CallNs: a.dur("took"),
			}},
		}}}
	case "replica":
		return &logv1.Command{Verb: &logv1.Command_ReportRewards{ReportRewards: &logv1.ReportRewards{
			Gateway: a.text("gateway"), Replicas: []*logv1.RewardReplicaReport{{
				ActionId: a.num("id", 0), Ready: a.text("ready") != "", Idle: a.text("idle") != "", Failed: a.text("failed") != "", Message: a.text("message"),
			}},
		}}}
	}
	return nil
}

// rewards says what became of reward functions.
func (s *story) rewards(were *state.State) string {
	var out strings.Builder
	s.state.Rewards("", func(r *state.Reward) bool {
		now, before := describeReward(s.state, r), ""
		if old := were.Reward(r.Name); old != nil {
			before = describeReward(were, old)
		}
		if now != before {
			fmt.Fprintf(&out, "   reward %s %s\n", r.Name, now)
		}
		return true
	})
	were.Rewards("", func(r *state.Reward) bool {
		if s.state.Reward(r.Name) == nil {
			fmt.Fprintf(&out, "   reward %s removed\n", r.Name)
		}
		return true
	})
	return out.String()
}

func describeReward(s *state.State, r *state.Reward) string {
	var out strings.Builder
	fmt.Fprintf(&out, "wants %d for %d calls, has", r.Wanted, r.Demand())
	for _, p := range s.ReplicasOf(r.Name) {
		fmt.Fprintf(&out, " %d %s", p.Action, []string{"", "starting", "ready", "draining"}[p.State])
	}
	if r.Low {
		fmt.Fprintf(&out, ", low since %v with peak %d", time.Duration(r.LowSince), r.Peak)
	}
	if r.RetryAt != 0 {
		fmt.Fprintf(&out, ", starts again at %v: %s", time.Duration(r.RetryAt), r.Message)
	}
	cores, gpus := s.Held(r, s.Meta().Now)
	fmt.Fprintf(&out, ", held %v of a core and %v of a GPU for %d calls", time.Duration(cores), time.Duration(gpus), r.Calls)
	return out.String()
}

// rewardLine draws what operators and gateways say; IDs are near those that exist.
func rewardLine(n func(string, int) int, s *story) string {
	name := fmt.Sprintf("f%d", 1+n("reward", 1))
	id := n("replica", int(s.state.Meta().LastAction)+1)
	if all := s.state.ReplicasOf(name); len(all) > 0 && n("known", 4) > 0 {
		id = int(all[n("which", len(all)-1)].Action)
	}
	gateway := []string{"g1", "g2", "g3"}[n("gateway", 2)]
	yes := func(label string) string { return []string{"", "yes"}[n(label, 1)] }
	switch n("said", 9) {
	case 0:
		return fmt.Sprintf("reward name=%s cores=%d min=%d max=%d concurrency=%d idle=%ds timeout=%ds start=%ds command=c%d version=%d", name, n("cores", 2), n("min", 2), n("max", 5),
			n("concurrency", 3), n("idle", 20), 1+n("timeout", 9), 1+n("start", 20), n("command", 1), []int{0, 0, 0, 2}[n("version", 3)])
	case 1:
		return []string{"", "", "", "remove-reward name=" + name}[n("remove", 3)]
	case 2, 3, 4, 5:
		return fmt.Sprintf("calls of=%s gateway=%s running=%d waiting=%d calls=%d failed=%d took=%ds req=%s", name, gateway, n("running", 4), n("waiting", 6),
			n("calls", 9), n("failed", 2), n("took", 9), []string{"", "", "c1", "c2"}[n("req", 3)])
	}
	return fmt.Sprintf("replica id=%d gateway=%s ready=%s idle=%s failed=%s message=%s", id, gateway, yes("ready"), yes("idle"), []string{"", "", "", "yes"}[n("broken", 3)], []string{"", "m"}[n("message", 1)])
}

// TestMessageOfAFailedReplicaIsText: a message that is too long is not cut within a character, or
// no server could answer a question about the function.
func TestMessageOfAFailedReplicaIsText(t *testing.T) {
	r := state.Reward{}
	(&execution{s: state.New()}).countFailure(&r, "x"+strings.Repeat("\u00e9", state.RewardMessageBytesMax))
	if !utf8.ValidString(r.Message) || len(r.Message) != state.RewardMessageBytesMax-1 {
		t.Errorf("the message has %d bytes, valid: %v", len(r.Message), utf8.ValidString(r.Message))
	}
}

// TestReportsOfRewardsAreWeighed: an entry has few of what stores functions anew.
func TestReportsOfRewardsAreWeighed(t *testing.T) {
	c := &logv1.ReportRewards{Demands: make([]*logv1.RewardDemand, rewardReportsMax), Replicas: make([]*logv1.RewardReplicaReport, rewardReportsMax)}
	if got := Weight(&logv1.Command{Verb: &logv1.Command_ReportRewards{ReportRewards: c}}); got < EntryWeight {
		t.Errorf("the largest report weighs %d", got)
	}
}

// TestSumsOfRewardsNeverFall: a gateway that reports the highest numbers does not have counters begin
// anew, and a replica counts with the cores that it was started with.
func TestSumsOfRewardsNeverFall(t *testing.T) {
	s := newStory(t)
	s.apply(t, parseCommand(t, "register node=n1 numa=4")...)
	s.apply(t, parseCommand(t, "reward name=f1 concurrency=2 idle=9s start=20s")...)
	for range 2 {
		demand := &logv1.RewardDemand{Name: "f1", Calls: math.MaxUint64, FailedCalls: math.MaxUint64, CallNs: math.MaxInt64}
		s.apply(t, &logv1.Command{Verb: &logv1.Command_ReportRewards{ReportRewards: &logv1.ReportRewards{
			Gateway: "g", Demands: []*logv1.RewardDemand{demand, demand, demand},
		}}})
	}
	r := *s.state.Reward("f1")
	if r.Calls != math.MaxUint64 || r.FailedCalls != math.MaxUint64 || r.CallNS != math.MaxUint64 {
		t.Errorf("calls %d, failed %d, %d ns", r.Calls, r.FailedCalls, r.CallNS)
	}
	r.Cores, r.CoreNS = 7, 5 // 7: of its next replicas
	a := &state.Action{CoresMin: 2, StartedAt: 1000, Needs: &state.Needs{GPUs: &state.GPUDemand{Degrees: []uint32{4}}}}
	if r.Hold(a, 1010); r.CoreNS != 25 || r.GPUNS != 40 {
		t.Errorf("%d core ns, %d GPU ns", r.CoreNS, r.GPUNS)
	}
	for range 5 {
		r.Hold(a, math.MaxInt64)
	}
	if r.CoreNS != math.MaxUint64 || r.GPUNS != math.MaxUint64 {
		t.Errorf("%d core ns, %d GPU ns", r.CoreNS, r.GPUNS)
	}
}

// TestRandomRewards drives reward functions with a small node under them, whose replicas start,
// drain, fail and are killed.
func TestRandomRewards(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newStory(t)
		n := func(label string, most int) int { return rapid.IntRange(0, most).Draw(t, label) }
		s.apply(t, parseCommand(t, "register node=n1 numa=4")...)
		s.apply(t, parseCommand(t, "reward name=f1 concurrency=2 idle=9s start=20s")...)
		for range rapid.IntRange(1, 60).Draw(t, "entries") {
			s.now += rapid.Int64Range(-int64(time.Second), int64(12*time.Second)).Draw(t, "step")
			var commands []*logv1.Command
			for range rapid.IntRange(0, 4).Draw(t, "commands") {
				line := rewardLine(n, s)
				switch n("other", 12) {
				case 0:
					line = fmt.Sprintf("report node=n1 inc=%d action=%d attempt=1 exit=%d", n("inc", 2), n("ended", int(s.state.Meta().LastAction)+1), n("exit", 1))
				case 1:
					line = []string{"register node=n1 numa=4", "expire node=n1 inc=1", "drain node=n1", "drain node=n1 undo=yes", fmt.Sprintf("cancel ids=%d", 1+n("canceled", int(s.state.Meta().LastAction)))}[n("node", 4)]
				}
				if line != "" {
					commands = append(commands, parseCommand(t, line)...)
				}
			}
			s.apply(t, commands...)
		}
	})
}
