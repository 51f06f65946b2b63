"use strict";
// ---- the data: the trace events that stand before, one a line, become items: a number in each column, in the order of their starts ----
const STOPS = ["yields", "was preempted", "waits", "waits, with a deadline", "hands over", "ends", "lost its processor", "goes on"];
const PREEMPTED = 1, WAITS = 2, UNTIL = 3, OVER = 4, OFF_REASON = 6;
const WOKE = 16, SPAWNED = 17, FIRED = 18, ARRIVED = 19, STOLE = 20, IDLE = 32, WAITED = 33, OFF = 34;
const POINTS = { "wake-up": WOKE, spawn: SPAWNED, "a deadline has passed": FIRED, "an event has come": ARRIVED, steal: STOLE };
const KERNEL = 1 << 27, KERNEL_THREADS = 1000;
const $ = id => document.getElementById(id);
const start = [], end = [], thread = [], other = [], kinds = [], places = [];
const tracks = [], trackOf = i => tracks[places[i]], kindOf = i => kinds[i];
const names = new Map(), texts = [""];
let total = 1, lost = 0;
{
  const trackAt = new Map(), textAt = new Map([["", 0]]);
  let begun = 0;
  const key = event => event.pid * 2 ** 28 + event.tid;
  const add = (event, kind, from, to, who = 0, whom = 0) => {
    start.push(from); end.push(to); thread.push(who); other.push(whom); kinds.push(kind); places.push(trackAt.get(key(event)));
  };
  const know = (number, name) => { if (!names.has(number)) names.set(number, name); };
  const numberOf = text => {
    if (!textAt.has(text)) { textAt.set(text, texts.length); texts.push(text); }
    return textAt.get(text);
  };
  const read = event => {
    const { ph, name, args } = event, at = Math.round(event.ts * 1e3);
    if (ph === "X") {
      const until = at + Math.round(event.dur * 1e3);
      if (event.cat === "run") {
        know(args.thread, name);
        add(event, STOPS.indexOf(args.stopped), at, until, args.thread, args.to ?? numberOf(args.for ?? ""));
      } else if (event.cat !== "outside") add(event, event.cat === "idle" ? IDLE : WAITED, at, until, args.thread);
    } else if (ph === "s") { if (args.how in POINTS) add(event, POINTS[args.how], at, at, args.thread, args.to); }
    else if (ph === "i") {
      know(args.thread, args.name);
      if (name in POINTS) add(event, POINTS[name], at, at, args.thread);
    } else if (ph === "b") { know(event.id, name); begun = at; }
    else if (ph === "e") add(event, OFF, begun, at, event.id);
    else if (ph === "M" && name === "thread_name") {
      const runtime = event.pid === KERNEL_THREADS ? 0 : event.pid;
      if (!runtime) know(event.tid, args.name);
      trackAt.set(key(event), tracks.length);
      tracks.push({ runtime, name: args.name, at: tracks.length, runs: [], points: [], off: [], lanes: 0, busy: 0 });
    }
  };
  // The text may be longer than any string: it lies in pieces, which may begin and end within a line.
  let rest = "";
  for (const piece of document.querySelectorAll(".trace")) {
    const lines = (rest + piece.textContent).split("\n");
    rest = lines.pop();
    piece.remove();
    for (const line of lines) {
      if (line.startsWith('{"ph"')) read(JSON.parse(line.endsWith(",") ? line.slice(0, -1) : line));
      else if (line.startsWith("{")) {
        const about = JSON.parse(line + "]}").otherData;
        total = Math.max(1, about.nanoseconds); lost = about.lost;
      }
    }
  }
}
const count = start.length;

