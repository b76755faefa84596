package gateway

import (
	"fmt"
	"strings"
	"testing"
)

// textless is a generation and what the client has of it, as the tokens of its events.
type textless struct {
	generation
	t   *testing.T
	got string
}

func newTextless(t *testing.T, end endpoint, body string) *textless {
	b, err := parseBody([]byte(body), end)
	if err != nil {
		t.Fatal(err)
	}
	g := &textless{generation: generation{b: b}, t: t}
	g.at(vLLM)
	return g
}

// say adds an event with a choice.
func (g *textless) say(choice string) {
	out, err := g.add(nil, []byte(`data: {"id":"x","choices":[{"index":0,`+choice+`}]}`+"\n\n"))
	if err != nil {
		g.t.Fatal(err)
	}
	g.got += string(out)
}

func (g *textless) token(id int, text string) {
	g.say(fmt.Sprintf(`"text":%q,"token_ids":[%d]`, text, id))
}

// tokens are the IDs that the client has.
func (g *textless) tokens() string {
	var ids []string
	for _, ev := range strings.Split(g.got, "\n\n") {
		if _, after, ok := strings.Cut(ev, `"token_ids":[`); ok {
			id, _, _ := strings.Cut(after, "]")
			ids = append(ids, id)
		}
	}
	return strings.Join(ids, " ")
}

// A token whose text has not come is generated again by the next worker, so the client has it once.
func TestNoTokenIsDeliveredTwice(t *testing.T) {
	g := newTextless(t, completions, `{"prompt":"a","stream":true,"return_token_ids":true}`)
	g.token(1, "")
	g.token(2, "b")
	g.token(3, "c")
	g.token(4, "")
	if got := g.tokens(); got != "1 2 3" {
		t.Errorf("the client has the tokens %s", got)
	}
	if !g.continuable() {
		t.Error("it cannot go on")
	}
	g.workerEnds()
	g.token(4, "")
	g.token(5, "d")
	g.token(6, "")
	g.say(`"text":"","finish_reason":"stop"`)
	if got := g.tokens(); got != "1 2 3 4 5 6" || !strings.HasSuffix(g.got, `"finish_reason":"stop"}]}`+"\n\n") {
		t.Errorf("the client has the tokens %s: %s", got, g.got)
	}
}

// Log-probabilities without text tell of tokens, too.
func TestNoLogprobIsDeliveredTwice(t *testing.T) {
	g := newTextless(t, chat, `{"messages":[],"stream":true,"logprobs":true}`)
	g.say(`"delta":{"role":"assistant","content":""},"logprobs":null`)
	g.say(`"delta":{"content":"b"},"logprobs":{"content":[{"token":"b","logprob":-1}]}`)
	before := g.got
	g.say(`"delta":{"content":""},"logprobs":{"content":[{"token":"c","logprob":-2}]}`)
	if g.got != before || !g.continuable() {
		t.Errorf("the client has %s; it can go on: %v", g.got, g.continuable())
	}
	g.workerEnds()
	g.say(`"delta":{"content":""},"logprobs":{"content":[{"token":"c","logprob":-3}]}`)
	g.say(`"delta":{"content":"cd"},"logprobs":{"content":[{"token":"d","logprob":-4}]}`)
	if strings.Count(g.got, "logprob") != 1+3*2 || strings.Contains(g.got, "-2") {
		t.Errorf("the client has %s", g.got)
	}
}

// An engine that sends no text at all is not waited for, and nothing goes on behind its tokens.
func TestTokensThatNeverHaveText(t *testing.T) {
	g := newTextless(t, completions, `{"prompt":"a","stream":true,"return_token_ids":true}`)
	for i := range lateMax + 3 {
		g.token(i, "")
	}
	if got := len(strings.Fields(g.tokens())); got != lateMax+3 || g.continuable() {
		t.Errorf("the client has %d tokens; it can go on: %v", got, g.continuable())
	}
	g.token(99, "b")
	if !g.continuable() {
		t.Error("it cannot go on behind the text")
	}
}

// With stop strings, tokens are told long before their text.
func TestTokensBeforeAStopString(t *testing.T) {
	g := newTextless(t, completions, `{"prompt":"a","stream":true,"return_token_ids":true,"stop":["xyz"]}`)
	g.token(1, "b")
	if g.token(2, ""); g.tokens() != "1 2" || g.continuable() {
		t.Errorf("the client has the tokens %s; it can go on: %v", g.tokens(), g.continuable())
	}
}

// A request may say that it has no stop strings.
func TestNoStopStrings(t *testing.T) {
	for stop, want := range map[string]bool{`null`: true, `""`: true, `[]`: true, `[ ]`: true, `"x"`: false, `["x"]`: false, `[ "" ]`: false} {
		for end, body := range map[endpoint]string{
			completions: `{"prompt":[1],"return_token_ids":true,"stop":` + stop + `}`,
			chat:        `{"messages":[],"logprobs":true,"stop":` + stop + `}`,
		} {
			if g := newTextless(t, end, body); g.fixed != want {
				t.Errorf("%s: it can go on: %v", body, g.fixed)
			}
		}
	}
}
