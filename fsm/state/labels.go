package state

import (
	"cmp"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Bounds of the labels of an action, a trajectory or a job.
const (
	LabelsMax          = 32
	LabelKeyBytesMax   = 128
	LabelValueBytesMax = 256
	LabelsBytesMax     = 4 << 10 // of all keys and values together
)

// Labels are the labels of an action, a trajectory or a job: a line "key=value" for each, in the order
// of the keys. They are text so that rows can be compared. JoinLabels makes them.
type Labels string

// CheckLabel says what is wrong with a label. A key is a name, or a prefix and a name, as in
// "team/project": letters, digits, '-', '_' and '.', and a letter or a digit at both ends. A value
// is any text without control characters.
func CheckLabel(key, value string) error {
	prefix, name, split := strings.Cut(key, "/")
	switch {
	case len(key) > LabelKeyBytesMax || len(value) > LabelValueBytesMax:
		return fmt.Errorf("label %.40q is too long: a key has at most %d bytes and a value at most %d", key, LabelKeyBytesMax, LabelValueBytesMax)
	case !labelName(prefix) || split && !labelName(name):
		return fmt.Errorf("label %.40q is no key: use letters, digits, '-', '_' and '.', with a letter or a digit at both ends, and at most one '/' between a prefix and a name", key)
	case !utf8.ValidString(value) || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return fmt.Errorf("label %q has a value with a control character, or one that is not UTF-8", key)
	}
	return nil
}

func labelName(s string) bool {
	alphanumeric := func(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' }
	for i := range len(s) {
		if c := s[i]; !alphanumeric(c) && (i == 0 || i == len(s)-1 || c != '-' && c != '_' && c != '.') {
			return false
		}
	}
	return s != ""
}

// JoinLabels makes labels of keys, which ascend, and their values. Its error says what is wrong.
func JoinLabels(labels []Label) (Labels, error) {
	var b strings.Builder
	for i, l := range labels {
		if err := CheckLabel(l.Key, l.Value); err != nil {
			return "", err
		}
		if i > 0 && labels[i-1].Key >= l.Key {
			return "", fmt.Errorf("label %q is there twice, or not in the order of the keys", l.Key)
		}
		b.WriteString(l.Key + "=" + l.Value + "\n")
	}
	if size := b.Len() - 2*len(labels); len(labels) > LabelsMax || size > LabelsBytesMax {
		return "", fmt.Errorf("there are %d labels of %d bytes; at most %d of %d bytes together are allowed", len(labels), size, LabelsMax, LabelsBytesMax)
	}
	return Labels(b.String()), nil
}

// All visits the labels in the order of their keys.
func (l Labels) All(fn func(key, value string) bool) {
	for line := range strings.Lines(string(l)) {
		if key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "="); !fn(key, value) {
			return
		}
	}
}

// Has reports whether a label has a value.
func (l Labels) Has(key, value string) bool {
	line := key + "=" + value + "\n"
	return strings.HasPrefix(string(l), line) || strings.Contains(string(l), "\n"+line)
}

// Get returns the value of a label.
func (l Labels) Get(key string) (value string, ok bool) {
	l.All(func(k, v string) bool {
		if k == key {
			value, ok = v, true
		}
		return k < key
	})
	return value, ok
}

// check: labels are as JoinLabels makes them.
func (l Labels) check() error {
	var labels []Label
	l.All(func(key, value string) bool {
		labels = append(labels, Label{key, value})
		return true
	})
	again, err := JoinLabels(labels)
	if err == nil && again != l {
		err = fmt.Errorf("labels %q are not in the form of %q", l, again)
	}
	return err
}

// checkLabels: the labels of all rows are well-formed.
func (s *State) checkLabels() (err error) {
	s.Actions(0, func(a *Action) bool {
		if wrong := a.Labels.check(); wrong != nil {
			err = fmt.Errorf("action %d: %w", a.ID, wrong)
		}
		return err == nil
	})
	s.Trajectories(0, func(t *Trajectory) bool {
		if wrong := t.Labels.check(); wrong != nil {
			err = cmp.Or(err, fmt.Errorf("trajectory %d: %w", t.ID, wrong))
		}
		return err == nil
	})
	s.Jobs(0, func(j *Job) bool {
		if wrong := j.Labels.check(); wrong != nil {
			err = cmp.Or(err, fmt.Errorf("job %d: %w", j.ID, wrong))
		}
		return err == nil
	})
	return err
}
