// Package main writes docs/api.md from the comments of the protos.
//
// The protos are the reference of the API and the only place where it is
// explained; this makes them readable without a checkout. It is a small program
// of our own because the known generators bring a template language and more
// dependencies than it has lines. It reads a descriptor set as `buf build` writes
// it and depends on nothing else, so its output changes only with the protos.
package main
