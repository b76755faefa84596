#!/usr/bin/env bash
# An operator's day on one machine, by the documented commands alone: a secured
# cluster of three under load, in which a server is replaced, the certificates, the
# authority and the gossip key are rotated, a backup is restored elsewhere, the
# majority is lost and recovered, the servers are upgraded, taken back and upgraded
# again, a node is drained and removed, and a debug bundle is collected. At the end
# every acknowledged action must have ended, and its command must have run once.
#
#   deploy/operators-day.sh [ROTA [NEXT]]
#
# ROTA is the binary (bin/rota), NEXT one of a release with a newer feature level; it
# is built from this checkout, with Go, if it is not given. PORTS is the first of 400
# ports on loopback (17400), KEEP=1 leaves the folder.
set -euo pipefail
cd "$(dirname "$0")/.."

rota=$(realpath "${1:-bin/rota}")
next=${2:-}
ports=${PORTS:-17400}
dir=$(mktemp -d "${TMPDIR:-/tmp}/rota-day.XXXXXX")
declare -A pid=() release=()
load=
# Nothing of the caller's own setup may reach the commands.
unset "${!ROTA_@}"
echo "{}" > "$dir/config.json"
export LC_ALL=C ROTA_CONFIG=$dir/config.json ROTA_REQUEST_TIMEOUT=30s

