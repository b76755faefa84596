package predictor

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	logv1 "rota/api/gen/log/v1"
	"rota/api/pki"
	"rota/fsm"
	"rota/fsm/state"
)

// cluster is a state machine without Raft, whose commands are applied at once.
type cluster struct {
	*testing.T
	machine *fsm.Machine
	index   uint64
	// applied has the predictions of each command of a predictor.
	applied chan []*logv1.GenerationPrediction
}

// newCluster has trajectories of which some generates.
func newCluster(t *testing.T, trajectories int) *cluster {
	c := &cluster{T: t, machine: fsm.New(fsm.Options{}), applied: make(chan []*logv1.GenerationPrediction, 16)}
	c.must(&logv1.Command{Verb: &logv1.Command_Bootstrap{Bootstrap: &logv1.Bootstrap{ClusterId: "c", Level: uint32(state.LevelMax)}}})
	c.must(&logv1.Command{Verb: &logv1.Command_CreateRollout{CreateRollout: &logv1.CreateRollout{Policy: "p", Groups: 1, SamplesPerGroup: 1}}})
	for range trajectories {
		c.must(&logv1.Command{Verb: &logv1.Command_OpenTrajectory{OpenTrajectory: &logv1.OpenTrajectory{
			Generation: &logv1.GenerationSpec{Policy: "p", TaskClass: "code", PromptTokens: 700},
		}}})
	}
	return c
}

func (c *cluster) apply(commands ...*logv1.Command) []*logv1.Result {
	c.Helper()
	c.index++
	data, err := (&logv1.Entry{TimeNs: int64(time.Second), Commands: commands}).MarshalVT()
	if err != nil {
		c.Fatal(err)
	}
	results, err := c.machine.ApplyData(c.index, 0, data)
	if err != nil {
		c.Fatal(err)
	}
	return results
}

func (c *cluster) must(command *logv1.Command) {
	c.Helper()
	if r := c.apply(command)[0]; r.Refusal != nil {
		c.Fatal(r.Refusal)
	}
}

func (c *cluster) propose(_ context.Context, commands ...*logv1.Command) ([]*logv1.Result, error) {
	results := c.apply(commands...)
	c.applied <- commands[0].GetPredictGenerations().Predictions
	return results, nil
}

// turn has a trajectory go through a turn.
func (c *cluster) turn(id uint64) {
	c.must(&logv1.Command{Verb: &logv1.Command_ReportGenerations{ReportGenerations: &logv1.ReportGenerations{
		Generations: []*logv1.GenerationReport{{TrajectoryId: id, Turns: 1, OutputTokens: 100, ContextTokens: 900}},
	}}})
}

func (c *cluster) generation(id state.TrajectoryID) (g state.Generation) {
	c.machine.View(func(s *state.State) { g = *s.Generation(id) })
	return g
}

// predictor asks a service that is a function.
func (c *cluster) predictor(serve http.HandlerFunc) *Predictor {
	c.Helper()
	service := httptest.NewServer(serve)
	c.Cleanup(service.Close)
	p, err := New(Config{URL: service.URL, View: c.machine.View, Propose: c.propose, Logger: hclog.NewNullLogger()})
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(p.http.CloseIdleConnections)
	return p
}

// askedOf reads which trajectories a request is about, as "ID after TURNS". In JSON, whole numbers of 64 bits
// are strings, and 0 is left out.
func askedOf(r *http.Request) (asked []string) {
	var q struct {
		Trajectories []struct {
			ID, Policy, TaskClass, PromptTokens string
			Turns                               int
			Own                                 struct{ Tokens string }
		}
	}
	if json.NewDecoder(r.Body).Decode(&q) != nil || r.URL.Path != "/predictor.v1.PredictorService/Predict" {
		return []string{"not a request"}
	}
	for _, t := range q.Trajectories {
		text := fmt.Sprintf("%s after %d", t.ID, t.Turns)
		if t.Policy != "p" || t.TaskClass != "code" || t.PromptTokens != "700" || t.Own.Tokens == "" {
			text = fmt.Sprintf("%+v", t)
		}
		asked = append(asked, text)
	}
	return asked
}

func answer(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, text)
}

