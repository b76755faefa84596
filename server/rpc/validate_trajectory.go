package rpc

import (
	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
)

func checkOpen(r *rotav1.OpenTrajectoryRequest) *violation {
	return firstOf(
		checkName("namespace", r.Namespace),
		checkRequest(r.RequestId, r.ExpireTime),
		checkText("name", r.Name, nameBytesMax),
		checkName("pool", r.Pool),
		checkProcessMemory("memory_bytes", r.MemoryBytes),
		checkDuration("idle_timeout", r.IdleTimeout),
		checkDuration("timeout", r.Timeout),
		checkPauseAtTimeout(r),
		checkSpread(r.SpreadGroup, r.SpreadLabel),
		checkObjective(r.Objective),
		checkTrajectorySpec(r.Spec),
		checkGenerationSpec(r.Generation).in("generation"),
		checkMembership(r.Rollout),
		checkWorkLabels("labels", r.Labels),
	)
}

func checkPauseAtTimeout(r *rotav1.OpenTrajectoryRequest) *violation {
	if r.PauseAtTimeout && r.Timeout.AsDuration() == 0 {
		return wrong("pause_at_timeout", "requires timeout: how long the trajectory goes on until it is paused")
	}
	return nil
}

func checkTrajectorySpec(s *rotav1.TrajectorySpec) *violation {
	switch {
	case s == nil:
		return nil
	case hasUnknown(s):
		return wrong("spec", "has a field that this server does not know: upgrade the servers first")
	case s.SizeVT() > state.TrajectorySpecBytesMax:
		return wrong("spec", "has %d bytes; at most %d are allowed: put large inputs into files", s.SizeVT(), state.TrajectorySpecBytesMax)
	}
	if s.SnapshotId != 0 {
		return wrong("spec.snapshot_id", "is not for requests: give snapshot_id beside spec")
	}
	return firstOf(checkEnvironment("spec.env", s.Env), checkDir("spec.dir", s.Dir), checkContainer(s.Container).in("spec.container"))
}

// imageBytesMax bounds the name of an image, and that of a user of a container.
const imageBytesMax = 256

func checkContainer(c *rotav1.Container) *violation {
	if c == nil {
		return nil
	}
	if c.Image == "" {
		return wrong("image", "is required: the name of an image that the nodes have, such as python:3.12")
	}
	if _, known := rotav1.Network_name[int32(c.Network)]; !known {
		return wrong("network", "is not a network: %d", c.Network)
	}
	return firstOf(checkText("image", c.Image, imageBytesMax), checkText("user", c.User, imageBytesMax))
}

func checkObjective(o rotav1.Objective) *violation {
	if _, known := rotav1.Objective_name[int32(o)]; !known {
		return wrong("objective", "is not an objective: %d", o)
	}
	return nil
}

// checkSpread checks a group, and the label over whose values it is spread.
func checkSpread(group, label string) *violation {
	switch {
	case group != "" && label == "":
		return wrong("spread_label", "is required with a spread_group: the label of nodes, such as \"zone\", whose values are the failure domains")
	case group == "" && label != "":
		return wrong("spread_group", "is required with a spread_label: those that name the same group are spread")
	}
	return firstOf(checkText("spread_group", group, nameBytesMax), checkText("spread_label", label, labelBytesMax))
}
