package simulated

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// told is an event of /v1/responses, or a whole answer in its field Response.
type told struct {
	Type     string `json:"type"`
	Sequence int    `json:"sequence_number"`
	Delta    string `json:"delta"`
	Response struct {
		Status string `json:"status"`
		Output []struct {
			Type      string                        `json:"type"`
			Name      string                        `json:"name"`
			Arguments string                        `json:"arguments"`
			Content   []struct{ Type, Text string } `json:"content"`
		} `json:"output"`
		Usage struct {
			Input  int64 `json:"input_tokens"`
			Output int64 `json:"output_tokens"`
		} `json:"usage"`
	} `json:"response"`
}

// text is that of the message, or the arguments of the call.
func (d told) text() (text string) {
	for _, item := range d.Response.Output {
		text += item.Arguments
		for _, c := range item.Content {
			text += c.Text
		}
	}
	return text
}

// The parts of a response are the response that comes at once, and its events are in order.
func TestResponsesAreAnsweredInParts(t *testing.T) {
	a := start(t, "--step=2ms")
	for name, c := range map[string]struct{ request, status, item string }{
		"a text":            {`"input":"Count","max_output_tokens":20,"ignore_eos":true`, "incomplete", "message"},
		"messages":          {`"instructions":"Be brief.","input":[{"role":"user","content":[{"type":"input_text","text":"Go simulated:tokens=20"}]}]`, "completed", "message"},
		"a tool":            {`"input":"Look. simulated:tokens=20","tools":[{"type":"function","name":"look"}],"tool_choice":"required"`, "completed", "function_call"},
		"a tool has spoken": {`"input":[{"role":"user","content":"x"},{"type":"function_call","name":"look","arguments":"{}","call_id":"1"},{"type":"function_call_output","call_id":"1","output":"seen simulated:tokens=20"}]`, "completed", "message"},
	} {
		var whole told
		if err := json.Unmarshal([]byte(a.must("POST", "/v1/responses", "{"+c.request+"}")), &whole.Response); err != nil {
			t.Fatal(err)
		}
		stream := a.must("POST", "/v1/responses", `{"stream":true,`+c.request+"}")
		var text string
		var last told
		for i, event := range strings.Split(strings.TrimSpace(stream), "\n\n") {
			kind, data, ok := strings.Cut(event, "\ndata: ")
			last = told{}
			if err := json.Unmarshal([]byte(data), &last); err != nil || !ok || kind != "event: "+last.Type || last.Sequence != i {
				t.Fatalf("%s: event %d is %q: %v", name, i, event, err)
			}
			text += last.Delta
		}
		if last.Type != "response."+c.status || last.text() != text || whole.text() != text || whole.Response.Output[0].Type != c.item {
			t.Errorf("%s: %q, and at once %+v: %+v", name, text, whole.Response, last)
		}
		if last.Response.Usage.Output != 20 || last.Response.Usage != whole.Response.Usage {
			t.Errorf("%s: usage %+v, and at once %+v", name, last.Response.Usage, whole.Response.Usage)
		}
		if c.item == "function_call" && (!json.Valid([]byte(text)) || whole.Response.Output[0].Name != "look") {
			t.Errorf("%s: %+v", name, whole.Response)
		}
	}
	if status, text := a.call("POST", "/v1/responses", `{"input":[{"type":"image_generation_call"}]}`); status != http.StatusBadRequest {
		t.Errorf("%d: %s", status, text)
	}
}
