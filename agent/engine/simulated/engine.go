package simulated

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Command is the subcommand of a program that runs Main.
const Command = "simulated-engine"

// Misbehaviours, as --misbehave names them, with commas.
const (
	// Early200: a call to sleep is answered long before the memory is free.
	Early200 = "early-200"
	// HangSleep, HangWake, HangProbe: the call is not answered.
	HangSleep = "hang-sleep"
	HangWake  = "hang-wake"
	HangProbe = "hang-probe"
	// CrashWake: the process ends when it is woken.
	CrashWake = "crash-wake"
	// OOMWake: waking answers 500, as if another process had the memory.
	OOMWake = "oom-wake"
	// FailSleep: a call to sleep answers 500.
	FailSleep = "fail-sleep"
	// Garbage: /is_sleeping answers what is no JSON. Huge: it does not come to an end.
	Garbage = "garbage"
	Huge    = "huge"
	// NeverReady: the probe answers 503 for ever. Exit: the process ends while it loads.
	NeverReady = "never-ready"
	Exit       = "exit"
	// Sick: the probe answers 500 from now on.
	Sick = "sick"
)

// earlyBy is how long before the memory is free an early answer comes.
const earlyBy = 300 * time.Millisecond

// engine is one simulated engine.
type engine struct {
	model               string
	load, wake, service time.Duration
	exit                func(code int)

	mu       sync.Mutex
	account  account
	memory   Memory
	ready    bool
	sleeping bool
	// weightless: level 2 has dropped the weights, which are to be loaded again.
	weightless bool
	misbehaves []string
	active     int
}

// Memory is what an engine holds of its GPUs while it is awake.
type Memory interface {
	// Take takes all of it, or none. What is held already stays so.
	Take() error
	// Give gives it back, and returns when others may take it.
	Give()
	// Held reports whether the engine can work with it.
	Held() bool
}

// Main runs a simulated engine until the context ends, and returns an exit code.
func Main(ctx context.Context, args []string, stderr io.Writer) int {
	return MainWith(ctx, args, stderr, nil)
}

// MainWith is Main for an engine that takes its memory from somewhere else than the account
// that --account names; nil: from there.
func MainWith(ctx context.Context, args []string, stderr io.Writer, memory Memory) int {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var code int
	var once sync.Once
	e := &engine{memory: memory, exit: func(c int) { once.Do(func() { code = c; cancel() }) }}
	if memory == nil {
		e.memory = &e.account
	}
	fs := flag.NewFlagSet(Command, flag.ContinueOnError)
	fs.SetOutput(stderr)
	port := fs.Int("port", 0, "port of loopback to listen on")
	fs.StringVar(&e.model, "model", "simulated", "name of the model that it pretends to serve")
	fs.DurationVar(&e.load, "load", 0, "time to load the weights at the start")
	fs.DurationVar(&e.wake, "wake", 0, "time to wake")
	fs.DurationVar(&e.service, "service", 0, "time that a request takes")
	fs.StringVar(&e.account.dir, "account", "", "folder with the account of the simulated GPUs; none: no memory is counted")
	fs.Uint64Var(&e.account.bytes, "memory", 0, "bytes of each GPU")
	fs.Uint64Var(&e.account.capacity, "capacity", 0, "bytes that each GPU has")
	devices := fs.String("devices", "", "numbers of its GPUs, with commas")
	misbehave := fs.String("misbehave", "", "what it does wrong, with commas")
	if err := fs.Parse(args); err != nil {
		return 2
	}
	if err := e.parse(*devices, *misbehave); err != nil {
		fmt.Fprintf(stderr, "simulated engine: %v\n", err)
		return 2
	}
	if err := e.serve(ctx, *port); err != nil {
		fmt.Fprintf(stderr, "simulated engine: %v\n", err)
		return 1
	}
	return code
}

func (e *engine) parse(devices, misbehave string) error {
	for _, text := range strings.FieldsFunc(devices, func(r rune) bool { return r == ',' }) {
		gpu, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("--devices %q: %w", devices, err)
		}
		e.account.gpus = append(e.account.gpus, gpu)
	}
	e.misbehaves = strings.FieldsFunc(misbehave, func(r rune) bool { return r == ',' })
	return nil
}

// serve takes the memory of the weights and answers until the context ends. It listens before
// it is ready, as real engines may.
func (e *engine) serve(ctx context.Context, port int) error {
	if err := e.memory.Take(); err != nil {
		return err
	}
	defer e.memory.Give()
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return err
	}
	server := &http.Server{Handler: e.handler(), BaseContext: func(net.Listener) context.Context { return ctx }, ReadHeaderTimeout: time.Minute}
	loaded := time.AfterFunc(e.load, func() {
		if e.does(Exit) {
			e.exit(3)
			return
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		e.ready = true
	})
	defer loaded.Stop()
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (e *engine) does(what string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Contains(e.misbehaves, what)
}

func (e *engine) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", e.health)
	// vLLM
	mux.HandleFunc("POST /sleep", e.sleepVLLM)
	mux.HandleFunc("POST /wake_up", e.wakeVLLM)
	mux.HandleFunc("GET /is_sleeping", e.isSleeping)
	mux.HandleFunc("POST /collective_rpc", e.collectiveRPC)
	// SGLang
	mux.HandleFunc("POST /flush_cache", e.flushCache)
	mux.HandleFunc("POST /release_memory_occupation", e.releaseSGLang)
	mux.HandleFunc("POST /resume_memory_occupation", e.resumeSGLang)
	// both
	mux.HandleFunc("POST /v1/completions", e.complete)
	// neither: a test tells it what to do wrong from now on
	mux.HandleFunc("POST /simulated/misbehave", func(_ http.ResponseWriter, r *http.Request) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.misbehaves = append(e.misbehaves, r.URL.Query().Get("what"))
	})
	return mux
}