// TestServiceIsAskedOnceForEachTurn, also about a trajectory that it leaves out. What it says of others,
// and a second time, does not count.
func TestServiceIsAskedOnceForEachTurn(t *testing.T) {
	c := newCluster(t, 2)
	var asked []string
	p := c.predictor(func(w http.ResponseWriter, r *http.Request) {
		asked = askedOf(r)
		answer(w, `{"predictions": [{"id": 1, "tokens": 5000, "tokensP50": "4000", "tokensP90": 9000, "turns": 7}, {"id": 1, "tokens": 1}, {"id": 77, "tokens": 1}]}`)
	})
	round := func(want ...string) {
		t.Helper()
		asked = nil
		if full, err := p.round(t.Context()); full || err != nil {
			t.Fatal(full, err)
		}
		if got := strings.Join(asked, ", "); got != strings.Join(want, ", ") {
			t.Errorf("asked about %s, want %s", got, want)
		}
	}
	round("1 after 0", "2 after 0")
	if said := <-c.applied; len(said) != 1 || said[0].TrajectoryId != 1 {
		t.Errorf("applied %v", said)
	}
	first, second := c.generation(1), c.generation(2)
	want := state.ServicePrediction{Said: true, Own: second.Predicted, P50: 4000, P90: 9000, Turns: 7}
	if first.Predicted != 5000 || first.FirstPredicted != 5000 || first.Service != want || second.Service.Said {
		t.Errorf("the service said %+v of the first, which counts as %d, and %+v of the second", first.Service, first.Predicted, second.Service)
	}
	round()
	c.turn(2)
	round("2 after 1")
	c.turn(1)
	if g := c.generation(1); g.Service.Said {
		t.Errorf("after a turn what was said before counts: %+v", g)
	}
	round("1 after 1")
}

// TestManyTrajectoriesAreAskedAboutInPieces.
func TestManyTrajectoriesAreAskedAboutInPieces(t *testing.T) {
	const many = 2*fsm.PredictionsMax + 1
	c := newCluster(t, many)
	pieces := map[int]int{}
	p := c.predictor(func(w http.ResponseWriter, r *http.Request) {
		asked := askedOf(r)
		pieces[len(asked)]++
		answer(w, "{}")
	})
	for _, want := range []bool{true, true, false, false} {
		if full, err := p.round(t.Context()); full != want || err != nil {
			t.Fatal(full, err)
		}
	}
	if pieces[fsm.PredictionsMax] != 2 || pieces[1] != 1 || len(pieces) != 2 {
		t.Errorf("calls by how many they asked about: %v", pieces)
	}
}

// TestBadAnswersChangeNothing: rota's own predictions count.
func TestBadAnswersChangeNothing(t *testing.T) {
	for name, serve := range map[string]http.HandlerFunc{
		"an error":   func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "down", http.StatusInternalServerError) },
		"no JSON":    func(w http.ResponseWriter, _ *http.Request) { answer(w, "<html>") },
		"no number":  func(w http.ResponseWriter, _ *http.Request) { answer(w, `{"predictions": [{"id": 1, "tokens": -5}]}`) },
		"a fraction": func(w http.ResponseWriter, _ *http.Request) { answer(w, `{"predictions": [{"id": 1, "tokens": 5.5}]}`) },
		"too much": func(w http.ResponseWriter, _ *http.Request) {
			answer(w, `{"x": "`+strings.Repeat("x", answerBytesMax)+`"}`)
		},
		"another place": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		},
		"a broken connection": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"silence":             func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body); <-r.Context().Done() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, 1)
			before := c.generation(1)
			if _, err := c.predictor(serve).round(t.Context()); err == nil {
				t.Error("it did not fail")
			}
			if g := c.generation(1); len(c.applied) > 0 || g.Predicted != before.Predicted || g.Service.Said {
				t.Errorf("applied %d commands: %+v", len(c.applied), g)
			}
		})
	}
}

