package cli

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	rotav1 "rota/api/gen/rota/v1"
)

// onChunk is a row of a model on two GPUs of node-1.
func onChunk(model string, c *rotav1.ChunkResidency, pins ...*rotav1.ResidencyPin) *rotav1.Residency {
	c.Node, c.Chunk = "node-1", &rotav1.GpuChunk{First: 2, Gpus: 2}
	return &rotav1.Residency{WorkingSet: model, Place: &rotav1.Residency_Chunk{Chunk: c}, Pins: pins}
}

func onGroup(g *rotav1.GroupResidency, pins ...*rotav1.ResidencyPin) *rotav1.Residency {
	g.NodeGroup = "trainers"
	return &rotav1.Residency{WorkingSet: "default/job-a/actor", Place: &rotav1.Residency_Group{Group: g}, Pins: pins}
}

func byAction(id uint64, uses bool) *rotav1.ResidencyPin {
	return &rotav1.ResidencyPin{Holder: &rotav1.ResidencyPin_ActionId{ActionId: id}, Uses: uses}
}

func byTurn(id uint64, deployment string) *rotav1.ResidencyPin {
	return &rotav1.ResidencyPin{Holder: &rotav1.ResidencyPin_TurnId{TurnId: id}, Uses: true, Deployment: deployment}
}

func TestNamesOfRows(t *testing.T) {
	for _, c := range []struct {
		what, where string
		want        *rotav1.GetResidencyRequest
	}{
		{"judge", "node-1:0-3", &rotav1.GetResidencyRequest{WorkingSet: "judge", Node: "node-1", Chunk: &rotav1.GpuChunk{Gpus: 4}}},
		{"org/judge/7b", "node-1:4", &rotav1.GetResidencyRequest{WorkingSet: "org/judge/7b", Node: "node-1", Chunk: &rotav1.GpuChunk{First: 4, Gpus: 1}}},
		{"job-a/actor", "trainers", &rotav1.GetResidencyRequest{WorkingSet: "job-a/actor", NodeGroup: "trainers", Namespace: "mine"}},
		{"other/job-a/actor", "trainers", &rotav1.GetResidencyRequest{WorkingSet: "job-a/actor", NodeGroup: "trainers", Namespace: "other"}},
	} {
		if got, err := residencyRequest(c.what, c.where, "mine"); err != nil || !proto.Equal(got, c.want) {
			t.Errorf("%s on %s is %v, %v", c.what, c.where, got, err)
		}
	}
	if _, err := residencyRequest("judge", "node-1:x", ""); err == nil || !strings.Contains(err.Error(), "write them like node-1:0-3") {
		t.Errorf("no GPUs: %v", err)
	}
}

func TestTextOfRows(t *testing.T) {
	ready, asleep := rotav1.EngineState_ENGINE_STATE_READY, rotav1.EngineState_ENGINE_STATE_ASLEEP
	cost := durationpb.New(12 * time.Second)
	for want, r := range map[string]*rotav1.Residency{
		"node-1:2-3 ready 12s action 7":                                      onChunk("m", &rotav1.ChunkResidency{Desired: true, EngineDeclared: true, Observed: ready, EvictionCost: cost}, byAction(7, true)),
		"node-1:2-3 not reported yet  action 7 (other work)":                 onChunk("m", &rotav1.ChunkResidency{Desired: true, EngineDeclared: true}, byAction(7, false)),
		"node-1:2-3 asleep, not resident  ":                                  onChunk("m", &rotav1.ChunkResidency{EngineDeclared: true, Observed: asleep}),
		"node-1:2-3 bookkeeping only  turn 3, turn 4 of default/job-a/actor": onChunk("m", &rotav1.ChunkResidency{Desired: true}, byTurn(3, ""), byTurn(4, "default/job-a/actor")),
		"trainers not resident  ":                                            onGroup(&rotav1.GroupResidency{}),
		"trainers switching, resident, awake  hooks for default/job-a/actor": onGroup(&rotav1.GroupResidency{Resident: true, Awake: true, Switching: true}, byTurn(0, "default/job-a/actor")),
	} {
		if got := fmt.Sprintf("%s %s %s %s", placeText(r), residencyState(r), costText(r), pinsText(r)); got != want {
			t.Errorf("it says %q, want %q", got, want)
		}
	}
}

// lines are fields as they are printed.
func lines(fields []field) (out []string) {
	for _, f := range fields {
		if f.value != "" {
			out = append(out, f.name+": "+f.value)
		}
	}
	return out
}

