package ui

import (
	"errors"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	rotav1 "rota/api/gen/rota/v1"
)

var (
	errNotANumber = errors.New("an ID is a number: follow a link of a list")
	errNoSlots    = errors.New("the slots of the ledger are a number, such as 600")
)

// allPages are the parts of the page. A name with "-one" is of a single thing of the noun.
func allPages() []*page {
	return []*page{
		{name: "overview", title: "Overview", nav: "overview", load: loadOverview},
		{name: "actions", title: "Actions", nav: "actions", load: loadActions},
		{name: "actions-one", title: "Action", nav: "actions", load: loadAction},
		{name: "nodes", title: "Nodes", nav: "nodes", load: loadNodes},
		{name: "nodes-one", title: "Node", nav: "nodes", load: loadNode},
		{name: "gpus", title: "GPUs", nav: "gpus", load: loadGPUs},
		{name: "quotas", title: "Quotas", nav: "quotas", load: loadQuotas},
		{name: "ledger", title: "Ledger", nav: "ledger", load: loadLedger},
		{name: "trajectories", title: "Trajectories", nav: "trajectories", load: loadTrajectories},
		{name: "trajectories-one", title: "Trajectory", nav: "trajectories", load: loadTrajectory},
		{name: "rollouts", title: "Rollouts", nav: "rollouts", load: loadRollouts},
	}
}

// overview is what a server knows of the cluster at a glance.
type overview struct {
	Status     *rotav1.GetStatusResponse
	Behind     uint64
	Peers      []*rotav1.Peer
	Pools      []*rotav1.Pool
	Namespaces []*rotav1.Namespace
	// Sample is zero for those who may not count, and before the first one.
	Sample sample
	Phases []phase
	Ended  int
	Oldest []*rotav1.Action
	// EndedMore and OldestMore: there are actions at which these lists have not looked.
	EndedMore, OldestMore bool
}

// Sampled reports whether there is a sample.
func (o *overview) Sampled() bool { return o.Sample[0] != 0 }

// endedSample is how many ended actions the phases are of.
const endedSample = 100

func loadOverview(v *viewer) (any, error) {
	var err error
	o := &overview{}
	if v.mayCount() {
		o.Sample = v.ui.history.newest()
	}
	o.Status = call(v, &err, v.operator.GetStatus, &rotav1.GetStatusRequest{})
	o.Peers = callIf(v.mayRead("cluster", ""), v, &err, v.operator.ListPeers, &rotav1.ListPeersRequest{AllowStale: true}).GetPeers()
	o.Pools = callIf(v.mayRead("pool", ""), v, &err, v.operator.ListPools, &rotav1.ListPoolsRequest{AllowStale: true}).GetPools()
	o.Namespaces = callIf(v.mayRead("namespace", ""), v, &err, v.operator.ListNamespaces, &rotav1.ListNamespacesRequest{AllowStale: true}).GetNamespaces()
	ended, more := v.firstActions(&err, &rotav1.ListActionsRequest{
		Namespace: "*", States: endedStates, NewestFirst: true, PageSize: endedSample, AllowStale: true,
	})
	o.EndedMore = more
	o.Oldest, o.OldestMore = v.firstActions(&err, &rotav1.ListActionsRequest{
		Namespace: "*", States: statesOf("queued"), PageSize: 5, AllowStale: true,
	})
	if o.Status.CommitIndex > o.Status.AppliedIndex {
		o.Behind = o.Status.CommitIndex - o.Status.AppliedIndex
	}
	o.Ended, o.Phases = len(ended), phasesOf(ended)
	return o, err
}

// followMax is how many pages of a list a part of the overview follows. A page looks at no more than
// 100,000 rows, and is short, or empty, if few of them match.
const followMax = 3

// firstActions returns the first actions of a list, at most one page of them. more: there are others
// at which it has not looked.
func (v *viewer) firstActions(err *error, req *rotav1.ListActionsRequest) (rows []*rotav1.Action, more bool) {
	most := int(req.PageSize)
	for range followMax {
		list := callIf(v.mayRead("action", ""), v, err, v.actions.ListActions, req)
		rows, req.PageToken = append(rows, list.Actions...), list.NextPageToken
		if more = req.PageToken != ""; !more || len(rows) >= most {
			break
		}
	}
	return rows[:min(most, len(rows))], more
}

// phase is how long actions took in one part of their life.
type phase struct {
	Name          string
	P50, P90, Max time.Duration
}

// phasesOf says where the time of actions went (ARL-Tangram §6: action completion time). What is
// neither waiting nor the command itself is overhead: starting, set-up and reports.
func phasesOf(ended []*rotav1.Action) []phase {
	var waits, runs, overheads, all []time.Duration
	for _, a := range ended {
		if a.StartTime == nil || a.EndTime == nil {
			continue
		}
		whole, wait := between(a.SubmitTime, a.EndTime), between(a.SubmitTime, a.StartTime)
		run := a.GetResult().GetExecDuration().AsDuration()
		all, waits, runs = append(all, whole), append(waits, wait), append(runs, run)
		overheads = append(overheads, max(0, whole-wait-run))
	}
	if len(all) == 0 {
		return nil
	}
	return []phase{
		quantiles("in the queue", waits), quantiles("command", runs), quantiles("overhead", overheads), quantiles("completion time", all),
	}
}

