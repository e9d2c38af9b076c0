// A server whose offers hold what others leave out: schemas with $defs, anyOf
// and keywords of nobody's, types that are lists, icons, _meta, and members
// that the protocol does not know. It speaks below any SDK, so that nothing
// makes them tidy.

const icon = [{ src: 'data:image/svg+xml;base64,PHN2Zy8+', mimeType: 'image/svg+xml', sizes: ['any'], theme: 'dark', 'x-odd': 1 }];
const meta = { 'example.com/cost': 0.1, plain: { deep: [null, true, '\u2028'] } };
const offers = {
  'tools/list': ['tools', [
    // What clients refuse, and the rest of the list with it.
    { name: 'nullable', inputSchema: { type: ['object', 'null'] } },
    {
      name: 'echo', title: 'Écho 🚀', description: 'answers with what it was asked', icons: icon, _meta: meta, 'x-tool': { a: [1, 2] },
      inputSchema: {
        $schema: 'https://json-schema.org/draft/2020-12/schema', $id: 'urn:odd:echo', type: 'object', 'x-order': ['b', 'a'],
        $defs: { id: { anyOf: [{ type: 'string', pattern: '^[a-z]+$' }, { type: 'integer', minimum: -0.5 }, { $ref: '#/$defs/id' }], 'x-deep': { y: null } } },
        properties: { a: { $ref: '#/$defs/id' }, b: { oneOf: [{ const: 1 }, { not: {} }], default: null } },
        patternProperties: { '^x-': {} }, propertyNames: { maxLength: 100 }, unevaluatedProperties: { type: ['string', 'null'] },
        dependentSchemas: { a: { required: ['b'] }, c: true, d: false }, if: {}, then: {}, else: {}, required: [], additionalProperties: true,
      },
      outputSchema: { type: 'object', anyOf: [{ required: ['params'] }, { required: ['n'] }], 'x-out': true },
      annotations: { title: 'Echo', readOnlyHint: true, 'x-hint': 'yes' }, execution: { taskSupport: 'forbidden', 'x-e': 1 },
    },
    { name: 'list.of types/漢字', inputSchema: { type: 'object', anyOf: [{}, true], properties: { 漢: { type: ['string', 'null'] } } } },
    { name: 'bare', inputSchema: { type: 'object' } },
  ]],
  'prompts/list': ['prompts', [{ name: 'ask', title: 'Ask', icons: icon, _meta: meta, arguments: [{ name: 'what', required: true, 'x-arg': 1 }], 'x-prompt': {} }]],
  'resources/list': ['resources', [{
    uri: 'odd://one?q=1#f', name: 'one', title: 'One', size: 12, icons: icon, _meta: meta,
    annotations: { audience: ['user'], priority: 0.25, lastModified: '2025-01-12T15:00:58Z', 'x-a': 1 }, 'x-resource': null,
  }]],
  'resources/templates/list': ['resourceTemplates', [{ uriTemplate: 'odd://by{/path*}{?q}', name: 'by', icons: icon, _meta: meta, 'x-template': [] }]],
};

const answers = {
  initialize: ({ protocolVersion }) => ({
    protocolVersion, capabilities: { tools: { listChanged: true }, prompts: {}, resources: { subscribe: true }, experimental: { odd: {} } }, serverInfo: { name: 'odd', version: '1' },
  }),
  ping: () => ({}),
  'tools/call': params => ({ content: [{ type: 'text', text: 'ok', _meta: meta, 'x-c': 1 }], structuredContent: { params }, _meta: meta, 'x-result': { n: 1e300 } }),
  'prompts/get': params => ({ description: 'd', messages: [{ role: 'user', content: { type: 'text', text: 'asked' }, 'x-asked': params }], _meta: meta, 'x-p': 1 }),
  'resources/read': ({ uri }) => ({ contents: [{ uri, text: 'read', mimeType: 'text/x-odd', _meta: meta, 'x-r': 1 }], _meta: meta, 'x-read': [1] }),
  'resources/subscribe': () => ({ _meta: meta }),
};

const say = message => process.stdout.write(JSON.stringify({ jsonrpc: '2.0', ...message }) + '\n');
console.error('a server with odd offers');

function answer(line) {
  const { id, method, params = {} } = JSON.parse(line);
  if (id === undefined) return;
  const [member, list] = offers[method] ?? [];
  const at = Number(params.cursor ?? 0); // one entry a page
  if (list) say({ id, result: { [member]: list.slice(at, at + 1), ...(at + 1 < list.length && { nextCursor: String(at + 1) }), _meta: meta } });
  else if (method === 'tools/call' && params.name === 'bare') say({ id, error: { code: -32050, message: 'no <thing> & "more"', data: { n: [1, null], 'x-d': {} } } });
  else if (answers[method]) say({ id, result: answers[method](params) });
  else say({ id, error: { code: -32601, message: `no ${method}` } });
}

// Not node:readline, which takes U+2028 for the end of a line.
let rest = '';
process.stdin.setEncoding('utf8').on('data', text => {
  const lines = (rest + text).split('\n');
  rest = lines.pop();
  lines.forEach(answer);
});
