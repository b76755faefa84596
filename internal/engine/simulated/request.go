package simulated

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"rota/internal/engine/model"
)

const (
	// bodyMax bounds the body of a request, in bytes; choicesMax the answers that it asks for.
	bodyMax, choicesMax = 64 << 20, 256
	// completionTokens is max_tokens of a completion that says none, as in OpenAI's API.
	completionTokens = 16
)

// body is what is read of a request: OpenAI's fields, and those of vLLM and SGLang beside them.
type body struct {
	Model     string          `json:"model"`
	Prompt    json.RawMessage `json:"prompt"`
	Messages  []message       `json:"messages"`
	MaxTokens *int64          `json:"max_tokens"`
	// MaxCompletionTokens is the newer name of max_tokens in chats.
	MaxCompletionTokens *int64          `json:"max_completion_tokens"`
	MinTokens           int64           `json:"min_tokens"`
	IgnoreEOS           bool            `json:"ignore_eos"`
	N                   *int            `json:"n"`
	Seed                *int64          `json:"seed"`
	Stop                json.RawMessage `json:"stop"`
	Echo                bool            `json:"echo"`
	Stream              bool            `json:"stream"`
	StreamOptions       struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	Logprobs       json.RawMessage `json:"logprobs"`
	ReturnTokenIDs bool            `json:"return_token_ids"`
	Priority       int64           `json:"priority"`
	// RequestID is vLLM's name of a request, RID is SGLang's.
	RequestID            string          `json:"request_id"`
	RID                  string          `json:"rid"`
	ContinueFinalMessage bool            `json:"continue_final_message"`
	Tools                []tool          `json:"tools"`
	ToolChoice           json.RawMessage `json:"tool_choice"`
	// Input, Instructions and MaxOutputTokens are those of /v1/responses.
	Input           json.RawMessage `json:"input"`
	Instructions    string          `json:"instructions"`
	MaxOutputTokens *int64          `json:"max_output_tokens"`
}

type message struct {
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	ToolCalls json.RawMessage `json:"tool_calls"`
}

// tool is named as in a chat, or as in /v1/responses.
type tool struct {
	Name     string `json:"name"`
	Function struct {
		Name string `json:"name"`
	} `json:"function"`
}

func (t tool) name() string { return cmp.Or(t.Function.Name, t.Name) }

// prompt is one prompt of a request.
type prompt struct {
	tokens []uint32
	chain  chain
	// exact is the length of the answer that the prompt asks for, less what is in the prompt of
	// it already; tool is the name of the tool that it is to call.
	exact int64
	tool  string
}

// errRequest means that a request makes no sense; the text says why.
var errRequest = errors.New("simulated")

// decode reads a request. It answers if it cannot be served.
func (e *engine) decode(w http.ResponseWriter, r *http.Request) (b *body, ok bool) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyMax))
	b = &body{}
	if err == nil && len(raw) > 0 { // an empty body asks for nothing in particular
		err = json.Unmarshal(raw, b)
	}
	switch {
	case err != nil:
		refuse(w, http.StatusBadRequest, "simulated: the body is not the JSON of a request: "+err.Error())
	case b.Model != "" && b.Model != e.o.Model:
		refuse(w, http.StatusNotFound, fmt.Sprintf("simulated: the model %q does not exist; this engine serves %q", b.Model, e.o.Model))
	case b.N != nil && (*b.N < 1 || *b.N > choicesMax):
		refuse(w, http.StatusBadRequest, fmt.Sprintf("simulated: n is %d; use 1 to %d", *b.N, choicesMax))
	case b.Echo:
		refuse(w, http.StatusBadRequest, "simulated: echo is not supported")
	case !e.able():
		refuse(w, http.StatusServiceUnavailable, "simulated: asleep, or loading")
	default:
		return b, true
	}
	return nil, false
}

// name is what a request is called, by its client or by count.
func (e *engine) name(b *body, r *http.Request) string {
	return cmp.Or(b.RequestID, b.RID, r.Header.Get("X-Request-Id"), fmt.Sprintf("simulated-%x-%d", e.began.UnixNano(), e.named.Add(1)))
}

// rank is the priority for the model, where the highest goes first.
func (e *engine) rank(b *body) int64 {
	switch e.o.Dialect {
	case VLLM:
		return -b.Priority
	case SGLang:
		return b.Priority
	}
	return 0
}

// directive is what a prompt may say to a simulated engine: how many tokens it is to answer, and
// which tool it is to call.
var directive = regexp.MustCompile(`simulated:(tokens|tool)=([A-Za-z0-9_.-]+)`)

// directed reads the directives of a text. written is how many tokens of the answer are there
// already; negative: those after the last directive.
func (p *prompt) directed(text string, written int64) {
	for _, at := range directive.FindAllStringSubmatchIndex(text, -1) {
		value := text[at[4]:at[5]]
		if text[at[2]:at[3]] == "tool" {
			p.tool = value
			continue
		}
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < 1 {
			continue
		}
		done := written
		if done < 0 {
			done = int64(len(ids(text[at[1]:])))
		}
		p.exact = max(n-done, 1)
	}
}

func (p *prompt) finish() prompt {
	for _, token := range p.tokens {
		p.chain = p.chain.with(token)
	}
	return *p
}

// prompts are those of a completion: a text, tokens, or lists of either. None is an empty text.
func (b *body) prompts() (all []prompt, err error) {
	texts, lists, err := b.promptLists()
	if err != nil {
		return nil, err
	}
	for _, text := range texts {
		p := prompt{tokens: ids(text)}
		p.directed(text, -1)
		all = append(all, p.finish())
	}
	for _, tokens := range lists {
		p := prompt{tokens: tokens}
		all = append(all, p.finish())
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: the list of prompts is empty", errRequest)
	}
	return all, nil
}

