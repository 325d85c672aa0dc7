// The explorer's front-end, an anywidget module. It draws what `model` holds and asks `model` for pictures; whether
// a kernel answers (Jupyter, Colab) or a script in the page (the documentation), it cannot tell.
//
//   spec     {size, labels, start, target, draw,
//             models: [{title, sliders: {e: [name, ...], z: [...]}, probes: [[what, value, chance], ...]}]};
//            `start` is the image to begin with, `target` what e stands for ('style'), `draw` what there is a pad for
//            ('digit'; empty: there is none); only `models` may change later
//   images   bytes: one RGB picture of size × size for each label
//   request  {id, z_from, e_from, z, e, seed, moves}: what is asked for, see `START`; written here
//   drawing  bytes: one RGB picture, written here
//   frames   bytes: the id of the request it answers (uint32), then one RGB picture for each model
//   message  one sentence for the reader, empty if all is well

const DRAWING = -1;  // stands for the drawing where an image's number is expected
const START = {z: 'image', e: 'image', seed: 0};  // z, e: of the 'image', 'drawn' anew, or (e only) 'ref'
const RANGE = {min: -3, max: 3, step: 0.1, value: 0};  // standard deviations

const an = (word) => `${/^[aeiou]/i.test(word) ? 'an' : 'a'} ${word}`;
const capital = (word) => word[0].toUpperCase() + word.slice(1);
const bytes = (value) => new Uint8Array(value.buffer ?? value, value.byteOffset ?? 0, value.byteLength);

function make(parent, tag, properties = {}, attributes = {}) {
  const node = Object.assign(document.createElement(tag), properties);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  parent.append(node);
  return node;
}

function paint(canvas, rgb, size) {
  const picture = new ImageData(size, size);
  for (let i = 0; i < size * size; i++) picture.data.set([rgb[3 * i], rgb[3 * i + 1], rgb[3 * i + 2], 255], 4 * i);
  canvas.getContext('2d').putImageData(picture, 0, 0);
}

export default {
  render({model, el}) {
    const root = make(el, 'div', {className: 'rbvae'}), spec = model.get('spec');
    const problem = make(root, 'p', {className: 'rbvae-problem'}, {role: 'alert'});
    const say = (sentence) => { problem.textContent = sentence; };
    const state = {...START, z_from: spec.start, e_from: spec.start, moves: still(spec)};
    let columns = [], asked = null, again = false;  // asked: the request that waits for its answer
    let last = Math.floor(Math.random() * 2 ** 31);  // another view of the same widget counts from elsewhere

    function send() {
      model.set('request', asked);
      model.save_changes();
    }
    function ask() {  // one request at a time; what happened meanwhile is asked for at once afterwards
      if (asked) { again = true; return; }
      asked = {...structuredClone(state), id: ++last};
      send();
    }
    function answered() {
      const reply = bytes(model.get('frames'));
      if (reply.length < 4) return;
      if (new DataView(reply.buffer, reply.byteOffset).getUint32(0, true) !== last) {  // another view's, and its request
        if (asked) send();  // may have taken the place of ours before it was sent; does nothing if it has not
        return;
      }
      columns.forEach(({canvas}, i) => paint(canvas, reply.subarray(4 + 3 * spec.size ** 2 * i), spec.size));
      root.dataset.frame = last;
      say(model.get('message'));
      asked = null;
      if (again) { again = false; ask(); }
    }
    function show() {
      choices.show(state);
      columns.forEach((column, m) => column.show(choices.sentence(state), state.moves[m]));
    }
    function change(update) { Object.assign(state, update); show(); ask(); }

    const keep = (rgb) => model.set('drawing', new DataView(rgb.buffer));
    const choices = chooser(root, spec, bytes(model.get('images')), state, change, say, keep);
    const models = make(root, 'div', {className: 'rbvae-models'});
    function build() {  // one column a model; again when there are others (another checkpoint), with what was chosen
      models.replaceChildren();
      columns = model.get('spec').models.map((one, m) => column(models, one, spec.size, (code, i, value) => {
        state.moves[m][code][i] = value;
        change({});
      }));
      for (const node of root.querySelectorAll('input, button, select, summary, [tabindex]'))
        node.setAttribute('data-lm-suppress-shortcuts', 'true');  // or JupyterLab would take the arrow keys
      asked = null;
      again = false;
      change({});
    }
    const told = () => say(model.get('message'));
    const events = [['change:frames', answered], ['change:spec', build], ['change:message', told]];
    for (const [event, f] of events) model.on(event, f);
    build();
    told();
    return () => { for (const [event, f] of events) model.off(event, f); root.remove(); };
  },
};

