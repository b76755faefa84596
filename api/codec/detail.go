package codec

import (
	"errors"
	"time"

	"connectrpc.com/connect"

	rotav1 "rota/api/gen/rota/v1"
)

// Detail returns what rota says about an error, nil if the error is not from a server or an agent
// of rota.
func Detail(err error) *rotav1.ErrorDetail {
	var ce *connect.Error
	if !errors.As(err, &ce) {
		return nil
	}
	for _, d := range ce.Details() {
		if v, err := d.Value(); err == nil {
			if detail, ok := v.(*rotav1.ErrorDetail); ok {
				return detail
			}
		}
	}
	return nil
}

// Overloaded reports whether an error says that the same call is welcome later because the
// cluster, the namespace or the caller has too much under way, and when.
func Overloaded(err error) (delay time.Duration, yes bool) {
	if connect.CodeOf(err) != connect.CodeResourceExhausted {
		return 0, false
	}
	d := Detail(err).GetRetryDelay()
	return d.AsDuration(), d != nil
}
