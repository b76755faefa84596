// Package receiver is a receiver of OTLP over HTTP for tests: it keeps the spans that it gets.
package receiver
