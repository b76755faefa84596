package resp

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"rota/agent/tier"
)

// version is what clients take the server for: the Redis whose commands these are.
const version = "7.0.0"

const (
	// readAhead is how many values of MGET are read at once.
	readAhead = 8
	// scanMax is the largest COUNT that is obeyed.
	scanMax     = 10_000
	scanDefault = 10
	// scanStep is how many keys SCAN looks at in one go, and scanWork how many comparisons it makes
	// before it answers with fewer keys than it was asked for: another call goes on.
	scanStep = 64
	scanWork = 1 << 22
)

var errNoAuth = errors.New("authentication required")

// handler is how a command is run. Numbers of arguments include the name.
type handler struct {
	min, max int // max 0: any number
	run      func(*conn, *command)
}

var handlers map[string]handler

func init() {
	handlers = map[string]handler{
		"ping": {1, 2, ping}, "hello": {1, 7, hello}, "auth": {2, 3, auth}, "quit": {1, 0, quit},
		"select": {2, 2, selectDB}, "client": {2, 0, client}, "info": {1, 0, info}, "command": {1, 0, commands},
		"config": {2, 0, config},
		"set":    {3, 0, set}, "setex": {4, 4, setEx}, "psetex": {4, 4, setEx}, "mset": {3, 0, mset},
		"get": {2, 2, get}, "mget": {2, 0, mget}, "strlen": {2, 2, strlen}, "exists": {2, 0, exists},
		"del": {2, 0, del}, "unlink": {2, 0, del}, "expire": {3, 3, expire}, "pexpire": {3, 3, expire},
		"ttl": {2, 2, ttl}, "pttl": {2, 2, ttl}, "dbsize": {1, 1, dbsize}, "flushdb": {1, 2, flushDB}, "scan": {2, 0, scan},
	}
}

// run answers one command.
func (c *conn) run(cmd *command) {
	h, known := handlers[cmd.name]
	n := len(cmd.args)
	switch {
	case !c.authenticated && cmd.name != "auth" && cmd.name != "hello" && cmd.name != "quit":
		c.fail("NOAUTH Authentication required.")
	case errors.Is(cmd.refuse, tier.ErrFull):
		c.fail("OOM command not allowed when used memory > 'maxmemory'.")
	case cmd.refuse != nil:
		c.fail("ERR " + cmd.refuse.Error())
	case !known:
		c.fail(unknown(cmd))
	case n < h.min || h.max > 0 && n > h.max || cmd.name == "mset" && n%2 == 0:
		c.fail("ERR wrong number of arguments for '" + cmd.name + "' command")
	default:
		h.run(c, cmd)
	}
}

// unknown is the sentence that Redis has for a command that it does not know.
func unknown(cmd *command) string {
	var args strings.Builder
	for _, arg := range cmd.args[1:] {
		if args.Len() >= 128 {
			break
		}
		fmt.Fprintf(&args, "'%.*s' ", 128-args.Len(), arg)
	}
	return fmt.Sprintf("ERR unknown command '%.128s', with args beginning with: %s", cmd.args[0], args.String())
}

func (cmd *command) arg(i int) string { return string(cmd.args[i]) }

// option is argument i in lower case.
func (cmd *command) option(i int) string { return strings.ToLower(string(cmd.args[i])) }

func ping(c *conn, cmd *command) {
	if len(cmd.args) == 2 {
		c.bulk(cmd.arg(1))
		return
	}
	c.status("PONG")
}

func quit(c *conn, _ *command) {
	c.quit = true
	c.status("OK")
}

func auth(c *conn, cmd *command) {
	user, password := "default", cmd.arg(len(cmd.args)-1)
	if len(cmd.args) == 3 {
		user = cmd.arg(1)
	}
	if c.server.Password == "" && len(cmd.args) == 2 {
		c.fail("ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?")
		return
	}
	if c.authenticate(user, password) {
		c.status("OK")
	}
}

// authenticate answers only if it fails.
func (c *conn) authenticate(user, password string) bool {
	want := c.server.Password
	if user != "default" || want != "" && subtle.ConstantTimeCompare([]byte(password), []byte(want)) == 0 {
		c.fail("WRONGPASS invalid username-password pair or user is disabled.")
		return false
	}
	c.server.know(c)
	return true
}

