package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	rotav1 "rota/api/gen/rota/v1"
	"rota/fsm/state"
	"rota/server/jwt"
	"rota/server/rpc"
)

const (
	// accessResetFile is the file in the folder of a server that allows another first token.
	accessResetFile = "access-bootstrap-reset"
	// keysTimeout bounds the time of a call to an issuer of JWTs.
	keysTimeout = 5 * time.Second
)

// letsIn reports whether connections without a certificate are let in, as this server knows: if
// tokens are accepted, or if it has not read its log yet. Then it answers calls with a token that
// they should be tried again.
func (s *Server) letsIn() (yes bool) {
	s.machine.View(func(st *state.State) { yes = st.Meta().AccessEnabled || st.Meta().ClusterID == "" })
	return yes
}

// newJWT returns what checks JWTs.
func newJWT() func(context.Context, string, []*rotav1.AuthMethod) (*rpc.JWT, error) {
	v := jwt.New(&http.Client{
		Timeout: keysTimeout,
		// Keys come from where the operator said.
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return errors.New("the issuer redirects: name the URL that it redirects to")
		},
	}, time.Now)
	return func(ctx context.Context, raw string, methods []*rotav1.AuthMethod) (*rpc.JWT, error) {
		i, err := v.Verify(ctx, raw, methods)
		if errors.Is(err, jwt.ErrKeys) {
			return nil, issuerError{err}
		}
		if err != nil {
			return nil, err
		}
		return &rpc.JWT{Method: i.Method, Subject: i.Subject, Claims: i.Claims, Expires: i.Expires}, nil
	}
}

// issuerError is rpc.ErrIssuer with the words of what went wrong.
type issuerError struct{ error }

func (issuerError) Is(target error) bool { return target == rpc.ErrIssuer }

// accessReset reads the number by which an operator with access to this server's folder allows
// another first token; 0 without the file.
func (s *Server) accessReset() (number uint64, forget func(), err error) {
	path := filepath.Join(s.cfg.DataDir, accessResetFile)
	raw, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, func() {}, nil
	case err != nil:
		return 0, nil, fmt.Errorf("the file %s cannot be read: make it readable for the server, or remove it", accessResetFile)
	}
	number, err = strconv.ParseUint(strings.TrimSpace(string(raw)), 10, 64)
	if err != nil {
		return 0, nil, fmt.Errorf("the file %s must have the number that rota token bootstrap said", accessResetFile)
	}
	return number, func() {
		if err := os.Remove(path); err != nil {
			s.logger.Error("the file that allowed another first token cannot be removed; it allows no further one", "path", path, "error", err)
		}
	}, nil
}

// auditor hands calls to the audit log; nil without one.
func (s *Server) auditor() func(rpc.AuditRecord) {
	if s.cfg.Audit == nil {
		return nil
	}
	return func(r rpc.AuditRecord) { s.cfg.Audit.Write(r) }
}
