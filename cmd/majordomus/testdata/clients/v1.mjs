// A client of the eras before 2026-07-28, with the TypeScript SDK v1:
//
//   node v1.mjs stdio PROGRAM ROOT      what a client does all day
//   node v1.mjs killed PROGRAM ROOT     the same client while its servers die
//   node v1.mjs http URL KEY ROOT       Streamable HTTP, without a bridge
//
// ROOT is a checkout whose layer holds the file greeting.md.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import {
  ResourceListChangedNotificationSchema, ResourceUpdatedNotificationSchema,
} from '@modelcontextprotocol/sdk/types.js';
import { addFile, assert, bigNote, check, events, lease, sleep, textOf, uriLayer, uriServer } from './common.mjs';

const newClient = () => {
  const client = new Client({ name: 'client-v1', version: '1.0.0' });
  client.listChanged = events();
  client.updated = events();
  client.errors = [];
  client.onerror = err => client.errors.push(err);
  client.setNotificationHandler(ResourceListChangedNotificationSchema, () => client.listChanged.add());
  client.setNotificationHandler(ResourceUpdatedNotificationSchema, () => client.updated.add());
  return client;
};
const state = async client => (await client.callTool({ name: 'majordomus_server', arguments: {} })).structuredContent;
const wait = (client, args) => client.callTool({ name: 'majordomus_wait', arguments: args });

// everyday is what holds over every transport.
async function everyday(client, root) {
  await check('initialize', async () => {
    assert.equal(client.getServerVersion().name, 'majordomus');
    assert.ok(client.getServerCapabilities().resources.listChanged);
    assert.match(client.getInstructions(), /majordomus_server/);
  });
  await check('ping', () => client.ping());
  await check('tools/list', async () => {
    const names = (await client.listTools()).tools.map(t => t.name);
    for (const name of ['majordomus_server', 'majordomus_health', 'majordomus_wait']) assert.ok(names.includes(name), name);
  });
  await check('tools/call majordomus_server', async () => {
    const s = await state(client);
    assert.equal(s.name, 'majordomus');
    assert.equal(s.url, lease(root).url);
    assert.equal(s.leaseholder, true);
    assert.ok(s.peers >= 1);
  });
  await check('an unknown tool is an error', () => assert.rejects(client.callTool({ name: 'no_such_tool', arguments: {} }), { code: -32602 }));
  await check('resources/list and resources/read', async () => {
    const uris = (await client.listResources()).resources.map(r => r.uri);
    assert.ok(uris.includes(uriServer) && uris.includes(uriLayer + 'greeting.md'), uris.join());
    const own = (await client.readResource({ uri: uriServer })).contents[0];
    assert.equal(JSON.parse(own.text).url, lease(root).url);
    const file = (await client.readResource({ uri: uriLayer + 'greeting.md' })).contents[0];
    assert.equal(file.text, 'hello, 世界\n');
    await assert.rejects(client.readResource({ uri: uriLayer + 'none.md' }), { code: -32002 });
  });
  await check('resources/list_changed', async () => {
    const before = client.listChanged.count;
    addFile(root, 'added.md', 'added\n');
    await client.listChanged.moreThan(before);
    assert.ok((await client.listResources()).resources.some(r => r.uri === uriLayer + 'added.md'));
  });
  await check('resources/subscribe and updated', async () => {
    await client.subscribeResource({ uri: uriLayer + 'added.md' });
    const before = client.updated.count;
    addFile(root, 'added.md', 'added, then changed\n');
    await client.updated.moreThan(before);
    await client.unsubscribeResource({ uri: uriLayer + 'added.md' });
  });
  await check('50 calls at once', async () => {
    await Promise.all(Array.from({ length: 50 }, async (_, i) => {
      assert.equal(textOf(await wait(client, { seconds: (i % 5) / 20, note: `call ${i}` })), `call ${i}`);
    }));
  });
  await check('8 MiB there and back', async () => {
    const note = bigNote(8 << 20);
    const back = Buffer.from(textOf(await wait(client, { seconds: 0, note })));
    assert.equal(back.length, 8 << 20);
    assert.ok(back.equals(Buffer.from(note)), 'the bytes differ');
  });
  await check('a cancelled call ends, and the next is answered', async () => {
    const stop = new AbortController();
    const call = client.callTool({ name: 'majordomus_wait', arguments: { seconds: 120 } }, undefined, { signal: stop.signal });
    const running = async () => (await state(client)).in_flight - 1; // less the one that asks
    while (await running() === 0) await sleep(5);
    stop.abort();
    await assert.rejects(call);
    while (await running() > 0) await sleep(5);
  });
  await check('nothing odd was received', async () => assert.deepEqual(client.errors, []));
}

