// The pipeline of a run: cells, and between them what flows.
import { element, percent, pill, rate, tone } from './format.js';

const PARTS = [
  ['compute', 'compute_share', 'compute'], ['optimizer', 'optimizer_share', 'optimizer'], ['wait_input', 'wait_input_share', 'waits for input'],
  ['wait_gradient', 'wait_gradient_share', 'waits for gradients'], ['codec_wait', 'codec_wait_share', 'waits for its codec'],
];

function shares(stage) {
  const text = PARTS.filter(([, field]) => stage[field] > 0.005).map(([, field, label]) => `${label} ${percent(stage[field])}`).join(', ');
  return element('div', { class: 'shares', role: 'img', 'aria-label': text || 'no step yet', title: text },
    PARTS.map(([kind, field]) => element('i', { class: kind, 'width%': Math.round(1000 * stage[field]) / 10 })));
}

// What a stage does most beside computing.
function mostly(stage) {
  const [, field, label] = PARTS.slice(2).reduce((a, b) => (stage[b[1]] > stage[a[1]] ? b : a));
  return stage[field] > 0.05 ? `${label} ${percent(stage[field])}` : `compute ${percent(stage.compute_share)}`;
}

function cell(stage) {
  const state = stage.connected ? stage.state : `${stage.state}, disconnected`;
  const last = stage.layers > 1 ? `–${stage.first_layer + stage.layers - 1}` : '';
  const ranks = stage.tensor_ranks * Math.max(1, stage.expert_ranks);
  return element('div', { class: `cell ${stage.connected ? tone(stage.state) : 'bad'}` },
    element('b', { title: stage.worker_name }, stage.worker_name),
    element('div', { class: 'small' }, `stage ${stage.stage}`, stage.layers ? ` · layers ${stage.first_layer}${last}` : ''),
    element('div', { class: 'small' }, state, stage.depth ? ` · depth ${stage.depth}` : '', ranks > 1 ? ` · ${ranks} ranks` : ''),
    stage.step > 0 ? [shares(stage), element('div', { class: 'small' }, mostly(stage))] : []);
}

function flow(link, way) {
  if (!link) return null;
  const known = link.rate_bits_per_second > 0;
  const goodput = rate(link.goodput_bits_per_second) + (known ? ` of ${rate(link.rate_bits_per_second)}` : '');
  const state = link.state === 'healthy' ? '' : link.state;
  const why = link.waits_for ? `limited by ${link.waits_for}` : '';
  const label = `${link.from_worker} to ${link.to_worker}: ${link.codec}, ${goodput}, ${state || why || 'idle'}`;
  return element('div', { class: `flow ${way} ${tone(link.state) === 'good' ? '' : tone(link.state)}`, 'aria-label': label, role: 'img', title: label },
    element('span', { class: 'codec' }, link.codec.split(',')[0]), goodput,
    element('span', { class: 'why' }, state ? pill(link.state, `link ${state}`) : why || ' '));
}

const key = (pair) => pair.join(':');

// One row of cells for each replica. The edges of activations stand between their cells; others follow in a table.
export function pipeline({ run, edges }) {
  const links = new Map(run.links.map((link) => [`${link.edge} ${link.direction}`, link]));
  const replicas = [...new Set(run.stages.map((stage) => stage.replica))];
  const between = new Map(edges.map((edge) => [`${key(edge.from)} ${key(edge.to)}`, edge]));
  const rows = replicas.map((replica) => {
    const stages = run.stages.filter((stage) => stage.replica === replica).sort((a, b) => a.stage - b.stage);
    // A cell and the link to the next one stay together where the row wraps.
    const items = stages.map((stage, index) => {
      const next = stages[index + 1];
      const edge = next && between.get(`${key([replica, stage.stage])} ${key([replica, next.stage])}`);
      return element('li', {}, cell(stage), edge ? element('div', { class: 'edge' }, flow(links.get(`${edge.edge} forward`), 'there'),
        flow(links.get(`${edge.edge} backward`), 'back')) : null);
    });
    return [replicas.length > 1 ? element('div', { class: 'replica' }, `Replica ${replica}`) : null,
      element('ol', { class: 'pipeline', 'aria-label': replicas.length > 1 ? `Stages of replica ${replica}` : 'Stages' }, items)];
  });
  const others = run.links.filter((link) => link.kind !== 'activations');
  return element('section', { class: 'card', id: 'pipeline', 'aria-label': 'Pipeline' },
    element('div', { class: 'head' }, element('h2', {}, 'Pipeline'),
      element('span', { class: 'muted' }, run.stages.length ? `${run.stages.length} cells` : 'no plan yet')),
    rows.flat(), others.length ? otherLinks(others) : null, legend(PARTS.map(([kind, , label]) => [kind, label])));
}

function otherLinks(links) {
  return element('div', { class: 'scroll' }, element('table', {},
    element('thead', {}, element('tr', {}, ['Kind', 'From', 'To', 'Codec', 'Goodput', 'State', 'Limited by'].map((name) => element('th', {}, name)))),
    element('tbody', {}, links.map((link) => element('tr', {},
      [link.kind, link.from_worker, link.to_worker, link.codec, rate(link.goodput_bits_per_second)].map((text) => element('td', {}, text)),
      element('td', {}, pill(link.state)), element('td', {}, link.waits_for))))));
}

export function legend(entries) {
  return element('ul', { class: 'legend', 'aria-label': 'Colours' },
    entries.map(([kind, label]) => element('li', {}, element('i', { class: kind }), label)));
}
