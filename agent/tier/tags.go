package tier

import "strings"

const (
	tagSign    = "%"
	segmentEnd = "@"
	// tagsMax is how many tags of a key are indexed.
	tagsMax = 16
)

// partSuffixes are what LMCache's Redis connector appends to a key, for the two values that
// it stores under each. They come right after the last segment.
var partSuffixes = []string{"kv_bytes", "metadata"}

// IsTag says whether a text can be a tag: NAME%VALUE, with a name and without '@'.
func IsTag(text string) bool {
	return strings.Index(text, tagSign) > 0 && !strings.Contains(text, segmentEnd)
}

// HasTag says whether a key has a tag. LMCache builds keys of segments that are joined by
// '@', and appends a segment NAME%VALUE for each tag of a request. So a tag is a whole
// segment; of the last one, what the Redis connector appends may be left out.
func HasTag(key, tag string) bool {
	for segment := range strings.SplitSeq(key, segmentEnd) {
		if segment == tag {
			return true
		}
	}
	last := key[strings.LastIndex(key, segmentEnd)+1:]
	rest, ok := strings.CutPrefix(last, tag)
	return ok && (rest == partSuffixes[0] || rest == partSuffixes[1])
}

// tagsOf calls yield with what the tags of a key are indexed under: the segments with a '%',
// without what the Redis connector appends. There are tagsMax at most.
func tagsOf(key string, yield func(tag string)) {
	left := tagsMax
	for segment := range strings.SplitSeq(key, segmentEnd) {
		if left > 0 && IsTag(segment) {
			yield(withoutSuffix(segment))
			left--
		}
	}
}

func withoutSuffix(tag string) string {
	for _, suffix := range partSuffixes {
		if rest, ok := strings.CutSuffix(tag, suffix); ok {
			return rest
		}
	}
	return tag
}
