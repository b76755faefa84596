package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

func (a *app) trajectoryCmd() *cobra.Command {
	return group("trajectory", "Open, close and see trajectories: sessions with a node and reserved memory",
		a.trajectoryOpenCmd(), a.trajectoryExtendCmd(), a.trajectoryCloseCmd(), a.reads(a.trajectoryGetCmd()), a.reads(a.trajectoryListCmd()), a.reads(a.trajectorySummaryCmd()), a.reads(a.trajectoryUsageCmd()),
		a.trajectorySuspendCmd(), a.trajectoryPauseCmd(), a.trajectoryResumeCmd())
}

func objectiveFlag(cmd *cobra.Command, objective *string) {
	cmd.Flags().StringVar(objective, "objective", "mean", "what cores are divided for: mean (actions complete soon) or step (the last trajectory of a step ends soon)")
	words(cmd, "objective", "mean", "step")
}

// unlessZero is nil for no time at all.
func unlessZero(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

// spread adds the flags that name a group of trajectories and the label that keeps them apart.
func spread(cmd *cobra.Command, group, label *string) {
	cmd.Flags().StringVar(group, "spread-group", "", "prefer failure domains with few trajectories of this group, such as a step of a job")
	cmd.Flags().StringVar(label, "spread-label", "", "label of nodes; its values are the failure domains, such as zone")
}

func (a *app) trajectoryOpenCmd() *cobra.Command {
	var (
		name, pool, dir, objective string
		group, label               string
		memory                     size
		idle, timeout              time.Duration
		env, labels                []string
		generation                 generationFlags
		rollout, snapshot          uint64
		member                     uint32
		container                  containerFlags
		pause                      bool
	)
	cmd := &cobra.Command{
		Use: "open", Short: "Open a trajectory on the node with the most free memory", Args: exactly(),
		Example: "  id=$(rota trajectory open --memory 512MiB -o json | jq -r .id)\n" +
			"  rota run --trajectory $id -- pytest -x\n" +
			"  rota trajectory open --memory 512MiB --spread-group step-12 --spread-label zone\n" +
			"  rota trajectory open --memory 512MiB --objective step\n" +
			"  rota trajectory open --memory 512MiB --env CI=1 --dir project\n" +
			"  rota trajectory open --memory 2GiB --image python:3.12\n" +
			"  rota trajectory open --policy math-7b --class gsm8k --prompt-tokens 900 --hardware h800,h20\n" +
			"  rota trajectory open --label run=42 --label task=django-1234\n" +
			"  rota trajectory open --rollout 3 --group 0\n" +
			"  rota trajectory open --memory 512MiB --snapshot 3\n" +
			"  rota trajectory open --memory 512MiB --timeout 1h --pause-at-timeout",
		RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
			req := &rotav1.OpenTrajectoryRequest{
				Namespace: a.settings.namespace, Name: name, Pool: pool, MemoryBytes: uint64(memory),
				SpreadGroup: group, SpreadLabel: label, Timeout: durationpb.New(timeout), SnapshotId: snapshot, IdleTimeout: unlessZero(idle), PauseAtTimeout: pause,
			}
			switch objective {
			case "mean":
			case "step":
				req.Objective = rotav1.Objective_OBJECTIVE_STEP
			default:
				return usageErrorf("--objective must be mean or step, not %q", objective)
			}
			inside, err := container.spec()
			if err != nil {
				return err
			}
			if req.Spec, err = trajectorySpec(dir, env, inside); err != nil {
				return err
			}
			if req.Labels, err = parseLabels(labels); err != nil {
				return err
			}
			if req.Rollout, err = membership(rollout, member); err != nil {
				return err
			}
			if req.Generation, err = generation.spec(); err != nil {
				return err
			}
			t, err := c.OpenTrajectory(ctx, req)
			if err != nil {
				return err
			}
			return a.printTrajectory(t)
		}),
	}
	generation.addTo(cmd)
	container.addTo(cmd)
	cmd.Flags().StringVar(&name, "name", "", "free text for humans")
	cmd.Flags().StringVar(&pool, "pool", "", `pool of nodes (default "default")`)
	cmd.Flags().Var(&memory, "memory", "memory to reserve for the life of the trajectory, such as 512MiB")
	cmd.Flags().StringArrayVarP(&env, "env", "e", nil, "environment variable of all commands, NAME=VALUE; repeat the flag for more variables")
	cmd.Flags().StringVar(&dir, "dir", "", "working directory of commands that name none: a path below the directory of the trajectory, or an absolute path that exists on the node")
	cmd.Flags().StringArrayVar(&labels, "label", nil, "label to find the trajectory by, KEY=VALUE; repeat the flag for more labels")
	spread(cmd, &group, &label)
	cmd.Flags().Uint64Var(&rollout, "rollout", 0, "rollout that the trajectory makes a sample for")
	cmd.Flags().Uint32Var(&member, "group", 0, "prompt group of the rollout, from 0; only with --rollout")
	cmd.Flags().Uint64Var(&snapshot, "snapshot", 0, "snapshot whose files the trajectory begins with, on the node of the snapshot")
	objectiveFlag(cmd, &objective)
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "close the trajectory this long after it was opened, whatever it does then; 0: never")
	cmd.Flags().BoolVar(&pause, "pause-at-timeout", false, "pause the trajectory at the end of --timeout instead, and again as long after each resumption")
	cmd.Flags().DurationVar(&idle, "idle-timeout", 0, "close the trajectory after this time without an action; 0: never")
	return cmd
}

