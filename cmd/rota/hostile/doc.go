// Package hostile holds the tests of what rota gives to those who should get
// nothing: peers without the right certificate, and callers whose requests are
// malformed, too large, stale or made up.
//
// They talk to real processes, mostly in bytes of their own making, since no
// client library would send what is sent here. After each refusal the cluster is
// looked at as a whole: nothing may have changed.
package hostile
