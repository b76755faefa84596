package e2b

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// TestRanges: one range is answered with that part, and what is not understood with all.
func TestRanges(t *testing.T) {
	c, server, _ := world(t)
	large := strings.Repeat("0123456789", 250_000)
	c.files = map[string]string{"f": large, "empty": ""}
	get := func(method, name string, headers ...string) (int, string, http.Header) {
		return call(t, method, server.URL+"/files?path="+name, nil, append(headers, sandboxHeader, "t7")...)
	}
	for _, x := range []struct {
		header, want, says string
		status             int
	}{
		{"bytes=0-4", "01234", "bytes 0-4/2500000", 206},
		{"bytes=13-13", "3", "bytes 13-13/2500000", 206},
		{"bytes=2499998-", "89", "bytes 2499998-2499999/2500000", 206},
		{"bytes=2499998-9999999999999999999", large, "", 200},
		{"bytes=2499998-999999999999999999", "89", "bytes 2499998-2499999/2500000", 206},
		{"bytes=-3", "789", "bytes 2499997-2499999/2500000", 206},
		{"bytes=-99999999", large, "bytes 0-2499999/2500000", 206},
		{"bytes=1048570-1048580", large[1048570:1048581], "bytes 1048570-1048580/2500000", 206},
		{"bytes=2500000-", "", "bytes */2500000", 416},
		{"bytes=-0", "", "bytes */2500000", 416},
		{"bytes=5-4", large, "", 200},
		{"bytes=0-1,3-4", large, "", 200},
		{"bytes=", large, "", 200},
		{"bytes=-", large, "", 200},
		{"bytes=+1-2", large, "", 200},
		{"lines=1-2", large, "", 200},
	} {
		status, body, h := get("GET", "f", "Range", x.header)
		if status != x.status || h.Get("Content-Range") != x.says || status != 416 && (body != x.want || h.Get("Content-Length") != strconv.Itoa(len(x.want))) {
			t.Errorf("%s: %d, %d bytes, %v", x.header, status, len(body), h)
		}
	}
	if status, body, _ := get("GET", "f", "Range", "bytes=0-1", "If-Range", `"x"`); status != 200 || body != large {
		t.Errorf("with If-Range: %d, %d bytes", status, len(body))
	}
	if status, _, h := get("GET", "empty", "Range", "bytes=0-"); status != 416 || h.Get("Content-Range") != "bytes */0" {
		t.Errorf("of nothing: %d %v", status, h)
	}
	status, _, h := get("HEAD", "f", "Range", "bytes=0-1") // which is for GET only
	if status != 200 || h.Get("Content-Length") != "2500000" || h.Get("Accept-Ranges") != "bytes" || c.read != 1 {
		t.Errorf("HEAD: %d %v, after %d bytes", status, h, c.read)
	}
}

// FuzzRangeOf: whatever is asked for, the answer is a part of the file.
func FuzzRangeOf(f *testing.F) {
	for _, header := range []string{"bytes=0-4", "bytes=-3", "bytes=5-", "bytes=7-2", "x"} {
		f.Add(header, uint64(10))
	}
	f.Fuzz(func(t *testing.T, header string, size uint64) {
		at, end, status := rangeOf(http.Header{"Range": {header}}, size>>1)
		ok := at < end && end <= size>>1
		if status == 206 && !ok || status == 200 && (at != 0 || end != size>>1) || status == 416 && (at != 0 || end != 0) {
			t.Errorf("%q of %d: %d to %d, %d", header, size>>1, at, end, status)
		}
	})
}
