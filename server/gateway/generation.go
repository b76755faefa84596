package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
)

// generation is what a client was sent of one answer, and so what another worker has to go on
// behind.
type generation struct {
	b *body
	// began: something was sent. text is the text, escaped as in JSON.
	began bool
	text  []byte
	// ids are the tokens of the text, as in JSON, if the engine tells them.
	ids      []byte
	idsOfAll bool
	// late are the events of tokens whose text has not come yet, lateIDs these tokens. Another worker
	// generates them again, so the client gets them with the text.
	late       []byte
	lateEvents int
	lateIDs    []byte
	// ahead: the client has such events all the same.
	ahead     bool
	firstID   []byte
	firstTime []byte
	model     []byte
	// other: something was sent that no engine can go on behind.
	other  bool
	finish []byte
	ended  uint64 // choices, this one and others
	done   bool   // [DONE]
	// refused is the status of the error with which the engine has refused the request in its stream.
	refused int
	// prompt are the tokens of the first worker's prompt, before what workers before generated,
	// and now what this worker has generated.
	prompt, before, now uint64
	// seam is where what was generated goes into the prompt of a completion.
	seam seam
	// joined: at least one worker generated before this one.
	joined bool
	// fixed: this worker can go on behind the beginning of an answer, as far as the request alone
	// says. each: the gateway has asked it for the usage in each event.
	// refuses: an error in its stream tells whose fault it is.
	fixed, each, refuses bool
	// again: the worker has failed the request before, and nothing was generated.
	again bool
	// held, if set, reports whether the trajectory is suspended.
	held func() bool
}

// lateMax is how many events wait for their text: a character has four tokens at most. An engine that
// sends more without text may send none at all.
const lateMax = 16

// saidMax is how many bytes of a worker's error are passed on.
const saidMax = 200

// errWorkerSays is an error that a worker sent as an event of its stream.
var errWorkerSays = errors.New("the worker reports an error")

// errAborted: the engine has ended the request because the trajectory or its policy is suspended.
var errAborted = errors.New("the engine has aborted the request")

// at prepares for a worker: each says that it tells the usage in each event.
func (g *generation) at(d dialect) {
	g.each = d.continues() && g.b.end != responses
	g.fixed = g.fits(d)
	// vLLM calls many errors 400, also that its engine has died. But then it refuses what comes next
	// before the stream begins: whoever says so twice, and generates nothing, means the request.
	g.refuses = d == sgLang
}

// fits reports whether an engine can go on behind the beginning of an answer to this request.
func (g *generation) fits(d dialect) bool {
	b := g.b
	if !d.continues() || b.end == responses || g.structured() || !b.unset(fEcho) || !isNull(b.value(fSuffix)) {
		return false
	}
	// With stop strings an engine holds text back of which it has told the tokens.
	tells := !b.unset(fReturnTokenIDs) || !b.unset(fLogprobs)
	if tells && b.stops() {
		return false
	}
	if b.end == chat {
		v := b.value(fMessages)
		if len(v) == 0 || v[0] != '[' {
			return false
		}
		if b.unset(fContinueFinal) {
			return true
		}
		_, ok := g.finalContent()
		return ok && string(b.value(fContinueFinal)) == "true"
	}
	var ok bool
	g.seam, ok = b.seam()
	return ok && isNull(b.value(fLogprobs)) && !(g.seam.tokens && b.stops())
}

// finished reports whether the client has all of all answers, but perhaps the end of the stream.
func (g *generation) finished() bool { return g.finish != nil && g.ended >= g.b.answers() }

// continuable reports whether the request may go on at a worker behind what was generated.
func (g *generation) continuable() bool {
	switch {
	case !g.began:
		return true
	case g.other || g.ahead || g.finish != nil || g.b.end == responses || g.b.choices() > 1:
		return false
	case len(g.text) == 0 && g.now+g.before == 0:
		return true
	case !g.fixed:
		return false
	}
	return !g.seam.tokens || g.idsOfAll && len(g.ids) > 0
}

