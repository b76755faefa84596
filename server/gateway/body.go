package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// endpoint is what a request asks of an engine.
type endpoint int

const (
	chat endpoint = iota
	completions
	responses
)

// path is that of OpenAI's API.
func (e endpoint) path() string {
	return [...]string{"/v1/chat/completions", "/v1/completions", "/v1/responses"}[e]
}

// errBody is wrapped by errors about the body of a request.
var errBody = errors.New("the body of the request")

// body is the body of a request and what was found in it.
type body struct {
	raw []byte
	end endpoint
	// fields are the members that the gateway reads, by name: where they are.
	fields [fieldCount]field
	// stream: the client wants events. usage: it wants the one with the usage, and eachUsage
	// that each event has it.
	stream, usage, eachUsage bool
	// user and model are as the client sent them, still escaped.
	user, model []byte
	// limits are max_tokens and the like.
	limits [len(limitFields)]uint64
}

type field struct {
	val    span
	member span
}

// fieldName is one of the members that the gateway reads.
type fieldName int

const (
	fModel fieldName = iota
	fUser
	fStream
	fStreamOptions
	fPriority
	fRID
	fMaxTokens
	fMaxCompletionTokens
	fMinTokens
	fN
	fBestOf
	fLogprobs
	fTopLogprobs
	fEcho
	fSuffix
	fStop
	fMessages
	fPrompt
	fContinueFinal
	fAddPrompt
	fResponseFormat
	fStructured
	fGuidedJSON
	fGuidedRegex
	fGuidedChoice
	fGuidedGrammar
	fRegex
	fEBNF
	fJSONSchema
	fStructuralTag
	fSamplingParams
	fReturnTokenIDs
	fieldCount
)

var fieldNames = [fieldCount]string{
	"model", "user", "stream", "stream_options", "priority", "rid",
	"max_tokens", "max_completion_tokens", "min_tokens", "n", "best_of", "logprobs", "top_logprobs",
	"echo", "suffix", "stop", "messages", "prompt", "continue_final_message", "add_generation_prompt",
	"response_format", "structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar",
	"regex", "ebnf", "json_schema", "structural_tag", "sampling_params", "return_token_ids",
}

// limitFields are lowered by what was generated when a request goes on at another worker.
var limitFields = [...]fieldName{fMaxTokens, fMaxCompletionTokens, fMinTokens}

// grammarFields each ask for an answer that follows a grammar: those of vLLM, then those of SGLang.
var grammarFields = [...]fieldName{
	fStructured, fGuidedJSON, fGuidedRegex, fGuidedChoice, fGuidedGrammar,
	fRegex, fEBNF, fJSONSchema, fStructuralTag,
}

var fieldByName = func() map[string]fieldName {
	byName := make(map[string]fieldName, fieldCount)
	for i, name := range fieldNames {
		byName[name] = fieldName(i)
	}
	return byName
}()

// parseBody finds what the gateway reads. Everything else is left to the engine.
func parseBody(raw []byte, end endpoint) (*body, error) {
	b := &body{raw: raw, end: end}
	m := object(raw, 0)
	for m.next() {
		name, known := fieldByName[string(m.key)]
		if !known {
			continue
		}
		f := &b.fields[name]
		if f.member.end != 0 {
			return nil, fmt.Errorf("%w has %q twice; send it once", errBody, fieldNames[name])
		}
		f.val, f.member = m.val, m.member
	}
	if m.err != nil {
		return nil, fmt.Errorf("%w is no JSON object that an engine could read: %w", errBody, m.err)
	}
	if skipSpace(raw, m.pos) != len(raw) {
		return nil, fmt.Errorf("%w goes on behind the JSON object; send one object", errBody)
	}
	return b, b.check()
}

// check refuses values that an engine might read in another way than the gateway does.
func (b *body) check() error {
	var err error
	if b.stream, err = b.boolean(fStream); err != nil {
		return err
	}
	if b.user, err = b.text(fUser); err != nil {
		return err
	}
	if b.model, err = b.text(fModel); err != nil {
		return err
	}
	for i, name := range limitFields {
		v := b.value(name)
		if isNull(v) {
			continue
		}
		n, ok := unsigned(v)
		if !ok {
			return fmt.Errorf("%w has %q: %s; send a whole number", errBody, fieldNames[name], excerpt(v))
		}
		b.limits[i] = n
	}
	for _, name := range []fieldName{fN, fBestOf} {
		if v := b.value(name); !isNull(v) {
			if _, ok := unsigned(v); !ok {
				return fmt.Errorf("%w has %q: %s; send a whole number", errBody, fieldNames[name], excerpt(v))
			}
		}
	}
	return b.checkStreamOptions()
}