cleanup() {
	local status=$? name
	trap - EXIT
	[ -z "$load" ] || kill "$load" 2> /dev/null || true
	for name in "${!pid[@]}"; do kill -9 "${pid[$name]}" 2> /dev/null || true; done
	wait 2> /dev/null || true
	if [ "$status" != 0 ]; then
		echo "=== the day FAILED in: ${now:-the beginning}" >&2
		for name in "$dir"/*.log; do
			printf -- '--- %s\n' "$name" >&2
			tail -n 8 "$name" >&2
		done
	fi
	[ "${KEEP:-}" = 1 ] && echo "the folder is $dir" || rm -rf "$dir"
	exit "$status"
}
trap cleanup EXIT

# port NAME: the first port of a process: s1 is 0, node-1 is 200.
port() {
	case $1 in
	s*) echo $((ports + 10 * ${1#s})) ;;
	node-*) echo $((ports + 200 + 10 * ${1#node-})) ;;
	esac
}
api() { echo "127.0.0.1:$(port "$1")"; }
gossip() { echo "127.0.0.1:$(($(port "$1") + 1))"; }

# await WHAT COMMAND... repeats a command until it succeeds, for two minutes.
await() {
	local what=$1 deadline=$((SECONDS + 120))
	shift
	until "$@" > "$dir/await.out" 2>&1; do
		if [ $SECONDS -ge $deadline ]; then
			echo "gave up: $what" >&2
			cat "$dir/await.out" >&2
			return 1
		fi
		sleep 0.1
	done
}

# fails COMMAND... must fail.
fails() {
	if "$@" > "$dir/fails.out" 2>&1; then
		echo "must have failed: $*" >&2
		return 1
	fi
}

# install_files NAME FILE... copies files to where the process NAME has them, as onto another
# machine.
install_files() {
	local name=$1 file
	shift
	mkdir -p "$dir/$name"
	for file in "$@"; do
		cp -p "$dir/pki/$file" "$dir/$name/$file.new"
		mv "$dir/$name/$file.new" "$dir/$name/$file"
	done
}
tls() { echo "--ca $dir/$1/ca.pem --cert $dir/$1/$1.pem --key $dir/$1/$1-key.pem"; }

# server NAME [FLAG...] starts a server with the release it has.
server() {
	local name=$1
	shift
	# shellcheck disable=SC2046
	"${release[$name]:-$rota}" server --id "$name" --data-dir "$dir/$name/data" --listen "$(api "$name")" \
		--gossip "$(gossip "$name")" --gossip-key "$dir/$name/gossip.key" --join "$(gossip s1),$(gossip s2),$(gossip s3)" \
		--audit "$dir/$name/audit.jsonl" --autopilot --autopilot-promote-after 1s --autopilot-remove-after 5s \
		$(tls "$name") "$@" >> "$dir/$name.log" 2>&1 &
	pid[$name]=$!
}

agent() {
	local name=$1
	# shellcheck disable=SC2046
	"$rota" agent --name "$name" --data-dir "$dir/$name/data" --listen "$(api "$name")" --gossip "$(gossip "$name")" \
		--gossip-key "$dir/$name/gossip.key" --join "$(gossip s1),$(gossip s2),$(gossip s3)" --servers "$ROTA_ADDR" \
		--metrics "127.0.0.1:$(($(port "$name") + 2))" --cores 4 --oversubscribe --memory 1GiB --disk-floor 0 --dev \
		$(tls "$name") >> "$dir/$name.log" 2>&1 &
	pid[$name]=$!
}

# stop NAME [SIGNAL]
stop() {
	kill "-${2:-TERM}" "${pid[$1]}"
	wait "${pid[$1]}" 2> /dev/null || true
	unset "pid[$1]"
}

servers() {
	local list=("$@")
	list=("${list[@]/#/s}")
	ROTA_ADDR=$(for s in "${list[@]}"; do api "$s"; done | paste -sd,)
	export ROTA_ADDR
}

healthy() { "$rota" operator autopilot state; }
has_voters() { [ "$("$rota" operator raft list-peers | grep -cE ' (voter|leader) ')" = "$1" ]; }
no_member() { ! "$rota" operator raft list-peers | grep -q "^$1 "; }
same_state() { "$rota" operator state-hash; }

# begin_load submits actions as a client with a token, one after the other. What is
# acknowledged is written down.
begin_load() {
	(
		unset ROTA_CERT ROTA_KEY
		export ROTA_ADDR=$1 ROTA_TOKEN
		ROTA_TOKEN=$(< "$dir/token")
		trap 'exit 0' TERM
		while :; do
			if id=$("$rota" run --detach --class day -- sh -c "echo \$ROTA_ACTION_ID >> '$dir/witness'; sleep 0.1" 2>> "$dir/load.log"); then
				echo "$id" >> "$dir/acknowledged"
			fi
			sleep 0.05
		done
	) &
	load=$!
}

end_load() {
	kill "$load"
	wait "$load" 2> /dev/null || true
	load=
}

acknowledged() { wc -l < "$dir/acknowledged"; }

# progress: the cluster has taken five more actions.
progress() {
	local from
	from=$(acknowledged)
	await "new actions are taken" eval "[ \$(acknowledged) -ge $((from + 5)) ]"
}
nothing_runs() { ! "$rota" action list --state queued,running | grep -q '^[0-9]'; }

summary=()
now=
step() {
	local from=$EPOCHREALTIME
	now=$1
	echo "=== $1"
	"$2"
	summary+=("$(awk -v a="$from" -v b="$EPOCHREALTIME" -v n="$1" 'BEGIN { printf "%6.1f s  %s", b - a, n }')")
}

build_next() {
	[ -n "$next" ] && return
	next=$dir/rota-next
	CGO_ENABLED=0 go build -trimpath -tags nextlevel -ldflags '-s -w -X rota/cmd/internal/cli.Version=next' -o "$next" ./cmd/rota
}

# --- the day

secure_cluster() {
	local name
	cd "$dir"
	"$rota" tls init
	for name in s1 s2 s3 s4 s5 s6; do "$rota" tls issue server "$name"; done
	for name in node-1 node-2; do "$rota" tls issue agent "$name"; done
	"$rota" tls issue operator alice
	(umask 077 && head -c 32 /dev/urandom | base64 > pki/gossip.key)
	cd - > /dev/null
	export ROTA_CA=$dir/pki/ca.pem ROTA_CERT=$dir/pki/alice.pem ROTA_KEY=$dir/pki/alice-key.pem
	servers 1 2 3
	for name in s1 s2 s3 s4 s5 s6 node-1 node-2; do install_files "$name" ca.pem "$name.pem" "$name-key.pem" gossip.key; done
	for name in s1 s2 s3; do server "$name" --bootstrap "s1=$(api s1),s2=$(api s2),s3=$(api s3)"; done
	await "the cluster is founded" healthy
	agent node-1
	agent node-2
	printf 'in *\n  action read submit\n' > "$dir/load.policy"
	"$rota" token bootstrap > /dev/null
	"$rota" acl policy put load "$dir/load.policy"
	(umask 077 && "$rota" token create --policy load --ttl 24h -o json | sed -n 's/.*"secret": *"\([^"]*\)".*/\1/p' > "$dir/token")
	await "both nodes are there" eval '[ $("$rota" node list | grep -c "^node-") = 2 ]'
	# The probe of a pod has the certificate of its agent.
	ROTA_CERT=$dir/pki/node-1.pem ROTA_KEY=$dir/pki/node-1-key.pem "$rota" operator ready --addr "127.0.0.1:$(($(port node-1) + 2))"
	touch "$dir/acknowledged" "$dir/witness"
	begin_load "$ROTA_ADDR"
	progress
}

