// The page: which view is shown, and what each news changes.
import { comparedOf, firstRun, placeOf } from './early.js';
import { Live, ask, latest } from './live.js';
import { Charts } from './charts.js';
import { Timeline } from './timeline.js';
import { Workers } from './workers.js';
import { pipeline } from './pipeline.js';
import { Compare } from './compare.js';
import { MapCard, flows } from './linkmap.js';
import { command, joining } from './joining.js';
import { RunActions, askForKey, askToSubmit, sessionButton } from './actions.js';
import { comeBack, onSession } from './session.js';
import { bytes, clock, element, grouped, moment, pill, rate, replace, seconds, significant, tone } from './format.js';

const find = (id) => document.getElementById(id);
const main = find('main');
const LISTED = 200; // runs beside the content at a time

// ---- A run ------------------------------------------------------------------------
function numbers({ run, prediction }) {
  const entry = (name, value, small) => [element('dt', {}, name), element('dd', {}, value, small ? element('small', {}, small) : null)];
  const list = [
    entry('Step', `${grouped(run.step)} of ${grouped(run.steps)}`, run.seconds_left > 0 ? `${seconds(run.seconds_left)} left` : ''),
    entry('Loss', run.replay_source ? 'replay' : significant(run.loss || null), run.replay_source),
    entry('Validation', run.has_validation ? significant(run.validation_loss) : '–', run.has_validation ? `at step ${grouped(run.validation_step)}` : ''),
    entry('Tokens a second', run.tokens_per_second > 0 ? grouped(run.tokens_per_second) : '–'),
    entry('A step', run.step_seconds > 0 ? seconds(run.step_seconds) : '–', prediction.step_seconds > 0 ? `planned ${seconds(prediction.step_seconds)}` : ''),
    entry('Slowest part', prediction.bottleneck || '–', prediction.floor_seconds > 0 ? `at least ${seconds(prediction.floor_seconds)} a step` : ''),
    entry('Gradient norm', significant(run.gradient_norm || null)),
    entry('Checkpoint', run.checkpoint_step ? `step ${grouped(run.checkpoint_step)}` : '–', run.copied_step ? `held twice: step ${grouped(run.copied_step)}` : ''),
  ];
  if (run.replicas_wanted > 1) list.push(entry('Replicas', `${run.replicas} of ${run.replicas_wanted}`, run.replicas_reason));
  return element('dl', { class: 'numbers' }, list.map((pair) => element('div', {}, pair)));
}

function summary(detail) {
  const { run } = detail;
  const share = run.steps ? run.step / run.steps : 0;
  return element('div', { id: 'summary' },
    element('h1', {}, run.run_id, pill(run.state), run.epoch > 1 ? element('span', { class: 'muted' }, `epoch ${run.epoch}`) : null),
    run.reason ? element('p', { class: 'reason' }, run.reason) : null,
    element('div', { class: 'progress', role: 'progressbar', 'aria-valuenow': Math.round(100 * share), 'aria-valuemin': 0, 'aria-valuemax': 100, 'aria-label': 'Steps done' },
      element('div', { 'width%': (100 * share).toFixed(2) })),
    numbers(detail));
}

// The newest texts first. A run without the key samples.every has none, and no card.
function samples({ run }) {
  const rounds = [...(run.samples ?? [])].reverse();
  if (!rounds.length) return element('div', { id: 'samples' });
  const rows = rounds.flatMap((round) => (round.problem ? [element('li', {}, element('span', { class: 'muted' }, `step ${grouped(round.step)}`), element('span', {}, round.problem))]
    : round.samples.map((one) => element('li', {}, element('span', { class: 'muted' }, `step ${grouped(round.step)}`),
      element('p', { class: 'text' }, element('b', {}, one.prompt), one.text || ` tokens ${one.ids.join(' ')}`)))));
  return element('section', { class: 'card', id: 'samples', 'aria-label': 'Samples, newest first' },
    element('div', { class: 'head' }, element('h2', {}, 'Samples')), element('ol', { class: 'samples' }, rows));
}

