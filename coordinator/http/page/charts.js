// Curves over steps, drawn by uPlot.
import { firstSteps } from './early.js';
import { ask, latest } from './live.js';
import { bytes, colour, element, seconds, significant } from './format.js';

// What the server gives of a curve at most; beyond three times that it is asked anew.
const MOST_POINTS = 2000;

const CHARTS = [
  { title: 'Loss', wide: true, height: 260, value: significant, curves: [
    { field: 'loss', label: 'training', colour: 'forward' },
    { field: 'validation_loss', label: 'validation', colour: 'validation', points: true },
    { field: 'clean_validation_loss', label: 'validation, uncompressed', colour: 'clean', points: true }] },
  { title: 'Gradient norm', height: 170, value: significant, curves: [{ field: 'gradient_norm', label: 'norm', colour: 'backward' }] },
  { title: 'Seconds a step', height: 170, value: seconds, curves: [{ field: 'seconds', label: 'slowest stage', colour: 'optimizer' }] },
  { title: 'Learning rate', height: 150, value: significant, curves: [{ field: 'learning_rate', label: 'rate', colour: 'forward' }] },
  { title: 'Sent in a step', height: 150, value: bytes, curves: [{ field: 'link_bytes', label: 'over all links', colour: 'receive' }] },
];

function options(chart, width, onZoom) {
  const axis = { stroke: () => colour('muted'), grid: { stroke: () => colour('grid'), width: 1 }, ticks: { stroke: () => colour('grid') } };
  return {
    width, height: chart.height,
    scales: { x: { time: false } },
    cursor: { drag: { x: true, y: false, setScale: false } },
    axes: [axis, { ...axis, size: 76, values: (plot, splits) => splits.map((split) => chart.value(split)) }],
    series: [{ label: 'step' }].concat(chart.curves.map((curve) => ({
      label: curve.label, stroke: () => colour(curve.colour), width: curve.points ? 1.5 : 1.2, spanGaps: true,
      points: { show: curve.points ? undefined : false, size: 5 },
      value: (plot, value) => (value === null || value === undefined ? '–' : chart.value(value)),
    }))),
    hooks: { setSelect: [(plot) => {
      if (plot.select.width < 4) return;
      onZoom(plot.posToVal(plot.select.left, 'x'), plot.posToVal(plot.select.left + plot.select.width, 'x'));
      plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    }] },
  };
}

// The curves of one run. Zooming asks the server for the part; new steps are appended.
export class Charts {
  constructor(run, onError) {
    this.run = run;
    this.onError = onError;
    this.curves = {};
    this.step = -1;
    this.epoch = 0;
    this.loaded = -1; // the step at which the server's last answer was made
    this.window = null;
    this.reset = element('button', { type: 'button', disabled: true, onclick: () => this.zoom(null) }, 'All steps');
    this.node = element('section', { class: 'charts', 'aria-label': 'Curves' });
    this.areas = CHARTS.map((chart, index) => {
      const area = element('div', { class: 'chart-area', role: 'img', 'aria-label': `${chart.title} over steps` });
      this.node.append(element('div', { class: chart.wide ? 'card wide' : 'card' },
        element('div', { class: 'head' }, element('h2', {}, chart.title),
          index === 0 ? [element('span', { class: 'muted' }, 'drag to zoom'), element('span', { class: 'spring' }), this.reset] : []),
        area));
      return area;
    });
    this.resizer = new ResizeObserver(() => this.#resize());
    // Asked for now, and not when the first news of the run is there; drawn when this is on the page.
    this.early = firstSteps(run);
    this.early.catch(() => {});
  }

  close() {
    this.closed = true;
    this.resizer.disconnect();
    this.plots?.forEach((plot) => plot.destroy());
  }

  // The run has come to this step; resolves when that is drawn.
  update = latest(async (step, epoch) => {
    if (this.closed || (step === this.step && epoch === this.epoch)) return;
    try {
      const longest = Math.max(0, ...Object.values(this.curves).map((curve) => curve.steps.length));
      const anew = this.step < 0 || epoch !== this.epoch || step < this.step || longest > 3 * MOST_POINTS;
      if (anew || !this.window) await this.#load(anew);
      // What was asked for early may be older than the news.
      if (this.loaded < step && !this.window) await this.#load(false);
      this.step = step;
      this.epoch = epoch;
    } catch (error) {
      this.onError(error);
    }
  });

  zoom(window) {
    this.window = window && { first: Math.max(0, Math.floor(window[0])), last: Math.ceil(window[1]) };
    this.reset.disabled = !this.window;
    this.#load(true).catch(this.onError);
  }

  async #load(anew) {
    const parameters = { run: this.run, ...(this.window ?? {}) };
    // The last steps again: their validation may have come since.
    if (!anew) parameters.first = Math.max(0, this.loaded - 16);
    const early = this.window ? null : this.early;
    this.early = null; // once, also where it failed
    const { curves, step } = await (early ?? ask('steps', parameters));
    this.loaded = step;
    if (this.closed) return;
    if (anew) this.curves = {};
    for (const [name, curve] of Object.entries(curves)) this.#append(name, curve);
    this.#draw();
  }

  #append(name, curve) {
    const known = this.curves[name] ??= { steps: [], values: [] };
    while (known.steps.length && known.steps.at(-1) >= curve.steps[0]) {
      known.steps.pop();
      known.values.pop();
    }
    for (let i = 0; i < curve.steps.length; i += 1) {
      known.steps.push(curve.steps[i]);
      known.values.push(curve.values[i]);
    }
  }

  #data(chart) {
    const tables = chart.curves.map(({ field }) => {
      const curve = this.curves[field];
      return curve ? [curve.steps, curve.values] : [[], []];
    });
    return tables.length === 1 ? tables[0] : uPlot.join(tables);
  }

  #draw() {
    if (!this.plots) {
      this.plots = CHARTS.map((chart, index) => new uPlot(
        options(chart, this.areas[index].clientWidth, (first, last) => this.zoom([first, last])), this.#data(chart), this.areas[index]));
      this.areas.forEach((area) => this.resizer.observe(area));
    } else {
      CHARTS.forEach((chart, index) => this.plots[index].setData(this.#data(chart)));
    }
  }

  recolour() {
    this.plots?.forEach((plot) => plot.redraw(false, true));
  }

  #resize() {
    this.plots?.forEach((plot, index) => {
      const width = this.areas[index].clientWidth;
      if (width && width !== plot.width) plot.setSize({ width, height: CHARTS[index].height });
    });
  }
}
