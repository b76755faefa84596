// Package directio is how the agent reads and writes large values on a disk past the page
// cache of the kernel: the tiers are caches themselves, so a second copy of their bytes
// would only take memory from actions. Buffers, offsets and sizes are multiples of a page.
package directio
