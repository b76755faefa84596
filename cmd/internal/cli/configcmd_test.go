package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestUnknownNamesAreErrors of keys and variables, with the nearest name.
func TestUnknownNamesAreErrors(t *testing.T) {
	for _, c := range []struct{ file, variable, want string }{
		{`{"addr": "a:1", "server": {"id": "s1", "log-level": "debug"}, "agent": {"pool": "p"}}`, "ROTA_SERVER_DATA_DIR=x", ""},
		{`{"adr": "a:1"}`, "", `config file: unknown key "adr"; did you mean "addr"?`},
		{`{"config": "x"}`, "", `config file: unknown key "config"`},
		{`{"server": {"datadir": "x"}}`, "", `config file: "server" has no key "datadir"; did you mean "data-dir"?`},
		{`{"sever": {}}`, "", `config file: unknown key "sever"; did you mean "server"?`},
		{`{"server": 5}`, "", `"server" must be an object`},
		{`{"zzzzzzzzzz": 1}`, "", `config file: unknown key "zzzzzzzzzz"`},
		{`{}`, "ROTA_ADRR=a:1", `unknown variable ROTA_ADRR; did you mean "ROTA_ADDR"?; unset it`},
		{`{}`, "ROTA_SERVER_LISTN=a:1", `unknown variable ROTA_SERVER_LISTN; did you mean "ROTA_SERVER_LISTEN"?`},
		{`{}`, "ROTA_QUOTA_OPENAI=3", ""},
		{`{}`, "ROTA_TOKEN_ATTEMPT=3", ""},
		{`{}`, "PATH=3", ""},
		{`{}`, "ROTA_SERVICE_HOST=10.0.0.1", ""},
		{`{}`, "ROTA_TEAM_SERVICE_PORT_API=7400", ""},
		{`{}`, "ROTA_TEAM_PORT=tcp://10.0.0.1:7400", ""},
		{`{}`, "ROTA_PORT_7400_TCP_ADDR=10.0.0.1", ""},
		{`{}`, "ROTA_PORT_X_PORT_7400_TCP=tcp://10.0.0.1:7400", ""},
		{`{}`, "ROTA_TEAM_PORT=7400", "unknown variable ROTA_TEAM_PORT"},
		{`{}`, "ROTA_PORT_API=7400", "unknown variable ROTA_PORT_API"},
	} {
		var file map[string]json.RawMessage
		if err := json.Unmarshal([]byte(c.file), &file); err != nil {
			t.Fatal(err)
		}
		err := checkNames((&app{}).root(), file, []string{c.variable})
		got := ""
		if err != nil {
			got = err.Error()
		}
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s %s: %q, want %q", c.file, c.variable, got, c.want)
		}
	}
}

// TestVariablesOfCommandsAreKnown: rota runs in actions, which have all that the documents say.
func TestVariablesOfCommandsAreKnown(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "concepts.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "Every command finds in its environment:\n\n")
	table, _, _ = strings.Cut(table, "\n\n")
	names := regexp.MustCompile("`(ROTA_[A-Z_]+)`").FindAllStringSubmatch(table, -1)
	if len(names) < 12 {
		t.Fatalf("docs/concepts.md names %v", names)
	}
	for _, name := range names {
		if err := checkNames((&app{}).root(), nil, []string{name[1] + "=1"}); err != nil {
			t.Error(err)
		}
	}
}

// command runs a command line and returns what it prints.
func command(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out, errOut bytes.Buffer
	root := (&app{out: &out, err: &errOut}).root()
	root.SetArgs(args)
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

func TestConfigIsValidatedAndPrinted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.json")
	writeFile(t, file, `{"addr": "a:1", "server": {"id": "s1", "lease": "12s"}}`)
	if out, err := command(t, "config", "validate", file); err != nil || out != "valid\n" {
		t.Errorf("validate: %q, %v", out, err)
	}
	if out, err := command(t, "config", "validate", file, "-o", "json"); err != nil || out != "{\"valid\":true}\n" {
		t.Errorf("validate as JSON: %q, %v", out, err)
	}
	t.Setenv("ROTA_SERVER_LISTEN", "127.0.0.1:9")
	out, err := command(t, "config", "print", "server", "--config", file, "-o", "json")
	var all []setting
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		t.Fatal(err)
	}
	got := map[string]setting{}
	for _, s := range all {
		got[s.Name] = s
	}
	if err != nil || got["id"] != (setting{"id", "s1", "config file"}) || got["listen"].Source != "ROTA_SERVER_LISTEN" ||
		got["lease"].Value != "12s" || got["log-level"] != (setting{"log-level", "info", "default"}) {
		t.Errorf("print server: %v %s", err, out)
	}
	if out, err = command(t, "config", "print", "--config", file, "-n", "team"); err != nil ||
		!strings.Contains(out, "config file") || !strings.Contains(out, "flag") {
		t.Errorf("print: %v %s", err, out)
	}
	if _, err = command(t, "config", "print", "sever"); err == nil {
		t.Error("a section that does not exist is printed")
	}
	for text, want := range map[string]string{
		`{"server": {"lease": "soon"}}`:   "lease",
		`{"output": "yaml"}`:              "unknown output",
		`{"request-timout": "1s"}`:        `did you mean "request-timeout"?`,
		`{`:                               "config file",
		`{"agent": {"log-format": true}}`: "",
	} {
		writeFile(t, file, text)
		_, err := command(t, "config", "validate", file)
		if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestADefaultFileThatCannotBeReadIsTold, with what to do: what is in it would be ignored.
func TestADefaultFileThatCannotBeReadIsTold(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "no folder")
	writeFile(t, folder, "")
	t.Setenv("XDG_CONFIG_HOME", folder)
	t.Setenv("ROTA_CONFIG", "")
	if _, err := command(t, "version"); exitCode(err) != exitUsage || !strings.Contains(err.Error(), "default config file cannot be read") {
		t.Errorf("%v", err)
	}
	t.Setenv("ROTA_CONFIG", os.DevNull)
	if _, err := command(t, "version"); err != nil {
		t.Error(err)
	}
	t.Setenv("ROTA_CONFIG", "")
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	if _, err := command(t, "version"); err != nil {
		t.Error(err)
	}
}

// TestDistanceIsAMetric: zero for equals only, symmetric, and no detour is shorter.
func TestDistanceIsAMetric(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringMatching(`[ab]{0,5}`)
		a, b, c := word.Draw(t, "a"), word.Draw(t, "b"), word.Draw(t, "c")
		if (distance(a, b) == 0) != (a == b) || distance(a, b) != distance(b, a) || distance(a, c) > distance(a, b)+distance(b, c) {
			t.Fatal(a, b, c)
		}
	})
	if d := distance("kitten", "sitting"); d != 3 {
		t.Errorf("distance %d", d)
	}
}
