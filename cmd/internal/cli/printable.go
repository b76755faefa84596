package cli

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Names, arguments and messages come from other people, and a terminal obeys control
// characters: an escape sequence can rewrite a line, retitle the window or hide a command.
// So rota escapes all text that another person chose. The only exception is the output of
// commands: rota passes it on byte for byte if the user asked for the output.

// printable quotes everything that a terminal may obey, line breaks included.
func printable(text string) string { return quoteControls(text, "") }

// printableLines is printable for text of several lines.
func printableLines(text string) string { return quoteControls(text, "\n\t") }

func quoteControls(text, allowed string) string {
	if !strings.ContainsFunc(text, obeyed) && utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[0])
		case obeyed(r) && !strings.ContainsRune(allowed, r):
			b.WriteString(escape(r))
		default:
			b.WriteString(text[:size])
		}
		text = text[size:]
	}
	return b.String()
}

// obeyed reports whether a terminal executes r instead of showing it. These are control
// characters, and Unicode characters that change the writing direction or break lines.
func obeyed(r rune) bool {
	return unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control, unicode.Zl, unicode.Zp)
}

// escape writes r as the shell's $'...' and Go read it.
func escape(r rune) string {
	switch {
	case r == '\n':
		return `\n`
	case r == '\t':
		return `\t`
	case r == '\r':
		return `\r`
	case r < 0x80:
		return fmt.Sprintf(`\x%02x`, r)
	}
	return fmt.Sprintf(`\u%04x`, r) // all of them are in the first plane
}

// printableJSON escapes in a document of JSON what its encoder lets through. That can
// only be inside of strings, so the document means the same.
func printableJSON(document []byte) []byte {
	if !bytes.ContainsFunc(document, unsafeInJSON) {
		return document
	}
	var b bytes.Buffer
	for _, r := range string(document) {
		switch {
		case !unsafeInJSON(r):
			b.WriteRune(r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.Bytes()
}

// unsafeInJSON leaves out line breaks and tabs: they are the document's own.
func unsafeInJSON(r rune) bool { return r != '\n' && r != '\t' && obeyed(r) }
