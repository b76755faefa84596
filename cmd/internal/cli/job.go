package cli

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

func (a *app) jobCmd() *cobra.Command {
	return group("job", "Submit, show and end training jobs that share node groups",
		a.jobSubmitCmd(), a.reads(a.jobListCmd()), a.reads(a.jobGetCmd()), a.reads(a.jobProfileCmd()), a.reads(a.jobExplainCmd()),
		a.jobSuspendCmd(), a.jobResumeCmd(), a.jobCompleteCmd(), a.jobDeleteCmd())
}

// jobFlags are the flags of a new job.
type jobFlags struct {
	nodes         uint32
	period, setUp time.Duration
	segments      []string
	backfill      bool
	hooks         hookFlags
	labels        []string
}

func (a *app) jobSubmitCmd() *cobra.Command {
	var f jobFlags
	cmd := &cobra.Command{
		Use: "submit NAME", Short: "Submit a job; rota places it on a node group", Args: exactly("NAME"),
		Long: `Submits a training job. rota places the job on a node group. The processes of the job
then acquire turns on the group with: rota turn run. The cycle of the job says when the
job needs the group: --period, and a --segment for each part in which the job holds the
group. Without a cycle, the job first has a group to itself, and rota learns the cycle
from the job's first cycle.

At a context switch of a group, agents of its --hook-pool run hooks. First they run
--sleep of the old deployment, then --wake of the new deployment. The new deployment
holds its turn only after its --wake hook. --prefetch runs earlier, while another
deployment still has the group. A hook is a command for sh, or an HTTP call: a method
and a URL.`,
		Example: `  rota job submit job-a --nodes 8
  rota job submit job-b --nodes 8 --period 5m --segment 0s:90s --segment 2m:30s:4 --set-up 5s
  rota job submit job-c --nodes 8 --sleep 'rollout=POST http://10.0.0.7:8000/sleep?level=1' \
    --wake 'rollout=POST http://10.0.0.7:8000/wake_up' --prefetch 'rollout=cat /models/c/* > /dev/null'
  rota job submit evals --nodes 4 --backfill`,
		RunE: func(cmd *cobra.Command, args []string) error {
			req, err := f.request(a.settings.namespace, args[0])
			if err != nil {
				return err
			}
			c, err := a.dial()
			if err != nil {
				return err
			}
			job, err := c.SubmitJob(cmd.Context(), req)
			if err != nil {
				return err
			}
			return a.printJob(job)
		},
	}
	fs := cmd.Flags()
	fs.Uint32Var(&f.nodes, "nodes", 1, "number of nodes that the widest segment needs")
	fs.DurationVar(&f.period, "period", 0, "length of the cycle")
	fs.StringArrayVar(&f.segments, "segment", nil, "part of the cycle in which the job holds its group, OFFSET:LENGTH or OFFSET:LENGTH:NODES; repeat the flag for more segments")
	fs.DurationVar(&f.setUp, "set-up", 0, "duration of a context switch between deployments, used until rota has measured it")
	fs.BoolVar(&f.backfill, "backfill", false, "run without a reservation, when other jobs leave the group free")
	f.hooks.flags(fs)
	fs.StringArrayVar(&f.labels, "label", nil, "label to find the job by, KEY=VALUE; repeat the flag for more labels")
	return cmd
}

func (f *jobFlags) request(namespace, name string) (*rotav1.SubmitJobRequest, error) {
	req := &rotav1.SubmitJobRequest{Namespace: namespace, Name: name, Nodes: f.nodes, Backfill: f.backfill}
	if f.setUp != 0 {
		req.SetUp = durationpb.New(f.setUp)
	}
	var err error
	if req.Hooks, err = f.hooks.hooks(); err != nil {
		return nil, err
	}
	if req.Labels, err = parseLabels(f.labels); err != nil {
		return nil, err
	}
	switch {
	case f.period == 0 && len(f.segments) == 0:
		return req, nil
	case f.backfill:
		return nil, usageErrorf("a --backfill job has no reservation; leave out --period and --segment")
	case f.period == 0 || len(f.segments) == 0:
		return nil, usageErrorf("a cycle needs both --period and --segment")
	}
	req.Cycle = &rotav1.Cycle{Period: durationpb.New(f.period)}
	for _, text := range f.segments {
		s, err := parseSegment(text, f.nodes)
		if err != nil {
			return nil, err
		}
		req.Cycle.Segments = append(req.Cycle.Segments, s)
	}
	return req, nil
}

// parseSegment reads OFFSET:LENGTH or OFFSET:LENGTH:NODES.
func parseSegment(text string, nodes uint32) (*rotav1.Segment, error) {
	bad := usageErrorf("--segment %q is not OFFSET:LENGTH or OFFSET:LENGTH:NODES, such as 0s:90s:8", text)
	parts := strings.Split(text, ":")
	if len(parts) < 2 || len(parts) > 3 {
		return nil, bad
	}
	offset, err := time.ParseDuration(parts[0])
	if err != nil {
		return nil, bad
	}
	length, err := time.ParseDuration(parts[1])
	if err != nil {
		return nil, bad
	}
	if len(parts) == 3 {
		n, err := strconv.ParseUint(parts[2], 10, 32)
		if err != nil || n == 0 {
			return nil, bad
		}
		nodes = uint32(n)
	}
	return &rotav1.Segment{Offset: durationpb.New(offset), Length: durationpb.New(length), Nodes: nodes}, nil
}

