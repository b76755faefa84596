package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

func (a *app) migrationCmd() *cobra.Command {
	return group("migration", "Copy KV caches from one node to another, and see such copies",
		a.migrationRequestCmd(), a.reads(a.migrationListCmd()), a.reads(a.migrationGetCmd()), a.reads(a.migrationExplainCmd()), a.migrationCancelCmd())
}

// migrationFlags are the flags of a request for a migration.
type migrationFlags struct {
	from, to, tag    string
	prefixes, keys   []string
	trajectory       uint64
	length           uint64
	queueMax, runMax time.Duration
	wait             bool
}

func (a *app) migrationRequestCmd() *cobra.Command {
	var f migrationFlags
	cmd := &cobra.Command{
		Use: "request --from NODE --to NODE", Short: "Ask for KV caches to be copied to another node", Args: exactly(),
		Long: `Asks for values of a node's KV cache to be copied to another node. The cluster decides when
the copy runs: the longest trajectory first, and each node in one copy at a time.

With --trajectory, the copy runs only in a tool gap: while an action of the trajectory is
queued or runs, and the model waits for it. A copy that is not done when the last of these
actions ends is abandoned. What was copied until then stays at the target. Without --tag,
--prefix and --cache-key, the values with the tag trajectory%ID are copied: those of requests
with "lmcache.tag.trajectory": "ID".`,
		Example: `  rota migration request --from node-1 --to node-2 --trajectory 7 --length 12000
  rota migration request --from node-1 --to node-2 --prefix model-7b@ --wait`,
		RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
			req, err := f.request(a.settings.namespace)
			if err != nil {
				return err
			}
			id, err := c.RequestMigration(ctx, req)
			if err != nil {
				return err
			}
			if f.wait {
				return a.waitMigration(ctx, c, id)
			}
			return a.showMigration(ctx, c, id)
		}),
	}
	f.addTo(cmd)
	return cmd
}

func (f *migrationFlags) addTo(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.from, "from", "", "node that has the values")
	fs.StringVar(&f.to, "to", "", "node that is to have the values too")
	fs.Uint64Var(&f.trajectory, "trajectory", 0, "trajectory whose KV cache it is; the copy runs in tool gaps of the trajectory only")
	fs.StringVar(&f.tag, "tag", "", "copy the values with this LMCache tag, such as job%5")
	fs.StringArrayVar(&f.prefixes, "prefix", nil, "copy the values whose keys begin so; repeat the flag for more prefixes")
	fs.StringArrayVar(&f.keys, "cache-key", nil, "copy the value with this key in the KV cache; repeat the flag for more keys")
	fs.Uint64Var(&f.length, "length", 0, "predicted remaining length of the trajectory, such as tokens; the longest goes first")
	fs.DurationVar(&f.queueMax, "queue-timeout", 0, "longest wait for the copy to begin; 0: 10 minutes")
	fs.DurationVar(&f.runMax, "run-timeout", 0, "longest time that the copy may take; 0: 5 minutes")
	fs.BoolVar(&f.wait, "wait", false, "wait for the end; the exit code is 1 unless everything was copied")
}

func (f *migrationFlags) request(namespace string) (*rotav1.RequestMigrationRequest, error) {
	req := &rotav1.RequestMigrationRequest{Namespace: namespace, Source: f.from, Target: f.to, TrajectoryId: f.trajectory, Length: f.length}
	selects := f.tag != "" || len(f.prefixes)+len(f.keys) > 0
	switch {
	case f.from == "" || f.to == "":
		return nil, usageErrorf("which nodes to copy between is not given; give --from NODE and --to NODE")
	case !selects && f.trajectory == 0:
		return nil, usageErrorf("what to copy is not given; give --trajectory ID, --tag, --prefix or --cache-key")
	case selects:
		req.Selector = &rotav1.MigrationSelector{Tag: f.tag, Prefixes: f.prefixes, Keys: f.keys}
	}
	if f.queueMax != 0 {
		req.QueueTimeout = durationpb.New(f.queueMax)
	}
	if f.runMax != 0 {
		req.RunTimeout = durationpb.New(f.runMax)
	}
	return req, nil
}

func (a *app) waitMigration(ctx context.Context, c *client.Client, id uint64) error {
	m, err := c.WaitMigration(ctx, id)
	if err != nil {
		return err
	}
	if err := a.printMigration(m); err != nil || m.State == rotav1.MigrationState_MIGRATION_STATE_DONE {
		return err
	}
	return &codeError{exitError, errors.New(explainMigration(m))}
}

