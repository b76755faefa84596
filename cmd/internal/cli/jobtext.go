package cli

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	rotav1 "rota/api/gen/rota/v1"
)

func jobState(j *rotav1.Job) string {
	word := enumWord(j.State, "JOB_STATE_")
	if j.Deleting {
		return word + " (deleting)"
	}
	return word
}

func jobRow(j *rotav1.Job) []string {
	return []string{
		j.Name, jobState(j), orDash(j.Group), jobReservation(j), fmt.Sprint(j.FinishedCycles), percentPPM(j.SlowdownPpm),
		nodeHours(j.UsedMicroNodeHours), nodeHours(j.SavedMicroNodeHours), j.Message,
	}
}

func (a *app) printJob(j *rotav1.Job) error {
	live := ""
	if j.LiveTurns > 0 {
		live = fmt.Sprint(j.LiveTurns)
	}
	return a.printFields(j, []field{
		{"id", fmt.Sprint(j.Id)}, {"name", j.Name}, {"namespace", j.Namespace}, {"state", jobState(j)}, {"waits for", j.Message},
		{"nodes", fmt.Sprint(j.Nodes)}, {"group", j.Group}, {"reservation", jobReservation(j)}, {"cycle", cycleText(j.Cycle)},
		{"step", stepText(j)}, {"finished cycles", fmt.Sprint(j.FinishedCycles)}, {"live turns", live}, {"hooks", hooksText(j)}, {"labels", labelsText(j.Labels)},
		{"waited", percentPPM(j.WaitedPpm)}, {"slower", percentPPM(j.SlowdownPpm)},
		{"node-hours", nodeHours(j.UsedMicroNodeHours)}, {"saved node-hours", nodeHours(j.SavedMicroNodeHours)},
		{"submitted", formatTime(j.SubmitTime)}, {"started", formatTime(j.StartTime)}, {"ended", formatTime(j.EndTime)},
	})
}

// hooksText says "actor: sleep, wake; critic: sleep" of the deployments that have hooks.
func hooksText(j *rotav1.Job) string {
	var all []string
	for _, d := range j.Deployments {
		if len(d.Hooks) > 0 {
			all = append(all, d.Name+": "+strings.Join(d.Hooks, ", "))
		}
	}
	return strings.Join(all, "; ")
}

// printProfile shows what operations take, by deployment.
func (a *app) printProfile(j *rotav1.Job) error {
	fields := []field{{"name", j.Name}, {"cycle", orText(cycleText(j.Cycle), "not known yet")}}
	for i, s := range j.GetCycle().GetSegments() {
		fields = append(fields, field{fmt.Sprintf("segment %d", i+1), segmentText(s)})
	}
	fields = append(fields, field{"set-up", optionalDuration(j.SetUp)})
	for _, d := range j.Deployments {
		var known []string
		if d.SetUp != nil {
			known = append(known, "set-up "+optionalDuration(d.SetUp))
		}
		for _, o := range d.Operations {
			known = append(known, operationWord(o.Operation)+" "+optionalDuration(o.Exec))
		}
		fields = append(fields, field{d.Name, orText(strings.Join(known, ", "), "nothing measured yet")})
	}
	return a.printFields(j, fields)
}

// explainJob says in a sentence why a job is where it is.
func explainJob(j *rotav1.Job) string {
	switch {
	case j.State != rotav1.JobState_JOB_STATE_RUNNING:
		return strings.TrimSuffix(fmt.Sprintf("%s is %s: %s", j.Name, jobState(j), j.Message), ": ")
	case j.Backfill:
		return fmt.Sprintf("%s runs on %s without a reservation, when other jobs leave the group free", j.Name, j.Group)
	case j.GetReservation().GetDedicated():
		return fmt.Sprintf("%s has %s to itself until rota has learned its cycle from its first cycle", j.Name, j.Group)
	}
	p := j.GetPlacement()
	return fmt.Sprintf("%s shares %s: its start was moved by %s, its cycle is %s longer, the placement cost %s of a cycle, "+
		"for %s of the period the gaps to other reservations are shorter than the variation of operations; it has waited %s of its time",
		j.Name, j.Group, formatDuration(p.GetShift().AsDuration()), percentPPM(p.GetStretchPpm()), percentPPM(p.GetCostPpm()),
		percentPPM(p.GetInterferencePpm()), percentPPM(j.WaitedPpm))
}

// jobReservation says "5m0s, held 2m0s", "dedicated" or "backfill".
func jobReservation(j *rotav1.Job) string {
	switch {
	case j.Backfill:
		return "backfill"
	case j.Reservation == nil:
		return "-"
	case j.Reservation.Dedicated:
		return "dedicated"
	}
	return cycleText(j.Reservation.Cycle)
}

// cycleText says "5m0s, held 2m0s in 2 segments"; nothing for an unknown one.
func cycleText(c *rotav1.Cycle) string {
	if c == nil {
		return ""
	}
	held := time.Duration(0)
	for _, s := range c.Segments {
		held += s.Length.AsDuration()
	}
	text := fmt.Sprintf("%v, held %v", c.Period.AsDuration(), held)
	if n := len(c.Segments); n > 1 {
		text += fmt.Sprintf(" in %d segments", n)
	}
	return text
}

func segmentText(s *rotav1.Segment) string {
	return fmt.Sprintf("from %v for %v on %s", s.Offset.AsDuration(), s.Length.AsDuration(), plural(int(s.Nodes), "node"))
}

func stepText(j *rotav1.Job) string {
	if j.Step == 0 {
		return ""
	}
	return fmt.Sprintf("%d since %s", j.Step, formatTime(j.StepTime))
}

// percentPPM writes parts per million as 5.2 %.
func percentPPM(ppm int64) string { return fmt.Sprintf("%d.%d %%", ppm/10_000, ppm%10_000/1000) }

// nodeHours writes millionths of a node-hour with two digits.
func nodeHours(micro uint64) string {
	return fmt.Sprintf("%d.%02d", micro/1_000_000, micro%1_000_000/10_000)
}

func orText(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

func optionalDuration(d *durationpb.Duration) string {
	if d == nil {
		return ""
	}
	return formatDuration(d.AsDuration())
}
