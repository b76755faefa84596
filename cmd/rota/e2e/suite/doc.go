// Package suite is a small parallel test suite, for tests of rota to run as an
// action. Its tests wait rather than compute, as those of services do: so how long
// they take with how many cores does not depend on what else the machine does.
package suite
