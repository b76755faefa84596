package e2e

import (
	"context"
	"time"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

// outcome is what became of a load.
type outcome struct {
	w           *world
	submissions map[int]submission
	actions     map[uint64]*rotav1.Action // as the cluster sees them, linearizably
	deeds       []deed
}

// settle waits until nothing is queued or running any more and looks at all of it.
func (l *load) settle() *outcome {
	w := l.w
	w.Helper()
	o := &outcome{w: w, submissions: l.stop(), actions: map[uint64]*rotav1.Action{}}
	w.until("every action has ended", func() bool {
		return len(w.list(rotav1.ActionState_ACTION_STATE_QUEUED, rotav1.ActionState_ACTION_STATE_RUNNING)) == 0
	})
	for _, a := range w.list() {
		if a.Spec.Name == loadName {
			o.actions[a.Id] = a
		}
	}
	w.until("no process of any attempt is left", func() bool { return len(processes(w.marker())) == 0 })
	o.deeds = w.deeds()
	return o
}

// list returns all actions in some states, or in any.
func (w *world) list(states ...rotav1.ActionState) (all []*rotav1.Action) {
	w.Helper()
	req := &rotav1.ListActionsRequest{PageSize: 1000, States: states}
	for {
		resp, err := w.api.Actions.ListActions(w.Context(), req)
		if err != nil {
			w.Fatal(err)
		}
		all = append(all, resp.Actions...)
		if req.PageToken = resp.NextPageToken; req.PageToken == "" {
			return all
		}
	}
}

// check holds the outcome against what is always promised.
func (o *outcome) check() {
	o.w.Helper()
	for _, s := range o.submissions {
		switch a := o.actions[s.id]; {
		case a == nil:
			o.w.Errorf("submission %d was acknowledged as action %d, which does not exist", s.number, s.id)
		case !client.Final(a.State) || a.Result == nil:
			o.w.Errorf("action %d was acknowledged and is %v with result %v", s.id, a.State, a.Result)
		case a.State == rotav1.ActionState_ACTION_STATE_SUCCEEDED:
			o.checkSucceeded(s, a)
		case a.State != rotav1.ActionState_ACTION_STATE_LOST:
			o.w.Errorf("action %d: %v: %v", s.id, a.State, a.Result)
		case s.retry:
			o.w.Errorf("action %d may be repeated and is lost: attempt %d, %v", s.id, a.Attempt, a.Result)
		}
	}
	if len(o.actions) != len(o.submissions) {
		o.w.Errorf("%d submissions became %d actions", len(o.submissions), len(o.actions))
	}
	o.checkDeeds()
	o.w.sameHash()
}

// checkSucceeded: success is claimed of an attempt that ran to its end.
func (o *outcome) checkSucceeded(s submission, a *rotav1.Action) {
	ends := 0
	for _, d := range o.deeds {
		if d.what == "end" && d.token.action == a.Id && d.token.attempt == a.Attempt {
			ends++
		}
	}
	if ends != 1 {
		o.w.Errorf("action %d succeeded with attempt %d, whose command came to its end %d times", s.id, a.Attempt, ends)
	}
}

// checkDeeds: no submission runs twice, and one that may be repeated never
// begins again before the attempt before it is dead.
func (o *outcome) checkDeeds() {
	newest := map[int]token{}
	for _, d := range o.deeds {
		s, known := o.submissions[d.submission]
		if !known || s.id != d.token.action {
			o.w.Errorf("submission %d, acknowledged as action %d, ran as %s", d.submission, s.id, d.token.text)
		}
		before, ran := newest[d.submission]
		switch {
		case d.what == "duplicate":
			o.w.Errorf("submission %d: attempt %s began while another was alive", d.submission, d.token.text)
		case d.what == "start" && ran && !s.retry:
			o.w.Errorf("submission %d ran as %s and as %s", d.submission, before.text, d.token.text)
		case d.what == "start" && ran && d.token.attempt <= before.attempt:
			o.w.Errorf("submission %d: attempt %s began after %s", d.submission, d.token.text, before.text)
		case d.what == "end" && d.token != before:
			o.w.Errorf("submission %d: attempt %s came to its end after %s had begun", d.submission, d.token.text, before.text)
		}
		if d.what == "start" {
			newest[d.submission] = d.token
		}
	}
}

// sameHash waits until all servers have come to the same state.
func (w *world) sameHash() {
	w.Helper()
	w.until("all servers have the same state", func() bool {
		ctx, cancel := context.WithTimeout(w.Context(), 5*time.Second)
		defer cancel()
		report, err := w.cluster.HashesEqual(ctx)
		return err == nil && report.Equal && len(report.Servers) == len(w.cluster.Servers)
	})
}