// Threads get small numbers, in the order in which they are met.
const dense = new Map(), numbers = [];
function denseOf(number) {
  let at = dense.get(number);
  if (at === undefined) { at = numbers.length; dense.set(number, at); numbers.push(number); }
  return at;
}
const nameOf = number => names.get(number) ?? "thread " + number;
function labelOf(number) {
  const name = nameOf(number);
  return number === 0 || number & KERNEL || name === "thread " + number ? name : name + " #" + number;
}
function hash(text) {
  let h = 2166149882;
  for (let i = 0; i < text.length; i++) h = Math.imul(h ^ text.charCodeAt(i), 16777619);
  h ^= h >>> 15; h = Math.imul(h, 2246822519); return (h ^ h >>> 13) >>> 0;
}
const dark = matchMedia("(prefers-color-scheme: dark)");
let colours = [];
function paint() {
  colours = numbers.map(number => {
    const h = hash(labelOf(number)), hue = h % 360, s = 48 + (h >>> 9) % 22, l = (h >>> 16) % 12;
    return `hsl(${hue} ${s}% ${dark.matches ? 46 + l : 56 + l}%)`;
  });
}
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Runs and points of each track; runs of each thread; wake-ups of each thread and by it.
const threads = [], spentIn = [], who = new Uint32Array(count);
const threadOf = number => threads[denseOf(number)] ??= (spentIn.push(0), { runs: [], woken: [], wakes: [] });
for (let i = 0; i < count; i++) {
  const kind = kindOf(i), track = trackOf(i), own = threadOf(thread[i]), long = end[i] - start[i];
  who[i] = denseOf(thread[i]);
  if (kind === OFF) track.off.push(i);
  else if (kind < 16 || kind >= IDLE) track.runs.push(i);
  else track.points.push(i);
  if (kind < 16) { own.runs.push(i); spentIn[who[i]] += long; track.busy += long; }
  if (kind === WOKE || kind === SPAWNED || kind === OVER) { threadOf(other[i]).woken.push(i); own.wakes.push(i); }
  else if (kind === FIRED || kind === ARRIVED) own.woken.push(i);
}
for (const track of tracks) {
  const free = [];
  track.lane = new Map();
  for (const i of track.off) {
    let lane = free.findIndex(until => until <= start[i]);
    if (lane < 0) lane = free.length < 4 ? free.length : 3;
    free[lane] = end[i];
    track.lane.set(i, lane);
  }
  track.lanes = free.length;
}
/// The first index in `list` for which `test` holds; it holds for all after it.
function first(list, test, from = 0) {
  let low = from, high = list.length;
  while (low < high) { const middle = (low + high) >>> 1; if (test(list[middle])) high = middle; else low = middle + 1; }
  return low;
}
const momentOf = i => kindOf(i) === OVER ? end[i] : start[i];
/// What ended the wait of a thread that began to run again with `run`: the last such item since `since`.
function cause(dense, since, run) {
  const list = threads[dense].woken;
  const at = first(list, i => momentOf(i) > start[run]) - 1;
  return at >= 0 && momentOf(list[at]) >= since ? list[at] : -1;
}
const longest = (() => {
  const found = [];
  let least = 0;
  threads.forEach((thread, dense) => {
    for (let n = 0; n + 1 < thread.runs.length; n++) {
      const run = thread.runs[n], next = thread.runs[n + 1], kind = kindOf(run);
      if (kind !== WAITS && kind !== UNTIL && kind !== OVER) continue;
      const long = start[next] - end[run];
      if (long <= least && found.length >= 100) continue;
      found.push({ long, dense, run, next });
      if (found.length >= 400) { found.sort((a, b) => b.long - a.long); found.length = 100; least = found[99].long; }
    }
  });
  found.sort((a, b) => b.long - a.long);
  found.length = Math.min(found.length, 100);
  for (const wait of found) wait.cause = cause(wait.dense, start[wait.run], wait.next);
  return found;
})();