# A machine dies and is replaced: the new server joins, and autopilot does the rest.
replace_server() {
	stop s1 KILL
	server s4
	servers 2 3 4
	await "s4 has joined" "$rota" operator raft join s4 "$(api s4)"
	await "autopilot has replaced s1" eval 'no_member s1 && has_voters 3 && healthy'
	"$rota" operator autopilot state
	end_load
	begin_load "$ROTA_ADDR"
	progress
	await "all states are equal" same_state
}

rotate_certificates() {
	local name
	"$rota" tls renew s2 s3 s4 node-1 node-2 --lifetime 2160h --dir "$dir/pki"
	for name in s2 s3 s4 node-1 node-2; do install_files "$name" "$name.pem" "$name-key.pem"; done
	progress
	"$rota" tls show --dir "$dir/pki" --expires-within 720h
}

rotate_authority() {
	local name all=(s2 s3 s4 s5 s6 node-1 node-2)
	mkdir "$dir/stolen"
	cp -p "$dir/pki/alice.pem" "$dir/pki/alice-key.pem" "$dir/stolen"
	"$rota" tls ca add --dir "$dir/pki"
	for name in "${all[@]}"; do install_files "$name" ca.pem; done
	progress
	"$rota" tls ca use --dir "$dir/pki"
	fails "$rota" tls ca remove --dir "$dir/pki"
	"$rota" tls renew --all --dir "$dir/pki" > /dev/null
	for name in "${all[@]}"; do install_files "$name" "$name.pem" "$name-key.pem"; done
	progress
	"$rota" tls ca remove --dir "$dir/pki"
	for name in "${all[@]}"; do install_files "$name" ca.pem; done
	progress
	fails "$rota" operator status --cert "$dir/stolen/alice.pem" --key "$dir/stolen/alice-key.pem"
	# A restart needs the new files only.
	stop s2
	server s2
	await "s2 is back" healthy
	progress
}

rotate_gossip_key() {
	local old new
	old=$("$rota" operator keyring list | awk 'NR == 2 { print $1 }')
	fails "$rota" operator keyring remove "$old"
	"$rota" operator keyring install > "$dir/keys"
	new=$(awk -v old="$old" 'NR > 1 && $1 != old { print $1 }' "$dir/keys")
	"$rota" operator keyring use "$new"
	"$rota" operator keyring remove "$old"
	[ "$("$rota" operator keyring list | awk 'NR > 1 { print $1 }')" = "$new" ]
	cp -p "$dir/s2/gossip.key" "$dir/pki/gossip.key"
	for name in s5 s6; do install_files "$name" gossip.key; done
	progress
}

back_up() {
	progress
	tail -n 1 "$dir/acknowledged" > "$dir/last"
	"$rota" operator snapshot save "$dir/rota.backup"
	"$rota" operator snapshot inspect "$dir/rota.backup" > "$dir/inspected"
	head -n 10 "$dir/inspected"
}

# Elsewhere: a new cluster of one server, with an authority of its own.
restore_elsewhere() {
	(
		cd "$dir"
		"$rota" tls init --dir other
		"$rota" tls issue server s9 --dir other
		"$rota" tls issue operator bob --dir other
		"$rota" server --id s9 --data-dir other/data --listen "$(api s9)" --gossip "" --bootstrap "s9=$(api s9)" \
			--ca other/ca.pem --cert other/s9.pem --key other/s9-key.pem > other.log 2>&1 &
		elsewhere=$!
		trap 'kill -9 $elsewhere 2> /dev/null' EXIT
		export ROTA_ADDR ROTA_CA=other/ca.pem ROTA_CERT=other/bob.pem ROTA_KEY=other/bob-key.pem
		ROTA_ADDR=$(api s9)
		await "the other cluster is founded" healthy
		"$rota" operator snapshot restore rota.backup
		"$rota" action get "$(cat last)" > /dev/null
		"$rota" operator status | grep restored
	)
}

# Two of three machines burn down. Whatever only they had would be lost, so the load
# pauses until the third has everything; only then must nothing be missing.
lose_quorum() {
	end_load
	await "what runs has ended" nothing_runs
	await "all states are equal" same_state
	stop s3 KILL
	stop s4 KILL
	rm -rf "$dir/s3/data" "$dir/s4/data"
	fails "$rota" operator raft list-peers --request-timeout 2s
}

