package rpc

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"connectrpc.com/connect"
	"github.com/cespare/xxhash/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm"
	"rota/fsm/state"
)

// defaultName is the namespace or pool of who names none.
const defaultName = "default"

// attemptsDefault is how often an action with LOSS_POLICY_RETRY runs at most if
// it does not say.
const attemptsDefault = 3

// SubmitActions queues actions, all of them or none.
func (s *Server) SubmitActions(ctx context.Context, req *rotav1.SubmitActionsRequest) (*rotav1.SubmitActionsResponse, error) {
	result, err := s.submit(ctx, req)
	if err != nil {
		return nil, err
	}
	resp := submitted(result)
	resp.Estimates = s.estimate(result)
	return resp, nil
}

// submit proposes one submission. The result is never a refusal.
func (s *Server) submit(ctx context.Context, req *rotav1.SubmitActionsRequest) (*logv1.Result, error) {
	command, err := s.checkedSubmission(ctx, req)
	if err != nil {
		return nil, err
	}
	if err := s.refuseFull(command); err != nil {
		return nil, err
	}
	spans := s.trace(traceOf(ctx), req.Actions, command)
	result, err := s.propose(ctx, command)
	spans.end(result.GetFirstId())
	return result, err
}

// BatchSubmitActions queues many submissions in one go. What is wrong with one
// of them is its own result.
func (s *Server) BatchSubmitActions(ctx context.Context, req *rotav1.BatchSubmitActionsRequest) (*rotav1.BatchSubmitActionsResponse, error) {
	if err := checkBatch(req).err(); err != nil {
		return nil, err
	}
	resp := &rotav1.BatchSubmitActionsResponse{Results: make([]*rotav1.SubmitActionsResult, len(req.Requests))}
	commands := make([]*logv1.Command, 0, len(req.Requests))
	places := make([]int, 0, len(req.Requests)) // of each command in the request
	spans, header := make([]*traces, 0, len(req.Requests)), traceOf(ctx)
	for i, r := range req.Requests {
		command, err := s.checkedSubmission(ctx, r)
		if err == nil {
			err = s.refuseFull(command)
		}
		if err != nil {
			resp.Results[i] = s.failedResult(err)
			continue
		}
		commands = append(commands, command)
		places = append(places, i)
		spans = append(spans, s.trace(header, r.Actions, command))
	}
	defer func() {
		for _, t := range spans { // of those that were not committed
			t.end(0)
		}
	}()
	if len(commands) == 0 {
		return resp, nil
	}
	if err := s.checkLeader(); err != nil {
		return nil, err
	}
	results, err := s.proposeAll(ctx, commands...)
	if err != nil {
		return nil, err
	}
	for i, result := range results {
		spans[i].end(result.FirstId)
		resp.Results[places[i]] = s.batchResult(result)
	}
	s.estimateBatch(results, func(i int) *rotav1.SubmitActionsResult { return resp.Results[places[i]] })
	return resp, nil
}

// estimateBatch says when the actions of all accepted submissions start.
func (s *Server) estimateBatch(results []*logv1.Result, of func(int) *rotav1.SubmitActionsResult) {
	accepted := slices.DeleteFunc(slices.Clone(results), func(r *logv1.Result) bool { return r.Refusal != nil })
	all := s.estimate(accepted...)
	for i, r := range results {
		if r.Refusal == nil {
			of(i).GetResponse().Estimates, all = all[:r.Count:r.Count], all[r.Count:]
		}
	}
}

func checkBatch(req *rotav1.BatchSubmitActionsRequest) *violation {
	if v := checkCount("requests", "request", len(req.Requests), actionsMax); v != nil {
		return v
	}
	actions := 0
	for _, r := range req.Requests {
		actions += len(r.GetActions())
	}
	if actions > actionsMax {
		return wrong("requests", "must have at most %d actions in all, have %d", actionsMax, actions)
	}
	return nil
}

func (s *Server) checkedSubmission(ctx context.Context, r *rotav1.SubmitActionsRequest) (*logv1.Command, error) {
	if r == nil {
		return nil, failed(connect.CodeInvalidArgument, "INVALID", "the submission is empty")
	}
	if err := checkSubmit(r).err(); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(r.Actions, streams) {
		// A server that does not know of them would have an agent run the action without.
		if err := s.needLevel(ctx, fsm.LevelStreams); err != nil {
			return nil, err
		}
	}
	return submission(r)
}

// needLevel refuses what needs a feature level that is not active. A server that has just
// started, or lags, learns first what is active.
func (s *Server) needLevel(ctx context.Context, needs state.Level) error {
	if s.Machine.Level() >= needs {
		return nil
	}
	if err := s.catchUp(ctx, false); err != nil {
		return err
	}
	if level := s.Machine.Level(); level < needs {
		return refused(fsm.NotActive(needs, level).Refusal)
	}
	return nil
}

// streams reports whether an action has standard input or a terminal.
func streams(a *rotav1.ActionSpec) bool { return a.Stdin || a.Tty != nil }

