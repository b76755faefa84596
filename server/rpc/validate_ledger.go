package rpc

import (
	"strings"

	rotav1 "rota/api/gen/rota/v1"
)

// Limits of jobs and node groups.
const (
	groupNodesMax = 1 << 24
	segmentsMax   = 64
)

func checkNodes(path string, nodes uint32) *violation {
	switch {
	case nodes == 0:
		return wrong(path, "must be at least 1")
	case nodes > groupNodesMax:
		return wrong(path, "must be at most %d, is %d", groupNodesMax, nodes)
	}
	return nil
}

func checkSlots(slots uint32) *violation {
	if slots > slotsMax {
		return wrong("slots", "must be at most %d, is %d", slotsMax, slots)
	}
	return nil
}

// checkJobName checks who a change of a job is about.
func checkJobName(namespace, name string) *violation {
	return firstOf(checkName("namespace", namespace), requireName("name", name))
}

func checkJob(r *rotav1.SubmitJobRequest) *violation {
	if v := firstOf(
		checkJobName(r.Namespace, r.Name),
		checkRequest(r.RequestId, r.ExpireTime),
		checkNodes("nodes", r.Nodes),
		checkDuration("set_up", r.SetUp),
		checkHooks(r.Hooks),
		checkWorkLabels("labels", r.Labels),
	); v != nil {
		return v
	}
	if r.Cycle == nil {
		return nil
	}
	if r.Backfill {
		return wrong("cycle", "must be absent for a backfill job: it has no reservation")
	}
	return checkCycle(r.Cycle, r.Nodes).in("cycle")
}

// checkCycle checks a cycle as it is declared. Rounded to slots it is checked again
// where the horizon is known.
func checkCycle(c *rotav1.Cycle, nodes uint32) *violation {
	if v := checkDuration("period", c.Period); v != nil {
		return v
	}
	switch n := len(c.Segments); {
	case c.Period.AsDuration() <= 0:
		return wrong("period", "must be more than 0")
	case n == 0:
		return wrong("segments", "must be at least 1: a job that needs no nodes needs no cycle")
	case n > segmentsMax:
		return wrong("segments", "must be at most %d, are %d", segmentsMax, n)
	}
	last, widest := int64(0), uint32(0)
	for i, s := range c.Segments {
		if v := checkSegment(s, nodes, last); v != nil {
			return v.in("segments[%d]", i)
		}
		if last = int64(s.Offset.AsDuration() + s.Length.AsDuration()); last > int64(c.Period.AsDuration()) {
			return wrong("", "must end within the period").in("segments[%d]", i)
		}
		widest = max(widest, s.Nodes)
	}
	if widest < nodes { // it is placed by its segments: more would not be reserved for it
		return wrong("segments", "must need the job's %d nodes at least once, need at most %d: say how many the widest needs", nodes, widest)
	}
	return nil
}

// checkSegment checks a segment behind one that ends at a given offset.
func checkSegment(s *rotav1.Segment, nodes uint32, last int64) *violation {
	if v := firstOf(checkDuration("offset", s.GetOffset()), checkDuration("length", s.GetLength()), checkNodes("nodes", s.GetNodes())); v != nil {
		return v
	}
	switch {
	case s.GetLength().AsDuration() <= 0:
		return wrong("length", "must be more than 0")
	case int64(s.GetOffset().AsDuration()) < last:
		return wrong("offset", "must not be before the end of the segment before: segments ascend and do not overlap")
	case s.GetNodes() > nodes:
		return wrong("nodes", "must be at most the job's %d, is %d", nodes, s.GetNodes())
	}
	return nil
}

// splitDeployment reads "job/deployment".
func splitDeployment(text string) (job, deployment string, v *violation) {
	job, deployment, both := strings.Cut(text, "/")
	if !both {
		return "", "", wrong("deployment", `must be "job/deployment", is %q`, text)
	}
	return job, deployment, firstOf(requireName("deployment's job", job), requireName("deployment", deployment))
}

func checkAcquire(r *rotav1.AcquireTurnRequest) *violation {
	_, _, v := splitDeployment(r.Deployment)
	if v := firstOf(checkName("namespace", r.Namespace), checkRequest(r.RequestId, r.ExpireTime), v); v != nil {
		return v
	}
	if rotav1.Operation_name[int32(r.Operation)] == "" || r.Operation == rotav1.Operation_OPERATION_UNSPECIFIED {
		return wrong("operation", "must be one of the operations, is %d", r.Operation)
	}
	return firstOf(
		checkDuration("expect", r.Expect), checkDuration("set_up", r.SetUp), checkDuration("limit", r.Limit),
	)
}