func hello(c *conn, cmd *command) {
	resp3 := c.resp3
	if len(cmd.args) > 1 {
		if v := cmd.arg(1); v != "2" && v != "3" {
			c.fail("NOPROTO unsupported protocol version")
			return
		}
		resp3 = cmd.arg(1) == "3"
	}
	for i := 2; i < len(cmd.args); {
		switch left := len(cmd.args) - i; {
		case cmd.option(i) == "auth" && left >= 3:
			if !c.authenticate(cmd.arg(i+1), cmd.arg(i+2)) {
				return
			}
			i += 3
		case cmd.option(i) == "setname" && left >= 2:
			c.name = cmd.arg(i + 1)
			i += 2
		default:
			c.fail("ERR Syntax error in HELLO option '" + cmd.arg(i) + "'")
			return
		}
	}
	if !c.authenticated {
		c.fail("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time")
		return
	}
	c.resp3 = resp3
	c.pairs(7)
	for _, kv := range [][2]string{{"server", "redis"}, {"version", version}, {"mode", "standalone"}, {"role", "master"}} {
		c.bulk(kv[0])
		c.bulk(kv[1])
	}
	c.bulk("proto")
	if resp3 {
		c.number(3)
	} else {
		c.number(2)
	}
	c.bulk("id")
	c.number(c.id)
	c.bulk("modules")
	c.array(0)
}

func selectDB(c *conn, cmd *command) {
	switch n, err := strconv.Atoi(cmd.arg(1)); {
	case err != nil:
		c.fail("ERR value is not an integer or out of range")
	case n != 0:
		c.fail("ERR DB index is out of range")
	default:
		c.status("OK")
	}
}

func client(c *conn, cmd *command) {
	switch sub := cmd.option(1); {
	case sub == "setinfo" && len(cmd.args) == 4:
		c.status("OK")
	case sub == "setname" && len(cmd.args) == 3:
		c.name = cmd.arg(2)
		c.status("OK")
	case sub == "getname" && len(cmd.args) == 2:
		c.bulk(c.name)
	case sub == "id" && len(cmd.args) == 2:
		c.number(c.id)
	default:
		c.fail("ERR unknown subcommand or wrong number of arguments for '" + cmd.arg(1) + "'. Try CLIENT HELP.")
	}
}

func commands(c *conn, cmd *command) {
	if len(cmd.args) > 1 && cmd.option(1) == "count" {
		c.number(0)
		return
	}
	c.array(0)
}

func config(c *conn, cmd *command) {
	if cmd.option(1) != "get" || len(cmd.args) < 3 {
		c.fail("ERR unknown subcommand or wrong number of arguments for '" + cmd.arg(1) + "'. Try CONFIG HELP.")
		return
	}
	known := [][2]string{
		{"appendonly", "no"}, {"save", ""}, {"databases", "1"}, {"maxclients", strconv.Itoa(connectionsMax)},
		{"maxmemory", strconv.FormatUint(c.store.Stat().MemoryBytesMax, 10)},
		{"proto-max-bulk-len", strconv.FormatUint(c.store.ValueBytesMax(), 10)},
	}
	var found [][2]string
	for _, kv := range known {
		for i := range cmd.args[2:] {
			if glob(cmd.option(i+2), kv[0]) {
				found = append(found, kv)
				break
			}
		}
	}
	c.pairs(len(found))
	for _, kv := range found {
		c.bulk(kv[0])
		c.bulk(kv[1])
	}
}

// set sets a key to the value that argument i is, and reports whether it did; it
// answers only if it failed.
func (c *conn) set(cmd *command, key string, i int, expires time.Time, when tier.Condition) (set, ok bool) {
	set, err := c.store.Set(key, cmd.takeValue(i), expires, when)
	if err != nil {
		c.fail("ERR " + err.Error())
	}
	return set, err == nil
}

func set(c *conn, cmd *command) {
	var expires time.Time
	when := tier.Always
	for i := 3; i < len(cmd.args); i++ {
		option := cmd.option(i)
		switch {
		case option == "nx" && when == tier.Always:
			when = tier.IfAbsent
		case option == "xx" && when == tier.Always:
			when = tier.IfExists
		case (option == "ex" || option == "px") && expires.IsZero() && i+1 < len(cmd.args):
			i++
			var ok bool
			if expires, ok = c.expiry(cmd, i, unit(option)); !ok {
				return
			}
		default:
			c.fail("ERR syntax error")
			return
		}
	}
	switch done, ok := c.set(cmd, cmd.arg(1), 2, expires, when); {
	case done:
		c.status("OK")
	case ok:
		c.null()
	}
}

func setEx(c *conn, cmd *command) {
	expires, ok := c.expiry(cmd, 2, unit(cmd.name))
	if !ok {
		return
	}
	if _, ok := c.set(cmd, cmd.arg(1), 3, expires, tier.Always); ok {
		c.status("OK")
	}
}

func mset(c *conn, cmd *command) {
	for i := 1; i < len(cmd.args); i += 2 {
		if _, ok := c.set(cmd, cmd.arg(i), i+1, time.Time{}, tier.Always); !ok {
			return
		}
	}
	c.status("OK")
}

// unit is what an option or a command counts time in.
func unit(word string) time.Duration {
	if strings.HasPrefix(word, "p") {
		return time.Millisecond
	}
	return time.Second
}

