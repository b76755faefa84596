package leader

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
)

// TestAFailedPrefetchIsTriedAgain while the job comes next, whether it was refused or lost, and runs once.
func TestAFailedPrefetchIsTriedAgain(t *testing.T) {
	c := newCluster(t)
	c.pass(time.Second)
	spec, err := (&rotav1.ActionSpec{RunTimeout: durationpb.New(time.Hour)}).MarshalVT()
	if err != nil {
		t.Fatal(err)
	}
	c.must(
		registration("n"),
		&logv1.Command{Verb: &logv1.Command_CreateNodeGroup{CreateNodeGroup: &logv1.CreateNodeGroup{Name: "g", Nodes: 1}}},
		&logv1.Command{Verb: &logv1.Command_SubmitJob{SubmitJob: &logv1.SubmitJob{
			Name: "j", Nodes: 1, Cycle: &logv1.Cycle{PeriodNs: int64(time.Minute), Segments: []*logv1.Segment{{LengthNs: int64(10 * time.Second), Nodes: 1}}},
			Hooks: []*logv1.DeploymentHooks{{Deployment: "d", Prefetch: &logv1.Action{Spec: spec, CoresMin: 1, CoresMax: 1, AttemptsMax: 1}}},
		}}})
	c.refused = "SubmitActions"
	c.pass(5 * time.Second)
	c.refused, c.lost = "", true
	c.pass(5 * time.Second)
	if n := c.proposed["SubmitActions"]; n < 9 || n > 11 {
		t.Fatalf("tried %d times in 10 s", n)
	}
	c.lost = false
	before := c.proposed["SubmitActions"]
	c.wait(10 * time.Second)
	if n := c.proposed["SubmitActions"] - before; n != 1 {
		t.Errorf("submitted %d times once that succeeds", n)
	}
}