const still = (spec) => spec.models.map(({sliders}) => ({e: sliders.e.map(() => 0), z: sliders.z.map(() => 0)}));

// Which codes: pictures to pick, the pad, the buttons, and a sentence that says what is shown.
function chooser(root, spec, images, state, change, say, keep) {
  const top = make(root, 'div', {className: 'rbvae-top'}), choices = make(top, 'div'), pickers = {
    z_from: picker(choices, 'Content: z of', spec, images, (i) => change({z_from: i, z: 'image'})),
    e_from: picker(choices, `${capital(spec.target)}: e of`, spec, images, (i) => change({e_from: i, e: 'image'})),
  };
  if (spec.draw) drawingPad(top, spec, say, (rgb, uses) => {
    keep(rgb);
    for (const p of Object.values(pickers)) p.draw(rgb);  // there is one drawing, the last
    change(Object.fromEntries(uses.flatMap((name) => [[name, DRAWING], [name[0], 'image']])));
  });
  const seed = () => Math.floor(Math.random() * 2 ** 31), own = {z: 'image', e: 'image'};
  const actions = {
    'Swap': ['exchange the two images', () => change({z_from: state.e_from, e_from: state.z_from, ...own})],
    'Sample e': [`draw another ${spec.target}`, () => change({e: 'drawn', seed: seed()})],
    'Sample z': ['draw another content', () => change({z: 'drawn', seed: seed()})],
    'e = e_ref': [`the ${spec.target} of reference images`, () => change({e: 'ref'})],
    'Reset': ['codes of the chosen images, all sliders at 0', () => change({...own, moves: still(spec)})],
  };
  const group = {role: 'group', 'aria-label': 'Actions on both models'};
  const row = make(choices, 'div', {className: 'rbvae-actions'}, group);
  for (const [name, [title, onclick]] of Object.entries(actions))
    make(row, 'button', {type: 'button', textContent: name, title, onclick});
  const caption = make(choices, 'p', {className: 'rbvae-status'}, {role: 'status'});
  const words = {
    image: (i) => i === DRAWING ? 'your drawing' : spec.labels[i],
    drawn: () => 'a sample',
    ref: () => 'reference images (e_ref)',
  };
  const sentence = ({z, e, z_from, e_from}) => `z of ${words[z](z_from)}, e of ${words[e](e_from)}`;
  return {
    sentence,
    show(state) {
      for (const [name, p] of Object.entries(pickers)) p.choose(state[name[0]] === 'image' ? state[name] : null);
      if (caption.textContent !== sentence(state)) caption.textContent = sentence(state);
    },
  };
}

