// Package codec encodes the messages of rota's protocols for Connect.
//
// The generated code of vtprotobuf encodes and decodes without reflection. At
// the rates that servers, agents and clients exchange small messages this is a
// good part of the CPU time of a call, so all of them use these codecs; on the
// wire nothing changes. The messages of health and reflection, which are not
// generated with it, take the ordinary way.
//
// JSON that people type is decoded strictly: a field that does not exist is
// most often a misspelled one that does, and an action that runs without its
// memory limit is worse than an error.
package codec
