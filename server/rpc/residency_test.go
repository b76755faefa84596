package rpc_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"rota/api/codec"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
)

func (w *world) residency() rotav1connect.ResidencyServiceClient {
	return rotav1connect.NewResidencyServiceClient(w.http, w.url, codec.ForClient())
}

// gpuNode registers a node with GPUs of 80 GiB.
func (w *world) gpuNode(name string, gpus uint32) *fakeAgent {
	w.t.Helper()
	req := registration(name, "127.0.0.1:1")
	req.Gpus = &rotav1.GpuInventory{Class: "H100", Count: gpus, MemoryBytes: 80 << 30}
	resp, err := w.agents().RegisterNode(w.t.Context(), req)
	if err != nil {
		w.t.Fatal(err)
	}
	return &fakeAgent{w: w, name: name, incarnation: resp.Incarnation, index: resp.Index}
}

// serving is an action that needs a model.
func serving(model string, gpus uint32, setUp time.Duration) *rotav1.ActionSpec {
	s := spec("true")
	s.Resources = &rotav1.Resources{Gpus: &rotav1.GpuDemand{Gpus: []uint32{gpus}, Model: model}}
	if setUp > 0 {
		s.Resources.Gpus.Setup = durationpb.New(setUp)
	}
	return s
}

// used runs an action that needs a model to its end.
func (a *fakeAgent) used(model string, setUp time.Duration) {
	a.report(a.w.submit(serving(model, 1, setUp)), 1, exited(0))
}

// place says "slow on n1 0+1".
func place(r *rotav1.Residency) string {
	if g := r.GetGroup(); g != nil {
		return fmt.Sprintf("%s on %s", r.WorkingSet, g.NodeGroup)
	}
	c := r.GetChunk()
	return fmt.Sprintf("%s on %s %d+%d", r.WorkingSet, c.GetNode(), c.GetChunk().GetFirst(), c.GetChunk().GetGpus())
}

func places(rows []*rotav1.Residency) string {
	var out []string
	for _, r := range rows {
		out = append(out, place(r))
	}
	return strings.Join(out, ", ")
}

