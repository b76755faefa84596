package e2b

import (
	"context"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"

	"rota/api/codec"
	"rota/api/gen/e2b/filesystem/filesystemconnect"
	"rota/api/gen/e2b/process/processconnect"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/api/httpx"
	"rota/api/intake"
	"rota/api/rights"
)

const (
	// envdVersion is what SDKs are told: the newest one whose features rota has. From 0.6.2 on,
	// files have metadata; so the SDK says itself that these do not.
	envdVersion = "0.5.7"
	// envdPort is where SDKs expect the services of a sandbox.
	envdPort = "49983"
	// messageBytesMax bounds a message to the services of a sandbox.
	messageBytesMax = 4 << 20
	// decodingBytesMax bounds what all messages together take in memory while they are decoded. The
	// largest in JSON takes 28 MiB, and may take three quarters of it.
	decodingBytesMax = 64 << 20
	// bodyBytesMax bounds a request of the REST API.
	bodyBytesMax = 1 << 20
	// arrivalMax is how long such a request may take to arrive.
	arrivalMax = 30 * time.Second
	// uploadBytesMax bounds the content of one file that is uploaded.
	uploadBytesMax = 64 << 30
)

// Headers by which a request names its sandbox, its caller and the namespace of new sandboxes.
const (
	sandboxHeader   = "E2b-Sandbox-Id"
	portHeader      = "E2b-Sandbox-Port"
	keyHeader       = "X-Api-Key"
	tokenHeader     = "X-Access-Token"
	namespaceHeader = "Rota-Namespace"
	keepaliveHeader = "Keepalive-Ping-Interval"
)

// Options are what the package needs.
type Options struct {
	// API answers calls of rota.v1 as the server does.
	API http.Handler
	// Templates are what sandboxes can be made of.
	Templates Templates
}

// E2B serves the REST API and the services of all sandboxes.
type E2B struct {
	opts     Options
	rest     *http.ServeMux
	envd     *http.ServeMux
	watchers *watchers
	inputs   *inputs
	// transfers has a unit for each file that is uploaded or downloaded, lists one for each list.
	transfers, lists *fair
	// uploadMax and idleMax are the constants of their names, and less in tests.
	uploadMax int64
	idleMax   time.Duration
	// stopping is done when streams are to end.
	stopping context.Context
	stop     context.CancelFunc
}

// New returns the handler.
func New(opts Options) *E2B {
	e := &E2B{
		opts: opts, watchers: newWatchers(), inputs: newInputs(), transfers: newFair(transfersMax), lists: newFair(listsMax),
		uploadMax: uploadBytesMax, idleMax: idleMax,
	}
	e.stopping, e.stop = context.WithCancel(context.Background())
	e.rest = e.restRoutes()
	e.envd = e.envdRoutes()
	return e
}

// Drain ends the streams that the API of rota does not end, so that the HTTP server can be shut
// down.
func (e *E2B) Drain() { e.stop() }

