// The page's own program. It reads what its server tells, keeps listening, and
// shows it. Names, intents, paths and errors come from other processes: all of
// it becomes text nodes, and how much of anything is shown is bounded.

const most = { executions: 200, peers: 120, overlaps: 50, paths: 12, touched: 64, upstreams: 100, findings: 100, checkouts: 200 };

const $ = (id) => document.getElementById(id);

// ---- making and changing what is shown ----

function el(tag, attributes = {}, ...inside) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  e.append(...inside);
  return e;
}

const ul = (kind) => el("ul", { class: kind, role: "list" }); // some browsers forget it of a list without dots

const bdi = (text) => el("bdi", {}, text); // somebody else's word may run the other way

// put changes only what is different: what is read or selected stays.
function put(e, text) {
  text = String(text ?? "");
  if (e.textContent !== text) e.textContent = text;
}

function mark(e, name, value) {
  if (e.getAttribute(name) !== value) e.setAttribute(name, value);
}

const parts = new WeakMap();

// list shows items in their order, each by the part that make made for its key
// once. A part is {node, show}; one that stays is not moved, so that focus and
// what is unfolded stay as well.
function list(parent, items, key, make) {
  const had = parts.get(parent) ?? new Map();
  const now = new Map();
  for (const item of items) {
    const k = key(item);
    if (!now.has(k)) now.set(k, [had.get(k) ?? make(item), item]);
  }
  for (const [k, part] of had) if (!now.has(k)) part.node.remove();
  let at = parent.firstChild;
  for (const [part, item] of now.values()) {
    part.show(item);
    if (at === part.node) at = at.nextSibling;
    else parent.insertBefore(part.node, at);
  }
  parts.set(parent, new Map([...now].map(([k, [part]]) => [k, part])));
}

// ---- words ----

const thin = "\u202f";
const number = (n) => Number(n ?? 0).toLocaleString("en");
const plural = (n, one, many = one + "s") => (n === 1 ? one : many);

function took(ms) {
  if (!(ms >= 0)) return "–";
  if (ms < 9.95) return ms.toFixed(1) + thin + "ms";
  if (ms < 999.5) return Math.round(ms) + thin + "ms";
  if (ms < 59_950) return (ms / 1000).toFixed(1) + thin + "s";
  return lasting(ms);
}

function lasting(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  if (s < 60) return s + thin + "s";
  const m = Math.floor(s / 60);
  if (m < 60) return m + thin + "min " + (s % 60) + thin + "s";
  const h = Math.floor(m / 60);
  if (h < 24) return h + thin + "h " + (m % 60) + thin + "min";
  return Math.floor(h / 24) + thin + "d " + (h % 24) + thin + "h";
}

// some is lasting for what need not be known to the second.
function some(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  if (s < 60) return s + thin + "s";
  if (s < 3600) return Math.floor(s / 60) + thin + "min";
  if (s < 86_400) return Math.floor(s / 3600) + thin + "h";
  return Math.floor(s / 86_400) + thin + "d";
}

const ago = (ms) => (ms < 5000 ? "just now" : some(ms) + " ago");

const bytes = (n) => (!n ? "–" : n < 1 << 20 ? Math.max(1, Math.round(n / 1024)) + thin + "kB" : (n / (1 << 20)).toFixed(n < 10 << 20 ? 1 : 0) + thin + "MB");

const clock = (at) => new Date(at).toLocaleTimeString("en-GB");

// since is a time that goes on being told as it is now.
function since(how = "ago") {
  return el("time", { "data-how": how });
}

function setSince(e, at) {
  if (e.dateTime !== at) {
    e.dateTime = at;
    e.title = new Date(at).toLocaleString("en-GB");
  }
  tell(e, Date.now());
}

function tell(e, now) {
  const ms = now - Date.parse(e.dateTime);
  put(e, { ago, lasting, some, took }[e.dataset.how](ms));
}

// ---- what the server says of itself ----

let server = null; // its state, as last told

