package gateway

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// What the gateway sends on is what an engine reads the same way: all members but those that it
// sets are as they were.
func FuzzBody(f *testing.F) {
	for _, s := range []string{
		`{}`, ` { } `, `{"model":"m","stream":true}`, `{"messages":[{"role":"user","content":"\"}]"}],"n":1}`,
		`{"stream_options":{"include_usage":false,"x":1},"stream":true}`, `{"mod\u0065l":"m"}`, `{"a":[{}],"prompt":"x"}`,
		`{"prompt":["x"],"max_tokens":7}`, `{"messages":[],"continue_final_message":true}`, `{"a":"\\"}`, `{"a":1,}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		b, err := parseBody(raw, chat)
		var want map[string]json.RawMessage
		if err != nil || json.Unmarshal(raw, &want) != nil {
			return
		}
		ch := changes{b: b}
		ch.set(fModel, []byte(`"policy"`))
		ch.set(fPriority, []byte("-3"))
		ch.set(fStreamOptions, b.streamOptions(true))
		edits := ch.done()
		out := edited(nil, raw, edits)
		if len(out) != editedLen(raw, edits) {
			t.Fatalf("%d bytes, announced as %d", len(out), editedLen(raw, edits))
		}
		var got map[string]json.RawMessage
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatalf("%q became %q: %v", raw, out, err)
		}
		if string(got["model"]) != `"policy"` || string(got["priority"]) != "-3" || !bytes.Contains(got["stream_options"], []byte(`"include_usage":true`)) {
			t.Fatalf("%q became %q", raw, out)
		}
		for _, name := range []string{"model", "priority", "stream_options"} {
			delete(got, name)
			delete(want, name)
		}
		if len(got) != len(want) {
			t.Fatalf("%q became %q", raw, out)
		}
		for name, v := range want {
			if !bytes.Equal(got[name], v) {
				t.Fatalf("%q: %s became %s", name, v, got[name])
			}
		}
	})
}

// FuzzChunk: nothing that an engine sends makes the gateway panic, and text that is valid JSON is
// found as a decoder finds it.
func FuzzChunk(f *testing.F) {
	f.Add([]byte(`{"id":"x","choices":[{"index":0,"delta":{"role":"assistant","content":"a\"b"},"finish_reason":null}],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}`))
	f.Add([]byte(`{"choices":[{"text":"x"},{"text":"y"}]}`))
	f.Add([]byte(`{"error":{"code":500}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if bytes.ContainsAny(data, "\r\n") {
			return
		}
		ev := append(append([]byte("data: "), data...), "\n\n"...)
		b, err := parseBody([]byte(`{"messages":[],"stream":true}`), chat)
		if err != nil {
			t.Fatal(err)
		}
		g := generation{b: b}
		g.at(vLLM)
		g.joined, g.firstID, g.firstTime = true, []byte(`"first"`), []byte("1")
		out, err := g.add(nil, ev)
		if err != nil || len(out) == 0 || !json.Valid(data) || data[0] != '{' {
			return
		}
		at, ok := payload(out)
		if !ok || !json.Valid(at.of(out)) {
			t.Fatalf("%q became %q", ev, out)
		}
	})
}

// FuzzEvents: however a stream is cut, its events are the same, and all that is whole comes out.
func FuzzEvents(f *testing.F) {
	f.Add("data: {}\n\ndata: [DONE]\n\n")
	f.Add(": ping\r\n\r\nevent: x\r\ndata: 1\r\ndata: 2\r\n\r\ndata: cut")
	f.Add("\n\n\n")
	f.Fuzz(func(t *testing.T, stream string) {
		read := func(r io.Reader) (list []string) {
			e := events{r: r}
			for {
				for ev, ok := e.next(); ok; ev, ok = e.next() {
					list = append(list, string(ev))
					payload(ev)
				}
				if e.fill() != nil {
					return list
				}
			}
		}
		whole, bytewise := read(strings.NewReader(stream)), read(iotest.OneByteReader(strings.NewReader(stream)))
		if strings.Join(whole, "|") != strings.Join(bytewise, "|") {
			t.Fatalf("%q and %q", whole, bytewise)
		}
		all := strings.Join(whole, "")
		rest, ok := strings.CutPrefix(stream, all)
		if !ok || strings.Contains(rest, "\n\n") || strings.HasPrefix(rest, "\n") {
			t.Fatalf("%q leaves %q", whole, rest)
		}
	})
}

// Where the text goes when a request goes on.
func TestEditsOfPrompts(t *testing.T) {
	for _, c := range []struct {
		end                  endpoint
		body, text, ids, out string
	}{
		{completions, `{"prompt":"a"}`, `b\n`, "", `{"prompt":"ab\n"}`},
		{completions, `{"prompt": [ "a" ]}`, "b", "", `{"prompt": [ "ab" ]}`},
		{completions, `{"prompt":[1,2]}`, "b", "3,4", `{"prompt":[1,2,3,4]}`},
		{completions, `{"prompt":"a","max_tokens":9}`, "b", "", `{"prompt":"ab","max_tokens":7}`},
		{chat, `{"messages":[{"role":"user","content":"a"}]}`, "b", "",
			`{"continue_final_message":true,"add_generation_prompt":false,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}`},
		{chat, `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"x"}],"continue_final_message":true,"add_generation_prompt":false}`, "b", "",
			`{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"xb"}],"continue_final_message":true,"add_generation_prompt":false}`},
	} {
		b, err := parseBody([]byte(c.body), c.end)
		if err != nil {
			t.Fatal(err)
		}
		g := generation{b: b, began: true, text: []byte(c.text), ids: []byte(c.ids), idsOfAll: c.ids != "", before: 2}
		g.at(vLLM)
		if !g.continuable() {
			t.Errorf("%s cannot go on", c.body)
			continue
		}
		ch := changes{b: b}
		g.resume(&ch)
		if out := string(edited(nil, b.raw, ch.done())); out != c.out {
			t.Errorf("%s became\n%s, want\n%s", c.body, out, c.out)
		}
	}
}

// A worker that fails when only the end is missing: the gateway sends it.
func TestConclusions(t *testing.T) {
	b, err := parseBody([]byte(`{"messages":[],"stream":true,"stream_options":{"include_usage":true}}`), chat)
	if err != nil {
		t.Fatal(err)
	}
	g := generation{b: b, began: true, firstID: []byte(`"a"`), firstTime: []byte("3"), model: []byte(`"m"`), prompt: 2, before: 3, now: 4}
	j := join(t, string(g.conclusion(nil)))
	if j.finish != "length" || j.usage != 7 || j.done != 1 || !j.ids["a 3"] {
		t.Errorf("%+v", j)
	}
	g.finish = []byte("stop")
	if j := join(t, string(g.conclusion(nil))); j.finish != "" || j.done != 1 {
		t.Errorf("%+v", j)
	}
}
