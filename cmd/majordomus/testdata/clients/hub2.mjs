// A client of the era 2026-07-28 uses five hosted servers, which are of an
// older one, and finds what a direct connection to each of these finds:
//
//   node hub2.mjs PROGRAM ROOT
//
// ROOT is a checkout as hosted.mjs wants it, trusted.
import { Client } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { assert, events, textOf } from './common.mjs';
import { all, compare, direct, exact, lists, named, names, perform, plays, prepare, steady } from './hosted.mjs';
import { closes, run, until } from './suite.mjs';

const [program, root] = process.argv.slice(2);
const era = '2026-07-28';

// A Modern is one client, and what came as it came: the SDK hands over less.
class Modern {
  wire = [];
  errors = [];
  changed = events();
  #waiting = new Map();
  #next = 0;

  async open() {
    this.transport = new StdioClientTransport({ command: program, args: ['mcp'], cwd: root, stderr: 'inherit' });
    this.client = new Client({ name: 'modern', version: '1' }, { versionNegotiation: { mode: { pin: era } } });
    for (const kind of ['tools', 'prompts', 'resources']) this.client.setNotificationHandler(`notifications/${kind}/list_changed`, () => this.changed.add());
    this.client.onerror = err => this.errors.push(err);
    await this.client.connect(this.transport);
    const onmessage = this.transport.onmessage;
    this.transport.onmessage = (message, extra) => {
      this.wire.push(message);
      const waiting = message.method === undefined && this.#waiting.get(message.id);
      if (waiting) waiting(message);
      else onmessage(message, extra);
    };
    return this;
  }

  // ask sends a request past the SDK, with what this era has in each.
  ask(method, params) {
    const id = `raw ${++this.#next}`;
    const meta = {
      ...params?._meta, 'io.modelcontextprotocol/protocolVersion': era, 'io.modelcontextprotocol/clientInfo': { name: 'modern', version: '1' },
      'io.modelcontextprotocol/clientCapabilities': {},
    };
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, ({ result, error }) => resolve(error ? { error } : { result }));
      this.transport.send({ jsonrpc: '2.0', id, method, params: { ...params, _meta: meta } }).catch(reject);
    });
  }
  of(server) { return (method, params) => this.ask(method, named(server, method, params)); }
}

// older is an answer without what this era has more than the one before.
const older = answer => {
  if (answer.error) return { error: { data: undefined, ...answer.error } };
  const { resultType, ttlMs, cacheScope, ...result } = answer.result;
  assert.equal(resultType, 'complete', JSON.stringify(answer));
  return { result };
};

// A server that shook hands is told nothing of what this era says in _meta.
const plain = answer => JSON.parse(JSON.stringify(answer), (k, v) => k === '_meta' && Object.keys(v).length === 0 ? undefined : v);

const wanted = {};
let c;

await run({
  async 'each server directly'() {
    prepare(root);
    await Promise.all(names.map(async server => {
      const client = await direct(root, server);
      const ask = (method, params) => exact(client, method, params);
      wanted[server] = {};
      for (const kind of Object.keys(lists)) wanted[server][kind] = await all(ask, kind);
      wanted[server].answers = await perform(server, plays(root, 0)[server], ask);
      await client.close();
    }));
    prepare(root);
  },

  async 'lists'() {
    c = await new Modern().open();
    assert.equal(c.client.getNegotiatedProtocolVersion(), era);
    const complete = async () => {
      const seen = (await all((m, p) => c.ask(m, p), 'tools')).map(t => t.name);
      return names.every(server => seen.some(name => name.startsWith(`${server}__`)));
    };
    await until(complete);
    for (const kind of Object.keys(lists)) {
      const first = (await c.ask(lists[kind], {})).result;
      assert.equal(first.resultType, 'complete');
      assert.ok(Number.isInteger(first.ttlMs) && ['public', 'private'].includes(first.cacheScope), JSON.stringify(first).slice(0, 200));
      compare(kind, await all((m, p) => c.ask(m, p), kind), wanted);
    }
  },

  async 'calls'() {
    await Promise.all(names.map(async server => {
      const play = plays(root, 0)[server];
      const got = await perform(server, play, c.of(server));
      play.forEach((asked, n) => {
        assert.deepEqual(steady(plain(older(got[n]))), steady(plain(wanted[server].answers[n])), `${server}: ${JSON.stringify(asked)}`);
      });
    }));
  },

  async 'the SDK itself'() {
    const { tools } = await c.client.listTools();
    assert.ok(tools.some(t => t.name === 'everything__echo'));
    assert.equal(textOf(await c.client.callTool({ name: 'everything__echo', arguments: { message: 'ü\u2028' } })), 'Echo: ü\u2028');
    const from = c.wire.length;
    await c.client.callTool({ name: 'everything__trigger-long-running-operation', arguments: { duration: 0.4, steps: 4 } }, { onprogress() {} });
    const [note, answer] = c.wire.slice(from).slice(-2);
    assert.deepEqual([note.method, note.params.progress], ['notifications/progress', 4]);
    assert.ok(answer.result, 'the answer does not follow');
    assert.ok((await c.client.readResource({ uri: 'odd://one?q=1#f' })).contents[0].text);
    assert.ok((await c.client.getPrompt({ name: 'everything__simple-prompt' })).messages.length > 0);
  },

  async 'nothing odd was received'() {
    // The SDK deals with a note that came with the answer after the answer.
    assert.deepEqual(c.errors.filter(err => !/progress notification for an unknown token/.test(err)), []);
    await closes(c.client, c.transport);
  },
});
