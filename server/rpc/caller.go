package rpc

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/api/pki"
	"rota/api/rights"
	"rota/fsm/state"
)

// Kinds of callers.
const (
	byCertificate = "certificate"
	byToken       = "token"
	byJWT         = "jwt"
	byNothing     = "none" // without TLS, where only this machine reaches the port
)

// unknownTokensMax bounds the callers with unknown tokens for which a server asks the leader
// whether it is behind. Guessing tokens must not cost the leader more.
const unknownTokensMax = 16

// caller is who makes a call, and what that caller may do.
type caller struct {
	kind string
	// name is that of a certificate, the accessor ID of a token or the subject of a JWT.
	name string
	role pki.Role // of a certificate
	from string   // address
	// hash is that of the secret of a token, bearer what the header said, claims those of a JWT
	// with its method.
	hash     []byte
	bearer   string
	method   string
	claims   map[string][]string
	expires  time.Time // of a JWT
	policies []string
	may      rights.Set
}

// JWT is what a valid token of an issuer says: the method that accepted it, its subject, its
// claims that are strings or lists of strings, and when it stops being valid.
type JWT struct {
	Method, Subject string
	Claims          map[string][]string
	Expires         time.Time
}

// ErrIssuer is in the error of Deps.JWT if the issuer of a token does not say whether it is valid.
var ErrIssuer = errors.New("the issuer of the JWT does not answer")

type callerKey struct{}

func callerOf(ctx context.Context) *caller {
	c, _ := ctx.Value(callerKey{}).(*caller)
	return c
}

// callerName is the name of the caller; empty without an identity.
func callerName(ctx context.Context) string {
	if c := callerOf(ctx); c != nil && c.kind != byNothing {
		return c.name
	}
	return ""
}

// caller finds out who makes a request. It looks at the connection and the headers only.
func (s *Server) caller(r *http.Request) (*caller, *failure) {
	c := &caller{kind: byNothing, from: r.RemoteAddr}
	bearer, err := rights.Bearer(r.Header.Get("Authorization"))
	if err != nil {
		return c, failed(connect.CodeUnauthenticated, "TOKEN_INVALID", "%v", err)
	}
	hasCertificate := r.TLS != nil && len(r.TLS.PeerCertificates) > 0
	switch {
	case hasCertificate && bearer != "":
		return c, failed(connect.CodeUnauthenticated, "TWO_IDENTITIES", "the call has a client certificate and a token: use one of them")
	case hasCertificate:
		c.kind, c.name = byCertificate, pki.PeerName(r.TLS)
		if c.role, err = pki.PeerRole(r.TLS); err != nil {
			return c, failed(connect.CodeUnauthenticated, "NO_ROLE", "%v", err)
		}
	case rights.IsSecret(bearer):
		c.kind, c.bearer = byToken, bearer
		if c.hash, err = rights.HashSecret(bearer); err != nil {
			return c, failed(connect.CodeUnauthenticated, "TOKEN_INVALID", "%v", err)
		}
	case bearer != "":
		c.kind, c.bearer = byJWT, bearer
	}
	return c, s.identify(r.Context(), c)
}

// identify completes a caller by what the state says of it.
func (s *Server) identify(ctx context.Context, c *caller) *failure {
	f := s.identifyNow(ctx, c)
	if f == nil || c.bearer == "" || f.reason != "TOKEN_INVALID" && f.reason != "ACCESS_DISABLED" {
		return f
	}
	// The token, or that tokens are accepted, may be newer than this server's state.
	select {
	case s.access.unknown <- struct{}{}:
		defer func() { <-s.access.unknown }()
	default:
		return f
	}
	if err := s.catchUp(ctx, false); err != nil {
		return s.asFailureOr(err)
	}
	return s.identifyNow(ctx, c)
}

// identifyNow is identify by this server's state as it is.
func (s *Server) identifyNow(ctx context.Context, c *caller) *failure {
	if c.kind == byJWT {
		if f := s.verifyJWT(ctx, c); f != nil {
			return f
		}
	}
	return s.resolve(c)
}

// asFailureOr is what a caller is told of an error that prevented a check.
func (s *Server) asFailureOr(err error) *failure {
	if f := s.asFailure(err); f != nil {
		return f
	}
	return unavailable(0, "RIGHTS_UNKNOWN", "the rights of the caller cannot be checked at the moment: try again")
}

// verifyJWT checks a JWT against the methods that there are.
func (s *Server) verifyJWT(ctx context.Context, c *caller) *failure {
	var methods []*rotav1.AuthMethod
	enabled := false
	s.Machine.View(func(st *state.State) {
		enabled = st.Meta().AccessEnabled
		st.AuthMethods(func(row *state.AuthMethod) bool {
			if m := s.access.method(row); m != nil && !m.Certificates {
				methods = append(methods, m)
			}
			return true
		})
	})
	if !enabled || s.JWT == nil {
		return notEnabled()
	}
	jwt, err := s.JWT(ctx, c.bearer, methods)
	if errors.Is(err, ErrIssuer) {
		return unavailable(time.Second, "ISSUER_UNAVAILABLE", "%v", err)
	}
	if err != nil {
		return failed(connect.CodeUnauthenticated, "JWT_INVALID", "%v", err)
	}
	c.name, c.method, c.claims, c.expires = jwt.Subject, jwt.Method, jwt.Claims, jwt.Expires
	return nil
}