// models has n1 with a slow and a quick model on GPUs 0 and 1, a busy one on 2 and 3, and
// an engine of the slow one that also sleeps on GPU 3.
func models(t *testing.T) (*world, *fakeAgent, uint64) {
	w := newWorld(t)
	a := w.gpuNode("n1", 4)
	a.used("slow", 30*time.Second)
	slow := w.submit(serving("slow", 1, 30*time.Second))
	a.used("quick", 2*time.Second)
	a.report(slow, 1, exited(0))
	busy := w.submit(serving("busy", 2, time.Second))
	declared, err := w.engines().RegisterEngine(t.Context(), &rotav1.RegisterEngineRequest{Engine: engineSpec("slow")})
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.agents().ReportEngines(t.Context(), &rotav1.ReportEnginesRequest{Name: "n1", Incarnation: a.incarnation, Reports: []*rotav1.EngineReport{
		{Model: "slow", Generation: declared.Engine.Generation, Chunk: &rotav1.GpuChunk{First: 0, Gpus: 1}, State: rotav1.EngineState_ENGINE_STATE_READY, Starts: 1, SetUp: durationpb.New(9 * time.Second)},
		{Model: "slow", Generation: declared.Engine.Generation, Chunk: &rotav1.GpuChunk{First: 3, Gpus: 1}, State: rotav1.EngineState_ENGINE_STATE_ASLEEP, Message: "it sleeps"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return w, a, busy
}

// TestTheTableOfModels: a row for each model on each chunk, also of an engine that sleeps.
func TestTheTableOfModels(t *testing.T) {
	w, _, busy := models(t)
	ctx, c := t.Context(), w.residency()
	list, err := c.ListResidency(ctx, &rotav1.ListResidencyRequest{})
	if err != nil || places(list.Rows) != "slow on n1 0+1, quick on n1 1+1, busy on n1 2+2, slow on n1 3+1" || list.NextPageToken != "" {
		t.Fatalf("the table is %s, %v", places(list.GetRows()), err)
	}
	slow := list.Rows[0].GetChunk()
	if !slow.Desired || !slow.EngineDeclared || slow.Observed != rotav1.EngineState_ENGINE_STATE_READY || slow.Uses != 2 || slow.MemoryBytes != 80<<30 ||
		slow.EvictionCost.AsDuration() != time.Minute || slow.ClassAge.AsDuration() != 0 || slow.LastUseTime == nil || slow.ObservedTime == nil || len(list.Rows[0].Pins) != 0 {
		t.Errorf("slow is %v", list.Rows[0])
	}
	if r := list.Rows[2]; len(r.Pins) != 1 || r.Pins[0].GetActionId() != busy || !r.Pins[0].Uses || r.GetChunk().EngineDeclared {
		t.Errorf("busy is %v", r)
	}
	if asleep := list.Rows[3].GetChunk(); asleep.Desired || asleep.Observed != rotav1.EngineState_ENGINE_STATE_ASLEEP || asleep.Message != "it sleeps" || asleep.Uses != 0 {
		t.Errorf("the engine that sleeps is %v", asleep)
	}
	for _, c := range []struct {
		req  *rotav1.ListResidencyRequest
		want string
	}{
		{&rotav1.ListResidencyRequest{Model: "slow"}, "slow on n1 0+1, slow on n1 3+1"},
		{&rotav1.ListResidencyRequest{Node: "n2"}, ""},
		{&rotav1.ListResidencyRequest{Job: "a"}, ""},
	} {
		got, err := w.residency().ListResidency(ctx, c.req)
		if err != nil || places(got.Rows) != c.want {
			t.Errorf("%v: %s, %v; want %s", c.req, places(got.GetRows()), err, c.want)
		}
	}
	var paged []*rotav1.Residency
	for req, more := (&rotav1.ListResidencyRequest{PageSize: 1}), true; more; more = req.PageToken != "" {
		page, err := c.ListResidency(ctx, req)
		if err != nil || len(page.Rows) > 1 {
			t.Fatalf("a page has %d rows, %v", len(page.GetRows()), err)
		}
		paged, req.PageToken = append(paged, page.Rows...), page.NextPageToken
	}
	if places(paged) != places(list.Rows) {
		t.Errorf("the pages are %s", places(paged))
	}
}

// TestOneRowOfTheTable names a row by what and where it is.
func TestOneRowOfTheTable(t *testing.T) {
	w, _, _ := models(t)
	gpu := func(first uint32) *rotav1.GpuChunk { return &rotav1.GpuChunk{First: first, Gpus: 1} }
	got, err := w.residency().GetResidency(t.Context(), &rotav1.GetResidencyRequest{WorkingSet: "slow", Node: "n1", Chunk: gpu(3)})
	if err != nil || place(got.Row) != "slow on n1 3+1" {
		t.Errorf("got %v, %v", got, err)
	}
	for _, c := range []struct {
		req  *rotav1.GetResidencyRequest
		code connect.Code
	}{
		{&rotav1.GetResidencyRequest{WorkingSet: "slow", Node: "n1", Chunk: gpu(1)}, connect.CodeNotFound},
		{&rotav1.GetResidencyRequest{WorkingSet: "slow", NodeGroup: "n1"}, connect.CodeNotFound},
		{&rotav1.GetResidencyRequest{Node: "n1", Chunk: gpu(1)}, connect.CodeInvalidArgument},
		{&rotav1.GetResidencyRequest{WorkingSet: "slow"}, connect.CodeInvalidArgument},
		{&rotav1.GetResidencyRequest{WorkingSet: "slow", Node: "n1", NodeGroup: "g"}, connect.CodeInvalidArgument},
	} {
		if _, err := w.residency().GetResidency(t.Context(), c.req); connect.CodeOf(err) != c.code {
			t.Errorf("%v: %v, want %v", c.req, err, c.code)
		}
	}
}

// TestWhatWouldBecomeOfAnAction: it hits, evicts the cheapest model, or waits. Asking changes
// nothing, and what comes then is what was said.
func TestWhatWouldBecomeOfAnAction(t *testing.T) {
	w, a, busy := models(t)
	ctx, c := t.Context(), w.residency()
	reasons := func(e *rotav1.ExplainModelResponse) string {
		var out []string
		for _, s := range e.Spared {
			out = append(out, s.Row.WorkingSet+": "+s.Reason)
		}
		return strings.Join(out, "; ")
	}
	_, hash := w.machine.Hash()
	hit, err := c.ExplainModel(ctx, &rotav1.ExplainModelRequest{Model: "slow"})
	if err != nil || !hit.Placement.GetHit() || hit.Placement.Chunk.First != 0 || hit.Placement.SetUp != nil || places(hit.Resident) != "slow on n1 0+1, slow on n1 3+1" {
		t.Errorf("a hit is %v, %v", hit, err)
	}
	if got, want := reasons(hit), fmt.Sprintf("busy: action %d uses it; quick: nothing has to leave: the model is resident where the action starts", busy); got != want {
		t.Errorf("of a hit it says %s", got)
	}
	miss, err := c.ExplainModel(ctx, &rotav1.ExplainModelRequest{Model: "new"})
	if err != nil || miss.Placement.GetHit() || places(miss.Placement.GetEvicted()) != "quick on n1 1+1" || miss.Placement.Chunk.First != 1 || len(miss.Resident) != 0 {
		t.Errorf("a miss is %v, %v", miss, err)
	}
	if got, want := reasons(miss), fmt.Sprintf("busy: action %d uses it; slow: evicting it costs more: 60.000 s instead of 2.000 s", busy); got != want {
		t.Errorf("of a miss it says %s", got)
	}
	waits, err := c.ExplainModel(ctx, &rotav1.ExplainModelRequest{Model: "new", Gpus: []uint32{4}})
	if err != nil || waits.Placement != nil || !strings.Contains(waits.WaitingFor, "waits for a chunk of 4 GPUs") {
		t.Errorf("one that waits is %v, %v", waits, err)
	}
	if got := reasons(waits); strings.Count(got, "no free chunk of 4 GPUs") != 2 {
		t.Errorf("of one that waits it says %s", got)
	}
	if _, now := w.machine.Hash(); now != hash {
		t.Error("to ask has changed the state")
	}
	a.report(w.submit(serving("new", 1, 0)), 1, exited(0))
	list, err := c.ListResidency(ctx, &rotav1.ListResidencyRequest{})
	if err != nil || places(list.Rows) != "slow on n1 0+1, new on n1 1+1, busy on n1 2+2, slow on n1 3+1" {
		t.Errorf("then the table is %s, %v", places(list.GetRows()), err)
	}
	for _, bad := range []*rotav1.ExplainModelRequest{
		{}, {Model: "m", Gpus: []uint32{3}}, {Model: "m", GpuClass: "T4"}, {Model: "m", Gpus: []uint32{8}}, {Model: "m", MemoryBytes: 90 << 30},
	} {
		if _, err := c.ExplainModel(ctx, bad); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

// TestTheModels: each with its variants, its engine, and the actions that name it.
func TestTheModels(t *testing.T) {
	w, _, busy := models(t)
	waits := w.submit(serving("busy", 4, 5*time.Second))
	list, err := w.residency().ListModels(t.Context(), &rotav1.ListModelsRequest{})
	if err != nil || len(list.Models) != 3 {
		t.Fatalf("models %v, %v", list, err)
	}
	one, quick, slow := list.Models[0], list.Models[1], list.Models[2]
	if one.Name != "busy" || one.WaitingActions != 1 || one.RunningActions != 1 || one.SetUpDeclared.AsDuration() != 5*time.Second || one.Driver != 0 ||
		len(one.Variants) != 1 || one.Variants[0].Gpus != 2 || one.Variants[0].Chunks != 1 || one.Variants[0].Used != 1 || one.Variants[0].MemoryBytes != 80<<30 {
		t.Errorf("busy is %v", one)
	}
	if quick.Name != "quick" || quick.Variants[0].Used != 0 || quick.Variants[0].Ready != 0 || quick.SetUpDeclared != nil {
		t.Errorf("quick is %v", quick)
	}
	if slow.Driver != rotav1.EngineDriver_ENGINE_DRIVER_VLLM || slow.SetUps != 1 || slow.SetUpMeasured.AsDuration() != 9*time.Second ||
		slow.Variants[0].Chunks != 1 || slow.Variants[0].Ready != 1 || slow.Variants[0].Asleep != 1 {
		t.Errorf("slow is %v", slow)
	}
	got, err := w.residency().GetModel(t.Context(), &rotav1.GetModelRequest{Model: "busy"})
	if err != nil || got.Model.WaitingActions != 1 || len(got.Resident) != 1 || fmt.Sprint(got.WaitingActionIds, got.RunningActionIds) != fmt.Sprint([]uint64{waits}, []uint64{busy}) {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := w.residency().GetModel(t.Context(), &rotav1.GetModelRequest{Model: "none"}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("a model that nobody knows: %v", err)
	}
	page, err := w.residency().ListModels(t.Context(), &rotav1.ListModelsRequest{PageSize: 2})
	if err != nil || len(page.Models) != 2 || page.NextPageToken == "" {
		t.Fatalf("page %v, %v", page, err)
	}
	rest, err := w.residency().ListModels(t.Context(), &rotav1.ListModelsRequest{PageSize: 2, PageToken: page.NextPageToken})
	if err != nil || len(rest.Models) != 1 || rest.Models[0].Name != "slow" || rest.NextPageToken != "" {
		t.Errorf("the rest is %v, %v", rest, err)
	}
}

// TestDeploymentsAndTheirGPUs: turns have the members of their group, and others see which
// reservation comes next.
func TestDeploymentsAndTheirGPUs(t *testing.T) {
	w := newWorld(t)
	ctx, c := t.Context(), w.residency()
	w.gpuNode("n1", 4)
	if _, err := w.ledger().CreateNodeGroup(ctx, &rotav1.CreateNodeGroupRequest{Name: "g", Nodes: 1, Members: []*rotav1.GroupMember{{Node: "n1", Gpus: 2}}}); err != nil {
		t.Fatal(err)
	}
	w.job(&rotav1.SubmitJobRequest{Name: "a", Nodes: 1, Cycle: cycle(time.Hour, segment(0, 10*time.Minute, 1))})
	turn := w.acquire("a/actor")
	action := w.submit(serving("m", 2, 0))
	list, err := c.ListResidency(ctx, &rotav1.ListResidencyRequest{})
	if err != nil || places(list.Rows) != "m on n1 2+2, default/a/actor on g" {
		t.Fatalf("the table is %s, %v", places(list.GetRows()), err)
	}
	row := list.Rows[1]
	if g := row.GetGroup(); !g.Resident || g.Switching || len(g.Members) != 1 || g.Members[0].Node != "n1" || len(row.Pins) != 1 || row.Pins[0].GetTurnId() != turn.Id || !row.Pins[0].Uses {
		t.Errorf("the deployment is %v", row)
	}
	for _, req := range []*rotav1.ListResidencyRequest{{Job: "a"}, {Job: "a", Namespace: "default", Node: "n1"}} {
		if got, err := c.ListResidency(ctx, req); err != nil || places(got.Rows) != "default/a/actor on g" {
			t.Errorf("%v: %s, %v", req, places(got.GetRows()), err)
		}
	}
	if got, err := c.GetResidency(ctx, &rotav1.GetResidencyRequest{WorkingSet: "a/actor", NodeGroup: "g"}); err != nil || place(got.Row) != "default/a/actor on g" {
		t.Errorf("got %v, %v", got, err)
	}
	gpus, err := c.ListGpus(ctx, &rotav1.ListGpusRequest{})
	if err != nil || len(gpus.Nodes) != 1 || len(gpus.Nodes[0].Gpus) != 4 || !gpus.Nodes[0].Usable {
		t.Fatalf("GPUs %v, %v", gpus, err)
	}
	first, third := gpus.Nodes[0].Gpus[0], gpus.Nodes[0].Gpus[2]
	if first.NodeGroup != "g" || first.Holder.GetTurnId() != turn.Id || first.Holder.Deployment != "default/a/actor" || first.NextJob != "default/a" || first.NextTime == nil || first.IdleReason != "" {
		t.Errorf("GPU 0 is %v", first)
	}
	if third.NodeGroup != "" || third.Holder.GetActionId() != action || fmt.Sprint(third.Models) != "[m]" || third.NextJob != "" {
		t.Errorf("GPU 2 is %v", third)
	}
	if _, err := w.turns().YieldTurn(ctx, &rotav1.YieldTurnRequest{TurnId: turn.Id, Token: turn.Token}); err != nil {
		t.Fatal(err)
	}
	if gpus, err = c.ListGpus(ctx, &rotav1.ListGpusRequest{Pool: "default"}); err != nil {
		t.Fatal(err)
	}
	if g := gpus.Nodes[0].Gpus[1]; g.Holder != nil || !strings.Contains(g.IdleReason, "node group g") {
		t.Errorf("between turns GPU 1 is %v", g)
	}
	if _, err := c.ListGpus(ctx, &rotav1.ListGpusRequest{Pool: "none"}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("a pool that is not there: %v", err)
	}
}
