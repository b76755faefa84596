package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"rota/api/codec"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
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

// Outcomes count from the measured time on.
func TestOutcomesOfOverload(t *testing.T) {
	var c outcomes
	at := time.Now()
	c.called(at)
	c.note(at.Add(-time.Minute), nil)
	c.refused(3, time.Second)
	c.note(at, errors.New("cut off"))
	c.miss(2)
	o := c.offered()
	if o.Calls != 1 || o.Accepted != 1 || o.Refused != 3 || o.RetryAfterMS != 1000 || o.Failed != 1 || o.FirstError == "" || o.Unsent != 2 || o.Until.MaxMS < 60_000 || o.Answer.MaxMS >= 60_000 {
		t.Errorf("outcomes are %+v", o)
	}
	c = outcomes{from: time.Now().Add(time.Hour)}
	c.called(at)
	c.refused(3, time.Second)
	c.note(at, nil)
	if o := c.offered(); o.Calls != 0 || o.Accepted != 0 || o.Refused != 0 {
		t.Error("an answer before the measured time counts")
	}
	// Only a refusal that says when to try again is one for overload.
	for _, err := range []error{nil, errors.New("cut off"), refusal(t, connect.CodeResourceExhausted, 0), refusal(t, connect.CodeUnavailable, time.Second)} {
		if _, refused := codec.Overloaded(err); refused {
			t.Errorf("%v is a refusal for overload", err)
		}
	}
}

// fullService refuses all that is submitted, for an hour, and counts the calls.
type fullService struct {
	rotav1connect.UnimplementedActionServiceHandler
	rotav1connect.UnimplementedOperatorServiceHandler
	t     *testing.T
	calls atomic.Int64
}

func (s *fullService) SubmitActions(context.Context, *rotav1.SubmitActionsRequest) (*rotav1.SubmitActionsResponse, error) {
	s.calls.Add(1)
	return nil, refusal(s.t, connect.CodeResourceExhausted, time.Hour)
}

func (s *fullService) BatchSubmitActions(_ context.Context, req *rotav1.BatchSubmitActionsRequest) (*rotav1.BatchSubmitActionsResponse, error) {
	s.calls.Add(1)
	resp := &rotav1.BatchSubmitActionsResponse{}
	for range req.Requests {
		resp.Results = append(resp.Results, &rotav1.SubmitActionsResult{Outcome: &rotav1.SubmitActionsResult_Error{Error: &rotav1.ErrorDetail{
			Code: uint32(connect.CodeResourceExhausted), Reason: "QUEUE_FULL", RetryDelay: durationpb.New(time.Hour),
		}}})
	}
	return resp, nil
}

func (s *fullService) GetStatus(context.Context, *rotav1.GetStatusRequest) (*rotav1.GetStatusResponse, error) {
	return &rotav1.GetStatusResponse{}, nil
}

// Clients of one program share what a refusal says, unless they are impatient.
func TestClientsOfOverloadWait(t *testing.T) {
	full := &fullService{t: t}
	mux := http.NewServeMux()
	mux.Handle(rotav1connect.NewActionServiceHandler(full, codec.ForHandler()))
	mux.Handle(rotav1connect.NewOperatorServiceHandler(full, codec.ForHandler()))
	server := httptest.NewUnstartedServer(nil)
	server.Config = httpx.NewServer(mux)
	server.Start()
	defer server.Close()
	for _, test := range []struct {
		programs  int
		impatient bool
		most      int64 // calls; 0: any number
	}{{1, false, 2}, {3, false, 6}, {3, true, 0}} {
		full.calls.Store(0)
		in, err := json.Marshal(Offer{
			Addr: server.Listener.Addr().String(), Clients: 6, Programs: test.programs, Batch: 1, Size: 100, PerSecond: 1e6,
			Duration: 100 * time.Millisecond, Impatient: test.impatient,
		})
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := RunOffer(t.Context(), bytes.NewReader(in), &out); err != nil {
			t.Fatal(err)
		}
		if n := full.calls.Load(); n == 0 || test.most > 0 && n > test.most || test.most == 0 && n <= 6 {
			t.Errorf("six clients in %d programs, impatient: %t, made %d calls", test.programs, test.impatient, n)
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

// Goodput is compared with the best, which may be at any factor.
func TestGoodputIsComparedWithTheBest(t *testing.T) {
	r := OverloadResult{Capacity: OverloadStep{Goodput: 50}, Steps: []OverloadStep{{Goodput: 200}, {Goodput: 100}}}
	r.compare()
	if r.Capacity.GoodputPercent != 25 || r.Steps[0].GoodputPercent != 100 || r.Steps[1].GoodputPercent != 50 {
		t.Errorf("compared: %+v", r)
	}
}
