package rpc

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/api/pki"
	"rota/api/rights"
)

// forOthers are the services whose calls are for certificates of agents and servers only.
var forOthers = []protoreflect.FullName{rotav1connect.AgentServiceName, rotav1connect.OutputServiceName, rotav1connect.KeyringServiceName}

// calls are the paths of all calls of the public services.
func calls() map[string]protoreflect.MethodDescriptor {
	all := map[string]protoreflect.MethodDescriptor{}
	protoregistry.GlobalFiles.RangeFilesByPackage("rota.v1", func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for j := range service.Methods().Len() {
				if m := service.Methods().Get(j); !slices.Contains(forOthers, service.FullName()) {
					all["/"+string(service.FullName())+"/"+string(m.Name())] = m
				}
			}
		}
		return true
	})
	return all
}

// TestEveryCallHasARight: a call that is added to a service must be given a right, and what it is
// about must be in its request.
func TestEveryCallHasARight(t *testing.T) {
	all := calls()
	for path, m := range all {
		need, ok := requiredRights[path]
		namespaced, known := rights.OfNamespace(need.noun)
		switch {
		case !ok:
			t.Errorf("%s needs no right: put it into the table in rights.go", path)
			continue
		case !known || !slices.Contains(rights.Verbs(), need.verb) || need.place == nil:
			t.Errorf("%s needs the right %+v, which there is not", path, need)
		case need.listed != "" && !namespaced:
			t.Errorf("%s is filtered by %s, and %s belongs to no namespace", path, need.listed, need.noun)
		}
		hasNamespace := m.Input().Fields().ByName("namespace") != nil
		if hasNamespace && !namespaced && need.noun != "residency" {
			t.Errorf("%s is about a namespace, and its noun %s is not", path, need.noun)
		}
	}
	for path := range requiredRights {
		if all[path] == nil {
			t.Errorf("%s is in the table, and no service has it", path)
		}
	}
}

// TestRolesOfCertificates: operators and servers may make every call, clients those that are for
// no operator, and agents none.
func TestRolesOfCertificates(t *testing.T) {
	s := &Server{Deps: Deps{TLS: true}}
	sets := map[pki.Role]rights.Set{
		pki.RoleServer: rights.Everything(), pki.RoleOperator: rights.Everything(), pki.RoleClient: rights.ClientDefault(), pki.RoleAgent: {},
	}
	for path := range calls() {
		need := requiredRights[path]
		for role, may := range sets {
			want := role == pki.RoleServer || role == pki.RoleOperator ||
				role == pki.RoleClient && (need.self || need.verb != rights.Operate && need.noun != rights.Access)
			c := &caller{kind: byCertificate, role: role, may: may}
			if got := s.refusePath(c, path) == nil; got != want {
				t.Errorf("%s for %q: allowed is %v, want %v", path, role, got, want)
			}
		}
	}
	for role, want := range map[pki.Role]bool{pki.RoleAgent: true, pki.RoleServer: false, pki.RoleOperator: false, pki.RoleClient: false} {
		c := &caller{kind: byCertificate, role: role, may: sets[role]}
		if got := s.refusePath(c, rotav1connect.AgentServiceReportAttemptsProcedure) == nil; got != want {
			t.Errorf("reports of attempts by %q: allowed is %v", role, got)
		}
	}
	if s.refusePath(&caller{kind: byToken, may: rights.Everything()}, rotav1connect.AgentServiceReportAttemptsProcedure) == nil {
		t.Error("a token may speak for a node")
	}
	if s.refusePath(&caller{kind: byCertificate, role: pki.RoleClient, may: rights.ClientDefault()}, "/rota.v1.ActionService/Unknown") == nil {
		t.Error("a call that the table does not have is allowed")
	}
}

// TestStrangersDoNotFillTheAuditLog: a few refusals in a second are written, the others are
// counted in the next line.
func TestStrangersDoNotFillTheAuditLog(t *testing.T) {
	var n strangers
	written := 0
	for i := range 100 {
		if leftOut, room := n.note(time.Unix(7, int64(i))); room {
			written++
			if leftOut != 0 {
				t.Errorf("%d were left out before any was", leftOut)
			}
		}
	}
	if leftOut, room := n.note(time.Unix(8, 0)); written != strangersMax || !room || leftOut != 100-strangersMax {
		t.Errorf("%d were written, then %t with %d left out", written, room, leftOut)
	}
	if leftOut, _ := n.note(time.Unix(8, 1)); leftOut != 0 {
		t.Errorf("%d are counted twice", leftOut)
	}
}