function picker(parent, legend, spec, images, onpick) {  // radio buttons that are pictures; the last is the drawing
  const set = make(parent, 'fieldset', {className: 'rbvae-picker'});
  const name = `rbvae-${Math.random()}`, length = 3 * spec.size ** 2;
  make(set, 'legend', {textContent: legend});
  const options = [...spec.labels, 'drawing'].map((label, i) => {
    const number = i < spec.labels.length ? i : DRAWING;
    const box = make(set, 'label', {title: label, hidden: number === DRAWING});
    const radio = make(box, 'input', {type: 'radio', name, onchange: () => onpick(number)}, {'aria-label': label});
    const canvas = make(box, 'canvas', {width: spec.size, height: spec.size}, {'aria-hidden': 'true'});
    if (number !== DRAWING) paint(canvas, images.subarray(i * length, (i + 1) * length), spec.size);
    return {number, box, radio, canvas};
  });
  const drawing = options.at(-1);
  return {
    choose(number) { for (const o of options) o.radio.checked = o.number === number; },
    draw(rgb) { drawing.box.hidden = false; paint(drawing.canvas, rgb, spec.size); },
  };
}

function column(parent, {title, sliders, probes}, size, onmove) {  // one model: picture, sliders, numbers
  const section = make(parent, 'section', {className: 'rbvae-model'}, {'aria-label': title});
  make(section, 'h3', {textContent: title});
  const canvas = make(section, 'canvas', {width: size, height: size}, {role: 'img'});
  const ranges = Object.entries(sliders).map(([code, names]) => {
    const set = make(section, 'fieldset');
    make(set, 'legend', {textContent: code === 'e' ? 'e, the target factors' : 'z, everything else'});
    return [code, names.map((name, i) => {
      const label = make(set, 'label', {className: 'rbvae-slider'});
      make(label, 'span', {textContent: `${code} ${i + 1}${name && ': ' + name}`});
      const said = `${title}, ${code} direction ${i + 1}${name && ', moves ' + name}`;
      const range = make(label, 'input', {type: 'range', ...RANGE}, {'aria-label': said});
      range.oninput = () => onmove(code, i, +range.value);
      return range;
    })];
  });
  if (probes.length) numbers(section, probes);
  return {
    canvas,
    show(what, moves) {
      canvas.setAttribute('aria-label', `${title}: decoded from ${what}`);
      for (const [code, inputs] of ranges) inputs.forEach((range, i) => {
        range.value = moves[code][i];
        range.setAttribute('aria-valuetext', `${(+range.value).toFixed(1)} standard deviations`);
      });
    },
  };
}

function numbers(parent, rows) {  // what probes read from the codes
  const table = make(parent, 'table');
  make(table, 'caption', {textContent: 'Read from the codes (chance)'});
  for (const [what, value, chance] of rows) {
    const tr = make(table, 'tr');
    make(tr, 'th', {textContent: what}, {scope: 'row'});
    make(tr, 'td', {textContent: `${value} (${chance})`});
  }
}

// A pad whose strokes become outlines, as drawn images are: wide in colour, then narrower in black inside.
const PEN = 0.11, PAD = 192;  // width of a stroke as a share of the side; pixels of the pad
const COLOURS = {
  'grey': [1, 1, 1], 'red': [8, 1, 1], 'green': [1, 8, 1], 'blue': [1, 1, 8], 'yellow': [5, 5, 0], 'violet': [5, 0, 5],
  'white (reference)': [3, 3, 3],
};
const HELP = 'Drawing pad. Draw with the pointer; or arrow keys move the pen, space lowers or lifts it.';