func (b *body) promptLists() (texts []string, lists [][]uint32, err error) {
	var text string
	if len(b.Prompt) == 0 || json.Unmarshal(b.Prompt, &text) == nil {
		return []string{text}, nil, nil
	}
	if json.Unmarshal(b.Prompt, &texts) == nil {
		return texts, nil, nil
	}
	var tokens []uint32
	if json.Unmarshal(b.Prompt, &tokens) == nil {
		return nil, [][]uint32{tokens}, nil
	}
	if json.Unmarshal(b.Prompt, &lists) == nil {
		return nil, lists, nil
	}
	return nil, nil, fmt.Errorf("%w: the prompt is neither a text nor tokens, nor a list of either", errRequest)
}

// conversation is the prompt of a chat, as a template makes it of the messages.
func (b *body) conversation() (p prompt, err error) {
	if len(b.Messages) == 0 {
		return p, fmt.Errorf("%w: messages is empty", errRequest)
	}
	var text strings.Builder
	for i, m := range b.Messages {
		content, err := m.text()
		if err != nil {
			return p, err
		}
		last := i == len(b.Messages)-1
		fmt.Fprintf(&text, "<|%s|>%s", m.Role, content)
		if last && b.ContinueFinalMessage {
			if m.Role != "assistant" {
				return p, fmt.Errorf("%w: continue_final_message needs a last message of the assistant", errRequest)
			}
			if i > 0 {
				before, _ := b.Messages[i-1].text()
				p.directed(before, int64(len(ids(content))))
			}
			p.tokens = ids(text.String())
			return p.finish(), nil
		}
		if len(m.ToolCalls) > 0 {
			text.Write(m.ToolCalls)
		}
		text.WriteString("<|end|>")
		if last {
			p.directed(content, 0)
		}
	}
	text.WriteString("<|assistant|>")
	p.tokens = ids(text.String())
	p.tool = b.toolFor(p.tool)
	return p.finish(), nil
}

// text is the content of a message: a text, or parts.
func (m message) text() (text string, err error) {
	if len(m.Content) == 0 || string(m.Content) == "null" || json.Unmarshal(m.Content, &text) == nil {
		return text, nil
	}
	var parts []struct{ Text string }
	if err := json.Unmarshal(m.Content, &parts); err != nil {
		return "", fmt.Errorf("%w: the content of a message is neither a text nor a list of parts", errRequest)
	}
	for _, p := range parts {
		text += p.Text
	}
	return text, nil
}

// toolFor is the tool that an answer calls: the one that a directive or tool_choice names, or the
// first one if any is required.
func (b *body) toolFor(directed string) string {
	var choice string
	var named tool
	switch {
	case directed != "" || len(b.Tools) == 0:
		return directed
	case json.Unmarshal(b.ToolChoice, &choice) == nil && choice == "required":
		return b.Tools[0].name()
	case json.Unmarshal(b.ToolChoice, &named) == nil:
		return named.name()
	}
	return ""
}

// stops are the texts that end an answer.
func (b *body) stops() (stops []string) {
	var one string
	if json.Unmarshal(b.Stop, &one) == nil && one != "" {
		return []string{one}
	}
	_ = json.Unmarshal(b.Stop, &stops)
	return stops
}

// most is max_tokens; 0: it says none.
func (b *body) most() int64 {
	for _, n := range []*int64{b.MaxCompletionTokens, b.MaxTokens, b.MaxOutputTokens} {
		if n != nil {
			return *n
		}
	}
	return 0
}

// plan writes the answer to a prompt, which then is generated token by token.
func (e *engine) plan(b *body, p prompt, choice int, otherwise int64) (*generation, error) {
	room := e.contextTokens() - max(int64(len(p.tokens)), 1)
	most := cmp.Or(b.most(), otherwise, room)
	if most < 1 || most > room {
		return nil, fmt.Errorf("%w: the model's maximum context length is %d tokens; the prompt has %d, and max_tokens is %d: shorten one of them",
			errRequest, e.contextTokens(), len(p.tokens), most)
	}
	seed := e.o.Seed + uint64(choice)<<32
	if b.Seed != nil {
		seed += uint64(*b.Seed) * 0x9e3779b97f4a7c15
	}
	l := limits{least: b.MinTokens, most: most, mean: e.o.Tokens, exact: p.exact, ignoreEnd: b.IgnoreEOS}
	g := &generation{prompt: p.tokens, chain: p.chain, seed: seed, tool: p.tool}
	g.tokens, g.complete = write(p.chain, seed, l)
	g.stop(b.stops())
	return g, nil
}

// stop ends an answer before the first of some texts in it.
func (g *generation) stop(stops []string) {
	whole := g.words(0, len(g.tokens))
	for _, s := range stops {
		if at := strings.Index(whole, s); s != "" && at >= 0 {
			whole = whole[:at]
			g.stopped = s
		}
	}
	if g.stopped != "" {
		last := (len(whole) + len(g.stopped) + pieceMax - 1) / pieceMax
		g.tokens, g.complete, g.cut = g.tokens[:min(last, len(g.tokens))], true, len(whole)
	}
}

// statusOf is the status of an error.
func statusOf(err error) int {
	if errors.Is(err, errRequest) || errors.Is(err, model.ErrTooLong) || errors.Is(err, model.ErrInvalid) {
		return http.StatusBadRequest
	}
	return http.StatusInternalServerError
}