func (e *engine) health(w http.ResponseWriter, r *http.Request) {
	switch {
	case e.does(HangProbe):
		<-r.Context().Done()
	case e.does(Sick):
		http.Error(w, "simulated: sick", http.StatusInternalServerError)
	case e.does(NeverReady) || !e.isReady():
		http.Error(w, "simulated: loading", http.StatusServiceUnavailable)
	}
}

func (e *engine) isReady() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ready
}

// release frees the memory, as it was told to.
func (e *engine) release(w http.ResponseWriter, r *http.Request) (ok bool) {
	switch {
	case e.does(HangSleep):
		<-r.Context().Done()
		return false
	case e.does(FailSleep):
		http.Error(w, "simulated: cannot sleep", http.StatusInternalServerError)
		return false
	case e.does(Early200):
		time.AfterFunc(earlyBy, e.free)
		return true
	}
	e.free()
	return true
}

func (e *engine) free() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.memory.Give()
	e.sleeping = true
}

// resume takes the memory again.
func (e *engine) resume(w http.ResponseWriter, r *http.Request) (ok bool) {
	switch {
	case e.does(HangWake):
		<-r.Context().Done()
		return false
	case e.does(CrashWake):
		e.exit(4)
		<-r.Context().Done()
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	err := e.memory.Take()
	if err == nil && slices.Contains(e.misbehaves, OOMWake) {
		err = ErrOutOfMemory
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return false
	}
	time.Sleep(e.wake)
	return true
}

func (e *engine) sleepVLLM(w http.ResponseWriter, r *http.Request) {
	level := r.URL.Query().Get("level")
	if level != "1" && level != "2" {
		http.Error(w, "simulated: level is 1 or 2", http.StatusUnprocessableEntity)
		return
	}
	if e.release(w, r) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.weightless = level == "2"
	}
}

// wakeVLLM wakes all, or what the tags name. It sleeps until the KV cache is there.
func (e *engine) wakeVLLM(w http.ResponseWriter, r *http.Request) {
	tags := r.URL.Query()["tags"]
	if !e.resume(w, r) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(tags) == 0 || slices.Contains(tags, "kv_cache") {
		e.sleeping = false
	}
}

func (e *engine) isSleeping(w http.ResponseWriter, _ *http.Request) {
	switch {
	case e.does(Garbage):
		fmt.Fprint(w, "<html>simulated: not JSON</html>")
		return
	case e.does(Huge):
		fmt.Fprint(w, `{"is_sleeping":`)
		for range 1 << 10 {
			if _, err := w.Write(make([]byte, 1<<16)); err != nil {
				return
			}
		}
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	answer(w, map[string]bool{"is_sleeping": e.sleeping})
}

func (e *engine) collectiveRPC(w http.ResponseWriter, r *http.Request) {
	var call struct{ Method string }
	if err := json.NewDecoder(r.Body).Decode(&call); err != nil || call.Method != "reload_weights" {
		http.Error(w, "simulated: the only method is reload_weights", http.StatusBadRequest)
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	time.Sleep(e.wake)
	e.weightless = false
	answer(w, map[string]any{"results": []any{nil}})
}

func (e *engine) flushCache(w http.ResponseWriter, _ *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.active > 0 {
		http.Error(w, "simulated: requests are running", http.StatusBadRequest)
	}
}

// tagged checks the tags of a call of SGLang.
func tagged(w http.ResponseWriter, r *http.Request) bool {
	var body struct{ Tags []string }
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil || len(body.Tags) == 0 {
		http.Error(w, "simulated: no tags", http.StatusBadRequest)
		return false
	}
	return true
}

func (e *engine) releaseSGLang(w http.ResponseWriter, r *http.Request) {
	if tagged(w, r) && e.release(w, r) {
		fmt.Fprint(w, "null")
	}
}

func (e *engine) resumeSGLang(w http.ResponseWriter, r *http.Request) {
	if tagged(w, r) && e.resume(w, r) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.sleeping = false
		fmt.Fprint(w, "null")
	}
}

// complete takes the time of a request. It answers only if it has weights and memory.
func (e *engine) complete(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	able := e.ready && !e.sleeping && !e.weightless && e.memory.Held()
	e.active++
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.active--
	}()
	if !able {
		http.Error(w, "simulated: asleep", http.StatusServiceUnavailable)
		return
	}
	select {
	case <-r.Context().Done():
	case <-time.After(e.service):
		answer(w, map[string]any{"model": e.model, "gpus": e.account.gpus, "choices": []any{map[string]string{"text": "simulated"}}})
	}
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}