func (a *app) showMigration(ctx context.Context, c *client.Client, id uint64) error {
	m, err := a.migration(ctx, c, id)
	if err != nil {
		return err
	}
	return a.printMigration(m)
}

func (a *app) migration(ctx context.Context, c *client.Client, id uint64) (*rotav1.Migration, error) {
	resp, err := call(ctx, a, c.Migrations.GetMigration, &rotav1.GetMigrationRequest{Id: id})
	return resp.GetMigration(), err
}

func (a *app) migrationListCmd() *cobra.Command {
	var live bool
	var node string
	var trajectory uint64
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List migrations", Args: exactly(),
		Example: "  rota migration list --live\n  rota migration list --node node-1",
		RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
			all := &rotav1.ListMigrationsResponse{}
			req := &rotav1.ListMigrationsRequest{Namespace: a.settings.namespace, Live: live, Node: node, TrajectoryId: trajectory, PageSize: 1000}
			err := pages(ctx, a, c.Migrations.ListMigrations, req, &req.PageToken, func(page *rotav1.ListMigrationsResponse) {
				all.Migrations = append(all.Migrations, page.Migrations...)
			})
			if err != nil {
				return err
			}
			rows := make([][]string, 0, len(all.Migrations))
			for _, m := range all.Migrations {
				rows = append(rows, []string{strconv.FormatUint(m.Id, 10), migrationState(m), m.Source, m.Target,
					optionalID(m.TrajectoryId), fmt.Sprint(m.Length), progressText(m), formatTime(m.RequestTime)})
			}
			return a.print(all, []string{"id", "state", "from", "to", "trajectory", "length", "copied", "requested"}, rows)
		}),
	}
	cmd.Flags().BoolVar(&live, "live", false, "list only migrations that are queued or run")
	cmd.Flags().StringVar(&node, "node", "", "list only migrations from or to this node")
	cmd.Flags().Uint64Var(&trajectory, "trajectory", 0, "list only migrations of this trajectory")
	return cmd
}

func (a *app) migrationGetCmd() *cobra.Command {
	return &cobra.Command{
		Use: "get ID", Short: "Show one migration", Args: exactly("ID"), Example: "  rota migration get 7",
		RunE: a.withID(a.showMigration),
	}
}

func (a *app) migrationExplainCmd() *cobra.Command {
	return &cobra.Command{
		Use: "explain ID", Short: "Say what a migration waits for, or how it ended", Args: exactly("ID"), Example: "  rota migration explain 7",
		RunE: a.withID(func(ctx context.Context, c *client.Client, id uint64) error {
			m, err := a.migration(ctx, c, id)
			if err != nil {
				return err
			}
			return a.printFields(m, []field{{"migration", strconv.FormatUint(id, 10)}, {"explanation", explainMigration(m)}})
		}),
	}
}

func (a *app) migrationCancelCmd() *cobra.Command {
	return &cobra.Command{
		Use: "cancel ID", Short: "End a migration; what was copied stays at the target", Args: exactly("ID"), Example: "  rota migration cancel 7",
		RunE: a.withID(func(ctx context.Context, c *client.Client, id uint64) error {
			if _, err := call(ctx, a, c.Migrations.CancelMigration, &rotav1.CancelMigrationRequest{Id: id}); err != nil {
				return err
			}
			return a.showMigration(ctx, c, id)
		}),
	}
}

func (a *app) printMigration(m *rotav1.Migration) error {
	return a.printFields(m, []field{
		{"migration", strconv.FormatUint(m.GetId(), 10)},
		{"state", migrationState(m)},
		{"explanation", explainMigration(m)},
		{"namespace", m.GetNamespace()},
		{"trajectory", optionalID(m.GetTrajectoryId())},
		{"from", m.GetSource()},
		{"to", m.GetTarget()},
		{"selects", selectorText(m.GetSelector())},
		{"length", fmt.Sprint(m.GetLength())},
		{"copied", progressText(m)},
		{"requested", formatTime(m.GetRequestTime())},
		{"started", formatTime(m.GetStartTime())},
		{"ended", formatTime(m.GetEndTime())},
	})
}

func migrationState(m *rotav1.Migration) string { return enumWord(m.GetState(), "MIGRATION_STATE_") }

