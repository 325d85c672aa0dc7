// A scrubber through the training of the toy: learned log-ratio over the exact one, and the exact divergence so far.
// Every `.toy` element of the page names its frames in `data-src`: [{step, nats, q: [[exact], [learned]], p: ...}, ...].

const SVG = 'http://www.w3.org/2000/svg', SIDE = 300, COLOURS = {q: 'var(--toy-q)', p: 'var(--toy-p)'};
const LIMITS = [0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000];

function node(parent, tag, attributes = {}, text = '') {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.textContent = text;
  parent.append(made);
  return made;
}

function panel(parent, xlabel, ylabel) {  // axes; y grows upwards
  const svg = node(parent, 'svg', {viewBox: `-50 -12 ${SIDE + 62} ${SIDE + 62}`, role: 'img'});
  node(svg, 'rect', {width: SIDE, height: SIDE, fill: 'none', stroke: 'currentColor', 'stroke-opacity': 0.3});
  node(svg, 'text', {x: SIDE / 2, y: SIDE + 40, 'text-anchor': 'middle'}, xlabel);
  node(svg, 'text', {transform: `translate(-36 ${SIDE / 2}) rotate(-90)`, 'text-anchor': 'middle'}, ylabel);
  return svg;
}

function scatter(parent) {
  const svg = panel(parent, 'exact log q/p', 'learned d');
  node(svg, 'path', {d: `M0 ${SIDE}L${SIDE} 0M${SIDE / 2} 0V${SIDE}M0 ${SIDE / 2}H${SIDE}`, stroke: 'currentColor', 'stroke-opacity': 0.25});
  const ticks = [[0, SIDE + 18, 'middle'], [SIDE, SIDE + 18, 'middle'], [-5, SIDE, 'end'], [-5, 10, 'end']].map(
    ([x, y, anchor]) => node(svg, 'text', {x, y, 'text-anchor': anchor}));
  const dots = node(svg, 'g', {'fill-opacity': 0.6});
  Object.entries(COLOURS).forEach(([side, fill], i) => node(svg, 'text', {x: 10, y: 20 + 18 * i, fill}, `samples of ${side}`));
  return ({q, p, step}) => {
    const most = Math.max(...[q, p].flat(2).map(Math.abs)), limit = LIMITS.find((l) => l >= most) ?? most;
    const at = (v) => SIDE * (v / limit + 1) / 2;
    ticks.forEach((t, i) => { t.textContent = i % 2 ? limit : -limit; });
    dots.replaceChildren();
    for (const [side, [exact, learned]] of Object.entries({q, p})) exact.forEach((v, i) =>
      node(dots, 'circle', {cx: at(v).toFixed(1), cy: (SIDE - at(learned[i])).toFixed(1), r: 3.2, fill: COLOURS[side]}));
    svg.setAttribute('aria-label', `Learned over exact log-ratio at step ${step}; axes from ${-limit} to ${limit}`);
  };
}

function curve(parent, frames) {  // log scale
  const svg = panel(parent, 'step', 'exact Eq. 4, nats'), logs = frames.map((f) => Math.log10(Math.max(f.nats, 1e-3)));
  const low = Math.floor(Math.min(...logs)), high = Math.ceil(Math.max(...logs)), last = frames.at(-1).step;
  const x = (f) => SIDE * f.step / last, y = (v) => SIDE * (high - v) / (high - low);
  for (let power = low; power <= high; power++) node(svg, 'text', {x: -5, y: y(power) + 5, 'text-anchor': 'end'}, 10 ** power);
  node(svg, 'text', {y: SIDE + 18, 'text-anchor': 'middle'}, 0);
  node(svg, 'text', {x: SIDE, y: SIDE + 18, 'text-anchor': 'middle'}, last);
  node(svg, 'path', {d: 'M' + frames.map((f, i) => `${x(f).toFixed(1)} ${y(logs[i]).toFixed(1)}`).join('L'), fill: 'none', stroke: 'currentColor', 'stroke-width': 1.5});
  const here = node(svg, 'circle', {r: 6, fill: COLOURS.q});
  return (frame, i) => {
    here.setAttribute('cx', x(frame));
    here.setAttribute('cy', y(logs[i]));
    svg.setAttribute('aria-label', `Exact divergence over steps; ${frame.nats} nats at step ${frame.step}`);
  };
}

function build(root, frames) {
  const panels = Object.assign(document.createElement('div'), {className: 'toy-panels'}), row = document.createElement('div');
  const range = Object.assign(document.createElement('input'), {type: 'range', min: 0, max: frames.length - 1, value: 0});
  const play = Object.assign(document.createElement('button'), {type: 'button', textContent: 'Play'}), says = document.createElement('output');
  row.className = 'toy-row';
  range.setAttribute('aria-label', 'training step');
  row.append(play, range, says);
  root.replaceChildren(panels, row);
  const draws = [scatter(panels), curve(panels, frames)];
  let timer = null;
  function show() {
    const frame = frames[range.value];
    for (const draw of draws) draw(frame, +range.value);
    says.textContent = `step ${frame.step}, ${frame.nats} nats`;
    range.setAttribute('aria-valuetext', says.textContent);
  }
  function stop() { clearInterval(timer); timer = null; play.textContent = 'Play'; }
  function next() { if (+range.value === frames.length - 1) stop(); else { range.value++; show(); } }
  play.onclick = () => {
    if (timer) { stop(); return; }
    if (+range.value === frames.length - 1) range.value = 0;
    timer = setInterval(next, 150);
    play.textContent = 'Stop';
  };
  range.oninput = () => { stop(); show(); };
  show();
}

const style = document.createElement('style');
style.textContent = `.toy { --toy-q: light-dark(#2f55d4, #8fb0ff); --toy-p: light-dark(#a8500f, #f0a060); margin: 1em 0; } .toy text { font: 13px system-ui, sans-serif; } .toy text:not([fill]) { fill: currentColor; }
.toy-panels { display: grid; grid-template-columns: repeat(auto-fit, minmax(240px, 1fr)); gap: 1em; max-width: 720px; }
.toy-row { display: flex; flex-wrap: wrap; gap: .7em; align-items: center; max-width: 720px; }
.toy-row input { flex: 1 1 12em; } .toy-row output { min-width: 11em; font-variant-numeric: tabular-nums; }
.toy-row { font: 14px system-ui, sans-serif; } .toy button { font: inherit; padding: .25em .8em; border: 1px solid currentColor; border-radius: 5px; background: transparent; color: inherit; }`;
document.head.append(style);

for (const root of document.querySelectorAll('.toy')) {
  try {
    const answer = await fetch(root.dataset.src);
    if (!answer.ok) throw new Error(`${root.dataset.src}: ${answer.status}`);
    build(root, await answer.json());
  } catch (error) { root.textContent = `The frames of the training could not be read (${error.message}); reload the page.`; }
}