// structured reports whether the answer follows a grammar, which would begin from its start again.
func (g *generation) structured() bool {
	for _, name := range grammarFields {
		if !isNull(g.b.value(name)) {
			return true
		}
	}
	if params := g.b.value(fSamplingParams); !isNull(params) && anyGrammar(params) {
		return true
	}
	format := g.b.value(fResponseFormat)
	if isNull(format) {
		return false
	}
	for m := object(format, 0); m.next(); {
		if string(m.key) == "type" {
			return string(m.val.of(format)) != `"text"`
		}
	}
	return true
}

// anyGrammar reports whether an object of parameters asks for a grammar, or cannot be read.
func anyGrammar(params []byte) bool {
	m := object(params, 0)
	for m.next() {
		name, known := fieldByName[string(m.key)]
		if known && slices.Contains(grammarFields[:], name) && !isNull(m.val.of(params)) {
			return true
		}
	}
	return m.err != nil
}

// left reports whether the request's limits allow more than n tokens.
func (g *generation) left(n uint64) bool {
	for i, name := range limitFields {
		if name != fMinTokens && !isNull(g.b.value(name)) && g.b.limits[i] <= n {
			return false
		}
	}
	return true
}

// conclusion is the end of a stream whose last worker did not send it: the reason, if the client
// does not have it, the usage if it is known and asked for, and the end.
func (g *generation) conclusion(dst []byte) []byte {
	object, empty := "chat.completion.chunk", `"delta":{}`
	if g.b.end == completions {
		object, empty = "text_completion", `"text":""`
	}
	head := func(dst []byte, choices string) []byte {
		dst = append(dst, `data: {"id":`...)
		dst = append(dst, orNull(g.firstID)...)
		dst = append(dst, `,"object":"`+object+`","created":`...)
		dst = append(dst, orNull(g.firstTime)...)
		dst = append(dst, `,"model":`...)
		dst = append(dst, orNull(g.model)...)
		return append(dst, `,"choices":[`+choices+`]`...)
	}
	if g.finish == nil {
		g.finish = []byte("length")
		dst = append(head(dst, `{"index":0,`+empty+`,"finish_reason":"length"}`), "}\n\n"...)
	}
	if n := g.before + g.now; g.b.usage && g.prompt > 0 {
		dst = append(head(dst, ""), fmt.Sprintf(`,"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}`, g.prompt, n, g.prompt+n)...)
		dst = append(dst, "\n\n"...)
	}
	return append(dst, "data: [DONE]\n\n"...)
}

func orNull(v []byte) []byte {
	if len(v) == 0 {
		return []byte("null")
	}
	return v
}

// resume adds what makes an engine go on behind what was generated.
func (g *generation) resume(c *changes) {
	for i, name := range limitFields {
		if !isNull(g.b.value(name)) {
			left := g.b.limits[i] - min(g.before, g.b.limits[i])
			c.set(name, strconv.AppendUint(nil, left, 10))
		}
	}
	if len(g.text) == 0 {
		return
	}
	if g.b.end == completions {
		c.edits = append(c.edits, g.promptEdit())
		return
	}
	c.edits = append(c.edits, g.messageEdit())
	c.set(fContinueFinal, []byte("true"))
	c.set(fAddPrompt, []byte("false"))
}

// seam is where in a body what was generated goes, behind the only prompt of a completion.
type seam struct {
	at     int
	tokens bool // as tokens: the prompt is tokens
}

// seam looks for it: in a string, alone or in an array, or in an array of tokens. There is none in
// several prompts.
func (b *body) seam() (s seam, ok bool) {
	at := b.fields[fPrompt].val
	if isNull(at.of(b.raw)) {
		return s, false
	}
	if b.raw[at.start] != '[' {
		return seam{at: at.end - 1}, b.raw[at.start] == '"'
	}
	last, n := span{}, 0
	for e := array(b.raw, at.start); e.next(); n++ {
		last = e.val
	}
	switch {
	case n == 1 && b.raw[last.start] == '"':
		return seam{at: last.end - 1}, true
	case n > 0 && b.raw[last.start] >= '0' && b.raw[last.start] <= '9':
		return seam{at.end - 1, true}, true
	}
	return s, false
}

