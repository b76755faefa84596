package simulated

import "strings"

// generation is one text that is being generated. Its driver's lock guards what changes.
type generation struct {
	id uint64
	// name is what clients know the request by, and answer what the answer calls itself.
	name, answer   string
	prompt, tokens []uint32
	chain          chain
	seed           uint64
	// complete: the text ends by itself, and not by a limit. stopped is the text that ended it;
	// then cut is how long it is in bytes.
	complete bool
	stopped  string
	cut      int
	// tool is the name of the tool that it calls; its text is in the arguments then.
	tool string
	// watched: it is told of each token, as far as tick allows.
	watched bool
	known   *known

	// count is how many of the tokens are generated. cached is how many of the prompt were in
	// the cache.
	count, cached int64
	ended         bool
	// aborted: it ended before its end.
	aborted bool
	// notify has room for one: something has changed. The answers to one request share it.
	notify chan struct{}
}

// named reports whether a client means it.
func (g *generation) named(name string) bool { return name == g.name || name == g.answer }

// reason is OpenAI's finish_reason of what has ended.
func (g *generation) reason() string {
	switch {
	case g.aborted:
		return "abort"
	case g.complete && g.tool != "":
		return "tool_calls"
	case g.complete:
		return "stop"
	}
	return "length"
}

// words is the text of some of its tokens.
func (g *generation) words(from, to int) string {
	var text strings.Builder
	for _, token := range g.tokens[from:to] {
		text.WriteString(word(token))
	}
	if g.stopped != "" {
		most := max(g.cut-from*pieceMax, 0)
		return text.String()[:min(most, text.Len())]
	}
	return text.String()
}

// logprobs are what a model may have thought of some of its tokens.
func (g *generation) logprobs(from, to int) (all []float64) {
	c := g.chain
	for i, token := range g.tokens[:to] {
		if i >= from {
			all = append(all, c.logprob(g.seed))
		}
		c = c.with(token)
	}
	return all
}
