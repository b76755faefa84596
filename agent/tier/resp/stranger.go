package resp

import "time"

// A client is a stranger until it has given the password, if there is one.
const (
	// strangersMax is how many strangers are served at once. The oldest goes for another one: a client that
	// knows the password gives it at once.
	strangersMax = 256
	// strangerMax is how long a client may be a stranger.
	strangerMax = 10 * time.Second
	// strangerArgsMax and strangerBytesMax bound a command of a stranger. Redis has these limits too.
	strangerArgsMax  = 10
	strangerBytesMax = 16 << 10
)

// patience is how long the client may take to send a command or to read its answers.
func (c *conn) patience() time.Duration {
	if c.authenticated {
		return c.server.ioMax
	}
	return min(c.server.ioMax, strangerMax)
}

// limits are those of the client's next command.
func (c *conn) limits() limits {
	if c.authenticated {
		return limits{args: argsMax, bytes: argsBytesMax}
	}
	return limits{args: strangerArgsMax, bytes: strangerBytesMax, stranger: true}
}

// makePlace closes the oldest stranger if a connection more would be too many. It reports false if there
// is no place. The caller holds Server.mu.
func (s *Server) makePlace() bool {
	if len(s.conns) < connectionsMax && len(s.strangers) < strangersMax {
		return true
	}
	var oldest *conn
	for c := range s.strangers {
		if oldest == nil || c.id < oldest.id {
			oldest = c
		}
	}
	if oldest == nil {
		return false
	}
	_ = oldest.conn.Close()
	s.forget(oldest)
	return true
}

// know is called when the client has given the password.
func (s *Server) know(c *conn) {
	s.mu.Lock()
	delete(s.strangers, c)
	s.mu.Unlock()
	c.authenticated = true
	c.rest()
}

// fromBrowser says whether a command is a line of an HTTP request, which a page that a browser shows
// may have sent to this machine. What follows would be read as commands.
func (cmd *command) fromBrowser() bool { return cmd.name == "post" || cmd.name == "host:" }
