package simulated

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

const (
	completionsPath = "/v1/completions"
	chatPath        = "/v1/chat/completions"
)

func user(text string) map[string]any { return map[string]any{"role": "user", "content": text} }

func assistant(text string) map[string]any {
	return map[string]any{"role": "assistant", "content": text}
}

func TestAnswersAreInTheFormOfOpenAI(t *testing.T) {
	a := start(t, "--step=0s", "--model=policy", "--dialect=openai")
	r := a.ask(completionsPath, map[string]any{"model": "policy", "prompt": "Once upon", "max_tokens": 5, "ignore_eos": true, "logprobs": 1})
	c := r.Choices[0]
	if r.Object != "text_completion" || r.Model != "policy" || !strings.HasPrefix(r.ID, "cmpl-") || c.FinishReason != "length" || len(strings.Fields(c.Text)) != 5 {
		t.Errorf("%+v", r)
	}
	if r.Usage.Prompt != 2 || r.Usage.Completion != 5 {
		t.Errorf("usage %+v", r.Usage)
	}
	var logprobs struct {
		Tokens        []string  `json:"tokens"`
		TokenLogprobs []float64 `json:"token_logprobs"`
		TextOffset    []int     `json:"text_offset"`
	}
	if err := json.Unmarshal(c.Logprobs, &logprobs); err != nil || strings.Join(logprobs.Tokens, "") != c.Text || len(logprobs.TokenLogprobs) != 5 || logprobs.TextOffset[4] != 32 {
		t.Errorf("%v: logprobs %s", err, c.Logprobs)
	}
	for _, word := range strings.Fields(c.Text) {
		if !strings.HasPrefix(word, "sim") {
			t.Errorf("the word %q does not say that it is simulated", word)
		}
	}

	r = a.ask(chatPath, map[string]any{"messages": []any{user("Hello")}, "max_completion_tokens": 7, "ignore_eos": true, "n": 3, "logprobs": true})
	texts := map[string]bool{}
	for i, c := range r.Choices {
		if c.Index != i || c.Message.Role != "assistant" || len(strings.Fields(c.Message.Content)) != 7 || !strings.Contains(string(c.Logprobs), `"content":[{"`) {
			t.Errorf("choice %d: %+v", i, c)
		}
		texts[c.Message.Content] = true
	}
	if len(texts) != 3 || r.Object != "chat.completion" || r.Usage.Completion != 21 {
		t.Errorf("%+v", r)
	}
	// It has nothing of other servers.
	if status, _ := a.call("POST", "/sleep", ""); status != http.StatusNotFound {
		t.Errorf("/sleep answers %d", status)
	}
	if list := a.must("GET", "/v1/models", ""); !strings.Contains(list, `"id":"policy"`) {
		t.Error(list)
	}
}

// A stream has the text of the answer that comes at once, in parts, and then its usage.
func TestStreamsAreAnswersInParts(t *testing.T) {
	a := start(t, "--step=2ms")
	for path, request := range map[string]map[string]any{
		completionsPath: {"prompt": "Count", "max_tokens": 40, "min_tokens": 30},
		chatPath:        {"messages": []any{user("Count")}, "max_tokens": 40, "min_tokens": 30, "stream_options": map[string]any{"include_usage": true}},
	} {
		whole := a.ask(path, request)
		parts := a.streamed(path, request)
		text, reason := joined(parts)
		if want := whole.Choices[0].Text + whole.Choices[0].Message.Content; text != want || reason != whole.Choices[0].FinishReason {
			t.Errorf("%s: %q (%s), want %q (%s)", path, text, reason, want, whole.Choices[0].FinishReason)
		}
		if len(parts) < 3 {
			t.Errorf("%s: the answer came in %d parts", path, len(parts))
		}
		last := parts[len(parts)-1]
		if counts := path == chatPath; counts != (last.Usage != nil) || counts && (len(last.Choices) != 0 || last.Usage.Completion != whole.Usage.Completion) {
			t.Errorf("%s: the last part is %+v", path, last)
		}
		if path == chatPath && parts[0].Choices[0].Delta.Role != "assistant" {
			t.Errorf("the first part is %+v", parts[0])
		}
	}
}