func (b *body) checkStreamOptions() error {
	f := b.fields[fStreamOptions]
	if isNull(f.val.of(b.raw)) {
		return nil
	}
	m := object(b.raw, f.val.start)
	for m.next() {
		var to *bool
		switch string(m.key) {
		case "include_usage":
			to = &b.usage
		case "continuous_usage_stats":
			to = &b.eachUsage
		default:
			continue
		}
		switch v := m.val.of(b.raw); string(v) {
		case "true":
			*to = true
		case "false", "null":
		default:
			return fmt.Errorf("%w has stream_options with %q: %s; send true or false", errBody, m.key, excerpt(v))
		}
	}
	if m.err != nil {
		return fmt.Errorf("%w has stream_options that are not an object", errBody)
	}
	return nil
}

func (b *body) value(name fieldName) []byte { return b.fields[name].val.of(b.raw) }

// unset reports whether a switch is off for every engine. Some read 1 and "true" as true.
func (b *body) unset(name fieldName) bool {
	v := b.value(name)
	return isNull(v) || string(v) == "false"
}

func (b *body) boolean(name fieldName) (bool, error) {
	switch v := b.value(name); {
	case isNull(v), string(v) == "false":
		return false, nil
	case string(v) == "true":
		return true, nil
	default:
		return false, fmt.Errorf("%w has %q: %s; send true or false", errBody, fieldNames[name], excerpt(v))
	}
}

func (b *body) text(name fieldName) ([]byte, error) {
	v := b.value(name)
	if isNull(v) {
		return nil, nil
	}
	inside, ok := isString(v)
	if !ok {
		return nil, fmt.Errorf("%w has %q: %s; send a string", errBody, fieldNames[name], excerpt(v))
	}
	return inside, nil
}

// excerpt shortens a value for a message.
func excerpt(v []byte) string { return shortened(v, 40) }

// shortened is what a value begins with.
func shortened(v []byte, bytes int) string {
	if len(v) > bytes {
		return strconv.QuoteToASCII(string(v[:bytes])) + "..."
	}
	return strconv.QuoteToASCII(string(v))
}

// choices is how many answers the request asks for.
func (b *body) choices() uint64 {
	n := uint64(1)
	for _, name := range []fieldName{fN, fBestOf} {
		if v, ok := unsigned(b.value(name)); ok {
			n = max(n, v)
		}
	}
	return n
}

// answers is how many of them the client gets: n for each prompt.
func (b *body) answers() uint64 {
	n, _ := unsigned(b.value(fN))
	prompts := uint64(0)
	if b.end == completions {
		for e := array(b.raw, b.fields[fPrompt].val.start); e.next(); {
			if first := b.raw[e.val.start]; first == '"' || first == '[' {
				prompts++
			}
		}
	}
	return max(n, 1) * max(prompts, 1)
}

// stops reports whether the request has stop strings.
func (b *body) stops() bool {
	v := b.value(fStop)
	if isNull(v) || string(v) == `""` {
		return false
	}
	return v[0] != '[' || v[skipSpace(v, 1)] != ']'
}

// changes collects edits of the top level of a body.
type changes struct {
	b     *body
	edits []edit
	added []byte
}

// set gives a member a value, whether it is there or not. The value is kept, not copied.
func (c *changes) set(name fieldName, value []byte) {
	if f := c.b.fields[name]; f.member.end != 0 {
		c.edits = append(c.edits, edit{f.val, value})
		return
	}
	c.added = append(c.added, '"')
	c.added = append(c.added, fieldNames[name]...)
	c.added = append(c.added, '"', ':')
	c.added = append(c.added, value...)
	c.added = append(c.added, ',')
}

// done returns all edits in order.
func (c *changes) done() []edit {
	if len(c.added) > 0 {
		at := bytes.IndexByte(c.b.raw, '{') + 1
		if next := skipSpace(c.b.raw, at); c.b.raw[next] == '}' {
			c.added = c.added[:len(c.added)-1]
		}
		c.edits = append(c.edits, edit{span{at, at}, c.added})
	}
	// There are a handful of them.
	for i := range c.edits {
		for j := i; j > 0 && c.edits[j].at.start < c.edits[j-1].at.start; j-- {
			c.edits[j], c.edits[j-1] = c.edits[j-1], c.edits[j]
		}
	}
	return c.edits
}

// streamOptions asks for the usage, and if each is set for the usage in each event. Options that
// the client has set stay.
func (b *body) streamOptions(each bool) []byte {
	old := b.value(fStreamOptions)
	out := []byte(`{"include_usage":true`)
	if each {
		out = append(out, `,"continuous_usage_stats":true`...)
	}
	if !isNull(old) {
		for m := object(old, 0); m.next(); {
			if k := string(m.key); k == "include_usage" || each && k == "continuous_usage_stats" {
				continue
			}
			out = append(out, ',')
			out = append(out, bytes.TrimLeft(m.member.of(old), ", \t\r\n")...)
		}
	}
	return append(out, '}')
}
