package rpc

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
)

// wallClock turns the times of a state into those that people read.
type wallClock struct{ marks state.WallMarks }

func wallOf(st *state.State) wallClock { return wallClock{st.Meta().Wall} }

// timestamp converts a log time to wall time; 0, which is before any, is absent.
func (w wallClock) timestamp(ns int64) *timestamppb.Timestamp {
	if ns == 0 {
		return nil
	}
	return timestamp(w.marks.Wall(ns))
}

// timestamp is log time as it is; 0, which is before any, is absent.
func timestamp(ns int64) *timestamppb.Timestamp {
	if ns == 0 {
		return nil
	}
	return timestamppb.New(time.Unix(0, ns))
}

func duration(ns int64) *durationpb.Duration {
	if ns == 0 {
		return nil
	}
	return durationpb.New(time.Duration(ns))
}

// actionRow is an action with what its message needs from other rows. Rows
// never change, so it can be converted after the view it was made in.
type actionRow struct {
	*state.Action
	namespace, node string
	attempt         *state.Attempt
	shared          state.CoreSet // of its node, if the attempt shares cores
	waitingFor      string
	coresReason     string
	estimate        *rotav1.StartEstimate
	usage           []*rotav1.QuotaUse
	wall            wallClock
}

func readAction(st *state.State, a *state.Action) actionRow {
	r := actionRow{Action: a, wall: wallOf(st)}
	if n := st.Namespace(a.Namespace); n != nil {
		r.namespace = n.Name
	}
	r.node = nodeName(st, a.Node)
	for _, u := range a.Used {
		if q := st.Quota(u.Quota); q != nil { // it may have been deleted since
			r.usage = append(r.usage, &rotav1.QuotaUse{Quota: q.Name, Units: uint64(u.Units)})
		}
	}
	if a.State == state.ActionRunning {
		r.attempt = st.Attempt(a.Node, a.ID)
		if r.attempt != nil && r.attempt.Shares {
			r.shared = st.Node(a.Node).Shared
		}
	}
	return r
}

// nodeName is empty for a node that was removed.
func nodeName(st *state.State, id state.NodeID) string {
	if n := st.Node(id); n != nil {
		return n.Name
	}
	return ""
}

func (r actionRow) message() (*rotav1.Action, error) {
	spec := new(rotav1.ActionSpec)
	if err := spec.UnmarshalVT(r.Spec); err != nil {
		return nil, fmt.Errorf("decode the spec of action %d: %w", r.ID, err)
	}
	redact(spec)
	spec.Labels = labelsMessage(r.Labels)
	m := &rotav1.Action{
		Id:              uint64(r.ID),
		Namespace:       r.namespace,
		Spec:            spec,
		State:           rotav1.ActionState(r.State),
		Attempt:         r.Attempt,
		Node:            r.node,
		SubmitTime:      r.wall.timestamp(r.SubmittedAt),
		StartTime:       r.wall.timestamp(r.StartedAt),
		EndTime:         r.wall.timestamp(r.EndedAt),
		Result:          resultMessage(r.Result),
		CancelRequested: r.CancelReason != 0 && !r.State.Final(),
		WaitingFor:      r.waitingFor,
		CoresReason:     r.coresReason,
		Estimate:        r.estimate,
		QuotaUsage:      r.usage,
		Gang:            uint64(r.Gang),
		Revision:        r.Revision,
	}
	if r.attempt != nil {
		m.Cpus, m.SharesCpus = r.attempt.Cores.Slice(), r.attempt.Shares
		if r.attempt.Shares {
			m.Cpus = r.shared.Slice()
		}
		m.Gpus = r.attempt.Chunk.GPUs().Slice()
		m.Setup = duration(r.attempt.SetUpNS)
	}
	return m, nil
}

func resultMessage(r *state.Result) *rotav1.ActionResult {
	if r == nil {
		return nil
	}
	return &rotav1.ActionResult{
		Reason:          rotav1.EndReason(r.Reason),
		ExitCode:        r.ExitCode,
		Signal:          r.Signal,
		Message:         r.Message,
		StdoutTail:      r.Stdout,
		StderrTail:      r.Stderr,
		ExecDuration:    duration(r.ExecNS),
		CpuTime:         duration(r.CPUNS),
		MemoryPeakBytes: r.MemoryPeak,
	}
}

func eventMessage(st *state.State, e state.Event) *rotav1.ActionEvent {
	m := &rotav1.ActionEvent{
		Revision:     e.Revision,
		Time:         wallOf(st).timestamp(e.Time),
		ActionId:     e.Subject,
		State:        rotav1.ActionState(e.State),
		Attempt:      e.Attempt,
		Node:         nodeName(st, e.Node),
		Reason:       rotav1.EndReason(e.Reason),
		ExitCode:     e.ExitCode,
		TrajectoryId: uint64(e.Trajectory),
	}
	if n := st.Namespace(e.Namespace); n != nil {
		m.Namespace = n.Name
	}
	return m
}

