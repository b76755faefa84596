package simulated

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// waits makes requests that last until something ends them, and returns their answers.
func (a *api) waits(names ...string) <-chan string {
	a.t.Helper()
	answers := make(chan string, len(names))
	for _, name := range names {
		go func() {
			req, err := http.NewRequestWithContext(a.t.Context(), "POST", a.url+completionsPath, strings.NewReader(`{"prompt":"`+name+`","max_tokens":9,"ignore_eos":true}`))
			if err != nil {
				answers <- err.Error()
				return
			}
			req.Header.Set("X-Request-Id", name)
			resp, err := a.client.Do(req)
			if err != nil {
				answers <- err.Error()
				return
			}
			defer resp.Body.Close()
			var text [1 << 12]byte
			n, _ := resp.Body.Read(text[:])
			answers <- string(text[:n])
		}()
	}
	return answers
}

// shows waits until a page has a text.
func (a *api) shows(path, text string) {
	a.t.Helper()
	var got string
	for range 1500 {
		if got = a.must("GET", path, ""); strings.Contains(got, text) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	a.t.Fatalf("%s does not show %q, but %s", path, text, got)
}

// expect compares what calls answer.
func (a *api) expect(calls ...[4]string) {
	a.t.Helper()
	for _, c := range calls {
		status, text := a.call(c[0], c[1], c[2])
		if want := c[3]; !strings.Contains(fmt.Sprint(status, " ", text), want) {
			a.t.Errorf("%s %s %s answers %d: %s, want %q", c[0], c[1], c[2], status, text, want)
		}
	}
}

func TestControlsOfVLLM(t *testing.T) {
	a := start(t, "--step=100s", "--slots=2")
	a.must("POST", "/pause?mode=keep", "") // so that two of them start with the same step
	answers := a.waits("first", "second", "third")
	a.shows("/metrics", `vllm:num_requests_waiting{engine="simulated",model_name="simulated"} 3`)
	a.must("POST", "/resume", "")
	a.shows("/metrics", `vllm:num_requests_running{engine="simulated",model_name="simulated"} 2`)
	a.shows("/metrics", `vllm:num_requests_waiting{engine="simulated",model_name="simulated"} 1`)
	a.expect(
		[4]string{"POST", "/abort_requests", `{"request_ids":["nobody"]}`, `"aborted":0`},
		[4]string{"POST", "/pause?mode=strange", "", "422"},
		[4]string{"GET", "/is_paused", "", `"is_paused":false`},
		[4]string{"POST", "/pause?mode=keep", "", `"status":"paused"`},
		[4]string{"GET", "/is_paused", "", `"is_paused":true`},
		[4]string{"POST", "/resume", "", `"status":"resumed"`},
		[4]string{"GET", "/is_paused", "", `"is_paused":false`},
	)
	// A step lasts 100 s: of all, only the one that waits ends now.
	a.expect([4]string{"POST", "/abort_requests", `{"request_ids":[]}`, `"aborted":3`})
	if got := <-answers; !strings.Contains(got, `"finish_reason":"abort"`) {
		t.Errorf("an aborted request answers %s", got)
	}
}

func TestWeightsOfVLLM(t *testing.T) {
	a := start(t, "--step=0s", "--update=1ms", "--wake=1ms")
	a.expect(
		[4]string{"GET", "/weight_info", "", `"weight_version":"default"`},
		[4]string{"POST", "/init_weight_transfer_engine", "{}", "200"},
		[4]string{"POST", "/pause?mode=wait", "", `"status":"paused"`},
		[4]string{"POST", "/start_weight_update", "{}", "200"},
		[4]string{"POST", "/update_weights", "{}", "200"},
		[4]string{"POST", "/finish_weight_update", `{"weight_version":"41"}`, "200"},
		[4]string{"GET", "/weight_info", "", `"weight_version":"41"`},
		[4]string{"POST", "/resume", "", "200"},
		[4]string{"POST", completionsPath, `{"prompt":"a"}`, `"weight_version":"41"`},
		[4]string{"POST", "/sleep?level=2", "", "200"},
		[4]string{"GET", "/is_sleeping", "", `"is_sleeping":true`},
		[4]string{"POST", completionsPath, `{"prompt":"a"}`, "503"},
		[4]string{"POST", "/wake_up?tags=weights", "", "200"},
		[4]string{"GET", "/is_sleeping", "", `"is_sleeping":true`},
		[4]string{"POST", "/collective_rpc", `{"method":"strange"}`, "400"},
		[4]string{"POST", "/collective_rpc", `{"method":"reload_weights"}`, "200"},
		[4]string{"POST", "/wake_up?tags=kv_cache", "", "200"},
		[4]string{"GET", "/is_sleeping", "", `"is_sleeping":false`},
		[4]string{"POST", completionsPath, `{"prompt":"a"}`, `"weight_version":"41"`},
		[4]string{"POST", "/flush_cache", "", "404"},
	)
}

func TestControlsOfSGLang(t *testing.T) {
	a := start(t, "--step=0s", "--update=1ms", "--dialect=sglang", "--enable-weights-cpu-backup")
	a.expect(
		[4]string{"POST", "/pause_generation", `{"mode":"strange"}`, "422"},
		[4]string{"POST", "/pause_generation", `{"mode":"retract"}`, `"status":"ok"`},
	)
	answers := a.waits("first", "second")
	a.shows("/v1/loads?include=core", `"num_waiting_reqs":2`)
	a.expect(
		[4]string{"POST", "/flush_cache", "", "400"},
		[4]string{"POST", "/abort_request", `{"rid":"second"}`, "200"},
	)
	if got := <-answers; !strings.Contains(got, `"finish_reason":"abort"`) {
		t.Errorf("an aborted request answers %s", got)
	}
	a.expect(
		[4]string{"POST", "/update_weights_from_disk", `{"model_path":"/weights","weight_version":"7"}`, `"success":true`},
		[4]string{"GET", "/model_info", "", `"weight_version":"7"`},
		[4]string{"POST", "/continue_generation", `{}`, `"status":"ok"`},
	)
	if got := <-answers; !strings.Contains(got, `"finish_reason":"length"`) {
		t.Errorf("a request that waited answers %s", got)
	}
	a.shows("/v1/loads?include=core", `"num_total_reqs":0`)
	a.expect(
		[4]string{"POST", "/update_weight_version", `{"new_version":"8","abort_all_requests":false}`, `"new_version":"8"`},
		[4]string{"POST", "/flush_cache", "", "200"},
		[4]string{"POST", "/release_memory_occupation", `{}`, "400 simulated: no tags"},
		[4]string{"POST", "/release_memory_occupation", `{"tags":["kv_cache","weights"]}`, "200 null"},
		[4]string{"POST", completionsPath, `{"prompt":"a"}`, "503"},
		[4]string{"POST", "/resume_memory_occupation", `{"tags":["kv_cache","weights"]}`, "200 null"},
		[4]string{"POST", completionsPath, `{"prompt":"a"}`, `"weight_version":"8"`},
		[4]string{"GET", "/get_server_info", "", `"version":"simulated"`},
		[4]string{"GET", "/metrics", "", `sglang:num_running_reqs{engine="simulated",model_name="simulated"} 0`},
		[4]string{"POST", "/sleep", "", "404"},
	)
}

// TestWeightsWithoutABackup are lost with their memory, until they are updated. The KV cache is not
// the weights.
func TestWeightsWithoutABackup(t *testing.T) {
	a := start(t, "--step=0s", "--update=1ms", "--dialect=sglang")
	a.expect(
		[4]string{"POST", "/release_memory_occupation", `{"tags":["kv_cache"]}`, "200 null"},
		[4]string{"POST", "/resume_memory_occupation", `{"tags":["kv_cache"]}`, "200 null"},
		[4]string{"POST", completionsPath, `{"prompt":"a"}`, "200"},
		[4]string{"POST", "/release_memory_occupation", `{"tags":["kv_cache","weights"]}`, "200 null"},
		[4]string{"POST", "/resume_memory_occupation", `{"tags":["kv_cache","weights"]}`, "200 null"},
		[4]string{"POST", completionsPath, `{"prompt":"a"}`, "503"},
		[4]string{"POST", "/update_weights_from_disk", `{"model_path":"/weights"}`, `"success":true`},
		[4]string{"POST", completionsPath, `{"prompt":"a"}`, "200"},
	)
}

func TestFaultsOnDemand(t *testing.T) {
	a := start(t, "--step=0s")
	stream := `{"prompt":"a","max_tokens":50,"ignore_eos":true,"stream":true}`
	a.expect(
		[4]string{"POST", "/simulated/misbehave?what=strange", "", "400"},
		[4]string{"POST", "/simulated/misbehave?what=cut-tokens", "", "needs a number"},
		[4]string{"POST", "/simulated/misbehave?what=fail-generate", "", "200"},
		[4]string{"POST", completionsPath, stream, "500"},
		[4]string{"DELETE", "/simulated/misbehave", "", "200"},
		[4]string{"POST", completionsPath, stream, "[DONE]"},
		[4]string{"POST", completionsPath, "", "200"},
		[4]string{"POST", "/simulated/misbehave?what=cut-tokens=10", "", "200"},
	)
	if status, text := a.call("POST", completionsPath, stream); status != 0 {
		t.Errorf("a stream that is to be cut answers %d: %s", status, text)
	}
	a.expect([4]string{"DELETE", "/simulated/misbehave", "", "200"}, [4]string{"POST", "/simulated/misbehave?what=crash-tokens=1000", "", "200"})
	for range 100 {
		if status, _ := a.call("POST", completionsPath, stream); status != http.StatusOK {
			break
		}
	}
	if code := a.ended(); code != codeCrash {
		t.Errorf("it ended with code %d", code)
	}
}

func TestOptionsThatMakeNoSense(t *testing.T) {
	for flag, says := range map[string]string{
		"--dialect=tgi": "use vllm, sglang or openai", "--speed=0": "use more than 0", "--tokens=0": "use at least 1", "--profile=gpt": "use one of",
		"--preemption=never": "use one of memory", "--devices=a": "use numbers", "--misbehave=strange": "use one of", "--kv-tokens=1": "not valid", "--model=": "name the model",
	} {
		var b strings.Builder
		if code := Main(t.Context(), []string{flag}, &b); code != codeUsage || !strings.Contains(b.String(), says) {
			t.Errorf("%s: %d: %s", flag, code, b.String())
		}
	}
}

// A process that is started again has the weights that the one before had.
func TestWeightsAreKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "weights")
	a := start(t, "--step=0s", "--weights="+file)
	a.must("POST", "/finish_weight_update", `{"weight_version":"41"}`)
	a.stop()
	a.ended()
	again := start(t, "--step=0s", "--weights="+file)
	if stream := again.must("POST", completionsPath, `{"prompt":"a","stream":true}`); !strings.Contains(stream, `"weight_version":"41"`) {
		t.Error(stream)
	}
}
