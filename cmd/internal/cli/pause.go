package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

func (a *app) trajectoryPauseCmd() *cobra.Command {
	return a.trajectoryVerb("pause", "Freeze what a trajectory runs: it keeps its memory and holds no cores", "  rota trajectory pause 7\n  rota trajectory resume 7",
		func(ctx context.Context, c *client.Client, id uint64) (*rotav1.Trajectory, error) {
			resp, err := call(ctx, a, c.Trajectories.PauseTrajectory, &rotav1.PauseTrajectoryRequest{Id: id})
			return resp.GetTrajectory(), err
		})
}

// trajectoryResumeCmd lets go on whatever of a trajectory is held.
func (a *app) trajectoryResumeCmd() *cobra.Command {
	return a.trajectoryVerb("resume", "Let a paused trajectory go on, and the requests of a suspended one", "  rota trajectory resume 7",
		func(ctx context.Context, c *client.Client, id uint64) (*rotav1.Trajectory, error) {
			resp, err := call(ctx, a, c.Trajectories.ResumeTrajectory, &rotav1.ResumeTrajectoryRequest{Id: id})
			if err != nil || resp.GetTrajectory().GetGeneration() == nil {
				return resp.GetTrajectory(), err
			}
			if _, err := call(ctx, a, c.Workers.ResumeGeneration, &rotav1.ResumeGenerationRequest{Id: id}); err != nil {
				return nil, err
			}
			got, err := call(ctx, a, c.Trajectories.GetTrajectory, &rotav1.GetTrajectoryRequest{Id: id})
			return got.GetTrajectory(), err
		})
}

// timeoutTexts say when a trajectory closes by itself, and when it is paused by itself; empty: never.
func timeoutTexts(t *rotav1.Trajectory) (closes, pauses string) {
	if t.GetState() >= rotav1.TrajectoryState_TRAJECTORY_STATE_CLOSING {
		return "", ""
	}
	var ends []string
	if at := t.GetExpireTime(); at != nil {
		when := "at " + formatTime(at)
		if since := t.GetPauseTime(); since != nil {
			when = formatDuration(at.AsTime().Sub(since.AsTime())) + " after it is resumed"
		}
		if t.GetPauseAtTimeout() {
			pauses = when
		} else {
			ends = append(ends, when)
		}
	}
	if idle := t.GetIdleTimeout().AsDuration(); idle > 0 {
		ends = append(ends, formatDuration(idle)+" after its last action")
	}
	return strings.Join(ends, ", or "), pauses
}

// pauseText says whether a trajectory is paused; empty: it is not.
func pauseText(t *rotav1.Trajectory) string {
	switch t.GetPause() {
	case rotav1.PauseState_PAUSE_STATE_PAUSING:
		return "being frozen since " + formatTime(t.GetPauseTime())
	case rotav1.PauseState_PAUSE_STATE_PAUSED:
		return "since " + formatTime(t.GetPauseTime())
	case rotav1.PauseState_PAUSE_STATE_RESUMING:
		return "was resumed, and some of its processes wait for their cores"
	}
	return ""
}
