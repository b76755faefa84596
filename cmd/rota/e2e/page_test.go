package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	rotav1 "rota/api/gen/rota/v1"
	"rota/cmd/internal/devcluster"
	"rota/internal/need"
)

// TestPage: each part of the web page of a server shows what is there, as long as it is so, and a
// browser runs its scripts under the page's own policy.
func TestPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, patient, devcluster.Config{Servers: 1, Agents: 1, AgentArgs: []string{"--simulated-gpus", "2xH100:80GiB"}})
	base := "http://" + w.cluster.Addrs()[0]
	trajectory := w.fillPage()

	for path, wants := range map[string][]string{
		"":                           {"server-1", "Where the time goes", "default"},
		"actions?state=all":          {"named-action", "succeeded", "sh -c"},
		"actions/1":                  {"named-action", "printed by it", "exited"},
		"nodes":                      {"node-1", "of 4"},
		"nodes/node-1":               {"core 3", "simulated-H100"},
		"gpus":                       {"simulated-H100"},
		"quotas":                     {"quota-of-the-page", "0 of 7"},
		"ledger":                     {"group-of-the-page", "job-of-the-page", "<path"},
		"trajectories":               {"trajectory-of-the-page"},
		"trajectories/" + trajectory: {"trajectory-of-the-page", "<rect"},
		"rollouts":                   {"rollout-of-the-page", "worker-of-the-page"},
	} {
		got := w.page(base + "/ui/" + path)
		for _, want := range wants {
			if !strings.Contains(got, want) {
				t.Errorf("page %q does not have %q", path, want)
			}
		}
		if strings.Contains(got, `role="alert">`) && strings.Contains(got, `class="error"`) {
			t.Errorf("page %q shows an error:\n%s", path, got)
		}
	}
	if got := w.page(base + "/"); !strings.Contains(got, "<title>Overview") {
		t.Error("the root of a server does not lead to its page")
	}
	if got := w.page(base + "/ui/actions/999"); !strings.Contains(got, "999") || !strings.Contains(got, `class="error"`) {
		t.Error("an action that is not there is no error of the page")
	}
	w.pageLives(base)
	w.pageInBrowser(base)
}

// fillPage gives each part of the page something to show. It returns the ID of a trajectory.
func (w *world) fillPage() string {
	w.Helper()
	ctx := w.Context()
	try := func(_ any, err error) {
		w.Helper()
		if err != nil {
			w.Fatal(err)
		}
	}
	opened, err := w.api.Trajectories.OpenTrajectory(ctx, &rotav1.OpenTrajectoryRequest{Name: "trajectory-of-the-page", MemoryBytes: 1 << 20})
	try(opened, err)
	try(w.api.Actions.SubmitActions(ctx, &rotav1.SubmitActionsRequest{Actions: []*rotav1.ActionSpec{{
		Name: "named-action", TrajectoryId: opened.Trajectory.Id,
		Command: &rotav1.Command{Argv: []string{"sh", "-c", "echo printed by it"}},
	}}}))
	w.until("the action ended", func() bool {
		got, err := w.api.Actions.GetAction(ctx, &rotav1.GetActionRequest{Id: 1})
		return err == nil && got.Action.State == rotav1.ActionState_ACTION_STATE_SUCCEEDED
	})
	try(w.api.Quotas.CreateQuota(ctx, &rotav1.CreateQuotaRequest{
		Name: "quota-of-the-page", Kind: rotav1.QuotaKind_QUOTA_KIND_CONCURRENCY, Limit: 7,
	}))
	try(w.api.Ledger.CreateNodeGroup(ctx, &rotav1.CreateNodeGroupRequest{Name: "group-of-the-page", Nodes: 2}))
	try(w.api.Jobs.SubmitJob(ctx, &rotav1.SubmitJobRequest{Name: "job-of-the-page", Nodes: 2, Cycle: &rotav1.Cycle{
		Period:   durationpb.New(time.Minute),
		Segments: []*rotav1.Segment{{Length: durationpb.New(20 * time.Second), Nodes: 2}},
	}}))
	try(w.api.Rollouts.CreateRollout(ctx, &rotav1.CreateRolloutRequest{Spec: &rotav1.RolloutSpec{
		Name: "rollout-of-the-page", Policy: "policy", Groups: 1, SamplesPerGroup: 1,
	}}))
	try(w.api.Workers.RegisterWorker(ctx, &rotav1.RegisterWorkerRequest{Spec: &rotav1.WorkerSpec{
		Name: "worker-of-the-page", Policy: "policy", Url: "http://127.0.0.1:9",
		Profile: &rotav1.WorkerProfile{Points: []*rotav1.WorkerProfilePoint{{BatchSize: 1, TokenTime: durationpb.New(time.Millisecond)}}},
	}}))
	return fmt.Sprint(opened.Trajectory.Id)
}