async function overStdio(program, root) {
  const transport = new StdioClientTransport({ command: program, args: ['mcp'], cwd: root, stderr: 'inherit' });
  const send = transport.send.bind(transport);
  transport.initialized = 0;
  transport.send = message => {
    if (message.method === 'initialize') transport.initialized++;
    return send(message);
  };
  const client = newClient();
  await check('connect', () => client.connect(transport));
  return { client, transport };
}

// close ends the client and fails if the bridge had to be signalled: the end
// of its input must be enough.
async function close({ client, transport }, root) {
  await check('the bridge ends and the server stays', async () => {
    const bridge = transport._process;
    const server = lease(root);
    await client.close();
    assert.equal(bridge.killed, false, 'a signal was sent');
    assert.equal(bridge.exitCode, 0);
    assert.deepEqual(lease(root), server);
    const index = await (await fetch(server.url)).json();
    assert.equal(index.leaseholder, true);
  });
}

async function stdio(program, root) {
  const c = await overStdio(program, root);
  await everyday(c.client, root);
  await close(c, root);
}

// killed goes on through servers that die between and during calls.
async function killed(program, root) {
  const c = await overStdio(program, root);
  const { client, transport } = c;
  const bridge = transport.pid;
  const kill = () => {
    const { pid } = lease(root);
    process.kill(pid, 'SIGKILL');
    return pid;
  };
  let generation;
  const another = async () => {
    const now = await state(client);
    assert.notEqual(now.generation, generation);
    generation = now.generation;
  };
  await check('a first server', async () => {
    await client.listTools();
    await client.subscribeResource({ uri: uriLayer + 'greeting.md' });
    await another();
  });
  for (let i = 1; i <= 3; i++) {
    await check(`killed between calls, ${i}`, async () => {
      const dead = kill();
      await another();
      assert.notEqual(lease(root).pid, dead);
    });
  }
  for (let i = 1; i <= 2; i++) {
    await check(`killed during a long and 20 short calls, ${i}`, async () => {
      const long = wait(client, { seconds: 1.5, note: 'long' });
      const short = Array.from({ length: 20 }, (_, k) => wait(client, { seconds: 0.05, note: `short ${k}` }));
      await state(client); // answered, so what was sent before it has arrived
      kill();
      short.push(wait(client, { seconds: 0, note: 'short 20' })); // meets no server
      assert.equal(textOf(await long), 'long');
      (await Promise.all(short)).forEach((result, k) => assert.equal(textOf(result), `short ${k}`));
      await another();
    });
  }
  await check('killed during 8 MiB', async () => {
    const note = bigNote(8 << 20);
    const big = wait(client, { seconds: 0.5, note });
    await state(client);
    kill();
    assert.ok(textOf(await big) === note, 'the note differs');
    await another();
  });
  await check('the subscription outlives its server', async () => {
    const before = client.updated.count;
    addFile(root, 'greeting.md', 'changed\n');
    await client.updated.moreThan(before);
  });
  await check('the list outlives its server', async () => {
    const before = client.listChanged.count;
    addFile(root, 'later.md', 'later\n');
    await client.listChanged.moreThan(before);
  });
  await check('the client has noticed nothing', async () => {
    assert.equal(transport.initialized, 1);
    assert.equal(transport.pid, bridge);
    assert.deepEqual(client.errors, []);
  });
  await close(c, root);
}

async function http(url, key, root) {
  const endpoint = new URL('/mcp', url);
  await check('no key, no entry', async () => {
    for (const headers of [{}, { Authorization: `Bearer ${key}x` }]) {
      const stranger = newClient();
      await assert.rejects(stranger.connect(new StreamableHTTPClientTransport(endpoint, { requestInit: { headers } })), /401|unauthori[sz]ed/i);
    }
  });
  const streams = events(); // a notification before there is one would be nobody's
  const transport = new StreamableHTTPClientTransport(endpoint, {
    requestInit: { headers: { Authorization: `Bearer ${key}` } },
    fetch: async (to, init) => {
      const response = await fetch(to, init);
      if (init.method === 'GET' && response.ok) streams.add();
      return response;
    },
  });
  const client = newClient();
  await check('connect', () => client.connect(transport));
  await check('GET opens a stream', () => streams.moreThan(0));
  await everyday(client, root);
  await check('DELETE ends the session', async () => {
    const session = transport.sessionId;
    assert.ok(session);
    await transport.terminateSession();
    await client.close();
    const again = await fetch(endpoint, {
      method: 'POST',
      headers: {
        Authorization: `Bearer ${key}`, 'Content-Type': 'application/json',
        Accept: 'application/json, text/event-stream', 'Mcp-Session-Id': session,
      },
      body: '{"jsonrpc":"2.0","id":1,"method":"ping"}',
    });
    assert.equal(again.status, 404);
  });
}

const [mode, ...words] = process.argv.slice(2);
await { stdio, killed, http }[mode](...words);
process.exit(0);