// An answer that was broken off goes on with the text that it would have had, at another engine.
func TestAPartialAnswerIsContinuedExactly(t *testing.T) {
	first := start(t, "--step=0s", "--tokens=60", "--seed=7")
	second := start(t, "--step=1us", "--tokens=60", "--seed=7", "--dialect=sglang")
	for _, question := range []string{"Why?", "How far is it from here to there?", "simulated:tokens=33 please", "x"} {
		for _, cut := range []int{1, 5, 9} {
			whole := first.ask(completionsPath, map[string]any{"prompt": question, "max_tokens": 200, "min_tokens": 12, "return_token_ids": true}).Choices[0]
			begun := whole.Text[:cut*pieceMax]
			rest := second.ask(completionsPath, map[string]any{"prompt": question + begun, "max_tokens": 200 - cut, "min_tokens": 12 - cut}).Choices[0]
			if begun+rest.Text != whole.Text || rest.FinishReason != whole.FinishReason {
				t.Errorf("%q, cut after %d: %q (%s), want %q (%s)", question, cut, begun+rest.Text, rest.FinishReason, whole.Text, whole.FinishReason)
			}
			// The same with tokens in place of text.
			tokens := append(ids(question), whole.TokenIDs[:cut]...)
			if !strings.Contains(question, "simulated:") {
				again := second.ask(completionsPath, map[string]any{"prompt": tokens, "max_tokens": 200 - cut, "min_tokens": 12 - cut}).Choices[0]
				if again.Text != rest.Text {
					t.Errorf("%q, cut after %d tokens: %q, want %q", question, cut, again.Text, rest.Text)
				}
			}

			chat := first.ask(chatPath, map[string]any{"messages": []any{user(question)}, "max_tokens": 200, "min_tokens": 12}).Choices[0]
			content := chat.Message.Content
			text, reason := joined(second.streamed(chatPath, map[string]any{
				"messages":   []any{user(question), assistant(content[:cut*pieceMax])},
				"max_tokens": 200 - cut, "min_tokens": 12 - cut, "continue_final_message": true, "add_generation_prompt": false,
			}))
			if content[:cut*pieceMax]+text != content || reason != chat.FinishReason {
				t.Errorf("chat %q, cut after %d: %q (%s), want %q (%s)", question, cut, text, reason, content, chat.FinishReason)
			}
		}
	}
}

func TestAnswersEndAsToldTo(t *testing.T) {
	a := start(t, "--step=0s", "--tokens=20")
	ask := func(prompt string, more map[string]any) (text, reason string) {
		request := map[string]any{"prompt": prompt, "max_tokens": 4000}
		for k, v := range more {
			request[k] = v
		}
		c := a.ask(completionsPath, request).Choices[0]
		return c.Text, c.FinishReason
	}
	if text, reason := ask("a simulated:tokens=123 b", nil); len(strings.Fields(text)) != 122 || reason != "stop" { // " b" is one of the answer
		t.Errorf("%d tokens, %s", len(strings.Fields(text)), reason)
	}
	if text, reason := ask("simulated:tokens=123", map[string]any{"ignore_eos": true}); len(strings.Fields(text)) != 4000 || reason != "length" {
		t.Errorf("%d tokens, %s", len(strings.Fields(text)), reason)
	}
	if text, _ := ask("short simulated:tokens=1", map[string]any{"min_tokens": 9}); len(strings.Fields(text)) != 9 {
		t.Errorf("%d tokens", len(strings.Fields(text)))
	}
	whole, _ := ask("stop simulated:tokens=50", nil)
	stop := whole[20*pieceMax+3 : 21*pieceMax]
	at := strings.Index(whole, stop)
	if text, reason := ask("stop simulated:tokens=50", map[string]any{"stop": []string{"never", stop}}); text != whole[:at] || reason != "stop" {
		t.Errorf("%q (%s), want %q", text, reason, whole[:at])
	}
	// The mean is as told.
	sum := 0
	for i := range 400 {
		text, _ := ask(strings.Repeat("x", i+1), nil)
		sum += len(strings.Fields(text))
	}
	if mean := float64(sum) / 400; mean < 16 || mean > 24 {
		t.Errorf("answers have %.1f tokens on average, want about 20", mean)
	}
}

