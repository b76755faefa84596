package model

import (
	"regexp"
	"strings"
	"unicode/utf8"

	logv1 "rota/api/gen/log/v1"
)

var (
	labelKey     = regexp.MustCompile(`^[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?(/[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?)?$`)
	labelControl = regexp.MustCompile(`[\x00-\x1f\x7f]`)
)

// labelsAllowed reports whether the labels of an action, a trajectory or a job may be accepted.
func labelsAllowed(labels []*logv1.Label) bool {
	size := 0
	for i, l := range labels {
		size += len(l.Key) + len(l.Value)
		sound := labelKey.MatchString(l.Key) && len(l.Key) <= 128 &&
			len(l.Value) <= 256 && utf8.ValidString(l.Value) && !labelControl.MatchString(l.Value)
		if !sound || i > 0 && strings.Compare(labels[i-1].Key, l.Key) >= 0 {
			return false
		}
	}
	return len(labels) <= 32 && size <= 4096
}

// labelsText is how a row has its labels.
func labelsText(labels []*logv1.Label) string {
	lines := make([]string, 0, len(labels)+1)
	for _, l := range labels {
		lines = append(lines, l.Key+"="+l.Value)
	}
	return strings.Join(append(lines, ""), "\n")
}
