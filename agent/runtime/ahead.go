package runtime

import "time"

// failAgain is how long a failure to make something ahead is told of before it is tried again.
const failAgain = time.Second

// ahead is what is made ahead, so that no attempt waits for it. What failed is tried again: an attempt
// is told of a failure that has just been, and not of one from the time when the last was taken.
type ahead[T any] struct {
	ready  chan T
	failed chan error
	quit   chan struct{}
}

func newAhead[T any](n int) ahead[T] {
	return ahead[T]{ready: make(chan T, n), failed: make(chan error), quit: make(chan struct{})}
}

// fill makes some until quit is closed, and gives back the one that is one too many then.
func (a *ahead[T]) fill(make func() (T, error), give func(T)) {
	for {
		made, err := make()
		if err == nil {
			select {
			case a.ready <- made:
				continue
			case <-a.quit:
				give(made)
				return
			}
		}
		again := time.NewTimer(failAgain)
		select {
		case a.failed <- err:
		case <-again.C:
		case <-a.quit:
		}
		again.Stop()
		select {
		case <-a.quit:
			return
		default:
		}
	}
}

// take returns the next one, or why there is none. It waits until given is closed at most.
func (a *ahead[T]) take(given <-chan struct{}) (made T, err error) {
	select {
	case made = <-a.ready:
		return made, nil
	default:
	}
	select {
	case made = <-a.ready:
		return made, nil
	case err = <-a.failed:
		return made, err
	case <-given:
		return made, errKilled
	}
}