function checkpointRow(one) {
  const twice = one.shards.filter((shard) => shard.holders.length > 1).length;
  const copied = one.shards.filter((shard) => shard.copied).length;
  return element('tr', {}, element('td', {}, grouped(one.step)), element('td', {}, pill(one.state)), element('td', {}, moment(one.committed_unix_ms)),
    element('td', {}, bytes(one.bytes)), element('td', {}, `${twice} of ${one.shards.length}`), element('td', {}, `${copied} of ${one.shards.length}`),
    element('td', {}, one.detail));
}

// Workers of a run in the order of its stages, and what goes between them.
function mapOf(run) {
  const links = run.links.map((link) => ({ from: link.from_worker, to: link.to_worker, rate: link.goodput_bits_per_second,
    tone: tone(link.state) === 'good' ? '' : tone(link.state), codec: link.codec, kind: link.kind }));
  const named = [...run.stages].sort((a, b) => a.replica - b.replica || a.stage - b.stage).map((stage) => stage.worker_name);
  const names = [...new Set([...named, ...links.flatMap((link) => [link.from, link.to])])];
  return [names, flows(links, (link) => `${link.from} to ${link.to}: ${link.kind}, ${link.codec}, ${rate(link.rate)}`)];
}

class RunView {
  constructor(run) {
    this.run = run;
    this.charts = new Charts(run, fail);
    this.timeline = new Timeline(run);
    this.actions = new RunActions(run, fail);
    this.map = new MapCard('Links', 'arrows as wide as what goes through them now');
    this.summary = element('div', {}, element('h1', {}, run));
    this.pipeline = element('section', { class: 'card' });
    this.samples = element('div', { id: 'samples' });
    this.checkpoints = element('tbody');
    this.events = element('ol', { class: 'events', id: 'events', tabindex: 0, 'aria-label': 'Events, newest first' });
    this.sequence = 0;
    const heads = ['Step', 'State', 'Written', 'Size', 'Files held twice', 'With the coordinator', ''];
    this.node = element('div', { class: 'run-view' }, element('div', { class: 'first' }, this.actions.node, this.summary), this.pipeline, this.map.node,
      element('div', { class: 'gap' }, this.charts.node), this.samples, this.timeline.node,
      element('section', { class: 'card', 'aria-label': 'Checkpoints' }, element('div', { class: 'head' }, element('h2', {}, 'Checkpoints')),
        element('div', { class: 'scroll' }, element('table', { id: 'checkpoints' },
          element('thead', {}, element('tr', {}, heads.map((name) => element('th', { scope: 'col' }, name)))), this.checkpoints))),
      element('section', { class: 'card', 'aria-label': 'Events' }, element('div', { class: 'head' }, element('h2', {}, 'Events')), this.events));
  }

  async show(detail) {
    const { run } = detail;
    this.summary = replace(this.summary, summary(detail));
    this.samples = replace(this.samples, samples(detail));
    this.pipeline = replace(this.pipeline, pipeline(detail));
    this.actions.show(run.state);
    this.map.show(...mapOf(run));
    const first = !this.shown;
    this.shown = true;
    const drawn = this.charts.update(run.step, run.epoch);
    this.#events().catch(fail);
    const saved = `${run.checkpoint_step} ${run.copied_step} ${run.state}`;
    if (saved !== this.saved) this.#checkpoints().catch(fail);
    this.saved = saved;
    if (run.state === 'running' && run.step > 0 && !this.traced) {
      this.traced = true;
      this.timeline.load();
    }
    await drawn;
    document.documentElement.dataset.step = String(run.step);
    if (first) document.documentElement.dataset.drawn = String(performance.now());
  }