// expiry reads argument i as a time from now that is above 0. It answers if it fails.
func (c *conn) expiry(cmd *command, i int, unit time.Duration) (time.Time, bool) {
	n, ok := c.integer(cmd, i)
	if !ok {
		return time.Time{}, false
	}
	if n <= 0 || n > math.MaxInt64/int64(unit) {
		c.fail("ERR invalid expire time in '" + cmd.name + "' command")
		return time.Time{}, false
	}
	return c.store.Now().Add(time.Duration(n) * unit), true
}

func (c *conn) integer(cmd *command, i int) (int64, bool) {
	n, err := strconv.ParseInt(cmd.arg(i), 10, 64)
	if err != nil {
		c.fail("ERR value is not an integer or out of range")
	}
	return n, err == nil
}

func get(c *conn, cmd *command) {
	v := c.store.Get(cmd.arg(1))
	if c.value(v); v != nil {
		v.Release()
	}
}

// mget reads some values ahead while one is written, until the client is gone.
func mget(c *conn, cmd *command) {
	keys := cmd.args[1:]
	ctx, gone := context.WithCancel(context.Background())
	defer gone()
	c.array(len(keys))
	pending := make(chan chan *tier.Value, readAhead)
	go func() {
		defer close(pending)
		for _, key := range keys {
			got := make(chan *tier.Value, 1)
			select {
			case pending <- got:
			case <-ctx.Done():
				return
			}
			go func() { got <- c.store.Get(string(key)) }()
		}
	}()
	for got := range pending {
		v := <-got
		if c.value(v); v != nil {
			v.Release()
		}
		if c.err != nil {
			gone()
		}
	}
}

func strlen(c *conn, cmd *command) {
	n, _ := c.store.Size(cmd.arg(1))
	c.number(int64(n))
}

func exists(c *conn, cmd *command) {
	n := int64(0)
	for _, key := range cmd.args[1:] {
		if _, ok := c.store.Size(string(key)); ok {
			n++
		}
	}
	c.number(n)
}

func del(c *conn, cmd *command) {
	n := int64(0)
	for _, key := range cmd.args[1:] {
		if c.store.Delete(string(key)) {
			n++
		}
	}
	c.number(n)
}

func expire(c *conn, cmd *command) {
	n, ok := c.integer(cmd, 2)
	unit := unit(cmd.name)
	switch {
	case !ok:
		return
	case n > math.MaxInt64/int64(unit):
		c.fail("ERR invalid expire time in '" + cmd.name + "' command")
		return
	case n <= 0:
		ok = c.store.Delete(cmd.arg(1))
	default:
		ok = c.store.Expire(cmd.arg(1), c.store.Now().Add(time.Duration(n)*unit))
	}
	if ok {
		c.number(1)
		return
	}
	c.number(0)
}

func ttl(c *conn, cmd *command) {
	left, exists := c.store.Remaining(cmd.arg(1))
	switch {
	case !exists:
		c.number(-2)
	case left < 0:
		c.number(-1)
	case cmd.name == "pttl":
		c.number(left.Milliseconds())
	default:
		c.number(int64((left + time.Second/2) / time.Second))
	}
}

func dbsize(c *conn, _ *command) { c.number(int64(c.store.Len())) }

func flushDB(c *conn, cmd *command) {
	if len(cmd.args) == 2 && cmd.option(1) != "async" && cmd.option(1) != "sync" {
		c.fail("ERR syntax error")
		return
	}
	c.store.Clear()
	c.status("OK")
}

func scan(c *conn, cmd *command) {
	cursor, err := strconv.ParseUint(cmd.arg(1), 10, 64)
	if err != nil {
		c.fail("ERR invalid cursor")
		return
	}
	pattern, count := "*", int64(scanDefault)
	for i := 2; i < len(cmd.args); i += 2 {
		ok := i+1 < len(cmd.args)
		switch option := cmd.option(i); {
		case ok && option == "match":
			pattern = cmd.arg(i + 1)
		case ok && option == "count":
			if count, ok = c.integer(cmd, i+1); !ok {
				return
			}
			ok = count > 0
		default:
			ok = false
		}
		if !ok {
			c.fail("ERR syntax error")
			return
		}
	}
	matching, next := matchingKeys(c.store, cursor, compile(pattern), int(min(count, scanMax)))
	c.array(2)
	c.bulk(strconv.FormatUint(next, 10))
	c.array(len(matching))
	for _, key := range matching {
		c.bulk(key)
	}
}

// matchingKeys looks at up to so many keys and returns those that match, and where to go on. It looks
// at fewer if their patterns take long to compare.
func matchingKeys(store *tier.Store, cursor uint64, p pattern, count int) (matching []string, next uint64) {
	for work := 0; count > 0 && work < scanWork; {
		var keys []string
		keys, next = store.Scan(cursor, min(count, scanStep))
		for _, key := range keys {
			matches, steps := p.match(key)
			if work += steps; matches {
				matching = append(matching, key)
			}
		}
		if next == 0 {
			return matching, 0
		}
		cursor, count = next, count-len(keys)
	}
	return matching, next
}
