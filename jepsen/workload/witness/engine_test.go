package witness

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	rotav1 "rota/api/gen/rota/v1"
	"rota/jepsen/history"
)

// run runs a command with what an agent would put into its environment, and into its arguments.
func run(t *testing.T, c *rotav1.Command, marks *strings.Replacer, env ...string) *exec.Cmd {
	t.Helper()
	var argv []string
	for _, arg := range c.Argv {
		argv = append(argv, marks.Replace(arg))
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env, cmd.Stderr = slices.Concat(env, []string{"ROTA_NODE=node-1"}), os.Stderr
	for k, v := range c.Env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return cmd
}

// serveJudge starts an engine, and returns it and its address.
func serveJudge(t *testing.T, w *Witness) (engine *exec.Cmd, url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	marks := strings.NewReplacer("{{port}}", strconv.Itoa(port), "{{devices}}", "2,3")
	engine = run(t, w.Serve("judge", "c3.14", 1<<30), marks, "ROTA_MODEL=judge", "ROTA_GPUS=2,3")
	url = fmt.Sprintf("http://127.0.0.1:%d", port)
	until(t, "the engine is ready", func() bool { return call(url, http.MethodGet, "/health") })
	return engine, url
}

// call reports whether an engine answers well.
func call(url, method, path string) bool {
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	req, err := http.NewRequest(method, url+path, nil)
	if err != nil {
		return false
	}
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// awakeNow is how many engines hold memory.
func awakeNow(w *Witness) (n int) {
	for _, s := range w.AliveEngines() {
		if s.Awake {
			n++
		}
	}
	return n
}

// TestAnEngineIsSeenAwakeAndAsleep: when it has answered a call to sleep, it holds no memory any
// more, and when it has answered a call to wake it does.
func TestAnEngineIsSeenAwakeAndAsleep(t *testing.T) {
	w := listen(t)
	engine, url := serveJudge(t, w)
	for _, step := range []struct {
		path  string
		awake int
	}{{"/sleep?level=1", 0}, {"/wake_up", 1}} {
		if !call(url, http.MethodPost, step.path) {
			t.Fatalf("%s was not answered", step.path)
		}
		until(t, step.path+" is seen", func() bool { return awakeNow(w) == step.awake })
	}
	engine.Process.Kill()
	until(t, "its end is seen", func() bool { return len(w.AliveEngines()) == 0 })
	list := w.Servings()
	if len(list) != 3 {
		t.Fatalf("seen: %+v", list)
	}
	life, first, second := list[0], list[1], list[2]
	if life.Awake || !first.Awake || !second.Awake || first.End > second.Start || life.End < second.Start {
		t.Errorf("seen: %+v", list)
	}
	first.Start, first.End, first.Alive, first.Process = 0, 0, 0, ""
	want := history.Serving{Node: "node-1", Model: "judge", Declaration: "c3.14", GPUs: []int{2, 3}, MemoryBytes: 1 << 30, Awake: true}
	if fmt.Sprint(first) != fmt.Sprint(want) {
		t.Errorf("seen: %+v, want %+v", first, want)
	}
}

// TestACallIsSeenWithItsAnswer, and one of an engine that is asleep with none, and one that is
// not told where its engine is as such.
func TestACallIsSeenWithItsAnswer(t *testing.T) {
	w := listen(t)
	_, url := serveJudge(t, w)
	command := w.Command("r", history.Asked{Model: "judge"}, Work{Calls: true, For: time.Millisecond})
	for i, c := range []struct {
		engine    string
		sleeps    bool
		succeeds  bool
		unserved  bool
		answering bool
	}{
		{engine: url, succeeds: true, answering: true},
		{engine: "{{engine}}", unserved: true},
		{engine: url, sleeps: true},
	} {
		if c.sleeps && !call(url, http.MethodPost, "/sleep?level=1") {
			t.Fatal("it does not fall asleep")
		}
		token := fmt.Sprintf("ROTA_FENCING_TOKEN=%d.1.1", i+1)
		err := run(t, command, strings.NewReplacer("{{engine}}", c.engine), token, "ROTA_GPUS=2,3").Wait()
		until(t, "its end is seen", func() bool { return len(w.Alive()) == 0 && len(w.Executions()) == i+1 })
		x := w.Executions()[i]
		if (err == nil) != c.succeeds || x.Complete != c.succeeds || x.Unserved != c.unserved || (x.Answer != nil) != c.answering {
			t.Errorf("call %d ended with %v: %+v", i, err, x)
		}
		if c.answering && fmt.Sprint(*x.Answer) != fmt.Sprint(history.Answer{Model: "judge", Declaration: "c3.14", GPUs: []int{2, 3}}) {
			t.Errorf("the answer was %+v", *x.Answer)
		}
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

func TestWhatAnEngineSaysWrongMakesTheWitnessBlind(t *testing.T) {
	for _, hello := range []string{
		"engine node judge c1 0 1 p", "engine node judge c1 0 1 p dead", "engine node judge c1 x 1 p awake",
		"engine node judge c1 - 1 p awake", "engine node judge c1 0 many p alive", "engine node judge c1 0 1 p awake\ncomplete",
		"1.1.1 a r - 0 - - {}\nanswered judge c1", "1.1.1 a r - 0 - - {}\nanswered judge c1 x",
	} {
		w := listen(t)
		connection := say(t, w, hello)
		until(t, "the witness noticed", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.err != nil
		})
		connection.Close()
		if err := w.Close(); err == nil {
			t.Errorf("%q passed", hello)
		}
	}
}
