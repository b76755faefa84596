package agent

import (
	"context"
	"net/http"

	"connectrpc.com/connect"

	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/api/intake"
)

// newKeyringHandler lets servers change the gossip keys of this process.
func newKeyringHandler(keyring rotav1connect.KeyringServiceHandler) (path string, h http.Handler) {
	if keyring == nil {
		keyring = noKeyring{}
	}
	path, h = rotav1connect.NewKeyringServiceHandler(keyring, intake.ForHandler(), connect.WithReadMaxBytes(requestBytesMax))
	return path, intake.Handler(h, intake.Limits{MessageBytes: requestBytesMax, Budget: intake.NewBudget(decodingMax)})
}

// noKeyring is that of an agent without gossip.
type noKeyring struct{}

// ChangeKeyring implements rotav1connect.KeyringServiceHandler: there are no keys.
func (noKeyring) ChangeKeyring(context.Context, *rotav1.ChangeKeyringRequest) (*rotav1.ChangeKeyringResponse, error) {
	return &rotav1.ChangeKeyringResponse{}, nil
}