func between(from, to *timestamppb.Timestamp) time.Duration {
	return max(0, to.AsTime().Sub(from.AsTime()))
}

func quantiles(name string, d []time.Duration) phase {
	slices.Sort(d)
	return phase{Name: name, P50: d[(len(d)-1)*50/100], P90: d[(len(d)-1)*90/100], Max: d[len(d)-1]}
}

// explained is an action of a list with why it waits.
type explained struct {
	*rotav1.Action
	Why string
}

// explainedMax is how many waiting actions of a list say why they wait: each costs a look at the
// scheduler's view.
const explainedMax = 25

type actionList struct {
	Actions []explained
	Next    string
}

func loadActions(v *viewer) (any, error) {
	var err error
	filter, states := v.query.Get("state"), statesOf(v.query.Get("state"))
	list := call(v, &err, v.actions.ListActions, &rotav1.ListActionsRequest{
		Namespace: v.namespace(), States: states, Name: v.query.Get("name"), Class: v.query.Get("class"), Node: v.query.Get("node"),
		NewestFirst: filter != "" && filter != "queued", PageSize: pageRows, PageToken: v.query.Get("page"), AllowStale: true,
	})
	out := actionList{Next: v.next(list.NextPageToken)}
	why := 0
	for _, a := range list.Actions {
		e := explained{Action: a}
		if a.State == rotav1.ActionState_ACTION_STATE_QUEUED && why < explainedMax {
			why++
			var gone error // it may have ended since it was listed
			e.Why = call(v, &gone, v.actions.GetAction, &rotav1.GetActionRequest{Id: a.Id, AllowStale: true}).GetAction().GetWaitingFor()
		}
		out.Actions = append(out.Actions, e)
	}
	return out, err
}

func loadAction(v *viewer) (any, error) {
	id, err := v.idNumber()
	a := call(v, &err, v.actions.GetAction, &rotav1.GetActionRequest{Id: id, AllowStale: true}).GetAction()
	return a, err
}

type nodeList struct {
	Nodes []*rotav1.Node
	Next  string
}

func loadNodes(v *viewer) (any, error) {
	var err error
	list := call(v, &err, v.nodes.ListNodes, &rotav1.ListNodesRequest{
		Pool: v.query.Get("pool"), PageSize: pageRows, PageToken: v.query.Get("page"), AllowStale: true,
	})
	return nodeList{list.Nodes, v.next(list.NextPageToken)}, err
}

// oneNode is a node with who has its cores and GPUs.
type oneNode struct {
	*rotav1.Node
	NUMA    [][]core
	GPUs    []core
	Actions []*rotav1.Action
	// More: there are actions that are not listed.
	More bool
}

// core is a core or a GPU.
type core struct {
	Number uint32
	Free   bool
	// Action has it; 0 if it is free, or if the page does not know which has it.
	Action uint64
	// Sick says why it is out of use.
	Sick string
}

func loadNode(v *viewer) (any, error) {
	var err error
	n := oneNode{Node: call(v, &err, v.nodes.GetNode, &rotav1.GetNodeRequest{Name: v.id, AllowStale: true}).GetNode()}
	running := callIf(v.mayRead("action", ""), v, &err, v.actions.ListActions, &rotav1.ListActionsRequest{
		Namespace: "*", Node: v.id, States: statesOf("running"), PageSize: 1000, AllowStale: true,
	})
	if err != nil {
		return nil, err
	}
	n.Actions, n.More = running.Actions, running.NextPageToken != ""
	n.fill()
	return n, nil
}

// fill says who has each core and each GPU. The node knows which of them are free, and who holds GPUs.
// Who has a core is known of the actions that are listed only.
func (n *oneNode) fill() {
	cpus, gpus := map[uint32]uint64{}, map[uint32]uint64{}
	for _, a := range n.Actions {
		for _, c := range a.Cpus {
			cpus[c] = a.Id
		}
	}
	for _, held := range n.HeldChunks {
		for g := range held.Chunk.GetGpus() {
			gpus[held.Chunk.GetFirst()+g] = held.ActionId
		}
	}
	for _, numa := range n.NumaNodes {
		var row []core
		for _, c := range numa.Cpus {
			one := core{Number: c, Free: slices.Contains(n.FreeCpus, c)}
			if !one.Free {
				one.Action = cpus[c] // the node was read first, and the core may have been given back since
			}
			row = append(row, one)
		}
		n.NUMA = append(n.NUMA, row)
	}
	sick := map[uint32]string{}
	for _, g := range n.UnhealthyGpus {
		if !g.Trusted {
			sick[g.Gpu] = g.Sick + g.DisabledReason
		}
	}
	for g := range n.Node.GetGpus().GetCount() {
		n.GPUs = append(n.GPUs, core{Number: g, Free: slices.Contains(n.FreeGpus, g), Action: gpus[g], Sick: sick[g]})
	}
}

