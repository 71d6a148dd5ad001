"use strict";

const EVERY = 1000, LANE = 26, LEFT = 130, TOP = 24, LABEL = 80;
const FAILED = "#cc3311";
const COLORS = ["#4477aa", "#ee8866", "#228833", "#aa3377", "#ccbb44", "#66ccee", "#994455", "#bbbbbb"];
const LIVE = ["running", "preempted", "queued", "waiting", "held"];
const ENDED = ["completed", "failed", "cancelled", "dropped"];
const $ = (id) => document.getElementById(id);
const colors = new Map();
let seen = null, chosen = null;

const color = (group) => {
  if (!colors.has(group)) colors.set(group, COLORS[colors.size % COLORS.length]);
  return colors.get(group);
};

function make(tag, text = "", kind = "") {
  const element = document.createElement(tag);
  element.textContent = text;
  element.className = kind;
  return element;
}

function readable(s) {
  if (s === null || s === undefined) return "-";
  if (s < 1) return `${Math.round(s * 1000)} ms`;
  return s < 60 ? `${s.toFixed(1)} s` : `${Math.floor(s / 60)} min ${Math.round(s % 60)} s`;
}

function meter(share) {
  const outer = make("span", "", "meter"), inner = make("i");
  inner.style.setProperty("width", `${Math.round(100 * Math.min(1, share))}%`);
  outer.append(inner);
  return outer;
}

async function ask(what, order) {
  const options = order ? { method: "POST", body: JSON.stringify(order) } : {};
  const answer = await fetch(what, options);
  const value = await answer.json();
  if (!answer.ok) throw new Error(value.error);
  return value;
}

function complain(text) {
  $("problem").hidden = !text;
  $("problem").textContent = text;
}

/* ---------------------------------------------------------------- showing */

function showHead() {
  const parts = [...LIVE, ...ENDED].filter((state) => seen.counts[state]);
  $("counts").replaceChildren(...parts.flatMap((state) => [make("b", seen.counts[state]), ` ${state}`]));
  if (!parts.length) $("counts").textContent = "no tasks yet";
  const names = seen.policies.length ? seen.policies : [seen.policy];
  if ($("policies").length !== names.length)
    $("policies").replaceChildren(...names.map((name) => new Option(name)));
  if (document.activeElement !== $("policies")) $("policies").value = seen.policy;
  $("policies").disabled = !seen.control;
}

function card(resource) {
  const box = make("article", "", "card"), head = make("h2", resource.name);
  head.append(make("span", resource.state === "up" ? resource.kind : resource.state, `state-${resource.state}`));
  const mark = resource.emulated ? " · emulated" : "";
  const power = resource.watts === null ? "" : ` · ${Math.round(resource.watts)} W ${resource.measured ? "measured" : "modelled"}`;
  const running = resource.running.length ? `runs ${resource.running.map((id) => `#${id}`).join(", ")}` : "idle";
  box.append(head, meter(resource.used ?? 0), make("div", `${running} · ${resource.queued} queued`), make("small", `${resource.slots} slot${resource.slots > 1 ? "s" : ""}${power}${mark}`));
  return box;
}

function row(task) {
  const line = make("tr"), progress = make("td");
  progress.append(meter(task.progress), `${Math.round(100 * task.progress)} %`);
  const where = [task.resource, task.destination].filter(Boolean).join(" → ") || "-";
  const age = LIVE.includes(task.state) ? readable(task.checkpoint_age_s) : "-";
  line.append(make("td", task.id), make("td", task.type), make("td", task.state, task.state), make("td", where), progress,
    make("td", task.migrations), make("td", age), make("td", task.reason || task.name || ""));
  line.addEventListener("click", () => explain(task));
  return line;
}

function showTasks() {
  const text = $("search").value.trim();
  const rank = (task) => { const place = LIVE.indexOf(task.state); return place < 0 ? LIVE.length : place; };
  const found = seen.tasks.filter((task) => !text || `${task.id} ${task.type} ${task.name} ${task.owner} ${task.state}`.includes(text));
  found.sort((one, other) => rank(one) - rank(other) || (rank(one) < LIVE.length ? one.id - other.id : other.id - one.id));
  $("tasks").replaceChildren(...found.slice(0, 100).map(row));
  $("more").textContent = `${Math.min(100, found.length)} of the newest ${seen.tasks.length} tasks; click one to see why it is where it is`;
}

/* ------------------------------------------------------------------ chart */

function drawChart() {
  const canvas = $("chart"), pen = canvas.getContext("2d"), chart = seen.chart;
  const wide = canvas.clientWidth, tall = TOP + LANE * chart.lanes.length + 8, ratio = window.devicePixelRatio || 1;
  canvas.style.setProperty("height", `${tall}px`);
  canvas.width = wide * ratio;
  canvas.height = tall * ratio;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.font = "12px system-ui, sans-serif";
  const style = getComputedStyle(document.body), ink = style.color, span = Number($("span").value);
  const x = (at) => LEFT + (1 + at / span) * (wide - LEFT - 12), y = (lane) => TOP + lane * LANE;
  drawGrid(pen, { wide, tall, ink, span, x, y, lanes: chart.lanes });
  pen.save();
  pen.beginPath();
  pen.rect(LEFT, 0, wide - LEFT, tall);
  pen.clip();
  const group = grouping();
  for (const bar of chart.bars) drawBar(pen, bar, color(group(bar)), { x, y });
  for (const [from, to] of chart.moves) drawMove(pen, chart.bars[from], chart.bars[to], { x, y, ink });
  pen.restore();
}

