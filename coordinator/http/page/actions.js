// What people with a key do: sign in, submit, stop, resume.
import { change, onSession, signIn, signOut, whoAmI } from './session.js';
import { ask } from './live.js';
import { bytes, element, grouped } from './format.js';

const ENDED = ['done', 'stopped', 'failed'];

// A dialog with a form. `send` does what the pressed button means, and may fail with a sentence.
function dialog(title, parts, buttons, send) {
  const problem = element('p', { class: 'error', role: 'alert' });
  const form = element('form', { method: 'dialog' }, element('h2', {}, title), ...parts, problem,
    element('div', { class: 'buttons' }, buttons.map(([value, text, kind]) => element('button', { value, class: kind }, text)),
      element('button', { value: 'cancel', formnovalidate: true, type: 'button', onclick: () => node.close() }, 'Cancel')));
  const node = element('dialog', { 'aria-label': title }, form);
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    form.inert = true;
    problem.textContent = '';
    try {
      await send(event.submitter?.value);
      node.close();
    } catch (error) {
      problem.textContent = error.message;
    }
    form.inert = false;
  });
  node.addEventListener('close', () => node.remove());
  document.body.append(node);
  node.showModal();
  return node;
}

export function askForKey() {
  const key = element('input', { type: 'password', autocomplete: 'off', required: true, id: 'dashboard-key' });
  dialog('Sign in', [element('p', { class: 'muted' }, 'With the key that ', element('code', {}, 'longhaul dashboard-key'), ' prints. This tab forgets it when it is closed.'),
    element('label', { for: 'dashboard-key' }, 'Key'), key], [['in', 'Sign in', 'main']], () => signIn(key.value));
}

// The button at the top: who is signed in.
export function sessionButton() {
  const button = element('button', { type: 'button', id: 'session', onclick: () => (whoAmI() ? signOut() : askForKey()) }, 'Sign in');
  onSession((me) => {
    button.textContent = me ? `Sign out${me.name ? ` ${me.name}` : ''}` : 'Sign in';
    document.documentElement.classList.toggle('signed-in', me !== null);
  });
  return button;
}

const open = (run) => { location.hash = `#run/${encodeURIComponent(run)}`; };

function askToStop(run) {
  dialog(`Stop ${run}`, [element('p', {}, 'After its current step the run leaves a checkpoint where it can, and may be resumed.')],
    [['step', 'Stop after this step', 'main'], ['now', 'Stop at once', 'bad']], (how) => change('stop', { run, now: how === 'now' }));
}

// `run`: whose run file and data are taken; null: an empty one.
export async function askToSubmit(run, { resume = false } = {}) {
  const { yaml, files } = run ? await ask('submission', { run }) : { yaml: '', files: [] };
  const text = element('textarea', { id: 'run-file', rows: 16, spellcheck: false, required: true, placeholder: 'name: my-run' });
  text.value = yaml.replace(/^ *# \w+:\n/gm, ''); // keys that do not apply to this run
  text.setSelectionRange(0, 0);
  const same = element('input', { type: 'checkbox', id: 'resume' });
  same.checked = resume;
  const size = files.reduce((sum, file) => sum + Number(file.bytes), 0);
  const about = run ? `The data are those of ${run}${files.length ? `: ${grouped(files.length)} files, ${bytes(size)}` : ''}. For other data or another model use longhaul submit.`
    : 'For a run file whose data this coordinator does not have, use longhaul submit: it uploads them.';
  dialog(run ? `Submit ${run} again` : 'Submit a run', [element('label', { for: 'run-file' }, 'Run file'), text,
    run ? element('label', { class: 'check' }, same, ' go on with this very run, from its newest checkpoint') : null,
    element('p', { class: 'muted' }, about)].filter(Boolean), [['submit', 'Submit', 'main']],
  async () => open((await change('submit', { ...(run ? { run } : {}), yaml: text.value, resume: same.checked })).run_id));
}

// Buttons of a run's view. They are there for those who are signed in.
export class RunActions {
  constructor(run, onError) {
    const button = (text, act) => element('button', { type: 'button', onclick: () => Promise.resolve(act()).catch(onError) }, text);
    this.stop = button('Stop', () => askToStop(run));
    this.resume = button('Resume', () => askToSubmit(run, { resume: true }));
    this.again = button('Submit again', () => askToSubmit(run));
    this.compare = element('a', { href: `#compare/${encodeURIComponent(run)}`, class: 'button' }, 'Compare');
    this.node = element('div', { class: 'actions' }, element('span', { class: 'with-key' }, this.stop, this.resume, this.again), this.compare);
  }

  show(state) {
    const ended = ENDED.includes(state);
    this.stop.hidden = ended || state === 'finishing';
    this.resume.hidden = !ended;
  }
}
