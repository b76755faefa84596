package cli

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	rotav1 "rota/api/gen/rota/v1"
)

// migrating parses the flags of rota migration request.
func migrating(t *testing.T, args ...string) (*rotav1.RequestMigrationRequest, error) {
	t.Helper()
	var f migrationFlags
	cmd := (&app{}).migrationRequestCmd()
	cmd.ResetFlags()
	f.addTo(cmd)
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	return f.request("team")
}

func TestRequestsForMigrations(t *testing.T) {
	got, err := migrating(t, "--from", "a", "--to", "b", "--trajectory", "7", "--length", "12", "--queue-timeout", "30s")
	want := &rotav1.RequestMigrationRequest{Namespace: "team", Source: "a", Target: "b", TrajectoryId: 7, Length: 12, QueueTimeout: durationpb.New(30 * time.Second)}
	if err != nil || !proto.Equal(got, want) {
		t.Errorf("requested %v, %v; want %v", got, err, want)
	}
	got, err = migrating(t, "--from", "a", "--to", "b", "--tag", "job%5", "--prefix", "p", "--prefix", "q", "--cache-key", "k")
	if err != nil || got.Selector.Tag != "job%5" || len(got.Selector.Prefixes) != 2 || len(got.Selector.Keys) != 1 {
		t.Errorf("requested %v, %v", got, err)
	}
	for says, args := range map[string]string{"give --from NODE": "--to b --cache-key k", "give --trajectory ID": "--from a --to b"} {
		if _, err := migrating(t, strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %s", args, err, says)
		}
	}
}

// TestEveryStateOfAMigrationIsExplained: with words of its own, whatever it waits for and however
// it ended.
func TestEveryStateOfAMigrationIsExplained(t *testing.T) {
	seen := map[string]string{}
	check := func(what string, m *rotav1.Migration) {
		m.Id, m.Source, m.Target, m.TrajectoryId = 1, "a", "b", 7
		text := explainMigration(m)
		if text == "" || strings.Contains(text, "does not know") || seen[text] != "" {
			t.Errorf("%s: %q, as %s", what, text, seen[text])
		}
		seen[text] = what
	}
	for n, name := range rotav1.MigrationObstacle_name {
		check(name, &rotav1.Migration{
			State: rotav1.MigrationState_MIGRATION_STATE_QUEUED, Wait: &rotav1.MigrationWait{Obstacle: rotav1.MigrationObstacle(n), Node: "a", MigrationId: 3},
		})
	}
	for n, name := range rotav1.MigrationReason_name {
		if n > 0 {
			check(name, &rotav1.Migration{State: rotav1.MigrationState_MIGRATION_STATE_FAILED, Reason: rotav1.MigrationReason(n)})
		}
	}
	check("running", &rotav1.Migration{State: rotav1.MigrationState_MIGRATION_STATE_RUNNING})
	check("done", &rotav1.Migration{State: rotav1.MigrationState_MIGRATION_STATE_DONE})
}
