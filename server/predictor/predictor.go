package predictor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"connectrpc.com/connect"
	"github.com/hashicorp/go-hclog"

	"rota/api/backoff"
	logv1 "rota/api/gen/log/v1"
	predictorv1 "rota/api/gen/predictor/v1"
	"rota/api/gen/predictor/v1/predictorv1connect"
	"rota/api/httpx"
	"rota/api/pki"
	"rota/fsm"
	"rota/fsm/state"
)

const (
	// lookEvery is how often is looked for trajectories that the service was not asked about.
	lookEvery = 250 * time.Millisecond
	// callTimeout bounds a call. A tool call often takes no longer.
	callTimeout = 2 * time.Second
	// pauseMin and pauseMax are the pauses after failures.
	pauseMin, pauseMax = time.Second, time.Minute
	// looksMax bounds the trajectories that are looked at for one call.
	looksMax = 8192
	// silentMax bounds the trajectories that are remembered because the service left them out. If
	// there are more, all are forgotten, and the service is asked about them again.
	silentMax = 1 << 16
	// answerBytesMax bounds an answer: 256 predictions, as verbose as JSON may be.
	answerBytesMax = 1 << 20
)

// ErrURL means that a URL cannot be that of a predictor service.
var ErrURL = errors.New("--predictor-url must be a URL with https, or with http on loopback, such as http://127.0.0.1:9100")

// errNotCommitted means that the service has answered, and rota could not make use of it.
var errNotCommitted = errors.New("the answer was not committed")

// Outcomes of calls.
const (
	OutcomeAnswered = "answered"
	OutcomeFailed   = "failed"
)

// Config is what a predictor needs.
type Config struct {
	// URL of the service. It is https, or http on loopback.
	URL string
	// CA has the certificates by which an https service is known; empty: those of the system. TLS is
	// what the server shows the service.
	CA  string
	TLS pki.Files
	// View shows the state, and Propose has commands applied.
	View    func(func(*state.State))
	Propose func(ctx context.Context, commands ...*logv1.Command) ([]*logv1.Result, error)
	// Observe is told how each call ended; nil: it is told nobody.
	Observe func(outcome string)
	Logger  hclog.Logger
}

// Predictor asks one service.
type Predictor struct {
	cfg    Config
	client predictorv1connect.PredictorServiceClient
	http   *http.Client
	// after is the trajectory that was looked at last. silent are trajectories that the service left
	// out, with the turns that they had.
	after  state.TrajectoryID
	silent map[uint64]uint32
	// trouble is what was said last of why rota predicts by itself; empty: it does not.
	trouble string
}

