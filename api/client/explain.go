package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"rota/api/pki"
)

// probeTimeout bounds a look at what an address speaks.
const probeTimeout = time.Second

// AddrError says why no call to an address can succeed, and what to change: the one side
// uses TLS and the other does not, or a certificate is refused.
type AddrError struct {
	Addr string
	// Why is the rest of a sentence that begins with the address.
	Why   string
	cause error
}

func (e *AddrError) Error() string { return e.Addr + " " + e.Why }

// Unwrap returns what the connection ended with.
func (e *AddrError) Unwrap() error { return e.cause }

// explain makes an AddrError of an error that is one, and returns any other as it is.
func (c *Client) explain(addr string, err error) error {
	if Detail(err) != nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	why := ""
	switch open := !NeverSent(err) && !c.servers.answered(addr); {
	case c.config.TLS != nil:
		if why = tlsTrouble(err); why == "" && open {
			why = probeTLS(addr, c.config.TLS)
		}
	case open && speaksTLS(addr):
		why = "uses TLS, and this client does not: give it --ca, --cert and --key"
	}
	if why == "" {
		return err
	}
	return &AddrError{Addr: addr, Why: why, cause: err}
}

// plaintextPort is why a client with TLS cannot use a server without.
const plaintextPort = "does not use TLS, and this client does: leave out --ca, --cert and --key, or start the server with them"

// tlsTrouble says why a connection with TLS cannot work, empty if it may.
func tlsTrouble(err error) string {
	var invalid x509.CertificateInvalidError
	var op *net.OpError
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "has a certificate that has expired, or is not valid yet: renew it there with `rota tls renew`"
	case errors.Is(err, pki.ErrUntrusted):
		return "has a certificate of another authority: give --ca the file of this cluster, or correct --addr"
	case errors.Is(err, pki.ErrWrongRole), errors.Is(err, pki.ErrNoRole), errors.Is(err, pki.ErrNoCertificate):
		return "has a certificate that is not that of a server: correct --addr, or issue one there with `rota tls issue server`"
	case errors.As(err, &op) && op.Op == "remote error":
		return "refuses the certificate of this client (" + op.Err.Error() + "): it must be from the authority of the cluster, " +
			"not have expired, and have a role; issue one with `rota tls issue client`"
	case errors.Is(err, http.ErrSchemeMismatch):
		return plaintextPort
	}
	return ""
}

// probeTLS finds the reason why a port that never answered is no use, empty if there is
// none to see. A server that refuses a certificate resets a connection on which a request
// is under way, and the reset may overtake the reason. A handshake without a request gets
// the reason.
func probeTLS(addr string, conf *tls.Config) string {
	err := handshake(addr, conf)
	if err == nil {
		return ""
	}
	if why := tlsTrouble(err); why != "" {
		return why
	}
	if speaksPlaintext(addr) {
		return plaintextPort
	}
	return ""
}

// handshake opens a connection with TLS, waits until the server has spoken, and returns
// what it ended with.
func handshake(addr string, conf *tls.Config) error {
	conf = conf.Clone()
	conf.NextProtos = []string{"h2"} // then the server speaks first
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	dialer := tls.Dialer{Config: conf}
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetReadDeadline(time.Now().Add(probeTimeout)); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 1))
	return err
}

// speaksTLS reports whether the process at an address answers a TLS handshake, if
// only to refuse it.
func speaksTLS(addr string) bool {
	dialer := tls.Dialer{NetDialer: &net.Dialer{Timeout: probeTimeout}, Config: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // nothing is sent
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err == nil {
		_ = conn.Close()
		return true
	}
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error"
}

// speaksPlaintext reports whether the process at an address answers HTTP without TLS.
func speaksPlaintext(addr string) bool {
	conn, err := net.DialTimeout("tcp", addr, probeTimeout)
	if err != nil {
		return false
	}
	defer conn.Close()
	if conn.SetDeadline(time.Now().Add(probeTimeout)) != nil {
		return false
	}
	if _, err := io.WriteString(conn, "OPTIONS * HTTP/1.1\r\nHost: rota\r\nConnection: close\r\n\r\n"); err != nil {
		return false
	}
	begin := make([]byte, 5)
	_, err = io.ReadFull(conn, begin)
	return err == nil && string(begin) == "HTTP/"
}
