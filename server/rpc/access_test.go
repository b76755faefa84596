package rpc_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/durationpb"

	"rota/api/client"
	logv1 "rota/api/gen/log/v1"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/rights"
	"rota/server/rpc"
)

// secured is a world that accepts tokens, with two namespaces and something of each kind in both.
type secured struct {
	*world
	root  *client.Client
	audit *records
	// ids are those of what there is in each namespace, by noun.
	ids map[string]map[string]uint64
}

// records is an audit log in memory.
type records struct {
	mu  sync.Mutex
	all []rpc.AuditRecord
}

func (r *records) write(one rpc.AuditRecord) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, one)
}

// last returns the newest record of a call.
func (r *records) last(call string) (found rpc.AuditRecord) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.all {
		if strings.HasSuffix(one.Call, "/"+call) {
			found = one
		}
	}
	return found
}

func newSecured(t *testing.T, change ...func(*rpc.Deps)) *secured {
	t.Helper()
	s := &secured{audit: &records{}, ids: map[string]map[string]uint64{}}
	s.world = newWorld(t, append(change, func(d *rpc.Deps) { d.Audit = s.audit.write })...)
	resp, err := connectTo(t, s.addr).Access.BootstrapToken(t.Context(), &rotav1.BootstrapTokenRequest{})
	if err != nil {
		t.Fatal(err)
	}
	s.root = s.with(t, resp.Secret)
	for i, node := range []string{"n1", "n2"} {
		s.must(&logv1.Command{Verb: &logv1.Command_RegisterNode{RegisterNode: &logv1.RegisterNode{
			Name: node, JournalId: node, Address: fmt.Sprintf("127.0.0.1:%d", 1+i), MemoryBytes: 1 << 30, CacheBytes: 1 << 20,
			NumaNodes: []*logv1.NumaNode{{Cpus: []uint32{0, 1}}},
		}}})
	}
	for _, ns := range []string{"a", "b"} {
		s.fill(ns)
	}
	return s
}

func (s *secured) must(c *logv1.Command) *logv1.Result {
	s.t.Helper()
	r := s.apply(c)[0]
	if r.Refusal != nil {
		s.t.Fatalf("%v: %v", c, r.Refusal)
	}
	return r
}

// fill puts something of each kind into a namespace.
func (s *secured) fill(ns string) {
	s.must(&logv1.Command{Verb: &logv1.Command_CreateNamespace{CreateNamespace: &logv1.CreateNamespace{Name: ns}}})
	ids := map[string]uint64{}
	s.ids[ns] = ids
	ids["rollout"] = s.must(&logv1.Command{Verb: &logv1.Command_CreateRollout{CreateRollout: &logv1.CreateRollout{
		Namespace: ns, Policy: "p" + ns, Groups: 1, SamplesPerGroup: 1,
	}}}).FirstId
	ids["trajectory"] = s.must(&logv1.Command{Verb: &logv1.Command_OpenTrajectory{OpenTrajectory: &logv1.OpenTrajectory{
		Namespace: ns, IdleTimeoutNs: int64(time.Hour), Rollout: &logv1.RolloutMembership{RolloutId: ids["rollout"]},
	}}}).FirstId
	ids["file"] = ids["trajectory"]
	ids["snapshot"] = s.must(&logv1.Command{Verb: &logv1.Command_ChangeSnapshot{ChangeSnapshot: &logv1.ChangeSnapshot{
		Change: &logv1.ChangeSnapshot_Create{Create: &logv1.CreateSnapshot{TrajectoryId: ids["trajectory"]}},
	}}}).FirstId
	ids["action"] = s.submitTo(ns)
	s.must(&logv1.Command{Verb: &logv1.Command_SubmitJob{SubmitJob: &logv1.SubmitJob{
		Namespace: ns, Name: "job", Nodes: 1, Backfill: true,
	}}})
	ids["migration"] = s.must(&logv1.Command{Verb: &logv1.Command_RequestMigration{RequestMigration: &logv1.RequestMigration{
		Namespace: ns, Source: "n1", Target: "n2", TrajectoryId: ids["trajectory"], Selector: []byte("x"),
	}}}).FirstId
}

