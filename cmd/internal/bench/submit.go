package bench

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"rota/api/client"
	"rota/api/codec"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/api/httpx"
)

// Mode is a way of submitting actions.
type Mode string

// The modes there are.
const (
	// ModeUnary: a request for each action, straight to the leader.
	ModeUnary Mode = "unary"
	// ModeClient: the Go client library, which sends together what is submitted
	// at the same time.
	ModeClient Mode = "client"
	// ModeBatch: requests of many actions each.
	ModeBatch Mode = "batch"
	// ModeNull: the requests of ModeUnary to a server that does nothing, which is
	// as fast as the HTTP stack can be.
	ModeNull Mode = "null"
)

// Modes are all modes.
var Modes = []Mode{ModeNull, ModeUnary, ModeClient, ModeBatch}

// SubmitOptions say how to submit.
type SubmitOptions struct {
	Cluster    ClusterOptions
	Modes      []Mode
	Submitters []int
	Duration   time.Duration
	// Size of an encoded action in bytes.
	Size int
	// Batch is the number of actions in a request of ModeBatch, and
	// BatchSubmitters how many such requests are under way.
	Batch, BatchSubmitters int
	// Connections over which requests of ModeUnary and ModeNull are spread.
	Connections int
	// Null is the address of a server that does nothing, for ModeNull; one is
	// started if empty.
	Null string
}

// Submit measures each mode with each number of submitters, against a fresh
// cluster each.
func Submit(ctx context.Context, o SubmitOptions, each func(Rate) error) error {
	for _, mode := range o.Modes {
		counts := o.Submitters
		if mode == ModeBatch {
			counts = []int{o.BatchSubmitters}
		}
		for _, n := range counts {
			rate, err := SubmitOnce(ctx, o, mode, n)
			if err != nil {
				return err
			}
			if err := each(rate); err != nil {
				return err
			}
		}
	}
	return nil
}

// SubmitOnce measures one mode with n submitters against a fresh cluster.
func SubmitOnce(ctx context.Context, o SubmitOptions, mode Mode, n int) (Rate, error) {
	if mode == ModeNull {
		return submitNull(ctx, o, n)
	}
	h, err := startHeld(ctx, o.Cluster)
	if err != nil {
		return Rate{}, err
	}
	defer h.stop()
	what := string(mode)
	if o.Cluster.SimulatedNodes > 0 {
		what += fmt.Sprintf(", %d simulated nodes", o.Cluster.SimulatedNodes)
	}
	do, err := h.caller(o, mode)
	if err != nil {
		return Rate{}, err
	}
	return load(ctx, what, n, o.Duration, do)
}

// caller returns what makes one request of a mode.
func (h *held) caller(o SubmitOptions, mode Mode) (call, error) {
	spec := paddedSpec(o.Size)
	switch mode {
	case ModeUnary:
		return unaryCall(o, h.leader, spec), nil
	case ModeClient:
		return func(ctx context.Context, _ int) (int, error) {
			ids, err := h.api.Submit(ctx, spec)
			return len(ids), err
		}, nil
	case ModeBatch:
		specs := slices.Repeat([]*rotav1.ActionSpec{spec}, o.Batch)
		services := actionServices(o.BatchSubmitters, h.leader)
		return func(ctx context.Context, worker int) (int, error) {
			service := services[worker%len(services)]
			resp, err := service.SubmitActions(ctx, &rotav1.SubmitActionsRequest{Actions: specs})
			return len(resp.GetIds()), err
		}, nil
	}
	return nil, fmt.Errorf("unknown mode %q; modes are %v", mode, Modes)
}

func unaryCall(o SubmitOptions, addr string, spec *rotav1.ActionSpec) call {
	services := actionServices(o.Connections, addr)
	return func(ctx context.Context, worker int) (int, error) {
		service := services[worker%len(services)]
		resp, err := service.SubmitActions(ctx, &rotav1.SubmitActionsRequest{Actions: []*rotav1.ActionSpec{spec}})
		return len(resp.GetIds()), err
	}
}

// actionServices returns n clients with a connection of its own each.
func actionServices(n int, addr string) []rotav1connect.ActionServiceClient {
	list := make([]rotav1connect.ActionServiceClient, n)
	for i := range list {
		list[i] = rotav1connect.NewActionServiceClient(httpx.NewClient(nil), httpx.BaseURL(addr, false), codec.ForClient())
	}
	return list
}

// paddedSpec is an action that does nothing and is size bytes when encoded.
func paddedSpec(size int) *rotav1.ActionSpec {
	spec := &rotav1.ActionSpec{Command: &rotav1.Command{Argv: []string{"true"}, Env: map[string]string{"PAD": ""}}}
	for spec.SizeVT() < size {
		spec.Command.Env["PAD"] += strings.Repeat("x", max(1, size-spec.SizeVT()-4))
	}
	return spec
}

func submitNull(ctx context.Context, o SubmitOptions, n int) (Rate, error) {
	addr := o.Null
	if addr == "" {
		null, err := startNull(o.Cluster.Binary)
		if err != nil {
			return Rate{}, err
		}
		defer os.RemoveAll(null.Dir)
		defer null.Kill()
		addr = null.Addr
	}
	if err := waitHTTP(ctx, addr); err != nil {
		return Rate{}, err
	}
	return load(ctx, string(ModeNull), n, o.Duration, unaryCall(o, addr, paddedSpec(o.Size)))
}

// NullHandler answers submissions at once, without doing anything.
func NullHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle(rotav1connect.NewActionServiceHandler(nullService{}, codec.ForHandler()))
	return mux
}

type nullService struct {
	rotav1connect.UnimplementedActionServiceHandler
}

func (nullService) SubmitActions(_ context.Context, req *rotav1.SubmitActionsRequest) (*rotav1.SubmitActionsResponse, error) {
	return &rotav1.SubmitActionsResponse{Ids: make([]uint64, len(req.Actions))}, nil
}

// waitHTTP returns once a server answers.
func waitHTTP(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	c, err := client.New(client.Config{Addrs: []string{addr}})
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Actions.SubmitActions(ctx, &rotav1.SubmitActionsRequest{RequestId: "null"})
	return err
}
