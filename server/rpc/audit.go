package rpc

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"rota/api/gen/rota/v1/rotav1connect"
	"rota/api/rights"
)

// AuditRecord is one line of the audit log: a call that changes something, or one that was
// refused for the rights of its caller. It has no secret and nothing of a command.
type AuditRecord struct {
	// Time is when the call ended, by the server's wall clock.
	Time time.Time `json:"time"`
	// Server is the ID of the server that was called.
	Server string `json:"server"`
	// Kind and Caller say who called: a certificate's name, a token's accessor ID, or the method
	// and subject of a JWT. From is the address.
	Kind   string `json:"kind"`
	Caller string `json:"caller"`
	From   string `json:"from"`
	// Call is the procedure, Noun and Verb what it needs.
	Call string `json:"call"`
	Noun string `json:"noun,omitempty"`
	Verb string `json:"verb,omitempty"`
	// Namespace and Object are those of the request.
	Namespace string `json:"namespace,omitempty"`
	Object    string `json:"object,omitempty"`
	// Index is that of the entry that has the change; 0: none has.
	Index uint64 `json:"index"`
	// Code is "ok" or the name of a Connect code, Reason that of the refusal.
	Code   string `json:"code"`
	Reason string `json:"reason,omitempty"`
	// LeftOut is how many refusals of callers without a valid identity were left out before this
	// line: a second has at most strangersMax of them.
	LeftOut uint64 `json:"left_out,omitempty"`
}

// strangersMax bounds the records in a second of callers without a valid identity. Whoever
// reaches the port could otherwise fill the log until its older files are gone.
const strangersMax = 10

// strangers counts these records.
type strangers struct {
	mu             sync.Mutex
	second         int64
	noted, leftOut uint64
}

// note reports whether there is room for a record in the second of a time, and how many were left
// out since the last one.
func (n *strangers) note(at time.Time) (leftOut uint64, room bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if second := at.Unix(); second != n.second {
		n.second, n.noted = second, 0
	}
	if n.noted == strangersMax {
		n.leftOut++
		return 0, false
	}
	n.noted++
	leftOut, n.leftOut = n.leftOut, 0
	return leftOut, true
}

// repeated are calls that a client makes for each key that is typed. Of these the first of a caller
// about an object is a record, with each result that it has. All are that lack a right.
var repeated = map[string]bool{
	rotav1connect.StreamServiceWriteActionInputProcedure:     true,
	rotav1connect.StreamServiceResizeActionTerminalProcedure: true,
}

// repeatedMax bounds how many of them are remembered. All are forgotten at once then: a call may
// be a record more than once, and none is left out that has been none.
const repeatedMax = 8192

// seen are records of these calls, without what differs.
type seen struct {
	mu  sync.Mutex
	all map[AuditRecord]bool
}

// first reports whether there was no such record.
func (n *seen) first(r AuditRecord) bool {
	r.Time, r.Index = time.Time{}, 0
	if host, _, err := net.SplitHostPort(r.From); err == nil {
		r.From = host
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.all[r] {
		return false
	}
	if n.all == nil || len(n.all) >= repeatedMax {
		n.all = map[AuditRecord]bool{}
	}
	n.all[r] = true
	return true
}

// call is what is noted of a call while it is under way.
type call struct {
	index             atomic.Uint64
	namespace, object string
	// procedure and request are those of a unary call, for a second look at the caller's rights.
	procedure string
	request   proto.Message
}

type callKey struct{}

// callOf is what is noted of a call; never nil.
func callOf(ctx context.Context) *call {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		return c
	}
	return &call{}
}

// applied notes the entry that has the change.
func (c *call) applied(index uint64) { c.index.Store(index) }

// objectFields are the fields of requests that name what they are about. Their values are names
// and numbers, no secrets.
var objectFields = []protoreflect.Name{
	"id", "ids", "action_id", "trajectory_id", "turn_id", "name", "job", "deployment", "node", "model", "quota", "policy", "group",
	"accessor_id", "path", "address", "request_id", "signal", "writer",
}

// objectBytesMax bounds what is noted of an object, a namespace and a caller.
const objectBytesMax = 256

// about notes what a request is about.
func (c *call) about(req proto.Message) {
	m := req.ProtoReflect()
	fields := m.Descriptor().Fields()
	if fd := fields.ByName("namespace"); fd != nil {
		c.namespace = cut(m.Get(fd).String())
	}
	var parts []string
	for _, name := range objectFields {
		fd := fields.ByName(name)
		switch {
		case fd == nil || !m.Has(fd):
		case fd.Message() != nil:
			if inner := fd.Message().Fields().ByName("name"); inner != nil && !fd.IsList() {
				parts = append(parts, fmt.Sprintf("%s=%s", name, m.Get(fd).Message().Get(inner).String()))
			}
		case fd.IsList():
			parts = append(parts, fmt.Sprintf("%s=%v", name, numbers(m, name)))
		default:
			parts = append(parts, fmt.Sprintf("%s=%s", name, m.Get(fd).String()))
		}
	}
	c.object = cut(strings.Join(parts, " "))
}

// cut bounds a text that a caller has chosen: it has not been checked when it is noted.
func cut(text string) string {
	if len(text) > objectBytesMax {
		return strings.ToValidUTF8(text[:objectBytesMax-3], "") + "..."
	}
	return strings.ToValidUTF8(text, "")
}

// audit hands a call over that changes something, or that was refused.
func (s *Server) audit(ctx context.Context, procedure string, err error) {
	need, known := requiredRights[procedure]
	if s.Audit == nil || !known {
		return
	}
	r := AuditRecord{Code: "ok", Noun: need.noun, Verb: need.verb}
	if err != nil {
		f := s.asFailureOr(err)
		r.Code, r.Reason = f.code.String(), f.reason
	}
	if need.verb == rights.Read && r.Reason != "RIGHT_MISSING" && r.Code != connect.CodeUnauthenticated.String() {
		return
	}
	noted := callOf(ctx)
	r.Index, r.Namespace, r.Object = noted.index.Load(), noted.namespace, noted.object
	s.record(callerOf(ctx), procedure, r)
}

// auditRefusal hands a call over that was refused before its request was read.
func (s *Server) auditRefusal(c *caller, path string, f *failure) {
	if s.Audit == nil {
		return
	}
	need := requiredRights[path]
	if need.place == nil {
		path = cut(path)
	}
	r := AuditRecord{Noun: need.noun, Verb: need.verb, Code: f.code.String(), Reason: f.reason}
	if f.code == connect.CodeUnauthenticated {
		var room bool
		if r.LeftOut, room = s.strangers.note(time.Now()); !room {
			return
		}
	}
	s.record(c, path, r)
}

func (s *Server) record(c *caller, procedure string, r AuditRecord) {
	r.Time, r.Server, r.Call = time.Now().UTC(), s.ServerID, strings.TrimPrefix(procedure, "/")
	if c != nil {
		r.Kind, r.Caller, r.From = c.kind, cut(c.name), c.from
		if c.kind == byJWT && c.method != "" {
			r.Caller = c.method + "/" + r.Caller
		}
	}
	if repeated[procedure] && r.Reason != "RIGHT_MISSING" && r.LeftOut == 0 && !s.repeats.first(r) {
		return
	}
	s.Audit(r)
}