// ---- words ----
function span(ns) {
  if (ns < 1e3) return Math.round(ns) + " ns";
  if (ns < 1e6) return (ns / 1e3).toPrecision(3).replace(/e.*/, "") + " µs";
  if (ns < 1e9) return (ns / 1e6).toPrecision(ns < 1e9 / 1 ? 3 : 4) + " ms";
  return (ns / 1e9).toPrecision(4) + " s";
}
const precise = ns => ns < 1e9 ? (ns / 1e6).toFixed(4) + " ms" : (ns / 1e9).toFixed(6) + " s";
const escape = text => String(text).replace(/[&<>"]/g, c => "&#" + c.charCodeAt(0) + ";");
const dot = dense => `<i class="dot" style="background:${colours[dense]}"></i>`;
function whatFor(run) {
  const kind = kindOf(run), text = texts[other[run]];
  if (kind === OVER) return "its turn";
  if (text && !text.startsWith("0x")) return text + (kind === UNTIL ? ", with a deadline" : "");
  return kind === UNTIL ? "a wake-up or a deadline" : "a wake-up";
}
function causeOf(item) {
  if (item < 0) return "";
  const kind = kindOf(item);
  if (kind === FIRED) return "its deadline";
  if (kind === ARRIVED) return "an event";
  return nameOf(thread[item]) + (kind === SPAWNED ? " (spawn)" : kind === OVER ? " (hand-over)" : "");
}

// ---- the view ----
const canvas = $("canvas"), over = $("over"), pen = canvas.getContext("2d"), small = over.getContext("2d");
let LANE = 26;
const LABEL = 132, RULER = 26, GAP = 7, THIN = 7, HEAD = 20;
let from = 0, to = total, chosen = -1, drawn = 0, width = 800, rows = [];
const x = time => LABEL + (time - from) / (to - from) * (width - LABEL);
const timeAt = px => from + (px - LABEL) / (width - LABEL) * (to - from);

function layOut() {
  rows = [];
  const workers = Math.max(1, tracks.filter(track => track.runtime).length), heads = new Set(tracks.map(track => track.runtime)).size;
  const room = $("view").clientHeight - RULER - 10 - heads * HEAD - (tracks.length - workers) * (15 + GAP);
  LANE = Math.max(26, Math.min(72, room / workers - GAP - 14));
  let y = RULER + 4, runtime = -1;
  for (const track of tracks) {
    if (track.runtime !== runtime) {
      runtime = track.runtime;
      rows.push({ head: runtime ? "runtime " + runtime : "kernel threads", y });
      y += HEAD;
    }
    const lane = runtime ? LANE : 15, high = lane + (track.lanes ? 2 + track.lanes * THIN : 0);
    rows.push({ track, y, lane, high });
    track.row = rows[rows.length - 1];
    y += high + GAP;
  }
  const ratio = devicePixelRatio || 1, high = Math.max(y + 6, $("view").clientHeight - 2);
  width = $("view").clientWidth;
  canvas.style.height = high + "px";
  canvas.width = width * ratio; canvas.height = high * ratio;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  over.width = over.clientWidth * ratio; over.height = 40 * ratio;
  small.setTransform(ratio, 0, 0, ratio, 0, 0);
}

/// Calls `each(item, left, right)` for what is seen of a list of slices that do not overlap; of several in
/// one pixel, for the first.
function seen(list, each) {
  const step = (to - from) / (width - LABEL);
  let at = first(list, i => end[i] > from || start[i] >= from);
  while (at < list.length && start[list[at]] < to) {
    const i = list[at], left = Math.max(LABEL, x(start[i])), right = Math.min(width, x(end[i]));
    each(i, left, right);
    drawn++;
    if (right - left >= 1) at++;
    else { const edge = Math.max(start[i], from) + step; at = first(list, k => end[k] > edge, at + 1); }
  }
}

function draw() {
  drawn = 0;
  const ink = css("--ink"), soft = css("--soft"), line = css("--line"), sleep = css("--sleep"), lane = css("--lane");
  const high = canvas.clientHeight;
  pen.clearRect(0, 0, width, high);
  pen.textBaseline = "middle";
  pen.font = "12px system-ui, 'DejaVu Sans', sans-serif";
  ruler(soft, line, high);
  for (const row of rows) {
    if (row.head) {
      pen.fillStyle = soft; pen.font = "600 11px system-ui, 'DejaVu Sans', sans-serif";
      pen.fillText(row.head.toUpperCase(), 10, row.y + HEAD / 2);
      pen.font = "12px system-ui, 'DejaVu Sans', sans-serif";
      continue;
    }
    pen.fillStyle = lane; pen.fillRect(LABEL, row.y, width - LABEL, row.lane);
    pen.fillStyle = ink; pen.fillText(clip(row.track.name, LABEL - 22), 14, row.y + row.lane / 2);
    drawRuns(row, ink, soft, sleep);
    drawOff(row);
    drawPoints(row);
  }
  if (chosen >= 0) arrows();
  drawOver(soft, line);
}
function clip(text, room) {
  if (pen.measureText(text).width <= room) return text;
  while (text.length > 1 && pen.measureText(text + "…").width > room) text = text.slice(0, -1);
  return text + "…";
}
function ruler(soft, line, high) {
  const rough = (to - from) / Math.max(3, (width - LABEL) / 110);
  const power = 10 ** Math.floor(Math.log10(rough)), step = [1, 2, 5, 10].find(n => n * power >= rough) * power;
  pen.strokeStyle = line; pen.fillStyle = soft; pen.lineWidth = 1;
  pen.beginPath();
  for (let t = Math.ceil(from / step) * step; t <= to; t += step) {
    const at = Math.round(x(t)) + .5;
    pen.moveTo(at, RULER - 6); pen.lineTo(at, high);
    const text = step >= 1e9 ? (t / 1e9).toFixed(0) + " s" : step >= 1e6 ? (t / 1e6).toFixed(0) + " ms"
      : step >= 1e3 ? (t / 1e6).toFixed(3 - Math.floor(Math.log10(step / 1e3))) + " ms" : (t / 1e3).toFixed(3 - Math.max(0, Math.floor(Math.log10(step)))) + " µs";
    pen.fillText(text, at + 4, 12);
  }
  pen.stroke();
}
function drawRuns(row, ink, soft, sleep) {
  seen(row.track.runs, (i, left, right) => {
    const kind = kindOf(i), wide = right - left;
    if (kind >= 16) {
      pen.fillStyle = sleep; pen.fillRect(left, row.y + row.lane / 2 - 2, Math.max(.5, wide), 4);
      return;
    }
    const dim = chosen >= 0 && who[i] !== chosen;
    pen.globalAlpha = dim ? .22 : 1;
    pen.fillStyle = colours[who[i]];
    pen.fillRect(left, row.y, Math.max(1, wide > 3 ? wide - .6 : wide), row.lane);
    if (wide > 34) {
      pen.fillStyle = dim ? ink : "rgba(0,0,0,.82)";
      pen.globalAlpha = dim ? .5 : 1;
      pen.fillText(clip(nameOf(thread[i]), wide - 10), left + 5, row.y + row.lane / 2 + .5);
    }
    if ((kind === PREEMPTED || kind === OFF_REASON) && wide > 2) {
      pen.fillStyle = kind === PREEMPTED ? css("--bad") : css("--in");
      pen.fillRect(right - 2, row.y, 2, row.lane);
    }
    pen.globalAlpha = 1;
  });
  if (chosen < 0) return;
  pen.fillStyle = colours[chosen];
  const mine = threads[chosen].runs, step = (to - from) / (width - LABEL);
  let at = first(mine, i => end[i] > from);
  for (let n = 0; at < mine.length && start[mine[at]] < to && n < 20000; n++) {
    const i = mine[at], left = Math.max(LABEL, x(start[i])), wide = Math.min(width, x(end[i])) - left;
    if (trackOf(i) === row.track && wide < 3) {
      pen.fillRect(left - .5, row.y - 2, Math.max(2, wide), row.lane + 4);
    }
    if (wide >= 1) at++; else { const edge = start[i] + step / 2; at = first(mine, k => start[k] > edge, at + 1); }
  }
}
function drawOff(row) {
  for (const i of row.track.off) {
    if (end[i] < from || start[i] > to) continue;
    const left = Math.max(LABEL, x(start[i])), wide = Math.max(2, Math.min(width, x(end[i])) - left);
    const y = row.y + row.lane + 2 + row.track.lane.get(i) * THIN;
    pen.globalAlpha = chosen >= 0 && who[i] !== chosen ? .25 : .9;
    pen.fillStyle = colours[who[i]]; pen.fillRect(left, y, wide, THIN - 2);
    pen.globalAlpha = 1;
  }
}
function drawPoints(row) {
  const list = row.track.points;
  const low = first(list, i => start[i] >= from), high = first(list, i => start[i] > to);
  if (high - low > 1500) return;
  for (let at = low; at < high; at++) {
    const i = list[at], kind = kindOf(i), px = x(start[i]);
    pen.fillStyle = kind === STOLE ? css("--accent") : kind === FIRED || kind === ARRIVED ? css("--in") : css("--out");
    pen.beginPath();
    if (kind === STOLE) { pen.moveTo(px, row.y - 1); pen.lineTo(px - 4, row.y - 6); pen.lineTo(px + 4, row.y - 6); }
    else pen.arc(px, row.y - 2.5, 1.8, 0, 7);
    pen.fill();
  }
}
function arrows() {
  const mine = threads[chosen];
  let rest = 300;
  const low = first(mine.runs, i => end[i] >= from);
  for (let at = low; at < mine.runs.length && start[mine.runs[at]] <= to && rest > 0; at++) {
    const run = mine.runs[at], since = at ? start[mine.runs[at - 1]] : 0, item = cause(chosen, since, run);
    if (item >= 0) { rest--; arrow(momentOf(item), trackOf(item), start[run], trackOf(run), css("--in")); }
  }
  const begin = first(mine.wakes, i => momentOf(i) >= from);
  for (let at = begin; at < mine.wakes.length && momentOf(mine.wakes[at]) <= to && rest > 0; at++) {
    const item = mine.wakes[at], runs = threads[denseOf(other[item])].runs;
    const run = runs[first(runs, i => start[i] >= momentOf(item))];
    if (run !== undefined) { rest--; arrow(momentOf(item), trackOf(item), start[run], trackOf(run), css("--out")); }
  }
}
function arrow(time, track, then, there, colour) {
  const a = track.row, b = there.row;
  const x1 = x(time), y1 = a.y + a.lane / 2, x2 = x(then), y2 = b.y + b.lane / 2;
  if (Math.max(x1, x2) < LABEL || Math.min(x1, x2) > width) return;
  const bend = Math.max(10, Math.abs(x2 - x1) / 2), lift = track === there ? 16 : 0;
  pen.save();
  pen.beginPath(); pen.rect(LABEL, 0, width, canvas.clientHeight); pen.clip();
  pen.strokeStyle = pen.fillStyle = colour; pen.lineWidth = 1.4;
  pen.beginPath(); pen.moveTo(x1, y1);
  pen.bezierCurveTo(x1 + bend, y1 - lift, x2 - bend, y2 - lift, x2 - 3, y2);
  pen.stroke();
  pen.beginPath(); pen.moveTo(x2, y2); pen.lineTo(x2 - 7, y2 - 3.5); pen.lineTo(x2 - 7, y2 + 3.5); pen.fill();
  pen.beginPath(); pen.arc(x1, y1, 2.2, 0, 7); pen.fill();
  pen.restore();
}

// How many processors are at work, over the whole trace.
const BINS = 600, busy = new Float32Array(BINS);
{
  const workers = Math.max(1, tracks.filter(track => track.runtime).length), bin = total / BINS;
  for (const track of tracks) {
    if (!track.runtime) continue;
    for (const i of track.runs) {
      if (kindOf(i) >= 16) continue;
      for (let b = Math.floor(start[i] / bin); b < BINS && b * bin < end[i]; b++) {
        busy[b] += Math.max(0, Math.min(end[i], (b + 1) * bin) - Math.max(start[i], b * bin)) / bin / workers;
      }
    }
  }
}
function drawOver(soft, line) {
  const wide = over.clientWidth, at = time => LABEL + time / total * (wide - LABEL);
  small.clearRect(0, 0, wide, 40);
  small.font = "11px system-ui, 'DejaVu Sans', sans-serif"; small.textBaseline = "middle";
  small.fillStyle = soft; small.fillText("processors at work", 0, 20);
  small.fillStyle = css("--accent"); small.globalAlpha = .55;
  small.beginPath(); small.moveTo(LABEL, 38);
  busy.forEach((part, b) => { const y = 38 - Math.min(1, part) * 34; small.lineTo(at(b * total / BINS), y); small.lineTo(at((b + 1) * total / BINS), y); });
  small.lineTo(wide, 38); small.fill();
  small.globalAlpha = 1; small.strokeStyle = line; small.strokeRect(LABEL + .5, 2.5, wide - LABEL - 1, 36);
  const left = at(from), right = Math.max(at(to), left + 2);
  small.fillStyle = css("--paper"); small.globalAlpha = .62;
  small.fillRect(LABEL + 1, 3, left - LABEL - 1, 35); small.fillRect(right, 3, wide - right - 1, 35);
  small.globalAlpha = 1; small.strokeStyle = css("--ink"); small.strokeRect(left + .5, 2.5, right - left - 1, 36);
}

// ---- moving about ----
let asked = false;
function redraw() { if (!asked) { asked = true; requestAnimationFrame(() => { asked = false; draw(); }); } }
function show(a, b) {
  const least = Math.min(total, 22), long = Math.min(total, Math.max(least, b - a));
  from = Math.max(0, Math.min(total - long, (a + b - long) / 2)); to = from + long;
  redraw();
}
function zoom(factor, about = (from + to) / 2) { const long = (to - from) * factor, part = (about - from) / (to - from); let a = about - long * part; show(a, a + long); }
function slide(part) { const by = (to - from) * part, a = Math.max(0, Math.min(total - (to - from), from + by)); show(a, a + to - from); }
canvas.addEventListener("wheel", event => {
  if (event.altKey) return;
  event.preventDefault();
  const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
  if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) slide(sideways / width);
  else zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 240))), timeAt(Math.max(LABEL, event.offsetX)));
}, { passive: false });
let held = null;
canvas.addEventListener("pointerdown", event => { held = { x: event.clientX, from, to, moved: false }; canvas.setPointerCapture(event.pointerId); });
canvas.addEventListener("pointermove", event => {
  if (held) {
    const by = (held.x - event.clientX) / (width - LABEL) * (held.to - held.from);
    if (Math.abs(held.x - event.clientX) > 3) { held.moved = true; canvas.classList.add("drag"); }
    const a = Math.max(0, Math.min(total - (held.to - held.from), held.from + by));
    if (held.moved) { show(a, a + held.to - held.from); $("tip").style.display = "none"; }
  } else hover(event);
});
canvas.addEventListener("pointerup", event => {
  canvas.classList.remove("drag");
  if (held && !held.moved) { const item = itemAt(event.offsetX, event.offsetY); choose(item >= 0 && thread[item] ? who[item] : -1); }
  held = null;
});
canvas.addEventListener("dblclick", event => { const item = itemAt(event.offsetX, event.offsetY); if (item >= 0) around(start[item], end[item]); });
canvas.addEventListener("pointerleave", () => $("tip").style.display = "none");
const around = (a, b) => { const room = Math.max((b - a) * .6, 200); show(a - room, b + room); };
let along = false;
function overTo(event) { const time = (event.offsetX - LABEL) / (over.clientWidth - LABEL) * total, half = (to - from) / 2; const a = Math.max(0, Math.min(total - 2 * half, time - half)); show(a, a + 2 * half); }
over.addEventListener("pointerdown", event => { along = true; over.setPointerCapture(event.pointerId); overTo(event); });
over.addEventListener("pointermove", event => { if (along) overTo(event); });
over.addEventListener("pointerup", () => along = false);

