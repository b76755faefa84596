package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"rota/api/httpx"
	"rota/api/pki"
)

// processAnswerMax bounds an answer of a process: a profile, or its recent log.
const processAnswerMax = 256 << 20

// errProcess is an answer that is not 200.
var errProcess = errors.New("the process refused")

// process calls a server, or the port for metrics of an agent. Their certificates have
// different roles, so one after the other is expected.
func (a *app) process(ctx context.Context, addr, method, path string, body []byte, limit time.Duration) (answer []byte, status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	files := a.settings.tlsFiles()
	roles := []pki.Role{""}
	if files.Enabled() {
		roles = []pki.Role{pki.RoleServer, pki.RoleAgent}
	}
	var all error
	for _, role := range roles {
		c := httpx.NewClient(nil)
		if role != "" {
			conf, err := pki.ClientConfig(files, role)
			if err != nil {
				return nil, 0, err
			}
			c = httpx.NewClient(conf)
		}
		defer c.CloseIdleConnections()
		req, err := http.NewRequestWithContext(ctx, method, httpx.BaseURL(addr, files.Enabled())+path, bytes.NewReader(body))
		if err != nil {
			return nil, 0, err
		}
		resp, err := c.Do(req)
		if err != nil {
			all = errors.Join(all, err)
			continue
		}
		defer resp.Body.Close()
		answer, err := io.ReadAll(io.LimitReader(resp.Body, processAnswerMax))
		return answer, resp.StatusCode, err
	}
	return nil, 0, &codeError{exitUnavailable, fmt.Errorf("%s does not answer: %w", addr, all)}
}

// processOK is process for an answer that has to be 200.
func (a *app) processOK(ctx context.Context, addr, method, path string, body []byte, limit time.Duration) ([]byte, error) {
	answer, status, err := a.process(ctx, addr, method, path, body, limit)
	switch {
	case err != nil:
		return nil, err
	case status == http.StatusForbidden:
		return nil, fmt.Errorf("%s: %w: %s; use a certificate with the role operator", addr, errProcess, strings.TrimSpace(string(answer)))
	case status == http.StatusNotFound:
		return nil, fmt.Errorf("%s: %w: it has no %s; for an agent, give the address of its --metrics port", addr, errProcess, path)
	case status != http.StatusOK:
		return nil, fmt.Errorf("%s: %w: %s", addr, errProcess, strings.TrimSpace(string(answer)))
	}
	return answer, nil
}