// trajectorySpec is what the commands of a trajectory have in common; nil: nothing.
func trajectorySpec(dir string, env []string, inside *rotav1.Container) (*rotav1.TrajectorySpec, error) {
	if dir == "" && len(env) == 0 && inside == nil {
		return nil, nil
	}
	variables, err := parseEnv(env)
	return &rotav1.TrajectorySpec{Dir: dir, Env: variables, Container: inside}, err
}

// trajectoryVerb is a command on one trajectory.
func (a *app) trajectoryVerb(use, short, example string,
	do func(context.Context, *client.Client, uint64) (*rotav1.Trajectory, error)) *cobra.Command {
	return &cobra.Command{
		Use: use + " ID", Short: short, Args: exactly("ID"), Example: example,
		RunE: a.withID(func(ctx context.Context, c *client.Client, id uint64) error {
			t, err := do(ctx, c, id)
			if err != nil {
				return err
			}
			return a.printTrajectory(t)
		}),
	}
}

func (a *app) trajectoryExtendCmd() *cobra.Command {
	var timeout time.Duration
	var onlyLater bool
	cmd := a.trajectoryVerb("extend", "Set when a trajectory closes by itself", "  rota trajectory extend 7 --timeout 30m\n  rota trajectory extend 7 --timeout 0",
		func(ctx context.Context, c *client.Client, id uint64) (*rotav1.Trajectory, error) {
			resp, err := call(ctx, a, c.Trajectories.ExtendTrajectory, &rotav1.ExtendTrajectoryRequest{
				Id: id, Timeout: durationpb.New(timeout), OnlyLater: onlyLater,
			})
			return resp.GetTrajectory(), err
		})
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "close the trajectory this long from now, whatever it does then; 0: never")
	cmd.Flags().BoolVar(&onlyLater, "only-later", false, "leave a later time as it is, and a trajectory that never closes by itself")
	return cmd
}

func (a *app) trajectoryCloseCmd() *cobra.Command {
	return a.trajectoryVerb("close", "Close a trajectory and cancel its remaining actions", "  rota trajectory close 7",
		func(ctx context.Context, c *client.Client, id uint64) (*rotav1.Trajectory, error) {
			resp, err := call(ctx, a, c.Trajectories.CloseTrajectory, &rotav1.CloseTrajectoryRequest{Id: id})
			return resp.GetTrajectory(), err
		})
}

func (a *app) trajectoryGetCmd() *cobra.Command {
	return a.trajectoryVerb("get", "Show one trajectory", "  rota trajectory get 7 -o json",
		func(ctx context.Context, c *client.Client, id uint64) (*rotav1.Trajectory, error) {
			resp, err := call(ctx, a, c.Trajectories.GetTrajectory, &rotav1.GetTrajectoryRequest{Id: id})
			return resp.GetTrajectory(), err
		})
}

func (a *app) printTrajectory(t *rotav1.Trajectory) error {
	closes, pauses := timeoutTexts(t)
	return a.printFields(t, append([]field{
		{"trajectory", optionalID(t.GetId())},
		{"name", t.GetName()},
		{"namespace", t.GetNamespace()},
		{"state", trajectoryState(t)},
		{"paused", pauseText(t)},
		{"pauses", pauses},
		{"closes", closes},
		{"pool", t.GetPool()},
		{"node", t.GetNode()},
		{"waits for", homeText(t)},
		{"spread group", t.GetSpreadGroup()},
		{"spread domain", spreadDomain(t)},
		{"rollout", membershipText(t.GetRollout())},
		{"objective", enumWord(t.GetObjective(), "OBJECTIVE_")},
		{"labels", labelsText(t.GetLabels())},
		{"memory", formatSize(t.GetMemoryBytes())},
		{"directory", t.GetSpec().GetDir()},
		{"environment", strings.Join(slices.Sorted(maps.Keys(t.GetSpec().GetEnv())), " ")},
		{"live actions", fmt.Sprint(t.GetLiveActions())},
		{"opened", formatTime(t.GetOpenTime())},
		{"ended", formatTime(t.GetEndTime())},
	}, generationFields(t.GetGeneration())...))
}

// homeText says what node a pending trajectory waits for; empty: it does not wait.
func homeText(t *rotav1.Trajectory) string {
	if t.GetState() != rotav1.TrajectoryState_TRAJECTORY_STATE_PENDING {
		return ""
	}
	text := fmt.Sprintf("a node of pool %s with %s of free memory", t.GetPool(), formatSize(t.GetMemoryBytes()))
	if t.GetSpec().GetContainer() != nil {
		text += " that runs containers; see: rota node list"
	}
	return text
}

// spreadDomain is the failure domain as LABEL=VALUE.
func spreadDomain(t *rotav1.Trajectory) string {
	if t.GetSpreadLabel() == "" || t.GetNode() == "" {
		return t.GetSpreadLabel()
	}
	return t.GetSpreadLabel() + "=" + t.GetSpreadDomain()
}

func trajectoryState(t *rotav1.Trajectory) string {
	return enumWord(t.GetState(), trajectoryStatePrefix)
}

// membership is the place of a trajectory in a rollout; nil without a rollout.
func membership(rollout uint64, group uint32) (*rotav1.RolloutMembership, error) {
	switch {
	case rollout != 0:
		return &rotav1.RolloutMembership{RolloutId: rollout, Group: group}, nil
	case group != 0:
		return nil, usageErrorf("--group %d is of a rollout; give --rollout ID too", group)
	}
	return nil, nil
}

// membershipText is "3, group 0"; empty without a rollout.
func membershipText(m *rotav1.RolloutMembership) string {
	if m == nil {
		return ""
	}
	return fmt.Sprintf("%d, group %d", m.RolloutId, m.Group)
}
