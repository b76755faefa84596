// Uses sandboxes of rota with the official SDK of E2B, unmodified. The arguments are the URL of a
// server and a key, which is all that the SDK is told.
import assert from "node:assert/strict";
import { Sandbox, FileNotFoundError, CommandExitError, InvalidArgumentError, SandboxError, SandboxNotFoundError, TimeoutError } from "e2b";

const [url, apiKey] = process.argv.slice(2);
const patience = 120_000;
const at = { apiUrl: url, sandboxUrl: url, apiKey, requestTimeoutMs: patience };
const run = "run-" + Math.random().toString(36).slice(2);
let sandbox;

const until = async (what, met) => {
  for (const end = Date.now() + patience; !(await met()); ) {
    assert.ok(Date.now() < end, `${what} in time`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
};

async function create() {
  sandbox = await Sandbox.create({ ...at, metadata: { run, owner: "alice & bob=1" }, envs: { GREETING: "hello" }, timeoutMs: 600_000 });
  assert.match(sandbox.sandboxId, /^t\d+$/);
  assert.equal(await sandbox.isRunning(), true);
  const info = await sandbox.getInfo();
  assert.equal(info.templateId, "base");
  assert.deepEqual(info.metadata, { run, owner: "alice & bob=1" });
  assert.equal(info.state, "running");
  const left = info.endAt - Date.now();
  assert.ok(left > 300_000 && left < 700_000, `${left} ms are left`);
  await assert.rejects(Sandbox.create("no-such-template", at), /no template "no-such-template"/);
  await assert.rejects(Sandbox.create({ ...at, allowInternetAccess: false }), /rota does not keep a sandbox from the network/);
}

async function foreground() {
  const result = await sandbox.commands.run('echo "$GREETING $WHOM"; echo err >&2; pwd; echo kept > kept', { envs: { WHOM: "world" } });
  assert.equal(result.exitCode, 0);
  assert.match(result.stdout, /^hello world\n/);
  assert.equal(result.stderr, "err\n");
  assert.equal((await sandbox.commands.run("cat kept")).stdout, "kept\n");
  assert.match((await sandbox.commands.run("pwd", { cwd: "/home/user/deep/down" })).stdout, /\/deep\/down\n$/);
  await assert.rejects(sandbox.commands.run("echo half; exit 7"), (err) =>
    err instanceof CommandExitError && err.exitCode === 7 && err.stdout === "half\n");
  await assert.rejects(sandbox.commands.run("true", { user: "root" }), InvalidArgumentError);
}

async function streaming() {
  const long = await sandbox.commands.run("head -c 3000000 /dev/zero | tr '\\0' x");
  assert.equal(long.stdout.length, 3_000_000);
  let seen = "";
  const handle = await sandbox.commands.run("echo first; while [ ! -e go ]; do sleep 0.05; done; echo second", {
    background: true, timeoutMs: 0, onStdout: (data) => void (seen += data),
  });
  await until("the first line", () => seen === "first\n");
  await sandbox.files.write("go", "");
  assert.equal((await handle.wait()).stdout, "first\nsecond\n");
}

async function background() {
  const handle = await sandbox.commands.run("echo up; exec sleep 600", { background: true, timeoutMs: 0 });
  const listed = await sandbox.commands.list();
  assert.deepEqual(listed.map((p) => [p.pid, p.cmd, p.args.at(-1)]), [[handle.pid, "/bin/bash", "echo up; exec sleep 600"]]);
  await handle.disconnect();
  let seen = "";
  const again = await sandbox.commands.connect(handle.pid, { timeoutMs: 0, onStdout: (data) => void (seen += data) });
  await until("the output", () => seen === "up\n");
  assert.equal(await again.kill(), true);
  await assert.rejects(again.wait(), (err) => err instanceof CommandExitError && err.exitCode === -1 && /killed/.test(err.error));
  await until("the end", async () => (await sandbox.commands.list()).length === 0);
  assert.equal(await sandbox.commands.kill(handle.pid), false);
}

async function measuring() {
  const handle = await sandbox.commands.run("while :; do :; done", { background: true, timeoutMs: 0 });
  await until("some use", async () => (await sandbox.getMetrics())[0].cpuUsedPct > 0);
  const [now, ...others] = await sandbox.getMetrics({ start: new Date(Date.now() - 60_000) });
  assert.deepEqual([others, now.cpuCount], [[], 1]);
  assert.ok(Math.abs(now.timestamp - Date.now()) < patience && now.memUsed > 0 && now.memUsed < now.memTotal && now.diskUsed < now.diskTotal, JSON.stringify(now));
  assert.deepEqual(await sandbox.getMetrics({ end: new Date(Date.now() - 60_000) }), []);
  assert.equal(await handle.kill(), true);
  await until("the end", async () => (await sandbox.commands.list()).length === 0);
}

async function stdin() {
  const handle = await sandbox.commands.run("cat; echo end", { background: true, stdin: true, timeoutMs: 0 });
  const large = "0123456789abcdef".repeat(20_000);
  await handle.sendStdin("one\n");
  await sandbox.commands.sendStdin(handle.pid, large + "\n");
  await handle.closeStdin();
  assert.equal((await handle.wait()).stdout, `one\n${large}\nend\n`);
}

async function terminal() {
  let seen = "";
  const decoder = new TextDecoder();
  const pty = await sandbox.pty.create({ cols: 80, rows: 24, timeoutMs: 0, onData: (data) => void (seen += decoder.decode(data, { stream: true })) });
  const send = (text) => sandbox.pty.sendInput(pty.pid, new TextEncoder().encode(text));
  await send("stty size\n");
  await until("the size", () => seen.includes("24 80"));
  await sandbox.pty.resize(pty.pid, { cols: 120, rows: 40 });
  await send("stty size\n");
  await until("the other size", () => seen.includes("40 120"));
  await send("exit 0\n");
  assert.equal((await pty.wait()).exitCode, 0);
}

async function tooLong() {
  await assert.rejects(sandbox.commands.run("sleep 600", { timeoutMs: 1500 }), TimeoutError);
  await until("the end", async () => (await sandbox.commands.list()).length === 0);
}

async function files() {
  const { files } = sandbox;
  const info = await files.write("/home/user/src/main.txt", "Hällo\n");
  assert.deepEqual([info.path, info.name, info.type], ["/home/user/src/main.txt", "main.txt", "file"]);
  assert.equal(await files.read("src/main.txt"), "Hällo\n");
  assert.equal((await sandbox.commands.run("cat src/main.txt")).stdout, "Hällo\n");
  const bytes = new Uint8Array(3_500_000).map((_, i) => (i * 7919) >> 3);
  await files.write("big", bytes.buffer);
  assert.deepEqual(await files.read("big", { format: "bytes" }), bytes);
  await files.write("packed", bytes.buffer, { gzip: true });
  await files.write("streamed", new Blob([bytes]).stream());
  for (const name of ["packed", "streamed"]) {
    const chunks = [];
    for await (const chunk of await files.read(name, { format: "stream" })) chunks.push(chunk);
    assert.deepEqual(new Uint8Array(Buffer.concat(chunks)), bytes);
  }
  const many = await files.write([{ path: "many/a", data: "a" }, { path: 'many/b "quoted"', data: "" }]);
  assert.deepEqual(many.map((f) => f.path), ["/home/user/many/a", '/home/user/many/b "quoted"']);
  assert.equal(await files.read('many/b "quoted"'), "");
  assert.deepEqual((await files.list("many")).map((e) => [e.name, e.type, e.size]), [["a", "file", 1], ['b "quoted"', "file", 0]]);
  assert.ok((await files.list("/home/user", { depth: 2 })).some((e) => e.path === "/home/user/many/a"));
  assert.equal((await files.list(".")).find((e) => e.name === "many").type, "dir");
  assert.equal(await files.makeDir("many"), false);
  assert.equal(await files.makeDir("new/er"), true);
  assert.equal(await files.exists("new/er"), true);
  assert.equal((await files.getInfo("src/main.txt")).permissions, "-rw-r--r--");
  await sandbox.commands.run("ln -s many link; ln -s src/main.txt text; ln -s /etc/passwd out; ln -s nowhere lost; touch $'\\xff'");
  const types = Object.fromEntries((await files.list(".")).map((e) => [e.name, e.type]));
  assert.deepEqual([types.link, types.text, types.out, types.lost, types["\ufffd"]], ["dir", "file", "symlink", "symlink", "file"]);
  assert.deepEqual([(await files.getInfo("link")).type, (await files.getInfo("out")).symlinkTarget], ["dir", "/etc/passwd"]);
  assert.equal(await files.makeDir("link"), false);
  assert.equal((await files.list("link")).length, 2);
  await assert.rejects(files.read("out"), InvalidArgumentError);
  assert.equal((await files.rename("src/main.txt", "moved/there.txt")).path, "/home/user/moved/there.txt");
  assert.equal(await files.exists("src/main.txt"), false);
  await files.remove("moved");
  assert.equal(await files.exists("moved"), false);
  await files.remove("moved");
  await assert.rejects(files.list("big"), InvalidArgumentError);
  await assert.rejects(files.read("moved/there.txt"), FileNotFoundError);
  await assert.rejects(files.read("many"), InvalidArgumentError);
  await assert.rejects(files.read("/etc/passwd"), /outside of \/home\/user/);
  await assert.rejects(files.read("../../etc/passwd"), /leads out of/);
  await assert.rejects(files.write("x", "y", { metadata: { a: "b" } }), /metadata/);
}

async function watching() {
  const seen = [];
  const handle = await sandbox.files.watchDir("many", (event) => void seen.push(`${event.type} ${event.name}`), { recursive: true, timeoutMs: 0 });
  await sandbox.commands.run("mkdir many/sub && echo 1 > many/sub/c && rm many/a");
  const wanted = ["create sub", "create sub/c", "write sub/c", "remove a"];
  await until("the events", () => wanted.every((event) => seen.includes(event)));
  await handle.stop();
  await assert.rejects(sandbox.files.watchDir("nowhere", () => {}), FileNotFoundError);
}

async function listing() {
  const others = [];
  for (const owner of ["b", "c"]) others.push(await Sandbox.create({ ...at, metadata: { run, owner } }));
  const paginator = Sandbox.list({ ...at, query: { metadata: { run } }, limit: 2 });
  const pages = [];
  while (paginator.hasNext) pages.push(await paginator.nextItems());
  assert.deepEqual(pages.flat().map((s) => s.sandboxId), [...others.map((s) => s.sandboxId).reverse(), sandbox.sandboxId]);
  const one = await Sandbox.list({ ...at, query: { metadata: { run, owner: "alice & bob=1" }, state: ["running"] } }).nextItems();
  assert.deepEqual(one.map((s) => s.sandboxId), [sandbox.sandboxId]);
  assert.deepEqual(await Sandbox.list({ ...at, query: { state: ["paused"] } }).nextItems(), []);
  for (const other of others) assert.equal(await other.kill(), true);
}

async function connecting() {
  const again = await Sandbox.connect(sandbox.sandboxId, at);
  assert.equal((await again.commands.run("cat kept")).stdout, "kept\n");
  const before = (await sandbox.getInfo()).endAt;
  assert.ok(before - Date.now() > 200_000, "connecting does not shorten the time");
  await assert.rejects(Sandbox.connect("t999999", at), SandboxNotFoundError);
}

async function pausing() {
  const loop = "i=0; while true; do i=$((i+1)); echo $i > ticks.new; mv ticks.new ticks; done";
  const handle = await sandbox.commands.run(loop, { background: true, timeoutMs: 0 });
  await until("the first tick", () => sandbox.files.exists("ticks"));
  const ticks = async () => Number(await sandbox.files.read("ticks"));
  try {
    assert.equal(await sandbox.pause(), true);
  } catch (err) {
    assert.match(err.message, /cannot freeze/); // this machine has no cgroups for that
    assert.equal(await handle.kill(), true);
    await until("the end", async () => (await sandbox.commands.list()).length === 0);
    assert.equal(await sandbox.pause(), true);
  }
  assert.equal(await sandbox.pause(), false);
  assert.equal((await sandbox.getInfo()).state, "paused");
  const paused = await Sandbox.list({ ...at, query: { metadata: { run }, state: ["paused"] } }).nextItems();
  assert.deepEqual(paused.map((one) => one.sandboxId), [sandbox.sandboxId]);
  const before = await ticks();
  await new Promise((resolve) => setTimeout(resolve, 200));
  assert.equal(await ticks(), before, "a paused sandbox stands still");
  await Sandbox.connect(sandbox.sandboxId, { ...at, timeoutMs: 600_000 });
  assert.equal((await sandbox.getInfo()).state, "running");
  if ((await sandbox.commands.list()).length > 0) {
    await until("it goes on", async () => (await ticks()) > before);
    assert.equal(await handle.kill(), true);
  }
  const brief = await Sandbox.create({ ...at, timeoutMs: 600_000, lifecycle: { onTimeout: "pause", autoResume: true } });
  await brief.setTimeout(1_000);
  await until("its pause", async () => (await brief.getInfo()).state === "paused");
  assert.equal(await brief.isRunning(), false);
  assert.equal((await brief.commands.run("echo on")).stdout, "on\n");
  assert.equal(await brief.isRunning(), true);
  assert.equal(await brief.kill(), true);
}

async function snapshots() {
  const first = await Sandbox.create({ ...at, timeoutMs: 600_000 });
  await first.files.write("note", "before");
  const kept = await first.createSnapshot({ name: "base" });
  assert.deepEqual(kept.names, ["base"]);
  await first.files.write("note", "after");
  assert.deepEqual((await first.listSnapshots().nextItems()).map((one) => one.snapshotId), [kept.snapshotId]);
  const second = await Sandbox.create(kept.snapshotId, { ...at, timeoutMs: 600_000 });
  assert.equal(await second.files.read("note"), "before");
  assert.equal(await first.files.read("note"), "after");
  assert.equal(await Sandbox.deleteSnapshot(kept.snapshotId, at), true);
  await until("it is deleted", async () => !(await Sandbox.deleteSnapshot(kept.snapshotId, at)));
  assert.equal(await second.files.read("note"), "before");
  await assert.rejects(Sandbox.create(kept.snapshotId, { ...at }));
  await first.kill();
  await second.kill();
}

async function forking() {
  const first = await Sandbox.create({ ...at, timeoutMs: 600_000, envs: { COLOUR: "blue" }, metadata: { run: "9" } });
  await first.files.write("note", "before");
  const forks = await Sandbox.fork(first.sandboxId, { ...at, count: 3, timeoutMs: 600_000 });
  await first.files.write("note", "after");
  assert.equal(forks.length, 3);
  for (const [i, fork] of forks.entries()) {
    assert.equal((await fork.commands.run("cat note; echo $COLOUR")).stdout, "beforeblue\n");
    assert.deepEqual((await fork.getInfo()).metadata, { run: "9" });
    await fork.files.write("note", `of fork ${i}`);
  }
  assert.equal(await forks[0].files.read("note"), "of fork 0");
  assert.equal(await first.files.read("note"), "after");
  const handle = await first.commands.run("sleep 600", { background: true, timeoutMs: 0 });
  await assert.rejects(first.fork(), /runs|running/);
  await handle.kill();
  await until("its snapshots are gone", async () => (await first.listSnapshots().nextItems()).length === 0);
  for (const one of [first, ...forks]) {
    await one.kill();
  }
}

async function timeout() {
  const short = await Sandbox.create({ ...at, timeoutMs: 600_000 });
  const handle = await short.commands.run("sleep 600", { background: true, timeoutMs: 0 });
  await short.setTimeout(1000);
  await assert.rejects(handle.wait(), TimeoutError);
  await until("the end", async () => !(await short.isRunning()));
  await assert.rejects(short.commands.run("true"), SandboxNotFoundError);
  await assert.rejects(short.files.write("x", ""), TimeoutError);
  await assert.rejects(short.getInfo(), SandboxNotFoundError);
}

async function kill() {
  assert.equal(await sandbox.kill(), true);
  assert.equal(await sandbox.kill(), false);
  await until("the end", async () => !(await sandbox.isRunning()));
  await assert.rejects(sandbox.setTimeout(1000), SandboxNotFoundError);
}

for (const part of [create, foreground, streaming, background, measuring, stdin, terminal, tooLong, files, watching, listing, connecting, pausing, snapshots, forking, timeout, kill]) {
  await part();
  console.log(part.name);
}
process.exit(0); // the pools of the SDK stay open