func same(t *testing.T, got, want []string) {
	t.Helper()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("it says\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestFieldsOfRows(t *testing.T) {
	at := timestamppb.New(time.Unix(1_000_000_000, 0))
	same(t, lines(residencyFields(onChunk("m", &rotav1.ChunkResidency{
		Desired: true, EngineDeclared: true, Observed: rotav1.EngineState_ENGINE_STATE_WAITING, Message: "for memory", ObservedTime: at,
		MemoryBytes: 20 << 30, LastUseTime: at, Uses: 3, EvictionCost: durationpb.New(time.Minute), ClassAge: durationpb.New(time.Second),
	}))), []string{
		"working set: m", "place: node-1:2-3", "state: waiting", "state since: 2001-09-09T01:46:40.000Z", "message: for memory",
		"memory of each GPU: 20.0GiB", "last use: 2001-09-09T01:46:40.000Z", "uses: 3", "eviction cost: 1m0s", "age of the class: 1s", "used by: -",
	})
	same(t, lines(residencyFields(onGroup(&rotav1.GroupResidency{
		Resident: true, SetUp: durationpb.New(time.Second), Members: []*rotav1.GroupMember{{Node: "node-1"}, {Node: "node-2", Gpus: 2, Lost: "the node is down"}},
	}))), []string{
		"working set: default/job-a/actor", "place: trainers", "state: resident", "set-up: 1s", "member: node-1", "member: node-2:0-1 (the node is down)", "used by: -",
	})
}

func TestExplanations(t *testing.T) {
	old := onChunk("old", &rotav1.ChunkResidency{Desired: true, EvictionCost: durationpb.New(2 * time.Second)})
	hit := &rotav1.ModelPlacement{Node: "node-1", Chunk: &rotav1.GpuChunk{Gpus: 2}, Hit: true}
	same(t, lines(explainFields("m", &rotav1.ExplainModelResponse{Resident: []*rotav1.Residency{onChunk("m", &rotav1.ChunkResidency{Desired: true})}, Placement: hit})),
		[]string{"model: m", "resident: node-1:2-3 (bookkeeping only)", "would get: node-1:0-1, where the model is resident"})
	miss := &rotav1.ModelPlacement{Node: "node-1", Chunk: &rotav1.GpuChunk{First: 2, Gpus: 2}, Evicted: []*rotav1.Residency{old}, SetUp: durationpb.New(9 * time.Second)}
	same(t, lines(explainFields("m", &rotav1.ExplainModelResponse{Placement: miss, Spared: []*rotav1.SparedModel{{Row: old, Reason: "action 3 uses it"}}, SparedMore: true})),
		[]string{"model: m", "resident: nowhere", "would get: node-1:2-3, after a set-up of 9s", "would evict: old on node-1:2-3, cost 2s",
			"would stay: old on node-1:2-3, cost 2s: action 3 uses it", "would stay: and more; see: rota residency list"})
	same(t, lines(explainFields("m", &rotav1.ExplainModelResponse{WaitingFor: "waits for 1 GPU"})),
		[]string{"model: m", "resident: nowhere", "would wait: waits for 1 GPU"})
	if got := placementText(&rotav1.ModelPlacement{Node: "n", Chunk: &rotav1.GpuChunk{Gpus: 1}}); got != "n:0, after a set-up of unknown length" {
		t.Errorf("it says %s", got)
	}
}

func TestModelFields(t *testing.T) {
	m := &rotav1.Model{
		Name: "m", WaitingActions: 2, RunningActions: 1, Driver: rotav1.EngineDriver_ENGINE_DRIVER_VLLM,
		SetUpDeclared: durationpb.New(5 * time.Second), SetUpMeasured: durationpb.New(8 * time.Second), SetUps: 3,
		Variants: []*rotav1.ModelVariant{{Gpus: 1, Chunks: 2, Used: 1, Ready: 1, Asleep: 1, MemoryBytes: 1 << 30}, {Gpus: 4, Failed: 1}},
	}
	same(t, lines(modelFields(&rotav1.GetModelResponse{Model: m, WaitingActionIds: []uint64{7, 9}})), []string{
		"model: m", "engine: vllm", "set-up declared: 5s", "set-up measured: 8s, the mean of 3",
		"on 1 GPU: resident on 2 chunks, 1 in use, engines: 1 ready, 1 asleep, 1.00GiB of each GPU",
		"on 4 GPUs: resident on 0 chunks, 0 in use, engines: 1 failed", "waiting actions: 2 (7, 9)", "running actions: 1",
	})
	if got := variantsText(m); got != "2 on 1 GPU" {
		t.Errorf("it says %s", got)
	}
	bare := &rotav1.Model{SetUpDeclared: durationpb.New(5 * time.Second), WaitingIncomplete: true}
	if got := engineOf(bare) + ", " + setUpOf(bare) + measured(bare) + ", " + waitingText(bare); got != "none, 5s, at least 0" {
		t.Errorf("it says %s", got)
	}
	if got := setUpOf(m); got != "8s" {
		t.Errorf("the set-up is %s", got)
	}
}

func TestTextOfGPUs(t *testing.T) {
	at := timestamppb.New(time.Unix(1_000_000_000, 0))
	idle := &rotav1.Gpu{NodeGroup: "trainers", Lost: "the node is down", NextJob: "default/job-a", NextTime: at}
	next := nextOfGroups(&rotav1.ListGpusResponse{Nodes: []*rotav1.NodeGpus{{Gpus: []*rotav1.Gpu{{}, idle}}}})
	groups := []*rotav1.NodeGroup{{Name: "trainers", TurnId: 3, Holder: "default/job-b/actor", Members: []*rotav1.GroupMember{{Node: "node-1", Gpus: 2}}}, {Name: "others"}}
	for got, want := range map[string]string{
		holderText(idle): "free",
		holderText(&rotav1.Gpu{Holder: byAction(7, true)}): "action 7",
		memberOfText(idle):               "trainers (the node is down)",
		nextText(idle):                   "default/job-a at 2001-09-09T01:46:40.000Z",
		groupsOn("node-1", groups, next): "0-1 of trainers: default/job-b/actor (turn 3); next default/job-a at 2001-09-09T01:46:40.000Z",
		groupsOn("node-1", groups, nil):  "0-1 of trainers: default/job-b/actor (turn 3)",
		groupsOn("node-2", groups, next): "",
	} {
		if got != want {
			t.Errorf("it says %q, want %q", got, want)
		}
	}
}
