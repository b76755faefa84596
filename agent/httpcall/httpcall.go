package httpcall

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	rotav1 "rota/api/gen/rota/v1"
)

const (
	// Command is the subcommand of the agent's binary that makes a call.
	Command = "http-call"
	// Variable holds the call.
	Variable = "ROTA_HTTP_CALL"
	// throttleVariable names the file that says that the call was refused for its rate, and for
	// how many seconds; see agent/runtime. Without quotas there is none.
	throttleVariable = "ROTA_THROTTLE_FILE"
	// SettleVariable holds where the answer says what the call used of quotas: lines of
	// QUOTA=RULE, see api/settle. usageVariable names the file for it; see agent/runtime.
	SettleVariable = "ROTA_HTTP_SETTLE"
	usageVariable  = "ROTA_USAGE_FILE"
)

// Exit codes; those of curl where it has one for the same.
const (
	ExitOK          = 0
	ExitBadCall     = 2  // what is asked for is no HTTP call
	ExitNoConn      = 7  // no connection: nothing was asked for
	ExitNotAccepted = 22 // the answer's status is not an accepted one
	ExitNoAnswer    = 56 // connected, but no whole answer: what it did, nobody knows
)

// redirectsMax is how many redirects are followed.
const redirectsMax = 10

// ProxyVariables are those of the agent's environment that a call gets too.
var ProxyVariables = []string{
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
}

// marks are headers that tell the receiver who calls, by the variables that
// every attempt finds. With the attempt, which is the fencing token, it can
// refuse a call from an attempt that was given up.
var marks = map[string]string{
	"Rota-Action": "ROTA_ACTION_ID", "Rota-Attempt": "ROTA_TOKEN_ATTEMPT", "Rota-Token": "ROTA_FENCING_TOKEN",
}

// Encode returns the value of Variable for a call.
func Encode(call *rotav1.HttpCall) (string, error) {
	raw, err := call.MarshalVT()
	if err != nil {
		return "", fmt.Errorf("encode the HTTP call: %w", err)
	}
	return base64.StdEncoding.EncodeToString(raw), nil
}

func decode(text string) (*rotav1.HttpCall, error) {
	if text == "" {
		return nil, errors.New(Variable + " holds no call; agents run this, not people")
	}
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", Variable, err)
	}
	call := new(rotav1.HttpCall)
	if err := call.UnmarshalVT(raw); err != nil {
		return nil, fmt.Errorf("%s: %w", Variable, err)
	}
	return call, nil
}

// Method is that of the call, or what it means to have none.
func Method(call *rotav1.HttpCall) string {
	switch {
	case call.GetMethod() != "":
		return call.GetMethod()
	case len(call.GetBody()) > 0:
		return http.MethodPost
	}
	return http.MethodGet
}

// Main makes the call that the environment holds and returns the exit code of
// the process. The end of the context ends it at once.
func Main(ctx context.Context, getenv func(string) string, stdout, stderr io.Writer) int {
	hide()
	call, err := decode(getenv(Variable))
	if err != nil {
		return fail(stderr, ExitBadCall, err)
	}
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	})
	req, err := request(ctx, call, getenv)
	if err != nil {
		return fail(stderr, ExitBadCall, withoutURL(err))
	}
	resp, err := client(call).Do(req)
	switch {
	case err != nil && !connected.Load():
		return fail(stderr, ExitNoConn, fmt.Errorf("could not connect to %s: %w", req.URL.Host, withoutURL(err)))
	case err != nil:
		return fail(stderr, ExitNoAnswer, fmt.Errorf("no answer from %s, so nobody knows what the call has done: %w", req.URL.Host, withoutURL(err)))
	}
	defer resp.Body.Close()
	tellThrottled(getenv(throttleVariable), resp, stderr)
	settled := newSettlement(getenv(SettleVariable), getenv(usageVariable), resp)
	defer settled.tell(stderr)
	return answer(call, resp, stdout, stderr)
}

// hide keeps other attempts, which may run as the same user, from reading the
// environment of this process. Where that fails, it is as it is for commands. A
// supervisor that looks for what is left over knows the process by its session.
func hide() { _ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }

