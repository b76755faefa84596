package gateway

// chunk is one event of a stream of completions, as far as the gateway reads it. Spans are
// offsets in the event.
type chunk struct {
	ev                 []byte
	id, created, model span
	usage              span
	usageMember        span
	// failure is what the engine says went wrong.
	failure span
	// choices are how many, and ended how many of them say why they end.
	choices, ended int
	// content is the text of the first choice, still escaped; role is its member in the delta.
	content, role span
	finish, ids   span
	// logprobs are those of the first choice, unless they are null.
	logprobs span
	// other: there is something in the delta that no engine can go on behind.
	other bool
}

// parseChunk reads the data of an event.
func parseChunk(ev []byte, at span, end endpoint) (c chunk, err error) {
	c.ev = ev
	b := ev[:at.end]
	m := object(b, at.start)
	for m.next() {
		switch string(m.key) {
		case "id":
			c.id = m.val
		case "created":
			c.created = m.val
		case "model":
			c.model = m.val
		case "usage":
			c.usage, c.usageMember = m.val, m.member
		case "error":
			if !isNull(m.val.of(b)) {
				c.failure = m.val
			}
		case "choices":
			c.readChoices(b, m.val.start, end)
		}
	}
	return c, m.err
}

func (c *chunk) readChoices(b []byte, at int, end endpoint) {
	for e := array(b, at); e.next(); {
		c.choices++
		c.other = c.other || c.choices > 1
		for m := object(b, e.val.start); m.next(); {
			if reason, _ := isString(m.val.of(b)); string(m.key) == "finish_reason" && len(reason) > 0 {
				c.ended++
			}
			if c.choices > 1 {
				continue
			}
			switch string(m.key) {
			case "delta":
				c.readDelta(b, m.val.start)
			case "text":
				if end == completions {
					c.content = m.val
				}
			case "finish_reason":
				c.finish = m.val
			case "token_ids":
				c.ids = m.val
			case "logprobs":
				if !isNull(m.val.of(b)) {
					c.logprobs = m.val
				}
			case "index":
				c.other = c.other || string(m.val.of(b)) != "0"
			}
		}
	}
}

func (c *chunk) readDelta(b []byte, at int) {
	for m := object(b, at); m.next(); {
		switch string(m.key) {
		case "content":
			c.content = m.val
		case "role":
			c.role = m.member
		default:
			switch string(m.val.of(b)) {
			case "null", `""`, "[]", "{}":
			default:
				c.other = true
			}
		}
	}
}

// text is the generated text, still escaped.
func (c *chunk) text() []byte {
	inside, _ := isString(c.content.of(c.ev))
	return inside
}

// tokens are those that the engine tells, as in JSON without brackets.
func (c *chunk) tokens() []byte {
	if ids := c.ids.of(c.ev); len(ids) > 2 && ids[0] == '[' {
		return ids[1 : len(ids)-1]
	}
	return nil
}

// early reports whether the event tells of tokens whose text has not come yet, such as a part of a
// character.
func (c *chunk) early() bool {
	return len(c.text()) == 0 && c.finishReason() == nil && (c.tokens() != nil || !c.logprobs.empty())
}

// refusal is the status of an error that is the request's own fault; 0: it is not.
func (c *chunk) refusal() int {
	for m := object(c.ev[:c.failure.end], c.failure.start); m.next(); {
		if n, ok := unsigned(m.val.of(c.ev)); ok && string(m.key) == "code" && n >= 400 && n < 500 {
			return int(n)
		}
	}
	return 0
}

// response is what the gateway reads of an event of the API of responses.
type response struct {
	usage        span
	status, code []byte
	failed       bool
}

func readResponse(b []byte, at int) (r response) {
	for m := object(b, at); m.next(); {
		switch v, _ := isString(m.val.of(b)); string(m.key) {
		case "type":
			r.failed = r.failed || string(v) == "error"
		case "code":
			r.code = v
		case "response":
			r.readInside(b, m.val.start)
		}
	}
	return r
}

func (r *response) readInside(b []byte, at int) {
	for m := object(b, at); m.next(); {
		switch string(m.key) {
		case "usage":
			r.usage = m.val
		case "status":
			r.status, _ = isString(m.val.of(b))
			r.failed = r.failed || string(r.status) == "failed"
		case "error":
			for in := object(b, m.val.start); in.next(); {
				if string(in.key) == "code" {
					r.code, _ = isString(in.val.of(b))
				}
			}
		}
	}
}

// refused reports whether a failure is the request's own fault.
func (r *response) refused() bool { return len(r.code) > 0 && string(r.code) != "server_error" }

// finishReason is empty before the end.
func (c *chunk) finishReason() []byte {
	inside, _ := isString(c.finish.of(c.ev))
	return inside
}

// usage are the token counts of an answer, and where they are.
type usage struct {
	prompt, completion, total       uint64
	promptAt, completionAt, totalAt span
}

// readUsage reads an object such as {"prompt_tokens":3,"completion_tokens":5,"total_tokens":8}.
// The API of responses calls them input_tokens and output_tokens.
func readUsage(b []byte, at span) (u usage, ok bool) {
	if at.empty() || isNull(at.of(b)) {
		return u, false
	}
	for m := object(b[:at.end], at.start); m.next(); {
		n, whole := unsigned(m.val.of(b))
		if !whole {
			continue
		}
		switch string(m.key) {
		case "prompt_tokens", "input_tokens":
			u.prompt, u.promptAt, ok = n, m.val, true
		case "completion_tokens", "output_tokens":
			u.completion, u.completionAt, ok = n, m.val, true
		case "total_tokens":
			u.total, u.totalAt = n, m.val
		}
	}
	return u, ok
}

// cut is the part of a text to remove so that a member is gone, and one comma with it.
func cut(b []byte, member span) span {
	if b[member.start] == ',' {
		return member
	}
	if next := skipSpace(b, member.end); next < len(b) && b[next] == ',' {
		member.end = next + 1
	}
	return member
}
