package model_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rota/internal/engine/model"
)

// Every request ends once, slots and memory suffice at any time, and an engine with something to
// do does it.
func TestModelKeepsItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := configuration(t)
		commands := script(t, c.KVTokens)
		e, err := model.New(c)
		if err != nil {
			t.Fatal(err)
		}
		events := obey(t, e, commands, func(now int64) {
			l := e.Load(now)
			if l.Running > c.Slots || l.KVTokens+l.CachedTokens > c.KVTokens || l.KVTokens < 0 || l.CachedTokens < 0 {
				t.Fatalf("at %d: %+v", now, l)
			}
			idle := l.Running == 0 && (l.Waiting == 0 || l.Draining)
			if _, ok := e.NextEvent(); !ok && !idle && !l.Paused && !l.Asleep {
				t.Fatalf("at %d it does nothing: %+v", now, l)
			}
		})
		ends := map[uint64]int{}
		for i, ev := range events {
			if i > 0 && ev.AtNS < events[i-1].AtNS {
				t.Fatalf("event %d is before the one that came before it", i)
			}
			if ev.Kind == model.Finished || ev.Kind == model.Canceled {
				ends[ev.ID]++
			}
		}
		for _, c := range commands {
			if c.what == "submit" && ends[c.request.ID] != 1 {
				t.Fatalf("request %d ended %d times", c.request.ID, ends[c.request.ID])
			}
		}
	})
}

// A request starts only when none waits that ranks higher; and with preemption, none waits while
// one runs that has a lower priority, unless there is no memory for it.
func TestModelStartsTheHighestPriorityFirst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := configuration(t)
		e, err := model.New(c)
		if err != nil {
			t.Fatal(err)
		}
		priority, runs := map[uint64]int64{}, map[uint64]bool{}
		for id := range uint64(rapid.IntRange(2, 12).Draw(t, "requests")) {
			r := model.Request{ID: id, Prompt: 1, Output: rapid.Int64Range(1, 8).Draw(t, "output"), Priority: rapid.Int64Range(0, 4).Draw(t, "priority")}
			priority[id] = r.Priority
			if err := e.Submit(0, r); err != nil {
				t.Fatal(err)
			}
		}
		for at, ok := e.NextEvent(); ok; at, ok = e.NextEvent() {
			for _, ev := range e.Advance(at, nil) {
				switch ev.Kind {
				case model.Started:
					for id, p := range priority {
						if !runs[id] && p > priority[ev.ID] {
							t.Fatalf("request %d of priority %d starts while %d of priority %d waits", ev.ID, priority[ev.ID], id, p)
						}
					}
					runs[ev.ID] = true
				case model.Preempted:
					runs[ev.ID] = false
				case model.Finished:
					delete(priority, ev.ID)
					delete(runs, ev.ID)
				}
			}
		}
		if len(priority) > 0 {
			t.Fatalf("%d requests did not end", len(priority))
		}
	})
}

func TestModelPreemptsForAHigherPriority(t *testing.T) {
	for name, c := range map[string]struct {
		preemption model.Preemption
		// cached is what the preempted request finds when it starts again.
		preempts bool
		cached   int64
	}{
		"for memory only": {model.PreemptForMemory, false, 0},
		"kept":            {model.PreemptKeep, true, 14},
		"recomputed":      {model.PreemptRecompute, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := &model.Profile{Batch: []model.Point{{Batch: 1, StepPS: 1000}}, KVTokens: 1000}
			e, err := model.New(model.Config{Profile: p, Slots: 1, Preemption: c.preemption})
			if err != nil {
				t.Fatal(err)
			}
			// It has computed its prompt of 10 and generated 5 when the other one comes.
			_ = e.Submit(0, model.Request{ID: 1, Prompt: 10, Output: 100})
			events := e.Advance(5, nil)
			_ = e.Submit(5, model.Request{ID: 2, Prompt: 10, Output: 2, Priority: 1})
			events = e.Advance(1000, events)
			var order []model.Kind
			var cached int64
			for _, ev := range events {
				order = append(order, ev.Kind)
				if ev.Kind == model.Started && ev.ID == 1 {
					cached = ev.Cached
				}
			}
			preempted := order[2] == model.Preempted
			if preempted != c.preempts || cached != c.cached {
				t.Errorf("preempted %v with %d tokens kept, want %v with %d: %s", preempted, cached, c.preempts, c.cached, text(events, 0))
			}
		})
	}
}