// with is a client with a token.
func (s *secured) with(t *testing.T, secret string) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{Addrs: []string{s.addr}, Token: func() (string, error) { return secret, nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// token makes one with a policy of its own.
func (s *secured) token(name string, rules ...*rotav1.AccessRule) (accessor, secret string) {
	s.t.Helper()
	if _, err := s.root.Access.PutAccessPolicy(s.t.Context(), &rotav1.PutAccessPolicyRequest{Policy: &rotav1.AccessPolicy{Name: name, Rules: rules}}); err != nil {
		s.t.Fatal(err)
	}
	resp, err := s.root.Access.CreateToken(s.t.Context(), &rotav1.CreateTokenRequest{Policies: []string{name}})
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.Token.AccessorId, resp.Secret
}

func allow(ns, noun string, verbs ...string) *rotav1.AccessRule {
	return &rotav1.AccessRule{Namespace: ns, Noun: noun, Verbs: verbs}
}

// request is one for a call about what is in namespace a, as JSON.
func (s *secured) request(m protoreflect.MethodDescriptor, noun string) []byte {
	req := dynamicpb.NewMessage(m.Input())
	ids := s.ids["a"]
	for name, id := range map[protoreflect.Name]uint64{
		"id": ids[noun], "action_id": ids["action"], "trajectory_id": ids["trajectory"], "turn_id": ids["turn"],
	} {
		if fd := m.Input().Fields().ByName(name); fd != nil && fd.Kind() == protoreflect.Uint64Kind {
			req.Set(fd, protoreflect.ValueOfUint64(id))
		}
	}
	if fd := m.Input().Fields().ByName("ids"); fd != nil {
		req.Mutable(fd).List().Append(protoreflect.ValueOfUint64(ids[noun]))
	}
	if fd := m.Input().Fields().ByName("namespace"); fd != nil {
		req.Set(fd, protoreflect.ValueOfString("a"))
	}
	if fd := m.Input().Fields().ByName("policy"); fd != nil && fd.Kind() == protoreflect.StringKind {
		req.Set(fd, protoreflect.ValueOfString("pa"))
	}
	if fd := m.Input().Fields().ByName("name"); fd != nil && noun == "namespace" {
		req.Set(fd, protoreflect.ValueOfString("a"))
	}
	if fd := m.Input().Fields().ByName("requests"); fd != nil {
		list := req.Mutable(fd).List()
		one := list.NewElement()
		one.Message().Set(one.Message().Descriptor().Fields().ByName("namespace"), protoreflect.ValueOfString("a"))
		list.Append(one)
	}
	raw, err := protojson.Marshal(req)
	if err != nil {
		s.t.Fatal(err)
	}
	return raw
}

// call makes a call with a token and returns the reason of its refusal; empty if it was not
// refused, or did not end.
func (s *secured) call(m protoreflect.MethodDescriptor, path, secret string, body []byte, patience time.Duration) string {
	s.t.Helper()
	ctx, kind := s.t.Context(), "application/json"
	if m.IsStreamingServer() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience) // a watch that is allowed does not end
		defer cancel()
		kind = "application/connect+json"
		body = append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body))), body...)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+path, bytes.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", kind)
	req.Header.Set("Connect-Protocol-Version", "1")
	if secret != "" {
		req.Header.Set("Authorization", "Bearer "+secret)
	}
	resp, err := s.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return ""
		}
		s.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil && ctx.Err() == nil {
		s.t.Fatal(err)
	}
	for _, reason := range []string{"RIGHT_MISSING", "NO_IDENTITY", "TOKEN_INVALID", "ACCESS_DISABLED"} {
		if bytes.Contains(raw, []byte(reason)) {
			return reason
		}
	}
	return ""
}