// promptEdit puts what was generated behind the prompt.
func (g *generation) promptEdit() edit {
	at := span{g.seam.at, g.seam.at}
	if g.seam.tokens {
		return edit{at, slices.Concat([]byte{','}, g.ids)}
	}
	return edit{at, g.text}
}

// finalContent is the text of the last message, as a string in JSON. There is none if it is in parts.
func (g *generation) finalContent() (at span, ok bool) {
	b := g.b.raw
	var last span
	for e := array(b, g.b.fields[fMessages].val.start); e.next(); {
		last = e.val
	}
	n := 0
	for m := object(b[:last.end], last.start); m.next(); {
		if string(m.key) == "content" {
			at, n = m.val, n+1
		}
	}
	if n != 1 {
		return span{}, false
	}
	_, ok = isString(at.of(b))
	return at, ok
}

// messageEdit puts the text into a message of the assistant: a new one, or the last one if the
// client has asked to have that continued.
func (g *generation) messageEdit() edit {
	b := g.b.raw
	at := g.b.fields[fMessages].val
	if !g.b.unset(fContinueFinal) {
		last, _ := g.finalContent() // it is there, or the request could not go on
		return edit{span{last.end - 1, last.end - 1}, g.text}
	}
	message := slices.Concat([]byte(`{"role":"assistant","content":"`), g.text, []byte(`"}`))
	if b[skipSpace(b, at.start+1)] != ']' {
		message = slices.Insert(message, 0, ',')
	}
	return edit{span{at.end - 1, at.end - 1}, message}
}

// size is how many bytes are kept of the answer.
func (g *generation) size() int { return cap(g.text) + cap(g.ids) + cap(g.late) + cap(g.lateIDs) }

// workerEnds takes the tokens of a worker over before another one goes on.
func (g *generation) workerEnds() {
	if g.began {
		g.joined = true
	}
	g.late, g.lateEvents, g.lateIDs = g.late[:0], 0, g.lateIDs[:0]
	g.before, g.now = g.before+g.now, 0
}

// add takes over an event of the worker and returns what of it the client gets: dst with the
// event, edited where a joined stream must look like one, or without it.
func (g *generation) add(dst, ev []byte) ([]byte, error) {
	at, ok := payload(ev)
	if !ok {
		if at.empty() { // a comment
			return append(dst, ev...), nil
		}
		return g.addOther(dst, ev), nil
	}
	if string(at.of(ev)) == string(doneData) {
		g.done = true
		return append(g.release(dst), ev...), nil
	}
	c, err := parseChunk(ev, at, g.b.end)
	switch {
	case err != nil:
		return g.addOther(dst, ev), nil
	case !c.failure.empty() && (g.refuses || g.again && !g.began) && c.refusal() != 0:
		g.refused, g.done = c.refusal(), true
		return append(g.release(dst), ev...), nil
	case !c.failure.empty():
		return dst, fmt.Errorf("%w: %s", errWorkerSays, shortened(c.failure.of(ev), saidMax))
	case g.b.end == responses:
		return g.addResponse(dst, ev, at)
	}
	return g.addChunk(dst, &c)
}

// addOther adds an event that the gateway cannot read.
func (g *generation) addOther(dst, ev []byte) []byte {
	g.other, g.began = true, true
	return append(g.release(dst), ev...)
}

// release appends the events that wait for their text.
func (g *generation) release(dst []byte) []byte {
	dst = append(dst, g.late...)
	g.late, g.lateEvents = g.late[:0], 0
	return dst
}

