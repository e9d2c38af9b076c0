// What checks1.mjs and checks2.mjs share: the running of named checks, and a
// way to speak to a server below the SDK.
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { assert, sleep, within } from './common.mjs';

// run makes the checks one after the other and prints a line of JSON for each.
// None is left out: what does not hold fails.
export async function run(checks) {
  let failed = 0;
  process.on('unhandledRejection', err => {
    failed++;
    print('no promise is left behind', false, String(err?.stack ?? err));
  });
  for (const [name, check] of Object.entries(checks)) {
    const start = Date.now();
    try {
      await within(check(), 20_000, name);
      print(name, true, `${Date.now() - start} ms`);
    } catch (err) {
      failed++;
      print(name, false, String(err?.stack ?? err));
    }
  }
  process.exit(failed > 0 ? 1 : 0);
}

const print = (name, ok, why) => console.log(JSON.stringify({ name, ok, why: why.slice(0, 2000) }));

// until asks again and again; the check that waits has a time of its own.
export async function until(so) {
  while (!await so()) await sleep(10);
}

// rejected returns what promise is rejected with.
export async function rejected(promise, what) {
  const result = await promise.then(() => undefined, err => err);
  assert.ok(result !== undefined, `${what} was no error`);
  return result;
}

// difficult are strings that are easily spoilt on the way.
export const difficult = [
  '\u2028', '\u2029', '🚀', '👩‍🚀👨‍👩‍👧', 'é e\u0301', '𝄞', '\u202e', '\ufeff', '\u0000', '\u0001\u001f\u007f\u0085', '\t\r\n', '"\\/',
  '</script>&amp;', '日本語', 'عربي', '\uffff', '\\u2028', '%00%0a', '{"a":1}\n{"b":2}', '!ping', '',
];

// Process is a server on its standard streams, spoken to line by line.
export class Process {
  #child;
  #lines = [];
  #wake = () => {};

  constructor([command, ...args]) {
    this.#child = spawn(command, args, { stdio: ['pipe', 'pipe', 'inherit'] });
    this.ended = new Promise(resolve => this.#child.once('close', (code, signal) => resolve(signal ?? code)));
    createInterface({ input: this.#child.stdout }).on('line', line => {
      this.#lines.push(JSON.parse(line)); // nothing else may be there
      this.#wake();
    });
  }

  write(text) { this.#child.stdin.write(text); }
  end() { this.#child.stdin.end(); }

  // next returns the first message that was not yet returned.
  async next() {
    while (this.#lines.length === 0) await new Promise(resolve => { this.#wake = resolve; });
    return this.#lines.shift();
  }

  async ask(message) {
    this.write(JSON.stringify(message) + '\n');
    return this.next();
  }
}

// closes fails unless the server of an SDK's client ends when its input does,
// without a signal.
export async function closes(client, transport) {
  const child = transport._process;
  const exited = new Promise(resolve => child.once('close', resolve));
  await client.close();
  await exited;
  assert.equal(child.killed, false, 'a signal was sent');
  assert.equal(child.exitCode, 0);
}
