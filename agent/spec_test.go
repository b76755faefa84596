package agent

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"rota/agent/engine"
	"rota/agent/httpcall"
	"rota/agent/inventory"
	"rota/agent/plan"
	rotav1 "rota/api/gen/rota/v1"
)

// TestGPUsOfACommand: a command sees its own GPUs and no others; ones that are
// simulated it does not see.
func TestGPUsOfACommand(t *testing.T) {
	real := &inventory.GPUs{Class: "H100", Count: 4, MemoryBytes: 1, UUIDs: []string{"GPU-a", "GPU-b", "GPU-c", "GPU-d"}}
	for _, c := range []struct {
		name  string
		gpus  *inventory.GPUs
		holds []uint32
		wants []string
	}{
		{"two", real, []uint32{2, 3}, []string{"CUDA_VISIBLE_DEVICES=GPU-c,GPU-d", "ROTA_GPUS=2,3"}},
		{"none of those there", real, nil, []string{"CUDA_VISIBLE_DEVICES=", "ROTA_GPUS="}},
		{"simulated", &inventory.GPUs{Class: "simulated-H100", Count: 4, MemoryBytes: 1}, []uint32{0, 1}, []string{"CUDA_VISIBLE_DEVICES=", "ROTA_GPUS=0,1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := specifier{node: "n", inv: &inventory.Inventory{NUMA: [][]int{{0}}, GPUs: c.gpus}}
			spec, err := s.spec(plan.Key{Action: 1, Attempt: 1}, &rotav1.Assignment{
				Command: &rotav1.Command{Argv: []string{"judge", "--tp={{gpus}}", "-j{{cores}}"}}, Gpus: c.holds,
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range c.wants {
				if !slices.Contains(spec.Env, want) {
					t.Errorf("environment %v lacks %q", spec.Env, want)
				}
			}
			if want := "--tp=" + string(rune('0'+len(c.holds))); spec.Argv[1] != want || spec.Argv[2] != "-j1" {
				t.Errorf("arguments %v, want %s", spec.Argv, want)
			}
		})
	}
}

// TestGPUsOfOthersAreHidden: from commands and engines, whatever they hold.
func TestGPUsOfOthersAreHidden(t *testing.T) {
	gpus := &inventory.GPUs{Class: "H100", Count: 4, MemoryBytes: 1, UUIDs: []string{"GPU-a", "GPU-b", "GPU-c", "GPU-d"}}
	s := specifier{node: "n", inv: &inventory.Inventory{NUMA: [][]int{{0}}, GPUs: gpus}}
	for _, c := range []struct {
		devices []inventory.Device
		holds   []uint32
		want    string
	}{
		{[]inventory.Device{{Major: 195, Minor: 1}, {Major: 195, Minor: 0}, {Major: 195, Minor: 2}, {Major: 195, Minor: 3}}, []uint32{0, 1}, "[{195 2} {195 3}]"},
		{[]inventory.Device{{Major: 195, Minor: 1}, {Major: 195, Minor: 0}}, nil, "[{195 1} {195 0}]"},
		{nil, []uint32{0}, "[]"},
	} {
		gpus.Devices = c.devices
		command := &rotav1.Command{Argv: []string{"judge"}}
		spec, err := s.spec(plan.Key{Action: 1, Attempt: 1}, &rotav1.Assignment{Command: command, Gpus: c.holds})
		if got := fmt.Sprint(spec.HiddenDevices); err != nil || got != c.want {
			t.Errorf("holding %v, %s are hidden, want %s; %v", c.holds, got, c.want, err)
		}
		l := engine.Launch{Engine: plan.Engine{Model: "m", GPUs: len(c.holds)}, Spec: &rotav1.EngineSpec{Command: command}}
		spec, err = s.engine(l)
		if got := fmt.Sprint(spec.HiddenDevices); err != nil || got != c.want {
			t.Errorf("from an engine on %v, %s are hidden, want %s; %v", c.holds, got, c.want, err)
		}
	}
}

func specs() specifier {
	return specifier{node: "node-1", inv: &inventory.Inventory{NUMA: [][]int{{0, 1, 2, 3}}, Pinned: true}, runtimeDir: "/var/lib/rota"}
}

func TestTheEnvironmentOfACommand(t *testing.T) {
	a := assignment(41, "make", "-j", "{{cores}}", "x={{cores}}/{{cores}}")
	a.Cpus, a.TrajectoryId = []uint32{3, 1}, 5
	a.Command.Env = map[string]string{"CI": "1", "PATH": "/opt/bin", "ROTA_FENCING_TOKEN": "forged", "ROTA_X": "1"}
	spec, err := specs().spec(plan.Key{Action: 41, Attempt: 1, Incarnation: 7}, a)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(spec.Argv, spec.CPUs); got != "[make -j 2 x=2/2] [1 3]" {
		t.Errorf("started as %s", got)
	}
	want := map[string]bool{}
	for _, kv := range []string{
		"CI=1", "PATH=/opt/bin", "LANG=C.UTF-8", "TMPDIR=/tmp", // HOME is the supervisor's to say
		"ROTA_CORES=2", "ROTA_CPUS=1,3", "ROTA_FENCING_TOKEN=41.1.7", "ROTA_TOKEN_ATTEMPT=1", "ROTA_ACTION_ID=41",
		"ROTA_TRAJECTORY_ID=5", "ROTA_NAMESPACE=default", "ROTA_NODE=node-1",
	} {
		want[kv] = true
	}
	got := map[string]bool{}
	for _, kv := range spec.Env {
		got[kv] = true
	}
	if !maps.Equal(got, want) {
		t.Errorf("environment %q", spec.Env)
	}
	a.TrajectoryId = 0
	if spec, err = specs().spec(plan.Key{Action: 41, Attempt: 1, Incarnation: 7}, a); err != nil || !slices.Contains(spec.Env, "HOME=/var/lib/rota/work/41.1.7") {
		t.Errorf("without a trajectory: environment %q, %v", spec.Env, err)
	}
}

// TestAnHTTPCall is made by the agent's own program, and is not on its command line.
func TestAnHTTPCall(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://proxy:3128")
	call := &rotav1.HttpCall{Url: "http://engine/{{cores}}", Headers: map[string]string{"Authorization": "secret"}}
	text, err := httpcall.Encode(call)
	if err != nil {
		t.Fatal(err)
	}
	a := assignment(41)
	a.Command, a.Http, a.Cpus, a.RunTimeout, a.TrajectoryId = nil, call, nil, durationpb.New(time.Minute), 5
	s := specs()
	s.self = "/opt/{{cores}}/rota"
	spec, err := s.spec(plan.Key{Action: 41, Attempt: 1, Incarnation: 7}, a)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(spec.Argv, spec.CPUs, spec.Timeout); got != "[/opt/{{cores}}/rota http-call] [] 1m0s" {
		t.Errorf("started as %s", got)
	}
	for _, want := range []string{"ROTA_HTTP_CALL=" + text, "HTTPS_PROXY=http://proxy:3128", "ROTA_TOKEN_ATTEMPT=1", "HOME=/var/lib/rota/work/41.1.7"} {
		if !slices.Contains(spec.Env, want) {
			t.Errorf("environment %q lacks %s", spec.Env, want)
		}
	}
	if !spec.Call || spec.Trajectory != 5 { // it would run as a user of the container
		t.Errorf("started as %+v", spec)
	}
	s.self = ""
	if _, err := s.spec(plan.Key{Action: 41, Attempt: 1, Incarnation: 7}, a); err == nil {
		t.Error("a node that does not know its own program starts a call")
	}
}

// TestACommandWithoutCores is told of one core, and which keys of its quotas it has.
func TestACommandWithoutCores(t *testing.T) {
	a := assignment(41, "make", "-j", "{{cores}}")
	a.Cpus, a.QuotaKeys = nil, []*rotav1.QuotaKey{{Quota: "open-ai.v2", Key: 3}}
	spec, err := specs().spec(plan.Key{Action: 41, Attempt: 1, Incarnation: 7}, a)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(spec.Argv, spec.CPUs); got != "[make -j 1] []" {
		t.Errorf("started as %s", got)
	}
	for _, want := range []string{"ROTA_CORES=1", "ROTA_QUOTA_OPEN_AI_V2=3"} {
		if !slices.Contains(spec.Env, want) {
			t.Errorf("environment %q lacks %s", spec.Env, want)
		}
	}
	if slices.ContainsFunc(spec.Env, func(kv string) bool { return strings.HasPrefix(kv, "ROTA_CPUS=") }) {
		t.Errorf("environment %q names CPUs", spec.Env)
	}
}