func (g *generation) addChunk(dst []byte, c *chunk) ([]byte, error) {
	var room [8]edit
	text, reason, early := c.text(), c.finishReason(), c.early()
	if early && !c.other && g.fixed && g.continuable() && g.lateEvents < lateMax {
		g.lateEvents++
		g.late = edited(g.late, c.ev, g.edits(c, room[:0]))
		g.addIDs(c, text)
		return dst, nil
	}
	g.count(c, text)
	switch {
	case c.choices == 0 && !c.usage.empty() && !g.b.usage:
		return dst, nil // the client did not ask for it
	case g.joined && len(text) == 0 && !c.role.empty() && reason == nil && !c.other:
		return dst, nil // the client has the beginning of the message
	case string(reason) == "abort" && len(text) == 0 && g.held != nil && g.held() && g.continuable():
		return dst, errAborted
	}
	g.text = append(g.text, text...)
	g.addIDs(c, text)
	g.other = g.other || c.other
	g.ahead = early || g.ahead && len(text) == 0
	g.ended += uint64(c.ended)
	if reason != nil {
		g.finish = slices.Clone(reason)
	}
	if !g.began {
		g.began = true
		g.firstID, g.firstTime, g.model = slices.Clone(c.id.of(c.ev)), slices.Clone(c.created.of(c.ev)), slices.Clone(c.model.of(c.ev))
	}
	return edited(g.release(dst), c.ev, g.edits(c, room[:0])), nil
}

// count keeps the usage up to date. Without figures of the engine an event counts as a token.
func (g *generation) count(c *chunk, text []byte) {
	if u, ok := readUsage(c.ev, c.usage); ok {
		g.now = max(g.now, u.completion)
		if g.prompt == 0 {
			g.prompt = u.prompt
		}
		return
	}
	if len(text) > 0 {
		g.now++
	}
}

func (g *generation) addIDs(c *chunk, text []byte) {
	if ids := c.tokens(); ids != nil {
		g.lateIDs = joinIDs(g.lateIDs, ids)
		if len(text) == 0 {
			return
		}
		g.ids, g.lateIDs = joinIDs(g.ids, g.lateIDs), g.lateIDs[:0]
		if len(g.text) == len(text) {
			g.idsOfAll = true
		}
	} else if len(text) > 0 {
		g.idsOfAll = false
	}
}

func joinIDs(ids, more []byte) []byte {
	if len(ids) > 0 {
		ids = append(ids, ',')
	}
	return append(ids, more...)
}

// edits are what makes an event that of the client's one stream.
func (g *generation) edits(c *chunk, list []edit) []edit {
	if g.joined {
		if len(g.firstID) > 0 && !c.id.empty() {
			list = append(list, edit{c.id, g.firstID})
		}
		if len(g.firstTime) > 0 && !c.created.empty() {
			list = append(list, edit{c.created, g.firstTime})
		}
		if !c.role.empty() {
			list = append(list, edit{cut(c.ev, c.role), nil})
		}
	}
	switch wanted := g.b.usage && (g.b.eachUsage || !g.each || c.choices == 0); {
	case c.usageMember.empty():
	case !wanted && !(g.b.usage && isNull(c.usage.of(c.ev))):
		list = append(list, edit{cut(c.ev, c.usageMember), nil})
	case g.joined:
		list = g.sumUsage(c, list)
	}
	slices.SortFunc(list, func(a, b edit) int { return a.at.start - b.at.start })
	return list
}

// sumUsage adds what workers before have generated.
func (g *generation) sumUsage(c *chunk, list []edit) []edit {
	u, ok := readUsage(c.ev, c.usage)
	if !ok {
		return list
	}
	put := func(at span, n uint64) {
		if !at.empty() {
			list = append(list, edit{at, strconv.AppendUint(nil, n, 10)})
		}
	}
	put(u.promptAt, g.prompt)
	put(u.completionAt, g.before+u.completion)
	put(u.totalAt, g.prompt+g.before+u.completion)
	return list
}

// addResponse reads the events of the API of responses, which are never joined.
func (g *generation) addResponse(dst, ev []byte, at span) ([]byte, error) {
	r := readResponse(ev[:at.end], at.start)
	if u, ok := readUsage(ev, r.usage); ok {
		g.prompt, g.now = u.prompt, u.completion
	}
	switch {
	case r.failed && r.refused():
		g.refused, g.done = http.StatusBadRequest, true
	case r.failed:
		return dst, fmt.Errorf("%w: %s", errWorkerSays, shortened(at.of(ev), saidMax))
	case string(r.status) == "completed", string(r.status) == "incomplete":
		g.finish, g.done = slices.Clone(r.status), true
	}
	g.began, g.other = true, true
	return append(dst, ev...), nil
}
