package simulated

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Misbehaviours, as --misbehave names them, with commas. Those with a number take it after "=".
const (
	// Early200: a call to sleep is answered long before the memory is free.
	Early200 = "early-200"
	// HangSleep, HangWake, HangProbe: the call is not answered.
	HangSleep = "hang-sleep"
	HangWake  = "hang-wake"
	HangProbe = "hang-probe"
	// CrashWake: the process ends when it is woken.
	CrashWake = "crash-wake"
	// OOMWake: waking answers 500, as if another process had the memory.
	OOMWake = "oom-wake"
	// FailSleep: a call to sleep answers 500.
	FailSleep = "fail-sleep"
	// Garbage: /is_sleeping answers what is no JSON. Huge: it does not come to an end.
	Garbage = "garbage"
	Huge    = "huge"
	// NeverReady: the probe answers 503 for ever. Exit: the process ends while it loads.
	NeverReady = "never-ready"
	Exit       = "exit"
	// Sick: the probe answers 500 from now on.
	Sick = "sick"
	// FailGenerate: requests are answered with 500. HangGenerate: they are not answered.
	FailGenerate = "fail-generate"
	HangGenerate = "hang-generate"
	// CrashTokens=N: the process ends when it has generated N tokens in all.
	CrashTokens = "crash-tokens"
	// CutTokens=N: the connection of an answer is cut after N of its tokens.
	CutTokens = "cut-tokens"
	// Slow=N: it is N times slower from now on.
	Slow = "slow"
)

var misbehaviours = []string{
	Early200, HangSleep, HangWake, HangProbe, CrashWake, OOMWake, FailSleep, Garbage, Huge, NeverReady, Exit, Sick,
	FailGenerate, HangGenerate, CrashTokens + "=N", CutTokens + "=N", Slow + "=N",
}

// Misbehaviours are all of them.
func Misbehaviours() []string { return slices.Clone(misbehaviours) }

// misbehave has it do something wrong from now on.
func (e *engine) misbehave(what string) error {
	name, text, _ := strings.Cut(what, "=")
	for _, known := range misbehaviours {
		if known, _, counts := strings.Cut(known, "="); known == name {
			n, err := strconv.ParseInt(text, 10, 64)
			if counts && (err != nil || n < 1) {
				return fmt.Errorf("%w: %q needs a number of at least 1: %s=1", ErrUsage, what, name)
			}
			e.mu.Lock()
			e.misbehaves[name] = n
			e.mu.Unlock()
			if name == Slow {
				e.driver.setSpeed(e.o.Speed / float64(n))
			}
			return nil
		}
	}
	return fmt.Errorf("%w: there is no misbehaviour %q; use one of %s", ErrUsage, what, strings.Join(misbehaviours, ", "))
}

// behave has it do nothing wrong any more.
func (e *engine) behave() {
	e.mu.Lock()
	clear(e.misbehaves)
	e.mu.Unlock()
	e.driver.setSpeed(e.o.Speed)
}

func (e *engine) does(what string) bool {
	_, does := e.number(what)
	return does
}

// number is the number of a misbehaviour that it shows.
func (e *engine) number(what string) (n int64, does bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n, does = e.misbehaves[what]
	return n, does
}

// misbehaviour is a call of a test, which no real engine has: POST says what is to go wrong from
// now on, and DELETE that nothing is.
func (e *engine) misbehaviour(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodDelete {
		e.behave()
		return
	}
	if err := e.misbehave(r.URL.Query().Get("what")); err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
	}
}

// spoiled deals with requests that go wrong by intention.
func (e *engine) spoiled(w http.ResponseWriter, r *http.Request) bool {
	switch {
	case e.does(HangGenerate):
		<-r.Context().Done()
		return true
	case e.does(FailGenerate):
		refuse(w, http.StatusInternalServerError, "simulated: it was told to fail")
		return true
	}
	return false
}
