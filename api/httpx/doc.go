// Package httpx builds the HTTP clients and servers that rota's processes use
// between each other, so that their limits and timeouts are in one place.
//
// The defaults of net/http are made for short requests. Here streams live for
// days and many share one connection, so nothing limits the length of an
// exchange. A peer that vanished without a word is noticed by HTTP/2 pings
// instead, in about five seconds, on both sides. A client that answers pings and does not
// read what it asked for is given up as well (Patience).
package httpx
