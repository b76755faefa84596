package codec

import (
	"errors"

	"connectrpc.com/connect"
)

// TooLarge reports whether err is a refusal of a message for its size. Sent again
// unchanged, the message is refused again, so its sender has to split or shorten it.
//
// Back-pressure has the same code, RESOURCE_EXHAUSTED, and differs by the delay
// after which the same call is welcome.
func TooLarge(err error) bool {
	var ce *connect.Error
	if !errors.As(err, &ce) {
		return false
	}
	if detail := Detail(err); detail != nil {
		return detail.Reason == "TOO_LARGE"
	}
	return ce.Code() == connect.CodeResourceExhausted // refused before it was decoded
}
