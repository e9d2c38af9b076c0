// Editors of the era 2026-07-28, in two work trees of one repository, with the
// TypeScript SDK v2. The checks are in boards.mjs:
//
//   node board2.mjs PROGRAM ROOT OTHERROOT
import { Client } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { assert, events } from './common.mjs';
import { boards } from './boards.mjs';

const [program, ...roots] = process.argv.slice(2);
const era = '2026-07-28';

async function open(root, name) {
  const transport = new StdioClientTransport({ command: program, args: ['mcp'], cwd: root, stderr: 'inherit' });
  const client = new Client({ name, version: '1' }, { versionNegotiation: { mode: { pin: era } } });
  const heard = new Map();
  const errors = [];
  client.setNotificationHandler('notifications/resources/updated', ({ params }) => heard.get(params.uri)?.add());
  client.onerror = err => errors.push(err);
  await client.connect(transport);
  assert.equal(client.getNegotiatedProtocolVersion(), era);
  await client.listTools(); // from now on the SDK holds answers against the schemas
  return {
    client, transport, errors, instructions: client.getInstructions(),
    call: (tool, args) => client.callTool({ name: tool, arguments: args }),
    async hear(uri) {
      const told = events();
      heard.set(uri, told);
      const subscription = await client.listen({ resourceSubscriptions: [uri] });
      assert.deepEqual(subscription.honoredFilter, { resourceSubscriptions: [uri] });
      told.stop = async () => {
        await subscription.close();
        await subscription.closed;
      };
      return told;
    },
  };
}

await boards(program, roots, open);