// answer passes the answer on as it arrives and judges it.
func answer(call *rotav1.HttpCall, resp *http.Response, stdout, stderr io.Writer) int {
	fmt.Fprintf(stderr, "%s %s\n", resp.Proto, resp.Status)
	_, err := io.Copy(stdout, resp.Body)
	switch {
	case !accepts(call, resp.StatusCode):
		return fail(stderr, ExitNotAccepted, fmt.Errorf("status %d is not accepted, only %s", resp.StatusCode, acceptedText(call)))
	case err != nil:
		return fail(stderr, ExitNoAnswer, fmt.Errorf("the answer broke off: %w", err))
	}
	return ExitOK
}

// tellThrottled says that the other side refused the call for its rate, or for now, and how long it
// asked to wait. That fails without harm: the call ends as it would have.
func tellThrottled(path string, resp *http.Response, stderr io.Writer) {
	after := resp.Header.Get("Retry-After")
	refused := resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable && after != ""
	if path == "" || !refused {
		return
	}
	text := "refused"
	if wait := retryAfter(after, resp.Header.Get("Date")); wait > 0 {
		text = strconv.FormatFloat(wait.Seconds(), 'f', -1, 64)
	}
	if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
		fmt.Fprintf(stderr, "rota: the refusal cannot be told to the quota: %v\n", err)
	}
}

// retryAfter reads a Retry-After header, which has seconds or a time by the clock of the other
// side; 0 if it says nothing.
func retryAfter(after, date string) time.Duration {
	if seconds, err := strconv.ParseUint(after, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	until, err := http.ParseTime(after)
	if err != nil {
		return 0
	}
	now, err := http.ParseTime(date)
	if err != nil {
		now = time.Now()
	}
	return until.Sub(now)
}

func fail(stderr io.Writer, code int, err error) int {
	fmt.Fprintf(stderr, "rota: %v\n", err)
	return code
}

// withoutURL leaves out the URL that net/http puts into its errors: its query may
// hold what is no business of whoever reads the output.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

func accepts(call *rotav1.HttpCall, status int) bool {
	if len(call.GetAccept()) == 0 {
		return status >= 200 && status <= 299
	}
	return slices.Contains(call.GetAccept(), uint32(status))
}

func acceptedText(call *rotav1.HttpCall) string {
	if len(call.GetAccept()) == 0 {
		return "200 to 299"
	}
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(call.GetAccept()), " ", ", "), "[]")
}

func request(ctx context.Context, call *rotav1.HttpCall, getenv func(string) string) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, Method(call), call.GetUrl(), bytes.NewReader(call.GetBody()))
	if err != nil {
		return nil, err
	}
	if (req.URL.Scheme != "http" && req.URL.Scheme != "https") || req.URL.Host == "" {
		return nil, errors.New("the URL must begin with http:// or https:// and name a host")
	}
	req.Header.Set("User-Agent", "rota")
	for name, value := range call.GetHeaders() {
		if strings.EqualFold(name, "Host") {
			req.Host = value
			continue
		}
		req.Header.Set(name, value)
	}
	for name, variable := range marks {
		if value := getenv(variable); value != "" {
			req.Header.Set(name, value)
		}
	}
	return req, nil
}

// client waits as long as it takes: the time limit of the action ends the process.
func client(call *rotav1.HttpCall) *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableKeepAlives = true
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(req *http.Request, via []*http.Request) error { return follow(call, req, via) },
	}
}

// follow decides on a redirect. One that is not followed is the answer, whose
// status is then accepted or not.
func follow(call *rotav1.HttpCall, req *http.Request, via []*http.Request) error {
	first := via[0]
	switch {
	case len(call.GetAccept()) > 0 && accepts(call, req.Response.StatusCode),
		len(via) > redirectsMax,
		req.URL.Scheme != "https" && (first.URL.Scheme == "https" || req.URL.Scheme != "http"):
		return http.ErrUseLastResponse
	}
	if req.URL.Host != first.URL.Host {
		// They may be secrets, which net/http knows of Authorization and Cookie only.
		for name := range call.GetHeaders() {
			req.Header.Del(name)
		}
	}
	return nil
}