// TestRightsOfEveryCall: each call of each service is allowed with exactly its right, refused
// with all others, refused in another namespace, and refused without a token.
func TestRightsOfEveryCall(t *testing.T) {
	s := newSecured(t)
	s.ids["a"]["turn"], s.ids["b"]["turn"] = s.turnOf("a"), s.turnOf("b")
	for path, right := range rpc.RequiredRights() {
		m := rpc.Calls()[path]
		body := s.request(m, right.Noun)
		namespaced, _ := rights.OfNamespace(right.Noun)
		ns := "*"
		if namespaced && !strings.HasSuffix(path, "/UpdateNamespace") && !strings.HasSuffix(path, "/CreateNamespace") {
			ns = "a"
		}
		if got := s.call(m, path, "", body, time.Minute); got != "NO_IDENTITY" && !(right.Noun == "cluster" && right.Verb == rights.Read) && !strings.HasSuffix(path, "/BootstrapToken") {
			t.Errorf("%s without a token: %q", path, got)
		}
		if right.Self {
			continue
		}
		_, others := s.token("others", otherRights(right.Noun, right.Verb)...)
		if got := s.call(m, path, others, body, time.Minute); got != "RIGHT_MISSING" {
			t.Errorf("%s with every other right: %q", path, got)
		}
		if namespaced {
			_, other := s.token("other-namespace", allow("b", right.Noun, right.Verb), allow("ab*", right.Noun, rights.Any))
			if got := s.call(m, path, other, body, time.Minute); got != "RIGHT_MISSING" && !strings.HasSuffix(path, "/ListNamespaces") && !strings.HasSuffix(path, "/ListPolicies") {
				t.Errorf("%s with the right for another namespace: %q", path, got)
			}
		}
		if strings.HasSuffix(path, "/SetAccess") {
			continue // it would end this test
		}
		_, only := s.token("only", allow(ns, right.Noun, right.Verb))
		if got := s.call(m, path, only, body, 200*time.Millisecond); got != "" {
			t.Errorf("%s with its right: %q", path, got)
		}
		s.restore()
	}
}

// submitTo queues an action in a namespace and returns its ID.
func (s *secured) submitTo(ns string) uint64 {
	return s.must(&logv1.Command{Verb: &logv1.Command_SubmitActions{SubmitActions: &logv1.SubmitActions{
		Namespace: ns, Actions: []*logv1.Action{{CoresMin: 1, CoresMax: 1, AttemptsMax: 1}},
	}}}).FirstId
}

// turnOf is a turn of the job of a namespace.
func (s *secured) turnOf(ns string) uint64 {
	return s.must(&logv1.Command{Verb: &logv1.Command_AcquireTurn{AcquireTurn: &logv1.AcquireTurn{
		Namespace: ns, Job: "job", Deployment: "d", Operation: uint32(rotav1.Operation_OPERATION_FORWARD),
	}}}).FirstId
}

// restore puts back what the calls of TestRightsOfEveryCall take away.
func (s *secured) restore() {
	s.apply(&logv1.Command{Verb: &logv1.Command_CreateNamespace{CreateNamespace: &logv1.CreateNamespace{Name: "a"}}})
}

// TestListsHaveOnlyWhatMayBeRead: a list over all namespaces has the rows of those that the caller
// may read.
func TestListsHaveOnlyWhatMayBeRead(t *testing.T) {
	s := newSecured(t)
	_, secret := s.token("reader", allow("a", "action", "read"), allow("a", "namespace", "read"))
	c := s.with(t, secret)
	actions, err := c.Actions.ListActions(t.Context(), &rotav1.ListActionsRequest{Namespace: "*"})
	if err != nil || len(actions.Actions) != 1 || actions.Actions[0].Namespace != "a" {
		t.Errorf("actions: %v, %v", actions, err)
	}
	namespaces, err := c.Operator.ListNamespaces(t.Context(), &rotav1.ListNamespacesRequest{})
	if err != nil || len(namespaces.Namespaces) != 1 || namespaces.Namespaces[0].Name != "a" {
		t.Errorf("namespaces: %v, %v", namespaces, err)
	}
	stream, err := c.Actions.WatchActions(t.Context(), &rotav1.WatchActionsRequest{Namespace: "*", AfterRevision: new(uint64)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stream.Close() }()
	s.submitTo("b")
	last := s.submitTo("a")
	for seen := false; !seen && stream.Receive(); {
		for _, e := range stream.Msg().Events {
			if e.Namespace != "a" {
				t.Errorf("an event of namespace %s is seen", e.Namespace)
			}
			seen = seen || e.ActionId == last
		}
	}
	if err := stream.Err(); err != nil {
		t.Error(err)
	}
	// An ID of another namespace is refused, and one that does not exist is not to be told from
	// one that comes to be in another namespace.
	if _, err := c.Actions.GetAction(t.Context(), &rotav1.GetActionRequest{Id: s.ids["b"]["action"]}); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("an action of namespace b: %v", err)
	}
	if _, err := c.Actions.GetAction(t.Context(), &rotav1.GetActionRequest{Id: 1000}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("an action that does not exist: %v", err)
	}
}

