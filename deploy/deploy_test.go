package deploy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/template"

	"go.yaml.in/yaml/v3"

	"rota/internal/need"
)

// object is a document of YAML.
type object map[string]any

// at follows a path such as spec.template.spec; nil if there is nothing.
func (o object) at(path string) any {
	var v any = map[string]any(o)
	for _, key := range strings.Split(path, ".") {
		m, _ := v.(map[string]any)
		v = m[key]
	}
	return v
}

func (o object) text(path string) string { return fmt.Sprint(o.at(path)) }

// list returns the objects of a list.
func (o object) list(path string) (all []object) {
	items, _ := o.at(path).([]any)
	for _, item := range items {
		m, _ := item.(map[string]any)
		all = append(all, m)
	}
	return all
}

// parse reads the documents of a file.
func parse(t *testing.T, text []byte) (all []object) {
	t.Helper()
	for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var o map[string]any // its inner ones are of the same type
		err := d.Decode(&o)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		if len(o) > 0 {
			all = append(all, o)
		}
	}
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// chartFuncs are the functions of Helm that the chart uses.
var chartFuncs = template.FuncMap{
	"quote": func(v any) string { return fmt.Sprintf("%q", fmt.Sprint(v)) },
	"int":   func(v any) int { return v.(int) },
	"until": func(n int) (all []int) {
		for i := range n {
			all = append(all, i)
		}
		return all
	},
	"default": func(other, v any) any {
		if v == nil || v == "" {
			return other
		}
		return v
	},
	"toYaml": func(v any) (string, error) {
		b, err := yaml.Marshal(v)
		return strings.TrimSuffix(string(b), "\n"), err
	},
	"nindent": func(n int, text string) string {
		return "\n" + strings.Repeat(" ", n) + strings.ReplaceAll(text, "\n", "\n"+strings.Repeat(" ", n))
	},
	"required": func(message string, v any) (any, error) {
		if v == nil || v == "" {
			return nil, errors.New(message)
		}
		return v, nil
	},
}

// render renders the chart as Helm does, with the values that change makes of its own.
func render(t *testing.T, change func(values object)) ([]object, error) {
	t.Helper()
	values := parse(t, read(t, "helm/values.yaml"))[0]
	change(values)
	var all []object
	templates, err := filepath.Glob("helm/templates/*.yaml")
	if err != nil || len(templates) < 2 {
		t.Fatalf("%d templates, %v", len(templates), err)
	}
	for _, name := range templates {
		tmpl, err := template.New(name).Option("missingkey=error").Funcs(chartFuncs).Parse(string(read(t, name)))
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := tmpl.Execute(&b, map[string]any{
			"Values": values, "Release": map[string]any{"Name": "rota", "Namespace": "rl"},
		}); err != nil {
			return nil, err
		}
		all = append(all, parse(t, b.Bytes())...)
	}
	return all, nil
}

func withAgents(values object) {
	agent := values["agent"].(map[string]any)
	agent["enabled"], agent["image"] = true, "tools:1"
}

// TestTheChartIsWhole renders the chart with agents and checks what the API server of
// Kubernetes would: selectors, volumes, ports, and who may do what.
func TestTheChartIsWhole(t *testing.T) {
	all, err := render(t, withAgents)
	if err != nil {
		t.Fatal(err)
	}
	byKind := map[string][]object{}
	for _, o := range all {
		byKind[o.text("kind")] = append(byKind[o.text("kind")], o)
		if name := o.text("metadata.name"); !strings.HasPrefix(name, "rota") {
			t.Errorf("%s has the name %s", o.text("kind"), name)
		}
	}
	for kind, want := range map[string]int{"StatefulSet": 1, "DaemonSet": 1, "Service": 2, "PodDisruptionBudget": 1, "NetworkPolicy": 2} {
		if len(byKind[kind]) != want {
			t.Fatalf("there are %d of %s, must be %d", len(byKind[kind]), kind, want)
		}
	}
	set := byKind["StatefulSet"][0]
	checkPods(t, set)
	checkPods(t, byKind["DaemonSet"][0])
	labels := fmt.Sprint(set.at("spec.template.metadata.labels"))
	for _, o := range slices.Concat(byKind["Service"], byKind["PodDisruptionBudget"]) {
		selector := o.at("spec.selector")
		if m, ok := o.at("spec.selector.matchLabels").(map[string]any); ok {
			selector = m
		}
		if fmt.Sprint(selector) != labels {
			t.Errorf("%s %s selects %v, and servers are %s", o.text("kind"), o.text("metadata.name"), selector, labels)
		}
	}
	args := fmt.Sprint(set.list("spec.template.spec.containers")[0]["args"])
	for _, want := range []string{
		"--bootstrap=rota-server-0=rota-server-0.rota-server.rl.svc:7400,rota-server-1=rota-server-1.rota-server.rl.svc:7400,rota-server-2=",
		"--advertise=$(POD_NAME).rota-server.rl.svc:7400",
	} {
		if !strings.Contains(args, want) {
			t.Errorf("servers do not have %s: %s", want, args)
		}
	}
}