function itemAt(px, py) {
  if (px < LABEL) return -1;
  const row = rows.find(row => row.track && py >= row.y - 3 && py < row.y + row.high + 3);
  if (!row) return -1;
  const time = timeAt(px), near = (to - from) / width * 2;
  if (py >= row.y + row.lane + 1) {
    const lane = Math.floor((py - row.y - row.lane - 2) / THIN);
    const item = row.track.off.find(i => row.track.lane.get(i) === lane && start[i] - near <= time && end[i] + near >= time);
    if (item !== undefined) return item;
  }
  const list = row.track.runs, at = first(list, i => end[i] >= time - near);
  return at < list.length && start[list[at]] <= time + near ? list[at] : -1;
}
function tell(item) {
  const kind = kindOf(item), long = span(end[item] - start[item]);
  if (kind === IDLE) return `<b>asleep</b> <span>for</span> ${long}`;
  const title = `${dot(who[item])} <b>${escape(labelOf(thread[item]))}</b>`;
  const at = `<br><span>from</span> ${precise(start[item])}`;
  if (kind === OFF) return `${title}<br><span>without a processor for</span> ${long}${at}`;
  if (kind === WAITED) return `${title}<br><span>waits, for</span> ${long}${at}`;
  let why = STOPS[kind];
  const text = texts[other[item]];
  if (kind === OVER) why += " to " + escape(nameOf(other[item]));
  else if ((kind === WAITS || kind === UNTIL) && text) why = text.startsWith("0x") ? why : `waits for ${escape(text)}${kind === UNTIL ? ", with a deadline" : ""}`;
  const runs = threads[who[item]].runs, n = first(runs, i => start[i] >= start[item]);
  const woken = cause(who[item], n ? start[runs[n - 1]] : 0, item);
  const by = woken < 0 ? "" : `<br><span>made ready by</span> ${escape(causeOf(woken))} <span>${span(start[item] - momentOf(woken))} before</span>`;
  return `${title}<br><span>ran for</span> ${long}<span>, then</span> ${why}${at}${by}`;
}
function hover(event) {
  const item = itemAt(event.offsetX, event.offsetY), tip = $("tip");
  tip.style.display = item < 0 ? "none" : "block";
  if (item < 0) return;
  tip.innerHTML = tell(item);
  tip.style.left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8) + "px";
  tip.style.top = (event.clientY + 18 + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 12 : event.clientY + 18) + "px";
}
function choose(dense) {
  chosen = dense;
  detail();
  redraw();
}
function detail() {
  if (chosen < 0) {
    $("who").textContent = "How to read this";
    $("detail").innerHTML = `<p>Each line is a processor; each colour on it a thread, from when it is switched to until it stops.
      A thin grey line: the processor sleeps. A thin bar below: a thread that has lost its processor.</p>
      <p>Click a thread to follow it. <kbd>wheel</kbd> zooms, <kbd>drag</kbd> moves, <kbd>double click</kbd> zooms to a run,
      <kbd>/</kbd> finds, <kbd>n</kbd> <kbd>p</kbd> go to the chosen thread's next and previous run, <kbd>0</kbd> shows all.</p>
      <p><span class="key"><i style="color:var(--in)"></i>woke the chosen thread</span><span class="key"><i style="color:var(--out)"></i>was
      woken by it</span><span class="key"><i style="color:var(--bad)"></i>preempted</span></p>
      <p><span class="key">&#9662; steal</span><span class="key"><i class="dot" style="background:var(--out);border-radius:50%;border:0;height:8px;width:8px"></i>wake-up
      or spawn</span><span class="key"><i class="dot" style="background:var(--in);border-radius:50%;border:0;height:8px;width:8px"></i>deadline or event</span></p>`;
    return;
  }
  const one = threads[chosen], number = numbers[chosen], whys = {};
  let waited = 0, queued = 0;
  one.runs.forEach((run, n) => {
    const kind = kindOf(run);
    whys[STOPS[kind]] = (whys[STOPS[kind]] || 0) + 1;
    if (n + 1 < one.runs.length) {
      const gap = start[one.runs[n + 1]] - end[run], waits = kind === WAITS || kind === UNTIL || kind === OVER;
      const woken = waits ? cause(chosen, start[run], one.runs[n + 1]) : -1;
      const ready = waits ? (woken < 0 ? 0 : Math.max(0, start[one.runs[n + 1]] - Math.max(momentOf(woken), end[run]))) : gap;
      queued += ready; waited += gap - ready;
    }
  });
  const spawned = one.woken.find(i => kindOf(i) === SPAWNED);
  $("who").textContent = "Chosen thread";
  $("detail").innerHTML = `<p>${dot(chosen)} <b>${escape(labelOf(number))}</b></p><dl>
    <dt>ran</dt><dd>${span(spentIn[chosen])} in ${one.runs.length} runs</dd>
    <dt>waited</dt><dd>${span(waited)}</dd><dt>ready, but queued</dt><dd>${span(queued)}</dd>
    <dt>stopped</dt><dd>${Object.entries(whys).map(([why, n]) => escape(why) + " " + n).join(" · ") || "never"}</dd>
    <dt>spawned by</dt><dd>${spawned === undefined ? "before the trace" : escape(nameOf(thread[spawned])) + " at " + precise(start[spawned])}</dd>
    <dt>wakes</dt><dd>${one.wakes.length} times</dd></dl>`;
}
function toRun(by) {
  if (chosen < 0) return;
  const runs = threads[chosen].runs, middle = (from + to) / 2;
  let at = by > 0 ? first(runs, i => (start[i] + end[i]) / 2 > middle + .5) : first(runs, i => (start[i] + end[i]) / 2 >= middle - .5) - 1;
  if (at >= 0 && at < runs.length) { const half = (to - from) / 2, about = (start[runs[at]] + end[runs[at]]) / 2; show(about - half, about + half); }
}