func (s *Server) batchResult(r *logv1.Result) *rotav1.SubmitActionsResult {
	if r.Refusal != nil {
		return s.failedResult(s.untilRoom(refused(r.Refusal)))
	}
	return &rotav1.SubmitActionsResult{Outcome: &rotav1.SubmitActionsResult_Response{Response: submitted(r)}}
}

func (s *Server) failedResult(err error) *rotav1.SubmitActionsResult {
	f := s.asFailure(err)
	if f == nil {
		f = failed(connect.CodeInternal, "INTERNAL", "%v", err)
	}
	return &rotav1.SubmitActionsResult{Outcome: &rotav1.SubmitActionsResult_Error{Error: f.detail()}}
}

func submitted(r *logv1.Result) *rotav1.SubmitActionsResponse {
	ids := make([]uint64, r.Count)
	for i := range ids {
		ids[i] = r.FirstId + uint64(i)
	}
	return &rotav1.SubmitActionsResponse{Ids: ids, Replayed: r.Replayed}
}

// submission makes a checked request into a command of the log.
func submission(r *rotav1.SubmitActionsRequest) (*logv1.Command, error) {
	actions := make([]*logv1.Action, len(r.Actions))
	for i, spec := range r.Actions {
		a, err := action(spec)
		if err != nil {
			return nil, err
		}
		actions[i] = a
	}
	return &logv1.Command{Verb: &logv1.Command_SubmitActions{SubmitActions: &logv1.SubmitActions{
		Request:   request(r.RequestId, r.ExpireTime, func(d *xxhash.Digest) { digestActions(d, r.Namespace, actions) }),
		Namespace: orDefault(r.Namespace),
		Actions:   actions,
	}}}, nil
}

// action splits a spec into what the state machine decides by and the encoded
// whole for all others.
func action(spec *rotav1.ActionSpec) (*logv1.Action, error) {
	encoded, err := encodeSpec(spec)
	if err != nil {
		return nil, fmt.Errorf("encode an action: %w", err)
	}
	a := &logv1.Action{
		TrajectoryId: spec.TrajectoryId,
		CoresMin:     leastCores(spec.Resources),
		MemoryBytes:  spec.Resources.GetMemoryBytes(),
		AttemptsMax:  1,
		Spec:         encoded,
		Fixed:        spec.Resources != nil && spec.Resources.Resizable != nil && !*spec.Resources.Resizable,
	}
	a.CoresMax = max(a.CoresMin, spec.Resources.GetMaxCores())
	if allowed := spec.Resources.GetAllowedCores(); len(allowed) > 0 {
		a.CoresMin, a.CoresMax = allowed[0], allowed[len(allowed)-1]
	}
	a.Labels = labelsCommand(spec.Labels)
	a.Class, a.SizeHint, a.Needs = spec.Class, spec.SizeHint, needs(spec)
	a.GangSize, a.GangSpread = spec.GangSize, spec.GangSpread == rotav1.GangSpread_GANG_SPREAD_NODE
	if spec.TrajectoryId == 0 {
		a.Pool = orDefault(spec.Pool)
	}
	if spec.QueueTimeout != nil {
		a.QueueTimeoutNs = int64(spec.QueueTimeout.AsDuration())
	}
	if spec.LossPolicy == rotav1.LossPolicy_LOSS_POLICY_RETRY {
		a.AttemptsMax = attemptsDefault
		if spec.MaxAttempts > 0 {
			a.AttemptsMax = spec.MaxAttempts
		}
	}
	return a, nil
}

// encodeSpec encodes equal specs equally, without their labels, which the log has beside them.
// Generated code does that too and is several times as fast, but for maps with more than one key.
func encodeSpec(spec *rotav1.ActionSpec) ([]byte, error) {
	if len(spec.Labels) > 0 {
		spec = proto.CloneOf(spec)
		spec.Labels = nil
	}
	if len(spec.Command.GetEnv()) > 1 || len(spec.Http.GetHeaders()) > 1 {
		return proto.MarshalOptions{Deterministic: true}.Marshal(spec)
	}
	return spec.MarshalVT()
}

// request identifies what is asked for, which content describes.
func request(id string, expires *timestamppb.Timestamp, content func(*xxhash.Digest)) *logv1.Request {
	if id == "" {
		return nil
	}
	var d xxhash.Digest
	d.Reset()
	content(&d)
	r := &logv1.Request{Id: id, Digest: d.Sum64()}
	if expires != nil {
		r.ExpireNs = expires.AsTime().UnixNano()
	}
	return r
}

func digestActions(d *xxhash.Digest, namespace string, actions []*logv1.Action) {
	digestText(d, orDefault(namespace))
	for _, a := range actions {
		digestNumber(d, uint64(len(a.Spec)))
		_, _ = d.Write(a.Spec) // never fails
		digestLabels(d, a.Labels)
	}
}

func digestText(d *xxhash.Digest, text string) {
	digestNumber(d, uint64(len(text)))
	_, _ = d.WriteString(text)
}

func digestNumber(d *xxhash.Digest, n uint64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], n)
	_, _ = d.Write(b[:])
}

func orDefault(name string) string {
	if name == "" {
		return defaultName
	}
	return name
}
