// A step as a timeline: a row for each stage, and beneath it what its codec and its links did.
import { ask } from './live.js';
import { colour, element, seconds } from './format.js';
import { legend } from './pipeline.js';

const KINDS = {
  forward: ['forward', 'forward', 0], backward: ['backward', 'backward', 0], optimizer: ['optimizer', 'optimizer', 0],
  wait_input: ['waits for input', 'wait-input', 0], wait_gradient: ['waits for gradients', 'wait-gradient', 0],
  encode: ['encodes', 'codec', 1], decode: ['decodes', 'codec', 1], receive: ['receives', 'receive', 2],
};
// Top and height of each lane within the row of a stage, in pixels.
const LANES = [[2, 16], [19, 5], [25, 5]];
const ROW = 34, LEFT = 132, BOTTOM = 22;

export class Timeline {
  constructor(run) {
    this.run = run;
    this.canvas = element('canvas', { role: 'img', 'aria-label': 'Timeline of a step', tabindex: 0 });
    this.hint = element('div', { class: 'hint', 'aria-live': 'polite' });
    this.button = element('button', { type: 'button', onclick: () => this.load() }, 'Newest step');
    this.title = element('span', { class: 'muted' });
    this.node = element('section', { class: 'card', id: 'timeline', 'aria-label': 'A step' },
      element('div', { class: 'head' }, element('h2', {}, 'A step'), this.title, element('span', { class: 'spring' }), this.button),
      this.canvas, this.hint,
      legend(Object.entries(KINDS).filter(([kind]) => kind !== 'decode').map(([kind, [label]]) => [kind, kind === 'encode' ? 'codec' : label])));
    this.canvas.addEventListener('mousemove', (event) => this.#point(event));
    this.canvas.addEventListener('keydown', (event) => this.#key(event));
    this.resizer = new ResizeObserver(() => this.draw());
    this.resizer.observe(this.node);
  }

  close() {
    this.resizer.disconnect();
  }

  async load() {
    this.button.disabled = true;
    try {
      const reply = await ask('timeline', { run: this.run });
      if (reply.step === null) throw new Error('no step yet that all stages have finished');
      this.trace = reply;
      this.chosen = null;
      this.title.textContent = `step ${reply.step}, ${seconds(reply.length_us / 1e6)}`;
      this.hint.textContent = 'Point at a span, or use the arrow keys.';
      this.draw();
    } catch (error) {
      this.hint.textContent = error.message;
    } finally {
      this.button.disabled = false;
    }
  }

  draw() {
    if (!this.trace) return;
    const { stages, length_us: length } = this.trace;
    const width = Math.max(300, this.node.clientWidth - 30), height = stages.length * ROW + BOTTOM;
    const ratio = window.devicePixelRatio || 1;
    this.canvas.width = width * ratio;
    this.canvas.height = height * ratio;
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    const pen = this.canvas.getContext('2d');
    pen.scale(ratio, ratio);
    pen.font = '12px system-ui, "DejaVu Sans", sans-serif';
    this.scale = (width - LEFT - 8) / Math.max(1, length);
    this.boxes = [];
    this.#axis(pen, width, height, length);
    stages.forEach((stage, row) => {
      const top = row * ROW;
      pen.fillStyle = colour('ink');
      pen.fillText(`${stage.stage} ${stage.worker}`, 0, top + 15, LEFT - 10);
      for (const [kind, begin, duration, microbatch, slice] of stage.spans) {
        const [label, name, lane] = KINDS[kind] ?? [];
        if (!label) continue;
        const box = { x: LEFT + begin * this.scale, width: Math.max(0.6, duration * this.scale - 0.4), y: top + LANES[lane][0], height: LANES[lane][1],
          text: `${stage.worker} ${label}${kind === 'optimizer' || kind.startsWith('wait') ? '' : ` microbatch ${microbatch}${slice ? `, slice ${slice}` : ''}`}: ${seconds(duration / 1e6)} from ${seconds(begin / 1e6)}` };
        if (box.x + box.width < LEFT) continue;
        pen.fillStyle = colour(name);
        pen.fillRect(Math.max(LEFT, box.x), box.y, Math.min(box.width, box.x + box.width - LEFT), box.height);
        this.boxes.push(box);
      }
    });
    if (this.chosen !== null && this.boxes[this.chosen]) {
      const box = this.boxes[this.chosen];
      pen.strokeStyle = colour('ink');
      pen.lineWidth = 1.5;
      pen.strokeRect(box.x - 1, box.y - 1, box.width + 2, box.height + 2);
    }
    this.canvas.setAttribute('aria-label', `Timeline of step ${this.trace.step}: ${stages.length} stages, ${seconds(length / 1e6)}`);
  }

  #axis(pen, width, height, length) {
    pen.fillStyle = colour('muted');
    pen.strokeStyle = colour('grid');
    for (let part = 0; part <= 5; part += 1) {
      const x = LEFT + (length * part / 5) * this.scale;
      pen.beginPath();
      pen.moveTo(x, 0);
      pen.lineTo(x, height - BOTTOM + 4);
      pen.stroke();
      pen.textAlign = part === 5 ? 'right' : 'left';
      pen.fillText(seconds(length * part / 5 / 1e6), x, height - 5);
    }
    pen.textAlign = 'left';
  }

  #point(event) {
    const found = this.boxes?.findIndex((box) => event.offsetX >= box.x && event.offsetX <= box.x + box.width
      && event.offsetY >= box.y && event.offsetY <= box.y + box.height);
    if (found >= 0 && found !== this.chosen) this.#choose(found);
  }

  #key(event) {
    const move = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!move || !this.boxes?.length) return;
    event.preventDefault();
    const count = this.boxes.length;
    this.#choose(this.chosen === null ? 0 : (this.chosen + move + count) % count);
  }

  #choose(index) {
    this.chosen = index;
    this.hint.textContent = this.boxes[index].text;
    this.draw();
  }
}
