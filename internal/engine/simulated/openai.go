package simulated

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// exchange is a request while it is answered.
type exchange struct {
	e    *engine
	b    *body
	chat bool
	// id is what the answer calls itself, with prefix before the name of the request. object is
	// its kind, part that of its parts.
	id, prefix, object, part string
	created                  int64
	choices                  []*generation
	notify                   chan struct{}
}

func (e *engine) completions(w http.ResponseWriter, r *http.Request) {
	if e.spoiled(w, r) {
		return
	}
	b, ok := e.decode(w, r)
	if !ok {
		return
	}
	prompts, err := b.prompts()
	x := &exchange{e: e, b: b, prefix: "cmpl-", object: "text_completion", part: "text_completion"}
	e.serveExchange(w, r, x, prompts, completionTokens, err)
}

func (e *engine) chat(w http.ResponseWriter, r *http.Request) {
	if e.spoiled(w, r) {
		return
	}
	b, ok := e.decode(w, r)
	if !ok {
		return
	}
	p, err := b.conversation()
	x := &exchange{e: e, b: b, chat: true, prefix: "chatcmpl-", object: "chat.completion", part: "chat.completion.chunk"}
	e.serveExchange(w, r, x, []prompt{p}, 0, err)
}

// serveExchange generates n answers to each prompt.
func (e *engine) serveExchange(w http.ResponseWriter, r *http.Request, x *exchange, prompts []prompt, otherwise int64, err error) {
	if err == nil {
		err = x.begin(r, prompts, otherwise)
	}
	if err != nil {
		refuse(w, statusOf(err), err.Error())
		return
	}
	defer x.end()
	if x.b.Stream {
		x.stream(r.Context(), w)
		return
	}
	if x.await(r.Context()) {
		x.answer(w)
	}
}

// begin plans all answers and submits them.
func (x *exchange) begin(r *http.Request, prompts []prompt, otherwise int64) error {
	n := 1
	if x.b.N != nil {
		n = *x.b.N
	}
	name := x.e.name(x.b, r)
	x.id, x.created, x.notify = x.prefix+name, time.Now().Unix(), make(chan struct{}, 1)
	var planned []*generation
	for _, p := range prompts {
		for choice := range n {
			g, err := x.e.plan(x.b, p, choice, otherwise)
			if err != nil {
				return err
			}
			g.name, g.answer, g.notify = name, x.id, x.notify
			g.watched = x.b.Stream || x.e.does(CutTokens) || x.e.does(CrashTokens)
			planned = append(planned, g)
		}
	}
	for _, g := range planned {
		if err := x.e.driver.submit(g, x.e.rank(x.b)); err != nil {
			x.end()
			return err
		}
		x.choices = append(x.choices, g)
	}
	return nil
}

// end cancels what still runs.
func (x *exchange) end() {
	for _, g := range x.choices {
		x.e.driver.cancel(g)
	}
}

// await waits for the end of all answers. It returns false if the client has gone.
func (x *exchange) await(ctx context.Context) bool {
	for {
		over := true
		for _, g := range x.choices {
			count, ended := x.e.driver.progress(g)
			x.cut(count)
			over = over && ended
		}
		if over {
			return true
		}
		select {
		case <-x.notify:
		case <-ctx.Done():
			return false
		}
	}
}

// cut breaks the connection if it is to be cut after so many tokens.
func (x *exchange) cut(count int64) {
	if n, does := x.e.number(CutTokens); does && count >= n {
		panic(http.ErrAbortHandler)
	}
}

func (x *exchange) answer(w http.ResponseWriter) {
	var choices []any
	for i, g := range x.choices {
		c := map[string]any{"index": i, "finish_reason": g.reason(), "stop_reason": null(g.stopped), "logprobs": x.logprobs(g, 0, int(g.count))}
		text := g.words(0, int(g.count))
		switch {
		case !x.chat:
			c["text"] = text
		case g.tool != "":
			c["message"] = map[string]any{"role": "assistant", "content": nil, "tool_calls": []any{x.call(i, g.tool, arguments(text, true, true))}}
		default:
			c["message"] = map[string]any{"role": "assistant", "content": text}
		}
		if x.b.ReturnTokenIDs {
			c["token_ids"], c["prompt_token_ids"] = g.tokens[:g.count], g.prompt
		}
		choices = append(choices, c)
	}
	answer(w, map[string]any{
		"id": x.id, "object": x.object, "created": x.created, "model": x.e.o.Model, "choices": choices, "usage": x.usage(),
		"system_fingerprint": "simulated", "simulated": x.e.about(),
	})
}