func (a *app) jobListCmd() *cobra.Command {
	var ended bool
	var labels []string
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List jobs, their placement and the node-hours that they save", Args: exactly(),
		Example: "  rota job list --ended\n  rota job list --label team=vision",
		RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
			all := &rotav1.ListJobsResponse{}
			req := &rotav1.ListJobsRequest{Namespace: a.settings.namespace, IncludeEnded: ended, PageSize: 1000}
			var err error
			if req.Labels, err = parseLabels(labels); err != nil {
				return err
			}
			err = pages(ctx, a, c.Jobs.ListJobs, req, &req.PageToken, func(page *rotav1.ListJobsResponse) {
				all.Jobs = append(all.Jobs, page.Jobs...)
			})
			if err != nil {
				return err
			}
			rows := make([][]string, 0, len(all.Jobs))
			for _, j := range all.Jobs {
				rows = append(rows, jobRow(j))
			}
			return a.print(all, []string{"name", "state", "group", "reservation", "cycles", "slower", "node-hours", "saved", "waits for"}, rows)
		}),
	}
	cmd.Flags().BoolVar(&ended, "ended", false, "list completed jobs too")
	cmd.Flags().StringArrayVar(&labels, "label", nil, "list only jobs with this label, KEY=VALUE; repeat the flag for those with all of several labels")
	return cmd
}

// jobVerb is a command on one job.
func (a *app) jobVerb(use, short, example string, show func(*rotav1.Job) error,
	do func(ctx context.Context, c *client.Client, namespace, name string) (*rotav1.Job, error)) *cobra.Command {
	return &cobra.Command{
		Use: use + " NAME", Short: short, Args: exactly("NAME"), Example: example,
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			j, err := do(ctx, c, a.settings.namespace, args[0])
			if err != nil {
				return err
			}
			return show(j)
		}),
	}
}

func (a *app) getJob(ctx context.Context, c *client.Client, namespace, name string) (*rotav1.Job, error) {
	resp, err := call(ctx, a, c.Jobs.GetJob, &rotav1.GetJobRequest{Namespace: namespace, Name: name})
	return resp.GetJob(), err
}

func (a *app) jobGetCmd() *cobra.Command {
	return a.jobVerb("get", "Show one job", "  rota job get job-a -o json", a.printJob, a.getJob)
}

func (a *app) jobProfileCmd() *cobra.Command {
	return a.jobVerb("profile", "Show the known cycle of a job and its operations", "  rota job profile job-a",
		a.printProfile, a.getJob)
}

func (a *app) jobExplainCmd() *cobra.Command {
	return a.jobVerb("explain", "Explain the placement of a job, or what the job waits for", "  rota job explain job-a",
		func(j *rotav1.Job) error { return a.printLine(j, explainJob(j)) }, a.getJob)
}

func (a *app) jobSuspendCmd() *cobra.Command {
	return a.jobVerb("suspend", "Take a job off its node group; its turns wait", "  rota job suspend job-a", a.printJob,
		func(ctx context.Context, c *client.Client, namespace, name string) (*rotav1.Job, error) {
			resp, err := call(ctx, a, c.Jobs.SuspendJob, &rotav1.SuspendJobRequest{Namespace: namespace, Name: name})
			return resp.GetJob(), err
		})
}

func (a *app) jobResumeCmd() *cobra.Command {
	return a.jobVerb("resume", "Place a suspended job again", "  rota job resume job-a", a.printJob,
		func(ctx context.Context, c *client.Client, namespace, name string) (*rotav1.Job, error) {
			resp, err := call(ctx, a, c.Jobs.ResumeJob, &rotav1.ResumeJobRequest{Namespace: namespace, Name: name})
			return resp.GetJob(), err
		})
}

func (a *app) jobCompleteCmd() *cobra.Command {
	return a.jobVerb("complete", "End a job: cancel its waiting turns, and ask its held turns to stop", "  rota job complete job-a", a.printJob,
		func(ctx context.Context, c *client.Client, namespace, name string) (*rotav1.Job, error) {
			resp, err := call(ctx, a, c.Jobs.CompleteJob, &rotav1.CompleteJobRequest{Namespace: namespace, Name: name})
			return resp.GetJob(), err
		})
}

func (a *app) jobDeleteCmd() *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME", Aliases: []string{"rm"}, Short: "End a job and delete it", Args: exactly("NAME"),
		Example: "  rota job delete job-a",
		RunE: a.with(func(ctx context.Context, c *client.Client, args []string) error {
			resp, err := call(ctx, a, c.Jobs.DeleteJob, &rotav1.DeleteJobRequest{Namespace: a.settings.namespace, Name: args[0]})
			if err != nil {
				return err
			}
			return a.printFields(resp, []field{{"deleted", args[0]}})
		}),
	}
}
