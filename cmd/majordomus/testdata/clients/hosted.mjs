// What hub1.mjs and hub2.mjs share: what is asked of each hosted server, and
// what the servers answer when they are asked directly. ROOT is a checkout
// whose servers file names everything, files, memory, odd and thinking.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import * as T from '@modelcontextprotocol/sdk/types.js';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { assert } from './common.mjs';
import { difficult } from './suite.mjs';

export const names = ['everything', 'files', 'memory', 'odd', 'thinking'];
export const lists = { tools: 'tools/list', prompts: 'prompts/list', resources: 'resources/list', resourceTemplates: 'resources/templates/list' };

const tool = (name, args = {}) => ['tools/call', { name, arguments: args }];
const prompt = (name, args) => ['prompts/get', { name, arguments: args }];
const read = uri => ['resources/read', { uri }];

// plays is what one editor asks of each server, one thing after the other.
export const plays = (root, i) => {
  const dir = join(root, 'files', `editor-${i}`);
  const at = name => join(dir, name);
  const who = `editor ${i}`;
  return {
    everything: [
      ...difficult.map(message => tool('echo', { message: `${who}: ${message}` })),
      tool('echo', {}), // not what its schema asks for
      tool('get-annotated-message', { messageType: 'error', includeImage: true }),
      tool('get-annotated-message', { messageType: 'debug' }),
      tool('get-resource-links', { count: 4 }),
      tool('get-resource-reference', { resourceType: 'Blob', resourceId: i + 1 }),
      tool('get-resource-reference', { resourceType: 'Text', resourceId: i + 1 }),
      tool('get-structured-content', { location: 'Chicago' }),
      tool('get-sum', { a: i, b: 0.1 }),
      tool('get-sum', { a: 'x' }),
      tool('get-tiny-image'),
      tool('trigger-long-running-operation', { duration: 0.1, steps: 2 }),
      tool('gzip-file-as-resource', { name: `${i}.gz`, data: 'data:text/plain,hello', outputType: 'resource' }),
      read(`demo://resource/session/${i}.gz`),
      prompt('simple-prompt'),
      prompt('args-prompt', { city: who, state: 'ü' }),
      prompt('args-prompt', {}),
      prompt('completable-prompt', { department: 'Sales', name: 'David' }),
      prompt('resource-prompt', { resourceType: 'Text', resourceId: '3' }),
      read('demo://resource/static/document/features.md'),
      read(`demo://resource/dynamic/text/${i + 1}`),
      read(`demo://resource/dynamic/blob/${i + 1}`),
      read('demo://resource/dynamic/text/none'),
      ['completion/complete', { ref: { type: 'ref/prompt', name: 'completable-prompt' }, argument: { name: 'department', value: 'S' } }],
      ['completion/complete', { ref: { type: 'ref/resource', uri: 'demo://resource/dynamic/text/{resourceId}' }, argument: { name: 'resourceId', value: String(i + 1) } }],
    ],
    files: [
      tool('create_directory', { path: dir }),
      tool('write_file', { path: at('a.txt'), content: `${who}\nline two\n${difficult.join('|')}` }),
      tool('read_text_file', { path: at('a.txt') }),
      tool('read_text_file', { path: at('a.txt'), head: 1 }),
      tool('edit_file', { path: at('a.txt'), edits: [{ oldText: 'line two', newText: 'zweite Zeile' }], dryRun: true }),
      tool('edit_file', { path: at('a.txt'), edits: [{ oldText: 'line two', newText: 'zweite Zeile' }] }),
      tool('move_file', { source: at('a.txt'), destination: at('b.txt') }),
      tool('read_multiple_files', { paths: [at('b.txt'), at('gone.txt')] }),
      tool('read_media_file', { path: join(root, 'files', 'pixel.png') }),
      tool('list_directory', { path: dir }),
      tool('list_directory_with_sizes', { path: dir, sortBy: 'size' }),
      tool('directory_tree', { path: dir }),
      tool('search_files', { path: dir, pattern: '*.txt' }),
      tool('get_file_info', { path: at('b.txt') }),
      tool('list_allowed_directories'),
      tool('read_text_file', { path: '/etc/passwd' }),
    ],
    memory: [
      tool('create_entities', { entities: [{ name: who, entityType: 'editor', observations: ['é', '\u2028'] }, { name: `${who}'s friend`, entityType: 'person', observations: [] }] }),
      tool('create_relations', { relations: [{ from: who, to: `${who}'s friend`, relationType: 'knows' }] }),
      tool('add_observations', { observations: [{ entityName: who, contents: ['more', 'é'] }] }),
      tool('add_observations', { observations: [{ entityName: 'nobody', contents: [] }] }),
      tool('open_nodes', { names: [who] }),
      tool('search_nodes', { query: who }),
      tool('delete_observations', { deletions: [{ entityName: who, observations: ['more'] }] }),
      tool('open_nodes', { names: [who, `${who}'s friend`] }),
      tool('delete_relations', { relations: [{ from: who, to: `${who}'s friend`, relationType: 'knows' }] }),
      tool('delete_entities', { entityNames: [who, `${who}'s friend`] }),
      tool('search_nodes', { query: who }),
    ],
    odd: [
      tool('echo', { a: i, b: null, 'x-more': [{}, [], '', 0.5, difficult.join('|')] }),
      tool('list.of types/漢字', { 漢: who }),
      tool('bare'),
      ['tools/call', { name: 'echo' }],
      ['tools/call', { name: 'echo', arguments: { a: 1 }, _meta: { 'example.com/trace': { deep: [i] } }, 'x-params': true }],
      prompt('ask', { what: who }),
      read('odd://one?q=1#f'),
      read(`odd://by/some/where?q=${i}`),
      ['completion/complete', { ref: { type: 'ref/prompt', name: 'ask' }, argument: { name: 'what', value: '' } }],
    ],
    thinking: [1, 2, 3, 4, 5].map(n => tool('sequentialthinking', { thought: `${who}, ${n}`, nextThoughtNeeded: n < 5, thoughtNumber: n, totalThoughts: 4, isRevision: n === 3, revisesThought: 1 })),
  };
};

