package observe

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"rota/internal/need"
	"rota/internal/telemetry"
)

// metricRE finds the name of a sample of rota, and its value.
var metricRE = regexp.MustCompile(`(?m)^(rota_[a-z0-9_]+)(\{[^}]*\})? (\S+)$`)

// scraped returns the samples of a text by name and labels, and checks names and conventions.
func (w *world) scraped(addr string, of telemetry.Process) map[string]string {
	w.Helper()
	status, text := w.get(addr, "/metrics")
	if status != 200 {
		w.Fatalf("%s: %d %s", addr, status, text)
	}
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		w.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "rota_") { // the others are those of Go
			w.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
	known := map[string]bool{}
	for _, d := range telemetry.Catalogue() {
		if d.Of == of || d.Of == telemetry.Any {
			known[d.Name] = true
		}
	}
	values := map[string]string{}
	for _, m := range metricRE.FindAllStringSubmatch(text, -1) {
		values[m[1]+m[2]] = m[3]
		name := m[1]
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if short := strings.TrimSuffix(name, suffix); known[short] {
				name = short
			}
		}
		if !known[name] {
			w.Errorf("%s tells %s, which its catalogue does not have", addr, m[1])
		}
	}
	return values
}

// TestMetricsAfterRealTraffic: they are conventional, those of the catalogue, and true.
func TestMetricsAfterRealTraffic(t *testing.T) {
	w := newWorld(t, 1)
	w.work()
	server := w.cluster.Servers[0].Addr
	w.until("the meter has counted all ends", func() bool {
		return w.scraped(server, telemetry.Server)[`rota_actions_ended_total{reason="exited",state="succeeded"}`] == "3"
	})
	got := w.scraped(server, telemetry.Server)
	for name, want := range map[string]string{
		`rota_actions_submitted_total{pool="default"}`:                "4",
		`rota_attempts_started_total{pool="default"}`:                 "4",
		`rota_actions_ended_total{reason="exited",state="failed"}`:    "1",
		`rota_action_phase_duration_seconds_count{phase="execution"}`: "4",
		`rota_nodes{pool="default",state="up"}`:                       "1",
		`rota_cores{pool="default"}`:                                  "4",
		`rota_cores_allocated{pool="default"}`:                        "0",
		`rota_raft_leader`:                                            "1",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %s", name, got[name], want)
		}
	}
	for _, name := range []string{
		"rota_raft_commit_duration_seconds_count", "rota_raft_apply_duration_seconds_count", "rota_log_append_duration_seconds_count",
		"rota_raft_applied_commands_total", `rota_lease_renewals_total{answer="renewed",kind="node"}`,
	} {
		if got[name] == "" || got[name] == "0" {
			t.Errorf("%s is %q", name, got[name])
		}
	}
	agent := w.scraped(w.agent, telemetry.Agent)
	for name, want := range map[string]string{
		`rota_agent_attempts_started_total{answer="ok"}`:   "4",
		`rota_agent_attempts_ended_total{reason="exited"}`: "4",
		`rota_agent_execution_duration_seconds_count`:      "4",
		`rota_agent_cores`:                "4",
		`rota_agent_registered`:           "1",
		`rota_agent_supervisor_connected`: "1",
	} {
		if agent[name] != want {
			t.Errorf("%s is %q, want %s", name, agent[name], want)
		}
	}
	if lease := agent["rota_agent_lease_remaining_seconds"]; lease == "" || lease == "0" {
		t.Errorf("the lease lasts %q s yet", lease)
	}
}

// TestPrometheusLoadsTheRulesAndAlerts runs a real Prometheus with the rules that ship, which are
// only made to wait less. It scrapes a cluster; then two of three servers are killed.
func TestPrometheusLoadsTheRulesAndAlerts(t *testing.T) {
	need.Prometheus(t)
	w := newWorld(t, 3)
	w.work()
	prometheus := w.startPrometheus()
	w.until("Prometheus has scraped everything", func() bool {
		return w.query(prometheus, `sum(up{job=~"rota-server|rota-agent"})`) == "4"
	})
	w.until("Prometheus knows who leads", func() bool { return w.query(prometheus, "sum(rota_raft_leader)") == "1" })
	if n := w.query(prometheus, `max(rota_actions_ended_total{state="failed"})`); n != "1" {
		t.Errorf("Prometheus counts %q failed actions, want 1", n)
	}
	// Before the first scrape there was no leader.
	w.until("nothing fires in a healthy cluster", func() bool { return len(w.firing(prometheus)) == 0 })
	for _, p := range w.cluster.Servers[:2] {
		p.Signal(syscall.SIGKILL)
	}
	w.until("RotaNoLeader and RotaServerDown fire", func() bool {
		firing := w.firing(prometheus)
		return firing["RotaNoLeader"] && firing["RotaServerDown"]
	})
}

// startPrometheus returns its address.
func (w *world) startPrometheus() string {
	w.Helper()
	dir, addr := w.TempDir(), freeAddr(w.T)
	rules, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "prometheus", "rules.yml"))
	if err != nil {
		w.Fatal(err)
	}
	quick := regexp.MustCompile(`(?m)^( +for:) .*$`).ReplaceAllString(string(rules), "$1 1s")
	config := fmt.Sprintf("global: {scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms}\nrule_files: [rules.yml]\n"+
		"scrape_configs:\n- {job_name: rota-server, static_configs: [{targets: [%s]}]}\n- {job_name: rota-agent, static_configs: [{targets: [%s]}]}\n",
		`"`+strings.Join(w.cluster.Addrs(), `", "`)+`"`, `"`+w.agent+`"`)
	for name, text := range map[string]string{"rules.yml": quick, "prometheus.yml": config} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			w.Fatal(err)
		}
	}
	log, err := os.Create(filepath.Join(w.dir, "prometheus.log"))
	if err != nil {
		w.Fatal(err)
	}
	cmd := exec.Command("prometheus", "--config.file", filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path", filepath.Join(dir, "data"),
		"--web.listen-address", addr, "--enable-feature=native-histograms")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		log.Close()
	})
	w.until("Prometheus is ready", func() bool { status, _ := w.get(addr, "/-/ready"); return status == 200 })
	return addr
}

// query returns the value of the first sample of an answer, empty if there is none.
func (w *world) query(addr, expr string) string {
	w.Helper()
	_, text := w.get(addr, "/api/v1/query?query="+strings.NewReplacer(" ", "%20", "{", "%7B", "}", "%7D", `"`, "%22", "|", "%7C", "=", "%3D", "~", "%7E").Replace(expr))
	var answer struct {
		Data struct{ Result []struct{ Value []any } }
	}
	if json.Unmarshal([]byte(text), &answer) != nil || len(answer.Data.Result) == 0 {
		return ""
	}
	return fmt.Sprint(answer.Data.Result[0].Value[1])
}

// firing are the names of the alerts that fire.
func (w *world) firing(addr string) map[string]bool {
	w.Helper()
	_, text := w.get(addr, "/api/v1/alerts")
	var answer struct {
		Data struct {
			Alerts []struct {
				State  string
				Labels map[string]string
			}
		}
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		w.Fatalf("%v: %s", err, text)
	}
	names := map[string]bool{}
	for _, a := range answer.Data.Alerts {
		if a.State == "firing" {
			names[a.Labels["alertname"]] = true
		}
	}
	return names
}
