package simulated

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// item is one of the input of /v1/responses: a message, a call of a tool, or what the tool said.
type item struct {
	Type      string          `json:"type"`
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	Name      string          `json:"name"`
	Arguments string          `json:"arguments"`
	Output    json.RawMessage `json:"output"`
}

// response is an answer in the form of OpenAI's Responses API. It has one item: a message, or the
// call of a tool. https://platform.openai.com/docs/api-reference/responses-streaming has the events.
type response struct {
	*exchange
	g *generation
	s *sender
	// events counts those that were sent.
	events int
}

func (e *engine) responses(w http.ResponseWriter, r *http.Request) {
	if e.spoiled(w, r) {
		return
	}
	b, ok := e.decode(w, r)
	if !ok {
		return
	}
	x := &exchange{e: e, b: b, prefix: "resp_", object: "response"}
	err := b.converse()
	var p prompt
	if err == nil {
		p, err = b.conversation()
	}
	if err == nil {
		err = x.begin(r, []prompt{p}, 0)
	}
	if err != nil {
		refuse(w, statusOf(err), err.Error())
		return
	}
	defer x.end()
	a := &response{exchange: x, g: x.choices[0]}
	switch {
	case b.Stream:
		a.stream(r, w)
	case x.await(r.Context()):
		answer(w, a.object(true))
	}
}

// converse makes the messages of a chat of instructions and input.
func (b *body) converse() error {
	add := func(role string, content json.RawMessage) {
		b.Messages = append(b.Messages, message{Role: role, Content: content})
	}
	if b.Instructions != "" {
		add("system", quoted(b.Instructions))
	}
	var text string
	if json.Unmarshal(b.Input, &text) == nil {
		add("user", b.Input)
		return nil
	}
	var items []item
	if err := json.Unmarshal(b.Input, &items); err != nil {
		return fmt.Errorf("%w: the input is neither a text nor a list of items", errRequest)
	}
	for _, i := range items {
		switch i.Type {
		case "", "message":
			add(i.Role, i.Content)
		case "function_call":
			add("assistant", quoted(i.Name+i.Arguments))
		case "function_call_output":
			add("tool", i.Output)
		default:
			return fmt.Errorf("%w: the input has an item of the type %q; use message, function_call or function_call_output", errRequest, i.Type)
		}
	}
	return nil
}

func quoted(text string) json.RawMessage {
	raw, err := json.Marshal(text)
	if err != nil {
		panic(err) // it is a text
	}
	return raw
}

// text is what was generated from one token to another; a tool's arguments if it calls one.
func (a *response) text(from, to int, ended bool) string {
	text := a.g.words(from, to)
	if a.g.tool != "" {
		return arguments(text, from == 0, ended)
	}
	return text
}

// item is the item of the answer, as it is in the beginning or in the end.
func (a *response) item(ended bool) map[string]any {
	status, text := "in_progress", ""
	if ended {
		status, text = a.status(), a.text(0, int(a.g.count), true)
	}
	if a.g.tool != "" {
		return map[string]any{"type": "function_call", "id": "fc_" + a.id, "call_id": "call_" + a.id, "name": a.g.tool, "arguments": text, "status": status}
	}
	content := []any{}
	if ended {
		content = append(content, part(text))
	}
	return map[string]any{"type": "message", "id": "msg_" + a.id, "role": "assistant", "content": content, "status": status}
}

func part(text string) map[string]any {
	return map[string]any{"type": "output_text", "text": text, "annotations": []any{}}
}

// status is that of an answer which has ended.
func (a *response) status() string {
	if a.g.reason() == "length" || a.g.aborted {
		return "incomplete"
	}
	return "completed"
}

// object is the answer, as it is in the beginning or in the end.
func (a *response) object(ended bool) map[string]any {
	o := map[string]any{
		"id": a.id, "object": a.exchange.object, "created_at": a.created, "model": a.e.o.Model, "status": "in_progress", "error": nil,
		"incomplete_details": nil, "output": []any{}, "tools": []any{}, "tool_choice": "auto", "parallel_tool_calls": true,
		"usage": nil, "simulated": a.e.about(),
	}
	if ended {
		u := a.usage()
		o["status"], o["output"] = a.status(), []any{a.item(true)}
		o["usage"] = map[string]any{
			"input_tokens": u["prompt_tokens"], "input_tokens_details": u["prompt_tokens_details"], "output_tokens": u["completion_tokens"],
			"output_tokens_details": map[string]any{"reasoning_tokens": 0}, "total_tokens": u["total_tokens"],
		}
		if a.status() == "incomplete" {
			o["incomplete_details"] = map[string]any{"reason": "max_output_tokens"}
		}
	}
	return o
}

// send sends an event.
func (a *response) send(kind string, fields map[string]any) {
	fields["type"], fields["sequence_number"] = kind, a.events
	a.events++
	a.s.event(kind, fields)
}

// stream sends the answer as it is generated.
func (a *response) stream(r *http.Request, w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	a.s = &sender{w: w, flush: http.NewResponseController(w).Flush}
	a.send("response.created", map[string]any{"response": a.object(false)})
	a.send("response.in_progress", map[string]any{"response": a.object(false)})
	a.send("response.output_item.added", map[string]any{"output_index": 0, "item": a.item(false)})
	id := a.item(false)["id"]
	at := func(more map[string]any) map[string]any {
		more["item_id"], more["output_index"] = id, 0
		if a.g.tool == "" {
			more["content_index"] = 0
		}
		return more
	}
	kind, field := "response.output_text", "text"
	if a.g.tool != "" {
		kind, field = "response.function_call_arguments", "arguments"
	} else {
		a.send("response.content_part.added", at(map[string]any{"part": part("")}))
	}
	for sent, ended := 0, false; !ended && a.s.err == nil; {
		var count int64
		if count, ended = a.e.driver.progress(a.g); int(count) > sent || ended {
			a.send(kind+".delta", at(map[string]any{"delta": a.text(sent, int(count), ended)}))
			a.cut(count)
			sent = int(count)
			continue
		}
		select {
		case <-a.notify:
		case <-r.Context().Done():
			return
		}
	}
	text := a.text(0, int(a.g.count), true)
	a.send(kind+".done", at(map[string]any{field: text}))
	if a.g.tool == "" {
		a.send("response.content_part.done", at(map[string]any{"part": part(text)}))
	}
	a.send("response.output_item.done", map[string]any{"output_index": 0, "item": a.item(true)})
	a.send("response."+a.status(), map[string]any{"response": a.object(true)})
}
