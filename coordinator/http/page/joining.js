// How to add a worker: commands to copy.
import { ask } from './live.js';
import { element } from './format.js';

export function command(text) {
  const copy = navigator.clipboard ? element('button', { type: 'button', 'aria-label': `Copy: ${text}`, onclick: async (event) => {
    await navigator.clipboard.writeText(text);
    event.target.textContent = 'copied';
  } }, 'copy') : null;
  return element('div', { class: 'command' }, element('code', {}, text), copy);
}

// A card that fills itself. `told`: gets the command that submits a run.
export function joining(title, told) {
  const steps = element('div');
  const node = element('section', { class: 'card', id: 'joining', 'aria-label': title },
    element('div', { class: 'head' }, element('h2', {}, title)), steps);
  ask('joining').then(({ here, token, there, submit }) => {
    const parts = [element('p', {}, 'On this machine:'), command(here)];
    if (there) {
      parts.push(element('p', {}, token ? 'On another machine: make a token here, and copy the file there.' : 'On another machine:'));
      if (token) parts.push(command(token));
      parts.push(token ? element('p', {}, 'There:') : null, command(there));
    } else {
      parts.push(element('p', { class: 'muted' }, 'The coordinator listens on this machine alone. For workers elsewhere start it with --listen 0.0.0.0:7070.'));
    }
    parts.push(element('p', { class: 'muted' }, 'A worker appears under Workers by itself.'));
    steps.replaceChildren(...parts.filter(Boolean));
    told?.(submit);
  }, (error) => steps.replaceChildren(element('p', { class: 'error' }, error.message)));
  return node;
}