  #events = latest(async () => {
    const { events } = await ask('events', { run: this.run, after: this.sequence });
    for (const event of events) {
      this.sequence = Math.max(this.sequence, event.sequence);
      this.events.prepend(element('li', {}, element('time', { title: moment(event.unix_ms) }, clock(event.unix_ms)),
        element('span', { class: 'muted' }, event.kind), element('span', {}, event.text)));
    }
    while (this.events.children.length > 500) this.events.lastChild.remove();
  });

  #checkpoints = latest(async () => {
    const { checkpoints } = await ask('checkpoints', { run: this.run });
    const rows = checkpoints.length ? checkpoints.map(checkpointRow)
      : [element('tr', {}, element('td', { colspan: 7, class: 'muted' }, 'None yet.'))];
    this.checkpoints = replace(this.checkpoints, element('tbody', {}, rows));
  });

  close() {
    this.map.close();
    this.charts.close();
    this.timeline.close();
  }

  recolour() {
    this.charts.recolour();
    this.timeline.draw();
  }
}

// ---- Reports ----------------------------------------------------------------------
class Reports {
  constructor() {
    this.list = element('ul', { id: 'reports' });
    this.node = element('div', {}, element('h1', {}, 'Reports of sweeps'), element('section', { class: 'card' }, this.list));
  }

  async load() {
    const { reports } = await ask('reports');
    this.list.replaceChildren(...(reports.length ? reports.map((one) => element('li', {},
      element('a', { href: `/report?${new URLSearchParams({ name: one.name, ticket: one.ticket })}`, target: '_blank', rel: 'noopener' }, one.name),
      element('span', { class: 'muted' }, ` ${moment(one.modified_unix_ms)}`)))
      : [element('li', { class: 'muted' }, 'None. Start the coordinator with --reports FOLDER, where results of sweeps lie.')]));
  }

  close() {}
}

// What a new installation shows: how to get a worker, and then a run.
class NoRuns {
  constructor() {
    this.workers = element('p', { class: 'muted', id: 'who-is-there' });
    const submit = element('div', {});
    this.joining = joining('Add a worker', (text) => submit.replaceChildren(command(text)));
    this.node = element('div', {}, element('h1', {}, 'No runs yet'), this.workers, this.joining,
      element('section', { class: 'card', 'aria-label': 'Submit a run' }, element('div', { class: 'head' }, element('h2', {}, 'Submit a run')),
        submit, element('p', { class: 'muted' }, 'It appears here by itself. A run waits until there are as many workers as it has stages.')));
  }

  show({ connected, known }) {
    this.workers.textContent = connected ? `${grouped(connected)} of ${grouped(known)} workers are connected.` : 'There is no worker yet. Start one with the first command.';
  }

  close() {}
}

// Shown for an address of a run that was removed, or never existed.
class NoSuchRun {
  constructor(run) {
    this.run = run;
    this.node = element('div', {}, element('h1', {}, `There is no run ${run}`), element('p', { class: 'muted' }, 'It was removed, or there was none of this id.'));
  }

  close() {}
}

// ---- Which view -------------------------------------------------------------------
let view = null;
let runs = [];
let news = null; // the newest overview
let place = '';

function fail(error) {
  const old = document.querySelector('.error');
  const made = element('p', { class: 'error', role: 'alert' }, error.message);
  if (old) old.replaceWith(made);
  else main.prepend(made);
}

function open(made) {
  view?.close();
  view = made;
  main.replaceChildren(made.node);
  made.load?.().catch?.(fail);
}

function go() {
  const { view: name, run: named } = placeOf(location.hash);
  if (name === 'main') return; // the link that skips what stands before the content
  const run = name === 'runs' ? firstRun(runs) : named;
  const wanted = name === 'compare' ? location.hash : name === 'workers' || name === 'reports' ? name : `run ${run ?? ''}`;
  document.querySelectorAll('[data-view]').forEach((link) => {
    if (link.dataset.view === (wanted.startsWith('run ') ? 'runs' : name)) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  });
  if (wanted === place) return;
  place = wanted;
  open(name === 'workers' ? new Workers() : name === 'reports' ? new Reports() : name === 'compare' ? new Compare(comparedOf(location.hash), () => runs, fail)
    : run ? new RunView(run) : new NoRuns());
  if (news && view instanceof NoRuns) view.show(news.workers);
  live.follow(view instanceof RunView ? run : null);
  list();
}

