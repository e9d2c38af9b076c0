// What a client of the eras before 2026-07-28 is promised, with the TypeScript
// SDK v1 and the server in testdata/everything:
//
//   node checks1.mjs stdio COMMAND [WORD...]
//   node checks1.mjs http URL
//
// The checks are the same over both. Where a promise is kept by other means on
// one of them, the check looks at those.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import * as T from '@modelcontextprotocol/sdk/types.js';
import { assert, bigNote, events, sleep, textOf } from './common.mjs';
import { Process, closes, difficult, rejected, run, until } from './suite.mjs';

const [over, ...target] = process.argv.slice(2);
const http = over === 'http';
const endpoint = http ? new URL(target[0]) : undefined;

// A connection is one client, and what it was told and asked.
class Connection {
  heard = []; // notifications that are not progress, in order
  asked = []; // requests of the server
  errors = [];
  wire = []; // all messages, in order, as they came
  arrived = events(); // any message
  roots = [{ uri: 'file:///tmp/a%20root', name: 'first root' }];
  sample = async () => ({ model: 'a-model', role: 'assistant', stopReason: 'endTurn', content: { type: 'text', text: 'sampled ✓ \u2028' } });
  elicit = async () => ({ action: 'accept', content: { name: 'Ünïcode 🚀' } });
  #raw = new Map(); // what waits for answers that the SDK knows nothing of

  static able = { sampling: {}, roots: { listChanged: true }, elicitation: { form: {}, url: {} }, experimental: { checks: {} } };

  async open(capabilities = Connection.able) {
    const streams = events();
    this.transport = http
      ? new StreamableHTTPClientTransport(endpoint, {
        fetch: async (to, init) => {
          const response = await fetch(to, init);
          if (init.method === 'GET' && response.ok) streams.add();
          return response;
        },
      })
      : new StdioClientTransport({ command: target[0], args: target.slice(1), stderr: 'inherit' });
    this.client = new Client({ name: 'checks', title: 'Checks', version: '1.0.0' }, { capabilities });
    const answer = (schema, able, f) => able && this.client.setRequestHandler(schema, request => {
      this.asked.push(request);
      return f(request);
    });
    answer(T.ListRootsRequestSchema, capabilities.roots, () => ({ roots: this.roots }));
    answer(T.CreateMessageRequestSchema, capabilities.sampling, request => this.sample(request));
    answer(T.ElicitRequestSchema, capabilities.elicitation, request => this.elicit(request));
    this.client.fallbackNotificationHandler = async note => { this.heard.push(note); };
    this.client.onerror = err => this.errors.push(err);
    this.client.onclose = () => { this.closed = true; };
    await this.client.connect(this.transport);
    const onmessage = this.transport.onmessage;
    this.transport.onmessage = (message, extra) => {
      this.wire.push(message);
      const waiting = message.method === undefined && this.#raw.get(message.id);
      if (waiting) {
        this.#raw.delete(message.id);
        waiting(message);
      } else {
        onmessage(message, extra);
      }
      this.arrived.add();
    };
    if (http) await streams.moreThan(0); // else what is told meanwhile is nobody's
    return this;
  }

  // raw sends a message past the SDK and returns the answer as it came.
  raw(message) {
    return new Promise((resolve, reject) => {
      this.#raw.set(message.id, resolve);
      this.transport.send(message).catch(reject);
    });
  }

  call(name, args = {}, options) { return this.client.callTool({ name, arguments: args }, undefined, options); }
  async text(name, args, options) { return textOf(await this.call(name, args, options)); }
  echo(message) { return this.text('echo', { message }); }

  // all is a list to its last page.
  async all(method, schema, member) {
    const found = [];
    let cursor;
    do {
      const page = await this.client.request({ method, params: cursor ? { cursor } : {} }, schema);
      found.push(...page[member]);
      cursor = page.nextCursor;
    } while (cursor);
    return found;
  }
  tools() { return this.all('tools/list', T.ListToolsResultSchema, 'tools'); }
  resources() { return this.all('resources/list', T.ListResourcesResultSchema, 'resources'); }
  promptList() { return this.all('prompts/list', T.ListPromptsResultSchema, 'prompts'); }

  progress(token) { return this.wire.filter(m => m.method === 'notifications/progress' && m.params.progressToken === token); }

