package ui

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"strings"

	"connectrpc.com/connect"
	"github.com/hashicorp/go-hclog"

	"rota/api/share"
)

// Root is the path under which the page is.
const Root = "/ui/"

// livePagesMax is how many pages may be open at a server: each costs a little work every two
// seconds.
const livePagesMax = 128

// securityPolicy allows nothing but the files of the page itself. htmx sets the style attributes
// of nothing; uPlot does by script, which needs no permission.
const securityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; " +
	"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

//go:embed templates static
var files embed.FS

// Options are what the page needs.
type Options struct {
	// API answers calls of rota.v1 as the server does.
	API http.Handler
	// Counts reads the numbers of the charts. It is called every two seconds.
	Counts func() Counts
	// ServerID and Version are shown.
	ServerID, Version string
	Logger            hclog.Logger
}

// UI serves the page.
type UI struct {
	opts    Options
	root    *http.ServeMux
	pages   map[string]*page
	login   *page
	history *history
	// sessions are those of browsers that logged in with a token, tries their failures.
	sessions *sessions
	tries    *tries
	// checks has a slot for each log-in under way of an address that has failed too often, which
	// addresses share.
	checks *share.Slots[string]
	// open has a slot for each page that is open, which users share.
	open *share.Slots[string]
	// stopped is closed once Run ends: open pages end with the server.
	stopped chan struct{}
}

// page is one of the page's parts: what is in its live half, and how it is drawn.
type page struct {
	name, title string
	// nav is the entry of the menu that is marked.
	nav  string
	load func(v *viewer) (any, error)
	tmpl *template.Template
}

// shown is what a template is given.
type shown struct {
	Title, Nav, ServerID, Version string
	// Live is the path of the page's live half.
	Live  string
	Query url.Values
	// Session is the name of who logged in; empty without a session.
	Session string
	Data    any
	// Error says why there are no data.
	Error string
	// Gone: whoever looks has to log in, again or at all.
	Gone    bool
	leftOut map[string]bool
}

// Left reports whether the page leaves out a noun, as its viewer may not read it.
func (s shown) Left(noun string) bool { return s.leftOut[noun] }

// New returns the page. Run must run beside it.
func New(opts Options) *UI {
	u := &UI{
		opts: opts, root: http.NewServeMux(), pages: map[string]*page{},
		login:   &page{name: "login", title: "Log in", tmpl: parse("login")},
		history: newHistory(opts.Counts), open: share.New[string](livePagesMax), sessions: newSessions(), tries: newTries(),
		checks: share.New[string](checksMax), stopped: make(chan struct{}),
	}
	for _, p := range allPages() {
		p.tmpl = parse(p.name)
		u.pages[p.name] = p
	}
	static, err := fs.Sub(files, "static")
	if err != nil {
		panic(err) // the folder is embedded
	}
	u.root.Handle("GET "+Root+"static/{file}", http.StripPrefix(Root+"static/", cached(http.FileServerFS(static))))
	u.root.HandleFunc("GET "+loginPath, u.serveLogin)
	u.root.HandleFunc("POST "+loginPath, u.logIn)
	u.root.HandleFunc("POST "+logoutPath, u.logOut)
	for pattern, h := range map[string]http.HandlerFunc{
		"history.json": u.serveHistory, "{$}": u.servePage, "{page}": u.servePage, "{page}/{id}": u.servePage,
	} {
		u.root.HandleFunc("GET "+Root+pattern, u.signedIn(h))
	}
	u.root.HandleFunc("GET "+Root+"live/{page}", u.serveLive)
	u.root.HandleFunc("GET "+Root+"live/{page}/{id}", u.serveLive)
	return u
}

// Run samples the charts until ctx is done. Then it ends all open pages.
func (u *UI) Run(ctx context.Context) {
	defer close(u.stopped)
	u.history.run(ctx)
}

// ServeHTTP implements http.Handler.
func (u *UI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", securityPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin") // with "no-referrer", browsers do not say where a form comes from
	h.Set("Cache-Control", "no-store")
	u.root.ServeHTTP(w, r)
}

// cached lets browsers keep the files, which change only with the release.
func cached(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "private, max-age=600")
		next.ServeHTTP(w, r)
	})
}

// find returns the page of a request, with its viewer.
func (u *UI) find(r *http.Request) (*page, *viewer) {
	name := r.PathValue("page")
	if name == "" {
		name = "overview"
	}
	id := r.PathValue("id")
	if id != "" {
		name += "-one"
	}
	p := u.pages[name]
	return p, newViewer(u, r, id)
}

func (u *UI) servePage(w http.ResponseWriter, r *http.Request) {
	p, v := u.find(r)
	if p == nil {
		http.NotFound(w, r)
		return
	}
	s := u.show(p, v)
	if s.Gone {
		u.sessions.end(r)
		http.Redirect(w, r, loginPath, http.StatusSeeOther)
		return
	}
	u.write(w, p, "layout", http.StatusOK, s)
}

// show loads what a page shows. An error is shown, too: the next try may succeed.
func (u *UI) show(p *page, v *viewer) shown {
	live := url.URL{Path: Root + "live/" + strings.TrimPrefix(v.path, Root), RawQuery: v.query.Encode()}
	if v.path == Root {
		live.Path = Root + "live/overview"
	}
	s := shown{
		Title: p.title, Nav: p.nav, ServerID: u.opts.ServerID, Version: u.opts.Version,
		Live: live.String(), Query: v.query,
	}
	err := v.look()
	if err == nil {
		s.Data, err = p.load(v)
	}
	if err != nil {
		s.Error = sentence(err)
	}
	s.Gone, s.leftOut = v.gone(err), v.leftOut
	if v.session != nil {
		s.Session = v.session.name
	}
	return s
}

// sentence is what an error tells people.
func sentence(err error) string {
	var e *connect.Error
	if errors.As(err, &e) {
		return e.Message()
	}
	return err.Error()
}

// write draws a page, all of it or nothing.
func (u *UI) write(w http.ResponseWriter, p *page, name string, status int, data any) {
	var out bytes.Buffer
	if err := p.tmpl.ExecuteTemplate(&out, name, data); err != nil {
		u.opts.Logger.Error("a page could not be drawn", "page", p.name, "error", err)
		http.Error(w, "this page could not be drawn: the server's log says why", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(out.Bytes()) // nothing can be done about a reader that is gone
}

// parse reads the templates of a page.
func parse(name string) *template.Template {
	t := template.New(name).Funcs(functions)
	return template.Must(t.ParseFS(files, "templates/layout.html", "templates/parts.html", "templates/"+name+".html"))
}