// TestARevokedTokenEndsItsStreams: what a token has begun ends when it is revoked, and the token is
// refused from then on.
func TestARevokedTokenEndsItsStreams(t *testing.T) {
	s := newSecured(t)
	accessor, secret := s.token("reader", allow("a", "action", "read", "submit"))
	c := s.with(t, secret)
	stream, err := c.Actions.WatchActions(t.Context(), &rotav1.WatchActionsRequest{Namespace: "a", AfterRevision: new(uint64)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stream.Close() }()
	if !stream.Receive() {
		t.Fatal(stream.Err())
	}
	if _, err := s.root.Access.RevokeToken(t.Context(), &rotav1.RevokeTokenRequest{AccessorId: accessor}); err != nil {
		t.Fatal(err)
	}
	last := s.submitTo("a")
	for stream.Receive() {
		for _, e := range stream.Msg().Events {
			if e.ActionId == last {
				t.Error("a revoked token sees what came later")
				return
			}
		}
	}
	if connect.CodeOf(stream.Err()) != connect.CodeUnauthenticated {
		t.Errorf("the stream ends with %v", stream.Err())
	}
	if _, err := c.Actions.ListActions(t.Context(), &rotav1.ListActionsRequest{Namespace: "a"}); connect.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("a list with a revoked token: %v", err)
	}
}

// TestAStreamEndsWithItsJWT: what was begun with a JWT ends when that has expired.
// TestAQuietStreamEndsWithTheRight: a stream on which nothing happens ends when its caller may not
// have it any more, whether the token is revoked or its policy is about another namespace by now.
func TestAQuietStreamEndsWithTheRight(t *testing.T) {
	s := newSecured(t)
	accessor, revoked := s.token("reader", allow("a", "action", "submit"))
	_, narrowed := s.token("narrowed", allow("a", "action", "submit"))
	ctx, cancel := context.WithTimeout(t.Context(), 45*time.Second)
	defer cancel()
	for range 4 {
		s.submitTo("a") // so that no core is free
	}
	// The action waits in the queue, so nothing happens after the stream has said that.
	follow := func(secret string) *connect.ServerStreamForClient[rotav1.RunActionResponse] {
		stream, err := s.with(t, secret).Actions.RunAction(ctx, &rotav1.RunActionRequest{Namespace: "a", Action: spec("true")})
		if err != nil || !stream.Receive() {
			t.Fatal(errors.Join(err, stream.Err()))
		}
		t.Cleanup(func() { _ = stream.Close() })
		return stream
	}
	first, second := follow(revoked), follow(narrowed)
	if _, err := s.root.Access.RevokeToken(t.Context(), &rotav1.RevokeTokenRequest{AccessorId: accessor}); err != nil {
		t.Fatal(err)
	}
	if first.Receive() || connect.CodeOf(first.Err()) != connect.CodeUnauthenticated {
		t.Errorf("the stream of a revoked token ends with %v", first.Err())
	}
	if _, err := s.root.Access.PutAccessPolicy(t.Context(), &rotav1.PutAccessPolicyRequest{Policy: &rotav1.AccessPolicy{
		Name: "narrowed", Rules: []*rotav1.AccessRule{allow("b", "action", "submit")},
	}}); err != nil {
		t.Fatal(err)
	}
	if second.Receive() || connect.CodeOf(second.Err()) != connect.CodePermissionDenied {
		t.Errorf("the stream of a token with fewer rights ends with %v", second.Err())
	}
}

// TestAWatchEndsWithItsNamespace: rights in another namespace do not keep a watch going.
func TestAWatchEndsWithItsNamespace(t *testing.T) {
	s := newSecured(t)
	_, secret := s.token("reader", allow("a", "action", "read"))
	ctx, cancel := context.WithTimeout(t.Context(), 45*time.Second)
	defer cancel()
	stream, err := s.with(t, secret).Actions.WatchActions(ctx, &rotav1.WatchActionsRequest{Namespace: "a", AfterRevision: new(uint64)})
	if err != nil || !stream.Receive() {
		t.Fatal(errors.Join(err, stream.Err()))
	}
	defer func() { _ = stream.Close() }()
	if _, err := s.root.Access.PutAccessPolicy(t.Context(), &rotav1.PutAccessPolicyRequest{Policy: &rotav1.AccessPolicy{
		Name: "reader", Rules: []*rotav1.AccessRule{allow("b", "action", "read")},
	}}); err != nil {
		t.Fatal(err)
	}
	last := s.submitTo("a")
	for stream.Receive() {
		for _, e := range stream.Msg().Events {
			if e.ActionId == last {
				t.Fatal("a caller without the right sees what came later")
			}
		}
	}
	if connect.CodeOf(stream.Err()) != connect.CodePermissionDenied {
		t.Errorf("the stream ends with %v", stream.Err())
	}
}