function showServer(s) {
  server = s;
  put($("name"), s.repository || "majordomus");
  put($("version"), `majordomus ${s.version}` + (s.url ? ` at ${s.url.replace(/^http:\/\//, "")}` : ""));
  const standing = s.leaseholder ? "holds the lease" : s.draining ? "is ending" : "does not hold the lease";
  const facts = [
    ["Checkout", s.root || s.repository || "none", "path"],
    ["Work tree", s.linked_worktree ? "linked" : "main"],
    ["Standing", standing, s.leaseholder ? "good" : "bad"],
    ["Lease", s.leaseholder ? "held since " + clock(s.started_at) : s.draining ? "given up" : "lost"],
    ["Generation", s.generation, "code"],
    ["Up for", s.started_at, "lasting"],
    ["Address", s.url || "no port", "code"],
    ["Version", s.version],
  ];
  if (s.stale) facts.push(["Out of date", s.stale, "bad"]);
  if (s.alone) facts.push(["Alone", s.alone, "bad"]);
  list($("facts"), facts, ([term]) => term, ([term]) => {
    const dd = el("dd");
    return {
      node: el("div", {}, el("dt", {}, term), dd),
      show([, value, kind]) {
        mark(dd, "class", kind ?? "");
        if (kind !== "lasting") return put(dd, value);
        if (!dd.firstChild) dd.append(since("lasting"));
        setSince(dd.firstChild, value);
      },
    };
  });
  standingChanged();
}

// ---- peers, overlaps, checkouts ----

function paths(all, limit = most.paths) {
  return { shown: all.slice(0, limit), left: all.length - limit };
}

function claimPart() {
  const intent = el("p", { class: "intent" });
  const scope = ul("scope");
  const name = bdi("");
  const named = el("span", {}, "claim ", name, ", ");
  const when = since();
  const foot = el("p", { class: "sub" }, named, "announced ", when);
  return {
    node: el("li", {}, intent, scope, foot),
    show(c) {
      put(intent, c.intent || "no intent given");
      const { shown, left } = paths(c.scope);
      list(scope, left > 0 ? [...shown, `and ${left} more`] : shown, (p) => p, (p) => ({
        node: el("li", {}, el("code", {}, p === "." ? "the whole checkout" : p)), show() {},
      }));
      put(name, c.claim);
      named.hidden = c.claim === "default";
      setSince(when, c.at);
    },
  };
}

function touchedPart() {
  const path = el("code");
  const how = el("span");
  const when = since();
  return {
    node: el("li", {}, path, " ", el("span", { class: "sub" }, how, " ", when)),
    show(t) {
      put(path, t.path);
      put(how, t.wrote ? "wrote" : "read");
      setSince(when, t.at);
    },
  };
}

let manyCheckouts = false;

function peerPart() {
  const client = bdi("");
  const version = el("span", { class: "sub" });
  const id = el("code", { class: "id" });
  const how = el("span");
  const when = since();
  const by = el("span");
  const where = bdi("");
  const there = el("span", {}, ", in ", where);
  const claims = ul("claims");
  const silent = el("p", { class: "none" }, "has announced nothing");
  const count = el("span");
  const touched = ul("touched");
  const details = el("details", {}, el("summary", {}, count), touched);
  const node = el("li", { class: "peer" },
    el("div", { class: "who" }, el("h3", {}, client, " ", version), id),
    el("p", { class: "sub" }, how, " ", when, by, there), claims, silent, details);
  return {
    node,
    show(p) {
      put(client, p.client || "a client without a name");
      put(version, p.version);
      put(id, p.id);
      node.classList.toggle("departed", !p.attached);
      const hand = p.front === "hand";
      put(how, !p.attached ? "departed" : hand ? "announced by hand" : "attached for");
      put(by, p.attached && !hand ? `, by ${p.front}` : "");
      when.dataset.how = p.attached && !hand ? "some" : "ago";
      setSince(when, (!p.attached && p.departed_at) || p.since);
      there.hidden = !manyCheckouts;
      put(where, p.checkout);
      list(claims, p.claims, (c) => c.claim, claimPart);
      claims.hidden = p.claims.length === 0;
      silent.hidden = p.claims.length > 0;
      const wrote = p.touched.filter((t) => t.wrote).length;
      details.hidden = p.touched.length === 0;
      put(count, `Touched ${p.touched.length} ${plural(p.touched.length, "path")}` + (wrote ? `, ${wrote} of them written` : ""));
      list(touched, p.touched.slice(0, most.touched), (t) => t.path, touchedPart);
    },
  };
}

