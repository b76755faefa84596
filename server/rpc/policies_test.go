package rpc_test

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/rights"
	"rota/server/rpc"
)

// teams are clients of namespaces a and b, with all rights on rollouts and policies in their own.
func teams(t *testing.T) (s *secured, a, b *client.Client) {
	s = newSecured(t)
	_, ofA := s.token("team-a", allow("a", "rollout", rights.Any), allow("a", "policy", rights.Any), allow("a", "migration", rights.Any))
	_, ofB := s.token("team-b", allow("b", "rollout", rights.Any), allow("b", "policy", rights.Any), allow("b", "action", rights.Any))
	return s, s.with(t, ofA), s.with(t, ofB)
}

func rolloutOf(c *client.Client, t *testing.T, ns, policy string) error {
	_, err := c.Rollouts.CreateRollout(t.Context(), &rotav1.CreateRolloutRequest{
		Namespace: ns, Spec: &rotav1.RolloutSpec{Policy: policy, Groups: 1, SamplesPerGroup: 1},
	})
	return err
}

func policiesOf(c *client.Client, t *testing.T) (names []string) {
	req := &rotav1.ListPoliciesRequest{PageSize: 1}
	for {
		resp, err := c.Rollouts.ListPolicies(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range resp.Policies {
			names = append(names, p.Namespace+"/"+p.Name)
		}
		last, _ := base64.RawURLEncoding.DecodeString(resp.NextPageToken)
		if len(last) == 0 {
			return names
		}
		if len(names) == 0 || !strings.HasSuffix(names[len(names)-1], "/"+string(last)) {
			t.Errorf("the token after %q is of %q", names, last)
		}
		req.PageToken = resp.NextPageToken
	}
}

// otherRights are all but one verb on one noun.
func otherRights(noun, verb string) (rules []*rotav1.AccessRule) {
	for _, n := range rights.Nouns() {
		verbs := rights.Verbs()
		if n == noun {
			verbs = slices.DeleteFunc(verbs, func(v string) bool { return v == verb })
		}
		rules = append(rules, allow("*", n, verbs...))
	}
	return rules
}

// TestPoliciesBelongToNamespaces: a team creates, feeds, publishes and lists policies of its own
// namespace only, unless it has the right in the other one.
func TestPoliciesBelongToNamespaces(t *testing.T) {
	s, a, b := teams(t)
	ctx := t.Context()
	if err := rolloutOf(a, t, "a", "mine"); err != nil {
		t.Fatal(err)
	}
	if err := rolloutOf(b, t, "b", "mine"); reasonOf(err) != "POLICY_NOT_OWNED" || strings.Contains(err.Error(), `"a"`) {
		t.Errorf("a rollout for a policy of another namespace: %v", err)
	}
	if _, err := a.Rollouts.PublishVersion(ctx, &rotav1.PublishVersionRequest{Policy: "mine", Version: 1}); err != nil {
		t.Error(err)
	}
	for _, namespace := range []string{"", "a", "b"} {
		_, err := b.Rollouts.PublishVersion(ctx, &rotav1.PublishVersionRequest{Policy: "mine", Version: 2, Namespace: namespace})
		if connect.CodeOf(err) != connect.CodePermissionDenied || strings.Contains(err.Error(), "namespace a") != (namespace == "a") {
			t.Errorf("a version of another namespace's policy, namespace %q: %v", namespace, err)
		}
	}
	if _, err := b.Rollouts.PublishVersion(ctx, &rotav1.PublishVersionRequest{Policy: "new", Version: 1}); reasonOf(err) != "RIGHT_MISSING" {
		t.Errorf("a new policy of no namespace: %v", err)
	}
	if _, err := b.Rollouts.PublishVersion(ctx, &rotav1.PublishVersionRequest{Policy: "new", Version: 1, Namespace: "b"}); err != nil {
		t.Error(err)
	}
	if got, want := policiesOf(a, t), []string{"a/mine", "a/pa"}; !slices.Equal(got, want) {
		t.Errorf("team a sees %q, want %q", got, want)
	}
	if got, want := policiesOf(b, t), []string{"b/new", "b/pb"}; !slices.Equal(got, want) {
		t.Errorf("team b sees %q, want %q", got, want)
	}
	for what, err := range map[string]error{
		"suspend": second(b.Rollouts.SuspendPolicy(ctx, &rotav1.SuspendPolicyRequest{Policy: "mine"})),
		"delete":  second(b.Rollouts.DeletePolicy(ctx, &rotav1.DeletePolicyRequest{Policy: "mine"})),
		"get":     second(b.Rollouts.GetPolicy(ctx, &rotav1.GetPolicyRequest{Policy: "mine"})),
		"batch":   second(b.Rollouts.GetBatch(ctx, &rotav1.GetBatchRequest{Policy: "mine", Step: 1, Groups: 1})),
	} {
		if reasonOf(err) != "RIGHT_MISSING" {
			t.Errorf("%s a policy of another namespace: %v", what, err)
		}
	}
	// What an operator published for all is nobody's.
	if _, err := s.root.Rollouts.PublishVersion(ctx, &rotav1.PublishVersionRequest{Policy: "shared", Version: 1}); err != nil {
		t.Fatal(err)
	}
	if err := rolloutOf(b, t, "b", "shared"); reasonOf(err) != "POLICY_NOT_OWNED" {
		t.Errorf("a rollout for a policy of no namespace: %v", err)
	}
	// With the right in both namespaces, rollouts of one feed a policy of the other.
	_, secret := s.token("both", allow("b", "rollout", rights.Submit), allow("a", "policy", rights.Submit))
	if err := rolloutOf(s.with(t, secret), t, "b", "mine"); err != nil {
		t.Error(err)
	}
	if err := rolloutOf(s.root, t, "b", "mine"); err != nil {
		t.Error(err)
	}
}

// TestASelectorNeedsTheRightEverywhere: keys of caches are of all namespaces.
func TestASelectorNeedsTheRightEverywhere(t *testing.T) {
	s, a, _ := teams(t)
	req := &rotav1.RequestMigrationRequest{Namespace: "a", Source: "n1", Target: "n2", TrajectoryId: s.ids["a"]["trajectory"]}
	if _, err := a.Migrations.RequestMigration(t.Context(), req); err != nil && reasonOf(err) == "RIGHT_MISSING" {
		t.Errorf("without a selector: %v", err)
	}
	req.Selector = &rotav1.MigrationSelector{Prefixes: []string{"x"}}
	if _, err := a.Migrations.RequestMigration(t.Context(), req); reasonOf(err) != "RIGHT_MISSING" {
		t.Errorf("with a selector: %v", err)
	}
}

// TestARefusalNamesNoNamespace: who names something by its ID is not told where it is.
func TestARefusalNamesNoNamespace(t *testing.T) {
	s, a, _ := teams(t)
	_, err := a.Rollouts.GetRollout(t.Context(), &rotav1.GetRolloutRequest{Id: s.ids["b"]["rollout"]})
	if reasonOf(err) != "RIGHT_MISSING" || strings.Contains(err.Error(), "namespace b") {
		t.Errorf("a rollout of another namespace: %v", err)
	}
	if err := rolloutOf(a, t, "b", "p"); reasonOf(err) != "RIGHT_MISSING" || !strings.Contains(err.Error(), "namespace b") {
		t.Errorf("a namespace that the request names: %v", err)
	}
}

// TestOneCallerLeavesRoomForOthers: whoever keeps more and more streams open is refused at some time,
// and others get theirs.
func TestOneCallerLeavesRoomForOthers(t *testing.T) {
	s, _, b := teams(t)
	const most = 16
	rpc.SetCallsMax(s.server, most)
	_, secret := s.token("greedy", allow("a", "action", "read"))
	greedy := s.with(t, secret)
	open := func(c *client.Client, ns string) error {
		stream, err := c.Actions.WatchActions(t.Context(), &rotav1.WatchActionsRequest{Namespace: ns, AfterRevision: new(uint64)})
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = stream.Close() })
		if !stream.Receive() {
			return stream.Err()
		}
		return nil
	}
	held := 0
	var err error
	for ; held <= most && err == nil; held++ {
		err = open(greedy, "a")
	}
	if reasonOf(err) != "TOO_MANY_CALLS" || connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Fatalf("after %d streams: %v", held, err)
	}
	if err := open(b, "b"); err != nil {
		t.Errorf("another caller: %v", err)
	}
}

// TestAWaitForABatchEndsWithTheRight: who waits for long is asked for the right again.
func TestAWaitForABatchEndsWithTheRight(t *testing.T) {
	s, a, _ := teams(t)
	ended := make(chan error, 1)
	go func() {
		_, err := a.Rollouts.GetBatch(t.Context(), &rotav1.GetBatchRequest{Policy: "pa", Step: 1, Groups: 1, Wait: durationpb.New(time.Hour)})
		ended <- err
	}()
	select {
	case err := <-ended:
		t.Fatalf("with the right: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	s.token("team-a", allow("b", "policy", rights.Any)) // the policy changes, the first token stays
	select {
	case err := <-ended:
		if reasonOf(err) != "RIGHT_MISSING" {
			t.Errorf("without the right: %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("the wait goes on without the right")
	}
}
