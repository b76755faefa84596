package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	rotav1 "rota/api/gen/rota/v1"

	"rota/api/backoff"
)

const (
	// bodyMax bounds what is read of an answer, in bytes.
	bodyMax = 64 << 10
	// saidMax bounds what of it goes into a message.
	saidMax = 200
	// probeMax is how long one probe may take.
	probeMax = 10 * time.Second
	// DefaultProbePath is where engines say that they serve.
	DefaultProbePath = "/health"
)

var (
	errStatus  = errors.New("the engine refused")
	errGarbage = errors.New("the engine answered nonsense")
	errTooLong = fmt.Errorf("the answer of the engine does not end within %d KiB", bodyMax>>10)
	errNoSleep = errors.New("the engine cannot sleep")
)

// httpClient calls engines. Nothing of a machine's proxies, redirects or older connections
// comes between.
func httpClient() *http.Client {
	return &http.Client{
		Transport:     &http.Transport{Proxy: nil, DisableKeepAlives: true, DialContext: (&net.Dialer{}).DialContext},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// URL is the address of an engine on a port of this machine.
func URL(port int) string { return "http://127.0.0.1:" + strconv.Itoa(port) }

// client calls one engine as its driver says.
type client struct {
	spec *rotav1.EngineSpec
	base string
	http *http.Client
}

// call makes one call and returns the answer. Any status but 200 to 299 is an error, with what the
// engine said, and so is an answer of more than bodyMax: it may not end, and then nothing was done.
func (c *client) call(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, cause(ctx, err))
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(io.LimitReader(resp.Body, bodyMax+1))
	switch {
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		return nil, fmt.Errorf("%s %s: %w with status %d: %s", method, path, errStatus, resp.StatusCode, summary(said))
	case err != nil:
		return nil, fmt.Errorf("%s %s: %w", method, path, cause(ctx, err))
	case len(said) > bodyMax:
		return nil, fmt.Errorf("%s %s: %w", method, path, errTooLong)
	}
	return said, nil
}

// cause is why a context ended a call, or else why the call failed.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var op *net.OpError
	if errors.As(err, &op) {
		return op
	}
	return err
}

// summary is the beginning of an answer as one line.
func summary(b []byte) string {
	return strings.Join(strings.Fields(strings.ToValidUTF8(string(b[:min(len(b), saidMax)]), "?")), " ")
}

// probe asks once whether the engine serves.
func (c *client) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, probeMax, fmt.Errorf("no answer within %v", probeMax))
	defer cancel()
	path := c.spec.GetProbePath()
	if path == "" {
		path = DefaultProbePath
	}
	_, err := c.call(ctx, http.MethodGet, path, nil)
	if errors.Is(err, errTooLong) { // the status says it all, and the path may be that of a long page
		return nil
	}
	return err
}

// serves returns when the engine serves, or the context ends. The error then has what the
// last probe found.
func (c *client) serves(ctx context.Context) error {
	if c.spec.GetNoProbe() {
		return ctx.Err()
	}
	return poll(ctx, func(ctx context.Context) error { return c.probe(ctx) })
}

// poll tries until there is no error, less and less often. If the context ends before, the error
// is that of the last try which the end did not cut short.
func poll(ctx context.Context, try func(context.Context) error) error {
	pause := backoff.Backoff{Least: 20 * time.Millisecond, Most: time.Second}
	var last error
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		if backoff.Sleep(ctx, pause.Next()) != nil {
			return fmt.Errorf("%w (%w)", context.Cause(ctx), last)
		}
	}
}

// weightsBackup is a flag of SGLang. Without it, SGLang drops its weights when it falls asleep and
// does not load them when it wakes: it would answer with whatever is in its memory then.
const weightsBackup = "--enable-weights-cpu-backup"

// Sleeps reports whether an engine that is declared so can give its GPU memory back without being
// stopped, and serve as before when it has the memory again.
func Sleeps(spec *rotav1.EngineSpec) bool {
	switch spec.GetDriver() {
	case rotav1.EngineDriver_ENGINE_DRIVER_PROCESS:
		return false
	case rotav1.EngineDriver_ENGINE_DRIVER_SGLANG:
		// It may be in the text of a shell.
		return slices.ContainsFunc(spec.GetCommand().GetArgv(), func(arg string) bool { return strings.Contains(arg, weightsBackup) })
	}
	return true
}