function sidePart(node) {
  const client = bdi("");
  const id = el("code", { class: "id" });
  const where = bdi("");
  const there = el("span", { class: "sub" }, " in ", where);
  const intent = el("span", { class: "said" });
  node.append(el("span", { class: "party" }, client, " ", id, there), intent);
  return (s) => {
    put(client, s.client || "a client without a name");
    put(id, s.peer);
    there.hidden = !manyCheckouts;
    put(where, s.checkout);
    intent.hidden = !s.intent;
    put(intent, s.intent);
  };
}

function overlapPart() {
  const head = el("h3", { class: "quiet" });
  const kind = el("p", { class: "sub" });
  const one = el("div", { class: "side-a" });
  const other = el("div", { class: "side-b" });
  const showOne = sidePart(one), showOther = sidePart(other);
  const where = ul("scope");
  return {
    node: el("li", {}, head, el("div", { class: "parties" }, one, other), where, kind),
    show(o) {
      put(head, o.between.map((s) => `${s.client} ${s.peer}`).join(" and "));
      put(kind, o.kind === "claimed" ? "Both announced it." : "One was seen where the other works.");
      showOne(o.between[0]);
      showOther(o.between[1]);
      list(where, o.paths, (p) => p.join("\n"), ([a, b]) => ({
        node: el("li", {}, el("code", {}, a), ...(a === b ? [] : [" meets ", el("code", {}, b)])), show() {},
      }));
    },
  };
}

function checkoutPart() {
  const name = bdi("");
  const this_ = el("span", { class: "tag" }, "this one");
  const root = el("span", { class: "sub path" });
  const state = el("span", { class: "state" }, el("span", { class: "mark", "aria-hidden": "true" }), el("span"));
  const link = el("a");
  const reason = el("span", { class: "sub" });
  const peers = el("td", { class: "num" });
  return {
    node: el("tr", {}, el("th", { scope: "row" }, name, " ", this_, root), el("td", {}, state, link, reason), peers),
    show(b) {
      put(name, b.checkout);
      this_.hidden = !b.this;
      put(root, b.root);
      mark(state, "data-is", { served: "ok", none: "off", unread: "bad" }[b.state] ?? "off");
      put(state.lastChild, { served: "served", none: "no server", unread: "not read" }[b.state] ?? b.state);
      // An address comes from a file that anything may have written.
      const good = /^http:\/\/(127\.0\.0\.1|localhost|\[::1\]):\d{1,5}$/.test(b.url ?? "");
      link.hidden = !good || b.this;
      if (!link.hidden) {
        mark(link, "href", b.url + "/");
        put(link, b.url.slice("http://".length));
      }
      put(reason, b.reason);
      reason.hidden = !b.reason;
      put(peers, b.state === "served" ? number(b.peers) : "–");
    },
  };
}

function showPeers(all) {
  manyCheckouts = new Set(all.peers.map((p) => p.checkout_id)).size > 1;
  const here = all.peers.filter((p) => p.attached).length;
  put($("n-peers"), number(here));
  put($("l-peers"), plural(here, "peer"));
  list($("peers-list"), all.peers.slice(0, most.peers), (p) => p.checkout_id + " " + p.id + " " + p.since, peerPart);
  $("peers-none").hidden = all.peers.length > 0;
  more($("peers-more"), all.peers.length - most.peers);

  const found = all.overlaps.length + (all.overlaps_left_out ?? 0);
  put($("n-overlaps"), number(found));
  put($("l-overlaps"), plural(found, "overlap"));
  $("overlaps").classList.toggle("some", found > 0);
  list($("overlaps-list"), all.overlaps.slice(0, most.overlaps),
    (o) => [o.kind, ...o.between.map((s) => s.checkout + " " + s.peer)].join("\n"), overlapPart);
  $("overlaps-none").hidden = found > 0;
  more($("overlaps-more"), found - Math.min(most.overlaps, all.overlaps.length));

  list($("checkouts-rows"), all.boards.slice(0, most.checkouts), (b) => b.checkout_id || b.root, checkoutPart);
  $("checkouts-table").hidden = all.boards.length === 0;
  put($("checkouts-more"), all.complete ? "" : ["Not every board could be read, so peers and overlaps may be missing", ...(all.reasons ?? []).slice(0, most.paths)].join(": ") + ".");
  $("checkouts-more").hidden = all.complete;
}