// catchingUp is a replica of a server that is behind: something is applied while it catches up.
type catchingUp struct {
	rpc.Replica
	then func()
}

func (c *catchingUp) ReadIndex(ctx context.Context) (uint64, error) {
	if c.then != nil {
		c.then()
	}
	return c.Replica.ReadIndex(ctx)
}

// TestAServerThatWasBehindAnswersNoRevokedToken: the answer has what came after the revocation.
func TestAServerThatWasBehindAnswersNoRevokedToken(t *testing.T) {
	behind := &catchingUp{}
	s := newSecured(t, func(d *rpc.Deps) { behind.Replica, d.Replica = d.Replica, behind })
	accessor, secret := s.token("reader", allow("*", "action", "read"))
	c := s.with(t, secret)
	if _, err := c.Actions.ListActions(t.Context(), &rotav1.ListActionsRequest{Namespace: "a"}); err != nil {
		t.Fatal(err)
	}
	behind.then = func() {
		s.apply(&logv1.Command{Verb: &logv1.Command_RemoveAccess{RemoveAccess: &logv1.RemoveAccess{Token: accessor}}})
	}
	if resp, err := c.Actions.ListActions(t.Context(), &rotav1.ListActionsRequest{Namespace: "a"}); connect.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("%v: %v", resp, err)
	}
}

// TestALostAnswerLosesNoSecret: a server repeats the creation of a token if the leader was lost before
// its outcome was known, as only that server has the secret.
func TestALostAnswerLosesNoSecret(t *testing.T) {
	s := newSecured(t)
	lost := 0
	s.lost = func(c *logv1.Command) error {
		if lost++; lost <= 2 && c.GetCreateToken() != nil {
			return errUnknownOutcome
		}
		return nil
	}
	made, err := s.root.Access.CreateToken(t.Context(), &rotav1.CreateTokenRequest{Policies: []string{"management"}})
	if err != nil {
		t.Fatal(err)
	}
	if lost != 3 {
		t.Errorf("it was proposed %d times", lost)
	}
	if _, err := s.with(t, made.Secret).Access.GetToken(t.Context(), &rotav1.GetTokenRequest{AccessorId: made.Token.AccessorId}); err != nil {
		t.Error(err)
	}
	all, err := s.root.Access.ListTokens(t.Context(), &rotav1.ListTokensRequest{})
	if err != nil || len(all.Tokens) != 2 {
		t.Errorf("there are %d tokens, want the first and the new one: %v", len(all.Tokens), err)
	}
}

// asJSON makes a call as a client without a library would.
func (s *secured) asJSON(call, bearer, body string) (status int, answer string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, "http://"+s.addr+"/rota.v1."+call, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+bearer)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	raw, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(raw)
}

// TestAnIssuerThatDoesNotAnswer: the caller is told to try again, not that the token is wrong.
func TestAnIssuerThatDoesNotAnswer(t *testing.T) {
	s := newSecured(t, func(d *rpc.Deps) {
		d.JWT = func(context.Context, string, []*rotav1.AuthMethod) (*rpc.JWT, error) {
			return nil, fmt.Errorf("%w: connection refused", rpc.ErrIssuer)
		}
	})
	if status, answer := s.asJSON("AccessService/GetAccess", "a.jwt.x", "{}"); status != http.StatusServiceUnavailable {
		t.Errorf("%d: %s", status, answer)
	}
}

