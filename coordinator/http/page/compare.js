// Several runs in one plot, and their numbers side by side.
import { ask } from './live.js';
import { bytes, colour, element, grouped, pill, replace, seconds, significant } from './format.js';

const MOST = 8, REFRESH_MS = 2000, LISTED = 100;
const FIELDS = [['loss', 'Training loss', significant], ['validation_loss', 'Validation loss', significant], ['seconds', 'Seconds a step', seconds],
  ['gradient_norm', 'Gradient norm', significant], ['link_bytes', 'Sent in a step', bytes]];
const under = (state) => !['done', 'stopped', 'failed'].includes(state);

export class Compare {
  // `chosen`: ids of runs in the address. `runs()`: all runs, newest first.
  constructor(chosen, runs, onError) {
    this.chosen = chosen.slice(0, MOST);
    this.runs = runs;
    this.onError = onError;
    this.curves = new Map(); // answers of the server by run
    this.field = FIELDS[0];
    this.list = element('ol', { class: 'choice', id: 'choice' });
    this.filter = element('input', { type: 'search', autocomplete: 'off', 'aria-label': 'Find runs to compare', placeholder: 'find runs', oninput: () => this.#listRuns() });
    const select = element('select', { id: 'curve', onchange: () => {
      this.field = FIELDS[select.selectedIndex];
      this.#draw();
    } }, FIELDS.map(([, name]) => element('option', {}, name)));
    this.area = element('div', { class: 'chart-area', id: 'compared', role: 'img', 'aria-label': 'Curves of the chosen runs over steps' });
    this.table = element('tbody');
    this.node = element('div', {}, element('h1', {}, 'Compare runs'),
      element('section', { class: 'card', 'aria-label': 'Runs to compare' }, element('div', { class: 'head' }, this.filter,
        element('span', { class: 'muted' }, `up to ${MOST}`)), this.list),
      element('section', { class: 'card', 'aria-label': 'Curves' }, element('div', { class: 'head' },
        element('label', { for: 'curve' }, 'Curve'), select), this.area),
      element('section', { class: 'card', 'aria-label': 'Numbers' }, element('div', { class: 'scroll' }, element('table', { id: 'numbers' },
        element('thead', {}, element('tr', {}, ['Run', 'State', 'Step', 'Loss', 'Validation', 'A step', 'Tokens a second', 'Schedule'].map((name) => element('th', { scope: 'col' }, name)))), this.table))));
    this.resizer = new ResizeObserver(() => this.#resize());
    this.timer = setInterval(() => this.load(), REFRESH_MS);
  }

  close() {
    this.closed = true;
    clearInterval(this.timer);
    this.resizer.disconnect();
    this.plot?.destroy();
  }

  recolour() {
    this.#draw();
    this.#numbers();
  }

  async load() {
    this.#listRuns();
    if (this.busy) return;
    this.busy = true;
    try {
      await Promise.all(this.chosen.map((run) => this.#load(run)));
      if (!this.closed) this.#show();
    } catch (error) {
      if (!this.closed) this.onError(error);
    } finally {
      this.busy = false;
    }
  }

  async #load(run) {
    const known = this.curves.get(run);
    if (known && !under(known.status.state)) return; // it has ended, and changes no more
    const [{ run: status }, { curves }] = await Promise.all([ask('run', { run }), ask('steps', { run })]);
    this.curves.set(run, { status, curves });
  }

  #show() {
    this.#draw();
    this.#numbers();
  }

  #listRuns() {
    const words = this.filter.value.toLowerCase();
    const runs = this.runs();
    const found = runs.filter((run) => this.chosen.includes(run.run_id) || run.run_id.toLowerCase().includes(words)).slice(0, LISTED);
    this.list = replace(this.list, element('ol', { class: 'choice', id: 'choice' }, found.map((run) => {
      const box = element('input', { type: 'checkbox', value: run.run_id, checked: this.chosen.includes(run.run_id),
        disabled: this.chosen.length >= MOST && !this.chosen.includes(run.run_id), onchange: (event) => this.#choose(run.run_id, event.target.checked) });
      return element('li', {}, element('label', {}, box, ` ${run.run_id} `, pill(run.state)));
    })));
    if (!runs.length) this.list.textContent = 'There are no runs yet.';
  }

  #choose(run, wanted) {
    this.chosen = wanted ? [...this.chosen, run] : this.chosen.filter((one) => one !== run);
    // The address is the comparison, for a bookmark. It does not open the view anew.
    history.replaceState(null, '', `#compare/${this.chosen.map(encodeURIComponent).join(',')}`);
    this.load();
    this.#show();
  }

  #present() {
    return this.chosen.map((run, index) => ({ run, index, ...this.curves.get(run) })).filter((one) => one.status);
  }

  #draw() {
    const [field, name, value] = this.field;
    const shown = this.#present().map((one) => ({ ...one, curve: one.curves[field] })).filter((one) => one.curve);
    const text = JSON.stringify([field, shown.map((one) => [one.run, one.index, one.curve.steps.length, one.curve.steps.at(-1)]), document.documentElement.dataset.theme]);
    if (text === this.drawn) return;
    this.drawn = text;
    this.plot?.destroy();
    this.plot = null;
    this.area.dataset.curves = String(shown.length);
    if (!shown.length) {
      this.area.textContent = this.chosen.length ? `None of these runs has a curve of this kind: ${name}.` : 'Choose runs above.';
      return;
    }
    const axis = { stroke: () => colour('muted'), grid: { stroke: () => colour('grid'), width: 1 }, ticks: { stroke: () => colour('grid') } };
    this.area.textContent = '';
    this.plot = new uPlot({
      width: this.area.clientWidth, height: 340, scales: { x: { time: false } },
      axes: [axis, { ...axis, size: 76, values: (plot, splits) => splits.map((split) => value(split)) }],
      series: [{ label: 'step' }].concat(shown.map((one) => ({ label: one.run, stroke: colour(`run-${one.index + 1}`), width: 1.6, spanGaps: true,
        points: { show: one.curve.steps.length < 40 ? undefined : false, size: 5 },
        value: (plot, got) => (got === null || got === undefined ? '–' : value(got)) }))),
    }, uPlot.join(shown.map((one) => [one.curve.steps, one.curve.values])), this.area);
    this.resizer.observe(this.area);
  }

  #numbers() {
    this.table = replace(this.table, element('tbody', {}, this.#present().map(({ run, index, status }) => element('tr', {},
      element('td', {}, element('i', { class: `swatch run-${index + 1}` }), element('a', { href: `#run/${encodeURIComponent(run)}` }, run)),
      element('td', {}, pill(status.state)), element('td', {}, `${grouped(status.step)} of ${grouped(status.steps)}`),
      element('td', {}, status.replay_source ? 'replay' : significant(status.loss || null)),
      element('td', {}, status.has_validation ? significant(status.validation_loss) : '–'),
      element('td', {}, status.step_seconds > 0 ? seconds(status.step_seconds) : '–'),
      element('td', {}, status.tokens_per_second > 0 ? grouped(status.tokens_per_second) : '–'),
      element('td', {}, status.schedule)))));
  }

  #resize() {
    const width = this.area.clientWidth;
    if (this.plot && width && width !== this.plot.width) this.plot.setSize({ width, height: 340 });
  }
}
