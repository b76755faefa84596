package e2b

import (
	"net/http"
	"time"

	rotav1 "rota/api/gen/rota/v1"
)

// started is what a program needs to use a sandbox.
type started struct {
	SandboxID   string `json:"sandboxID"`
	TemplateID  string `json:"templateID"`
	ClientID    string `json:"clientID"`
	EnvdVersion string `json:"envdVersion"`
	// EnvdAccessToken is what the SDK shows to the services of the sandbox: the caller's own
	// token, so that its rights are those of the caller and end with them. There is none where
	// the key is no token.
	EnvdAccessToken string `json:"envdAccessToken,omitempty"`
}

func newStarted(r *http.Request, t *rotav1.Trajectory) started {
	s := started{SandboxID: sandboxID(t.Id), TemplateID: t.Labels[templateLabel], ClientID: "rota", EnvdVersion: envdVersion}
	if key := r.Header.Get(keyHeader); isToken(key) {
		s.EnvdAccessToken = key
	}
	return s
}

// listed is a sandbox in a list.
type listed struct {
	SandboxID   string            `json:"sandboxID"`
	TemplateID  string            `json:"templateID"`
	ClientID    string            `json:"clientID"`
	StartedAt   time.Time         `json:"startedAt"`
	EndAt       time.Time         `json:"endAt"`
	State       string            `json:"state"`
	CPUCount    uint32            `json:"cpuCount"`
	MemoryMB    uint64            `json:"memoryMB"`
	DiskSizeMB  uint64            `json:"diskSizeMB"`
	Metadata    map[string]string `json:"metadata"`
	EnvdVersion string            `json:"envdVersion"`
}

// never is when a sandbox ends that does not end by itself.
var never = time.Date(9999, time.December, 31, 0, 0, 0, 0, time.UTC)

func newListed(t *rotav1.Trajectory, of template) listed {
	l := listed{
		SandboxID: sandboxID(t.Id), TemplateID: t.Labels[templateLabel], ClientID: "rota", EnvdVersion: envdVersion,
		StartedAt: t.OpenTime.AsTime(), EndAt: never, State: stateOf(t), CPUCount: of.MaxCores, MemoryMB: t.MemoryBytes >> 20,
		Metadata: map[string]string{},
	}
	if t.ExpireTime != nil {
		l.EndAt = t.ExpireTime.AsTime()
	}
	for key, value := range t.Labels {
		if !isOwn(key) {
			l.Metadata[key] = value
		}
	}
	return l
}

// details is a sandbox alone.
type details struct {
	listed
	EnvdAccessToken     string    `json:"envdAccessToken,omitempty"`
	AllowInternetAccess bool      `json:"allowInternetAccess"`
	Lifecycle           lifecycle `json:"lifecycle"`
}

type lifecycle struct {
	OnTimeout  string `json:"onTimeout"`
	AutoResume bool   `json:"autoResume"`
}

func newDetails(r *http.Request, t *rotav1.Trajectory, of template) details {
	l := lifecycle{OnTimeout: "kill", AutoResume: resumes(t)}
	if t.PauseAtTimeout {
		l.OnTimeout = "pause"
	}
	return details{newListed(t, of), newStarted(r, t).EnvdAccessToken, true, l}
}