function more(e, n) {
  e.hidden = n <= 0;
  put(e, n > 0 ? `and ${number(n)} more` : "");
}

// ---- upstreams and health ----

function upstreamPart() {
  const name = bdi("");
  const share = el("span", { class: "tag" }, "one for each");
  const small = el("span", { class: "sub only-small" });
  const error = el("span", { class: "sub error" });
  const state = el("span", { class: "state" }, el("span", { class: "mark", "aria-hidden": "true" }), el("span"));
  const cells = ["num side", "num side", "num side", "num", "num"].map((c) => el("td", { class: c }));
  return {
    node: el("tr", {}, el("th", { scope: "row" }, name, " ", share, small, error), el("td", {}, state), ...cells),
    show(u) {
      put(name, u.name);
      mark(state, "data-is", { ready: "ok", starting: "busy", failed: "bad" }[u.state] ?? "off");
      put(state.lastChild, u.state);
      share.hidden = u.share !== "session";
      const processes = u.processes ?? [];
      const pids = processes.slice(0, 4).map((p) => p.pid).join(", ") + (processes.length > 4 ? " …" : "");
      const memory = bytes(processes.reduce((sum, p) => sum + (p.memory_bytes ?? 0), 0));
      [pids || "–", memory, number(u.tools), number(u.calls), number(u.errors)].forEach((v, i) => put(cells[i], v));
      cells[4].classList.toggle("bad", u.errors > 0);
      put(small, pids ? `pid ${pids}, ${memory}` : "no process");
      put(error, u.last_error ? "last error: " + u.last_error : "");
      error.hidden = !u.last_error;
    },
  };
}

function showUpstreams(all) {
  const n = all.upstreams.length;
  put($("n-upstreams"), number(n));
  put($("l-upstreams"), plural(n, "upstream"));
  list($("upstreams-rows"), all.upstreams.slice(0, most.upstreams), (u) => u.name, upstreamPart);
  $("upstreams-table").hidden = n === 0;
  const none = $("upstreams-none");
  none.hidden = n > 0 && !all.reason;
  put(none, !all.reason ? "This checkout hosts no other MCP servers." : `Nothing is hosted: ${all.reason}.` + (all.untrusted ? " majordomus trust shows what would run." : ""));
  list($("upstreams-problems"), all.problems.slice(0, most.findings).map((p) => (typeof p === "string" ? p : Object.values(p).join(": "))), (p) => p,
    (p) => ({ node: el("li", {}, "left out: ", bdi(p)), show() {} }));
}

function showHealth(report) {
  const found = report.checks.flatMap((c) => c.findings.map((f) => ({ ...f, id: c.id, status: c.status })));
  const word = { ok: "ok", warn: "warning", fail: "failing" };
  put($("n-health"), report.status);
  mark($("g-health").lastElementChild, "data-is", { ok: "ok", warn: "warn", fail: "bad" }[report.status] ?? "off");
  list($("findings"), found.slice(0, most.findings), (f) => f.id + "\n" + f.message, () => {
    const what = el("p"), remedy = el("p", { class: "sub" }), id = el("code", { class: "id" });
    const state = el("span", { class: "state" }, el("span", { class: "mark", "aria-hidden": "true" }), el("span"));
    return {
      node: el("li", {}, el("div", { class: "who" }, state, id), what, remedy),
      show(f) {
        mark(state, "data-is", f.status === "fail" ? "bad" : "warn");
        put(state.lastChild, word[f.status] ?? f.status);
        put(id, f.id);
        put(what, f.message);
        put(remedy, f.remedy ? "Remedy: " + f.remedy : "");
      },
    };
  });
  $("health-none").hidden = found.length > 0;
  put($("checks"), `${report.checks.length} checks: ` + report.checks.slice(0, 20).map((c) => c.id).join(", "));
}

// ---- executions ----

const calls = {
  running: new Map(), // by number
  ended: [], // the newest first
  paused: false,
  missed: 0,
  drawn: 0, // a timer
};

function ended(e) {
  calls.running.delete(e.number);
  if (calls.ended.some((x) => x.number === e.number)) return;
  calls.ended.unshift(e); // calls end in another order than they begin in; this one is by end
  calls.ended.length = Math.min(calls.ended.length, most.executions);
  if (calls.paused) calls.missed++;
  drawSoon();
}

