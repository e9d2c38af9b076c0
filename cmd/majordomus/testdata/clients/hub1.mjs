// Eight editors of the eras with a handshake use five hosted servers at once,
// and find what a direct connection to each of these finds:
//
//   node hub1.mjs PROGRAM ROOT
//
// ROOT is a checkout as hosted.mjs wants it, trusted, with no server yet.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import * as T from '@modelcontextprotocol/sdk/types.js';
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { assert, events, lease, textOf } from './common.mjs';
import { able, all, compare, direct, elicited, exact, lists, named, names, perform, plays, prepare, sampled, steady, thoughts } from './hosted.mjs';
import { closes, run, until } from './suite.mjs';

const [program, root] = process.argv.slice(2);
const editors = 8;

// An Editor is one client of the hub, and what it was told and asked.
class Editor {
  heard = [];
  asked = [];
  errors = [];
  wire = [];
  changed = events();

  constructor(i) { this.i = i; }

  async open() {
    this.transport = new StdioClientTransport({ command: program, args: ['mcp'], cwd: root, stderr: 'inherit' });
    this.client = new Client({ name: `editor ${this.i}`, version: '1' }, { capabilities: able });
    this.client.setRequestHandler(T.ListRootsRequestSchema, () => ({ roots: [{ uri: `file:///editor/${this.i}` }] }));
    this.client.setRequestHandler(T.CreateMessageRequestSchema, ({ params }) => { this.asked.push(params); return sampled(params); });
    this.client.setRequestHandler(T.ElicitRequestSchema, ({ params }) => { this.asked.push(params); return elicited(`editor ${this.i}`); });
    this.client.fallbackNotificationHandler = async note => {
      this.heard.push(note);
      if (/list_changed$/.test(note.method)) this.changed.add();
    };
    this.client.onerror = err => this.errors.push(err);
    await this.client.connect(this.transport);
    const onmessage = this.transport.onmessage;
    this.transport.onmessage = (message, extra) => {
      this.wire.push(message);
      onmessage(message, extra);
    };
    return this;
  }

  ask(method, params) { return exact(this.client, method, params); }
  all(kind) { return all((m, p) => this.ask(m, p), kind); }
  of(server) { return (method, params) => this.ask(method, named(server, method, params)); }
  call(name, args, options) { return this.client.callTool({ name: `everything__${name}`, arguments: args }, undefined, options); }
  text(name, args, options) { return this.call(name, args, options).then(textOf); }
  times(method, uri) { return this.heard.filter(n => n.method === method && (!uri || n.params.uri === uri)).length; }
}

const wanted = {}; // of each server: its lists, and its answers to each editor
const straight = {}; // the direct connections
let e = []; // the editors

// upstreams is what the server says of those it hosts.
const upstreams = async () => {
  const key = execFileSync(program, ['key'], { cwd: root }).toString().trim();
  const response = await fetch(`${lease(root).url}/api/v1/upstreams`, { headers: { Authorization: `Bearer ${key}` } });
  return (await response.json()).upstreams;
};

// processes are those that run a file of one of the servers.
const processes = () => readdirSync('/proc').filter(p => /^\d+$/.test(p)).flatMap(pid => {
  try {
    const words = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0');
    const parent = Number(/\) \S (\d+)/.exec(readFileSync(`/proc/${pid}/stat`, 'utf8'))[1]);
    const cwd = execFileSync('readlink', [`/proc/${pid}/cwd`]).toString().trim();
    return words.some(w => /testdata\/upstreams\/.*js$/.test(w)) && cwd === root ? [{ pid: Number(pid), parent }] : [];
  } catch {
    return []; // it has ended meanwhile
  }
});

