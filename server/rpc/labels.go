package rpc

import (
	"maps"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// checkWorkLabels checks the labels of an action, a trajectory or a job, or those that a list is
// filtered by.
func checkWorkLabels(path string, labels map[string]string) *violation {
	rows := make([]state.Label, 0, len(labels))
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		rows = append(rows, state.Label{Key: key, Value: labels[key]})
	}
	if _, err := state.JoinLabels(rows); err != nil {
		return wrong(path, "are refused: %v", err)
	}
	return nil
}

// labelsCommand puts labels into the order of the log.
func labelsCommand(labels map[string]string) []*logv1.Label {
	out := make([]*logv1.Label, 0, len(labels))
	for key, value := range labels {
		out = append(out, &logv1.Label{Key: key, Value: value})
	}
	slices.SortFunc(out, func(a, b *logv1.Label) int { return strings.Compare(a.Key, b.Key) })
	return out
}

// labelsMessage returns the labels of a row; nil if there are none.
func labelsMessage(row state.Labels) map[string]string {
	if row == "" {
		return nil
	}
	labels := map[string]string{}
	row.All(func(key, value string) bool {
		labels[key] = value
		return true
	})
	return labels
}

// digestLabels adds labels to what a request is recognized by. No labels add nothing.
func digestLabels(d *xxhash.Digest, labels []*logv1.Label) {
	for _, l := range labels {
		digestText(d, l.Key)
		digestText(d, l.Value)
	}
}

// queryLabels is what a page token has of the labels that a list is filtered by: nothing without
// labels.
func queryLabels(labels map[string]string) (query []uint64) {
	for _, l := range labelsCommand(labels) {
		query = append(query, hashText(l.Key), hashText(l.Value))
	}
	return query
}

// hasLabels reports whether a row has all of the labels.
func hasLabels(row state.Labels, labels map[string]string) bool {
	for key, value := range labels {
		if !row.Has(key, value) {
			return false
		}
	}
	return true
}