function setRunning(all) {
  const over = new Set(calls.ended.map((e) => e.number));
  calls.running = new Map(all.filter((e) => !over.has(e.number)).map((e) => [e.number, e]));
  drawSoon();
}

function setExecutions(all) {
  // Some may have ended, and been told of, while the answer was on its way.
  const every = new Map([...calls.ended, ...all.ended].map((e) => [e.number, e]));
  const end = (e) => Date.parse(e.started_at) + e.milliseconds;
  calls.ended = [...every.values()].sort((a, b) => end(b) - end(a)).slice(0, most.executions);
  setRunning(all.running);
}

// drawSoon: thousands of calls a second may end, and nobody reads faster.
function drawSoon() {
  if (!calls.drawn) calls.drawn = setTimeout(() => { calls.drawn = 0; drawCalls(); }, 150);
}

const ends = { ok: "ok", running: "busy", error: "bad", failed: "bad", cancelled: "off", cut: "off" };

function callPart(call) {
  // A long name is broken between its words.
  const tool = el("bdi", { class: "tool" }, ...call.tool.split(/(?<=_)(?!_)/).flatMap((part) => [part, el("wbr")]));
  const small = el("span", { class: "sub only-small" });
  const client = bdi("");
  const id = el("code", { class: "id" });
  // A narrow page shows the row as two lines, to which some browsers and readers
  // would not say "table" any more: so each of its parts says what it is.
  const began = el("td", { class: "side when", role: "cell" });
  const state = el("span", { class: "state" }, el("span", { class: "mark", "aria-hidden": "true" }), el("span"));
  const time = el("td", { class: "num", role: "cell" });
  return {
    node: el("tr", { role: "row" }, el("th", { scope: "row", role: "rowheader" }, tool, small),
      el("td", { class: "side", role: "cell" }, client, " ", id), began, el("td", { role: "cell" }, state), time),
    show(e) {
      put(client, e.client);
      put(id, e.peer);
      put(began, clock(e.started_at));
      put(small, `${e.client} ${e.peer}, ${clock(e.started_at)}`);
      mark(state, "data-is", ends[e.outcome] ?? "off");
      put(state.lastChild, e.outcome);
      if (e.outcome !== "running") return put(time, took(e.milliseconds));
      if (!time.firstElementChild) time.replaceChildren(since("took"));
      setSince(time.firstElementChild, e.started_at);
    },
  };
}

function drawCalls() {
  const running = [...calls.running.values()].sort((a, b) => b.number - a.number);
  put($("n-running"), number(running.length));
  put($("paused"), calls.paused ? `paused; ${number(calls.missed)} ended since` : "");
  if (calls.paused) return;
  const live = running.slice(0, most.executions);
  const past = calls.ended.slice(0, most.executions - live.length);
  list($("running-rows"), live, (e) => e.number, callPart);
  list($("ended-rows"), past, (e) => e.number, callPart);
  const any = live.length + past.length > 0;
  $("executions-none").hidden = any;
  $("executions-scroll").hidden = !any;
  drawChart(calls.ended);
}

$("pause").addEventListener("click", () => {
  calls.paused = !calls.paused;
  calls.missed = 0;
  put($("pause"), calls.paused ? "Resume" : "Pause");
  drawCalls();
});

// quantile is the smallest value that so much of the sorted ones are at most.
const quantile = (sorted, q) => sorted[Math.max(0, Math.ceil(q * sorted.length) - 1)];

function svg(tag, attributes, text) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  if (text !== undefined) e.textContent = text;
  return e;
}

