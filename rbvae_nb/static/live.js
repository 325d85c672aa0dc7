// The explorer on a page without a kernel: this script answers the front-end's requests with the networks in
// network.js. `<div id="live"><img ...></div>` holds a picture until everything is here; files are fetched from this
// script's folder, or are in `rbvaeFiles`, name: address, where a page has everything in itself. With
// `data-tabs='{"Digits": "./", "Faces": "../live-faces/"}'` there is a tab for each of these folders, seen from here.
const here = (name, folder = './') => globalThis.rbvaeFiles?.[name] ?? new URL(folder + name, import.meta.url);
const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const floats = (text) => new Float32Array(bytes(text).buffer);
const DRAWING = -1;  // as in explorer.js

function random(seed) {  // streams of uniform numbers, by mulberry32, and of standard normal ones, by Box and Muller
  const uniform = () => {
    seed = (seed + 0x6D2B79F5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
  const normal = () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
  return {uniform, normal};
}

// One model: codes of the images (the drawing's by `encode`), directions, and the picture that a request asks for.
async function side({files, codes, directions, noise}, {encoders, generator, load}, folder) {
  const file = await load(here(`${files}-decoder.safetensors`, folder));
  const decode = generator(file), e_ref = file.tensors.e_ref?.data;
  const known = Object.fromEntries(Object.entries(codes).map(([c, text]) => [c, floats(text)]));
  const way = ([c, {mean, basis}]) => [c, {mean: floats(mean), basis: floats(basis)}];
  const ways = Object.fromEntries(Object.entries(directions).map(way));
  let drawn = null, encode = null;
  function code(c, request, moves) {
    const {mean, basis} = ways[c], n = mean.length, out = new Float32Array(n);
    const add = (i, by) => { for (let j = 0; j < n; j++) out[j] += by * basis[i * n + j]; };
    const from = request[`${c}_from`];
    if (request[c] === 'ref') {
      if (!e_ref) throw new Error('expected a model with e_ref, got none');
      out.set(e_ref);
    } else if (request[c] === 'drawn') {
      const {uniform, normal} = random(2 * request.seed + (c === 'z'));
      const image = Math.floor(uniform() * known[c].length / n), root = Math.hypot(1, noise);
      for (let j = 0; j < n; j++) out[j] = mean[j] + (known[c][image * n + j] - mean[j]) / root;
      for (let i = 0; i < n; i++) add(i, normal() * noise / root);
    } else out.set(from === DRAWING ? drawn[c] : known[c].subarray(from * n, (from + 1) * n));
    moves.forEach((by, i) => add(i, by));
    return out;
  }
  return {
    code,
    async draw(rgb, size) {  // the encoder comes with the first drawing
      encode ??= encoders(await load(here(`${files}-encoder.safetensors`, folder)));
      const image = new Float32Array(rgb.length), plane = size * size;
      for (let i = 0; i < plane; i++) for (let c = 0; c < 3; c++) image[c * plane + i] = rgb[3 * i + c] / 127.5 - 1;
      drawn = encode(image);
    },
    picture(request, moves) {  // RGB bytes, pixel by pixel
      const image = decode({z: code('z', request, moves.z), e: code('e', request, moves.e)});
      const plane = image.length / 3, rgb = new Uint8Array(image.length);
      const byte = (value) => Math.round(Math.min(255, Math.max(0, (value + 1) * 127.5)));
      for (let i = 0; i < plane; i++) for (let c = 0; c < 3; c++) rgb[3 * i + c] = byte(image[c * plane + i]);
      return rgb;
    },
  };
}

// What anywidget calls a model: values by name, events when they change. Here the other end is this page.
class Page {
  constructor(values, sides) { Object.assign(this, {values, sides, listeners: {}, encoded: null}); }
  get(name) { return this.values[name]; }
  set(name, value) { this.values[name] = value; if (name === 'request') this.asked = true; }
  on(event, f) { (this.listeners[event] ??= new Set()).add(f); }
  off(event, f) { this.listeners[event]?.delete(f); }
  tell(name, value) { this.values[name] = value; for (const f of this.listeners[`change:${name}`] ?? []) f(); }
  save_changes() { if (this.asked) { this.asked = false; requestAnimationFrame(() => this.answer()); } }

  async answer() {
    const {request, spec, drawing} = this.values;
    try {
      if ([request.z_from, request.e_from].includes(DRAWING) && drawing !== this.encoded) {
        this.tell('message', 'Reading the drawing …');
        await Promise.all(this.sides.map((one) => one.draw(new Uint8Array(drawing.buffer), spec.size)));
        this.encoded = drawing;
      }
      this.pictures = this.sides.map((one, m) => one.picture(request, request.moves[m]));
      this.tell('message', '');
    } catch (error) { this.tell('message', error.message); }
    if (!this.pictures) return;
    const frames = new Uint8Array(4 + this.pictures.length * this.pictures[0].length);
    new DataView(frames.buffer).setUint32(0, request.id, true);
    this.pictures.forEach((rgb, i) => frames.set(rgb, 4 + i * rgb.length));
    this.tell('frames', new DataView(frames.buffer));
  }
}

async function start(root, folder) {
  const parts = [import(here('explorer.js')), import(here('network.js')), fetch(here('live.json', folder))];
  const [{default: front}, network, answer] = await Promise.all(parts);
  if (!answer.ok) throw new Error(`live.json could not be fetched (${answer.status})`);
  const {spec, images, models} = await answer.json();
  const sides = await Promise.all(models.map((one) => side(one, network, folder)));
  const frames = new DataView(new ArrayBuffer(0));
  const model = new Page({spec, images: new DataView(bytes(images).buffer), frames, message: ''}, sides);
  document.head.append(Object.assign(document.createElement('link'), {rel: 'stylesheet', href: here('explorer.css')}));
  root.replaceChildren();
  front.render({model, el: root});
  return model;
}

// A folder's explorer in an element, which keeps what it has until then, under a sentence; `live` is the page's end.
function open(root, folder) {
  const status = document.createElement('p');
  const say = (sentence) => { status.textContent = sentence; };
  status.setAttribute('role', 'status');
  say('The models are being loaded …');
  root.append(status);
  root.opened = start(root, folder).then((model) => { root.live = model; })
    .catch((error) => say(`The picture stays as it is: ${error.message}; reload the page to try again.`));
}

// A row of tabs, moved by the arrow keys too, each with a panel of its own; a panel is opened when it is first shown.
function tabbed(root, folders) {
  const list = document.createElement('div'), tabs = [], panels = [];
  const show = (k) => {
    tabs.forEach((tab, i) => { tab.setAttribute('aria-selected', i === k); tab.tabIndex = i === k ? 0 : -1; });
    panels.forEach((panel, i) => { panel.hidden = i !== k; });
    if (!panels[k].opened) open(panels[k], Object.values(folders)[k]);
  };
  list.setAttribute('role', 'tablist');
  Object.keys(folders).forEach((title, k) => {
    const tab = document.createElement('button'), panel = document.createElement('div');
    Object.assign(tab, {id: `live-tab-${k}`, textContent: title, type: 'button', onclick: () => show(k)});
    Object.assign(panel, {id: `live-panel-${k}`, hidden: true});
    for (const [name, value] of [['role', 'tab'], ['aria-controls', panel.id]]) tab.setAttribute(name, value);
    for (const [name, value] of [['role', 'tabpanel'], ['aria-labelledby', tab.id]]) panel.setAttribute(name, value);
    tabs.push(tab); panels.push(panel);
  });
  list.addEventListener('keydown', ({key}) => {
    const by = {ArrowRight: 1, ArrowLeft: -1}[key], k = tabs.indexOf(document.activeElement);
    if (!by || k < 0) return;
    const next = (k + by + tabs.length) % tabs.length;
    show(next); tabs[next].focus();
  });
  panels[0].append(...root.childNodes);  // the picture, until the models are here
  list.append(...tabs);
  root.classList.add('rbvae-tabs');
  root.append(list, ...panels);
  show(0);
  panels[0].opened.then(() => { root.live = panels[0].live; });
}

const root = document.getElementById('live');
if (root?.dataset.tabs && !globalThis.rbvaeFiles) tabbed(root, JSON.parse(root.dataset.tabs));
else if (root) open(root, './');
