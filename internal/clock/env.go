package clock

// Env is the environment variable that names the file to follow, see package
// clockctl. Only a build with -tags faults reads it.
const Env = "ROTA_CLOCK"