// When one is preempted because the KV cache is full, the next one in rank takes its slot after a
// step, and does not wait for another change of the batch.
func TestModelLooksAtTheQueueAfterItPreempted(t *testing.T) {
	p := &model.Profile{Batch: []model.Point{{Batch: 1, StepPS: 1000}}, KVTokens: 20}
	e, err := model.New(model.Config{Profile: p, Slots: 2})
	if err != nil {
		t.Fatal(err)
	}
	_ = e.Submit(0, model.Request{ID: 1, Prompt: 8, Output: 12, Priority: 1})
	_ = e.Submit(0, model.Request{ID: 2, Prompt: 6, Output: 10})
	events := e.Advance(1, nil)
	_ = e.Submit(1, model.Request{ID: 3, Prompt: 1, Output: 1, Priority: 1})
	events = e.Advance(1000, events)
	preempted := slices.IndexFunc(events, func(ev model.Event) bool { return ev.Kind == model.Preempted && ev.ID == 2 })
	started := slices.IndexFunc(events, func(ev model.Event) bool { return ev.Kind == model.Started && ev.ID == 3 })
	if preempted < 0 || started < 0 || events[started].AtNS != events[preempted].AtNS+1 {
		t.Errorf("%+v", events)
	}
}

// When the first of the queue is canceled, which had no room, the next one may have room.
func TestModelLooksAtTheQueueAfterACancellation(t *testing.T) {
	p := &model.Profile{Batch: []model.Point{{Batch: 1, StepPS: 1000}}, KVTokens: 20}
	e, err := model.New(model.Config{Profile: p})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []model.Request{{ID: 1, Prompt: 8, Output: 10}, {ID: 2, Prompt: 12, Output: 5}, {ID: 3, Prompt: 1, Output: 1}} {
		if err := e.Submit(0, r); err != nil {
			t.Fatal(err)
		}
	}
	e.Advance(2, nil)
	e.Cancel(3, 2)
	events := e.Advance(5, nil)
	if !slices.ContainsFunc(events, func(ev model.Event) bool { return ev.Kind == model.Started && ev.ID == 3 && ev.AtNS <= 4 }) {
		t.Errorf("%+v", events)
	}
}

func TestPrefixesGoFromOneEngineToAnother(t *testing.T) {
	p, err := model.Find("qwen3-14b-h800-tp1")
	if err != nil {
		t.Fatal(err)
	}
	from, _ := model.New(model.Config{Profile: p})
	to, _ := model.New(model.Config{Profile: p})
	_ = from.Submit(0, model.Request{ID: 1, Key: 7, Prompt: 5000, Output: 100})
	at, _ := from.NextEvent()
	for ok := true; ok; at, ok = from.NextEvent() {
		from.Advance(at, nil)
	}
	tokens := from.Prefix(1e12, 7)
	if tokens != 5100 {
		t.Fatalf("%d tokens are cached, want 5100", tokens)
	}
	arrives := p.TransferTimeNS(tokens)
	// 5,100 tokens of 163,840 bytes over 40 GB/s, after 0.1 s.
	if arrives != 100_000_000+5100*163_840/40 {
		t.Errorf("the transfer takes %d ns", arrives)
	}
	if got := to.Import(arrives, 7, tokens); got != tokens {
		t.Fatalf("%d tokens were imported", got)
	}
	from.Drop(1e12, 7)
	_ = to.Submit(arrives, model.Request{ID: 2, Key: 7, Prompt: 5600, Output: 1})
	events := to.Advance(arrives, nil)
	if len(events) != 1 || events[0].Cached != 5100 || from.Prefix(1e12, 7) != 0 {
		t.Errorf("%+v, and %d tokens are left", events, from.Prefix(1e12, 7))
	}
}