// page reads a page, whose policy must allow no scripts but its own.
func (w *world) page(url string) string {
	w.Helper()
	resp, err := http.Get(url)
	if err != nil {
		w.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	policy := resp.Header.Get("Content-Security-Policy")
	if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(policy, "script-src 'self';") {
		w.Errorf("%s: status %d, policy %q, error %v", url, resp.StatusCode, policy, err)
	}
	return string(raw)
}

// pageLives: an open page is told of an action that is submitted after it was opened.
func (w *world) pageLives(base string) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/ui/live/actions?state=all", nil)
	if err != nil {
		w.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	submitted := false
	for lines.Scan() {
		if !submitted && strings.Contains(lines.Text(), "named-action") {
			submitted = true
			if _, err := w.api.Actions.SubmitActions(ctx, &rotav1.SubmitActionsRequest{Actions: []*rotav1.ActionSpec{{
				Name: "later-action", Command: &rotav1.Command{Argv: []string{"true"}},
			}}}); err != nil {
				w.Fatal(err)
			}
		}
		if strings.Contains(lines.Text(), "later-action") {
			return
		}
	}
	w.Errorf("the open page was not told of the action: %v", lines.Err())
}

// pageInBrowser: Chromium draws the page, in both colour schemes, and has nothing to complain of.
func (w *world) pageInBrowser(base string) {
	w.Helper()
	need.Tool(w, "chromium")
	browse := func(limit time.Duration, args ...string) (out, complaint string) {
		w.Helper()
		ctx, cancel := context.WithTimeout(w.Context(), patience)
		defer cancel()
		args = append([]string{
			"--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--window-size=1400,1000",
			fmt.Sprintf("--timeout=%d", limit.Milliseconds()), "--user-data-dir=" + w.TempDir(),
		}, args...)
		cmd := exec.CommandContext(ctx, "chromium", args...)
		var console strings.Builder
		cmd.Stderr = &console
		dom, err := cmd.Output()
		if err != nil {
			w.Fatalf("chromium: %v\n%s", err, &console)
		}
		for line := range strings.Lines(console.String()) {
			if strings.Contains(line, "CONSOLE") {
				complaint += line
			}
		}
		return string(dom), complaint
	}
	// A browser also complains when its time is over in the middle of a request, so a busy machine gets more.
	look := func(args ...string) (out string) {
		w.Helper()
		complaint := ""
		for _, limit := range []time.Duration{3 * time.Second, 10 * time.Second, patience / 3} {
			if out, complaint = browse(limit, args...); complaint == "" {
				return out
			}
		}
		w.Errorf("the browser complains each time: %s", complaint)
		return out
	}
	dom := look("--dump-dom", base+"/ui/")
	for _, want := range []string{"<canvas", "server-1", `class="u-legend`} {
		if !strings.Contains(dom, want) {
			w.Errorf("the page in the browser does not have %q", want)
		}
	}
	for name, flag := range map[string]string{"light": "--hide-scrollbars", "dark": "--force-dark-mode"} {
		file := filepath.Join(w.dir, "page-"+name+".png")
		look(flag, "--screenshot="+file, base+"/ui/ledger")
		if info, err := os.Stat(file); err != nil || info.Size() < 10_000 {
			w.Errorf("no screenshot in %s: %v", file, err)
		}
	}
}
