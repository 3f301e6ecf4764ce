// A map of workers and of what flows between them: arrows as wide as their rate.
import { element, rate } from './format.js';

const MOST_WORKERS = 32, MOST_LABELS = 12, LETTER = 6.6;
const SPACE = 'http://www.w3.org/2000/svg';

function draw(tag, attributes, ...children) {
  const made = document.createElementNS(SPACE, tag);
  Object.entries(attributes).forEach(([name, value]) => made.setAttribute(name, value));
  made.append(...children.flat().filter(Boolean));
  return made;
}

const short = (name, most) => (name.length > most ? `${name.slice(0, most - 1)}…` : name);

// Whether they fit on a line, as a pipeline has them: only neighbours talk to each other, or there are few of them.
function onLine(names, links, width) {
  const at = new Map(names.map((name, index) => [name, index]));
  return width / names.length > 100 && (names.length <= 3 || links.every((link) => Math.abs(at.get(link.from) - at.get(link.to)) === 1));
}

// Where workers stand: on a line, or on a circle.
function places(names, width, height, line) {
  const middle = { x: width / 2, y: height / 2 };
  if (names.length === 1) return [middle];
  if (line) {
    const edge = Math.min(80, width / 7), step = (width - 2 * edge) / (names.length - 1);
    return names.map((name, index) => ({ x: edge + index * step, y: middle.y }));
  }
  const across = width / 2 - 70, up = height / 2 - 34;
  return names.map((name, index) => {
    const angle = 2 * Math.PI * index / names.length - Math.PI / 2;
    return { x: middle.x + across * Math.cos(angle), y: middle.y + up * Math.sin(angle) };
  });
}

// An arrow bent to its right, so that both directions of a pair are seen.
function arrow(from, to, link, widest, labelled) {
  const dx = to.x - from.x, dy = to.y - from.y, length = Math.hypot(dx, dy) || 1;
  const bend = Math.min(46, length / 5), ax = dx / length, ay = dy / length;
  const start = { x: from.x + 16 * ax - 5 * ay, y: from.y + 16 * ay + 5 * ax };
  const end = { x: to.x - 18 * ax - 5 * ay, y: to.y - 18 * ay + 5 * ax };
  const knee = { x: (from.x + to.x) / 2 - bend * ay, y: (from.y + to.y) / 2 + bend * ax };
  const wide = 1.2 + 4.8 * (widest > 0 ? link.rate / widest : 0);
  // Half way along the curve, and a little beyond it.
  const off = length < 150 ? 22 : 11; // beyond the names of workers that stand close
  const label = { x: (start.x + 2 * knee.x + end.x) / 4 - 9 * ay, y: (start.y + 2 * knee.y + end.y) / 4 + off * ax + 4 };
  const along = Math.atan2(end.y - knee.y, end.x - knee.x) * 180 / Math.PI;
  return draw('g', { class: `way ${link.tone}` }, draw('title', {}, link.title),
    draw('path', { d: `M${start.x} ${start.y}Q${knee.x} ${knee.y} ${end.x} ${end.y}`, 'stroke-width': wide.toFixed(2), fill: 'none' }),
    draw('path', { class: 'tip', d: 'M0 -5L9 0L0 5Z', transform: `translate(${end.x} ${end.y}) rotate(${along})` }),
    labelled && link.label ? draw('text', { x: label.x, y: label.y, 'text-anchor': 'middle' }, link.label) : null);
}

// `links`: {from, to, rate (bits a second; 0: nothing known), tone, label, title}. Returns an SVG of this width.
export function linkMap(names, links, width) {
  const shown = names.slice(0, MOST_WORKERS);
  const seen = links.filter((link) => shown.includes(link.from) && shown.includes(link.to) && link.from !== link.to);
  const line = onLine(shown, seen, width);
  const height = Math.round(line ? 150 : Math.min(380, Math.max(260, 0.75 * width)));
  const stand = places(shown, width, height, line);
  const at = new Map(shown.map((name, index) => [name, stand[index]]));
  const widest = Math.max(0, ...seen.map((link) => link.rate));
  const text = `${shown.length} workers: ${seen.slice(0, 30).map((link) => link.title).join('; ')}`;
  const most = Math.max(6, Math.floor(Math.min(124, width / 3.4) / LETTER));
  return draw('svg', { class: 'map', viewBox: `0 0 ${width} ${height}`, width, height, role: 'img', 'aria-label': text },
    seen.map((link) => arrow(at.get(link.from), at.get(link.to), link, widest, seen.length <= 2 * MOST_LABELS)),
    shown.map((name) => {
      const { x, y } = at.get(name);
      return draw('g', { class: 'node' }, draw('title', {}, name), draw('circle', { cx: x, cy: y, r: 11 }),
        draw('text', { x, y: y + 25, 'text-anchor': 'middle' }, short(name, most)));
    }));
}

// One arrow for each direction between two workers: what several links of a pair carry is added up.
export function flows(links, titleOf) {
  const found = new Map();
  for (const link of links) {
    const key = `${link.from}\n${link.to}`;
    const known = found.get(key);
    if (!known) found.set(key, { tone: '', ...link, titles: [titleOf(link)] });
    else {
      known.rate += link.rate;
      known.tone = [known.tone, link.tone].includes('bad') ? 'bad' : known.tone || link.tone;
      known.titles.push(titleOf(link));
    }
  }
  return [...found.values()].map((flow) => ({ ...flow, label: flow.rate ? rate(flow.rate) : '', title: flow.titles.join('; ') }));
}

// A card with a map that follows the width of the page.
export class MapCard {
  constructor(title, hint) {
    this.place = element('div', { class: 'map-place' });
    this.node = element('section', { class: 'card', 'aria-label': title },
      element('div', { class: 'head' }, element('h2', {}, title), element('span', { class: 'muted' }, hint)), this.place);
    this.resizer = new ResizeObserver(() => this.#draw());
    this.resizer.observe(this.place);
    this.node.hidden = true;
  }

  show(names, links) {
    const text = JSON.stringify([names, links]);
    if (text === this.text) return;
    this.text = text;
    this.shown = [names, links];
    this.node.hidden = names.length < 2 || names.length > MOST_WORKERS;
    this.#draw(true);
  }

  #draw(anew) {
    const width = Math.round(this.place.clientWidth);
    if (!this.shown || this.node.hidden || !width || (!anew && width === this.width)) return;
    this.width = width;
    this.place.replaceChildren(linkMap(...this.shown, width));
  }

  close() {
    this.resizer.disconnect();
  }
}
