// Package device is memory that training states can live in besides host memory and disk:
// that of a GPU, or a stand-in for it.
//
// The state manager needs little of a GPU: to allocate, to copy in both directions, to free,
// and to know how much is in use. Two things can do it. "simulated" is memory of the agent,
// pre-faulted and locked where the machine allows it, for machines without a GPU and for
// tests; its name says so wherever it is shown. "cuda" is a GPU by the CUDA driver API. The
// driver's library is loaded at run time, so building needs no toolkit and no C compiler. It
// needs the build tag cuda, though: a program that loads libraries is not static.
//
// Each copy is one copy: host memory is given to the device as it is, mapped from a memfd, and
// pinned if the machine allows it, so that no driver stages it.
package device
