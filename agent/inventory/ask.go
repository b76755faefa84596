package inventory

import (
	"errors"
	"fmt"
	"time"
)

const (
	// driverMax is how long the driver may take to answer. It takes seconds where it first has to set
	// up the GPUs, and for ever where one of them is broken.
	driverMax = time.Minute
	// askingMax is how many questions may be without an answer. Each has a thread.
	askingMax = 16
)

// errHangs: a GPU or its driver is broken in a way that no call of the driver returns from.
var errHangs = errors.New("inventory: the driver of the GPUs does not answer: look at the kernel's log for the GPU that hangs, and start the machine again")

var asking = make(chan struct{}, askingMax)

// ask has the driver answer a question in time. A question without an answer goes on by itself.
func ask[T any](within time.Duration, question func() (T, error)) (answer T, err error) {
	select {
	case asking <- struct{}{}:
	default:
		return answer, fmt.Errorf("%w (%d questions wait)", errHangs, askingMax)
	}
	type said struct {
		answer T
		err    error
	}
	heard := make(chan said, 1)
	go func() {
		defer func() { <-asking }()
		answer, err := question()
		heard <- said{answer, err}
	}()
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case s := <-heard:
		return s.answer, s.err
	case <-timer.C:
		return answer, fmt.Errorf("%w (for %v)", errHangs, within)
	}
}
