package rpc

import (
	"fmt"
	"strings"
	"time"

	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
)

// Limits of migrations.
const (
	migrationTimeoutMax = 24 * time.Hour
	migrationReportsMax = 256
)

func checkMigration(r *rotav1.RequestMigrationRequest) *violation {
	if v := firstOf(
		checkRequest(r.RequestId, r.ExpireTime), checkName("namespace", r.Namespace),
		requireName("source", r.Source), requireName("target", r.Target),
		checkTimeout("queue_timeout", r.QueueTimeout, migrationTimeoutMax), checkTimeout("run_timeout", r.RunTimeout, migrationTimeoutMax),
	); v != nil {
		return v
	}
	switch {
	case r.Source == r.Target:
		return wrong("target", "must be another node than the source")
	case r.Selector == nil && r.TrajectoryId == 0:
		return wrong("selector", "is required without a trajectory_id: give a tag, prefixes or keys")
	}
	return checkSelector(r.Selector).in("selector")
}

// checkSelector checks what is copied; nil has a default.
func checkSelector(s *rotav1.MigrationSelector) *violation {
	switch {
	case s == nil:
		return nil
	case hasUnknown(s):
		return wrong("", "has fields that this server does not know: leave them out, or upgrade the servers")
	case s.SizeVT() > state.SelectorBytesMax:
		return wrong("", "is %d bytes long; at most %d are allowed: use a tag or prefixes", s.SizeVT(), state.SelectorBytesMax)
	case s.Tag == "" && len(s.Prefixes) == 0 && len(s.Keys) == 0:
		return wrong("", "selects nothing: give a tag, prefixes or keys")
	case s.Tag != "" && (strings.Index(s.Tag, "%") < 1 || strings.Contains(s.Tag, "@")):
		return wrong("tag", "must be NAME%%VALUE without '@', is %q", s.Tag)
	}
	for i, p := range s.Prefixes {
		if p == "" {
			return wrong(fmt.Sprintf("prefixes[%d]", i), "is empty, which would select everything")
		}
	}
	for i, k := range s.Keys {
		if k == "" {
			return wrong(fmt.Sprintf("keys[%d]", i), "is empty")
		}
	}
	return nil
}

func checkMigrationReports(req *rotav1.ReportMigrationsRequest) *violation {
	if v := firstOf(requireName("name", req.Name), requireID("incarnation", req.Incarnation),
		checkCount("reports", "report", len(req.Reports), migrationReportsMax)); v != nil {
		return v
	}
	for i, r := range req.Reports {
		if v := requireID("migration_id", r.GetMigrationId()); v != nil {
			return v.in("reports[%d]", i)
		}
	}
	return nil
}
