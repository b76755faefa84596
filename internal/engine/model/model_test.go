package model_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"rota/internal/engine/model"
)

// small is a profile with times and a cache so small that everything happens in a few tokens.
func small(t *rapid.T) *model.Profile {
	p := &model.Profile{Name: "simulated-small", KVTokens: rapid.Int64Range(20, 120).Draw(t, "kv")}
	batch, step := int64(0), int64(500)
	for range rapid.IntRange(1, 3).Draw(t, "points") {
		batch += rapid.Int64Range(1, 4).Draw(t, "batch")
		step += rapid.Int64Range(0, 5000).Draw(t, "step")
		p.Batch = append(p.Batch, model.Point{Batch: batch, StepPS: step})
	}
	p.KVReadPS = rapid.Int64Range(0, 40).Draw(t, "read")
	p.PrefillTokenPS = rapid.Int64Range(0, 700).Draw(t, "token")
	p.PrefillPairPS = rapid.Int64Range(0, 9).Draw(t, "pair")
	p.SleepNS, p.WakeNS, p.UpdateNS = 7, 0, 30
	return p
}

func configuration(t *rapid.T) model.Config {
	p := small(t)
	return model.Config{
		Profile: p, KVTokens: p.KVTokens, Slots: rapid.IntRange(1, 5).Draw(t, "slots"),
		ChunkTokens: rapid.Int64Range(1, 30).Draw(t, "chunk"),
		Preemption:  model.Preemption(rapid.IntRange(0, 2).Draw(t, "preemption")),
	}
}

// script is what is asked of an engine, in the order of time. In the end it is awake and not paused.
func script(t *rapid.T, kv int64) (commands []command) {
	at := int64(0)
	kinds := []string{"submit", "submit", "submit", "submit", "submit", "cancel", "priority", "pause", "resume", "resume", "sleep", "wake", "wake", "update"}
	for id := range uint64(rapid.IntRange(1, 25).Draw(t, "commands")) {
		at += rapid.SampledFrom([]int64{0, 0, 3, 20, 150}).Draw(t, "after")
		c := command{at: at, what: rapid.SampledFrom(kinds).Draw(t, "what"), id: rapid.Uint64Range(0, id).Draw(t, "id")}
		c.value = rapid.Int64Range(0, 3).Draw(t, "value")
		c.mode = model.PauseMode(rapid.IntRange(0, 3).Draw(t, "mode"))
		if c.what == "submit" {
			prompt := rapid.Int64Range(1, kv-1).Draw(t, "prompt")
			c.request = model.Request{
				ID: id, Prompt: prompt, Output: rapid.Int64Range(1, kv-prompt).Draw(t, "output"), Priority: c.value,
				Key: rapid.Uint64Range(0, 3).Draw(t, "key"), Match: rapid.Int64Range(0, 20).Draw(t, "match"),
				Parent: rapid.Uint64Range(0, 5).Draw(t, "parent"), ParentTokens: rapid.Int64Range(0, 20).Draw(t, "shared"),
			}
		}
		commands = append(commands, c)
	}
	at += 1_000_000
	return append(commands, command{at: at, what: "resume"}, command{at: at, what: "wake"})
}

// obey asks an engine the same, and goes on until nothing happens any more. each sees the engine
// after every event.
func obey(t *rapid.T, e *model.Engine, commands []command, each func(now int64)) (events []model.Event) {
	step := func(now int64) {
		events = e.Advance(now, events)
		each(now)
	}
	for i, c := range commands {
		for at, ok := e.NextEvent(); ok && at < c.at; at, ok = e.NextEvent() {
			step(at)
		}
		do(t, e, c)
		if i+1 == len(commands) || commands[i+1].at > c.at {
			step(c.at)
		}
	}
	for at, ok := e.NextEvent(); ok; at, ok = e.NextEvent() {
		step(at)
	}
	return events
}

func do(t *rapid.T, e *model.Engine, c command) {
	switch c.what {
	case "submit":
		if err := e.Submit(c.at, c.request); err != nil {
			t.Fatal(err)
		}
	case "cancel":
		e.Cancel(c.at, c.id)
	case "priority":
		e.SetPriority(c.at, c.id, c.value)
	case "pause":
		e.Pause(c.at, c.mode)
	case "resume":
		e.Resume(c.at)
	case "sleep":
		_ = e.Sleep(c.at) // busy: nothing is to happen
	case "wake":
		_ = e.Wake(c.at)
	case "update":
		_ = e.UpdateWeights(c.at, uint64(c.value), true)
	}
}

// What the model computes in closed form happens token by token, to the nanosecond.
func TestModelEqualsTokenByToken(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := configuration(t)
		commands := script(t, c.KVTokens)
		e, err := model.New(c)
		if err != nil {
			t.Fatal(err)
		}
		got := obey(t, e, commands, func(int64) {})
		want := (&naive{c: c}).run(commands)
		if i := firstDifference(got, want); i >= 0 {
			t.Fatalf("%v\nevent %d of %d and %d:\ngot  %s\nwant %s", commands, i, len(got), len(want), text(got, i), text(want, i))
		}
	})
}

// firstDifference is the first place at which two lists differ, or -1.
func firstDifference(a, b []model.Event) int {
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || a[i] != b[i] {
			return i
		}
	}
	return -1
}

// text is the events around a place.
func text(events []model.Event, at int) (s string) {
	for _, e := range events[max(0, at-8):min(len(events), at+2)] {
		s += fmt.Sprintf("\n%+v", e)
	}
	return s
}
