// Editors of the eras with a handshake, in two work trees of one repository,
// with the TypeScript SDK v1. The checks are in boards.mjs:
//
//   node board1.mjs PROGRAM ROOT OTHERROOT
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { ResourceUpdatedNotificationSchema } from '@modelcontextprotocol/sdk/types.js';
import { events } from './common.mjs';
import { boards } from './boards.mjs';

const [program, ...roots] = process.argv.slice(2);

async function open(root, name) {
  const transport = new StdioClientTransport({ command: program, args: ['mcp'], cwd: root, stderr: 'inherit' });
  const client = new Client({ name, version: '1' });
  const heard = new Map();
  const errors = [];
  client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) => heard.get(params.uri)?.add());
  client.onerror = err => errors.push(err);
  await client.connect(transport);
  await client.listTools(); // from now on the SDK holds answers against the schemas
  return {
    client, transport, errors, instructions: client.getInstructions(),
    call: (tool, args) => client.callTool({ name: tool, arguments: args }),
    async hear(uri) {
      const told = events();
      heard.set(uri, told);
      await client.subscribeResource({ uri });
      told.stop = () => client.unsubscribeResource({ uri });
      return told;
    },
  };
}

await boards(program, roots, open);