func notEnabled() *failure {
	return failed(connect.CodeUnauthenticated, "ACCESS_DISABLED",
		"this cluster accepts no tokens and no JWTs: use a certificate, or have an operator run rota token bootstrap, or rota acl enable")
}

// resolve finds out what a caller may do by this server's state as it is now. It is asked again
// while a stream lasts, so that a token that is revoked ends it.
func (s *Server) resolve(c *caller) (f *failure) {
	s.Machine.View(func(st *state.State) {
		enabled := st.Meta().AccessEnabled
		switch {
		case c.kind == byCertificate:
			s.resolveCertificate(st, c)
		case c.kind == byNothing && s.TLS:
			f = failed(connect.CodeUnauthenticated, "NO_IDENTITY", "the call has neither a client certificate nor a token: give one of them")
		case c.kind == byNothing && !enabled:
			c.may = rights.Everything()
		case c.kind == byNothing:
			c.may = rights.NewSet(nil)
		case !enabled:
			f = notEnabled()
		case c.kind == byToken:
			f = s.resolveToken(st, c)
		case time.Now().After(c.expires):
			f = failed(connect.CodeUnauthenticated, "JWT_INVALID", "the JWT has expired: get a new one")
		default:
			c.policies = s.access.mapped(st, c.method, c.claims)
			c.may = s.access.set(st, c.policies)
		}
	})
	return f
}

func (s *Server) resolveToken(st *state.State, c *caller) *failure {
	t := st.AccessTokenByHash(c.hash)
	if t == nil || !rights.SameHash(t.Hash, c.hash) || t.Expired(max(s.LogTime(), st.Meta().Now)) {
		return failed(connect.CodeUnauthenticated, "TOKEN_INVALID", "there is no such token: it was revoked, has expired, or is wrong. Ask an operator for another one")
	}
	c.name, c.policies = t.Accessor, t.Policies
	c.may = s.access.set(st, t.Policies)
	return nil
}

// resolveCertificate: operators and servers may do everything, agents nothing of this table, and
// clients all but what is for operators, or what the methods for certificates give them.
func (s *Server) resolveCertificate(st *state.State, c *caller) {
	switch c.role {
	case pki.RoleOperator, pki.RoleServer:
		c.may = rights.Everything()
	case pki.RoleClient:
		narrowed := false
		c.policies = nil
		st.AuthMethods(func(row *state.AuthMethod) bool {
			if m := s.access.method(row); m == nil || m.Certificates {
				narrowed = true
				c.policies = append(c.policies, policiesOf(m, map[string][]string{"name": {c.name}})...)
			}
			return true
		})
		if c.may = rights.ClientDefault(); narrowed {
			c.may = s.access.set(st, c.policies)
		}
	default:
		c.may = rights.NewSet(nil)
	}
}

// policiesOf are those that a method gives to a caller with claims.
func policiesOf(m *rotav1.AuthMethod, claims map[string][]string) (policies []string) {
	for _, x := range m.GetMappings() {
		if slices.ContainsFunc(claims[x.Claim], func(value string) bool { return rights.Match(x.Pattern, value) }) {
			policies = append(policies, x.Policies...)
		}
	}
	return policies
}

// accessCache has what policies and methods mean. Rows do not change, so what was made of a row
// is good until there is another one of its name.
type accessCache struct {
	// unknown has a place for each caller with an unknown token that is looked into.
	unknown chan struct{}
	mu      sync.Mutex
	sets    map[string]cachedSet
	methods map[string]cachedMethod
}

type cachedSet struct {
	row *state.AccessPolicy
	set rights.Set
}

type cachedMethod struct {
	row    *state.AuthMethod
	method *rotav1.AuthMethod // nil: it cannot be read
}

func newAccessCache() *accessCache {
	return &accessCache{unknown: make(chan struct{}, unknownTokensMax), sets: map[string]cachedSet{}, methods: map[string]cachedMethod{}}
}

// set is what policies allow together. One that does not exist allows nothing.
func (a *accessCache) set(st *state.State, policies []string) rights.Set {
	sets := make([]rights.Set, 0, len(policies))
	for _, name := range policies {
		if name == state.ManagementPolicy {
			return rights.Everything()
		}
		if row := st.AccessPolicy(name); row != nil {
			sets = append(sets, a.policy(row))
		}
	}
	return rights.Join(sets...)
}