type gpuList struct {
	Nodes  []*rotav1.NodeGpus
	Models []*rotav1.Model
	// ModelsCut: there are models that are not listed.
	ModelsCut bool
	Next      string
}

func loadGPUs(v *viewer) (any, error) {
	var err error
	list := call(v, &err, v.residency.ListGpus, &rotav1.ListGpusRequest{
		Pool: v.query.Get("pool"), PageSize: pageRows, PageToken: v.query.Get("page"), AllowStale: true,
	})
	models := call(v, &err, v.residency.ListModels, &rotav1.ListModelsRequest{PageSize: pageRows, AllowStale: true})
	return gpuList{list.Nodes, models.Models, models.NextPageToken != "", v.next(list.NextPageToken)}, err
}

func loadQuotas(v *viewer) (any, error) {
	var err error
	list := call(v, &err, v.quotas.ListQuotas, &rotav1.ListQuotasRequest{AllowStale: true})
	return list.Quotas, err
}

type trajectoryList struct {
	Trajectories []*rotav1.Trajectory
	Namespace    string
	Next         string
}

func loadTrajectories(v *viewer) (any, error) {
	var err error
	list := call(v, &err, v.trajectories.ListTrajectories, &rotav1.ListTrajectoriesRequest{
		Namespace: v.oneNamespace(), IncludeEnded: v.query.Get("ended") != "",
		PageSize: pageRows, PageToken: v.query.Get("page"), AllowStale: true,
	})
	return trajectoryList{list.Trajectories, v.oneNamespace(), v.next(list.NextPageToken)}, err
}

type oneTrajectory struct {
	*rotav1.Trajectory
	Timeline timeline
	Actions  []*rotav1.Action
	// Cut: the trajectory has had actions before those listed, or may have had some that are forgotten.
	Cut bool
}

// timelineActions is how many actions a timeline shows, the newest of the trajectory.
const timelineActions = 200

func loadTrajectory(v *viewer) (any, error) {
	id, err := v.idNumber()
	t := oneTrajectory{Trajectory: call(v, &err, v.trajectories.GetTrajectory, &rotav1.GetTrajectoryRequest{Id: id, AllowStale: true}).GetTrajectory()}
	if err != nil {
		return nil, err
	}
	may := v.mayRead("action", t.Namespace)
	list := callIf(may, v, &err, v.actions.ListActions, &rotav1.ListActionsRequest{
		Namespace: t.Namespace, TrajectoryId: id, NewestFirst: true, PageSize: timelineActions, AllowStale: true,
	})
	kept := callIf(may, v, &err, v.actions.SummarizeActions, &rotav1.SummarizeActionsRequest{
		Namespace: t.Namespace, TrajectoryId: id, AllowStale: true,
	}).GetKeptSince()
	t.Actions = list.Actions
	t.Cut = list.NextPageToken != "" || kept != nil && kept.AsTime().After(t.OpenTime.AsTime())
	t.Timeline = timelineOf(t.Trajectory, t.Actions, t.Cut, time.Now())
	return t, err
}

type rolloutList struct {
	Rollouts  []*rotav1.Rollout
	Policies  []*rotav1.Policy
	Workers   []*rotav1.Worker
	Namespace string
	// PoliciesCut and WorkersCut: there are some that are not listed.
	PoliciesCut, WorkersCut bool
	// Most is the largest number of predicted tokens of a worker, for the bars.
	Most uint64
	Next string
}

func loadRollouts(v *viewer) (any, error) {
	var err error
	list := call(v, &err, v.rollouts.ListRollouts, &rotav1.ListRolloutsRequest{
		Namespace: v.oneNamespace(), IncludeEnded: v.query.Get("ended") != "",
		PageSize: pageRows, PageToken: v.query.Get("page"), AllowStale: true,
	})
	r := rolloutList{Rollouts: list.Rollouts, Namespace: v.oneNamespace(), Next: v.next(list.NextPageToken)}
	policies := callIf(v.mayRead("policy", ""), v, &err, v.rollouts.ListPolicies, &rotav1.ListPoliciesRequest{PageSize: pageRows, AllowStale: true})
	workers := callIf(v.mayRead("worker", ""), v, &err, v.workers.ListWorkers, &rotav1.ListWorkersRequest{PageSize: pageRows, AllowStale: true})
	r.Policies, r.PoliciesCut = policies.Policies, policies.NextPageToken != ""
	r.Workers, r.WorkersCut = workers.Workers, workers.NextPageToken != ""
	for _, w := range r.Workers {
		r.Most = max(r.Most, w.PredictedTokens)
	}
	return r, err
}
