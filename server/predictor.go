package server

import (
	"context"

	"rota/server/predictor"
)

// newPredictor returns what asks the predictor service of the configuration; nil if it names none.
func (s *Server) newPredictor() (*predictor.Predictor, error) {
	if s.cfg.PredictorURL == "" {
		return nil, nil
	}
	return predictor.New(predictor.Config{
		URL: s.cfg.PredictorURL, CA: s.cfg.PredictorCA, TLS: s.cfg.TLS, View: s.machine.View, Propose: s.replica.ProposeLocal,
		Observe: func(outcome string) { s.metrics.predicted.WithLabelValues(outcome).Inc() }, Logger: s.logger.Named("predictor"),
	})
}

// runPredictor asks the predictor service while this server leads.
func (s *Server) runPredictor(ctx context.Context) {
	p, err := s.newPredictor()
	if err != nil {
		s.logger.Error("the predictor service cannot be asked; rota predicts by itself", "error", err)
		return
	}
	if p != nil {
		p.Run(ctx)
	}
}
