package simulated

import "rota/internal/engine/model"

const (
	// blockTokens is the unit in which prefixes are recognised, as vLLM's block size.
	blockTokens = 16
	// blocksMax bounds what is remembered of texts: then the oldest half is forgotten, which
	// costs hits in the cache.
	blocksMax = 1 << 20
)

// prefixes finds out which text a prompt continues. The model knows texts by numbers only.
type prefixes struct {
	// recent and older know which text a prefix is of, by the hash of its blocks.
	recent, older map[chain]*known
	last          uint64
}

// known is a text that was seen.
type known struct {
	key uint64
	// tokens is its length once its generation has ended; before, 0.
	tokens int64
}

func newPrefixes() *prefixes { return &prefixes{recent: map[chain]*known{}} }

// find fills in what a request's prompt continues, and remembers the prompt. A prompt that
// continues the whole of a text takes its place. One that branches off becomes a text of its own.
func (p *prefixes) find(prompt []uint32, r *model.Request) *known {
	var match int64
	var of *known
	c := chain(0)
	for i, token := range prompt {
		if c = c.with(token); (i+1)%blockTokens != 0 {
			continue
		}
		text := p.get(c)
		if text == nil {
			break
		}
		match, of = int64(i+1), text
	}
	if of != nil && of.tokens > 0 && match >= of.tokens/blockTokens*blockTokens {
		of.tokens = 0
		r.Key, r.Match = of.key, match
	} else {
		p.last++
		r.Key = p.last
		if of != nil {
			r.Parent, r.ParentTokens = of.key, match
		}
		of = &known{key: r.Key}
	}
	p.add(prompt, of)
	return of
}

// ended remembers a text whose generation has ended.
func (p *prefixes) ended(tokens []uint32, text *known) {
	text.tokens = int64(len(tokens))
	p.add(tokens, text)
}

func (p *prefixes) get(c chain) *known {
	if text := p.recent[c]; text != nil {
		return text
	}
	return p.older[c]
}

// add remembers the blocks of a text.
func (p *prefixes) add(tokens []uint32, text *known) {
	c := chain(0)
	for i, token := range tokens {
		if c = c.with(token); (i+1)%blockTokens == 0 {
			p.recent[c] = text
		}
	}
	if len(p.recent) > blocksMax/2 {
		p.recent, p.older = map[chain]*known{}, p.recent
	}
}
