package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	rotav1 "rota/api/gen/rota/v1"
)

// declared parses the flags of rota engine register.
func declared(t *testing.T, args ...string) (*rotav1.EngineSpec, error) {
	t.Helper()
	var f engineFlags
	cmd := (&app{}).engineRegisterCmd()
	cmd.ResetFlags()
	f.addTo(cmd)
	if err := cmd.ParseFlags(args); err != nil {
		return nil, err
	}
	if err := f.check(cmd.Flags().Args()); err != nil {
		return nil, err
	}
	return f.spec(cmd.Flags().Args())
}

func TestDeclarationsOfEngines(t *testing.T) {
	body := filepath.Join(t.TempDir(), "body")
	if err := os.WriteFile(body, []byte(`{"level":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := declared(t, "--model", "ranker", "--driver", "http", "--sleep", "POST /offload", "--sleep-data", "@"+body, "--wake", "PUT /load?x=1",
		"--start-timeout", "5m", "--asleep-memory", "2GiB", "-e", "A=b=c", "--probe", "/ready", "--", "./ranker", "--port", "{{port}}")
	want := &rotav1.EngineSpec{
		Model: "ranker", Driver: rotav1.EngineDriver_ENGINE_DRIVER_HTTP, ProbePath: "/ready", AsleepMemoryBytes: 2 << 30,
		Command:      &rotav1.Command{Argv: []string{"./ranker", "--port", "{{port}}"}, Env: map[string]string{"A": "b=c"}},
		Sleep:        &rotav1.EngineCall{Method: "POST", Path: "/offload", Body: []byte(`{"level":1}`)},
		Wake:         &rotav1.EngineCall{Method: "PUT", Path: "/load?x=1"},
		StartTimeout: durationpb.New(5 * time.Minute),
	}
	if err != nil || !proto.Equal(got, want) {
		t.Errorf("declared %v, %v; want %v", got, err, want)
	}
	for want, args := range map[string]string{
		"give --model MODEL": "--driver vllm -- x",
		`--driver "tgi" is not vllm, sglang, process or http`: "--model m --driver tgi -- x",
		`--driver "unspecified" is not`:                       "--model m --driver unspecified -- x",
		"write it after --":                                   "--model m --driver vllm",
		`--sleep "/offload" is not METHOD /PATH`:              "--model m --driver http --sleep /offload -- x",
		"give the call with --wake":                           "--model m --driver http --wake-data x -- x",
		"SGLang without --enable-weights-cpu-backup loses":    "--model m --driver sglang -- sglang serve m --enable-memory-saver",
		`--env "A" is not NAME=VALUE`:                         "--model m --driver vllm -e A -- x",
	} {
		if _, err := declared(t, strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
}

func TestEngineText(t *testing.T) {
	failed := &rotav1.EngineInstance{State: rotav1.EngineState_ENGINE_STATE_FAILED, Generation: 2, Failures: 3, Starts: 4, Message: "exited with 1"}
	asleep := &rotav1.EngineInstance{State: rotav1.EngineState_ENGINE_STATE_FALLING_ASLEEP, Generation: 3, Chunk: &rotav1.GpuChunk{First: 4, Gpus: 2}}
	e := &rotav1.Engine{Generation: 3, SetUp: durationpb.New(8 * time.Second), SetUps: 2}
	for got, want := range map[string]string{
		instanceText(e, failed): "failed with generation 2, 3 failures, 4 starts: exited with 1",
		instanceText(e, asleep): "falling asleep",
		gpuRange(asleep.Chunk):  "4-5",
		gpuRange(failed.Chunk):  "0",
		measuredText(e):         "8s, the mean of 2",
		measuredText(nil):       "not measured yet",
		instancesText([]*rotav1.EngineInstance{failed, asleep, failed}): "1 falling asleep, 2 failed",
	} {
		if got != want {
			t.Errorf("it says %q, want %q", got, want)
		}
	}
}
