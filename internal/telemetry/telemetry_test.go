package telemetry

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"rota/internal/need"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the tables of docs/metrics.md")

// root is the folder of the repository.
var root = filepath.Join("..", "..")

func read(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{root}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestTheTablesOfTheDocumentAreTheCatalogue compares them; -rewrite writes them.
func TestTheTablesOfTheDocumentAreTheCatalogue(t *testing.T) {
	text := read(t, "docs", "metrics.md")
	for of := range order {
		begin, end := fmt.Sprintf("<!-- begin %s -->\n", of), fmt.Sprintf("<!-- end %s -->\n", of)
		before, rest, ok := strings.Cut(text, begin)
		table, after, ok2 := strings.Cut(rest, end)
		if !ok || !ok2 {
			t.Fatalf("docs/metrics.md has no table between %q and %q", begin, end)
		}
		if table == Table(of) {
			continue
		}
		if !*rewrite {
			t.Errorf("docs/metrics.md: the table of %s is not the catalogue; run: go test ./internal/telemetry -rewrite", of)
		}
		text = before + begin + Table(of) + end + after
	}
	if *rewrite {
		if err := os.WriteFile(filepath.Join(root, "docs", "metrics.md"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestNamesAreConventional makes every metric and has Prometheus look at it.
func TestNamesAreConventional(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	for _, d := range Catalogue() {
		switch d.Kind {
		case Histogram:
			h := d.Durations()
			h.WithLabelValues(make([]string, len(d.Labels))...).Observe(1)
			r.MustRegister(h)
		default:
			r.MustRegister(Source([]*Def{d}, func(emit func(prometheus.Metric)) {
				emit(d.Value(1, make([]string, len(d.Labels))...))
			}))
		}
	}
	problems, err := testutil.GatherAndLint(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	for _, d := range Catalogue() {
		if !strings.HasPrefix(d.Name, "rota_") || !strings.HasSuffix(d.Help, ".") {
			t.Errorf("%s: the name needs the prefix rota_ and the help a full stop", d.Name)
		}
	}
}

// usedRE finds names of metrics in expressions.
var usedRE = regexp.MustCompile(`\brota_[a-z0-9_]+`)

// unknown returns the names in a text that the catalogue does not have.
func unknown(text string) (names []string) {
	known := map[string]bool{}
	for _, d := range Catalogue() {
		known[d.Name] = true
		if d.Kind == Histogram {
			known[d.Name+"_bucket"], known[d.Name+"_count"], known[d.Name+"_sum"] = true, true, true
		}
	}
	for _, name := range usedRE.FindAllString(text, -1) {
		if !known[name] {
			names = append(names, name)
		}
	}
	return names
}

func TestDashboardsAndRulesUseMetricsThatExist(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "deploy", "grafana", "*.json"))
	if err != nil || len(files) < 2 {
		t.Fatalf("%d dashboards, %v", len(files), err)
	}
	texts := map[string]string{"rules.yml": read(t, "deploy", "prometheus", "rules.yml")}
	for _, f := range files {
		text := read(t, "deploy", "grafana", filepath.Base(f))
		var board struct {
			Title, UID string
			Panels     []struct{ Targets []struct{ Expr string } }
		}
		if err := json.Unmarshal([]byte(text), &board); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		for _, p := range board.Panels {
			for _, target := range p.Targets {
				texts[filepath.Base(f)] += target.Expr + "\n"
			}
		}
	}
	used := 0
	for name, text := range texts {
		if gone := unknown(text); len(gone) > 0 {
			t.Errorf("%s uses metrics that do not exist: %q", name, gone)
		}
		used += len(usedRE.FindAllString(text, -1))
	}
	if used < 60 {
		t.Errorf("only %d uses of metrics found", used)
	}
	if got := unknown(`rate(rota_gone_total[5m]) / rota_actions_queued`); !slices.Equal(got, []string{"rota_gone_total"}) {
		t.Errorf("unknown metrics: %q", got)
	}
}

// TestDashboardsHaveExpressionsThatPrometheusParses wraps each of them into a rule.
func TestDashboardsHaveExpressionsThatPrometheusParses(t *testing.T) {
	need.Prometheus(t)
	var rules strings.Builder
	rules.WriteString("groups:\n- name: x\n  rules:\n")
	n := 0
	for _, file := range []string{"rota-cluster.json", "rota-agents.json"} {
		var board struct {
			Panels []struct{ Targets []struct{ Expr string } }
		}
		if err := json.Unmarshal([]byte(read(t, "deploy", "grafana", file)), &board); err != nil {
			t.Fatal(err)
		}
		for _, p := range board.Panels {
			for _, target := range p.Targets {
				fmt.Fprintf(&rules, "  - record: x%d\n    expr: %q\n", n, strings.ReplaceAll(target.Expr, "$__rate_interval", "5m"))
				n++
			}
		}
	}
	file := filepath.Join(t.TempDir(), "rules.yml")
	if err := os.WriteFile(file, []byte(rules.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{file, filepath.Join(root, "deploy", "prometheus", "rules.yml")} {
		if out, err := exec.Command("promtool", "check", "rules", f).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", f, err, out)
		}
	}
}

func TestEveryAlertHasARunbook(t *testing.T) {
	rules, book := read(t, "deploy", "prometheus", "rules.yml"), read(t, "docs", "alerts.md")
	alerts := regexp.MustCompile(`(?m)- alert: (\w+)$`).FindAllStringSubmatch(rules, -1)
	if len(alerts) < 20 {
		t.Fatalf("only %d alerts", len(alerts))
	}
	for _, a := range alerts {
		if !strings.Contains(book, "\n## "+a[1]+"\n") {
			t.Errorf("docs/alerts.md has no section %s", a[1])
		}
		if !strings.Contains(rules, "runbook: docs/alerts.md#"+strings.ToLower(a[1])+"\n") {
			t.Errorf("alert %s does not name its section", a[1])
		}
	}
	for _, section := range regexp.MustCompile(`(?m)^## (\w+)$`).FindAllStringSubmatch(book, -1) {
		if !strings.Contains(rules, "- alert: "+section[1]+"\n") {
			t.Errorf("docs/alerts.md explains %s, which no rule has", section[1])
		}
	}
}

func TestALogRemembersItsNewestLines(t *testing.T) {
	var out bytes.Buffer
	logger, recent := NewLog("server", hclog.Info, JSON, &out)
	logger.Named("rpc").Debug("hidden")
	logger.Named("rpc").Info("shown", "action", 7)
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil || line["action"] != 7.0 || line["@message"] != "shown" {
		t.Errorf("%q: %v", out.String(), err)
	}
	var kept bytes.Buffer
	if _, err := recent.WriteTo(&kept); err != nil || kept.String() != out.String() {
		t.Errorf("remembered %q, %v", kept.String(), err)
	}
	long := strings.Repeat("x", recentBytes/4)
	for range 10 {
		logger.Info(long)
	}
	if recent.bytes > recentBytes || len(recent.lines) != 3 {
		t.Errorf("%d bytes and %d lines are remembered", recent.bytes, len(recent.lines))
	}
}

// fullDisk takes nothing.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// TestALogRemembersWhatItCannotWrite: an operator can still ask for it.
func TestALogRemembersWhatItCannotWrite(t *testing.T) {
	logger, recent := NewLog("server", hclog.Info, Text, fullDisk{})
	logger.Info("one")
	logger.Info("two")
	if len(recent.lines) != 2 {
		t.Errorf("%d lines are remembered", len(recent.lines))
	}
}

func ask(t *testing.T, h http.Handler, method, path, body string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	text, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Code, string(text)
}

func TestOperatorsChangeTheLevelOfTheLog(t *testing.T) {
	var out bytes.Buffer
	logger, recent := NewLog("agent", hclog.Error, Text, &out)
	h := Debug{Logger: logger, Recent: recent, Settings: map[string]string{"name": "n"}, State: func() any { return 5 }}.Handler()
	child := logger.Named("child")
	if code, text := ask(t, h, "PUT", LogLevelPath, "debug\n"); code != 200 || text != "error\n" {
		t.Errorf("%d %q", code, text)
	}
	child.Debug("now shown")
	if !strings.Contains(out.String(), "now shown") || !strings.Contains(out.String(), "an operator changed the level") {
		t.Errorf("log: %q", out.String())
	}
	for _, bad := range []string{"", "loud", strings.Repeat("debug", 100)} {
		if code, _ := ask(t, h, "PUT", LogLevelPath, bad); code != 400 {
			t.Errorf("level %.20q: status %d", bad, code)
		}
	}
	for path, want := range map[string]string{LogLevelPath: "debug\n", LogsPath: out.String(), ConfigPath: "{\n  \"name\": \"n\"\n}\n", StatePath: "5\n"} {
		if code, text := ask(t, h, "GET", path, ""); code != 200 || text != want {
			t.Errorf("%s: %d %q, want %q", path, code, text, want)
		}
	}
}

func TestHealthHasReasons(t *testing.T) {
	ok := true
	h := HealthHandler(func() []Check { return []Check{Require("a", true, "x"), Require("b", ok, "y")} })
	if code, text := ask(t, h, "GET", "/readyz", ""); code != 200 || strings.Contains(text, "reason") {
		t.Errorf("%d %s", code, text)
	}
	ok = false
	if code, text := ask(t, h, "GET", "/readyz", ""); code != 503 || !strings.Contains(text, `{"name":"b","ok":false,"reason":"y"}`) {
		t.Errorf("%d %s", code, text)
	}
	if code, text := ask(t, HealthHandler(Alive), "GET", "/livez", ""); code != 200 || text != "{\"ok\":true,\"checks\":[]}\n" {
		t.Errorf("%d %s", code, text)
	}
}
