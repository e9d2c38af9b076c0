// A client of the era 2026-07-28, with the TypeScript SDK v2:
//
//   node v2.mjs stdio PROGRAM ROOT
//   node v2.mjs http URL KEY ROOT
//
// ROOT is a checkout whose layer holds the file greeting.md.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { addFile, assert, bigNote, check, events, lease, sleep, textOf, uriLayer, uriServer } from './common.mjs';

const era = '2026-07-28';
const newClient = mode => {
  const client = new Client({ name: 'client-v2', version: '1.0.0' }, { versionNegotiation: { mode } });
  client.listChanged = events();
  client.updated = events();
  client.errors = [];
  client.onerror = err => client.errors.push(err);
  client.setNotificationHandler('notifications/resources/list_changed', () => client.listChanged.add());
  client.setNotificationHandler('notifications/resources/updated', () => client.updated.add());
  return client;
};
const state = async client => (await client.callTool({ name: 'majordomus_server', arguments: {} })).structuredContent;
const wait = (client, args) => client.callTool({ name: 'majordomus_wait', arguments: args });

// everyday is what holds over every transport; between comes while a
// subscription is open.
async function everyday(newTransport, root, between) {
  const client = newClient({ pin: era });
  await check('connect', async () => {
    await client.connect(newTransport());
    assert.equal(client.getNegotiatedProtocolVersion(), era);
    assert.equal(client.getServerVersion().name, 'majordomus');
  });
  await check('server/discover', async () => {
    const found = await client.discover();
    assert.ok(found.supportedVersions.includes(era));
    assert.ok(found.capabilities.tools && found.capabilities.resources);
    assert.match(found.instructions, /majordomus_server/);
  });
  await check('tools', async () => {
    const names = (await client.listTools()).tools.map(t => t.name);
    assert.ok(names.includes('majordomus_wait'));
    assert.equal((await state(client)).url, lease(root).url);
    await assert.rejects(client.callTool({ name: 'no_such_tool', arguments: {} }), { code: -32602 });
  });
  await check('resources', async () => {
    const uris = (await client.listResources()).resources.map(r => r.uri);
    assert.ok(uris.includes(uriServer) && uris.includes(uriLayer + 'greeting.md'), uris.join());
    assert.equal(JSON.parse((await client.readResource({ uri: uriServer })).contents[0].text).url, lease(root).url);
    assert.equal((await client.readResource({ uri: uriLayer + 'greeting.md' })).contents[0].text, 'hello, 世界\n');
    await assert.rejects(client.readResource({ uri: uriLayer + 'none.md' }), { code: -32602 });
  });
  await check('50 calls at once', async () => {
    await Promise.all(Array.from({ length: 50 }, async (_, i) => {
      assert.equal(textOf(await wait(client, { seconds: (i % 5) / 20, note: `call ${i}` })), `call ${i}`);
    }));
  });
  await check('8 MiB there and back', async () => {
    const note = bigNote(8 << 20);
    assert.ok(textOf(await wait(client, { seconds: 0, note })) === note, 'the note differs');
  });
  let subscription;
  await check('subscriptions/listen', async () => {
    const filter = { resourcesListChanged: true, resourceSubscriptions: [uriLayer + 'greeting.md'] };
    subscription = await client.listen(filter);
    assert.deepEqual(subscription.honoredFilter, filter);
  });
  const heard = (what, of, name) => check(what, async () => {
    const before = of.count;
    addFile(root, name, `${what}\n`);
    await of.moreThan(before);
  });
  await heard('resources/list_changed', client.listChanged, 'added.md');
  await heard('resources/updated', client.updated, 'greeting.md');
  if (between) {
    await between(client);
    await heard('resources/list_changed from the next server', client.listChanged, 'later.md');
    await heard('resources/updated from the next server', client.updated, 'greeting.md');
  }
  await check('the subscription ends when it is closed', async () => {
    await subscription.close();
    await subscription.closed;
    await state(client);
  });
  await check('a client that leaves without a word is gone', async () => {
    const leaving = newClient({ pin: era });
    await leaving.connect(newTransport());
    await leaving.listen({ resourcesListChanged: true });
    const { peers } = await state(client);
    await leaving.close();
    while ((await state(client)).peers >= peers) await sleep(5);
  });
  await check('nothing odd was received', async () => assert.deepEqual(client.errors, []));
  await check('close', () => client.close());

  await check('a client that asks which era it is', async () => {
    const asking = newClient('auto');
    await asking.connect(newTransport());
    assert.equal(asking.getNegotiatedProtocolVersion(), era);
    await state(asking);
    await asking.close();
  });
  await check('the same client in an older era', async () => {
    const old = newClient('legacy');
    await old.connect(newTransport());
    assert.equal(old.getNegotiatedProtocolVersion(), '2025-11-25');
    await state(old);
    await old.close();
  });
}

async function stdio(program, root) {
  const newTransport = () => new StdioClientTransport({ command: program, args: ['mcp'], cwd: root, stderr: 'inherit' });
  await everyday(newTransport, root, client => check('the server is killed', async () => {
    const { generation } = await state(client);
    process.kill(lease(root).pid, 'SIGKILL');
    assert.notEqual((await state(client)).generation, generation);
  }));
}

async function http(url, key, root) {
  const newTransport = () => new StreamableHTTPClientTransport(new URL('/mcp', url), { requestInit: { headers: { Authorization: `Bearer ${key}` } } });
  await everyday(newTransport, root);
}

const [mode, ...words] = process.argv.slice(2);
await { stdio, http }[mode](...words);
process.exit(0);