// TestALongNameOfACreator: it is cut between two characters, else no answer in JSON could have it.
func TestALongNameOfACreator(t *testing.T) {
	s := newSecured(t, func(d *rpc.Deps) {
		d.JWT = func(context.Context, string, []*rotav1.AuthMethod) (*rpc.JWT, error) {
			return &rpc.JWT{Method: "people", Subject: "x" + strings.Repeat("ü", 1000), Claims: map[string][]string{"sub": {"s"}}, Expires: time.Now().Add(time.Hour)}, nil
		}
	})
	if _, err := s.root.Access.PutAuthMethod(t.Context(), &rotav1.PutAuthMethodRequest{Method: &rotav1.AuthMethod{
		Name: "people", Issuer: "https://issuer.example", Audiences: []string{"rota"},
		Mappings: []*rotav1.ClaimMapping{{Claim: "sub", Pattern: "s", Policies: []string{"management"}}},
	}}); err != nil {
		t.Fatal(err)
	}
	if status, answer := s.asJSON("AccessService/CreateToken", "a-jwt", `{"policies": ["management"]}`); status != http.StatusOK {
		t.Errorf("%d: %s", status, answer)
	}
	if status, answer := s.asJSON("AccessService/ListTokens", "a-jwt", "{}"); status != http.StatusOK || !strings.Contains(answer, "xü") {
		t.Errorf("%d: %s", status, answer)
	}
}

