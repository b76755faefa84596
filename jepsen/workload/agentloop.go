package workload

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"rota/api/backoff"
	rotav1 "rota/api/gen/rota/v1"
	"rota/jepsen/history"
)

const (
	// essays are how many prompts there are.
	essays = 16
	// answerTokensMax bounds an answer. The prompts ask for fewer.
	answerTokensMax = 1000
	// answerLimit is how long an author waits for an answer, triesMax how often it asks.
	answerLimit, triesMax = 10 * time.Second, 3
	// weightsLimit bounds one call that changes the weights of an engine.
	weightsLimit = 2 * time.Second
	// missesFor is how long an engine may miss a version: longer than gateways may be late to hear.
	missesFor = 8 * time.Second
	// agelessEssays is a staleness that no run reaches, turnsMax how many turns a long trajectory has.
	agelessEssays, turnsMax = 1_000_000, 5
	// batchesOfEssays are how many batches there are for each version.
	batchesOfEssays = 2
)

// agentLoop has authors generate through gateways for the samples of rollouts, and a trainer that
// changes the weights of the engines. Without gateways it rests.
func agentLoop(ctx context.Context, env *Env, rate float64) error {
	if len(env.Gateways) == 0 {
		return nil
	}
	if len(env.Servers) == 0 {
		return errNoServers
	}
	env.trains.Store(true)
	conns, plain := env.connect()
	defer plain.CloseIdleConnections()
	s := &studio{env: env, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}}}
	defer s.http.CloseIdleConnections()
	if err := s.open(ctx, env.newWorker(conns)); err != nil {
		return err
	}
	var training sync.WaitGroup
	trainer := &learner{worker: env.newWorker(conns), policy: env.Policy, batches: batchesOfEssays, step: 1, studio: s}
	training.Go(func() { trainer.learn(ctx) })
	err := env.work(ctx, rate, func(w *worker) func(context.Context) { return (&author{worker: w, studio: s}).step })
	training.Wait()
	return err
}

// studio is the engines and the gateways, as their clients see them.
type studio struct {
	env  *Env
	http *http.Client
	// prompts and what any engine answers to them.
	prompts, wants []string
	// have are the versions that the only trainer has given to engines. misses is the engine that it
	// leaves out until missed.
	have   map[string]uint64
	misses string
	missed time.Time
}

// open registers the engines, and asks one for all answers.
func (s *studio) open(ctx context.Context, w *worker) error {
	s.have = map[string]uint64{}
	for _, g := range s.env.Generators {
		spec := &rotav1.WorkerSpec{
			Name: g.ID, Policy: s.env.Policy, Url: "http://" + g.Addr, Dialect: rotav1.WorkerDialect_WORKER_DIALECT_VLLM,
			Profile: &rotav1.WorkerProfile{
				Points:     []*rotav1.WorkerProfilePoint{{BatchSize: 1, TokenTime: durationpb.New(3 * time.Millisecond)}},
				Prefill_1K: durationpb.New(time.Millisecond),
			},
		}
		err := w.insist(ctx, func(ctx context.Context, c *conn) error {
			_, err := c.workers.RegisterWorker(ctx, &rotav1.RegisterWorkerRequest{Spec: spec})
			return err
		})
		if err != nil {
			return fmt.Errorf("register %s: %w", g.ID, err)
		}
	}
	for n := range essays {
		s.prompts = append(s.prompts, fmt.Sprintf("Essay %d. simulated:tokens=%d", n, 40+n*20))
	}
	var whole struct{ Choices []struct{ Text string } }
	for len(whole.Choices) == 0 {
		raw, err := s.post(ctx, "http://"+s.env.Generators[0].Addr+"/v1/completions", map[string]any{"prompt": s.prompts, "max_tokens": answerTokensMax})
		if err == nil {
			err = json.Unmarshal(raw, &whole)
		}
		if err != nil && backoff.Sleep(ctx, 50*time.Millisecond) != nil {
			return err
		}
	}
	for _, c := range whole.Choices {
		s.wants = append(s.wants, c.Text)
	}
	return nil
}

// insist repeats a call, of which there is no record, until it succeeds.
func (w *worker) insist(ctx context.Context, call func(context.Context, *conn) error) error {
	for {
		once, cancel := context.WithTimeout(ctx, w.env.timeout())
		err := call(once, w.conns[w.at])
		cancel()
		if err == nil {
			return nil
		}
		w.roam()
		if backoff.Sleep(ctx, 50*time.Millisecond) != nil {
			return err
		}
	}
}

