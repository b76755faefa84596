package rpc

import (
	"fmt"
	"net"

	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
)

// Limits of what agents send.
const (
	labelsMax       = 64
	labelBytesMax   = 256
	addressBytesMax = 256
	numaNodesMax    = 64
	runtimeBytesMax = 256
	reportsMax      = 1024
)

func checkRegistration(r *rotav1.RegisterNodeRequest) *violation {
	if v := firstOf(
		requireName("name", r.Name),
		checkName("pool", r.Pool),
		checkText("address", r.Address, addressBytesMax),
		checkText("runtime", r.Runtime, runtimeBytesMax),
		checkText("journal_id", r.JournalId, requestIDBytesMax),
		checkMemory("memory_bytes", r.MemoryBytes),
		checkMemory("cache_bytes", r.CacheBytes),
		checkLabels(r.Labels),
		checkInventory(r.Gpus),
		checkBandwidth("bandwidth_bps", r.BandwidthBps),
	); v != nil {
		return v
	}
	switch _, _, err := net.SplitHostPort(r.Address); {
	case err != nil:
		return wrong("address", "must be host:port, is %q", r.Address)
	case r.JournalId == "":
		return wrong("journal_id", "is required")
	case r.MemoryBytes == 0:
		return wrong("memory_bytes", "must not be 0")
	}
	return checkNUMA(r.NumaNodes)
}

func checkLabels(labels map[string]string) *violation {
	if len(labels) > labelsMax {
		return wrong("labels", "must be at most %d, are %d", labelsMax, len(labels))
	}
	for key, value := range labels {
		if key == "" {
			return wrong("labels", "must not have an empty key")
		}
		if v := firstOf(checkText("labels", key, labelBytesMax), checkText("labels", value, labelBytesMax)); v != nil {
			return v
		}
	}
	return nil
}

// checkNUMA makes sure that each CPU exists once.
func checkNUMA(nodes []*rotav1.NumaNode) *violation {
	if v := checkCount("numa_nodes", "node", len(nodes), numaNodesMax); v != nil {
		return v
	}
	var seen state.CoreSet
	for i, n := range nodes {
		path := func() string { return fmt.Sprintf("numa_nodes[%d].cpus", i) }
		if n == nil || len(n.Cpus) == 0 {
			return wrong(path(), "must not be empty: leave out nodes without CPUs")
		}
		for _, cpu := range n.Cpus {
			switch {
			case cpu >= state.CoresPerNodeMax:
				return wrong(path(), "has CPU %d; the highest there can be is %d", cpu, state.CoresPerNodeMax-1)
			case seen.Has(int(cpu)):
				return wrong(path(), "has CPU %d, which is listed before", cpu)
			}
			seen.Add(int(cpu))
		}
	}
	return nil
}

func checkReports(r *rotav1.ReportAttemptsRequest) *violation {
	if v := firstOf(
		requireName("name", r.Name),
		requireID("incarnation", r.Incarnation),
		checkCount("reports", "report", len(r.Reports), reportsMax),
	); v != nil {
		return v
	}
	for i, report := range r.Reports {
		if v := checkReport(report); v != nil {
			return v.in("reports[%d]", i)
		}
	}
	return nil
}

// checkReport lets agents say only what agents can know. What is merely too
// long is not refused but cut: an agent would send it again for ever, and the
// cores of the attempt would stay taken.
func checkReport(r *rotav1.AttemptReport) *violation {
	if r == nil || r.ActionId == 0 {
		return wrong("action_id", "is required")
	}
	if r.Attempt == 0 {
		return wrong("attempt", "is required")
	}
	if r.Result == nil {
		return wrong("result", "is required")
	}
	// A reason that only newer agents know is for the state machine to read.
	if r.Result.Reason <= rotav1.EndReason_END_REASON_UNSPECIFIED {
		return wrong("result.reason", "is required")
	}
	return nil
}