// checkPods checks the pods of a set.
func checkPods(t *testing.T, set object) {
	t.Helper()
	name := set.text("metadata.name")
	if set.text("spec.selector.matchLabels") != set.text("spec.template.metadata.labels") {
		t.Errorf("%s does not select its own pods", name)
	}
	volumes := map[string]bool{}
	for _, v := range slices.Concat(set.list("spec.template.spec.volumes"), claims(set)) {
		volumes[v.text("name")] = true
	}
	if set.at("spec.template.spec.automountServiceAccountToken") != false {
		t.Errorf("%s mounts a token that it does not need", name)
	}
	if set.at("spec.template.spec.enableServiceLinks") != false {
		t.Errorf("%s has a variable for each service of its namespace", name)
	}
	for _, c := range set.list("spec.template.spec.containers") {
		for _, m := range c.list("volumeMounts") {
			if !volumes[m.text("name")] {
				t.Errorf("%s mounts %s, which is no volume", name, m.text("name"))
			}
		}
		ports := map[string]bool{}
		for _, p := range c.list("ports") {
			ports[p.text("name")] = true
		}
		if !ports[c.text("livenessProbe.tcpSocket.port")] {
			t.Errorf("%s: the liveness probe is for port %s, of %v", name, c.text("livenessProbe.tcpSocket.port"), ports)
		}
		if probe := c.text("readinessProbe.exec.command"); !strings.Contains(probe, "operator ready --addr 127.0.0.1:74") {
			t.Errorf("%s: the readiness probe is %s", name, probe)
		}
		if c.at("securityContext") == nil || c.at("image") == nil {
			t.Errorf("%s has no securityContext or no image", name)
		}
	}
}

func claims(set object) (all []object) {
	for _, c := range set.list("spec.volumeClaimTemplates") {
		all = append(all, object{"name": c.text("metadata.name")})
	}
	return all
}