// post makes a call of an engine.
func (s *studio) post(ctx context.Context, url string, body any) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	resp, err := s.send(ctx, url, "", body)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %s", resp.StatusCode, raw)
	}
	return raw, err
}

func (s *studio) send(ctx context.Context, url, trajectory string, body any) (*http.Response, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if trajectory != "" {
		req.Header.Set("Rota-Trajectory", trajectory)
	}
	return s.http.Do(req)
}

// update gives the engines the version of the trainer. Some miss it for a while.
func (s *studio) update(ctx context.Context, l *learner) {
	for _, g := range s.env.Generators {
		if s.have[g.ID] == l.version || g.ID == s.misses && time.Now().Before(s.missed) {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, weightsLimit)
		err := s.load(limited, g.Addr, l.version)
		cancel()
		if err != nil {
			continue // it was killed, and is asked again
		}
		err = l.insist(ctx, func(ctx context.Context, c *conn) error {
			_, err := c.workers.UpdateWorker(ctx, &rotav1.UpdateWorkerRequest{Name: g.ID, Version: &l.version, Up: true})
			return err
		})
		if err == nil {
			s.have[g.ID] = l.version
		}
	}
}

// load has an engine take weights.
func (s *studio) load(ctx context.Context, addr string, version uint64) error {
	for _, call := range []struct {
		path string
		body map[string]any
	}{
		{"/pause?mode=abort", nil},
		{"/finish_weight_update", map[string]any{"weight_version": strconv.FormatUint(version, 10)}},
		{"/resume", nil},
	} {
		if _, err := s.post(ctx, "http://"+addr+call.path, call.body); err != nil {
			return err
		}
	}
	return nil
}

// changing is what a new version means for engines and gateways: one engine may miss it, and the
// policy is suspended meanwhile, or not. What it returns ends the suspension.
func (s *studio) changing(ctx context.Context, l *learner) (end func()) {
	if now := time.Now(); l.chance(70) && now.After(s.missed) {
		g := s.env.Generators[l.rand.IntN(len(s.env.Generators))]
		s.misses, s.missed = g.ID, now.Add(missesFor)
	}
	if l.chance(30) {
		return func() {}
	}
	q := &rotav1.SuspendPolicyRequest{Policy: l.policy}
	_ = l.insist(ctx, func(ctx context.Context, c *conn) error { // it failed only if the run is over
		_, err := c.rollouts.SuspendPolicy(ctx, q)
		return err
	})
	return func() {
		s.update(ctx, l)
		_ = l.insist(ctx, func(ctx context.Context, c *conn) error { // as above
			_, err := c.rollouts.ResumePolicy(ctx, &rotav1.ResumePolicyRequest{Policy: l.policy})
			return err
		})
	}
}

// author is an agent loop: it opens a trajectory of a rollout, generates in it, runs actions in its
// environment, and puts a sample.
type author struct {
	*worker
	*studio
	rollout uint64
	opened  int // of the rollout
	// ageless: its samples do not grow too old. Its trajectories may live long then.
	ageless bool
}

func (a *author) step(ctx context.Context) {
	if a.rollout == 0 || a.opened >= 2*promptsOfRollout*samplesOfPrompt {
		id, staleness := a.worker.requestID(), uint32(1)
		if a.ageless = a.chance(60); a.ageless {
			staleness = agelessEssays
		}
		op := a.createRollout(ctx, &rotav1.CreateRolloutRequest{RequestId: id, ExpireTime: a.worker.env.clock.expiry(ctx, a.worker), Spec: &rotav1.RolloutSpec{
			Name: id, Policy: a.studio.env.Policy, Groups: promptsOfRollout, SamplesPerGroup: samplesOfPrompt, Redundant: 1, Staleness: staleness,
		}})
		if op.Outcome != history.OK {
			return
		}
		a.rollout, a.opened = op.IDs[0], 0
	}
	trajectory := a.open(ctx)
	if trajectory == 0 {
		return
	}
	turns, pause := 1+a.rand.IntN(3), time.Duration(0)
	if a.ageless && a.chance(70) {
		turns, pause = turnsMax, a.between(time.Second, 2500*time.Millisecond)
	}
	for n := range turns {
		if n > 0 && backoff.Sleep(ctx, pause) != nil || !a.turn(ctx, trajectory) {
			a.closeTrajectory(ctx, trajectory)
			return
		}
		a.submit(ctx, a.newRequest(ctx, trajectory, 0, a.newJob))
	}
	for range 3 {
		if a.putSample(ctx, trajectory).Outcome != history.Unknown {
			return
		}
		a.roam()
	}
}