func trajectoryMessage(st *state.State, t *state.Trajectory) *rotav1.Trajectory {
	m := &rotav1.Trajectory{
		Id:          uint64(t.ID),
		Name:        t.Name,
		Node:        nodeName(st, t.Node),
		State:       rotav1.TrajectoryState(t.State),
		MemoryBytes: t.Memory,
		OpenTime:    wallOf(st).timestamp(t.OpenedAt),
		EndTime:     wallOf(st).timestamp(t.EndedAt),
		LiveActions: t.Live,
		IdleTimeout: duration(t.IdleTimeoutNS),
		ExpireTime:  wallOf(st).timestamp(t.Deadline),

		SpreadGroup:  t.Spread.Group,
		SpreadLabel:  t.Spread.Label,
		SpreadDomain: t.Spread.Domain,
		Objective:    rotav1.Objective(t.Objective) + rotav1.Objective_OBJECTIVE_MEAN,
		Labels:       labelsMessage(t.Labels),
		Pause:        pauseOf(st, t),

		PauseAtTimeout: t.PauseNS > 0,
	}
	if t.State < state.TrajectoryClosing { // one that has ended keeps when it was paused last
		m.PauseTime = wallOf(st).timestamp(t.PausedAt)
	}
	if n := st.Namespace(t.Namespace); n != nil {
		m.Namespace = n.Name
	}
	if p := st.Pool(t.Pool); p != nil {
		m.Pool = p.Name
	}
	m.Generation = generationMessage(st, t.ID)
	if spec := new(rotav1.TrajectorySpec); t.Spec != "" && spec.UnmarshalVT([]byte(t.Spec)) == nil {
		for name := range spec.Env {
			spec.Env[name] = redacted
		}
		m.Spec = spec
	}
	if t.Rollout != 0 {
		m.Rollout = &rotav1.RolloutMembership{RolloutId: uint64(t.Rollout), Group: t.Group}
	}
	return m
}

func nodeMessage(st *state.State, n *state.Node) *rotav1.Node {
	m := &rotav1.Node{
		Name:             n.Name,
		State:            rotav1.NodeState(n.State),
		Draining:         n.OperatorDrains(),
		LowDisk:          n.LowDisk,
		Incarnation:      n.Incarnation,
		Address:          n.Address,
		FreeCpus:         n.Free.Slice(),
		MemoryBytes:      n.Memory,
		FreeMemoryBytes:  n.FreeMemory,
		OpenTrajectories: n.Trajectories,
		QueuedActions:    uint32(st.NodeQueued(n.ID)),
		RegistrationTime: wallOf(st).timestamp(n.RegisteredAt),
		Runtime:          n.Runtime,
		BandwidthBps:     n.Bandwidth,
		FreeBandwidthBps: n.FreeBandwidth,
		Resizes:          n.Resizes,
		SpareCores:       n.Spare,
		Containers:       n.Containers,
		ShareAfter:       duration(n.ShareAfterNS),
		SharedCpus:       n.Shared.Slice(),
		SharingActions:   n.Sharing,
	}
	describeGPUs(m, st, n)
	m.UnhealthyGpus = unhealthyGPUs(n)
	if p := st.Pool(n.Pool); p != nil {
		m.Pool = p.Name
	}
	for _, numa := range n.NUMA {
		m.NumaNodes = append(m.NumaNodes, &rotav1.NumaNode{Cpus: numa.Slice()})
	}
	if len(n.Labels) > 0 {
		m.Labels = make(map[string]string, len(n.Labels))
	}
	for _, l := range n.Labels {
		m.Labels[l.Key] = l.Value
	}
	st.Attempts(n.ID, func(*state.Attempt) bool {
		m.RunningActions++
		return true
	})
	return m
}

// describeGPUs adds what a node has of GPUs: who holds them, and what is in their
// memory.
func describeGPUs(m *rotav1.Node, st *state.State, n *state.Node) {
	class := st.GPUClass(n.GPUs.Class)
	if class == nil {
		return
	}
	message := func(c state.Chunk) *rotav1.GpuChunk { return &rotav1.GpuChunk{First: c.First, Gpus: c.Units} }
	m.Gpus = &rotav1.GpuInventory{Class: class.Name, Count: n.GPUs.Count, MemoryBytes: n.GPUs.Memory}
	m.FreeGpus = n.GPUs.Free.Slice()
	st.Attempts(n.ID, func(t *state.Attempt) bool {
		if t.Chunk.Units > 0 {
			m.HeldChunks = append(m.HeldChunks, &rotav1.HeldChunk{Chunk: message(t.Chunk), ActionId: uint64(t.Action)})
		}
		return true
	})
	slices.SortFunc(m.HeldChunks, func(a, b *rotav1.HeldChunk) int { return cmp.Compare(a.Chunk.First, b.Chunk.First) })
	for _, r := range st.ModelsOn(n.ID) {
		m.ResidentModels = append(m.ResidentModels, &rotav1.ResidentModel{
			Model: r.Model, Chunk: message(r.Chunk), MemoryBytes: r.Bytes, LastUseTime: wallOf(st).timestamp(r.UsedAt),
		})
	}
}