// TestExtrasOfServers: environment and volumes of the values are those of the servers.
func TestExtrasOfServers(t *testing.T) {
	all, err := render(t, func(values object) {
		server := values["server"].(map[string]any)
		server["extraEnv"] = []any{object{"name": "AWS_REGION", "value": "eu"}}
		server["extraVolumes"] = []any{object{"name": "jwks", "configMap": object{"name": "issuer"}}}
		server["extraVolumeMounts"] = []any{object{"name": "jwks", "mountPath": "/etc/jwks"}}
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range all {
		if o.text("kind") != "StatefulSet" {
			continue
		}
		checkPods(t, o)
		c := o.list("spec.template.spec.containers")[0]
		for list, want := range map[string]string{"env": "AWS_REGION", "volumeMounts": "/etc/jwks"} {
			if got := c.list(list); !strings.Contains(fmt.Sprint(got), want) || len(got) < 5 {
				t.Errorf("%s of servers: %v, want also %s", list, got, want)
			}
		}
		return
	}
	t.Fatal("there is no StatefulSet")
}

// TestValuesOfTheChart: what values change, and what is refused.
func TestValuesOfTheChart(t *testing.T) {
	all, err := render(t, func(v object) {
		v["server"].(map[string]any)["replicas"] = 5
		v["server"].(map[string]any)["extraArgs"] = []any{"--log-level=debug"}
	})
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprint(all)
	if strings.Contains(text, "DaemonSet") || !strings.Contains(text, "rota-server-4=") || strings.Contains(text, "rota-server-5") || !strings.Contains(text, "--log-level=debug") {
		t.Errorf("five servers without agents are %s", text)
	}
	if _, err := render(t, func(v object) { v["agent"].(map[string]any)["enabled"] = true }); err == nil || !strings.Contains(err.Error(), "agent.image") {
		t.Errorf("agents without an image: %v", err)
	}
}

// TestHelmRendersTheChart: helm itself, where it is there.
func TestHelmRendersTheChart(t *testing.T) {
	helm, err := exec.LookPath("helm")
	if err != nil {
		t.Skip("helm is not installed; TestTheChartIsWhole has rendered the chart without it")
	}
	if out, err := exec.CommandContext(t.Context(), helm, "lint", "--strict", "helm").CombinedOutput(); err != nil {
		t.Errorf("helm lint: %v\n%s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), helm, "template", "rota", "helm", "--namespace", "rl",
		"--set", "agent.enabled=true", "--set", "agent.image=tools:1").Output()
	if err != nil {
		t.Fatal(err)
	}
	own, err := render(t, withAgents)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := len(parse(t, out)), len(own); got != want {
		t.Errorf("helm renders %d objects, and this test %d", got, want)
	}
}

// TestTheComposeFile: each server has a volume, and all of them the same list.
func TestTheComposeFile(t *testing.T) {
	file := parse(t, read(t, "compose.yaml"))[0]
	services := file["services"].(map[string]any)
	lists := map[string]int{}
	for name := range services {
		service := object(services[name].(map[string]any))
		for _, arg := range service.at("command").([]any) {
			if strings.HasPrefix(fmt.Sprint(arg), "--bootstrap=") {
				lists[fmt.Sprint(arg)]++
			}
		}
		if mode := service.text("network_mode"); mode != "host" {
			t.Errorf("%s has the network %s: without TLS all must share one loopback", name, mode)
		}
		for _, v := range service.list("volumes") {
			if v != nil {
				t.Errorf("%s: %v", name, v)
			}
		}
	}
	if len(lists) != 1 || len(services) != 5 {
		t.Errorf("%d services with the lists %v", len(services), lists)
	}
}

// TestVersionsOfThePackageGrow with those that "git describe" gives.
func TestVersionsOfThePackageGrow(t *testing.T) {
	need.Tool(t, "dpkg-deb", "dpkg", "bash")
	before := "0~c0ffee1" // what builds without a tag were called
	for _, version := range []string{
		"48a2a1e3", "v0.1.0-rc1", "v0.1.0-rc1-3-gabc", "v0.1.0", "v0.1.0-dirty", "v0.1.0-5-gabc", "v0.1.0-5-gabc-dirty", "v0.1.0-10-gdef", "v0.2.0",
	} {
		dir := t.TempDir()
		script := "#!/bin/sh\nif [ \"$1\" = version ]; then echo VERSION COMMIT; echo " + version + " abc; fi\n"
		if err := errors.Join(os.WriteFile(filepath.Join(dir, "rota"), []byte(script), 0o755), os.WriteFile(filepath.Join(dir, "rota-init"), nil, 0o755)); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), "bash", "debian/build.sh", filepath.Join(dir, "rota"), dir).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		now := strings.Split(filepath.Base(strings.TrimSpace(string(out))), "_")[1]
		if err := exec.CommandContext(t.Context(), "dpkg", "--compare-versions", before, "lt", now).Run(); err != nil {
			t.Errorf("%s is %s, which is not newer than %s: %v", version, now, before, err)
		}
		before = now
	}
}

// TestTheDebianPackage builds a package around a script that answers as rota does, and
// reads it back.
func TestTheDebianPackage(t *testing.T) {
	need.Tool(t, "dpkg-deb", "dpkg", "bash")
	dir := t.TempDir()
	fake := filepath.Join(dir, "rota")
	script := "#!/bin/sh\nif [ \"$1\" = version ]; then echo VERSION COMMIT; echo v1.2.3-dev abc; else echo '# completion'; fi\n"
	if err := errors.Join(os.WriteFile(fake, []byte(script), 0o755), os.WriteFile(filepath.Join(dir, "rota-init"), []byte("first process"), 0o755)); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "bash", "debian/build.sh", fake, dir).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	file := strings.TrimSpace(string(out))
	if !strings.Contains(file, "rota_1.2.3~dev_") {
		t.Errorf("the package is %s", file)
	}
	root := filepath.Join(dir, "root")
	for _, args := range [][]string{{"-x", file, root}, {"-e", file, filepath.Join(root, "DEBIAN")}} {
		if out, err := exec.CommandContext(t.Context(), "dpkg-deb", args...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	for name, want := range map[string]string{
		"usr/bin/rota": "echo v1.2.3-dev", "usr/bin/rota-init": "first process", "usr/lib/systemd/system/rota-server.service": "ExecStart=/usr/bin/rota server",
		"usr/lib/systemd/system/rota-agent.service": "/usr/bin/rota agent", "usr/share/doc/rota/examples/server.env": "ROTA_SERVER_ID=",
		"usr/share/doc/rota/examples/agent.env": "ROTA_AGENT_NAME=", "usr/share/bash-completion/completions/rota": "completion",
		"DEBIAN/control": "Version: 1.2.3~dev", "DEBIAN/postinst": "adduser --system", "DEBIAN/prerm": "disable --now",
	} {
		if got := string(read(t, filepath.Join(root, name))); !strings.Contains(got, want) || strings.Contains(got, "/usr/local/") {
			t.Errorf("%s does not have %q:\n%.400s", name, want, got)
		}
	}
}
