package settle

import (
	"strings"
	"testing"
)

func TestUnits(t *testing.T) {
	const openai = `{"id":"x","usage":{"prompt_tokens":10,"completion_tokens":32,"total_tokens":42}}`
	const anthropic = `{"content":[],"usage":{"input_tokens":7,"output_tokens":5}}`
	chunks := "data: {\"choices\":[],\"usage\":null}\n\ndata: {\"usage\":{\"total_tokens\":9}}\n\ndata: [DONE]\n\n"
	messages := "event: message_start\r\ndata: {\"message\":{\"usage\":{\"input_tokens\":25,\"output_tokens\":1}}}\r\n\r\n" +
		"event: message_delta\ndata: {\"usage\":{\"output_tokens\":4}}\n\nevent: message_delta\ndata: {\"usage\":{\"output_tokens\":15}}\n\n"
	for _, c := range []struct {
		name, rule, kind, body string
		units                  uint64
		said                   bool
	}{
		{"OpenAI", "usage", "application/json", openai, 42, true},
		{"Anthropic", "usage", "application/json; charset=utf-8", anthropic, 12, true},
		{"completion of OpenAI without a total", "usage", "", `{"usage":{"prompt_tokens":1,"completion_tokens":2}}`, 3, true},
		{"OpenAI in events", "usage", "text/event-stream", chunks, 9, true},
		{"responses of OpenAI in events", "usage", "text/event-stream", `data: {"response":{"usage":{"total_tokens":8}}}`, 8, true},
		{"Anthropic in events", "usage", "text/event-stream; charset=utf-8", messages, 40, true},
		{"a path", "usage.total_tokens", "", openai, 42, true},
		{"a sum", "usage.prompt_tokens+usage.completion_tokens", "", openai, 42, true},
		{"a sum of which one is missing", "usage.prompt_tokens+usage.none", "", openai, 0, false},
		{"a list", "results.1.cost", "", `{"results":[{"cost":1},{"cost":3}]}`, 3, true},
		{"beyond a list", "results.2", "", `{"results":[1,2]}`, 0, false},
		{"dollars to cents", "usage.cost*100", "", `{"usage":{"cost":0.07}}`, 7, true},
		{"rounded up", "usage.cost*100", "", `{"usage":{"cost":0.0701}}`, 8, true},
		{"nothing", "n", "", `{"n":0}`, 0, true},
		{"more than there can be", "n", "", `{"n":1e300}`, UnitsMax, true},
		{"too large a number", "n", "", `{"n":1e400}`, 0, false},
		{"negative", "n", "", `{"n":-1}`, 0, false},
		{"text", "n", "", `{"n":"12"}`, 0, false},
		{"an object", "usage.x", "", `{"usage":{"x":{}}}`, 0, false},
		{"no JSON", "usage", "", `<html>`, 0, false},
		{"two documents", "n", "", `{"n":1}{"n":2}`, 0, false},
		{"cut off", "n", "", `{"n":1,`, 0, false},
		{"deep", "n", "", strings.Repeat("[", 100_000), 0, false},
	} {
		r, err := Parse(c.rule)
		if err != nil {
			t.Fatal(err)
		}
		if units, said := r.Units(c.kind, []byte(c.body)); units != c.units || said != c.said {
			t.Errorf("%s: %d units (%v), want %d (%v)", c.name, units, said, c.units, c.said)
		}
	}
}

func TestRulesThatAreRefused(t *testing.T) {
	for _, text := range []string{
		"", ".", "usage.", "a..b", "a+", "+a", "a b", "a\nb", "a*", "a*0", "a*-1", "a*x", "a*nan", "a*inf", "a*2e9", "*2",
		strings.Repeat("a", TextBytesMax+1),
	} {
		if r, err := Parse(text); err == nil {
			t.Errorf("%q is read as %v", text, r)
		}
	}
}

func FuzzUnits(f *testing.F) {
	f.Add("usage", "text/event-stream", "data: {\"usage\":{\"total_tokens\":9}}\n")
	f.Add("a.0*3", "", `{"a":[1]}`)
	f.Fuzz(func(t *testing.T, rule, kind, body string) {
		r, err := Parse(rule)
		if err != nil {
			return
		}
		if units, said := r.Units(kind, []byte(body)); units > UnitsMax || !said && units > 0 {
			t.Errorf("%d units, said %v", units, said)
		}
	})
}
