// Command engine is what serves models under test, and what calls them. Whatever it does, the
// witness knows.
//
// `engine serve` is a simulated engine (internal/engine/simulated) that tells the witness that it
// is alive, and holds a connection to it for as long as it holds memory of its GPUs. It answers
// a call to sleep only when that connection is closed. `engine call` is the command of an
// action: it calls the engine whose address it is told, and tells the witness who answered.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"rota/internal/engine/simulated"
	"rota/jepsen/workload/witness/speak"
)

// Exit codes.
const (
	exitUsage    = 2
	exitUnserved = 75 // it was not told where the engine is
	exitRefused  = 76 // the engine did not answer as it should
	exitUnseen   = 77 // there is no witness
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: engine serve|call FLAGS")
		os.Exit(exitUsage)
	}
	switch args := os.Args[2:]; os.Args[1] {
	case "serve":
		os.Exit(serve(args))
	case "call":
		os.Exit(call(args))
	default:
		fmt.Fprintf(os.Stderr, "engine: there is no command %q: use serve or call\n", os.Args[1])
		os.Exit(exitUsage)
	}
}

// holding is a connection to the witness for as long as memory of GPUs is held. The simulated
// engine calls one method at a time.
type holding struct {
	fd int // -1: none is held
}

// hello begins a connection: "alive" or "awake".
func hello(state string) (fd int, err error) {
	if fd, err = speak.Connect(); err != nil {
		return -1, err
	}
	model, node := os.Getenv("ROTA_MODEL"), os.Getenv("ROTA_NODE")
	err = speak.Begin(fd, []string{
		"engine", node, model, os.Getenv("WITNESS_DECLARATION"), cmp.Or(os.Getenv("ROTA_GPUS"), speak.Nothing),
		os.Getenv("WITNESS_MEMORY"), process, state,
	})
	if err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// process is this one, also after its number was given to another.
var process = fmt.Sprintf("%d.%d", os.Getpid(), time.Now().UnixNano())

func (h *holding) Take() (err error) {
	if h.fd < 0 {
		h.fd, err = hello("awake")
	}
	return err
}

func (h *holding) Give() {
	if h.fd >= 0 {
		_ = unix.Close(h.fd)
		h.fd = -1
	}
}

func (h *holding) Held() bool { return h.fd >= 0 }

// serve is an engine until it is killed.
func serve(args []string) int {
	if _, err := hello("alive"); err != nil { // closed by the end of the process
		fmt.Fprintln(os.Stderr, "engine:", err)
		return exitUnseen
	}
	return simulated.MainWith(context.Background(), args, os.Stderr, &holding{fd: -1})
}

// callMax is how long the engine may take to answer.
const callMax = 3 * time.Second

// call calls an engine, works for a while, and says that its work is complete.
func call(args []string) int {
	fs := flag.NewFlagSet("call", flag.ContinueOnError)
	engine := fs.String("engine", "", "address of the engine")
	work := fs.Duration("for", 0, "how long to work after its answer")
	if fs.Parse(args) != nil {
		return exitUsage
	}
	witness, err := speak.Connect()
	if err == nil {
		err = speak.Introduce(witness)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "call:", err)
		return exitUnseen
	}
	if !strings.HasPrefix(*engine, "http://") {
		fmt.Fprintf(os.Stderr, "call: the engine is said to be at %q\n", *engine)
		if speak.Say(witness, "unserved\n") != nil {
			return exitUnseen
		}
		return exitUnserved
	}
	said, err := ask(*engine)
	if err != nil {
		fmt.Fprintln(os.Stderr, "call:", err)
		return exitRefused
	}
	if err := speak.Say(witness, said); err != nil {
		fmt.Fprintln(os.Stderr, "call:", err)
		return exitUnseen
	}
	time.Sleep(*work)
	if speak.Say(witness, "complete\n") != nil {
		return exitUnseen
	}
	return 0
}

// ask has the engine say who it is, as the witness is told.
func ask(engine string) (string, error) {
	client := http.Client{Timeout: callMax}
	resp, err := client.Post(engine+"/v1/completions", "application/json", bytes.NewReader([]byte("{}")))
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return "", errors.Join(fmt.Errorf("status %d: %s", resp.StatusCode, bytes.TrimSpace(body)), err)
	}
	var answer struct {
		Model     string
		Simulated struct{ GPUs []int }
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return "", err
	}
	model, declaration, _ := strings.Cut(answer.Model, "@")
	var gpus []string
	for _, gpu := range answer.Simulated.GPUs {
		gpus = append(gpus, strconv.Itoa(gpu))
	}
	return fmt.Sprintf("answered %s %s %s\n", model, cmp.Or(declaration, speak.Nothing), cmp.Or(strings.Join(gpus, ","), speak.Nothing)), nil
}
