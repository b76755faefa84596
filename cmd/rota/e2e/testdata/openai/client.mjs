// Streams through a gateway with the official client, unmodified. The arguments are the URL of the
// gateway and the API key, which names a trajectory. Each answer is asked for at once, too: the
// simulated engine gives the same one.
import assert from "node:assert/strict";
import OpenAI from "openai";

const [baseURL, apiKey] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey });
const model = (await client.models.list()).data[0].id;

const ask = (content, tokens) => [{ role: "user", content: `${content} simulated:tokens=${tokens}` }];
const parameters = { type: "object", properties: { simulated: { type: "string" } } };

async function chat() {
  const request = { model, messages: ask("Tell me a story.", 40) };
  const whole = (await client.chat.completions.create(request)).choices[0].message.content;
  let text = "", usage;
  for await (const chunk of await client.chat.completions.create({ ...request, stream: true, stream_options: { include_usage: true } })) {
    text += chunk.choices[0]?.delta.content ?? "";
    usage = chunk.usage ?? usage;
  }
  assert.equal(text, whole);
  assert.equal(usage.completion_tokens, 40);
}

async function chatWithTools() {
  const tools = [{ type: "function", function: { name: "search", parameters } }];
  const messages = ask("Where is it?", 20);
  const runner = client.chat.completions.stream({ model, messages, tools, tool_choice: "required" });
  const message = await runner.finalMessage();
  const [call] = message.tool_calls;
  assert.equal(call.function.name, "search");
  assert.match(JSON.parse(call.function.arguments).simulated, /^( sim\w+){20}$/);
  assert.equal((await runner.finalChatCompletion()).choices[0].finish_reason, "tool_calls");

  messages.push(message, { role: "tool", tool_call_id: call.id, content: "In the attic. simulated:tokens=8" });
  const answer = client.chat.completions.stream({ model, messages, tools });
  assert.match(await answer.finalContent(), /^( sim\w+){8}$/);
}

async function completion() {
  const request = { model, prompt: "Once upon a time", max_tokens: 30 };
  const whole = (await client.completions.create(request)).choices[0].text;
  let text = "";
  for await (const chunk of await client.completions.create({ ...request, stream: true })) {
    text += chunk.choices[0]?.text ?? "";
  }
  assert.equal(text, whole);
}

async function response() {
  const request = { model, instructions: "Be brief.", input: ask("Tell me a story.", 40) };
  const whole = (await client.responses.create(request)).output_text;
  assert.match(whole, /^( sim\w+){40}$/);
  const kinds = [];
  let text = "";
  for await (const event of await client.responses.create({ ...request, stream: true })) {
    kinds.push(event.type);
    if (event.type === "response.output_text.delta") text += event.delta;
  }
  assert.equal(text, whole);
  assert.equal(kinds[0], "response.created");
  assert.equal(kinds.at(-1), "response.completed");
}

async function responseWithTools() {
  const tools = [{ type: "function", name: "search", parameters, strict: false }];
  const input = ask("Where is it?", 20);
  const first = await client.responses.stream({ model, input, tools, tool_choice: "required" }).finalResponse();
  const [call] = first.output;
  assert.equal(call.name, "search");
  assert.match(JSON.parse(call.arguments).simulated, /^( sim\w+){20}$/);

  input.push(call, { type: "function_call_output", call_id: call.call_id, output: "In the attic. simulated:tokens=8" });
  const second = await client.responses.stream({ model, input, tools }).finalResponse();
  assert.match(second.output[0].content[0].text, /^( sim\w+){8}$/);
  assert.equal(second.usage.output_tokens, 8);
}

async function refusal() {
  const other = new OpenAI({ baseURL, apiKey: "trajectory-999999" });
  await assert.rejects(other.chat.completions.create({ model, messages: ask("?", 1) }), OpenAI.NotFoundError);
}

// The worker of the trajectory is killed as soon as it is known that the stream is at its half.
async function killedWorker() {
  const tokens = 300;
  let text = "", half = false;
  for await (const chunk of await client.chat.completions.create({ model, messages: ask("A long one.", tokens), stream: true })) {
    text += chunk.choices[0]?.delta.content ?? "";
    if (!half && text.length > 8 * tokens / 2) {
      half = true;
      console.log("half");
    }
  }
  assert.equal(text.length, 8 * tokens);
  const whole = (await client.chat.completions.create({ model, messages: ask("A long one.", tokens) })).choices[0].message.content;
  assert.equal(text, whole);
}

for (const part of [chat, chatWithTools, completion, response, responseWithTools, refusal, killedWorker]) {
  await part();
  console.log(part.name);
}
