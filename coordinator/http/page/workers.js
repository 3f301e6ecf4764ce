// Workers, and who reaches whom.
import { ask } from './live.js';
import { MapCard, flows } from './linkmap.js';
import { joining } from './joining.js';
import { bytes, colour, element, grouped, pill, rate, replace, seconds } from './format.js';

const PAGE = 100, REFRESH_MS = 1000, CUT_ROWS = 200, MATRIX_SIDE = 520;
const COLUMNS = ['Worker', 'State', 'Host', 'Devices', 'Memory', 'Run', 'Links', 'Talks to', 'Losses', 'Version'];

export class Workers {
  constructor() {
    this.page = 0;
    this.filter = element('input', { type: 'search', autocomplete: 'off', 'aria-label': 'Find a worker by name, host, device or run',
      placeholder: 'name, host, device, run', oninput: () => { this.page = 0; this.#table(); } });
    this.count = element('span', { class: 'muted', role: 'status' });
    this.where = element('span', { class: 'muted' });
    this.back = element('button', { type: 'button', onclick: () => this.#turn(-1) }, 'Back');
    this.next = element('button', { type: 'button', onclick: () => this.#turn(1) }, 'Next');
    this.rows = element('tbody');
    this.canvas = element('canvas', { role: 'img', 'aria-label': 'Who reaches whom' });
    this.hint = element('div', { class: 'hint' }, 'Point at a pair.');
    this.pairs = element('div', { class: 'scroll' });
    this.adding = element('details', {}, element('summary', {}, 'Add a worker'), joining('Add a worker'));
    this.map = new MapCard('Map', 'arrows as wide as the rate that was measured');
    this.node = element('div', {},
      element('h1', {}, 'Workers'), this.count,
      this.adding, this.map.node,
      element('section', { class: 'card', 'aria-label': 'Workers' },
        element('div', { class: 'head' }, this.filter, element('span', { class: 'spring' }), element('span', { class: 'pager' }, this.back, this.where, this.next)),
        element('div', { class: 'scroll' }, element('table', { id: 'workers' },
          element('thead', {}, element('tr', {}, COLUMNS.map((name) => element('th', { scope: 'col' }, name)))), this.rows))),
      element('section', { class: 'card', 'aria-label': 'Reach' },
        element('div', { class: 'head' }, element('h2', {}, 'Who reaches whom'),
          element('span', { class: 'muted' }, 'row sends, column receives; darker: faster, as measured; red: neither reaches the other')),
        element('div', { class: 'matrix' }, element('div', {}, this.canvas, this.hint), this.pairs)));
    this.canvas.addEventListener('mousemove', (event) => this.#point(event));
    this.timer = setInterval(() => this.load(), REFRESH_MS);
  }

  close() {
    this.map.close();
    clearInterval(this.timer);
    this.closed = true;
  }

  async load() {
    if (this.busy) return;
    this.busy = true;
    try {
      const reply = await ask('workers');
      if (this.closed) return;
      const text = JSON.stringify(reply.links) + reply.workers.map((one) => one.name + one.cannot_talk_to.length).join();
      this.workers = reply.workers;
      this.links = reply.links;
      if (!this.loaded && !reply.workers.some((one) => one.connected)) this.adding.open = true;
      this.loaded = true;
      this.#table();
      this.map.show(reply.workers.filter((one) => one.connected).map((one) => one.name), flows(reply.links
        .map((link) => ({ from: link.from, to: link.to, rate: link.goodput_bits_per_second, transport: link.transport, late: link.round_trip_seconds })),
      (link) => `${link.from} to ${link.to}: ${link.rate ? rate(link.rate) : 'rate not measured'}, round trip ${seconds(link.late)} (${link.transport})`));
      if (text !== this.reach) this.#matrix();
      this.reach = text;
      this.failed = false;
    } catch (error) {
      this.count.textContent = error.message;
    } finally {
      this.busy = false;
    }
  }

  #turn(by) {
    this.page += by;
    this.#table();
  }

  #table() {
    if (!this.workers) return;
    const words = this.filter.value.toLowerCase();
    const found = this.workers.filter((one) => `${one.name} ${one.host} ${one.devices} ${one.run}`.toLowerCase().includes(words));
    const pages = Math.max(1, Math.ceil(found.length / PAGE));
    this.page = Math.min(Math.max(0, this.page), pages - 1);
    this.back.disabled = this.page === 0;
    this.next.disabled = this.page >= pages - 1;
    this.where.textContent = `${found.length ? this.page * PAGE + 1 : 0}–${Math.min(found.length, (this.page + 1) * PAGE)} of ${grouped(found.length)}`;
    const connected = this.workers.filter((one) => one.connected).length;
    this.count.textContent = `${grouped(connected)} of ${grouped(this.workers.length)} connected, ${grouped(this.workers.filter((one) => one.connected && !one.run).length)} free`;
    this.rows = replace(this.rows, element('tbody', {}, found.slice(this.page * PAGE, (this.page + 1) * PAGE).map(row)));
  }

  #matrix() {
    const names = this.workers.map((one) => one.name);
    const at = new Map(names.map((name, index) => [name, index]));
    const size = Math.max(1, names.length);
    // Where there are more workers than pixels, marks overlap rather than vanish.
    const side = Math.min(18, MATRIX_SIDE / size);
    this.side = side;
    this.names = names;
    const whole = Math.max(1, Math.round(size * side));
    this.canvas.width = whole;
    this.canvas.height = whole;
    const pen = this.canvas.getContext('2d');
    pen.fillStyle = colour('quiet-back');
    pen.fillRect(0, 0, whole, whole);
    this.told = new Map();
    const extent = side > 4 ? side - 1 : Math.max(side, 2);
    const mark = (from, to, fill, text) => {
      if (!at.has(from) || !at.has(to)) return;
      pen.fillStyle = fill;
      pen.fillRect(at.get(to) * side, at.get(from) * side, extent, extent);
      this.told.set(at.get(from) * size + at.get(to), text);
    };
    names.forEach((name) => mark(name, name, colour('line'), `${name} itself`));
    const fastest = Math.max(1, ...this.links.map((link) => link.goodput_bits_per_second));
    for (const link of this.links) {
      pen.globalAlpha = 0.25 + 0.75 * link.goodput_bits_per_second / fastest;
      mark(link.from, link.to, colour('accent'),
        `${link.from} to ${link.to}: ${link.goodput_bits_per_second ? rate(link.goodput_bits_per_second) : 'rate not measured'}, round trip ${seconds(link.round_trip_seconds)} (${link.transport})`);
    }
    pen.globalAlpha = 1;
    const cut = this.workers.flatMap((one) => one.cannot_talk_to.map((peer) => ({ from: one.name, ...peer })));
    for (const pair of cut) mark(pair.from, pair.worker, colour('bad'), `${pair.from} and ${pair.worker} over ${pair.transport}: ${pair.problem}`);
    this.canvas.setAttribute('aria-label', `Who reaches whom: ${names.length} workers, ${this.links.length} measured directions, ${cut.length / 2} pairs that do not reach each other`);
    const once = cut.filter((pair) => pair.from < pair.worker);
    this.pairs.replaceChildren(once.length ? element('table', {},
      element('thead', {}, element('tr', {}, ['Pair', 'Over', 'What they see'].map((name) => element('th', { scope: 'col' }, name)))),
      element('tbody', {}, once.slice(0, CUT_ROWS).map((pair) => element('tr', {}, element('td', {}, `${pair.from} and ${pair.worker}`),
        element('td', {}, pair.transport), element('td', {}, pair.problem)))))
      : element('p', { class: 'muted' }, 'No pair is known that cannot reach each other.'),
    once.length > CUT_ROWS ? element('p', { class: 'muted' }, `and ${grouped(once.length - CUT_ROWS)} more pairs`) : '');
  }

  #point(event) {
    if (!this.told) return;
    const shrink = this.canvas.width / this.canvas.clientWidth;
    const column = Math.floor(event.offsetX * shrink / this.side), line = Math.floor(event.offsetY * shrink / this.side);
    if (!this.names[line] || !this.names[column]) return;
    this.hint.textContent = this.told.get(line * this.names.length + column) ?? `${this.names[line]} to ${this.names[column]}: not measured`;
  }

  recolour() {
    if (this.workers) this.#matrix();
  }
}

function row(one) {
  const cell = one.cell ? ` ${one.cell.replica}:${one.cell.stage}` : one.spare ? ' spare' : '';
  const state = !one.connected ? pill('lost', 'away') : one.left_out_seconds > 365 * 86400 ? pill('lost', 'evicted') : one.left_out_seconds > 0 ? pill('suspect', `left out ${seconds(one.left_out_seconds)}`) : pill('healthy', 'connected');
  const cut = one.cannot_talk_to.length;
  return element('tr', {}, element('td', {}, one.name), element('td', {}, state), element('td', {}, one.host), element('td', {}, one.devices),
    element('td', {}, one.memory_bytes ? bytes(one.memory_bytes) : '–'),
    element('td', {}, one.run ? element('a', { href: `#run/${encodeURIComponent(one.run)}` }, one.run + cell) : 'free'),
    element('td', {}, one.link_quality ? pill(one.link_quality) : ''),
    element('td', {}, grouped(one.can_talk_to), cut ? [', ', pill('lost', `not to ${cut}`)] : []),
    element('td', {}, one.losses ? grouped(one.losses) : ''), element('td', {}, one.version));
}