// progressText is "2.0MiB of 5.0MiB, 3.0MiB were there"; empty before the end.
func progressText(m *rotav1.Migration) string {
	p := m.GetProgress()
	if !client.MigrationEnded(m.GetState()) || m.GetStartTime() == nil {
		return ""
	}
	text := fmt.Sprintf("%s of %s", formatSize(p.GetMovedBytes()), formatSize(p.GetTotalBytes()))
	if p.GetPresentBytes() > 0 {
		text += fmt.Sprintf(", %s were there", formatSize(p.GetPresentBytes()))
	}
	return text
}

// selectorText is "tag job%5, keys beginning with a, b".
func selectorText(s *rotav1.MigrationSelector) string {
	var parts []string
	if s.GetTag() != "" {
		parts = append(parts, "tag "+s.GetTag())
	}
	if len(s.GetPrefixes()) > 0 {
		parts = append(parts, "keys beginning with "+strings.Join(s.GetPrefixes(), ", "))
	}
	if n := len(s.GetKeys()); n > 0 {
		parts = append(parts, plural(n, "key"))
	}
	return strings.Join(parts, "; ")
}

// explainMigration says in a sentence why a migration is where it is.
func explainMigration(m *rotav1.Migration) string {
	switch m.GetState() {
	case rotav1.MigrationState_MIGRATION_STATE_QUEUED:
		return waitText(m)
	case rotav1.MigrationState_MIGRATION_STATE_RUNNING:
		return fmt.Sprintf("node %s copies from node %s", m.GetTarget(), m.GetSource())
	case rotav1.MigrationState_MIGRATION_STATE_DONE:
		return "everything that was selected has been copied"
	}
	return fmt.Sprintf("%s: %s", migrationState(m), endText(m))
}

// waitText says what a queued migration waits for.
func waitText(m *rotav1.Migration) string {
	w := m.GetWait()
	switch w.GetObstacle() {
	case rotav1.MigrationObstacle_MIGRATION_OBSTACLE_NODE_DOWN:
		return fmt.Sprintf("waits for node %s, which is down", w.GetNode())
	case rotav1.MigrationObstacle_MIGRATION_OBSTACLE_TARGET_DRAINS:
		return fmt.Sprintf("waits for the target %s, which is drained; see: rota node get %s", w.GetNode(), w.GetNode())
	case rotav1.MigrationObstacle_MIGRATION_OBSTACLE_NO_CACHE:
		return fmt.Sprintf("waits for node %s to have a KV cache; start its agent with --kv-memory", w.GetNode())
	case rotav1.MigrationObstacle_MIGRATION_OBSTACLE_NO_GAP:
		return fmt.Sprintf("waits for a tool gap of trajectory %d: no action of the trajectory is queued or runs", m.GetTrajectoryId())
	case rotav1.MigrationObstacle_MIGRATION_OBSTACLE_NODE_BUSY:
		return fmt.Sprintf("waits for node %s, which is in migration %d", w.GetNode(), w.GetMigrationId())
	}
	return "is about to start"
}

// endText says why a migration ended before it was done.
func endText(m *rotav1.Migration) string {
	switch m.GetReason() {
	case rotav1.MigrationReason_MIGRATION_REASON_GAP_ENDED:
		return fmt.Sprintf("the last action of trajectory %d ended first, so its model may write the KV cache again", m.GetTrajectoryId())
	case rotav1.MigrationReason_MIGRATION_REASON_TRAJECTORY_ENDED:
		return fmt.Sprintf("trajectory %d was closed or lost", m.GetTrajectoryId())
	case rotav1.MigrationReason_MIGRATION_REASON_QUEUE_TIMEOUT:
		return fmt.Sprintf("it waited for %s, its queue timeout", optionalDuration(m.GetQueueTimeout()))
	case rotav1.MigrationReason_MIGRATION_REASON_RUN_TIMEOUT:
		return fmt.Sprintf("it ran for %s, its run timeout", optionalDuration(m.GetRunTimeout()))
	case rotav1.MigrationReason_MIGRATION_REASON_NODE_LOST:
		return fmt.Sprintf("node %s or node %s was lost, restarted without what it ran, or was removed", m.GetSource(), m.GetTarget())
	case rotav1.MigrationReason_MIGRATION_REASON_CANCELED:
		return "a client canceled it"
	case rotav1.MigrationReason_MIGRATION_REASON_TRANSFER:
		return fmt.Sprintf("node %s could not copy: %s", m.GetTarget(), m.GetMessage())
	case rotav1.MigrationReason_MIGRATION_REASON_INTERNAL:
		return fmt.Sprintf("the scheduler failed: %s; please report this", m.GetMessage())
	}
	return "for a reason that this version of rota does not know"
}
