package simulated

import "math/bits"

// A simulated model writes words of its vocabulary, each of which is one token: " sim" and two
// syllables. The next token, and whether the text ends, is a function of the tokens before and of
// the seed. So a text that is given back as the end of a prompt is continued exactly as it would
// have gone on, by any engine with the same seed.
const (
	// vocabulary is how many words there are; their identifiers begin at firstWord.
	vocabulary, firstWord = 1024, 1000
	// otherWord is where the identifiers of all other tokens begin.
	otherWord, others = 10_000, 140_000
	// pieceMax is how many bytes a token has at most.
	pieceMax = 8
)

var consonants, vowels = "bdfgklmn", "aeio"

// word is the text of a token of the vocabulary.
func word(id uint32) string {
	i := id - firstWord
	a, b := i%32, i/32
	return string([]byte{' ', 's', 'i', 'm', consonants[a%8], vowels[a/8], consonants[b%8], vowels[b/8]})
}

// ids are the tokens of a text. A space begins a token, so that the tokens of two texts are those
// of one if the second one begins with a space, as words do.
func ids(text string) (tokens []uint32) {
	for len(text) > 0 {
		n := 1
		for n < len(text) && n < pieceMax && text[n] != ' ' {
			n++
		}
		tokens = append(tokens, id(text[:n]))
		text = text[n:]
	}
	return tokens
}

// id is the identifier of a token.
func id(piece string) uint32 {
	if len(piece) == pieceMax && piece[:4] == " sim" {
		a, okA := syllable(piece[4:6])
		b, okB := syllable(piece[6:8])
		if okA && okB {
			return firstWord + a + 32*b
		}
	}
	h := chain(0)
	for i := range len(piece) {
		h = h.with(uint32(piece[i]))
	}
	return otherWord + uint32(uint64(h)%others)
}

func syllable(text string) (n uint32, ok bool) {
	c, v := -1, -1
	for i := range consonants {
		if consonants[i] == text[0] {
			c = i
		}
	}
	for i := range vowels {
		if vowels[i] == text[1] {
			v = i
		}
	}
	return uint32(c + 8*v), c >= 0 && v >= 0
}

// chain is a hash of a list of tokens.
type chain uint64

func (c chain) with(token uint32) chain {
	hi, lo := bits.Mul64(uint64(c)^0x9e3779b97f4a7c15, uint64(token)*0xff51afd7ed558ccd+0xc4ceb9fe1a85ec53)
	return chain(bits.RotateLeft64(hi^lo, 23) + uint64(token))
}

// draw is a number that the tokens and the seed determine.
func (c chain) draw(seed uint64, purpose uint32) uint64 {
	return uint64(c.with(uint32(seed)).with(uint32(seed >> 32)).with(purpose))
}

const (
	forWord = iota + 1
	forEnd
	forProbability
)

func (c chain) next(seed uint64) uint32 { return firstWord + uint32(c.draw(seed, forWord)%vocabulary) }

// ends is true once in so many tokens.
func (c chain) ends(seed uint64, every int64) bool { return c.draw(seed, forEnd)%uint64(every) == 0 }

// logprob is a number such as a model would give its choice.
func (c chain) logprob(seed uint64) float64 {
	return -float64(c.draw(seed, forProbability)%2000) / 1000
}

// limits are what a request says about the length of its answer, in tokens.
type limits struct {
	// least and most of this answer; mean if nothing else is said.
	least, most, mean int64
	// exact is how many there are to be; 0: as drawn.
	exact int64
	// ignoreEnd: it goes on to most.
	ignoreEnd bool
}

// write generates a text after a prompt. complete: it ended by itself.
func write(prompt chain, seed uint64, l limits) (tokens []uint32, complete bool) {
	c := prompt
	for n := int64(1); n <= l.most; n++ {
		token := c.next(seed)
		tokens = append(tokens, token)
		c = c.with(token)
		ends := c.ends(seed, l.mean)
		if l.exact > 0 {
			ends = n >= l.exact
		}
		if ends && n >= l.least && !l.ignoreEnd {
			return tokens, true
		}
	}
	return tokens, false
}