  // long begins an operation that takes a minute. It returns when that is under
  // way.
  async long() {
    const stop = new AbortController();
    const under = events();
    const ended = rejected(this.call('trigger-long-running-operation', { duration: 60, steps: 1200 }, { signal: stop.signal, onprogress: () => under.add() }), 'the operation');
    await under.moreThan(1);
    return { stop: () => { stop.abort('enough'); return ended; } };
  }
  running() { return this.text('count-long-running-operations').then(Number); }
}

const connect = capabilities => new Connection().open(capabilities);
const link = process => process.ask({ jsonrpc: '2.0', id: 0, method: 'initialize', params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'lines', version: '1' } } });
const post = (body, headers = {}) => fetch(endpoint, {
  method: 'POST', body: typeof body === 'string' ? body : JSON.stringify(body),
  headers: { 'Content-Type': 'application/json', Accept: 'application/json, text/event-stream', ...headers },
});
const status = async response => {
  await response.body?.cancel();
  return response.status;
};
const ping = id => ({ jsonrpc: '2.0', id, method: 'ping' });

let c; // the connection that the checks share

await run({
  async 'initialize'() {
    c = await connect();
    assert.deepEqual(c.client.getServerVersion(), { name: 'everything', version: '1' });
    assert.equal(c.client.getInstructions(), 'Call what you like.');
    for (const capability of ['tools', 'resources', 'prompts', 'logging', 'completions', 'tasks']) {
      assert.ok(c.client.getServerCapabilities()[capability], capability);
    }
  },

  async 'an unknown version is answered with a known one'() {
    const hello = { jsonrpc: '2.0', id: 'v', method: 'initialize', params: { protocolVersion: '1999-01-01', capabilities: {}, clientInfo: { name: 'old', version: '0' } } };
    let answer;
    if (http) {
      answer = await (await post(hello)).json();
    } else {
      const server = new Process(target);
      answer = await server.ask(hello);
      server.end();
      assert.equal(await server.ended, 0);
    }
    assert.equal(answer.id, 'v');
    assert.ok(T.SUPPORTED_PROTOCOL_VERSIONS.includes(answer.result.protocolVersion), JSON.stringify(answer));
  },

  async 'ping'() {
    for (let i = 0; i < 20; i++) await c.client.ping();
  },

  async 'tools/list comes in pages'() {
    const first = await c.client.listTools();
    assert.ok(first.nextCursor, 'there is no second page');
    const tools = await c.tools();
    const names = tools.map(t => t.name);
    assert.equal(new Set(names).size, names.length, 'a tool is there twice');
    assert.ok(names.length > first.tools.length && names.includes('trigger-long-running-operation'), names.join());
    for (const t of tools) assert.equal(t.inputSchema.type, 'object', t.name);
  },

  async 'a call'() {
    assert.equal(await c.echo('hello'), 'Echo: hello');
    assert.equal(await c.text('get-sum', { a: 2, b: 40 }), 'The sum is 42.');
  },

  async 'strings arrive as they were'() {
    for (const s of [...difficult, difficult.join('|')]) assert.equal(await c.echo(s), `Echo: ${s}`);
  },

  async 'numbers arrive as they were'() {
    for (const [a, b] of [[9007199254740991, 0], [0.1, 0.2], [1e-7, 0], [-0, 5], [1e21, 0]]) {
      assert.equal(await c.text('get-sum', { a, b }), `The sum is ${a + b}.`);
    }
  },

  async 'progress, all of it and before the answer'() {
    const from = c.wire.length;
    let told = 0;
    await c.text('trigger-long-running-operation', { duration: 0.4, steps: 8 }, { onprogress: () => told++ });
    assert.ok(told > 0, 'the SDK was told nothing');
    const since = c.wire.slice(from);
    assert.deepEqual(since.slice(0, 8).map(m => [m.method, m.params?.progress, m.params?.total]), [1, 2, 3, 4, 5, 6, 7, 8].map(i => ['notifications/progress', i, 8]));
    assert.ok(since[8]?.result, 'the answer does not follow');
  },

  async 'progress while the call runs'() {
    const { stop } = await c.long();
    await stop();
  },

  async 'progress keeps a call from timing out'() {
    await c.text('trigger-long-running-operation', { duration: 3, steps: 60 }, { timeout: 2000, resetTimeoutOnProgress: true, onprogress() {} });
  },

  async 'a cancelled call ends here and there'() {
    const { stop } = await c.long();
    assert.equal(await c.running(), 1);
    const from = c.wire.length;
    assert.match(String(await stop()), /enough/);
    await until(async () => await c.running() === 0);
    assert.equal(await c.echo('after'), 'Echo: after');
    const answers = c.wire.slice(from).filter(m => m.error || m.result && !m.result.content);
    assert.deepEqual(answers, [], 'what was cancelled was answered');
  },

  async 'cancelling what does not run, and unknown notifications'() {
    for (const requestId of [0, 999999, 'nobody']) await c.client.notification({ method: 'notifications/cancelled', params: { requestId, reason: 'late' } });
    await c.client.notification({ method: 'notifications/unknown', params: { a: 1 } });
    await c.client.ping();
  },

  async 'quick calls overtake a slow one'() {
    const { stop } = await c.long();
    for (let i = 0; i < 10; i++) assert.equal(await c.echo(`quick ${i}`), `Echo: quick ${i}`);
    assert.equal(await c.running(), 1);
    await stop();
  },

  async '50 calls at once'() {
    await Promise.all(Array.from({ length: 50 }, async (_, i) => {
      const message = `${i} ${'x'.repeat(37 * i)} ${i}`;
      assert.equal(await c.echo(message), `Echo: ${message}`);
    }));
  },

  async '50 slow calls at once'() {
    const start = Date.now();
    const from = c.wire.length;
    await Promise.all(Array.from({ length: 50 }, () => c.text('trigger-long-running-operation', { duration: 1, steps: 4 }, { onprogress() {} })));
    assert.ok(Date.now() - start < 15_000, 'they ran one after the other');
    const told = Object.groupBy(c.wire.slice(from).filter(m => m.method === 'notifications/progress'), m => m.params.progressToken);
    assert.deepEqual(Object.values(told).map(notes => notes.map(m => m.params.progress).join()), Array(50).fill('1,2,3,4'));
  },

  async '1 MiB there and back'() {
    const note = bigNote(1 << 20);
    assert.ok(await c.echo(note) === `Echo: ${note}`, 'it is not what it was');
  },

  async '8 MiB there and back'() {
    const note = bigNote(8 << 20);
    assert.ok(await c.echo(note) === `Echo: ${note}`, 'it is not what it was');
  },

  async 'ids come back as they were'() {
    for (const id of ['a string ✓', '', 'a'.repeat(500), '12', 12e6, 0, -7, 2 ** 53 - 1]) {
      assert.deepEqual(await c.raw(ping(id)), { jsonrpc: '2.0', id, result: {} });
    }
  },

  async 'a progress token may be a string'() {
    const answer = await c.raw({
      jsonrpc: '2.0', id: 'token',
      method: 'tools/call', params: { name: 'trigger-long-running-operation', arguments: { duration: 0.1, steps: 3 }, _meta: { progressToken: 'töken <1>', 'example/more': { deep: [1] } } },
    });
    assert.ok(answer.result, JSON.stringify(answer));
    assert.equal(c.progress('töken <1>').length, 3);
    c.errors = c.errors.filter(err => !/töken/.test(err)); // the SDK does not know that token
  },

  async 'errors'() {
    assert.equal((await rejected(c.client.request({ method: 'no/method' }, T.EmptyResultSchema), 'an unknown method')).code, -32601);
    assert.equal((await rejected(c.call('no-such-tool'), 'an unknown tool')).code, -32602);
    assert.equal((await c.call('get-sum', { a: 'x' })).isError, true, 'wrong arguments were no error');
    assert.ok((await c.raw({ jsonrpc: '2.0', id: 'none', method: 'tools/call' })).error, 'a call of nothing was no error');
    await c.client.ping();
  },

  async 'structured content'() {
    await c.tools(); // the SDK holds results against what was listed
    const result = await c.call('get-structured-content', { location: 'Zürich' });
    assert.deepEqual(result.structuredContent, { temperature: 33.5, conditions: 'Cloudy in Zürich' });
  },

  async 'content of all kinds'() {
    const image = (await c.call('get-tiny-image')).content.find(part => part.type === 'image');
    assert.equal(image.mimeType, 'image/png');
    assert.equal(Buffer.from(image.data, 'base64').subarray(1, 4).toString(), 'PNG');
    const links = (await c.call('get-resource-links', { count: 4 })).content;
    assert.deepEqual(links.map(part => [part.type, part.uri]), [1, 2, 3, 4].map(i => ['resource_link', `demo://resource/dynamic/text/${i}`]));
    const [embedded] = (await c.call('get-resource-reference', { resourceType: 'Blob', resourceId: 7 })).content;
    assert.equal(embedded.type, 'resource');
    assert.equal(Buffer.from(embedded.resource.blob, 'base64').toString(), 'This is demo://resource/dynamic/blob/7');
  },

  async 'resources and templates'() {
    const resources = await c.resources();
    assert.equal(resources.length, 7);
    for (const { uri, name } of resources) assert.equal((await c.client.readResource({ uri })).contents[0].text, `This is ${name}.`);
    const templates = await c.all('resources/templates/list', T.ListResourceTemplatesResultSchema, 'resourceTemplates');
    assert.deepEqual(templates.map(t => t.uriTemplate).sort(), ['demo://resource/dynamic/blob/{id}', 'demo://resource/dynamic/text/{id}']);
    assert.equal((await c.client.readResource({ uri: 'demo://resource/dynamic/text/1' })).contents[0].text, 'This is demo://resource/dynamic/text/1');
    assert.ok((await c.client.readResource({ uri: 'demo://resource/dynamic/blob/1' })).contents[0].blob);
    assert.equal((await rejected(c.client.readResource({ uri: 'demo://none' }), 'a missing resource')).code, -32002);
  },

  async 'subscribing and unsubscribing'() {
    const [one, two] = (await c.resources()).map(r => r.uri);
    const updates = uri => c.heard.filter(n => n.method === 'notifications/resources/updated' && n.params.uri === uri).length;
    const more = async uri => {
      const before = updates(uri);
      await until(() => updates(uri) > before);
    };
    await c.client.subscribeResource({ uri: one });
    await c.call('toggle-subscriber-updates');
    await more(one);
    await more(one);
    await c.client.unsubscribeResource({ uri: one });
    await c.client.subscribeResource({ uri: two });
    await more(two); // what comes behind it was told after the first was given up
    const before = updates(one);
    await more(two);
    await more(two);
    assert.equal(updates(one), before, 'updates after unsubscribing');
    await c.call('toggle-subscriber-updates');
    await c.client.unsubscribeResource({ uri: two });
    assert.ok(c.heard.every(n => n.method !== 'notifications/resources/updated' || [one, two].includes(n.params.uri)), 'updates nobody subscribed to');
  },

  async 'prompts'() {
    assert.deepEqual((await c.promptList()).map(p => p.name).sort(), ['args-prompt', 'completable-prompt', 'resource-prompt', 'simple-prompt']);
    const said = async (name, args) => (await c.client.getPrompt({ name, arguments: args })).messages[0].content;
    assert.equal((await said('simple-prompt')).text, 'A simple prompt.');
    assert.match((await said('args-prompt', { city: 'Zürich 🚀' })).text, /Zürich 🚀/);
    assert.equal((await said('resource-prompt', { resourceId: '3' })).resource.uri, 'demo://resource/dynamic/text/3');
    assert.equal((await rejected(said('args-prompt'), 'a missing argument')).code, -32602);
    assert.equal((await rejected(said('none'), 'an unknown prompt')).code, -32602);
  },

  async 'completion'() {
    const complete = async (name, value, known) => (await c.client.complete({
      ref: { type: 'ref/prompt', name: 'completable-prompt' }, argument: { name, value }, context: known && { arguments: known },
    })).completion.values;
    assert.deepEqual(await complete('department', 'E'), ['Engineering']);
    assert.deepEqual(await complete('name', '', { department: 'Engineering' }), ['Alice', 'Bob']);
    assert.deepEqual(await complete('name', 'Z', { department: 'Engineering' }), []);
  },

  async 'log lines of the level asked for'() {
    const levels = async level => {
      await c.client.setLoggingLevel(level);
      const from = c.wire.length;
      await c.call('toggle-simulated-logging');
      return c.wire.slice(from).filter(m => m.method === 'notifications/message').map(m => m.params.level);
    };
    assert.deepEqual(await levels('debug'), ['debug', 'info', 'notice', 'warning', 'error', 'critical', 'alert', 'emergency']);
    assert.deepEqual(await levels('alert'), ['alert', 'emergency']);
    await rejected(c.client.request({ method: 'logging/setLevel', params: { level: 'loud' } }, T.EmptyResultSchema), 'an unknown level');
  },

  async 'sampling'() {
    c.asked = [];
    assert.match(await c.text('trigger-sampling-request', { prompt: 'hi 🚀', maxTokens: 7 }), /sampled ✓ /);
    assert.deepEqual(c.asked.map(r => [r.method, r.params.maxTokens, r.params.messages[0].content.text]), [['sampling/createMessage', 7, 'hi 🚀']]);
  },

  async 'sampling refused'() {
    const { sample } = c;
    c.sample = async () => { throw new T.McpError(-1, 'the person says no'); };
    assert.match(String(await rejected(c.call('trigger-sampling-request', { prompt: 'x' }), 'a refusal')), /the person says no/);
    c.sample = sample;
  },

  async 'five questions at once, answered the other way round'() {
    const { sample } = c;
    const answers = [];
    c.sample = ({ params }) => new Promise(resolve => {
      answers.push(() => resolve({ model: 'm', role: 'assistant', content: { type: 'text', text: `answer to ${params.messages[0].content.text}` } }));
      if (answers.length === 5) for (const answer of answers.reverse()) answer();
    });
    await Promise.all([1, 2, 3, 4, 5].map(async i => {
      assert.match(await c.text('trigger-sampling-request', { prompt: `question ${i}.` }), new RegExp(`answer to question ${i}\\.`));
    }));
    c.sample = sample;
  },

  async 'elicitation: accept, decline, cancel'() {
    const { elicit } = c;
    assert.match(await c.text('trigger-elicitation-request'), /did accept: .*Ünïcode 🚀/);
    for (const action of ['decline', 'cancel']) {
      c.elicit = async () => ({ action });
      assert.match(await c.text('trigger-elicitation-request'), new RegExp(`did ${action}`));
    }
    c.elicit = elicit;
  },

  async 'elicitation by a URL'() {
    const { elicit } = c;
    c.elicit = async () => ({ action: 'accept' });
    c.asked = [];
    const url = 'http://127.0.0.1/x?a=1&b=<2>';
    assert.match(await c.text('trigger-url-elicitation', { url, elicitationId: 'e-1' }), /did accept/);
    assert.deepEqual(c.asked.map(r => [r.params.mode, r.params.url, r.params.elicitationId]), [['url', url, 'e-1']]);
    await until(() => c.heard.some(n => n.method === 'notifications/elicitation/complete' && n.params.elicitationId === 'e-1'));
    const err = await rejected(c.call('trigger-url-elicitation', { url, elicitationId: 'e-2', errorPath: true }), 'what needs a URL first');
    assert.equal(err.code, -32042);
    assert.deepEqual(err.data.elicitations.map(e => [e.url, e.elicitationId]), [[url, 'e-2']]);
    c.elicit = elicit;
  },

  async 'roots, and others later'() {
    assert.deepEqual(JSON.parse(await c.text('get-roots-list')), c.roots);
    c.roots = [{ uri: 'file:///a', name: 'A' }, { uri: 'file:///b%C3%A9', name: 'Bé' }];
    await c.client.sendRootsListChanged();
    assert.deepEqual(JSON.parse(await c.text('get-roots-list')), c.roots);
  },

  async 'lists that change'() {
    const has = async () => (await c.tools()).some(t => t.name === 'poked');
    assert.equal(await has(), false);
    for (const there of [true, false]) {
      const from = c.heard.length;
      await c.call('poke');
      for (const kind of ['tools', 'prompts', 'resources']) {
        await until(() => c.heard.slice(from).some(n => n.method === `notifications/${kind}/list_changed`));
      }
      assert.equal(await has(), there);
    }
  },

  async 'a task'() {
    await c.tools();
    const seen = [];
    for await (const message of c.client.experimental.tasks.callToolStream({ name: 'simulate-research-query', arguments: { topic: 'bridges' } }, T.CallToolResultSchema, { task: { ttl: 60_000, pollInterval: 50 } })) {
      assert.ok(message.type !== 'error', String(message.error));
      seen.push(message.type);
      if (message.type === 'result') assert.equal(textOf(message.result), 'Research Report: bridges');
    }
    assert.equal(seen[0], 'taskCreated');
    assert.equal(seen.at(-1), 'result');
  },

  async 'a client that can do nothing'() {
    const bare = await connect({});
    assert.equal(await bare.echo('bare'), 'Echo: bare');
    await rejected(bare.call('trigger-sampling-request', { prompt: 'x' }), 'asking who answers no questions');
    await bare.client.close();
  },

  async 'several clients, each for itself'() {
    const clients = await Promise.all([1, 2, 3, 4].map(() => connect()));
    await Promise.all(clients.flatMap((x, i) => Array.from({ length: 10 }, async (_, k) => {
      assert.equal(await x.echo(`client ${i}, ${k}`), `Echo: client ${i}, ${k}`);
    })));
    const [one, ...others] = clients;
    await one.text('trigger-long-running-operation', { duration: 0.2, steps: 5 }, { onprogress() {} });
    for (const x of others) {
      await x.client.ping();
      assert.ok(x.wire.every(m => m.method === undefined), `it heard what was another's: ${JSON.stringify(x.wire.find(m => m.method))}`);
    }
    if (http) assert.equal(new Set(clients.map(x => x.transport.sessionId)).size, 4);
    await Promise.all(clients.map(x => x.client.close()));
  },

  async 'what is out of place is refused'() {
    if (http) {
      const x = await connect();
      const mine = { 'Mcp-Session-Id': x.transport.sessionId };
      const answer = async headers => status(await post(ping(1), headers));
      assert.equal(await answer(mine), 200);
      assert.equal(await answer({}), 400, 'no session');
      assert.equal(await answer({ 'Mcp-Session-Id': 'made-up' }), 404, 'a made-up session');
      assert.equal(await answer({ ...mine, 'Mcp-Protocol-Version': '1999-01-01' }), 400, 'an unknown version');
      assert.equal(await answer({ ...mine, Accept: 'text/html' }), 406, 'a browser');
      assert.equal(await answer({ ...mine, Origin: 'http://elsewhere.example' }), 403, 'a page from elsewhere');
      await x.client.close();
      return;
    }
    const server = new Process(target);
    await link(server);
    const refused = async (message, code, what) => assert.equal((await server.ask(message)).error?.code, code, what);
    await refused([ping(1), ping(2)], -32600, 'a batch');
    await refused({ ...ping(1), method: 5 }, -32600, 'a method that is none');
    server.write('{"jsonrpc":"2.0","id":"nobody asked","result":{}}\n');
    assert.equal((await server.ask(ping('go on'))).id, 'go on');
    server.end();
    assert.equal(await server.ended, 0);
  },

  async 'broken messages end nothing'() {
    const broken = ['{"jsonrpc":"2.0"', 'garbage', '[]', '\u0000', '{"jsonrpc":"2.0","id":"x","method":"ping"', '!ping'];
    if (http) {
      const x = await connect();
      for (const text of broken) assert.equal(await status(await post(text, { 'Mcp-Session-Id': x.transport.sessionId })), 400, text);
      await x.client.ping();
      await x.client.close();
      return;
    }
    const server = new Process(target);
    await link(server);
    for (const text of broken) {
      server.write(`${text}\n`);
      assert.ok((await server.next()).error, text);
    }
    server.write('\n\r\n{"jsonrpc":"2.0","id":"in two ');
    await sleep(50); // so that it does come in two
    server.write('halves","method":"ping"}\r\n');
    assert.equal((await server.next()).id, 'in two halves');
    server.end();
    assert.equal(await server.ended, 0);
  },

  async 'a client that leaves'() {
    const x = await connect();
    await x.echo('bye');
    await leave(x);
  },

  async 'a client that leaves at once'() {
    await leave(await connect());
  },

  async 'a client that leaves a call behind'() {
    const x = await connect();
    x.call('trigger-long-running-operation', { duration: 0.3, steps: 3 }).catch(() => {}); // nobody reads it
    await leave(x);
  },

  async 'the shared connection saw nothing odd'() {
    await c.client.ping();
    assert.equal(c.closed, undefined);
    // The SDK deals with a note that came with the answer after the answer.
    const odd = c.errors.filter(err => !/progress notification for an unknown token/.test(err));
    assert.deepEqual(odd, []);
    await leave(c);
  },
});

// leave ends a client; its server, or its session there, ends with it.
async function leave(x) {
  if (!http) {
    await closes(x.client, x.transport);
    return;
  }
  const session = { 'Mcp-Session-Id': x.transport.sessionId };
  await x.transport.terminateSession();
  await x.client.close();
  assert.equal(await status(await post(ping(1), session)), 404);
}