// The run in view is removed, or one that was not there has come.
function noteGone() {
  if (!(view instanceof RunView || view instanceof NoSuchRun)) return;
  const there = runs.some((run) => run.run_id === view.run || run.name === view.run);
  if (there === view instanceof RunView) return;
  // Where the address names no run, the next one is shown.
  if (there || placeOf(location.hash).view === 'runs') {
    place = '';
    return;
  }
  // The list may be older than a run that was submitted just now.
  const missed = view;
  ask('run', { run: missed.run }).catch((error) => {
    if (error.status === 404 && view === missed) open(new NoSuchRun(missed.run));
  });
}

function list() {
  const words = find('run-filter').value.toLowerCase();
  const found = runs.filter((run) => run.run_id.toLowerCase().includes(words));
  const items = found.slice(0, LISTED).map((run) => element('li', {},
    element('a', { href: `#run/${encodeURIComponent(run.run_id)}`, 'aria-current': view instanceof RunView && view.run === run.run_id ? 'true' : null },
      element('span', { class: 'line' }, element('span', { class: 'name', title: run.run_id }, run.run_id), pill(run.state)),
      element('span', { class: 'small' }, `step ${grouped(run.step)} of ${grouped(run.steps)}${run.loss && !run.replayed ? ` · loss ${significant(run.loss)}` : ''}`))));
  if (found.length > LISTED) items.push(element('li', { class: 'muted' }, `and ${grouped(found.length - LISTED)} more; find them by their names`));
  const old = find('run-list');
  const focused = document.activeElement?.closest?.('#run-list a')?.getAttribute('href');
  const made = replace(old, element('ol', { id: 'run-list', class: 'run-list' }, items));
  if (focused && made !== old) made.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
}

const live = new Live({
  overview(newest) {
    news = newest;
    runs = news.runs;
    find('version').textContent = news.version;
    find('worker-count').textContent = `${grouped(news.workers.connected)}/${grouped(news.workers.known)}`;
    find('no-workers').hidden = news.workers.connected > 0 || runs.length === 0;
    list();
    if (view instanceof NoRuns) view.show(news.workers);
    noteGone();
    if (place === 'run ' || place === '') go();
  },
  run(detail) {
    if (view instanceof RunView) view.show(detail).catch(fail);
  },
  state(state) {
    if (state === 'refused' && !document.querySelector('dialog')) askForKey();
    const text = { live: 'live', refused: 'sign in' }[state] ?? 'reconnecting';
    const pillNode = find('connection');
    if (pillNode.textContent === text) return;
    pillNode.textContent = text;
    pillNode.className = `pill ${tone(state === 'live' ? 'healthy' : 'suspect')}`;
    if (state === 'live') document.querySelector('.error')?.remove();
  },
});

// ---- Light and dark, keys -----------------------------------------------------------
const darkSystem = matchMedia('(prefers-color-scheme: dark)');
function paint() {
  const chosen = localStorage.getItem('theme');
  document.documentElement.dataset.theme = chosen ?? (darkSystem.matches ? 'dark' : 'light');
  view?.recolour?.();
}
function switchTheme() {
  const wanted = document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark';
  // Back at what the system has, the page follows the system again.
  if ((wanted === 'dark') === darkSystem.matches) localStorage.removeItem('theme');
  else localStorage.setItem('theme', wanted);
  paint();
}
darkSystem.addEventListener('change', paint);
find('theme').addEventListener('click', switchTheme);
find('run-filter').addEventListener('input', list);
addEventListener('hashchange', go);
addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest('input, textarea, select, dialog')) return;
  if (event.key === 't') switchTheme();
  if (event.key === 'c') location.hash = '#compare';
  if (event.key === 'r') location.hash = '#runs';
  if (event.key === 'w') location.hash = '#workers';
  if (event.key === '/') {
    event.preventDefault();
    (document.querySelector('main input') ?? find('run-filter')).focus();
  }
});
find('theme').before(sessionButton());
find('submit').addEventListener('click', () => askToSubmit(null).catch(fail));
onSession(() => live.follow(view instanceof RunView ? view.run : null));
paint();
if (/^#(run\/|compare|workers|reports)/.test(location.hash)) go();
else live.follow(null);
comeBack();
