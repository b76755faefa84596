package e2b

import (
	"net/http"
	"strconv"
	"strings"
)

// rangeOf returns which bytes of a file a request wants, up to end, and the status of the answer:
// 206 for one range, 416 for one that the file does not have, and otherwise 200 with all of it,
// as for headers that are wrong or want several ranges (RFC 9110, section 14.2). The answer has no
// validator, so a range that depends on one means all of the file, too.
func rangeOf(h http.Header, size uint64) (at, end uint64, status int) {
	spec, ok := strings.CutPrefix(h.Get("Range"), "bytes=")
	first, last, dash := strings.Cut(spec, "-")
	from, errFrom := number(first)
	to, errTo := number(last)
	switch {
	case !ok || !dash || h.Get("If-Range") != "":
	case first == "" && errTo == nil: // the last bytes
		if to == 0 || size == 0 {
			return 0, 0, http.StatusRequestedRangeNotSatisfiable
		}
		return size - min(to, size), size, http.StatusPartialContent
	case errFrom != nil || last != "" && (errTo != nil || to < from):
	case from >= size:
		return 0, 0, http.StatusRequestedRangeNotSatisfiable
	case last == "":
		return from, size, http.StatusPartialContent
	default:
		return from, min(to, size-1) + 1, http.StatusPartialContent
	}
	return 0, size, http.StatusOK
}

// number parses digits alone, 19 of them at most.
func number(text string) (uint64, error) { return strconv.ParseUint(text, 10, 63) }