// TestKeysThatAreTypedAreOneRecord: a caller that writes input for hours is in the audit log, and
// does not fill it. Whoever else writes, or goes on where somebody else was, has a record, too.
func TestKeysThatAreTypedAreOneRecord(t *testing.T) {
	var all []AuditRecord
	s := &Server{Deps: Deps{Audit: func(r AuditRecord) { all = append(all, r) }}}
	alice := &caller{kind: byToken, name: "alice", from: "10.0.0.1:1000"}
	write := func(c *caller, procedure, object, reason string) {
		code := "ok"
		if reason != "" {
			code = "failed"
		}
		s.record(c, procedure, AuditRecord{Object: object, Code: code, Reason: reason, Index: uint64(len(all))})
	}
	const input, resize = rotav1connect.StreamServiceWriteActionInputProcedure, rotav1connect.StreamServiceResizeActionTerminalProcedure
	for i := range 100 {
		later := *alice
		later.from = "10.0.0.1:" + strconv.Itoa(2000+i)
		write(&later, input, "action_id=1 writer=a", "")
		write(&later, resize, "action_id=1", "")
		write(&later, input, "action_id=1 writer=a", "INPUT_BUSY")
	}
	if len(all) != 3 {
		t.Errorf("typing is %d records", len(all))
	}
	for i, c := range []struct {
		caller         caller
		object, reason string
	}{
		{*alice, "action_id=1 writer=b", ""},
		{*alice, "action_id=2 writer=a", ""},
		{caller{kind: byToken, name: "mallory", from: "10.0.0.1:1000"}, "action_id=1 writer=a", ""},
		{caller{kind: byToken, name: "alice", from: "10.0.0.2:1000"}, "action_id=1 writer=a", ""},
		{*alice, "action_id=1 writer=a", "RIGHT_MISSING"},
		{*alice, "action_id=1 writer=a", "RIGHT_MISSING"},
	} {
		if write(&c.caller, input, c.object, c.reason); len(all) != 4+i {
			t.Fatalf("%+v is no record", c)
		}
	}
	before := len(all)
	for i := range 3 * repeatedMax {
		write(alice, input, "action_id="+strconv.Itoa(10+i), "")
	}
	if len(all) != before+3*repeatedMax || len(s.repeats.all) > repeatedMax {
		t.Errorf("%d records, and %d are remembered", len(all)-before, len(s.repeats.all))
	}
	write(alice, rotav1connect.StreamServiceSignalActionProcedure, "action_id=1", "")
	write(alice, rotav1connect.StreamServiceSignalActionProcedure, "action_id=1", "")
	if len(all) != before+3*repeatedMax+2 {
		t.Error("a signal is no record")
	}
}

// TestLimitsAreForOperatorsOfAllNamespaces: who may do everything in a namespace can delete it, but
// neither raise its limits nor create a second one with a share of its own.
func TestLimitsAreForOperatorsOfAllNamespaces(t *testing.T) {
	owner := rights.NewSet([]*rotav1.AccessRule{{Namespace: "team*", Noun: rights.Any, Verbs: []string{rights.Any}}})
	all := rights.NewSet([]*rotav1.AccessRule{{Namespace: rights.Any, Noun: "namespace", Verbs: []string{rights.Operate}}})
	for path, want := range map[string]bool{
		rotav1connect.OperatorServiceUpdateNamespaceProcedure: false,
		rotav1connect.OperatorServiceCreateNamespaceProcedure: false,
		rotav1connect.OperatorServiceDeleteNamespaceProcedure: true,
	} {
		need := requiredRights[path]
		m := calls()[path]
		req := dynamicpb.NewMessage(m.Input())
		req.Set(m.Input().Fields().ByName("name"), protoreflect.ValueOfString("team-a"))
		for _, c := range []struct {
			may  rights.Set
			want bool
		}{{owner, want}, {all, true}} {
			in, known := need.place(nil, req)
			got := known && (c.may.Allows(need.noun, need.verb, "") || len(in) > 0 && c.may.Allows(need.noun, need.verb, in[0]))
			if got != c.want {
				t.Errorf("%s by the rules %v: allowed is %v, want %v", path, c.may.Rules(), got, c.want)
			}
		}
	}
}

// What a caller has chosen is noted, and said, in a bounded length: it has not been checked then.
func TestWhatIsNotedIsBounded(t *testing.T) {
	long := strings.Repeat("<", 1<<20)
	var c call
	c.about(&rotav1.SubmitActionsRequest{Namespace: long, RequestId: long})
	if len(c.namespace) > objectBytesMax || len(c.object) > objectBytesMax {
		t.Errorf("a namespace of %d bytes and an object of %d are noted", len(c.namespace), len(c.object))
	}
	if f := rightMissing(&caller{kind: byToken, name: "x"}, right{}, long); len(f.Error()) > 1000 {
		t.Errorf("a refusal of %d bytes", len(f.Error()))
	}
}