// Every profile that comes with rota is valid, says where it is from, and behaves as hardware does.
func TestProfiles(t *testing.T) {
	for _, p := range model.Profiles() {
		t.Run(p.Name, func(t *testing.T) {
			if err := p.Validate(); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(p.Source, "estimate") {
				t.Error("it does not say that it is an estimate")
			}
			if p.Degree == 1 {
				return
			}
			half, err := model.Find(strings.Replace(p.Name, "tp"+string(rune('0'+p.Degree)), "tp"+string(rune('0'+p.Degree/2)), 1))
			if err != nil {
				t.Fatal(err)
			}
			// A higher degree has a shorter step, but less throughput for each GPU (Heddle §6).
			if p.StepPS(1) >= half.StepPS(1) || p.StepPS(64)*2 <= half.StepPS(64) || p.KVTokens < half.KVTokens*2 {
				t.Errorf("steps of %d and %d ps, of %d and %d at half the degree", p.StepPS(1), p.StepPS(64), half.StepPS(1), half.StepPS(64))
			}
		})
	}
	if _, err := model.Find("gpt"); err == nil || !strings.Contains(err.Error(), "qwen3-8b-h800-tp1") {
		t.Errorf("an unknown name: %v", err)
	}
}

// RollArt §3.1: two H800 are faster than six H20, which cost the same, at prompts (0.53 at best),
// and slower at decoding (the H20 need 0.49 to 0.79 of the time).
func TestHardwareHasTheAffinityThatRollArtMeasured(t *testing.T) {
	h800, _ := model.Find("qwen3-8b-h800-tp1")
	h20, _ := model.Find("qwen3-8b-h20-tp1")
	prefill := float64(h800.PrefillNS(8192, 8192)*6) / float64(h20.PrefillNS(8192, 8192)*2)
	if prefill < 0.4 || prefill > 0.9 {
		t.Errorf("H800 takes %.2f of H20's time for prompts", prefill)
	}
	// 48 requests of 12,000 tokens, divided over the GPUs.
	decode := float64(h20.StepPS(8)+8*12_000*h20.KVReadPS) / float64(h800.StepPS(24)+24*12_000*h800.KVReadPS)
	if decode < 0.4 || decode > 0.9 {
		t.Errorf("H20 takes %.2f of H800's time for tokens", decode)
	}
}

func TestRequestsThatMakeNoSense(t *testing.T) {
	p, _ := model.Find("qwen3-8b-h800-tp1")
	e, _ := model.New(model.Config{Profile: p, KVTokens: 100})
	for name, r := range map[string]model.Request{
		"no prompt": {Output: 1}, "no output": {Prompt: 1}, "too long": {Prompt: 99, Output: 2}, "a key too large": {Prompt: 1, Output: 1, Key: 1 << 63},
	} {
		if err := e.Submit(0, r); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	if _, err := model.New(model.Config{Profile: &model.Profile{}}); err == nil {
		t.Error("an empty profile is accepted")
	}
}

// BenchmarkModel is a million requests a turn of trajectories on one engine, as a simulation has
// them: four turns each, 64 at a time.
func BenchmarkModel(b *testing.B) {
	p, _ := model.Find("qwen3-8b-h800-tp1")
	for b.Loop() {
		e, _ := model.New(model.Config{Profile: p, Slots: 64, Preemption: model.PreemptKeep})
		rng := rand.New(rand.NewPCG(1, 2))
		next := uint64(1)
		submit := func(now int64) {
			key := (next-1)/4 + 1
			_ = e.Submit(now, model.Request{ID: next, Key: key, Prompt: 1000 + 500*int64(next%4), Output: 1 + rng.Int64N(400), Priority: rng.Int64N(1000)})
			next++
		}
		for range 96 {
			submit(0)
		}
		var events []model.Event
		finished := 0
		for finished < 1_000_000 {
			at, _ := e.NextEvent()
			events = e.Advance(at, events[:0])
			for _, ev := range events {
				if ev.Kind == model.Finished {
					finished++
					submit(at)
				}
			}
		}
	}
}