function drawingPad(parent, {size, draw, target}, say, onuse) {
  const box = make(parent, 'details', {className: 'rbvae-pad'});
  make(box, 'summary', {textContent: `Draw ${an(draw)}`});
  const canvas = make(box, 'canvas', {width: PAD, height: PAD, tabIndex: 0}, {role: 'application', 'aria-label': HELP});
  const row = make(box, 'div', {className: 'rbvae-actions'});
  const colour = make(make(row, 'label', {textContent: 'Colour '}), 'select');
  for (const name of Object.keys(COLOURS)) make(colour, 'option', {textContent: name});
  const width = make(make(row, 'label', {textContent: 'Line '}), 'input', {type: 'range', min: 1, max: 10, value: 3});
  let strokes = [], pen = null, cursor = [0.5, 0.5];

  const style = () => {
    const c = COLOURS[colour.value], sum = colour.value.startsWith('white') ? 3 : c[0] + c[1] + c[2];
    return {rgb: c.map((v) => Math.round(255 * v / sum)), line: width.value / 64};
  };
  function redraw() {
    outline(canvas.getContext('2d'), PAD, strokes, style());
    if (document.activeElement !== canvas) return;
    const context = canvas.getContext('2d');
    context.strokeStyle = pen ? 'orange' : 'white';
    context.lineWidth = 1;
    context.strokeRect(cursor[0] * PAD - 4, cursor[1] * PAD - 4, 8, 8);
  }
  function point(event) {
    const r = canvas.getBoundingClientRect();
    return [(event.clientX - r.left) / r.width, (event.clientY - r.top) / r.height];
  }
  canvas.onpointerdown = (event) => {
    canvas.setPointerCapture(event.pointerId);
    strokes.push(pen = [cursor = point(event)]);
    redraw();
  };
  canvas.onpointermove = (event) => { if (pen && event.buttons) { pen.push(cursor = point(event)); redraw(); } };
  canvas.onpointerup = canvas.onpointercancel = () => { pen = null; redraw(); };
  canvas.onkeydown = (event) => {
    const step = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]}[event.key];
    if (event.key === ' ') {
      if (pen) pen = null; else strokes.push(pen = [[...cursor]]);
      say(pen ? 'pen down' : 'pen up');
    } else if (step) {
      cursor = cursor.map((v, i) => Math.min(0.97, Math.max(0.03, v + step[i] / 32)));
      pen?.push(cursor);
    } else return;
    event.preventDefault();
    redraw();
  };
  canvas.onfocus = canvas.onblur = colour.onchange = width.oninput = redraw;
  function use(uses) {
    if (!strokes.length) { say(`The pad is empty: draw ${an(draw)} first.`); return; }
    say('');
    onuse(picture(size, strokes, style()), uses);
  }
  const buttons = make(box, 'div', {className: 'rbvae-actions'});
  for (const [name, onclick] of Object.entries({
    'Use it': () => use(['z_from', 'e_from']),
    'Content only': () => use(['z_from']),
    [`${capital(target)} only`]: () => use(['e_from']),
    'Clear': () => { strokes = []; pen = null; redraw(); },
  })) make(buttons, 'button', {type: 'button', textContent: name, onclick});
  redraw();
  return box;
}

function outline(context, side, strokes, {rgb, line}) {
  context.fillStyle = 'black';
  context.fillRect(0, 0, side, side);
  Object.assign(context, {lineCap: 'round', lineJoin: 'round'});
  for (const [width, ink] of [[PEN + line, `rgb(${rgb})`], [PEN - line, 'black']]) {
    if (width <= 0) continue;
    Object.assign(context, {lineWidth: width * side, strokeStyle: ink});
    for (const stroke of strokes) {
      context.beginPath();
      for (const [x, y] of stroke) context.lineTo(x * side, y * side);
      context.lineTo(stroke.at(-1)[0] * side + 0.01, stroke.at(-1)[1] * side);  // lines of no length are not drawn
      context.stroke();
    }
  }
}

function picture(size, strokes, style, zoom = 8) {  // size × size RGB bytes: drawn large, then reduced by area
  const big = Object.assign(document.createElement('canvas'), {width: size * zoom, height: size * zoom});
  const context = big.getContext('2d', {willReadFrequently: true}), sums = new Float64Array(3 * size * size);
  outline(context, size * zoom, strokes, style);
  const {data} = context.getImageData(0, 0, big.width, big.height);
  for (let y = 0; y < big.height; y++) for (let x = 0; x < big.width; x++) for (let c = 0; c < 3; c++)
    sums[3 * (Math.floor(y / zoom) * size + Math.floor(x / zoom)) + c] += data[4 * (y * big.width + x) + c];
  return Uint8Array.from(sums, (v) => Math.round(v / zoom ** 2));
}