func null(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// usage counts the tokens of all answers. The prompt of several counts once for each prompt.
func (x *exchange) usage() map[string]any {
	n := 1
	if x.b.N != nil {
		n = *x.b.N
	}
	var in, out, cached int64
	for i, g := range x.choices {
		count, _ := x.e.driver.progress(g)
		out += count
		if i%n == 0 {
			in += max(int64(len(g.prompt)), 1)
			cached += g.cached
		}
	}
	return map[string]any{
		"prompt_tokens": in, "completion_tokens": out, "total_tokens": in + out,
		"prompt_tokens_details": map[string]any{"cached_tokens": cached},
	}
}

// call is a call of a tool.
func (x *exchange) call(choice int, name, arguments string) map[string]any {
	return map[string]any{
		"index": 0, "id": fmt.Sprintf("call-%s-%d", x.id, choice), "type": "function",
		"function": map[string]any{"name": name, "arguments": arguments},
	}
}

// arguments are a part of the JSON that a tool is called with: {"simulated":"WORDS"}.
func arguments(text string, first, last bool) string {
	if first {
		text = `{"simulated":"` + text
	}
	if last {
		text += `"}`
	}
	return text
}

// logprobs are in the form of a completion or of a chat, if the request asks for them.
func (x *exchange) logprobs(g *generation, from, to int) any {
	if asks := string(x.b.Logprobs); asks == "" || asks == "null" || asks == "false" {
		return nil
	}
	all := g.logprobs(from, to)
	if x.chat {
		content := []any{}
		for i, logprob := range all {
			token := word(g.tokens[from+i])
			content = append(content, map[string]any{"token": token, "logprob": logprob, "bytes": numbers(token), "top_logprobs": []any{}})
		}
		return map[string]any{"content": content, "simulated": true}
	}
	tokens, offsets := []string{}, []int{}
	for i := range all {
		tokens, offsets = append(tokens, word(g.tokens[from+i])), append(offsets, (from+i)*pieceMax)
	}
	return map[string]any{"tokens": tokens, "token_logprobs": all, "text_offset": offsets, "top_logprobs": nil, "simulated": true}
}

// numbers are the bytes of a text.
func numbers(text string) (all []int) {
	for i := range len(text) {
		all = append(all, int(text[i]))
	}
	return all
}

// stream sends the answers as they are generated.
func (x *exchange) stream(ctx context.Context, w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	s := &sender{w: w, flush: http.NewResponseController(w).Flush}
	if x.chat {
		for i := range x.choices {
			s.send(x.chunk(map[string]any{"index": i, "delta": map[string]any{"role": "assistant", "content": ""}, "finish_reason": nil, "logprobs": nil}))
		}
	}
	sent := make([]int, len(x.choices))
	over := make([]bool, len(x.choices))
	for left := len(over); left > 0 && s.err == nil; {
		for i, g := range x.choices {
			count, ended := x.e.driver.progress(g)
			if over[i] || int(count) == sent[i] && !ended {
				continue
			}
			s.send(x.chunk(x.piece(i, g, sent[i], int(count), ended)))
			x.cut(count)
			if sent[i], over[i] = int(count), ended; ended {
				left--
			}
		}
		if left == 0 || s.err != nil {
			break
		}
		select {
		case <-x.notify:
		case <-ctx.Done():
			return
		}
	}
	if x.b.StreamOptions.IncludeUsage {
		chunk := x.chunk(nil)
		chunk["choices"], chunk["usage"] = []any{}, x.usage()
		s.send(chunk)
	}
	s.line("[DONE]")
}

// piece is a part of an answer.
func (x *exchange) piece(i int, g *generation, from, to int, ended bool) map[string]any {
	c := map[string]any{"index": i, "finish_reason": nil, "logprobs": x.logprobs(g, from, to)}
	if ended {
		c["finish_reason"], c["stop_reason"] = g.reason(), null(g.stopped)
	}
	text := g.words(from, to)
	switch {
	case !x.chat:
		c["text"] = text
	case g.tool != "" && from == 0:
		c["delta"] = map[string]any{"tool_calls": []any{x.call(i, g.tool, arguments(text, true, ended))}}
	case g.tool != "":
		c["delta"] = map[string]any{"tool_calls": []any{map[string]any{"index": 0, "function": map[string]any{"arguments": arguments(text, false, ended)}}}}
	default:
		c["delta"] = map[string]any{"content": text}
	}
	if x.b.ReturnTokenIDs {
		c["token_ids"] = g.tokens[from:to]
	}
	return c
}

func (x *exchange) chunk(choice map[string]any) map[string]any {
	return map[string]any{
		"id": x.id, "object": x.part, "created": x.created, "model": x.e.o.Model, "choices": []any{choice},
		"system_fingerprint": "simulated", "weight_version": x.e.weights(),
	}
}

// sender sends server-sent events until one cannot be sent.
type sender struct {
	w     http.ResponseWriter
	flush func() error
	err   error
}

func (s *sender) send(v any) {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // it was made here
	}
	s.line(string(data))
}

// event sends one that has a name.
func (s *sender) event(name string, v any) {
	if s.err == nil {
		_, s.err = fmt.Fprintf(s.w, "event: %s\n", name)
	}
	s.send(v)
}

func (s *sender) line(data string) {
	if s.err == nil {
		_, s.err = fmt.Fprintf(s.w, "data: %s\n\n", data)
	}
	if s.err == nil {
		s.err = s.flush()
	}
}
