package model

import "container/list"

// cache is the prefixes of which no request runs, the least recently used first. Its tokens are
// evicted one by one, from the end of the least recently used prefix.
type cache struct {
	entries map[uint64]*list.Element
	order   list.List
	tokens  int64
}

type prefix struct {
	key    uint64
	tokens int64
}

func newCache() *cache { return &cache{entries: map[uint64]*list.Element{}} }

// get returns how many tokens of a prefix there are.
func (c *cache) get(key uint64) int64 {
	if at := c.entries[key]; at != nil {
		return at.Value.(*prefix).tokens
	}
	return 0
}

// touch makes a prefix the most recently used.
func (c *cache) touch(key uint64) {
	if at := c.entries[key]; at != nil {
		c.order.MoveToBack(at)
	}
}

// put keeps a prefix in place of what was kept under the key, as the most recently used.
func (c *cache) put(key uint64, tokens int64) {
	c.drop(key)
	if tokens > 0 {
		c.entries[key] = c.order.PushBack(&prefix{key, tokens})
		c.tokens += tokens
	}
}

func (c *cache) drop(key uint64) {
	if at := c.entries[key]; at != nil {
		c.tokens -= at.Value.(*prefix).tokens
		c.order.Remove(at)
		delete(c.entries, key)
	}
}

// shrink evicts until at most so many tokens are left.
func (c *cache) shrink(most int64) {
	for c.tokens > most {
		p := c.order.Front().Value.(*prefix)
		if over := c.tokens - most; p.tokens > over {
			p.tokens -= over
			c.tokens = most
			return
		}
		c.drop(p.key)
	}
}

func (c *cache) clear() {
	clear(c.entries)
	c.order.Init()
	c.tokens = 0
}
