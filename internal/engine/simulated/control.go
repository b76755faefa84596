package simulated

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"rota/internal/engine/model"
)

const (
	// earlyBy is how long before the memory is free an early answer comes.
	earlyBy = 300 * time.Millisecond
	// controlMax bounds the body of a call that controls the engine, in bytes.
	controlMax = 1 << 20
)

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
		time.AfterFunc(earlyBy, func() { _ = e.fall() })
		return true
	}
	return e.did(w, e.fall())
}

// did answers 500 if something could not be done.
func (e *engine) did(w http.ResponseWriter, err error) bool {
	status := http.StatusInternalServerError
	if errors.Is(err, model.ErrBusy) {
		status = http.StatusConflict
	}
	if err != nil {
		http.Error(w, err.Error(), status)
	}
	return err == nil
}

// operate has the model do something that takes its time. It is not broken off by the client.
func (e *engine) operate(kind model.Kind, begin func(m *model.Engine, now int64) error) error {
	return e.driver.operate(e.ctx, kind, begin)
}

// fall falls asleep.
func (e *engine) fall() error {
	err := e.operate(model.Asleep, func(m *model.Engine, now int64) error { return m.Sleep(now) })
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.memory.Give()
	e.sleeping = true
	return nil
}

// resume takes the memory again.
func (e *engine) resume(w http.ResponseWriter, r *http.Request) (ok bool) {
	switch {
	case e.does(HangWake):
		<-r.Context().Done()
		return false
	case e.does(CrashWake):
		e.exit(codeCrashWake)
		<-r.Context().Done()
		return false
	}
	e.mu.Lock()
	err := e.memory.Take()
	if _, does := e.misbehaves[OOMWake]; err == nil && does {
		err = ErrOutOfMemory
	}
	e.mu.Unlock()
	if err == nil && e.driver.load().Asleep {
		err = e.operate(model.Awake, func(m *model.Engine, now int64) error { return m.Wake(now) })
	}
	return e.did(w, err)
}

// load replaces the weights by those of a version; empty: by the same. flush drops the prefixes
// that were computed with the old ones.
func (e *engine) load(version string, flush bool) error {
	e.mu.Lock()
	if version == "" {
		version = e.version
	} else {
		e.versions++
	}
	number := e.versions
	e.mu.Unlock()
	err := e.operate(model.Updated, func(m *model.Engine, now int64) error { return m.UpdateWeights(now, number, flush) })
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.version, e.weightless = version, false
	return e.keepVersion()
}

// readVersion finds the version that an earlier process has kept.
func (e *engine) readVersion() error {
	if e.o.Weights == "" {
		return nil
	}
	kept, err := os.ReadFile(e.o.Weights)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("%w: --weights: %w", ErrUsage, err)
	}
	e.version = string(kept)
	return nil
}

// keepVersion keeps the version for a process that is started again.
func (e *engine) keepVersion() error {
	if e.o.Weights == "" {
		return nil
	}
	fresh := e.o.Weights + ".new"
	if err := os.WriteFile(fresh, []byte(e.version), 0o600); err != nil {
		return fmt.Errorf("simulated engine: --weights: %w", err)
	}
	return os.Rename(fresh, e.o.Weights)
}

// pause pauses the engine. It returns when what is to end has ended.
func (e *engine) pause(ctx context.Context, mode model.PauseMode) error {
	e.driver.do(func(m *model.Engine, now int64) { m.Pause(now, mode) })
	switch mode {
	case model.PauseWait:
		return e.driver.idle(ctx, false)
	case model.PauseAbort:
		return e.driver.idle(ctx, true)
	}
	return nil
}

func (e *engine) unpause() { e.driver.do(func(m *model.Engine, now int64) { m.Resume(now) }) }

func (e *engine) resetCache() { e.driver.do(func(m *model.Engine, now int64) { m.ResetCache(now) }) }

// read reads the JSON body of a call; an empty one is {}.
func read(w http.ResponseWriter, r *http.Request, into any) bool {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, controlMax))
	if err == nil && len(body) > 0 {
		err = json.Unmarshal(body, into)
	}
	if err != nil {
		http.Error(w, "simulated: the body is not the JSON of this call: "+err.Error(), http.StatusBadRequest)
	}
	return err == nil
}