// open opens a trajectory of any prompt; 0: none.
func (a *author) open(ctx context.Context) uint64 {
	a.opened++
	id := a.worker.requestID()
	q := &rotav1.OpenTrajectoryRequest{
		RequestId: id, ExpireTime: a.worker.env.clock.expiry(ctx, a.worker), Name: id, Pool: a.worker.env.Pool, MemoryBytes: trajectoryBytes,
		Rollout:    &rotav1.RolloutMembership{RolloutId: a.rollout, Group: uint32(a.rand.IntN(promptsOfRollout))},
		Generation: &rotav1.GenerationSpec{Policy: a.studio.env.Policy, TaskClass: "essay"},
	}
	for range 3 {
		op := a.joinRollout(ctx, q)
		if op.Outcome == history.OK {
			return op.IDs[0]
		}
		if op.Outcome == history.Fail {
			return 0
		}
		a.roam()
	}
	return 0
}

// turn generates until an answer is complete. It gives up if there is none.
func (a *author) turn(ctx context.Context, trajectory uint64) bool {
	n := a.rand.IntN(essays)
	for range triesMax {
		op := a.generate(ctx, trajectory, n)
		if op.Outcome == history.OK {
			return true
		}
		if op.Outcome == history.Fail || backoff.Sleep(ctx, 100*time.Millisecond) != nil {
			return false
		}
	}
	return false
}

// generate streams an answer through any gateway. It is OK if the answer came to its end, and
// failed if the gateway refused it.
func (a *author) generate(ctx context.Context, trajectory uint64, n int) history.Op {
	env := a.worker.env
	gateway := env.Gateways[a.rand.IntN(len(env.Gateways))]
	call := env.Record.Begin(history.Op{Client: a.client, Verb: history.Generate, Server: gateway, Target: trajectory, Policy: env.Policy, Want: a.wants[n]})
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	outcome, err := a.stream(ctx, gateway, &call.Op, a.prompts[n])
	if err != nil {
		call.Error = err.Error()
	}
	call.Finish(outcome)
	return call.Op
}

func (a *author) stream(ctx context.Context, gateway string, op *history.Op, prompt string) (history.Outcome, error) {
	resp, err := a.send(ctx, "http://"+gateway+"/v1/completions", strconv.FormatUint(op.Target, 10),
		map[string]any{"prompt": prompt, "max_tokens": answerTokensMax, "stream": true})
	if err != nil {
		return history.Unknown, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(resp.Body, 200)) // it was refused, whatever it says
		outcome := history.Unknown
		if resp.StatusCode < 500 {
			outcome = history.Fail
		}
		return outcome, fmt.Errorf("status %d: %s", resp.StatusCode, said)
	}
	finish := ""
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if ok && data == "[DONE]" {
			if finish == "stop" {
				return history.OK, nil
			}
			return history.Unknown, fmt.Errorf("it ended with %q", finish)
		}
		if ok {
			if err := read(op, &finish, data); err != nil {
				return history.Unknown, err
			}
		}
	}
	return history.Unknown, fmt.Errorf("the stream broke: %w", lines.Err())
}

// read notes a part of an answer.
func read(op *history.Op, finish *string, data string) error {
	var part struct {
		Version string `json:"weight_version"`
		Choices []struct {
			Text   string `json:"text"`
			Finish string `json:"finish_reason"`
		} `json:"choices"`
		Error json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal([]byte(data), &part); err != nil {
		return err
	}
	if part.Error != nil {
		return fmt.Errorf("the stream ended with %s", part.Error)
	}
	version, _ := strconv.ParseUint(part.Version, 10, 64) // the first one has a name
	for _, c := range part.Choices {
		op.Text += c.Text
		if c.Finish != "" {
			*finish = c.Finish
		}
		if n := len(op.Versions); c.Text != "" && (n == 0 || op.Versions[n-1] != version) {
			op.Versions = append(op.Versions, version)
		}
	}
	return nil
}
