package fsm

import (
	"fmt"
	"strings"
	"testing"

	logv1 "rota/api/gen/log/v1"
	"rota/fsm/state"
)

// labels reads "labels=run:1,task:a".
func (a args) labels() (labels []*logv1.Label) {
	for _, text := range strings.FieldsFunc(a.text("labels"), func(r rune) bool { return r == ',' }) {
		key, value, _ := strings.Cut(text, ":")
		labels = append(labels, &logv1.Label{Key: key, Value: value})
	}
	return labels
}

// Labels came with a feature level, are bounded, and are checked again by the state machine.
func TestLabelsAreChecked(t *testing.T) {
	open := func(labels ...*logv1.Label) *logv1.Command {
		return &logv1.Command{Verb: &logv1.Command_OpenTrajectory{OpenTrajectory: &logv1.OpenTrajectory{Labels: labels}}}
	}
	submit := func(labels ...*logv1.Label) *logv1.Command {
		a := &logv1.Action{CoresMin: 1, CoresMax: 1, AttemptsMax: 1, Labels: labels}
		return &logv1.Command{Verb: &logv1.Command_SubmitActions{SubmitActions: &logv1.SubmitActions{Actions: []*logv1.Action{a}}}}
	}
	job := func(name string, labels ...*logv1.Label) *logv1.Command {
		return &logv1.Command{Verb: &logv1.Command_SubmitJob{SubmitJob: &logv1.SubmitJob{Name: name, Nodes: 1, Labels: labels}}}
	}
	label := func(key, value string) *logv1.Label { return &logv1.Label{Key: key, Value: value} }
	var many, large []*logv1.Label
	for i := range 33 {
		many = append(many, label(fmt.Sprintf("k%02d", i), ""))
		large = append(large, label(fmt.Sprintf("k%02d", i), strings.Repeat("v", 150)))
	}
	b := newBuild(state.LevelResizing)
	b.Apply(entryLog(t, 1, 1, bootstrapBy(state.LevelResizing)))
	b.do(t, 2, "register node=n1 numa=4 memory=1000")
	index := uint64(2)
	for _, c := range []struct {
		labels []*logv1.Label
		want   string // of the row; "": refused
	}{
		{[]*logv1.Label{label("run", "1"), label("team/task", "a = b, c")}, "run=1\nteam/task=a = b, c\n"},
		{[]*logv1.Label{label("b", ""), label("c", "é")}, "b=\nc=é\n"},
		{many[:32], string(must(state.JoinLabels(rowsOf(many[:32]))))},
		{many, ""}, {large[:32], ""},
		{[]*logv1.Label{label("b", ""), label("a", "")}, ""},
		{[]*logv1.Label{label("a", ""), label("a", "")}, ""},
		{[]*logv1.Label{label("", "")}, ""}, {[]*logv1.Label{label("a/b/c", "")}, ""}, {[]*logv1.Label{label("-a", "")}, ""},
		{[]*logv1.Label{label("a.", "")}, ""}, {[]*logv1.Label{label("/a", "")}, ""}, {[]*logv1.Label{label("a/", "")}, ""},
		{[]*logv1.Label{label("a", "x\ny=z")}, ""}, {[]*logv1.Label{label("a", "\xff")}, ""}, {[]*logv1.Label{label("a=b", "")}, ""},
		{[]*logv1.Label{label(strings.Repeat("k", 129), "")}, ""}, {[]*logv1.Label{label("a", strings.Repeat("v", 257))}, ""},
	} {
		for level, premature := range map[state.Level]bool{2: true, 3: false} {
			for _, command := range []*logv1.Command{open(c.labels...), submit(c.labels...), job("j", c.labels...)} {
				if r := Premature(command, func() state.Level { return level }); (r != nil) != premature {
					t.Errorf("at level %d: %v", level, r)
				}
			}
		}
		index++
		b.Apply(entryLog(t, index, int64(index), open(c.labels...), submit(c.labels...), job(fmt.Sprint("j", index), c.labels...)))
		b.View(func(s *state.State) {
			traj, action, job := s.Trajectory(s.Meta().LastTrajectory), s.Action(s.Meta().LastAction), s.Job(s.Meta().LastJob)
			switch {
			case c.want != "" && (string(traj.Labels) != c.want || traj.Labels != action.Labels || traj.Labels != job.Labels):
				t.Errorf("%v: the trajectory has %q, the action %q, the job %q", c.labels, traj.Labels, action.Labels, job.Labels)
			case c.want == "" && (s.Meta().LastTrajectory != 3 || s.Meta().LastAction != 3 || s.Meta().LastJob != 3):
				t.Errorf("%v are accepted: trajectory %d, action %d", c.labels, s.Meta().LastTrajectory, s.Meta().LastAction)
			}
			if err := s.Check(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func rowsOf(labels []*logv1.Label) (rows []state.Label) {
	for _, l := range labels {
		rows = append(rows, state.Label{Key: l.Key, Value: l.Value})
	}
	return rows
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// A label is found whole, wherever it stands.
func TestALabelIsFoundWhole(t *testing.T) {
	l := must(state.JoinLabels([]state.Label{{Key: "a", Value: "1"}, {Key: "ab", Value: "b=2"}, {Key: "c", Value: ""}}))
	for text, want := range map[string]bool{"a=1": true, "ab=b=2": true, "c=": true, "b=2": false, "a=": false, "ab=b": false, "d=": false, "b=b=2": false} {
		key, value, _ := strings.Cut(text, "=")
		if l.Has(key, value) != want {
			t.Errorf("%s: %v", text, !want)
		}
	}
}
