// Drives a browser for TestCockpit and TestStrangersPage: reads a command a line, answers with a line.
// Words: BROWSER PROFILE, the executable and a new folder for what it keeps.
import { chromium } from "playwright-core";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";

const axe = readFileSync(new URL(import.meta.resolve("axe-core")), "utf8");
const [executablePath, profile] = process.argv.slice(2);
const browser = await chromium.launchPersistentContext(profile, {
  executablePath,
  headless: true,
  args: ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});

let page = null;
const said = []; // what the browser calls errors
const asked = []; // whom it asked

const words = {
  async open({ url, width = 1280, height = 900 }) {
    await page?.close();
    page = await browser.newPage();
    await page.setViewportSize({ width, height });
    page.on("console", (m) => { if (m.type() === "error" || m.type() === "warning") said.push(m.text()); });
    page.on("pageerror", (e) => said.push("not caught: " + e.message));
    page.on("request", (r) => asked.push(new URL(r.url()).origin));
    // What the page went through between two looks is to be seen too.
    await page.addInitScript(() => {
      window.phases = [];
      addEventListener("DOMContentLoaded", () => {
        const note = () => window.phases.push(document.body.dataset.phase);
        new MutationObserver(note).observe(document.body, { attributes: true, attributeFilter: ["data-phase"] });
      });
    });
    await page.goto(url);
  },
  go: ({ url }) => page.goto(url),
  async until({ selector, text, within = 30_000 }) {
    const so = ([selector, text]) => [...document.querySelectorAll(selector)].some((e) => e.checkVisibility() && e.textContent.includes(text));
    try {
      await page.waitForFunction(so, [selector, text], { timeout: within, polling: 50 });
    } catch (e) {
      const seen = await page.evaluate((selector) => [...document.querySelectorAll(selector)].map((e) => e.textContent), selector);
      throw new Error(`${selector} does not show ${JSON.stringify(text)} but ${JSON.stringify(seen)}: ${e.message.split("\n")[0]}; the page: ${await page.evaluate(() => document.body.innerText)}`);
    }
  },
  find: ({ expression }) => page.evaluate(expression),
  press: ({ keys }) => page.keyboard.press(keys),
  async shot({ path, scheme, width = 1280 }) {
    await page.emulateMedia({ colorScheme: scheme });
    await page.setViewportSize({ width, height: 900 });
    await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
    await page.screenshot({ path, fullPage: true });
  },
  // What keeps people from using the page, as far as a program can tell.
  async audit({ scheme, width }) {
    await page.emulateMedia({ colorScheme: scheme });
    await page.setViewportSize({ width, height: 900 });
    await page.evaluate(axe);
    const { violations } = await page.evaluate(() => axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] }));
    return violations.map((v) => `${v.id}: ${v.nodes.map((n) => `${n.html.slice(0, 200)}: ${n.failureSummary}`).join("; ")}`);
  },
  said: () => said.splice(0),
  asked: () => [...new Set(asked)],
};

for await (const line of createInterface({ input: process.stdin })) {
  const { word, ...rest } = JSON.parse(line);
  let answer;
  try {
    answer = { value: (await words[word](rest)) ?? null };
  } catch (e) {
    answer = { error: e.message };
  }
  process.stdout.write(JSON.stringify(answer) + "\n");
}
await browser.close();
