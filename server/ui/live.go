package ui

import (
	"bytes"
	"fmt"
	"net/http"
	"time"
)

const (
	// livePeriod is how often an open page is drawn anew.
	livePeriod = 2 * time.Second
	// liveWriteMax is how long a reader may take for one event. One that takes none must not keep a
	// place of those that there are for open pages.
	liveWriteMax = 30 * time.Second
)

// sessionEnded is what an open page shows when its session is over.
const sessionEnded = `<p class="error" role="alert">Your session has ended. <a href="` + loginPath + `">Log in</a>.</p>`

// serveLive sends the live half of a page each time that it has changed, as server-sent events.
func (u *UI) serveLive(w http.ResponseWriter, r *http.Request) {
	p, v := u.find(r)
	if p == nil {
		http.NotFound(w, r)
		return
	}
	closed, ok := u.open.Take(v.user())
	if !ok {
		w.Header().Set("Retry-After", "10")
		http.Error(w, "too many pages are open at this server, or too many of yours: close some, or use another server", http.StatusServiceUnavailable)
		return
	}
	defer closed()
	v.path = Root + r.URL.Path[len(Root+"live/"):]
	defer func() { _ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) }()
	w.Header().Set("Content-Type", "text/event-stream")
	ticker := time.NewTicker(livePeriod)
	defer ticker.Stop()
	var last []byte
	for {
		s := u.show(p, v)
		if s.Gone || u.stranger(r) || v.session != nil && u.sessions.find(r, time.Now()) == nil { // since it was opened
			_ = sendEvent(w, []byte(sessionEnded), false)
			return
		}
		var out bytes.Buffer
		if err := p.tmpl.ExecuteTemplate(&out, "content", s); err != nil {
			u.opts.Logger.Error("a page could not be drawn", "page", p.name, "error", err)
			return
		}
		if err := sendEvent(w, out.Bytes(), bytes.Equal(out.Bytes(), last)); err != nil {
			return // the reader is gone
		}
		last = out.Bytes()
		select {
		case <-r.Context().Done():
			return
		case <-ticker.C:
		}
	}
}

// sendEvent sends one event, or a comment that keeps the connection open if nothing has changed.
func sendEvent(w http.ResponseWriter, html []byte, same bool) error {
	var out bytes.Buffer
	if same {
		out.WriteString(":\n\n")
	} else {
		out.WriteString("event: content\n")
		for line := range bytes.Lines(html) {
			fmt.Fprintf(&out, "data: %s\n", bytes.TrimRight(line, "\r\n"))
		}
		out.WriteByte('\n')
	}
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Now().Add(liveWriteMax)) // a writer without deadlines is one of a test
	if _, err := w.Write(out.Bytes()); err != nil {
		return err
	}
	return control.Flush()
}
