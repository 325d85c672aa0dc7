// A scrubber along trainings that began with the same weights: what each of them draws, step by step.
// Every `.paths` element of the page names in `data-src` {sheet, size, given: [title, ...], ways: [{title, says: [text, ...]}, ...],
// digits, steps: [number, ...]}. The sheet is a picture of square tiles: a row for each of `given`, with a tile for each digit;
// then, for each way, a row for each digit, with a tile for each step.

const ZOOM = 2;

function made(parent, tag, properties = {}) {
  const element = Object.assign(document.createElement(tag), properties);
  parent.append(element);
  return element;
}

function tiles(parent, {sheet, size, digits}, title) {  // a row of tiles; gives a function that shows them
  const row = made(parent, 'div', {className: 'paths-row'}), label = made(row, 'span', {textContent: title});
  const strip = made(row, 'div', {className: 'paths-strip'});
  const all = Array.from({length: digits}, () => made(strip, 'div'));
  strip.setAttribute('role', 'img');
  for (const tile of all) Object.assign(tile.style, {width: `${size * ZOOM}px`, height: `${size * ZOOM}px`, backgroundImage: `url("${sheet}")`});
  const says = made(row, 'output');
  return (place, text = '') => {
    all.forEach((tile, i) => {
      const [column, line] = place(i);
      tile.style.backgroundPosition = `${-column * size * ZOOM}px ${-line * size * ZOOM}px`;
    });
    says.textContent = text;
    strip.setAttribute('aria-label', [label.textContent, text].filter(Boolean).join(': '));
  };
}

function build(root, film) {
  const {given, ways, digits, steps, size} = film, lines = given.length + ways.length * digits;
  root.replaceChildren();
  root.style.setProperty('--sheet', `${Math.max(digits, steps.length) * size * ZOOM}px ${lines * size * ZOOM}px`);
  given.forEach((title, line) => tiles(root, film, title)((i) => [i, line]));
  const draws = ways.map(({title}) => tiles(root, film, title)), row = made(root, 'div', {className: 'paths-move'});
  const play = made(row, 'button', {type: 'button', textContent: 'Play'});
  const range = made(row, 'input', {type: 'range', min: 0, max: steps.length - 1, value: 0}), says = made(row, 'output');
  range.setAttribute('aria-label', 'training step');
  let timer = null;
  function show() {
    const at = +range.value;
    draws.forEach((draw, w) => draw((i) => [at, given.length + w * digits + i], ways[w].says[at]));
    says.textContent = `step ${steps[at]}`;
    range.setAttribute('aria-valuetext', says.textContent);
  }
  function stop() { clearInterval(timer); timer = null; play.textContent = 'Play'; }
  function next() { if (+range.value === steps.length - 1) stop(); else { range.value++; show(); } }
  play.onclick = () => {
    if (timer) { stop(); return; }
    if (+range.value === steps.length - 1) range.value = 0;
    show();
    timer = setInterval(next, 400);
    play.textContent = 'Stop';
  };
  range.oninput = () => { stop(); show(); };
  show();
}

const style = document.createElement('style');
style.textContent = `.paths { font: 14px/18px system-ui, sans-serif; margin: 14px 0; max-width: 720px; }
.paths-row { display: flex; flex-wrap: wrap; gap: 4px 12px; align-items: center; margin-bottom: 6px; } .paths-row > span { width: 7.5em; }
.paths-row output { min-width: 7em; font-variant-numeric: tabular-nums; } .paths-strip { display: flex; flex-wrap: wrap; gap: 2px; }
.paths-strip div { background-size: var(--sheet); image-rendering: pixelated; }
.paths-move { display: flex; gap: .7em; align-items: center; } .paths-move input { flex: 1 1 12em; } .paths-move output { min-width: 6em; }
.paths button { font: inherit; padding: .25em .8em; border: 1px solid currentColor; border-radius: 5px; background: transparent; color: inherit; }`;
document.head.append(style);

async function fill(root) {
  try {
    const answer = await fetch(root.dataset.src);
    if (!answer.ok) throw new Error(`${root.dataset.src}: ${answer.status}`);
    const film = await answer.json();
    build(root, {...film, sheet: new URL(film.sheet, answer.url).href});
  } catch (error) { root.textContent = `The pictures of the trainings could not be read (${error.message}); reload the page.`; }
}

// Pictures are fetched when their place comes near to what is seen.
const near = new IntersectionObserver((entries) => {
  for (const {target, isIntersecting} of entries) if (isIntersecting) { near.unobserve(target); fill(target); }
}, {rootMargin: '300px'});
for (const root of document.querySelectorAll('.paths')) near.observe(root);
