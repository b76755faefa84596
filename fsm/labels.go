package fsm

import (
	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// labelsOf returns the labels of an action, a trajectory or a job, or refuses what cannot be labels.
func labelsOf(labels []*logv1.Label) (state.Labels, *logv1.Result) {
	if len(labels) == 0 {
		return "", nil
	}
	rows := make([]state.Label, len(labels))
	for i, l := range labels {
		rows[i] = state.Label{Key: l.GetKey(), Value: l.GetValue()}
	}
	text, err := state.JoinLabels(rows)
	if err != nil {
		return "", refuse(codeInvalidArgument, "INVALID", "%v", err)
	}
	return text, nil
}