// drawChart plots each ended call, the oldest at the left, by how long it took,
// in powers of ten: what answers at once and what takes minutes are both to be
// seen. It is drawn in the pixels that it has, so that its words stay readable.
function drawChart(all) {
  $("chart").hidden = all.length === 0;
  if (all.length === 0) return put($("n-p95"), "–");
  const times = all.map((e) => e.milliseconds).sort((a, b) => a - b);
  const p50 = quantile(times, 0.5), p95 = quantile(times, 0.95);
  const bad = all.filter((e) => e.outcome !== "ok").length;
  put($("n-p95"), took(p95));
  put($("chart-text"), `The median of the last ${number(all.length)} ${plural(all.length, "call")} is ${took(p50)}, 95${thin}% took at most ${took(p95)} (p95)` +
    (bad ? `, and ${number(bad)} did not end well (crosses).` : ", and all ended well."));

  const plot = $("plot");
  const width = Math.max(240, plot.clientWidth), height = 150;
  const left = 46, right = width - 62, top = 10, bottom = height - 8;
  const low = Math.floor(Math.log10(Math.max(0.01, times[0])));
  const high = Math.max(low + 2, Math.ceil(Math.log10(Math.max(0.01, times.at(-1)))));
  const y = (ms) => bottom - ((Math.log10(Math.max(0.01, ms)) - low) / (high - low)) * (bottom - top);
  const step = (right - left) / Math.max(1, Math.max(all.length, 40) - 1);
  const x = (i) => right - i * step; // i counts back from the newest
  const drawn = [];
  for (let d = low; d <= high; d++) {
    const at = y(10 ** d).toFixed(1);
    drawn.push(svg("line", { class: "grid", x1: left, x2: right, y1: at, y2: at }));
    drawn.push(svg("text", { class: "tick", x: left - 6, y: at, dy: "0.32em", "text-anchor": "end" }, d < 3 ? 10 ** d + thin + "ms" : 10 ** (d - 3) + thin + "s"));
  }
  let dots = "", crosses = "";
  all.forEach((e, i) => {
    const cx = x(i).toFixed(1), cy = y(e.milliseconds).toFixed(1);
    if (e.outcome === "ok") dots += `M${cx} ${cy}h0`;
    else crosses += `M${(cx - 3).toFixed(1)} ${(cy - 3).toFixed(1)}l6 6m0 -6l-6 6`;
  });
  drawn.push(svg("path", { class: "dots", d: dots }), svg("path", { class: "crosses", d: crosses }));
  const gap = 13;
  let y95 = y(p95), y50 = y(p50);
  for (const [name, at] of [["p95", y95], ["p50", y50]]) drawn.push(svg("line", { class: name, x1: left, x2: right + 4, y1: at.toFixed(1), y2: at.toFixed(1) }));
  if (y50 - y95 < gap) { // their words must not lie on each other
    const middle = (y50 + y95) / 2;
    y95 = Math.max(top + 2, middle - gap / 2);
    y50 = y95 + gap;
  }
  drawn.push(svg("text", { class: "level", x: right + 8, y: y95.toFixed(1), dy: "0.32em" }, "p95"), svg("text", { class: "level", x: right + 8, y: y50.toFixed(1), dy: "0.32em" }, "median"));
  plot.setAttribute("viewBox", `0 0 ${width} ${height}`);
  plot.replaceChildren(...drawn);
}

let drawnFor = 0; // pixels
new ResizeObserver(() => {
  if (drawnFor === $("plot").clientWidth || calls.paused) return;
  drawnFor = $("plot").clientWidth;
  drawChart(calls.ended);
}).observe($("chart"));

// ---- talking to the server ----

class Refused extends Error {} // by the key's keeper: nothing but a new code helps
class Stranger extends Error {} // another checkout's server has the address

// What the page keeps is its own tab's, and ends with it; with the page, where a
// browser keeps nothing.
const kept = (() => {
  try {
    sessionStorage.getItem("");
  } catch {
    return {};
  }
  return {
    get token() { return sessionStorage.getItem("majordomus-token"); },
    set token(v) { sessionStorage.setItem("majordomus-token", v); },
    get place() { return sessionStorage.getItem("majordomus-place"); },
    set place(v) { sessionStorage.setItem("majordomus-place", v); },
  };
})();

function headers(more = {}) {
  return kept.token ? { Authorization: "Bearer " + kept.token, ...more } : more;
}

async function reply(response) {
  if (response.status === 401) throw new Refused();
  if (!response.ok) throw new Error(`${response.status}`);
  return response.json();
}

async function ask(path) {
  return reply(await fetch(path, { headers: headers({ Accept: "application/json" }), signal: AbortSignal.timeout(10_000) }));
}

