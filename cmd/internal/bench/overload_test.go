package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	rotav1 "rota/api/gen/rota/v1"
	"rota/api/httpx"
)

// refusal is the error of a call that is refused, with a delay after which to try again or without.
func refusal(t *testing.T, code connect.Code, after time.Duration) error {
	t.Helper()
	d := &rotav1.ErrorDetail{}
	if after > 0 {
		d.RetryDelay = durationpb.New(after)
	}
	err := connect.NewError(code, errors.New("of the test"))
	detail, e := connect.NewErrorDetail(d)
	if e != nil {
		t.Fatal(e)
	}
	err.AddDetail(detail)
	return err
}

// Only a refusal that says when to try again is one for overload; everything else is a failure.
func TestOutcomesOfOverload(t *testing.T) {
	var c outcomes
	at := time.Now()
	c.note(at, at.Add(-time.Minute), nil)
	c.note(at, at, refusal(t, connect.CodeResourceExhausted, time.Second))
	c.note(at, at, refusal(t, connect.CodeResourceExhausted, 0))
	c.note(at, at, refusal(t, connect.CodeUnavailable, time.Second))
	c.note(at, at, errors.New("cut off"))
	c.miss(2)
	o := c.offered()
	if o.Accepted != 1 || o.Refused != 1 || o.RetryAfterMS != 1000 || o.Failed != 3 || o.FirstError == "" || o.Unsent != 2 || o.Until.MaxMS < 60_000 || o.Answer.MaxMS >= 60_000 {
		t.Errorf("outcomes are %+v", o)
	}
	c = outcomes{from: time.Now().Add(time.Hour)}
	if c.note(at, at, nil); c.offered().Accepted != 0 {
		t.Error("an answer before the measured time counts")
	}
}

// Clients wait as long as a refusal says, unless they are impatient.
func TestClientsOfOverloadWait(t *testing.T) {
	var asked atomic.Int64
	refuses := connect.NewUnaryHandler("/rota.v1.ActionService/SubmitActions", func(_ context.Context, _ *connect.Request[rotav1.SubmitActionsRequest]) (*connect.Response[rotav1.SubmitActionsResponse], error) {
		asked.Add(1)
		return nil, refusal(t, connect.CodeResourceExhausted, time.Hour)
	})
	server := httptest.NewUnstartedServer(nil)
	server.Config = httpx.NewServer(refuses)
	server.Start()
	defer server.Close()
	for _, impatient := range []bool{false, true} {
		asked.Store(0)
		in, err := json.Marshal(Offer{
			Addr: server.Listener.Addr().String(), Clients: 3, Batch: 1, Size: 100, PerSecond: 1e6, Duration: 100 * time.Millisecond, Impatient: impatient,
		})
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := RunOffer(t.Context(), bytes.NewReader(in), &out); err != nil {
			t.Fatal(err)
		}
		if n := asked.Load(); n == 0 || (n > 3) != impatient {
			t.Errorf("three clients, impatient: %t, asked %d times", impatient, n)
		}
	}
	if err := RunOffer(t.Context(), strings.NewReader("{}"), &bytes.Buffer{}); err == nil {
		t.Error("an empty offer is accepted")
	}
}

// Goodput is what ended between the first and the last look, in all namespaces.
func TestGoodputIsWhatEnded(t *testing.T) {
	ended := func(counts ...uint64) (list []*rotav1.Namespace) {
		for _, n := range counts {
			list = append(list, &rotav1.Namespace{Usage: &rotav1.NamespaceUsage{EndedActions: n}})
		}
		return append(list, &rotav1.Namespace{})
	}
	var e endings
	at := time.Now()
	e.note(at, ended(100, 50))
	if e.perSecond() != 0 {
		t.Errorf("one look gives %v", e.perSecond())
	}
	e.note(at.Add(time.Second), ended(140, 50))
	e.note(at.Add(2*time.Second), ended(180, 70))
	if got := e.perSecond(); got != 50 {
		t.Errorf("%v a second have ended, want 50", got)
	}
}