func TestToolsAreCalledOnDemand(t *testing.T) {
	a := start(t, "--step=0s")
	tools := []any{map[string]any{"type": "function", "function": map[string]any{"name": "search"}}}
	for name, request := range map[string]map[string]any{
		"a directive": {"messages": []any{user("simulated:tool=search simulated:tokens=6")}},
		"required":    {"messages": []any{user("simulated:tokens=6")}, "tools": tools, "tool_choice": "required"},
		"named":       {"messages": []any{user("simulated:tokens=6")}, "tools": tools, "tool_choice": map[string]any{"type": "function", "function": map[string]any{"name": "search"}}},
	} {
		c := a.ask(chatPath, request).Choices[0]
		if c.FinishReason != "tool_calls" || len(c.Message.ToolCalls) != 1 || c.Message.ToolCalls[0].Function.Name != "search" {
			t.Fatalf("%s: %+v", name, c)
		}
		var arguments struct{ Simulated string }
		whole := c.Message.ToolCalls[0].Function.Arguments
		if err := json.Unmarshal([]byte(whole), &arguments); err != nil || len(strings.Fields(arguments.Simulated)) != 6 {
			t.Errorf("%s: %v: %s", name, err, whole)
		}
		if text, reason := joined(a.streamed(chatPath, request)); text != whole || reason != "tool_calls" {
			t.Errorf("%s: streamed %s (%s)", name, text, reason)
		}
	}
	if c := a.ask(chatPath, map[string]any{"messages": []any{user("simulated:tokens=6")}, "tools": tools}).Choices[0]; c.FinishReason != "stop" {
		t.Errorf("a tool is called that is not asked for: %+v", c)
	}
}

// The next turn of a conversation finds the tokens of the one before in the cache; after a reset it
// does not.
func TestTurnsOfAConversationShareAPrefix(t *testing.T) {
	a := start(t, "--step=0s")
	messages := []any{user(strings.Repeat("A long question. ", 50) + "simulated:tokens=300")}
	first := a.ask(chatPath, map[string]any{"messages": messages})
	messages = append(messages, assistant(first.Choices[0].Message.Content), user("Go on. simulated:tokens=3"))
	all := first.Usage.Prompt + first.Usage.Completion
	if second := a.ask(chatPath, map[string]any{"messages": messages}); first.Usage.Details.Cached != 0 || second.Usage.Details.Cached < all-2*blockTokens || second.Usage.Details.Cached > all {
		t.Errorf("%+v, and then %+v", first.Usage, second.Usage)
	}
	a.must("POST", "/reset_prefix_cache", "")
	if third := a.ask(chatPath, map[string]any{"messages": messages}); third.Usage.Details.Cached != 0 {
		t.Errorf("after a reset: %+v", third.Usage)
	}
}

func TestRequestsThatCannotBeServed(t *testing.T) {
	a := start(t, "--step=0s", "--context-tokens=100", "--model=policy")
	for name, c := range map[string]struct {
		path, body string
		status     int
		says       string
	}{
		"no JSON":           {completionsPath, "{", 400, "not the JSON"},
		"another model":     {completionsPath, `{"model":"judge"}`, 404, `serves \"policy\"`},
		"too long":          {completionsPath, `{"prompt":"a","max_tokens":100}`, 400, "maximum context length is 100"},
		"a prompt too long": {chatPath, `{"messages":[{"role":"user","content":"` + strings.Repeat(" a", 101) + `"}]}`, 400, "maximum context length"},
		"no messages":       {chatPath, `{}`, 400, "messages is empty"},
		"no final message":  {chatPath, `{"messages":[{"role":"user","content":"a"}],"continue_final_message":true}`, 400, "last message of the assistant"},
		"too many answers":  {chatPath, `{"messages":[{"role":"user"}],"n":1000}`, 400, "use 1 to 256"},
		"a strange prompt":  {completionsPath, `{"prompt":{"a":1}}`, 400, "neither a text nor tokens"},
	} {
		if status, text := a.call("POST", c.path, c.body); status != c.status || !strings.Contains(text, c.says) || !strings.Contains(text, "simulated") {
			t.Errorf("%s: %d: %s", name, status, text)
		}
	}
}
