package ui

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"

	"rota/api/codec"
	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/api/httpx"
	"rota/api/rights"
)

const (
	loginPath  = Root + "login"
	logoutPath = Root + "logout"
	// loginBytesMax bounds what the form sends: a JWT, its escapes, and the name of the field.
	loginBytesMax = 64 << 10
	// loginWait bounds how long that takes to arrive.
	loginWait = 10 * time.Second
)

// bearer is the token or JWT of a request without a certificate: that of its header, else that of
// its session.
func (u *UI) bearer(r *http.Request) string {
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		return ""
	}
	if b, err := rights.Bearer(r.Header.Get("Authorization")); err == nil && b != "" {
		return b
	}
	if s := u.sessions.find(r, time.Now()); s != nil {
		return s.bearer
	}
	return ""
}

// api calls the API on behalf of a request, with a token or JWT if there is one.
func (u *UI) api(r *http.Request, bearer string) httpx.InProcess {
	c := httpx.InProcess{API: u.opts.API, For: r, Authorization: r.Header.Get("Authorization")}
	if bearer != "" {
		c.Authorization = "Bearer " + bearer
	}
	return c
}

// stranger reports whether a request has to log in first: it came over TLS and has neither a
// certificate nor a token. Without TLS only this machine reaches the page, and the API decides.
func (u *UI) stranger(r *http.Request) bool {
	return r.TLS != nil && len(r.TLS.PeerCertificates) == 0 && u.bearer(r) == ""
}

// signedIn lets only those pass who have a certificate, a token or a session, and leads others to
// the form.
func (u *UI) signedIn(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if u.stranger(r) {
			http.Redirect(w, r, loginPath, http.StatusSeeOther)
			return
		}
		next(w, r)
	}
}

// sameOrigin reports whether a change comes from a page of this server. Browsers say where each
// POST comes from, and no page can make them say anything else.
func sameOrigin(r *http.Request) bool {
	scheme := "http://"
	if r.TLS != nil {
		scheme = "https://"
	}
	return r.Header.Get("Origin") == scheme+r.Host
}

// entrance is what the form shows.
type entrance struct {
	ServerID, Version, Error, Name string
}

func (u *UI) serveLogin(w http.ResponseWriter, r *http.Request) {
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		http.Redirect(w, r, Root, http.StatusSeeOther) // the certificate counts
		return
	}
	u.writeLogin(w, r, http.StatusOK, "")
}

func (u *UI) writeLogin(w http.ResponseWriter, r *http.Request, status int, problem string) {
	e := entrance{ServerID: u.opts.ServerID, Version: u.opts.Version, Error: problem}
	if s := u.sessions.find(r, time.Now()); s != nil {
		e.Name = s.name
	}
	u.write(w, u.login, "login", status, e)
}

// logIn begins a session for who has a token or a JWT. The secret comes in the body of a POST, is
// checked by the API, and goes nowhere else.
func (u *UI) logIn(w http.ResponseWriter, r *http.Request) {
	now, from := time.Now(), addressOf(r)
	if !sameOrigin(r) {
		http.Error(w, "this form is for the page of this server only", http.StatusForbidden)
		return
	}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		http.Redirect(w, r, Root, http.StatusSeeOther)
		return
	}
	wait := u.tries.wait(from, now)
	tooMany := func() {
		w.Header().Set("Retry-After", strconv.Itoa(1+int(wait.Seconds())))
		u.writeLogin(w, r, http.StatusTooManyRequests, "Too many log-ins from your address have failed. Check the token, wait a minute, then try again.")
	}
	if wait > 0 {
		done, ok := u.checks.Take(from)
		if !ok {
			tooMany()
			return
		}
		defer done()
	}
	r.Body = http.MaxBytesReader(w, r.Body, loginBytesMax)
	body := http.NewResponseController(w)
	_ = body.SetReadDeadline(now.Add(loginWait)) // a writer without deadlines is one of a test
	if err := r.ParseForm(); err != nil {
		http.Error(w, "the form cannot be read", http.StatusBadRequest)
		return
	}
	_ = body.SetReadDeadline(time.Time{})
	token := strings.TrimSpace(r.PostForm.Get("token"))
	who, err := u.check(r, token)
	switch code := connect.CodeOf(err); {
	case err != nil && code != connect.CodeUnauthenticated && code != connect.CodeInvalidArgument:
		u.writeLogin(w, r, http.StatusServiceUnavailable, sentence(err))
		return
	case err != nil && wait > 0:
		tooMany()
		return
	case err != nil:
		u.tries.failed(from, now)
		u.writeLogin(w, r, http.StatusUnauthorized, sentence(err))
		return
	}
	u.sessions.end(r) // an earlier one of this browser
	http.SetCookie(w, cookie(u.sessions.begin(token, user(who), who.Caller, now), int(sessionLifetime.Seconds())))
	http.Redirect(w, r, Root, http.StatusSeeOther)
}

// check returns whom a token or JWT belongs to.
func (u *UI) check(r *http.Request, token string) (*rotav1.GetAccessResponse, error) {
	if _, err := rights.Bearer("Bearer " + token); token == "" || err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, errNoToken)
	}
	ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
	defer cancel()
	c := rotav1connect.NewAccessServiceClient(u.api(r, token), thisServer, codec.ForClient())
	return c.GetAccess(ctx, &rotav1.GetAccessRequest{AllowStale: true})
}

var errNoToken = errors.New("this is neither a token nor a JWT: give the secret that rota token create has shown")

func (u *UI) logOut(w http.ResponseWriter, r *http.Request) {
	if !sameOrigin(r) {
		http.Error(w, "this form is for the page of this server only", http.StatusForbidden)
		return
	}
	u.sessions.end(r)
	http.SetCookie(w, cookie("", -1))
	http.Redirect(w, r, loginPath, http.StatusSeeOther)
}

// cookie is that of a session. Scripts do not see it, and browsers send it with no request that
// comes from another site.
func cookie(value string, seconds int) *http.Cookie {
	return &http.Cookie{
		Name: cookieName, Value: value, Path: "/", MaxAge: seconds, Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode,
	}
}