// Before answers what is for E2B and passes everything else on.
func (e *E2B) Before(next http.Handler) http.Handler {
	// A page of another site could otherwise write into sandboxes from a browser on this machine.
	mine := http.NewCrossOriginProtection().Handler(e)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if e.isMine(r) {
			mine.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isMine reports whether a request is for this package: by its host, or by its path.
func (e *E2B) isMine(r *http.Request) bool {
	if _, _, byHost := hostOf(r.Host); byHost {
		return true
	}
	if r.Header.Get(sandboxHeader) != "" {
		_, pattern := e.envd.Handler(r)
		return pattern != ""
	}
	path := r.URL.Path
	return strings.HasPrefix(path, "/"+processconnect.ProcessName+"/") ||
		strings.HasPrefix(path, "/"+filesystemconnect.FilesystemName+"/") || isREST(path)
}

// isREST reports whether a path is one of E2B's REST API, with a version before it or without.
func isREST(path string) bool {
	first, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if first == "v2" || first == "v3" {
		first, _, _ = strings.Cut(rest, "/")
	}
	switch first {
	case "sandboxes", "snapshots", "templates", "volumes", "secrets":
		return true
	}
	return false
}

// ServeHTTP implements http.Handler.
func (e *E2B) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Cross-Origin-Resource-Policy", "same-origin")
	id, port, byHost := hostOf(r.Host)
	switch {
	case byHost:
	case isREST(r.URL.Path) && r.Header.Get(sandboxHeader) == "":
		e.rest.ServeHTTP(w, r)
		return
	default:
		id, port = r.Header.Get(sandboxHeader), r.Header.Get(portHeader)
	}
	e.serveEnvd(w, r, id, port)
}

// hostPattern is how SDKs name a port of a sandbox: PORT-SANDBOX.DOMAIN.
var hostPattern = regexp.MustCompile(`^([0-9]{1,5})-(t[0-9]{1,20})\.`)

// hostOf returns the sandbox and the port that a host names.
func hostOf(host string) (sandbox, port string, ok bool) {
	if m := hostPattern.FindStringSubmatch(strings.ToLower(host)); m != nil {
		return m[2], m[1], true
	}
	return "", "", false
}

// sandboxID is the name of a trajectory as a sandbox. It can be a part of a host's name.
func sandboxID(trajectory uint64) string { return "t" + strconv.FormatUint(trajectory, 10) }

// trajectoryOf is the opposite of sandboxID.
func trajectoryOf(sandbox string) (uint64, bool) {
	digits, ok := strings.CutPrefix(sandbox, "t")
	id, err := strconv.ParseUint(digits, 10, 64)
	return id, ok && err == nil && id != 0 && sandboxID(id) == sandbox
}

// api is rota's API as a caller may use it.
type api struct {
	actions      rotav1connect.ActionServiceClient
	trajectories rotav1connect.TrajectoryServiceClient
	files        rotav1connect.FileServiceClient
	streams      rotav1connect.StreamServiceClient
	access       rotav1connect.AccessServiceClient
	snapshots    rotav1connect.SnapshotServiceClient
	usage        rotav1connect.UsageServiceClient
}

// apiFor returns the API for a request. Its key is a token of rota if it looks like one, and
// means nothing otherwise: the SDK insists on a key, and where tokens are not in use any will do.
func (e *E2B) apiFor(r *http.Request, key string) api {
	c := httpx.InProcess{API: e.opts.API, For: r}
	if isToken(key) {
		c.Authorization = "Bearer " + key
	}
	const base = "http://this.server"
	opt := connect.WithClientOptions(codec.ForClient(), connect.WithInterceptors(persistent{}))
	return api{
		actions:      rotav1connect.NewActionServiceClient(c, base, opt),
		trajectories: rotav1connect.NewTrajectoryServiceClient(c, base, opt),
		files:        rotav1connect.NewFileServiceClient(c, base, opt),
		streams:      rotav1connect.NewStreamServiceClient(c, base, opt),
		access:       rotav1connect.NewAccessServiceClient(c, base, opt),
		snapshots:    rotav1connect.NewSnapshotServiceClient(c, base, opt),
		usage:        rotav1connect.NewUsageServiceClient(c, base, opt),
	}
}

// isToken reports whether a key is the secret of a token, or has the three parts of a JWT.
func isToken(key string) bool { return rights.IsSecret(key) || strings.Count(key, ".") == 2 }

// envdRoutes are those of the services of a sandbox.
func (e *E2B) envdRoutes() *http.ServeMux {
	mux := http.NewServeMux()
	limits := intake.Limits{
		MessageBytes: messageBytesMax, Budget: intake.NewBudget(decodingBytesMax),
		Sender: func(ctx context.Context) string { return sandboxIn(ctx).namespace },
	}
	options := []connect.HandlerOption{
		codec.ForHandler(), intake.ForHandler(), connect.WithReadMaxBytes(messageBytesMax),
		connect.WithInterceptors(errorInterceptor{}),
	}
	mount := func(path string, h http.Handler) { mux.Handle(path, e.bounded(intake.Handler(h, limits))) }
	mount(processconnect.NewProcessHandler(processes{e}, options...))
	mount(filesystemconnect.NewFilesystemHandler(directories{e}, options...))
	mux.HandleFunc("GET /files", e.download)
	mux.HandleFunc("POST /files", e.upload)
	mux.HandleFunc("GET "+healthPath, health)
	return mux
}

type sandboxKey struct{}

// sandboxIn returns the sandbox that a call of a service is for.
func sandboxIn(ctx context.Context) *sandbox { return ctx.Value(sandboxKey{}).(*sandbox) }
