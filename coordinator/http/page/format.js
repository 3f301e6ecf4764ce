// Numbers as people read them, and elements. Texts of others only ever become text nodes.

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) made.addEventListener(name.slice(2), value);
    else if (name === 'width%') made.style.width = `${value}%`;
    else made.setAttribute(name, value === true ? '' : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

// Leaves a node that is equal already: no flicker, and the focus stays.
export function replace(old, made) {
  if (!old.isEqualNode(made)) old.replaceWith(made);
  else return old;
  return made;
}

export function grouped(number, digits = 0) {
  return number.toLocaleString('en', { maximumFractionDigits: digits });
}

export function significant(number) {
  if (number === null || number === undefined) return '–';
  if (number === 0) return '0';
  const size = Math.abs(number);
  if (size >= 1e5 || size < 1e-3) return number.toExponential(2);
  return number.toLocaleString('en', { maximumSignificantDigits: 4, useGrouping: size >= 1e4 });
}

export function seconds(value) {
  if (value === null || value === undefined) return '–';
  if (value === 0) return '0';
  if (value < 1) return `${(value * 1000).toPrecision(3)} ms`;
  if (value < 120) return `${value.toPrecision(3)} s`;
  const minutes = Math.round(value / 60);
  if (minutes < 120) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

function scaled(value, base, units) {
  let unit = 0;
  while (value >= base && unit < units.length - 1) {
    value /= base;
    unit += 1;
  }
  return `${value >= 100 || unit === 0 ? value.toFixed(0) : value.toPrecision(3)} ${units[unit]}`;
}

export const rate = (bits) => scaled(bits, 1000, ['bit/s', 'kbit/s', 'Mbit/s', 'Gbit/s']);
export const bytes = (count) => scaled(count, 1024, ['B', 'KiB', 'MiB', 'GiB', 'TiB']);
export const percent = (share) => `${Math.round(100 * share)} %`;

export function clock(unixMs) {
  return new Date(unixMs).toLocaleTimeString('en-GB');
}
export function moment(unixMs) {
  return new Date(unixMs).toLocaleString('en-GB', { dateStyle: 'medium', timeStyle: 'medium' });
}

const TONES = {
  running: 'good', done: 'good', finished: 'good', whole: 'good', committed: 'good', healthy: 'good', ready: 'good',
  failed: 'bad', damaged: 'bad', lost: 'bad', unreachable: 'warn', recovering: 'warn', detached: 'warn', suspect: 'warn',
  waiting: 'warn', queued: '', planning: '', preparing: '', measuring: '', finishing: 'good', stopped: '',
};
export const tone = (state) => TONES[state] ?? '';
export const pill = (state, text = state) => element('span', { class: `pill ${tone(state)}` }, text);

export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