// ---- finding ----
function search(text) {
  text = text.trim().toLowerCase();
  if (!text) return [];
  const exact = [], begin = [], within = [];
  numbers.forEach((number, dense) => {
    if (!number || !threads[dense].runs.length && !threads[dense].wakes.length) return;
    const name = nameOf(number).toLowerCase(), plain = String(number & ~KERNEL);
    if (plain === text.replace(/^#/, "") || name === text) exact.push(dense);
    else if (name.startsWith(text)) begin.push(dense);
    else if (name.includes(text)) within.push(dense);
  });
  return [...exact, ...begin, ...within];
}
function pick(dense) {
  const runs = threads[dense].runs;
  choose(dense);
  if (runs.length) around(start[runs[0]], end[runs[runs.length - 1]]);
  $("found").style.display = "none";
}
$("search").addEventListener("input", () => {
  const hits = search($("search").value), list = $("found");
  list.style.display = hits.length ? "block" : "none";
  list.innerHTML = hits.slice(0, 40).map((dense, n) => `<li data-dense="${dense}" class="${n ? "" : "first"}">${dot(dense)}
    ${escape(labelOf(numbers[dense]))}<small>${threads[dense].runs.length} runs, ${span(spentIn[dense])}</small></li>`).join("");
});
$("found").addEventListener("pointerdown", event => { const li = event.target.closest("li"); if (li) pick(+li.dataset.dense); });
$("search").addEventListener("keydown", event => {
  if (event.key === "Enter") { const hits = search($("search").value); if (hits.length) pick(hits[0]); }
  if (event.key === "Escape") { $("search").value = ""; $("found").style.display = "none"; $("search").blur(); }
  event.stopPropagation();
});
$("search").addEventListener("blur", () => setTimeout(() => $("found").style.display = "none", 150));
addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const act = { "+": () => zoom(.5), "=": () => zoom(.5), "-": () => zoom(2), "0": () => show(0, total), ArrowLeft: () => slide(-.2),
    ArrowRight: () => slide(.2), n: () => toRun(1), p: () => toRun(-1), Escape: () => choose(-1), "/": () => $("search").focus() }[event.key];
  if (act) { act(); event.preventDefault(); }
});
$("more").onclick = () => zoom(.5); $("less").onclick = () => zoom(2); $("all").onclick = () => show(0, total);
function toWait(wait) { choose(wait.dense); around(end[wait.run], start[wait.next]); }
function fill() {
  $("waits").innerHTML = longest.map((wait, n) => `<tr data-n="${n}"><td class="n">${span(wait.long)}</td>
    <td>${dot(wait.dense)} ${escape(nameOf(numbers[wait.dense]))}</td><td>${escape(whatFor(wait.run))}</td>
    <td>${escape(causeOf(wait.cause))}</td><td class="n">${wait.cause < 0 ? "" : span(Math.max(0, start[wait.next] - momentOf(wait.cause)))}</td>
    <td class="n">${precise(end[wait.run])}</td></tr>`).join("");
}
$("waits").addEventListener("click", event => { const row = event.target.closest("tr"); if (row) toWait(longest[+row.dataset.n]); });