// feed asks for one thing, never twice at a time and never sooner than gap after
// it did: what changes a hundred times a second is shown a few times.
function feed(path, gap, show) {
  let busy = null, again = false, last = -Infinity;
  async function go() {
    try {
      do {
        again = false;
        await pause(last + gap - performance.now());
        last = performance.now();
        const told = await ask(path);
        try {
          show(told);
        } catch (e) { // not understood is not gone
          console.error(path, e);
          misread = true;
        }
      } while (again);
    } finally {
      busy = null;
    }
  }
  const now = () => { again = busy !== null; return (busy ??= go()); };
  return { now, soon: () => now().catch(failed) };
}

// failed is told what went wrong beside the stream, which itself tells when the
// server has gone. News is a refusal, and a server that hangs: its stream is
// merely silent.
function failed(e) {
  if (e instanceof Refused || e.name === "TimeoutError") listening?.abort(e);
}

const feeds = {
  server: feed("/api/v1/server", 300, showServer),
  peers: feed("/api/v1/peers", 300, showPeers),
  executions: feed(`/api/v1/executions?limit=${most.executions}`, 1000, setExecutions),
  running: feed("/api/v1/executions?limit=1", 1000, (all) => setRunning(all.running)),
  upstreams: feed("/api/v1/upstreams", 500, showUpstreams),
  health: feed("/api/v1/health", 500, showHealth),
};
const first = ["server", "peers", "executions", "upstreams", "health"];

const offered = () => /^#code=(.+)$/.exec(location.hash)?.[1];

// exchange gives the code from the address for a token, and takes it out of the
// address: it is worth nothing any more.
async function exchange() {
  const code = offered();
  if (!code) return;
  const response = await fetch("/api/v1/page", {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ code: decodeURIComponent(code) }), signal: AbortSignal.timeout(10_000),
  });
  if (response.ok) kept.token = (await response.json()).token;
  if (response.ok || response.status === 401) history.replaceState(null, "", location.pathname);
  if (response.status === 401 && !kept.token) throw new Refused("Its code was used already, or is older than a minute.");
}

let listening = null; // aborts the stream

// attend listens until the server goes.
async function attend() {
  const index = await reply(await fetch("/", { headers: { Accept: "application/json" }, signal: AbortSignal.timeout(10_000) }));
  // What was kept is for one checkout; who comes with a code may mean another.
  if (index.name !== "majordomus" || (kept.place && index.repository_id !== kept.place && !offered())) throw new Stranger();
  if (index.repository_id !== kept.place) kept.token = "";
  kept.place = index.repository_id;
  await exchange();

  listening = new AbortController();
  const { signal } = listening;
  let silence = 0;
  const hear = () => { // it says every 15 s that it lives
    clearTimeout(silence);
    silence = setTimeout(() => listening.abort(new Error("silent")), 40_000);
  };
  try {
    hear();
    const response = await fetch("/api/v1/events", { headers: headers({ Accept: "text/event-stream" }), signal });
    if (response.status === 401) throw new Refused();
    if (!response.ok) throw new Error(`${response.status}`);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) throw new Error("ended");
      hear();
      text += value.replaceAll("\r\n", "\n");
      for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) {
        const event = parse(text.slice(0, end));
        if (event) await happened(event);
      }
    }
  } finally {
    clearTimeout(silence);
    listening.abort();
    listening = null;
  }
}

function parse(block) {
  let kind = "message", data = "";
  for (const line of block.split("\n")) {
    if (line.startsWith("event:")) kind = line.slice(6).trim();
    else if (line.startsWith("data:")) data += line.slice(5).trim();
  }
  return data === "" ? null : { kind, ...JSON.parse(data) };
}

async function happened(event) {
  switch (event.kind) {
    case "hello":
      if (server && server.generation !== event.generation) {
        calls.running.clear(); // another server counts from one
        calls.ended = [];
      }
      await Promise.all(first.map((name) => feeds[name].now()));
      phase("live");
      break;
    case "gap":
      first.forEach((name) => feeds[name].soon());
      break;
    case "peer_came": case "peer_went":
      feeds.server.soon();
      feeds.peers.soon();
      break;
    case "claimed": case "withdrawn":
      feeds.peers.soon();
      break;
    case "call_began":
      calls.running.set(event.execution.number, event.execution);
      drawSoon();
      break;
    case "call_ended":
      ended(event.execution);
      break;
    case "upstream":
      feeds.upstreams.soon();
      feeds.health.soon();
      break;
    case "lease_lost": case "ending":
      if (server) showServer({ ...server, leaseholder: false, draining: server.draining || event.kind === "ending" });
      feeds.server.soon();
      feeds.health.soon();
      break;
  }
}