await run({
  async 'each server directly'() {
    prepare(root);
    await Promise.all(names.map(async server => {
      const client = straight[server] = await direct(root, server);
      const ask = (method, params) => exact(client, method, params);
      wanted[server] = { answers: [] };
      for (const kind of Object.keys(lists)) wanted[server][kind] = await all(ask, kind);
      for (let i = 0; i < editors; i++) wanted[server].answers.push(await perform(server, plays(root, i)[server], ask));
    }));
    for (const server of names) {
      const failed = wanted[server].answers[0].filter(a => a.error).length;
      assert.ok(failed < wanted[server].answers[0].length / 2, `${server} answers nearly everything with an error`);
    }
    assert.equal(wanted.everything.tools.length, 16);
    prepare(root);
  },

  async 'eight editors list the same'() {
    e = await Promise.all(Array.from({ length: editors }, (_, i) => new Editor(i).open()));
    // A first list may come without those that need long to start.
    const complete = async x => {
      const seen = (await x.all('tools')).map(t => t.name);
      return names.every(server => seen.some(name => name.startsWith(`${server}__`)));
    };
    for (const x of e) {
      for (let before = x.changed.count; !await complete(x); before = x.changed.count) await x.changed.moreThan(before);
    }
    await Promise.all(e.map(async x => {
      for (const kind of Object.keys(lists)) compare(kind, await x.all(kind), wanted);
    }));
  },

  async 'what clients refuse is left out, and nothing else'() {
    await assert.rejects(straight.odd.listTools());
    const { tools } = await e[0].client.listTools();
    for (const server of names) assert.ok(tools.some(t => t.name.startsWith(`${server}__`)), server);
    assert.equal(e[0].client.getServerCapabilities().tasks, undefined);
    const out = (await upstreams()).flatMap(s => (s.left_out ?? []).map(l => l.name));
    assert.deepEqual(out, ['simulate-research-query', 'nullable']);
    for (const name of ['everything__simulate-research-query', 'odd__nullable']) assert.ok((await e[0].ask('tools/call', { name, arguments: {} })).error, name);
  },

  async 'eight editors use all at once and are answered the same'() {
    const answers = await Promise.all(e.map(x => Promise.all(names.map(server => perform(server, plays(root, x.i)[server], x.of(server))))));
    answers.forEach((own, i) => own.forEach((got, k) => {
      const server = names[k];
      plays(root, i)[server].forEach((asked, n) => {
        assert.deepEqual(steady(got[n]), steady(wanted[server].answers[i][n]), `${server}, editor ${i}: ${JSON.stringify(asked)}`);
      });
    }));
    // They thought in one process: each thought is counted once.
    const counts = answers.flatMap(own => thoughts(own[names.indexOf('thinking')])).sort((a, b) => a - b);
    assert.deepEqual(counts, counts.map((_, n) => n + 1));
  },

  async 'each server is one process'() {
    const states = await upstreams();
    assert.deepEqual(states.map(s => s.name), names);
    for (const s of states) assert.equal(s.processes.length, 1, JSON.stringify(s));
    if (!existsSync('/proc/self/stat')) return;
    const theirs = processes().filter(p => p.parent !== process.pid);
    assert.deepEqual(theirs.map(p => p.pid).sort(), states.map(s => s.processes[0].pid).sort());
    assert.deepEqual(theirs.map(p => p.parent), names.map(() => lease(root).pid));
  },

  async 'progress, to the one who asked and before the answer'() {
    const [a, b] = e;
    const from = a.wire.length;
    const quiet = b.wire.length;
    await a.text('trigger-long-running-operation', { duration: 0.8, steps: 8 }, { onprogress() {} });
    const since = a.wire.slice(from);
    assert.ok(since.at(-1).result, 'something came after the answer');
    const told = since.filter(m => m.method === 'notifications/progress').map(m => m.params);
    const steps = told.map(p => p.progress);
    assert.deepEqual([told.at(-1).progress, told.at(-1).total], [8, 8]);
    assert.deepEqual(steps, [...new Set(steps)].sort((x, y) => x - y), 'not in order');
    assert.ok(steps.length > 1, 'only the last');
    assert.equal(b.wire.slice(quiet).filter(m => m.method === 'notifications/progress').length, 0, 'another heard it');
  },

  async 'log lines go to the one who asked, at its level'() {
    const [a, b] = e;
    const lines = x => x.heard.filter(n => n.method === 'notifications/message').map(n => n.params);
    const uri = 'demo://resource/static/document/features.md';
    await a.client.setLoggingLevel('debug');
    await a.client.subscribeResource({ uri }); // it says so in its log
    await until(() => lines(a).length > 0);
    assert.deepEqual(lines(a)[0], { level: 'info', data: `Received Subscribe Resource request for URI: ${uri} ` });
    await b.client.setLoggingLevel('error');
    await b.client.unsubscribeResource({ uri });
    await b.client.ping();
    assert.deepEqual(lines(b), [], 'what it did not want to know');
    await a.client.unsubscribeResource({ uri });
  },

  async 'subscriptions, each its own'() {
    const [a, b, c] = e;
    const updated = 'notifications/resources/updated';
    const one = 'demo://resource/static/document/features.md';
    const two = 'demo://resource/static/document/startup.md';
    const update = () => a.call('toggle-subscriber-updates'); // at once, when turned on
    await a.client.subscribeResource({ uri: one });
    await b.client.subscribeResource({ uri: one });
    await b.client.subscribeResource({ uri: two });
    await update();
    await until(() => a.times(updated, one) > 0 && b.times(updated, one) > 0 && b.times(updated, two) > 0);
    assert.equal(a.times(updated, two) + c.times(updated), 0, 'news nobody asked for');
    // One that unsubscribes, and one that leaves, take nothing from others.
    await a.client.unsubscribeResource({ uri: one });
    const before = [a.times(updated, one), b.times(updated, one)];
    await update();
    await update();
    await until(() => b.times(updated, one) > before[1]);
    await b.client.ping();
    assert.equal(a.times(updated, one), before[0], 'it had unsubscribed');
    const leaving = await new Editor(9).open();
    await leaving.client.subscribeResource({ uri: one });
    await closes(leaving.client, leaving.transport);
    const again = b.times(updated, one);
    await update();
    await update();
    await until(() => b.times(updated, one) > again);
    await update();
  },

  async 'elicitation and sampling'() {
    const [a] = e;
    const s = straight.everything;
    s.asked = [];
    for (const [name, args] of [['trigger-elicitation-request', {}], ['trigger-sampling-request', { prompt: 'question 🚀', maxTokens: 7 }]]) {
      assert.deepEqual(await a.call(name, args), await s.callTool({ name, arguments: args }));
    }
    assert.deepEqual(a.asked, s.asked);
    assert.equal(a.asked.length, 2);
    for (const x of e.slice(1)) assert.deepEqual(x.asked, []);
  },

  async 'roots are the checkout'() {
    const want = await straight.everything.callTool({ name: 'get-roots-list' });
    for (const x of e) assert.deepEqual(await x.call('get-roots-list'), want);
  },

  async 'eight are asked at once, each what it caused'() {
    await Promise.all(e.map(async x => {
      x.asked = [];
      for (let n = 0; n < 3; n++) {
        const [elicit, sample, echo] = await Promise.all([
          x.text('trigger-elicitation-request'), x.text('trigger-sampling-request', { prompt: `of ${x.i}, ${n}` }), x.text('echo', { message: `${x.i}, ${n}` }),
        ]);
        assert.match(elicit, new RegExp(`- Name: editor ${x.i}\n`));
        assert.match(sample, new RegExp(`sampled ✓ .*of ${x.i}, ${n}`));
        assert.equal(echo, `Echo: ${x.i}, ${n}`);
      }
      assert.equal(x.asked.length, 6);
    }));
  },

  async 'a list that changes is listed anew by all'() {
    const [a, b] = e;
    const before = b.changed.count;
    await a.call('gzip-file-as-resource', { name: 'new.gz', data: 'data:text/plain,new' });
    await b.changed.moreThan(before);
    const uri = 'demo://resource/session/new.gz';
    await until(async () => (await b.all('resources')).some(r => r.uri === uri));
    assert.equal((await b.client.readResource({ uri })).contents[0].mimeType, 'application/gzip');
  },

  async 'nothing odd was received, and the editors leave'() {
    // The SDK deals with a note that came with the answer after the answer.
    assert.deepEqual(e.flatMap(x => x.errors).filter(err => !/progress notification for an unknown token/.test(err)), []);
    await Promise.all(e.map(x => closes(x.client, x.transport)));
    await Promise.all(names.map(server => straight[server].close()));
    for (const s of await upstreams()) assert.deepEqual([s.processes.length, s.errors], [1, s.errors], s.name);
  },
});