// New returns a predictor, which calls nothing yet. It fails with ErrURL, or if the files of
// certificates cannot be read.
func New(cfg Config) (*Predictor, error) {
	u, err := url.Parse(cfg.URL)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Scheme != "https" && !(u.Scheme == "http" && httpx.OnLoopback(u.Hostname())) {
		return nil, ErrURL // what was given is not said: it may have a password
	}
	conf, err := tlsConfig(cfg.CA, cfg.TLS)
	if err != nil {
		return nil, fmt.Errorf("certificates for the predictor service: %w", err)
	}
	p := &Predictor{cfg: cfg, silent: map[uint64]uint32{}, http: &http.Client{
		Transport:     &http.Transport{TLSClientConfig: conf, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	p.client = predictorv1connect.NewPredictorServiceClient(p.http, cfg.URL, connect.WithProtoJSON(), connect.WithReadMaxBytes(answerBytesMax),
		connect.WithAcceptCompression("gzip", nil, nil))
	return p, nil
}

// tlsConfig knows the service by its name and a CA, and shows it the certificate of the server.
func tlsConfig(ca string, own pki.Files) (*tls.Config, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		var err error
		if conf.RootCAs, err = pki.ReadAuthorities(ca); err != nil {
			return nil, err
		}
	}
	if own.Enabled() {
		peer, err := pki.ClientConfig(own, pki.RoleServer)
		if err != nil {
			return nil, err
		}
		conf.GetClientCertificate = peer.GetClientCertificate
	}
	return conf, nil
}

// Run asks the service until ctx is done.
func (p *Predictor) Run(ctx context.Context) {
	defer p.http.CloseIdleConnections()
	pause := backoff.Backoff{Least: pauseMin, Most: pauseMax}
	for {
		wait := lookEvery
		switch full, err := p.round(ctx); {
		case ctx.Err() != nil:
			return
		case err != nil:
			wait = pause.Next()
			p.fails(err)
		case full:
			wait = 0 // there may be more
		}
		if p.trouble == "" {
			pause.Reset()
		}
		if backoff.Sleep(ctx, wait) != nil {
			return
		}
	}
}

// fails says once that the service fails, or that its answers cannot be committed.
func (p *Predictor) fails(err error) {
	trouble := "the predictor service fails; until it answers, rota predicts by itself"
	if errors.Is(err, errNotCommitted) {
		trouble = "the predictor service answers, but its predictions cannot be committed; until then, rota predicts by itself"
	}
	if trouble != p.trouble {
		p.cfg.Logger.Warn(trouble, "url", p.cfg.URL, "error", err)
	}
	p.trouble = trouble
}

// round asks about as many trajectories as one call may have, and proposes what is answered. It reports
// whether there were so many.
func (p *Predictor) round(ctx context.Context) (full bool, err error) {
	asked := p.unasked()
	if len(asked) == 0 {
		return false, nil
	}
	resp, err := p.call(ctx, asked)
	if err != nil {
		return false, err
	}
	c := p.accept(asked, resp)
	if len(c.Predictions) > 0 {
		_, err = p.cfg.Propose(ctx, &logv1.Command{Verb: &logv1.Command_PredictGenerations{PredictGenerations: c}})
		if err != nil {
			return false, fmt.Errorf("%w: %w", errNotCommitted, err)
		}
	}
	if p.trouble != "" {
		p.cfg.Logger.Info("predictions of the predictor service count again", "url", p.cfg.URL)
		p.trouble = ""
	}
	return len(asked) == fsm.PredictionsMax, nil
}

// call asks the service.
func (p *Predictor) call(ctx context.Context, asked []*predictorv1.Trajectory) (*predictorv1.PredictResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := p.client.Predict(ctx, &predictorv1.PredictRequest{Trajectories: asked})
	outcome := OutcomeAnswered
	if err != nil {
		outcome = OutcomeFailed
	}
	if p.cfg.Observe != nil {
		p.cfg.Observe(outcome)
	}
	return resp, err
}

// unasked are the next trajectories of which the service has said nothing since their last turn.
func (p *Predictor) unasked() (asked []*predictorv1.Trajectory) {
	p.cfg.View(func(s *state.State) {
		looks := 0
		more := false
		s.OwnPredictions(p.after, func(g *state.Generation) bool {
			if looks++; looks > looksMax || len(asked) == fsm.PredictionsMax {
				more = true
				return false
			}
			p.after = g.Trajectory
			if turns, ok := p.silent[uint64(g.Trajectory)]; !ok || turns != g.Trace.Turns {
				asked = append(asked, fsm.ForPredictor(s, g))
			}
			return true
		})
		if !more {
			p.after = 0
		}
	})
	return asked
}

// accept takes of an answer the first prediction of each trajectory that was asked for, and remembers
// those that were left out.
func (p *Predictor) accept(asked []*predictorv1.Trajectory, resp *predictorv1.PredictResponse) *logv1.PredictGenerations {
	turns := make(map[uint64]uint32, len(asked))
	for _, t := range asked {
		turns[t.Id] = t.Turns
	}
	c := &logv1.PredictGenerations{}
	for _, v := range resp.Predictions {
		had, ok := turns[v.Id]
		if !ok {
			continue
		}
		delete(turns, v.Id)
		delete(p.silent, v.Id)
		c.Predictions = append(c.Predictions, &logv1.GenerationPrediction{
			TrajectoryId: v.Id, Turns: had, Tokens: v.Tokens, TokensP50: v.TokensP50, TokensP90: v.TokensP90, TurnsLeft: v.Turns,
		})
	}
	if len(p.silent)+len(turns) > silentMax {
		clear(p.silent)
	}
	for id, had := range turns {
		p.silent[id] = had
	}
	return c
}