recover_quorum() {
	local from=$EPOCHREALTIME
	stop s2
	servers 2
	fails "$rota" operator recover --data "$dir/s2/data" --voters "s2=$(api s2)" # shows how far it reached
	cat "$dir/fails.out"
	"$rota" operator recover --data "$dir/s2/data" --voters "s2=$(api s2)" --yes
	server s2
	await "s2 leads alone" healthy
	begin_load "$ROTA_ADDR"
	progress
	awk -v a="$from" -v b="$EPOCHREALTIME" 'BEGIN { printf "decides again after %.1f s\n", b - a }'
	server s5
	server s6
	await "s5 has joined" "$rota" operator raft join s5 "$(api s5)"
	await "s6 has joined" "$rota" operator raft join s6 "$(api s6)"
	await "all three vote" eval 'healthy && has_voters 3'
	servers 2 5 6
	await "all states are equal" same_state
}

# restart_with BINARY NAME...: one by one, each when the one before is well.
restart_with() {
	local binary=$1 name
	shift
	for name in "$@"; do
		stop "$name"
		release[$name]=$binary
		server "$name"
		await "$name is well" eval 'healthy && has_voters 3'
		await "all states are equal" same_state
		progress
	done
}

upgrade_and_roll_back() {
	restart_with "$next" s2 s5 s6
	"$rota" operator upgrade status
	restart_with "$rota" s6 s2 s5
	fails "$rota" operator upgrade activate
}

upgrade_and_activate() {
	restart_with "$next" s2
	fails "$rota" operator upgrade activate --yes 4
	restart_with "$next" s5 s6
	"$rota" operator upgrade activate
	"$rota" operator upgrade activate --yes
	"$rota" operator upgrade status
	progress
}

is_empty() { "$rota" node get node-2 | awk '$1 == "running" { running = $2 } END { exit running != 0 }'; }

drain_and_remove_node() {
	"$rota" node drain node-2
	await "node-2 is empty" is_empty
	stop node-2
	await "node-2 can be removed" "$rota" node remove node-2
	fails "$rota" node get node-2
	progress
}

debug_bundle() {
	"$rota" operator debug --file "$dir/rota-debug.tgz" --agents "127.0.0.1:$(($(port node-1) + 2))"
	[ "$(tar -tzf "$dir/rota-debug.tgz" | grep -c 'readyz.json')" = 4 ]
	! tar -xzOf "$dir/rota-debug.tgz" | grep -aq -e 'PRIVATE KEY' -e "$(cat "$dir/s2/gossip.key")" -e "$(cat "$dir/token")"
}

# Every acknowledged action has ended, and the command of each ran once; that of an
# action that did not succeed, at most once.
everything_ended_once() {
	end_load
	await "what runs has ended" nothing_runs
	"$rota" action list --limit 0 | awk '/^[0-9]/ { print $1, $2 }' > "$dir/ends"
	awk -v dir="$dir" '
		FILENAME ~ /witness$/ { ran[$1]++; next }
		FILENAME ~ /ends$/ { state[$1] = $2; next }
		{
			n++
			if (!($1 in state)) { print "action " $1 " was acknowledged and is gone"; bad++ }
			else if (state[$1] == "succeeded") { good++; if (ran[$1] != 1) { print "action " $1 " ran " ran[$1] + 0 " times"; bad++ } }
			else if (ran[$1] > 1) { print "action " $1 " ran " ran[$1] " times"; bad++ }
		}
		END {
			for (id in ran) if (ran[id] > 1) { print "action " id " ran " ran[id] " times"; bad++ }
			printf "%d actions were acknowledged, %d of them succeeded\n", n, good
			if (n < 100) { print "too few to say anything"; bad++ }
			if (good < 0.9 * n) { print "too few succeeded"; bad++ }
			exit bad > 0
		}' "$dir/witness" "$dir/ends" "$dir/acknowledged"
}

started=$SECONDS
step "build the next release" build_next
step "found a secured cluster of three, with tokens and load" secure_cluster
step "replace a server that died" replace_server
step "rotate the certificates" rotate_certificates
step "rotate the certificate authority" rotate_authority
step "rotate the gossip key" rotate_gossip_key
step "back up" back_up
step "restore elsewhere" restore_elsewhere
step "lose the majority" lose_quorum
step "recover from one server" recover_quorum
step "upgrade under load, and roll back" upgrade_and_roll_back
step "upgrade again, and activate" upgrade_and_activate
step "drain and remove a node" drain_and_remove_node
step "collect a debug bundle" debug_bundle
step "every acknowledged action ended exactly once" everything_ended_once
printf '%s\n' '=== the day' "${summary[@]}"
echo "$((SECONDS - started)) s in all"
