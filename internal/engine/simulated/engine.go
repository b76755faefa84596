package simulated

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"rota/internal/engine/model"
)

// Exit codes of a process, beside 0 and those of usage and of errors.
const (
	codeError, codeUsage               = 1, 2
	codeExit, codeCrashWake, codeCrash = 3, 4, 5
)

// engine is one simulated engine.
type engine struct {
	o      Options
	config model.Config
	gpus   []int
	driver *driver
	exit   func(code int)
	began  time.Time
	// ctx is that of the server. named counts requests.
	ctx   context.Context
	named atomic.Uint64

	mu     sync.Mutex
	memory Memory
	ready  bool
	// sleeping: it answers no request. weightless: level 2 of vLLM, or SGLang without a backup, has
	// dropped the weights, which are to be loaded again.
	sleeping, weightless bool
	misbehaves           map[string]int64
	// version is the name of the weights' version. versions counts them for the model.
	version  string
	versions uint64
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

// Run runs a simulated engine until the context ends, and returns the exit code of its process.
// memory is where it takes its memory from; nil: the account that the options name. ready is
// told where it listens.
func Run(ctx context.Context, o Options, memory Memory, listens func(net.Addr)) (code int, err error) {
	e, err := newEngine(o, memory)
	if err != nil {
		return codeUsage, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var once sync.Once
	e.exit = func(c int) { once.Do(func() { code = c; cancel(nil) }) }
	if err := e.memory.Take(); err != nil {
		return codeError, fmt.Errorf("simulated engine: %w", err)
	}
	defer e.memory.Give()
	l, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return codeError, fmt.Errorf("simulated engine: --listen: %w", err)
	}
	listens(l.Addr())
	if err := e.serve(ctx, l); err != nil {
		return codeError, fmt.Errorf("simulated engine: %w", err)
	}
	return code, nil
}

// newEngine returns an engine that does not listen yet.
func newEngine(o Options, memory Memory) (*engine, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	config, err := o.configuration()
	if err != nil {
		return nil, err
	}
	m, err := model.New(config)
	if err != nil {
		return nil, err
	}
	e := &engine{
		o: o, config: config, memory: memory, misbehaves: map[string]int64{}, version: "default",
		driver: newDriver(m, o.Speed), began: time.Now(), exit: func(int) {},
	}
	if e.gpus, err = devices(o.Devices); err != nil {
		return nil, err
	}
	if err := e.readVersion(); err != nil {
		return nil, err
	}
	if memory == nil {
		e.memory = &account{dir: o.Account, gpus: e.gpus, bytes: o.Memory, capacity: o.Capacity}
	}
	for _, what := range strings.FieldsFunc(o.Misbehave, func(r rune) bool { return r == ',' }) {
		if err := e.misbehave(what); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// serve answers until the context ends. It listens before it is ready, as real engines may.
func (e *engine) serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	e.ctx = ctx
	server := &http.Server{Handler: e.handler(), BaseContext: func(net.Listener) context.Context { return ctx }, ReadHeaderTimeout: time.Minute}
	loaded := time.AfterFunc(e.o.Load, func() {
		if e.does(Exit) {
			e.exit(codeExit)
			return
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		e.ready = true
	})
	defer loaded.Stop()
	var driving sync.WaitGroup
	driving.Go(func() {
		if err := e.driver.run(ctx, e.crashes); err != nil {
			cancel(err)
		}
	})
	defer driving.Wait()
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	if cause := context.Cause(ctx); errors.Is(cause, errTimeIsUp) {
		return cause
	}
	return nil
}

// crashes ends the process if it is to end after so many tokens.
func (e *engine) crashes(tokens int64) {
	if n, does := e.number(CrashTokens); does && tokens >= n {
		e.exit(codeCrash)
	}
}

func (e *engine) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", e.health)
	mux.HandleFunc("GET /v1/models", e.models)
	mux.HandleFunc("POST /v1/completions", e.completions)
	mux.HandleFunc("POST /v1/chat/completions", e.chat)
	mux.HandleFunc("POST /v1/responses", e.responses)
	// No real engine has it: a test says what is to go wrong from now on.
	mux.HandleFunc("/simulated/misbehave", e.misbehaviour)
	switch e.o.Dialect {
	case VLLM:
		e.addVLLM(mux)
	case SGLang:
		e.addSGLang(mux)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Server", "rota simulated engine")
		mux.ServeHTTP(w, r)
	})
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

// able reports whether it has weights and memory to answer requests.
func (e *engine) able() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ready && !e.sleeping && !e.weightless && e.memory.Held()
}

func (e *engine) models(w http.ResponseWriter, _ *http.Request) {
	answer(w, map[string]any{"object": "list", "data": []any{map[string]any{
		"id": e.o.Model, "object": "model", "created": e.began.Unix(), "owned_by": "simulated", "root": e.o.Model,
		"max_model_len": e.contextTokens(), "simulated": e.about(),
	}}})
}

// about is what an answer says about the engine that gave it.
func (e *engine) about() map[string]any {
	e.mu.Lock()
	defer e.mu.Unlock()
	return map[string]any{"profile": e.config.Profile.Name, "speed": e.o.Speed, "gpus": e.gpus, "weight_version": e.version}
}

// weights is the version of the weights that it has.
func (e *engine) weights() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.version
}

// contextTokens bounds prompt and answer.
func (e *engine) contextTokens() int64 {
	most := e.config.KVTokens
	if most == 0 {
		most = e.config.Profile.KVTokens
	}
	if e.o.ContextTokens > 0 {
		most = min(most, e.o.ContextTokens)
	}
	return most
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

// refuse answers an error as OpenAI's API has it.
func refuse(w http.ResponseWriter, status int, message string) {
	kind := "BadRequestError"
	switch status {
	case http.StatusNotFound:
		kind = "NotFoundError"
	case http.StatusServiceUnavailable:
		kind = "ServiceUnavailableError"
	case http.StatusInternalServerError:
		kind = "InternalServerError"
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{
		"error": map[string]any{"message": message, "type": kind, "param": nil, "code": status}, "system_fingerprint": "simulated",
	})
}
