// What a client of the era 2026-07-28 is promised, with the TypeScript SDK v2
// and the server in testdata/everything:
//
//   node checks2.mjs stdio COMMAND [WORD...]
//   node checks2.mjs http URL
//
// The checks are the same over both. Where a promise is kept by other means on
// one of them, the check looks at those.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { assert, bigNote, events, textOf } from './common.mjs';
import { Process, closes, difficult, rejected, run, until } from './suite.mjs';

const [over, ...target] = process.argv.slice(2);
const http = over === 'http';
const era = '2026-07-28';

// A connection is one client, and what it was told and asked.
class Connection {
  heard = []; // notifications that are not progress, in order
  errors = [];
  wire = []; // all messages, in order, as they came

  async open(mode = { pin: era }) {
    this.transport = http
      ? new StreamableHTTPClientTransport(new URL(target[0]))
      : new StdioClientTransport({ command: target[0], args: target.slice(1), stderr: 'inherit' });
    this.client = new Client({ name: 'checks', version: '1.0.0' }, {
      capabilities: { elicitation: { form: {} }, sampling: {}, roots: {} }, versionNegotiation: { mode },
    });
    this.client.setRequestHandler('sampling/createMessage', async ({ params }) => ({
      model: 'm', role: 'assistant', content: { type: 'text', text: `answer to ${params.messages[0].content.text}` },
    }));
    this.client.setRequestHandler('elicitation/create', async () => ({ action: 'accept', content: { name: 'Ünïcode 🚀' } }));
    this.client.setRequestHandler('roots/list', async () => ({ roots: [{ uri: 'file:///a', name: 'Bé' }] }));
    this.client.fallbackNotificationHandler = async note => { this.heard.push(note); };
    for (const method of ['tools/list_changed', 'prompts/list_changed', 'resources/list_changed', 'resources/updated', 'message']) {
      this.client.setNotificationHandler(`notifications/${method}`, async note => { this.heard.push(note); });
    }
    this.client.onerror = err => this.errors.push(err);
    this.client.onclose = () => { this.closed = true; };
    await this.client.connect(this.transport);
    const onmessage = this.transport.onmessage;
    this.transport.onmessage = (message, extra) => {
      this.wire.push(message);
      onmessage(message, extra);
    };
    return this;
  }

  call(name, args = {}, options) { return this.client.callTool({ name, arguments: args }, options); }
  async text(name, args, options) { return textOf(await this.call(name, args, options)); }
  echo(message) { return this.text('echo', { message }); }
  running() { return this.text('count-long-running-operations').then(Number); }

  // long begins an operation that takes a minute. It returns when that is under
  // way.
  async long() {
    const stop = new AbortController();
    const under = events();
    const ended = rejected(this.call('trigger-long-running-operation', { duration: 60, steps: 1200 }, { signal: stop.signal, onprogress: () => under.add() }), 'the operation');
    await under.moreThan(1);
    return { stop: () => { stop.abort('enough'); return ended; } };
  }
}

const connect = mode => new Connection().open(mode);
const post = (message, headers) => fetch(target[0], {
  method: 'POST', body: JSON.stringify(message),
  headers: { 'Content-Type': 'application/json', Accept: 'application/json, text/event-stream', ...headers },
});
const discover = version => ({
  jsonrpc: '2.0', id: 1, method: 'server/discover', params: {
    _meta: {
      'io.modelcontextprotocol/protocolVersion': version, 'io.modelcontextprotocol/clientInfo': { name: 'raw', version: '1' },
      'io.modelcontextprotocol/clientCapabilities': {},
    },
  },
});

let c; // the connection that the checks share

