package model

// The limits that operations.md and architecture.md state. Bytes, nanoseconds.
const (
	nameBytesMax      = 128
	addressBytesMax   = 256
	labelsMax         = 64
	labelBytesMax     = 512
	spreadLabelsMax   = 16
	numaNodesMax      = 64
	coresMax          = 512
	attemptsMax       = 100
	timeoutMax        = 30 * 24 * 60 * 60 * 1_000_000_000
	specBytesMax      = 64 << 10
	tailBytesMax      = 4 << 10
	namespacesMax     = 1024
	poolsMax          = 64
	nodesMax          = 65536
	trajectoryLiveMax = 4096
	hostedMax         = 4096
	stepsPerEntry     = 4096
	window            = 32 // oldest actions of a queue that are considered
	choices           = 64 // nodes of which one is chosen
	actionOverhead    = 256
	needsOverhead     = 64
	classesMax        = 10_000
	widthsMax         = 16
	classMemory       = 64 // attempts that a mean is made of
	exploreAfter      = 3  // attempts with one width before another is tried
	execMax           = 1 << 52
	deferMax          = 60 * 1_000_000_000 // how long one may be let wait that could start
	unitsMax          = 1 << 20
	pointsMax         = 64
	allowedCoresMax   = 64

	requestIDBytesMax  = 64
	requestKept        = 10 * 60 * 1_000_000_000
	requestAheadMax    = 60 * 60 * 1_000_000_000
	requestAheadMargin = 60 * 1_000_000_000
)