function drawGrid(pen, { wide, tall, ink, span, x, y, lanes }) {
  pen.textAlign = "center";
  const parts = wide - LEFT > 6 * LABEL ? 6 : 2;
  for (let part = 0; part <= parts; part += 1) {
    const at = -span * part / parts;
    pen.fillStyle = "#8883";
    pen.fillRect(x(at), TOP, 1, tall - TOP);
    pen.fillStyle = ink;
    pen.fillText(part ? `-${readable(-at).replace(/\.0(?= )/, "").replace(/ 0 s$/, "")}` : "now", x(at) - (part ? 0 : 10), 15);
  }
  pen.textAlign = "right";
  lanes.forEach((label, lane) => {
    if (lane % 2) { pen.fillStyle = "#8881"; pen.fillRect(LEFT, y(lane), wide - LEFT, LANE); }
    pen.fillStyle = ink;
    pen.fillText(label, LEFT - 8, y(lane) + LANE / 2 + 4, LEFT - 12);
  });
}

/* Colours tell applications apart, or types where there is one application only. */
function grouping() {
  const several = new Set(seen.chart.bars.map((bar) => bar.app)).size > 1;
  return several ? (bar) => bar.app.split(/[/:]/).pop() : (bar) => bar.type;
}

function drawBar(pen, bar, shade, { x, y }) {
  const from = x(bar.start), to = Math.max(x(bar.finish), from + 1);
  pen.globalAlpha = chosen === null || chosen === bar.task ? 1 : 0.3;
  if (bar.failed) { drawFailed(pen, from, to - from, y(bar.lane) + 3); return; }
  pen.fillStyle = shade;
  pen.fillRect(from, y(bar.lane) + 3, Math.max(1, to - from - 1), LANE - 6);
  const left = Math.max(from, LEFT);
  if (to - left > 30) {
    pen.fillStyle = "#fff";
    pen.textAlign = "left";
    pen.fillText(`#${bar.task}`, left + 4, y(bar.lane) + LANE / 2 + 4, to - left - 6);
  }
  pen.globalAlpha = 1;
}

/* A failed attempt: a frame with a cross, as nothing was computed. */
function drawFailed(pen, left, wide, top) {
  const tall = LANE - 6, middle = left + wide / 2, size = tall / 3;
  pen.strokeStyle = FAILED;
  pen.lineWidth = 1.5;
  pen.strokeRect(left, top, Math.max(2, wide), tall);
  pen.beginPath();
  pen.moveTo(middle - size, top + tall / 2 - size);
  pen.lineTo(middle + size, top + tall / 2 + size);
  pen.moveTo(middle + size, top + tall / 2 - size);
  pen.lineTo(middle - size, top + tall / 2 + size);
  pen.stroke();
  pen.globalAlpha = 1;
}

function drawMove(pen, from, to, { x, y, ink }) {
  pen.strokeStyle = ink;
  pen.lineWidth = 1.2;
  pen.beginPath();
  pen.moveTo(x(from.finish), y(from.lane) + LANE / 2);
  pen.lineTo(x(to.start), y(to.lane) + LANE / 2);
  pen.stroke();
}

function showLegend() {
  const groups = [...new Set(seen.chart.bars.map(grouping()))].slice(0, COLORS.length);
  $("legend").replaceChildren(...groups.map((group) => {
    const entry = make("span"), mark = make("i");
    mark.style.setProperty("background", color(group));
    entry.append(mark, group);
    return entry;
  }), ...(seen.chart.moves.length ? [make("span", "— migration")] : []),
  ...(seen.chart.bars.some((bar) => bar.failed) ? [make("span", "☒ failed attempt")] : []));
}

/* ---------------------------------------------------------------- control */

async function explain(task) {
  chosen = task.id;
  try {
    $("text").textContent = (await ask(`explain/${task.id}`)).text;
  } catch (error) {
    $("text").textContent = error.message;
  }
  $("orders").hidden = !seen.control || ENDED.includes(task.state);
  $("places").replaceChildren(...seen.resources.map((each) => new Option(each.name)));
  $("story").showModal();
}

async function order(verb) {
  try {
    await ask("order", { verb, id: chosen, to: verb === "policy" ? $("policies").value : $("places").value });
    $("story").close();
    await look();
  } catch (error) {
    $("text").textContent = error.message;
  }
}

async function look() {
  try {
    seen = await ask("state");
    complain("");
  } catch (error) {
    complain(error.message || "the server does not answer");
    return;
  }
  showHead();
  $("resources").replaceChildren(...seen.resources.map(card));
  showLegend();
  drawChart();
  showTasks();
  document.body.dataset.ready = "yes";
}

async function watch() {
  await look();
  setTimeout(watch, EVERY);
}

for (const button of document.querySelectorAll("button[data-verb]"))
  button.addEventListener("click", () => order(button.dataset.verb));
$("policies").addEventListener("change", () => order("policy"));
$("search").addEventListener("input", () => seen && showTasks());
$("span").addEventListener("change", () => seen && drawChart());
$("story").addEventListener("close", () => { chosen = null; });
window.addEventListener("resize", () => seen && drawChart());
watch();