func TestAStreamEndsWithItsJWT(t *testing.T) {
	s := newSecured(t, func(d *rpc.Deps) {
		d.JWT = func(_ context.Context, _ string, methods []*rotav1.AuthMethod) (*rpc.JWT, error) {
			return &rpc.JWT{Method: methods[0].Name, Subject: "s", Claims: map[string][]string{"sub": {"s"}}, Expires: time.Now().Add(200 * time.Millisecond)}, nil
		}
	})
	s.token("reader", allow("a", "action", "read"))
	if _, err := s.root.Access.PutAuthMethod(t.Context(), &rotav1.PutAuthMethodRequest{Method: &rotav1.AuthMethod{
		Name: "people", Issuer: "https://issuer.example", Audiences: []string{"rota"},
		Mappings: []*rotav1.ClaimMapping{{Claim: "sub", Pattern: "s", Policies: []string{"reader"}}},
	}}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 45*time.Second)
	defer cancel()
	stream, err := s.with(t, "a-jwt").Actions.WatchActions(ctx, &rotav1.WatchActionsRequest{Namespace: "a", AfterRevision: new(uint64)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stream.Close() }()
	for stream.Receive() {
		s.submitTo("a") // so that there is another message
	}
	if connect.CodeOf(stream.Err()) != connect.CodeUnauthenticated {
		t.Errorf("the stream ends with %v", stream.Err())
	}
}

// TestTokensOfAccessService: what the service promises of tokens, one after the other.
func TestTokensOfAccessService(t *testing.T) {
	s := newSecured(t)
	ctx := t.Context()
	if _, err := s.root.Access.BootstrapToken(ctx, &rotav1.BootstrapTokenRequest{}); client.Detail(err).GetReason() != "ACCESS_BOOTSTRAPPED" {
		t.Errorf("a second first token: %v", err)
	}
	if _, err := s.root.Access.CreateToken(ctx, &rotav1.CreateTokenRequest{Policies: []string{"nobody"}}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("a policy that does not exist: %v", err)
	}
	accessor, secret := s.token("operators", allow("*", "access", "read"))
	if strings.Contains(accessor, secret) || !strings.HasPrefix(secret, rights.SecretPrefix) {
		t.Errorf("the secret is %q", secret)
	}
	got, err := s.with(t, secret).Access.GetToken(ctx, &rotav1.GetTokenRequest{AccessorId: accessor})
	if err != nil || got.Token.CreatedBy == "" || got.Token.ExpireTime != nil {
		t.Errorf("the token: %v, %v", got, err)
	}
	if raw, err := json.Marshal(got); err != nil || bytes.Contains(raw, []byte(secret)) {
		t.Errorf("the description has the secret: %s, %v", raw, err)
	}
	short, err := s.root.Access.CreateToken(ctx, &rotav1.CreateTokenRequest{Policies: []string{"operators"}, Ttl: durationpb.New(time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	c := s.with(t, short.Secret)
	for {
		_, err := c.Access.ListTokens(ctx, &rotav1.ListTokensRequest{})
		if connect.CodeOf(err) == connect.CodeUnauthenticated {
			break // its second is over
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]bool{}
	req := &rotav1.ListTokensRequest{PageSize: 1}
	for {
		page, err := s.root.Access.ListTokens(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		for _, token := range page.Tokens {
			seen[token.AccessorId] = true
		}
		if req.PageToken = page.NextPageToken; req.PageToken == "" {
			break
		}
	}
	if len(seen) < 2 || !seen[accessor] {
		t.Errorf("the list has %v", seen)
	}
	if _, err := s.root.Access.SetAccess(ctx, &rotav1.SetAccessRequest{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.root.Access.ListTokens(ctx, &rotav1.ListTokensRequest{}); client.Detail(err).GetReason() != "ACCESS_DISABLED" {
		t.Errorf("a token that is not accepted: %v", err)
	}
}

// TestAuditRecords: a line says who did what, from where, and what came of it, and has nothing that
// is secret.
func TestAuditRecords(t *testing.T) {
	s := newSecured(t, func(d *rpc.Deps) {
		d.JWT = func(_ context.Context, raw string, methods []*rotav1.AuthMethod) (*rpc.JWT, error) {
			if raw != "jwt-of-alice" || len(methods) != 1 {
				return nil, errors.New("not valid")
			}
			return &rpc.JWT{Method: methods[0].Name, Subject: "alice", Claims: map[string][]string{"sub": {"alice"}}, Expires: time.Now().Add(time.Hour)}, nil
		}
	})
	accessor, secret := s.token("submitter", allow("a", "action", "submit"))
	if _, err := s.root.Access.PutAuthMethod(t.Context(), &rotav1.PutAuthMethodRequest{Method: &rotav1.AuthMethod{
		Name: "people", Issuer: "https://issuer.example", Audiences: []string{"rota"},
		Mappings: []*rotav1.ClaimMapping{{Claim: "sub", Pattern: "al*", Policies: []string{"submitter"}}},
	}}); err != nil {
		t.Fatal(err)
	}
	submit := func(c *client.Client, ns string) error {
		action := spec("true")
		action.Command.Env = map[string]string{"PASSWORD": "hidden"}
		_, err := c.Actions.SubmitActions(t.Context(), &rotav1.SubmitActionsRequest{Namespace: ns, RequestId: "r-" + ns, Actions: []*rotav1.ActionSpec{action}})
		return err
	}
	c := s.with(t, secret)
	if err := submit(c, "a"); err != nil {
		t.Fatal(err)
	}
	r := s.audit.last("SubmitActions")
	if r.Kind != "token" || r.Caller != accessor || r.Namespace != "a" || r.Object != "request_id=r-a" || r.Index == 0 || r.Code != "ok" || r.From == "" || r.Server != "s1" {
		t.Errorf("a submission: %+v", r)
	}
	if err := submit(c, "b"); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Fatal(err)
	}
	if r := s.audit.last("SubmitActions"); r.Namespace != "b" || r.Code != "permission_denied" || r.Reason != "RIGHT_MISSING" || r.Index != 0 {
		t.Errorf("a submission that was refused: %+v", r)
	}
	if _, err := c.Actions.GetAction(t.Context(), &rotav1.GetActionRequest{Id: s.ids["a"]["action"]}); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Fatal(err)
	}
	if r := s.audit.last("GetAction"); r.Code != "permission_denied" || r.Verb != "read" {
		t.Errorf("a read that was refused: %+v", r)
	}
	if err := submit(s.with(t, "jwt-of-alice"), "a"); err != nil {
		t.Fatal(err)
	}
	if r := s.audit.last("SubmitActions"); r.Kind != "jwt" || r.Caller != "people/alice" || r.Code != "ok" {
		t.Errorf("a submission with a JWT: %+v", r)
	}
	if err := submit(s.with(t, "jwt-of-mallory"), "a"); connect.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("a JWT that is not valid: %v", err)
	}
	raw, err := json.Marshal(s.audit.all)
	if err != nil || bytes.Contains(raw, []byte(secret)) || bytes.Contains(raw, []byte("hidden")) || bytes.Contains(raw, []byte("PASSWORD")) {
		t.Errorf("the audit log has a secret: %s, %v", raw, err)
	}
	for range 50 {
		if _, err := s.with(t, "jwt-of-mallory").Operator.GetStatus(t.Context(), &rotav1.GetStatusRequest{}); connect.CodeOf(err) != connect.CodeUnauthenticated {
			t.Fatal(err)
		}
	}
	if s.audit.last("GetStatus").Reason != "JWT_INVALID" {
		t.Error("the refusal of a stranger is not in the audit log")
	}
	if s.audit.last("ListTokens").Call != "" {
		t.Error("a read that was allowed is in the audit log")
	}
}
