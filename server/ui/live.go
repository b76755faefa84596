package ui

import (
	"bytes"
	"fmt"
	"net/http"
	"time"
)

// livePeriod is how often an open page is drawn anew.
const livePeriod = 2 * time.Second

// sessionEnded is what an open page shows when its session is over.
const sessionEnded = `<p class="error" role="alert">You are not logged in. <a href="` + loginPath + `">Log in</a>.</p>`

// endSession tells an open page that its session is over. The page then asks for no other stream.
func (u *UI) endSession(w http.ResponseWriter, r *http.Request) {
	u.sessions.end(r)
	w.Header().Set("Content-Type", "text/event-stream")
	if sendEvent(w, "content", []byte(sessionEnded)) == nil {
		_ = sendEvent(w, "end", nil) // nothing can be done about a reader that is gone
	}
}

// serveLive sends the live half of a page each time that it has changed, as server-sent events.
func (u *UI) serveLive(w http.ResponseWriter, r *http.Request) {
	p, v := u.find(r)
	if p == nil {
		http.NotFound(w, r)
		return
	}
	if u.stranger(r) {
		u.endSession(w, r)
		return
	}
	// Only a caller whose identity is known gets a place.
	if err := v.look(); err != nil {
		if v.gone(err) {
			u.endSession(w, r)
			return
		}
		http.Error(w, sentence(err), http.StatusServiceUnavailable)
		return
	}
	closed, ok := u.open.Take(user(v.access))
	if !ok {
		w.Header().Set("Retry-After", "10")
		http.Error(w, "too many pages are open at this server, or too many of yours: close some, or use another server", http.StatusServiceUnavailable)
		return
	}
	defer closed()
	v.path = Root + r.URL.Path[len(Root+"live/"):]
	w.Header().Set("Content-Type", "text/event-stream")
	ticker := time.NewTicker(livePeriod)
	defer ticker.Stop()
	var last []byte
	for {
		s := u.show(p, v)
		if s.Gone || u.stranger(r) || v.session != nil && u.sessions.find(r, time.Now()) == nil { // since it was opened
			u.endSession(w, r)
			return
		}
		var out bytes.Buffer
		if err := p.tmpl.ExecuteTemplate(&out, "content", s); err != nil {
			u.opts.Logger.Error("a page could not be drawn", "page", p.name, "error", err)
			return
		}
		event := "content"
		if bytes.Equal(out.Bytes(), last) {
			event = ""
		}
		if err := sendEvent(w, event, out.Bytes()); err != nil {
			return // the reader is gone
		}
		last = out.Bytes()
		select {
		case <-r.Context().Done():
			return
		case <-u.stopped:
			return
		case <-ticker.C:
		}
	}
}

// sendEvent sends one event. Without a name it is a comment that keeps the connection open. The server
// gives up a reader that takes none.
func sendEvent(w http.ResponseWriter, name string, html []byte) error {
	var out bytes.Buffer
	if name == "" {
		out.WriteString(":\n\n")
	} else {
		fmt.Fprintf(&out, "event: %s\n", name)
		for line := range bytes.Lines(html) {
			fmt.Fprintf(&out, "data: %s\n", bytes.TrimRight(line, "\r\n"))
		}
		if len(html) == 0 {
			out.WriteString("data:\n") // browsers drop an event without such a line
		}
		out.WriteByte('\n')
	}
	if _, err := w.Write(out.Bytes()); err != nil {
		return err
	}
	return http.NewResponseController(w).Flush()
}
