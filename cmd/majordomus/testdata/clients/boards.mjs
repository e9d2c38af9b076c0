// What board1.mjs and board2.mjs share: two editors in two work trees of one
// repository, and what each finds on the board. An editor is made by the script
// of its era:
//
//   open(root, name) returns { client, transport, instructions, hear(uri), call(name, args) }
//
// hear subscribes to a resource and returns { count, moreThan(n), stop() }; call
// returns a tool's result as the SDK hands it over.
import { execFileSync } from 'node:child_process';
import { basename } from 'node:path';
import { assert, lease, textOf } from './common.mjs';
import { closes, rejected, run, until } from './suite.mjs';

export const uriPeers = 'majordomus://peers';

export async function boards(program, [here, there], open) {
  let a, b; // the editors, in here and there
  let ids;
  const board = async (x, args = {}) => (await x.call('majordomus_peers', args)).structuredContent;
  const announce = async (x, args) => (await x.call('majordomus_announce', args)).structuredContent;
  const states = seen => Object.fromEntries(seen.boards.map(o => [o.checkout, o.state]));
  const of = (seen, id) => seen.peers.find(p => p.id === id);
  const words = (root, ...args) => execFileSync(program, args, { cwd: root, stdio: ['ignore', 'pipe', 'pipe'] }).toString();
  const everywhere = { [basename(here)]: 'served', [basename(there)]: 'served' };

  await run({
    async 'each sees the other'() {
      a = await open(here, 'alpha');
      b = await open(there, 'beta');
      assert.notEqual(lease(here).url, lease(there).url);
      for (const [x, name, root] of [[a, 'alpha', here], [b, 'beta', there]]) {
        const seen = await board(x);
        assert.equal(seen.complete, true);
        assert.deepEqual(states(seen), everywhere);
        assert.deepEqual(seen.peers.map(p => [p.client, p.checkout, p.attached]).sort(), [['alpha', basename(here), true], ['beta', basename(there), true]]);
        assert.equal(of(seen, seen.you).client, name);
        assert.deepEqual(seen.boards.filter(o => o.this).map(o => o.root), [root]);
        x.id = seen.you;
      }
      ids = [a.id, b.id];
    },

    async 'the SDK holds each answer against the schema of its tool'() {
      for (const [tool, args] of [
        ['majordomus_peers', {}], ['majordomus_peers', { checkouts: 'this' }], ['majordomus_executions', {}], ['majordomus_server', {}], ['majordomus_health', {}],
        ['majordomus_announce', { intent: 'trying', scope: ['nothing'], claim: 'trial' }], ['majordomus_announce', { scope: [], claim: 'trial' }],
        ['majordomus_wait', { seconds: 0, until: 'board' }],
      ]) {
        // Once as it is; once with a member that no schema knows, put in below the SDK.
        assert.ok((await a.call(tool, args)).structuredContent, tool);
        const onmessage = a.transport.onmessage;
        a.transport.onmessage = (message, extra) => {
          if (message.result?.structuredContent) message = { ...message, result: { ...message.result, structuredContent: { ...message.result.structuredContent, surplus: 1 } } };
          onmessage(message, extra);
        };
        const err = await rejected(a.call(tool, args), `${tool} with a surplus member`);
        a.transport.onmessage = onmessage;
        assert.match(err.message, /does not match the tool's output schema/);
      }
    },

    async 'the overlap is named on both sides'() {
      const first = await announce(a, { intent: 'rewriting login', scope: ['src/auth/', './docs'] });
      assert.deepEqual([first.peer, first.scope, first.overlaps, first.complete], [a.id, ['src/auth', 'docs'], [], true]);
      const second = await announce(b, { intent: 'tokens', scope: ['src/auth/token.go'] });
      assert.deepEqual(second.overlaps, [{
        kind: 'claimed', peer: a.id, client: 'alpha', attached: true, checkout: basename(here), claim: 'default', intent: 'rewriting login', paths: ['src/auth'],
      }]);
      for (const x of [a, b]) {
        const { overlaps } = await board(x);
        assert.equal(overlaps.length, 1);
        assert.equal(overlaps[0].kind, 'claimed');
        const sides = overlaps[0].between.map((side, i) => [side.peer, side.checkout, side.intent, overlaps[0].paths[0][i]]).sort();
        assert.deepEqual(sides, [[a.id, basename(here), 'rewriting login', 'src/auth'], [b.id, basename(there), 'tokens', 'src/auth/token.go']].sort());
        const text = textOf(await x.call('majordomus_peers', {}));
        assert.match(text, new RegExp(`you are ${x.id}\n`));
        assert.match(text, /overlap \(claimed\): .*src\/auth/);
      }
    },

    async 'this checkout only'() {
      const seen = await board(a, { checkouts: 'this' });
      assert.deepEqual([seen.peers.map(p => p.client), seen.boards.map(o => o.root), seen.overlaps], [['alpha'], [here], []]);
      const err = await rejected(a.call('majordomus_peers', { checkouts: 'all' }), 'another word');
      assert.equal(err.code, -32602);
    },

    async 'the resource is the board'() {
      const { contents: [{ text, mimeType }] } = await a.client.readResource({ uri: uriPeers });
      const { you, ...seen } = await board(a);
      assert.equal(mimeType, 'application/json');
      assert.deepEqual(JSON.parse(text), seen);
    },

    async 'who subscribed hears of changes, until it has enough'() {
      const heard = await a.hear(uriPeers);
      const c = await open(here, 'gamma');
      await board(c);
      await heard.moreThan(0); // it came
      let before = heard.count;
      await announce(c, { intent: 'reading', scope: ['README.md'] });
      await heard.moreThan(before);
      const also = await c.hear(uriPeers);
      await heard.stop();
      before = heard.count;
      const others = also.count;
      await announce(a, { intent: 'rewriting login', scope: ['src/auth', 'docs'] });
      await also.moreThan(others);
      await a.call('majordomus_server', {}); // what was told before is heard
      assert.equal(heard.count, before, 'it had stopped');
      const anew = await a.hear(uriPeers);
      await announce(c, { scope: [] });
      await closes(c.client, c.transport);
      await anew.moreThan(0); // it went
      await anew.stop();
    },

    async 'a newcomer is told of the others'() {
      const c = await open(here, 'delta');
      assert.match(c.instructions, new RegExp(`${a.id} \\(alpha\\) works on src/auth, docs: "rewriting login"`));
      assert.match(c.instructions, /majordomus_announce/);
      await closes(c.client, c.transport);
    },

    async 'an editor that is killed has departed at once'() {
      const c = await open(there, 'epsilon');
      const { peer } = await announce(c, { intent: 'half done', scope: ['half'] });
      const child = c.transport._process;
      const began = Date.now();
      process.kill(child.pid, 'SIGKILL');
      await until(async () => of(await board(a), peer)?.attached === false);
      assert.ok(Date.now() - began < 5000, 'not at once');
      const gone = of(await board(b), peer);
      assert.deepEqual([gone.attached, gone.claims.map(x => x.scope)], [false, [['half']]]);
      const met = await announce(a, { intent: 'half', scope: ['half/x'], claim: 'half' });
      assert.deepEqual(met.overlaps.map(o => [o.peer, o.attached, o.intent]), [[peer, false, 'half done']]);
      await announce(a, { scope: [], claim: 'half' });
    },

    async 'a server that is killed comes back with what was announced'() {
      const heard = await b.hear(uriPeers);
      for (let round = 0; round < 3; round++) {
        const { pid } = lease(there);
        process.kill(pid, 'SIGKILL');
        // What the other says meanwhile is honest: there is a server, there is
        // none, or it is not known.
        for (;;) {
          const seen = await board(a);
          const state = states(seen)[basename(there)];
          assert.deepEqual(of(seen, a.id).claims.map(x => x.scope), [['src/auth', 'docs']]);
          assert.equal(seen.complete, state !== 'unread', JSON.stringify(seen.boards));
          if (state !== 'served') assert.deepEqual([seen.peers.map(p => p.id), seen.overlaps], [[a.id], []]);
          // It may be seen a moment before its claims, which come one by one.
          if (of(seen, b.id)?.claims.length > 0) {
            assert.deepEqual(of(seen, b.id).claims.map(x => [x.claim, x.intent, x.scope]), [['default', 'tokens', ['src/auth/token.go']]]);
            assert.equal(seen.overlaps.length, 1);
            break;
          }
        }
        assert.notEqual(lease(there).pid, pid);
        const own = await board(b);
        assert.deepEqual([own.you, own.overlaps.length, own.complete], [b.id, 1, true]);
        // The subscription is the next server's too.
        const before = heard.count;
        await announce(b, { intent: `round ${round}`, scope: ['round'], claim: 'round' });
        await heard.moreThan(before);
        await announce(b, { scope: [], claim: 'round' });
      }
      await heard.stop();
    },

    async 'a server that ends leaves the other complete'() {
      await closes(b.client, b.transport);
      await until(async () => of(await board(a), b.id)?.attached === false);
      assert.equal((await board(a)).overlaps.length, 0, 'with one who has gone');
      words(there, 'serve', 'stop');
      const seen = await board(a);
      assert.deepEqual([seen.complete, states(seen)], [true, { ...everywhere, [basename(there)]: 'none' }]);
      assert.deepEqual([seen.peers.map(p => p.id), seen.overlaps], [[a.id], []]);
      assert.deepEqual((await announce(a, { intent: 'rewriting login', scope: ['src/auth'] })).complete, true);
    },

    async 'one that says nothing makes it incomplete, and says so'() {
      const c = await open(there, 'zeta');
      await board(c);
      const { pid, url } = lease(there);
      process.kill(pid, 'SIGSTOP');
      // The signal is on its way still.
      await until(() => fetch(`${url}/api/v1/live`, { signal: AbortSignal.timeout(200) }).then(() => false, () => true));
      try {
        const seen = await board(a);
        assert.deepEqual([seen.complete, states(seen)[basename(there)]], [false, 'unread']);
        assert.match(seen.boards.find(o => !o.this).reason, /does not answer/);
        assert.match(textOf(await a.call('majordomus_peers', {})), /not complete: the board of .* could not be read/);
        const said = await announce(a, { intent: 'rewriting login', scope: ['src/auth'] });
        assert.deepEqual([said.complete, said.reasons.length], [false, 1]);
      } finally {
        process.kill(pid, 'SIGCONT');
      }
      await until(async () => (await board(a)).complete);
      await closes(c.client, c.transport);
    },

    async 'nothing odd was received'() {
      assert.deepEqual(ids, [a.id, b.id]);
      assert.deepEqual(a.errors.concat(b.errors), []);
      await closes(a.client, a.transport);
    },
  });
}
