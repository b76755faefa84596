package fault

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"connectrpc.com/connect"

	"rota/api/client"
	"rota/jepsen/cluster"
	"rota/jepsen/history"
)

// changeMax is how long a change of the voters may take.
const changeMax = 30 * time.Second

// transfer has the leader hand over to any other server. It is asked again until one leads: on a busy
// machine the other may not take over in time, or not be ready yet, and operators are told to try again.
func transfer(ctx context.Context, w *World) (*Injection, error) {
	old, err := w.Cluster.Leader(ctx)
	if err != nil {
		return nil, err
	}
	start := w.Record.Now()
	ctx, cancel := context.WithTimeout(ctx, changeMax)
	defer cancel()
	until(ctx, changeMax, func() bool {
		if err = w.Cluster.Transfer(ctx, nil); refused(err) {
			return true
		}
		next, unknown := w.Cluster.Leader(ctx)
		switch {
		case unknown == nil && next != old:
			err = nil
		case err == nil: // a try that seemed to have failed had not, and this one undid it
			err = fmt.Errorf("%s leads again", old.Name)
		}
		return err == nil
	})
	if err != nil {
		return nil, fmt.Errorf("transfer leadership from %s: %w", old.Name, err)
	}
	return &Injection{Start: start, Target: []string{old.Name}, End: func(ctx context.Context) (string, error) {
		next, err := w.Cluster.LeaderOtherThan(ctx, old)
		if err != nil {
			return "", err
		}
		return next.Name + " led then", nil
	}}, nil
}

// churn gives a vote to a server that waits for one, takes it from the leader,
// and in the end puts everything back.
func churn(ctx context.Context, w *World) (*Injection, error) {
	leader, err := w.Cluster.Leader(ctx)
	if err != nil {
		return nil, err
	}
	voters, err := w.Cluster.Voters(ctx, leader)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(w.Cluster.Servers, func(m *cluster.Member) bool { return !slices.Contains(voters, m) })
	if i < 0 {
		return nil, errors.New("no server waits for a vote: the scenario needs a standby")
	}
	standby := w.Cluster.Servers[i]
	ctx, cancel := context.WithTimeout(ctx, changeMax)
	defer cancel()
	err = w.change(ctx, addVoter, standby)
	if err == nil {
		err = w.change(ctx, removal, leader)
	}
	if err != nil {
		return nil, err
	}
	return &Injection{Target: []string{standby.Name, leader.Name}, End: func(ctx context.Context) (string, error) {
		next, err := w.Cluster.LeaderOtherThan(ctx, leader)
		if err != nil {
			return "", err
		}
		err = errors.Join(w.readmit(ctx, leader), w.change(ctx, removal, standby), w.reset(standby))
		return fmt.Sprintf("%s took the vote of %s, which led, and gave it back; %s led meanwhile", standby.Name, leader.Name, next.Name), err
	}}, nil
}

// Changes of the voters, as the record calls them.
const (
	addVoter = "add-voter"
	removal  = "remove"
)

// change asks for a change of the voters and records that, with what became of
// it. An answer that does not come is asked for again: both changes may be
// repeated.
func (w *World) change(ctx context.Context, what string, m *cluster.Member) error {
	asked := history.Member{At: w.Record.Now(), Change: what, ID: m.Name, Outcome: history.Fail}
	do := w.Cluster.AddVoter
	if what == removal {
		do = w.Cluster.Remove
	}
	var err error
	until(ctx, changeMax, func() bool {
		asked.Outcome, err = outcome(asked, do(ctx, m))
		return err == nil || refused(err)
	})
	w.Record.AddMember(asked)
	if err != nil {
		return fmt.Errorf("%s %s: %w", what, m.Name, err)
	}
	return nil
}

// outcome is what is known of a change after another try, which ended with err.
// Once a try may have been carried out, a refusal of the next proves nothing; and
// whoever cannot be found then has been removed by it.
func outcome(asked history.Member, err error) (history.Outcome, error) {
	unsure := asked.Outcome == history.Unknown || errors.Is(err, client.ErrUnknownOutcome) || err != nil && !refused(err)
	switch {
	case err == nil || unsure && asked.Change == removal && connect.CodeOf(err) == connect.CodeNotFound:
		return history.OK, nil
	case unsure:
		return history.Unknown, err
	}
	return history.Fail, err
}

// refused reports whether an error means that nothing has been changed.
func refused(err error) bool {
	switch connect.CodeOf(err) {
	case connect.CodeInvalidArgument, connect.CodeFailedPrecondition, connect.CodeNotFound, connect.CodeAlreadyExists, connect.CodePermissionDenied:
		return true
	}
	return false
}

// replace takes a server out, gives it an empty disk, and lets it in again, as
// an operator replaces a machine.
func (w *World) replace(ctx context.Context, m *cluster.Member) error {
	m.Kill()
	if err := w.change(ctx, removal, m); err != nil {
		return err
	}
	return w.readmit(ctx, m)
}

// readmit lets a server in that is no voter any more. It comes with an empty
// disk: with what it knew when it was taken out it would be a stranger.
func (w *World) readmit(ctx context.Context, m *cluster.Member) error {
	if err := w.reset(m); err != nil {
		return err
	}
	return w.change(ctx, addVoter, m)
}

// reset starts a server with an empty disk, as one that waits for a vote.
func (w *World) reset(m *cluster.Member) error {
	m.Kill()
	if err := m.Wipe(); err != nil {
		return err
	}
	return m.Start()
}

// rollingRestart restarts every member with the other build, the leader last,
// as an upgrade does, or a downgrade if the new build runs already.
func rollingRestart(ctx context.Context, w *World) (*Injection, error) {
	if w.OtherBinary == "" {
		return nil, errors.New("there is no other build: the scenario needs one")
	}
	leader, err := w.Cluster.Leader(ctx)
	if err != nil {
		return nil, err
	}
	order := slices.Concat(others(w.Cluster.Servers, leader), []*cluster.Member{leader}, w.Cluster.Agents)
	before, err := w.Cluster.Status(ctx, leader)
	if err != nil {
		return nil, err
	}
	start, next := w.Record.Now(), w.OtherBinary
	w.OtherBinary = leader.Binary
	for _, m := range order {
		m.Stop(changeMax)
		m.SetBinary(next)
		if err := m.Start(); err != nil {
			return nil, err
		}
		if err := w.healthy(ctx); err != nil {
			return nil, fmt.Errorf("after %s was restarted: %w", m.Name, err)
		}
	}
	return &Injection{Start: start, Target: names(order), End: func(ctx context.Context) (string, error) {
		after, err := w.Cluster.Status(ctx, leader)
		if err != nil || after.Version == before.Version {
			return "", err
		}
		return fmt.Sprintf("all were restarted, from version %s to %s", before.Version, after.Version), nil
	}}, nil
}

// healthy waits until everybody is back.
func (w *World) healthy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, changeMax)
	defer cancel()
	return w.Cluster.WaitHealthy(ctx)
}
