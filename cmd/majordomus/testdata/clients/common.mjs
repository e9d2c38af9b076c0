// What the clients' scripts share: checks that print one line each, and what
// can be seen of a checkout's server from outside.
import assert from 'node:assert/strict';
import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

export { assert };
export const uriServer = 'majordomus://server';
export const uriLayer = 'majordomus://layer/';

// check runs one step and ends the script with the first that fails.
export async function check(name, step) {
  const start = Date.now();
  try {
    await within(step(), 60_000, name);
  } catch (err) {
    console.log(`FAIL ${name} (${Date.now() - start} ms)`);
    console.log(err);
    process.exit(1);
  }
  console.log(`ok   ${name} (${Date.now() - start} ms)`);
}

// within fails when promise is not settled after ms.
export function within(promise, ms, what) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what}: nothing after ${ms} ms`)), ms);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

// events counts what comes and lets a step wait for the next one.
export function events() {
  let count = 0;
  let wake = [];
  return {
    get count() { return count; },
    add() {
      count++;
      for (const w of wake.splice(0)) w();
    },
    async moreThan(n) {
      while (count <= n) await new Promise(resolve => wake.push(resolve));
    },
  };
}

export const lease = root => JSON.parse(readFileSync(join(root, '.ai/local/state/mcp/server.json'), 'utf8'));

// addFile puts a file into the layer, whole or not at all.
export function addFile(root, name, text) {
  const path = join(root, '.ai/repo', name);
  writeFileSync(path + '.tmp~', text);
  renameSync(path + '.tmp~', path);
}

export const textOf = result => result.content.map(c => c.text).join('');

// bigNote has size bytes of UTF-8, with what is often spoilt on the way: line
// separators, characters that HTML or JSON escapes, and some of four bytes.
export function bigNote(size) {
  const pattern = Buffer.from('0123456789 <b>&amp;</b> "\\/" é ß 漢字 🚀 \u2028\u2029\ufeff\u0001\n\r\t|');
  const note = Buffer.alloc(size, '.');
  for (let at = 0; at + pattern.length <= size; at += 64 * pattern.length) pattern.copy(note, at);
  return note.toString();
}

export const sleep = ms => new Promise(resolve => setTimeout(resolve, ms));