// sleep has the engine give its GPU memory back, and returns when the engine says that it has,
// if it says so at all.
func (c *client) sleep(ctx context.Context) error {
	if !Sleeps(c.spec) { // an earlier agent may have thought otherwise
		return errNoSleep
	}
	switch c.spec.GetDriver() {
	case rotav1.EngineDriver_ENGINE_DRIVER_VLLM:
		if _, err := c.call(ctx, http.MethodPost, fmt.Sprintf("/sleep?level=%d", max(c.spec.GetSleepLevel(), 1)), nil); err != nil {
			return err
		}
		return c.untilSleeping(ctx, true)
	case rotav1.EngineDriver_ENGINE_DRIVER_SGLANG:
		// It has to be idle, and to have nothing cached.
		if err := poll(ctx, func(ctx context.Context) error {
			_, err := c.call(ctx, http.MethodPost, "/flush_cache", nil)
			return err
		}); err != nil {
			return err
		}
		_, err := c.call(ctx, http.MethodPost, "/release_memory_occupation", sglangTags)
		return err
	case rotav1.EngineDriver_ENGINE_DRIVER_HTTP:
		return c.custom(ctx, c.spec.GetSleep())
	}
	return fmt.Errorf("driver %v cannot sleep", c.spec.GetDriver())
}

// sglangTags are what an engine of SGLang gives back and takes again.
var sglangTags = []byte(`{"tags":["kv_cache","weights"]}`)

// wake has the engine take its GPU memory again.
func (c *client) wake(ctx context.Context) error {
	if !Sleeps(c.spec) {
		return errNoSleep
	}
	switch c.spec.GetDriver() {
	case rotav1.EngineDriver_ENGINE_DRIVER_VLLM:
		if err := c.wakeVLLM(ctx); err != nil {
			return err
		}
		return c.untilSleeping(ctx, false)
	case rotav1.EngineDriver_ENGINE_DRIVER_SGLANG:
		_, err := c.call(ctx, http.MethodPost, "/resume_memory_occupation", sglangTags)
		return err
	case rotav1.EngineDriver_ENGINE_DRIVER_HTTP:
		return c.custom(ctx, c.spec.GetWake())
	}
	return fmt.Errorf("driver %v cannot be woken", c.spec.GetDriver())
}

// wakeVLLM wakes an engine of vLLM. At level 2 it has dropped the weights, so it loads them
// before it makes room for the KV cache.
func (c *client) wakeVLLM(ctx context.Context) error {
	if c.spec.GetSleepLevel() < 2 {
		_, err := c.call(ctx, http.MethodPost, "/wake_up", nil)
		return err
	}
	for _, step := range []struct{ path, body string }{
		{"/wake_up?tags=weights", ""},
		{"/collective_rpc", `{"method":"reload_weights"}`},
		{"/wake_up?tags=kv_cache", ""},
	} {
		if _, err := c.call(ctx, http.MethodPost, step.path, []byte(step.body)); err != nil {
			return err
		}
	}
	return nil
}

func (c *client) custom(ctx context.Context, call *rotav1.EngineCall) error {
	method := call.GetMethod()
	if method == "" {
		method = http.MethodPost
	}
	_, err := c.call(ctx, method, call.GetPath(), call.GetBody())
	return err
}

// untilSleeping waits until vLLM says that it sleeps, or that it does not.
func (c *client) untilSleeping(ctx context.Context, want bool) error {
	return poll(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeoutCause(ctx, probeMax, fmt.Errorf("no answer within %v", probeMax))
		defer cancel()
		said, err := c.call(ctx, http.MethodGet, "/is_sleeping", nil)
		if err != nil {
			return err
		}
		var answer struct {
			Sleeping *bool `json:"is_sleeping"`
		}
		if err := json.Unmarshal(said, &answer); err != nil || answer.Sleeping == nil {
			return fmt.Errorf("GET /is_sleeping: %w: %s", errGarbage, summary(said))
		}
		if *answer.Sleeping != want {
			return fmt.Errorf("GET /is_sleeping says %v", *answer.Sleeping)
		}
		return nil
	})
}