await run({
  async 'connect'() {
    c = await connect();
    assert.equal(c.client.getNegotiatedProtocolVersion(), era);
    assert.equal(c.client.getServerVersion().name, 'everything');
    const found = await c.client.discover();
    assert.ok(found.supportedVersions.includes(era));
    assert.equal(found.instructions, 'Call what you like.');
  },

  async 'lists'() {
    const names = (await c.client.listTools()).tools.map(t => t.name);
    assert.ok(names.includes('echo') && names.includes('trigger-url-elicitation'), names.join());
    assert.equal(new Set(names).size, names.length, 'a tool is there twice');
    assert.equal((await c.client.listResources()).resources.length, 7);
    assert.equal((await c.client.listPrompts()).prompts.length, 4);
  },

  async 'strings arrive as they were'() {
    for (const s of [...difficult, difficult.join('|'), 'é'.repeat(1e5)]) assert.equal(await c.echo(s), `Echo: ${s}`);
  },

  async 'structured content'() {
    assert.deepEqual((await c.call('get-structured-content', { location: 'Zürich' })).structuredContent, { temperature: 33.5, conditions: 'Cloudy in Zürich' });
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

  async 'a cancelled call ends here and there'() {
    const { stop } = await c.long(); // progress comes while it runs
    assert.equal(await c.running(), 1);
    await stop();
    await until(async () => await c.running() === 0);
    assert.equal(await c.echo('after'), 'Echo: after');
  },

  async '50 calls at once'() {
    await Promise.all(Array.from({ length: 50 }, async (_, i) => assert.equal(await c.echo(`call ${i}`), `Echo: call ${i}`)));
  },

  async '1 MiB there and back'() {
    const note = bigNote(1 << 20);
    assert.ok(await c.echo(note) === `Echo: ${note}`, 'it is not what it was');
  },

  async '8 MiB there and back'() {
    const note = bigNote(8 << 20);
    assert.ok(await c.echo(note) === `Echo: ${note}`, 'it is not what it was');
  },

  async 'errors'() {
    assert.equal((await rejected(c.call('no-such-tool'), 'an unknown tool')).code, -32602);
    assert.equal((await c.call('get-sum', { a: 'x' })).isError, true, 'wrong arguments were no error');
    await rejected(c.client.readResource({ uri: 'demo://none' }), 'a missing resource');
    await rejected(c.client.getPrompt({ name: 'none' }), 'an unknown prompt');
  },

  async 'questions come back with the answer to them'() {
    assert.match(await c.text('trigger-sampling-request', { prompt: 'question 🚀' }), /answer to question 🚀/);
    assert.match(await c.text('trigger-elicitation-request'), /did accept: .*Ünïcode 🚀/);
    assert.match(await c.text('get-roots-list'), /Bé/);
  },

  async 'listening to lists and resources'() {
    const uri = 'demo://resource/static/document/features';
    const filter = { toolsListChanged: true, resourceSubscriptions: [uri] };
    const subscription = await c.client.listen(filter);
    assert.deepEqual(subscription.honoredFilter, filter);
    const times = method => c.heard.filter(n => n.method === `notifications/${method}`).length;
    await c.call('poke');
    await until(() => times('tools/list_changed') > 0);
    assert.ok((await c.client.listTools()).tools.some(t => t.name === 'poked'));
    await c.call('toggle-subscriber-updates');
    await until(() => times('resources/updated') > 2);
    await c.call('toggle-subscriber-updates');
    assert.ok(c.heard.every(n => n.method !== 'notifications/resources/updated' || n.params.uri === uri), 'updates nobody subscribed to');
    assert.equal(times('prompts/list_changed') + times('resources/list_changed'), 0, 'news nobody asked for');
    await subscription.close();
    await subscription.closed;
    await c.call('poke');
    assert.equal(await c.echo('heard nothing'), 'Echo: heard nothing');
  },

  async 'several clients, each for itself'() {
    const clients = await Promise.all([1, 2, 3, 4].map(() => connect()));
    await Promise.all(clients.flatMap((x, i) => Array.from({ length: 10 }, async (_, k) => {
      assert.equal(await x.echo(`client ${i}, ${k}`), `Echo: client ${i}, ${k}`);
    })));
    const [one, ...others] = clients;
    await one.text('trigger-long-running-operation', { duration: 0.2, steps: 5 }, { onprogress() {} });
    for (const x of others) {
      await x.echo('so far');
      assert.ok(x.wire.every(m => m.method === undefined), `it heard what was another's: ${JSON.stringify(x.wire.find(m => m.method))}`);
    }
    await Promise.all(clients.map(x => leave(x)));
  },

  async 'a client that asks which era it is'() {
    const x = await connect('auto');
    assert.equal(x.client.getNegotiatedProtocolVersion(), era);
    assert.equal(await x.echo('auto'), 'Echo: auto');
    await leave(x);
  },

  async 'the same client in an older era'() {
    const x = await connect('legacy');
    assert.equal(x.client.getNegotiatedProtocolVersion(), '2025-11-25');
    assert.equal(await x.echo('legacy'), 'Echo: legacy');
    await leave(x);
  },

  async 'an unknown version is refused'() {
    const unknown = '2099-01-01';
    let answer;
    if (http) {
      const headers = version => ({ 'Mcp-Protocol-Version': version, 'Mcp-Method': 'server/discover' });
      const response = await post(discover(unknown), headers(unknown));
      assert.equal(response.status, 400);
      answer = await response.json();
      const other = await post(discover(era), { ...headers(era), 'Mcp-Method': 'tools/list' });
      assert.equal(other.status, 400, 'header and body differ');
      assert.equal((await other.json()).error.code, -32020);
    } else {
      const server = new Process(target);
      answer = await server.ask(discover(unknown));
      assert.equal((await server.ask(discover(era))).error, undefined);
      server.end();
      assert.equal(await server.ended, 0);
    }
    assert.equal(answer.error.code, -32022);
    assert.ok(answer.error.data.supported.includes(era), JSON.stringify(answer));
  },

  async 'the shared connection saw nothing odd'() {
    assert.equal(await c.echo('still here'), 'Echo: still here');
    assert.equal(c.closed, undefined);
    // The SDK deals with a note that came with the answer after the answer.
    const odd = c.errors.filter(err => !/progress notification for an unknown token/.test(err));
    assert.deepEqual(odd, []);
    await leave(c);
  },
});

async function leave(x) {
  if (http) await x.client.close();
  else await closes(x.client, x.transport);
}