// ---- how it stands ----

let is = "starting", shownAt = 0;
let misread = false; // something that the server told was not understood

function phase(now, why) {
  if (now === "live") shownAt = Date.now();
  is = now;
  standingChanged(why);
}

function standingChanged(why = "") {
  let word = is;
  if (is === "live" && server && !server.leaseholder) word = server.draining ? "ending" : "lost";
  const [text, then] = {
    starting: ["connecting", ""],
    live: ["live", misread ? "not all could be shown; load the page anew" : ""],
    ending: ["the server is ending; waiting for the next one", ""],
    lost: ["another server now holds the lease", "majordomus open shows the one that does"],
    gone: ["the server is gone; waiting for the next one", shownAt ? "shown as of " + clock(shownAt) : ""],
    stranger: ["another checkout’s server has this address; waiting for ours", shownAt ? "shown as of " + clock(shownAt) : ""],
    refused: ["this page has no pass; run majordomus open", ""],
    asleep: ["asleep while nobody looks", ""],
  }[word];
  mark(document.body, "data-phase", word);
  put($("status-text"), text);
  put($("status-more"), then);
  $("door").hidden = word !== "refused";
  $("board").hidden = word === "refused";
  put($("door-why"), why || (shownAt ? "The one it had is no longer good: a day has passed, or the key was rotated." : "Whoever may look at the board gets one from the checkout’s key."));
  const name = server?.repository ?? "";
  const title = [word === "live" || word === "starting" ? "" : `(${word})`, name, "majordomus"].filter(Boolean).join(" · ");
  if (document.title !== title) document.title = title;
}

// ---- going on ----

let nudge = () => {};

function pause(ms) {
  return ms > 0 ? new Promise((done) => setTimeout(done, ms)) : Promise.resolve();
}

// rest waits for so long, or until something happens that makes waiting idle.
function rest(ms) {
  return new Promise((done) => {
    const timer = ms === Infinity ? 0 : setTimeout(done, ms);
    nudge = () => { clearTimeout(timer); done(); };
  });
}

async function go() {
  for (let wait = 300; ; ) {
    const began = performance.now();
    try {
      await attend();
    } catch (e) {
      if (is === "asleep") {
        if (document.hidden) await rest(Infinity);
        is = "starting";
        wait = 300;
      } else if (e instanceof Refused || e?.cause instanceof Refused) {
        phase("refused", e.message);
        await rest(Infinity); // for a new code
      } else {
        phase(e instanceof Stranger ? "stranger" : is === "starting" && performance.now() < 2000 ? "starting" : "gone");
        if (performance.now() - began > 5000) wait = 300;
        await rest(wait * (0.8 + 0.4 * Math.random()));
        wait = Math.min(wait * 1.6, 4000);
      }
    }
  }
}

addEventListener("hashchange", () => {
  if (!offered()) return;
  listening?.abort(new Error("a new code"));
  nudge();
});
addEventListener("online", () => nudge());

// A browser opens six connections to one address and no more, and each page that
// listens keeps one: a page that nobody looks at lets go of it after a minute.
let drowsy = 0;
document.addEventListener("visibilitychange", () => {
  clearTimeout(drowsy);
  if (!document.hidden) return nudge();
  drowsy = setTimeout(() => {
    if (!listening) return;
    phase("asleep");
    listening.abort(new Error("asleep"));
  }, 60_000);
});

// What no event tells: calls that have begun, touched paths, other checkouts,
// memory.
let ticks = 0;
setInterval(() => {
  if (document.hidden) return;
  const now = Date.now();
  if (is === "live") {
    for (const e of document.querySelectorAll("time[data-how]")) tell(e, now);
    ticks++;
    if (ticks % 2 === 0) feeds.running.soon();
    if (ticks % 5 === 0) for (const name of ["server", "peers", "upstreams"]) feeds[name].soon();
    if (ticks % 15 === 0) feeds.health.soon();
    shownAt = now;
  }
}, 1000);

go();
