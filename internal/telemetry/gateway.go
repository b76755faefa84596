package telemetry

// What gateways tell.
var (
	GatewayRequestsEnded  = define(Gateway, Counter, "rota_gateway_requests_total", "Requests that ended, by endpoint and status; 499: the client went away.", "endpoint", "status")
	GatewayMoves          = define(Gateway, Counter, "rota_gateway_moves_total", "Requests that went on at a worker after one, by reason: retried, failed or suspended.", "reason")
	GatewayRefused        = define(Gateway, Counter, "rota_gateway_refused_total", "Requests that the gateway answered with an error of its own, by code.", "code")
	GatewayWorkerFailures = define(Gateway, Counter, "rota_gateway_worker_failures_total", "Failures of workers that were reported.", "worker")
	GatewayTokens         = define(Gateway, Counter, "rota_gateway_output_tokens_total", "Tokens that workers generated for requests of this gateway.")
	GatewayReportsLost    = define(Gateway, Counter, "rota_gateway_reports_lost_total", "Reports of which it is not known whether they have counted, or that were refused.")
	GatewayAborts         = define(Gateway, Counter, "rota_gateway_aborts_total", "Requests that were stopped in their engine.")
	GatewayRequests       = define(Gateway, Gauge, "rota_gateway_requests", "Requests that run or wait.")
	GatewayRequestBytes   = define(Gateway, Gauge, "rota_gateway_request_bytes", "Bytes that these requests hold: bodies, copies of them, answers that are not streamed, and events.")
	GatewayRoutes         = define(Gateway, Gauge, "rota_gateway_routes", "Trajectories with a route.")
	GatewayWorkers        = define(Gateway, Gauge, "rota_gateway_workers", "Workers that are known.")
	GatewayWatchLive      = define(Gateway, Gauge, "rota_gateway_watch_live", "1 while a server sends routes; otherwise the last ones are used.")
	GatewayRewardCalls    = define(Gateway, Counter, "rota_gateway_reward_calls_total", "Calls of reward functions that ended, by kind of status.", "reward", "status")
	GatewayRewardRetries  = define(Gateway, Counter, "rota_gateway_reward_retries_total", "Calls of reward functions that were tried again.", "reward")
	GatewayRewardRunning  = define(Gateway, Gauge, "rota_gateway_reward_running", "Calls of a reward function that run.", "reward")
	GatewayRewardWaiting  = define(Gateway, Gauge, "rota_gateway_reward_waiting", "Calls of a reward function that wait for a replica.", "reward")
	GatewayRewardReplicas = define(Gateway, Gauge, "rota_gateway_reward_replicas", "Replicas of a reward function that can be called.", "reward")
)