// TestServiceThatComesBackIsAsked, after a pause.
func TestServiceThatComesBackIsAsked(t *testing.T) {
	c := newCluster(t, 1)
	calls := 0
	p := c.predictor(func(w http.ResponseWriter, r *http.Request) {
		if calls++; calls == 1 {
			http.Error(w, "starting", http.StatusServiceUnavailable)
			return
		}
		answer(w, `{"predictions": [{"id": "1", "tokens": "300"}]}`)
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.Run(ctx)
	}()
	if said := <-c.applied; len(said) != 1 || said[0].Tokens != 300 {
		t.Errorf("applied %v", said)
	}
	cancel()
	<-done
}

// TestTheCauseIsSaid: a service that answers does not fail, though nothing of it can be committed.
func TestTheCauseIsSaid(t *testing.T) {
	c := newCluster(t, 1)
	p := c.predictor(func(w http.ResponseWriter, _ *http.Request) {
		answer(w, `{"predictions": [{"id": "1", "tokens": "300"}]}`)
	})
	var said bytes.Buffer
	p.cfg.Logger = hclog.New(&hclog.LoggerOptions{Output: &said})
	for _, when := range []struct {
		propose func(context.Context, ...*logv1.Command) ([]*logv1.Result, error)
		say     string
	}{
		{func(context.Context, ...*logv1.Command) ([]*logv1.Result, error) { return nil, errors.New("no quorum") }, "cannot be committed"},
		{c.propose, "count again"},
	} {
		p.cfg.Propose = when.propose
		said.Reset()
		if _, err := p.round(t.Context()); err != nil {
			p.fails(err)
		}
		if text := said.String(); !strings.Contains(text, when.say) || strings.Contains(text, "service fails") {
			t.Errorf("said %q, not %q", text, when.say)
		}
		p.after = 0
	}
}

// TestServiceIsKnownByItsCertificate, and the server by that of its own.
func TestServiceIsKnownByItsCertificate(t *testing.T) {
	dir := t.TempDir()
	if err := pki.NewCA(dir); err != nil {
		t.Fatal(err)
	}
	for name, role := range map[string]pki.Role{"s1": pki.RoleServer, "predictor": pki.RoleAgent} {
		if err := pki.Issue(dir, role, name); err != nil {
			t.Fatal(err)
		}
	}
	c := newCluster(t, 1)
	caller := ""
	service := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller = pki.PeerName(r.TLS)
		answer(w, "{}")
	}))
	pair, err := tls.LoadX509KeyPair(pki.FilesIn(dir, "predictor").Cert, pki.FilesIn(dir, "predictor").Key)
	if err != nil {
		t.Fatal(err)
	}
	service.Config.ErrorLog = log.New(io.Discard, "", 0)
	service.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS13}
	service.StartTLS()
	defer service.Close()
	ask := func(cfg Config) error {
		t.Helper()
		cfg.URL, cfg.View, cfg.Propose, cfg.Logger = service.URL, c.machine.View, c.propose, hclog.NewNullLogger()
		p, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer p.http.CloseIdleConnections()
		_, err = p.round(t.Context())
		return err
	}
	files := pki.FilesIn(dir, "s1")
	if err := ask(Config{CA: files.CA, TLS: files}); err != nil || caller != "s1" {
		t.Errorf("%v; the service was called by %q", err, caller)
	}
	if err := ask(Config{TLS: files}); err == nil {
		t.Error("a service that no CA of the system knows was asked")
	}
	if err := ask(Config{CA: files.CA}); err == nil {
		t.Error("a server without a certificate got an answer")
	}
}

func TestURLs(t *testing.T) {
	for text, ok := range map[string]bool{
		"http://127.0.0.1:9100": true, "http://[::1]:9100/base": true, "http://localhost:1": true, "https://predictor.example.com": true,
		"": false, "127.0.0.1:9100": false, "http://10.0.0.1:9100": false, "http://predictor:9100": false, "ftp://127.0.0.1": false,
		"https://": false, "https://user@example.com": false, "https://example.com?x=1": false, "https://example.com#x": false, "http://127.0.0.1:%zz": false,
	} {
		if _, err := New(Config{URL: text}); (err == nil) != ok || err != nil && !errors.Is(err, ErrURL) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := New(Config{URL: "https://user:secret@example.com"}); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("a URL with a password: %v", err)
	}
	if _, err := New(Config{URL: "https://x", CA: "no such file"}); err == nil || errors.Is(err, ErrURL) {
		t.Errorf("a CA that is not there: %v", err)
	}
}