// prepare gives what the plays need, without what an earlier one left.
export function prepare(root) {
  rmSync(join(root, 'files'), { recursive: true, force: true });
  mkdirSync(join(root, 'files'));
  writeFileSync(join(root, 'files', 'pixel.png'), Buffer.from('iVBORw0KGgo=', 'base64'));
}

// The hosted memory server writes a file that it has read before, and knows no
// lock: what crosses there is lost, whoever asks. So its plays come in turn.
let memory = Promise.resolve();
const inTurn = play => {
  const mine = memory.then(play);
  memory = mine.catch(() => {});
  return mine;
};

// perform asks all of a play and returns the answers: results and errors as
// they came.
export async function perform(server, play, ask) {
  const all = async () => {
    const answers = [];
    for (const [method, params] of play) answers.push(await ask(method, params));
    return answers;
  };
  return server === 'memory' ? inTurn(all) : all();
}

// steady is an answer without what is another at each time or in each process.
export function steady(value) {
  if (Array.isArray(value)) return value.map(steady);
  if (value && typeof value === 'object') {
    const member = (k, v) => k === 'blob' ? blob(v) : k === 'thoughtHistoryLength' ? 'N' : steady(v);
    return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, member(k, v)]));
  }
  if (typeof value !== 'string') return value;
  return value.replace(/created at \d+:\d\d:\d\d( [AP]M)?/g, 'created at TIME')
    .replace(/^(created|modified|accessed): .*$/gm, '$1: TIME')
    .replace(/"thoughtHistoryLength": \d+/, '"thoughtHistoryLength": N')
    .replace(/(MCP error -32\d\d\d: )+/g, ''); // the SDKs put it there, some more than once
}
const blob = text => {
  const bytes = Buffer.from(text, 'base64');
  return bytes[0] === 0x1f ? text : steady(bytes.toString()); // what is compressed has no time in it
};

// thoughts are how many the server had at each answer.
export const thoughts = answers => answers.map(a => JSON.parse(a.result.content[0].text).thoughtHistoryLength);

