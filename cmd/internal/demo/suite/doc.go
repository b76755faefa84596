// Package suite is a small parallel test suite: the demo builds it and has rota run
// it, again and again. One of its tests cannot be divided, and eight run side by
// side on as many cores as there are.
package suite
