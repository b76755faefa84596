// Package mutant plants bugs, to find out whether the fault injection would
// notice them: a suite that has never failed proves nothing.
//
// A mutant is an edit of the sources that is applied while compiling ("go build
// -overlay"), so no file of the repository changes and no switch for bugs is in
// the product. Each is hunted with the engine that should notice it: the
// simulation, which is then compiled with the bug in it, or a scenario with
// real processes of the mutant. It is caught if a checker finds a violation. A
// run that is void, or a process that cannot be built, catches nothing.
//
// Bugs that are narrower than a flush of the disk have a failpoint inside their
// window, as part of the edit.
package mutant