// exact has the SDK hand over all members of a result.
export const exact = (client, method, params) => client.request({ method, params }, T.ResultSchema)
  .then(result => ({ result }), ({ code, message, data }) => ({ error: { code, message, data } }));

// all is a list to its last page.
export async function all(ask, kind) {
  const found = [];
  let cursor;
  do {
    const { result, error } = await ask(lists[kind], cursor ? { cursor } : {});
    if (error?.code === -32601) return []; // there is none
    assert.equal(error, undefined, JSON.stringify(error));
    found.push(...result[kind]);
    cursor = result.nextCursor;
  } while (cursor);
  return found;
}

// able is what the hub says of itself to a server, which offers tools by it.
export const able = { roots: {}, sampling: {}, elicitation: {} };
export const sampled = asked => ({ model: 'a-model', role: 'assistant', stopReason: 'endTurn', content: { type: 'text', text: `sampled ✓ ${asked.messages[0].content.text}` } });
export const elicited = name => ({ action: 'accept', content: { name, integer: 7, check: true } });

// direct is a connection to a server that the servers file names, without
// anything between.
export async function direct(root, server) {
  const { command, args, env } = JSON.parse(readFileSync(join(root, '.ai/repo/mcp.json'), 'utf8')).mcpServers[server];
  const own = { ...env };
  if (own.MEMORY_FILE_PATH) own.MEMORY_FILE_PATH += '.direct';
  const transport = new StdioClientTransport({ command, args, cwd: root, env: { PATH: process.env.PATH, ...own }, stderr: 'ignore' });
  const client = new Client({ name: 'direct', version: '1' }, { capabilities: able });
  client.asked = [];
  client.setRequestHandler(T.ListRootsRequestSchema, () => ({ roots: [{ uri: pathToFileURL(root).href, name: basename(root) }] }));
  client.setRequestHandler(T.CreateMessageRequestSchema, ({ params }) => { client.asked.push(params); return sampled(params); });
  client.setRequestHandler(T.ElicitRequestSchema, ({ params }) => { client.asked.push(params); return elicited('editor 0'); });
  await client.connect(transport);
  client.pid = transport.pid;
  return client;
}

// mangled is a tool's or prompt's name as clients see it.
export const mangled = {};
export const named = (server, method, params) => {
  if (method === 'tools/call' || method === 'prompts/get') return { ...params, name: mangled[`${server} ${params.name}`] ?? `${server}__${params.name}` };
  if (params.ref?.name) return { ...params, ref: { ...params.ref, name: `${server}__${params.ref.name}` } };
  return params;
};

// leftOut are the tools that the hub does not show: one that clients refuse, and
// one that is only run as a task.
export const leftOut = ['nullable', 'simulate-research-query'];

// compare holds the lists of a client of the hub against those of direct
// connections.
export function compare(kind, listed, wanted) {
  if (kind === 'resources' || kind === 'resourceTemplates') {
    const foreign = listed.filter(r => !(r.uri ?? r.uriTemplate).startsWith('majordomus:'));
    assert.deepEqual(foreign, names.flatMap(server => wanted[server][kind]));
    return;
  }
  const foreign = listed.filter(t => !t.name.startsWith('majordomus_'));
  const plain = foreign.map(({ name, ...rest }) => rest);
  const fit = Object.fromEntries(names.map(server => [server, wanted[server][kind].filter(t => !leftOut.includes(t.name))]));
  assert.deepEqual(plain, names.flatMap(server => fit[server].map(({ name, ...rest }) => rest)));
  names.flatMap(server => fit[server].map(t => [server, t.name])).forEach(([server, name], i) => {
    const public_ = foreign[i].name;
    assert.match(public_, /^[A-Za-z0-9_-]{1,47}$/);
    if (/^[A-Za-z0-9_-]+$/.test(name)) assert.equal(public_, `${server}__${name}`);
    mangled[`${server} ${name}`] = public_;
  });
  assert.equal(new Set(foreign.map(t => t.name)).size, foreign.length, 'a name is there twice');
}
