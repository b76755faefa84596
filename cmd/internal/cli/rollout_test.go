package cli

import (
	"errors"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	rotav1 "rota/api/gen/rota/v1"
)

// TestEveryStateOfARolloutIsExplained: with words that say what to do.
func TestEveryStateOfARolloutIsExplained(t *testing.T) {
	const open, closing, closed = rotav1.RolloutState_ROLLOUT_STATE_OPEN, rotav1.RolloutState_ROLLOUT_STATE_CLOSING, rotav1.RolloutState_ROLLOUT_STATE_CLOSED
	for want, r := range map[string]*rotav1.Rollout{
		"4 groups are not complete, and no trajectory runs: open some with rota trajectory open --rollout 3 --group N": {State: open},
		"1 group is not complete: 1 trajectory runs and 9 have made a sample":                                          {State: open, Counts: &rotav1.RolloutCounts{Running: 1, Sampled: 9, CompleteGroups: 1, DeliveredGroups: 2}},
		"a step of training has yet to take 2 complete groups: rota batch get --policy p":                              {State: open, Counts: &rotav1.RolloutCounts{CompleteGroups: 2, DeliveredGroups: 2}},
		"it was closed, and 2 trajectories are still to be closed":                                                     {State: closing, Counts: &rotav1.RolloutCounts{Running: 2}},
		"a step of training has yet to take 1 complete group: rota batch get --policy p":                               {State: closing, Counts: &rotav1.RolloutCounts{CompleteGroups: 1}},
		"it has ended: steps were given 3 groups, and 1 was dropped":                                                   {State: closed, Counts: &rotav1.RolloutCounts{DeliveredGroups: 3, DroppedGroups: 1}},
	} {
		r.Id, r.Spec = 3, &rotav1.RolloutSpec{Policy: "p", Groups: 4}
		if got := explainRollout(r); got != want {
			t.Errorf("%v is explained with %q, want %q", r, got, want)
		}
	}
}

// TestARolloutIsFollowed: each change is one line, a cluster without a leader is waited for, and the end of the
// rollout is the end.
func TestARolloutIsFollowed(t *testing.T) {
	at := func(state rotav1.RolloutState, sampled uint32) *rotav1.Rollout {
		return &rotav1.Rollout{Id: 3, State: state, Spec: &rotav1.RolloutSpec{Groups: 2}, Counts: &rotav1.RolloutCounts{Sampled: sampled}}
	}
	const open, closed = rotav1.RolloutState_ROLLOUT_STATE_OPEN, rotav1.RolloutState_ROLLOUT_STATE_CLOSED
	answers := []*rotav1.Rollout{at(open, 0), at(open, 0), nil, at(open, 1), at(closed, 1), at(closed, 2)}
	get := func() (r *rotav1.Rollout, err error) {
		if r, answers = answers[0], answers[1:]; r == nil {
			err = connect.NewError(connect.CodeUnavailable, errors.New("no leader"))
		}
		return r, err
	}
	var lines []string
	show := func(r *rotav1.Rollout) error {
		lines = append(lines, rolloutLine(r))
		return nil
	}
	if err := followRollout(t.Context(), time.Microsecond, get, show); err != nil || len(lines) != 3 || len(answers) != 1 {
		t.Errorf("%q, %d answers are left: %v", lines, len(answers), err)
	}
	if len(lines) > 0 && !strings.HasPrefix(lines[0], "open: 0 of 2 groups complete, 0 delivered; 0 running, 0 sampled, 0 failed. 2 groups are not") {
		t.Errorf("the first line: %q", lines[0])
	}
	answers = []*rotav1.Rollout{nil}
	if err := followRollout(t.Context(), time.Microsecond, get, show); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("a cluster that never answered: %v", err)
	}
}

func TestGroupsInOneLine(t *testing.T) {
	g := &rotav1.RolloutGroup{Complete: true, Members: []*rotav1.RolloutMember{
		{TrajectoryId: 5, Version: 2, State: rotav1.RolloutMemberState_ROLLOUT_MEMBER_STATE_SAMPLED},
		{TrajectoryId: 6, Version: 3, State: rotav1.RolloutMemberState_ROLLOUT_MEMBER_STATE_REDUNDANT},
	}}
	if got := groupText(g); got != "complete: 5 sampled (version 2), 6 redundant (version 3)" {
		t.Error(got)
	}
	if g.Step = 9; !strings.HasPrefix(groupText(g), "given to step 9: ") {
		t.Error(groupText(g))
	}
}

// A group without its rollout would open a trajectory that makes no sample.
func TestAGroupNeedsItsRollout(t *testing.T) {
	if m, err := membership(0, 2); exitCode(err) != exitUsage || m != nil || !strings.Contains(err.Error(), "give --rollout ID") {
		t.Errorf("%v, %v", m, err)
	}
	if m, err := membership(0, 0); m != nil || err != nil {
		t.Errorf("%v, %v", m, err)
	}
	if m, err := membership(3, 0); err != nil || m.GetRolloutId() != 3 {
		t.Errorf("%v, %v", m, err)
	}
}

// TestPredictionsAreExplained: whose they are, and of how many trajectories.
func TestPredictionsAreExplained(t *testing.T) {
	for _, c := range []struct {
		own, service uint32
		want         string
	}{
		{0, 0, ""},
		{1, 0, "rota (1 trajectory)"},
		{0, 2, "the predictor service (2 trajectories)"},
		{2, 1, "the predictor service (1 trajectory), rota (2 trajectories)"},
	} {
		if got := explainPredictions(&rotav1.RolloutPredictions{Own: c.own, Service: c.service}); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// An answer has some of the groups; the command shows all.
func TestAllGroupsOfARolloutAreShown(t *testing.T) {
	const groups = 700
	asked := 0
	get := func(req *rotav1.GetRolloutRequest) (*rotav1.GetRolloutResponse, error) {
		asked++
		resp := &rotav1.GetRolloutResponse{Rollout: &rotav1.Rollout{Id: req.Id}}
		for i := req.FirstGroup; req.Groups && i < groups && len(resp.Groups) < 256; i++ {
			resp.Groups = append(resp.Groups, &rotav1.RolloutGroup{Index: i})
		}
		return resp, nil
	}
	for _, from := range []uint32{0, 256, groups} {
		resp, err := rolloutWithGroups(&rotav1.GetRolloutRequest{Id: 3, Groups: true, FirstGroup: from}, get)
		if err != nil || uint32(len(resp.Groups)) != groups-from {
			t.Errorf("from %d: %d groups, %v", from, len(resp.GetGroups()), err)
		}
		for i, g := range resp.GetGroups() {
			if g.Index != from+uint32(i) {
				t.Fatalf("from %d: group %d at %d", from, g.Index, i)
			}
		}
	}
	asked = 0
	if resp, err := rolloutWithGroups(&rotav1.GetRolloutRequest{Id: 3}, get); err != nil || asked != 1 || len(resp.Groups) != 0 {
		t.Errorf("without groups: asked %d times, %v, %v", asked, resp, err)
	}
}