const many = n => n.toLocaleString("en").replace(/,/g, "\u202f");
const greens = numbers.filter(number => number && !(number & KERNEL)).length;
$("facts").textContent = `${span(total)} · ${many(greens)} thread${greens === 1 ? "" : "s"} · ${many(count)} events`;
if (lost) $("lost").textContent = `${many(lost)} words of the record were lost`;
paint(); layOut(); fill(); detail(); draw();
addEventListener("resize", () => { layOut(); draw(); });
dark.addEventListener("change", () => { paint(); fill(); detail(); draw(); });

// ---- for tests: `#selftest=NAME` leaves what the page found in the document; `#find=NAME` shows that ----
const asks = new URLSearchParams(location.hash.slice(1));
if (asks.has("find")) { const hits = search(asks.get("find")); if (hits.length) { pick(hits[0]); $("search").value = asks.get("find"); } }
if (asks.has("wait") && longest.length) toWait(longest[Math.min(longest.length - 1, +asks.get("wait"))]);
if (asks.has("from")) { show(+asks.get("from") * 1e6, +asks.get("to") * 1e6); }
if (asks.has("selftest")) {
  const report = { items: count, threads: greens, tracks: tracks.length, lost: lost, drawn: {}, overlaps: 0 };
  const timed = () => { const before = performance.now(); draw(); return performance.now() - before; };
  report.milliseconds = timed(); report.drawn.all = drawn;
  for (const track of tracks) for (let n = 1; n < track.runs.length; n++) if (start[track.runs[n]] < end[track.runs[n - 1]]) report.overlaps++;
  const hits = search(asks.get("selftest"));
  report.found = hits.map(dense => nameOf(numbers[dense])).slice(0, 20);
  if (hits.length) { pick(hits[0]); draw(); report.drawn.found = drawn; report.hover = tell(threads[hits[0]].runs[0]); }
  if (longest.length) {
    toWait(longest[0]); draw(); report.drawn.wait = drawn;
    const wait = longest[0];
    report.longest = { nanoseconds: wait.long, thread: nameOf(numbers[wait.dense]), by: causeOf(wait.cause) };
  }
  report.rows = $("waits").rows.length;
  choose(-1); show(0, total); draw();
  $("selftest").textContent = JSON.stringify(report);
}