func (a *accessCache) policy(row *state.AccessPolicy) rights.Set {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.sets[row.Name]; c.row == row {
		return c.set
	}
	p := &rotav1.AccessPolicy{}
	set := rights.NewSet(nil)
	if err := proto.Unmarshal(row.Spec, p); err == nil {
		set = rights.NewSet(p.Rules)
	}
	a.sets[row.Name] = cachedSet{row, set}
	return set
}

// method is what a row says; nil if it cannot be read, and then it gives nothing.
func (a *accessCache) method(row *state.AuthMethod) *rotav1.AuthMethod {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.methods[row.Name]; c.row == row {
		return c.method
	}
	m := &rotav1.AuthMethod{}
	if err := proto.Unmarshal(row.Spec, m); err != nil {
		m = nil
	}
	a.methods[row.Name] = cachedMethod{row, m}
	return m
}

// mapped are the policies that a method gives to claims now.
func (a *accessCache) mapped(st *state.State, method string, claims map[string][]string) []string {
	row := st.AuthMethod(method)
	if row == nil {
		return nil
	}
	return policiesOf(a.method(row), claims)
}

// checkCaller finds out who calls and refuses a caller that may not make the call in any
// namespace, before anything of the request is decoded.
func (s *Server) checkCaller(next http.Handler) http.Handler {
	errorWriter := connect.NewErrorWriter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, refusal := s.caller(r)
		if refusal != nil && strings.HasPrefix(r.URL.Path, "/grpc.health.") && refusal.reason == "NO_IDENTITY" {
			refusal = nil // probes need no identity
		}
		if refusal == nil {
			refusal = s.refusePath(c, r.URL.Path)
		}
		if refusal != nil {
			s.auditRefusal(c, r.URL.Path, refusal)
		} else {
			var release func()
			if release, refusal = s.takeCall(c); refusal == nil {
				defer release()
			}
		}
		if refusal != nil {
			// Nothing can be done about a caller that is gone already.
			_ = errorWriter.Write(w, r, refusal.connectError())
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, c)))
	})
}

// refusePath returns why a caller may not call what is at a path, nil if it may.
func (s *Server) refusePath(c *caller, path string) *failure {
	service, method, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if strings.HasPrefix(path, "/grpc.") {
		return nil
	}
	if service == rotav1connect.AgentServiceName {
		if c.kind == byCertificate && c.role == pki.RoleAgent || c.kind == byNothing && !s.TLS {
			return nil
		}
		return wrongRole(c)
	}
	if c.role == pki.RoleAgent {
		return wrongRole(c)
	}
	need, known := requiredRights[path]
	switch {
	case !known && c.may.Allows(rights.Any, rights.Any, ""):
		return nil // the caller will hear that there is no such call
	case !known:
		return failed(connect.CodePermissionDenied, "RIGHT_MISSING", "nothing is said of the rights to %.100q, so it is refused: is the name right?", path)
	case c.kind == byNothing && s.allowedLocally(path, need):
		return nil
	case c.may.AllowsSomewhere(need.noun, need.verb), need.self && c.kind != byNothing:
		return nil
	case c.kind == byNothing:
		return failed(connect.CodeUnauthenticated, "NO_IDENTITY", "this cluster accepts tokens, so %s needs one: set ROTA_TOKEN or --token-file", method)
	case c.kind == byCertificate && len(c.policies) == 0 && need.verb == rights.Operate:
		return failed(connect.CodePermissionDenied, "OPERATOR_REQUIRED",
			"%s needs an operator's certificate, and this one has the role %q: issue one with `rota tls issue operator NAME`", method, c.role)
	}
	return rightMissing(c, need, "")
}

// allowedLocally: without TLS, where only processes of this machine reach the port, callers
// without a token may still make the first one, and servers ask each other for their status.
func (s *Server) allowedLocally(path string, need right) bool {
	return !s.TLS && (path == rotav1connect.AccessServiceBootstrapTokenProcedure || need.noun == "cluster" && need.verb == rights.Read)
}

func wrongRole(c *caller) *failure {
	what := string(c.role)
	if c.kind != byCertificate {
		what = c.kind
	}
	return failed(connect.CodePermissionDenied, "WRONG_ROLE",
		"the caller has the role %q: AgentService is for agents, all else for clients, operators and servers", what)
}

// rightMissing says what a caller may not do, and who can change that.
func rightMissing(c *caller, need right, namespace string) *failure {
	if c.kind == byNothing { // tokens are accepted since the call began
		return failed(connect.CodeUnauthenticated, "NO_IDENTITY", "this cluster accepts tokens, so the call needs one: set ROTA_TOKEN or --token-file")
	}
	where := ""
	if namespace != "" {
		where = " in namespace " + cut(namespace)
	}
	return failed(connect.CodePermissionDenied, "RIGHT_MISSING",
		"the %s %s may not %s %s%s: its policies %q do not allow that; an operator can change them with rota acl policy put", c.kind, cut(c.name), need.verb, need.noun, where, c.policies)
}
