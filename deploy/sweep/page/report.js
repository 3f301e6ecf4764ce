// The charts of a report, drawn by uPlot from the data that the page has in itself (ChartData in report_parts.h).
'use strict';

(() => {
  const { curves, rates, settings, medians, points } = JSON.parse(document.getElementById('data').textContent);

  const HEIGHT = 320, ROW_HEIGHT = 34, BAR = 14, THIN_BAR = 5;
  const FONT = '12px system-ui, "Liberation Sans", sans-serif';
  // A schedule is a shape: of the line, of the marker, and of both in the legend.
  const DASHES = [null, [7, 4], [2, 4], [9, 3, 2, 3]];
  const LEGEND_DASHES = ['solid', 'dashed', 'dotted', 'double'];
  const GLYPHS = ['○', '□', '△', '◇'];
  const MARKERS = [null, [[-4, -4], [4, -4], [4, 4], [-4, 4]], [[0, -5.5], [5, 4], [-5, 4]], [[0, -6], [5, 0], [0, 6], [-5, 0]]];
  // In their order from the left. The codec's own thread works beside all others.
  const PARTS = [
    { share: 'compute', label: 'compute', colour: 'c2' },
    { share: 'optimizer', label: 'optimizer', colour: 'c4' },
    { share: 'wait_input', label: 'waiting for input', colour: 'c0' },
    { share: 'wait_gradient', label: 'waiting for gradients', colour: 'c1' },
    { share: 'codec_wait', label: 'waiting for the codec', colour: 'c3' },
    { share: 'rest', label: 'rest', colour: 'c7' },
    { share: 'codec_thread', label: 'thin: the codec’s own thread', colour: 'c3', thin: true },
  ];

  const plots = [];
  const unknown = (value) => value === null || value === undefined;
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const whole = (value) => Math.round(value).toLocaleString('en');
  const short = (value) => (Math.abs(value) >= 1000 ? whole(value) : String(Number(value.toPrecision(3))));
  const perCent = (share) => `${(100 * share).toFixed(1)} %`;
  const titled = (what, setting) => [what, setting].filter(Boolean).join(', ');
  const shown = (format) => (plot, value) => (unknown(value) ? '–' : format(value));

  const ruler = document.createElement('canvas').getContext('2d');
  function textWidth(text) {
    ruler.font = FONT;
    return ruler.measureText(text).width;
  }

  // uPlot counts the ticks of a logarithmic axis from its lower end, which therefore has one digit.
  function logarithmicRange(plot, least, most) {
    if (unknown(least)) return [1, 10];
    const power = 10 ** Math.floor(Math.log10(least / 1.1));
    return [Number((Math.floor(least / 1.1 / power) * power).toPrecision(1)), most * 1.1];
  }

  // uPlot 1.6.31 would label nothing but powers of ten along x.
  function logarithmicTicks(plot, splits) {
    const { min, max } = plot.scales.x;
    const decade = plot.width / Math.log10(max / min);
    const digits = decade > 700 ? '123456789' : decade > 150 ? '125' : '1';
    return splits.map((split) => (digits.includes(/[1-9]/.exec(split)[0]) ? split : null));
  }

  function axis(options) {
    return { stroke: () => colour('dim'), font: FONT, lineGap: 1.15, labelFont: FONT, labelSize: 26,
      grid: { stroke: () => colour('grid'), width: 1 }, ticks: { stroke: () => colour('grid'), width: 1, size: 4 }, size: 30,
      values: (plot, splits) => splits.map((split) => (unknown(split) ? '' : short(split))), ...options };
  }

  // As wide as its longest value.
  function widthOfValues(plot, values, index) {
    const lines = (values ?? []).flatMap((value) => value.split('\n'));
    return Math.ceil(Math.max(20, ...lines.map(textWidth))) + plot.axes[index].gap + 8;
  }

  // A name as an axis shows it: in two lines where one is too long, and no wider than that.
  function fitted(name, width) {
    const lines = (textWidth(name) > width ? name.replace(', ', ',\n') : name).split('\n');
    return lines.map((line) => {
      let text = line;
      while (textWidth(text) > width) text = `${text.slice(0, -2)}…`;
      return text;
    }).join('\n');
  }

  function marker(shape) {
    return (plot, series, first, last) => {
      const path = new Path2D();
      const pixel = devicePixelRatio;
      uPlot.orient(plot, series, (one, xs, ys, scaleX, scaleY, toX, toY, left, top, width, height) => {
        for (let i = first; i <= last; i += 1) {
          if (unknown(ys[i])) continue;
          const x = toX(xs[i], scaleX, width, left), y = toY(ys[i], scaleY, height, top);
          if (!MARKERS[shape]) {
            path.moveTo(x + 4.5 * pixel, y);
            path.arc(x, y, 4.5 * pixel, 0, 2 * Math.PI);
            continue;
          }
          MARKERS[shape].forEach(([right, down], corner) => path[corner ? 'lineTo' : 'moveTo'](x + right * pixel, y + down * pixel));
          path.closePath();
        }
      });
      return { stroke: path, fill: path, flags: 0 };
    };
  }

  function curveSeries(curve, { line = true, markers = true, value }) {
    const shape = curve.shape % GLYPHS.length, name = `c${curve.colour % 8}`;
    return { label: `${GLYPHS[shape]} ${curve.name}`, name, shape, stroke: () => colour(name), width: 2, dash: DASHES[shape],
      spanGaps: true, value: shown(value), ...(line ? {} : { paths: () => null }),
      points: { show: markers, paths: marker(shape), width: 2, stroke: () => colour(name), fill: () => colour('paper') } };
  }

  // A figure with a chart of what is in `options` beside what all have.
  function figure(area, { title, description, height = HEIGHT, filled = false, zoom = false, data, ...options }) {
    const node = document.createElement('figure');
    node.className = filled ? 'chart filled' : 'chart';
    const caption = document.createElement('figcaption');
    caption.textContent = title;
    const canvas = document.createElement('div');
    canvas.setAttribute('role', 'group');
    canvas.setAttribute('aria-label', description);
    node.append(caption, canvas);
    area.append(node);
    const of = (index) => options.series[index];
    const plot = new uPlot({
      width: canvas.clientWidth, height, padding: [12, 24, 0, 0],
      cursor: { drag: { x: zoom, y: false }, points: {
        size: (self, index) => (filled || of(index).name === 'dim' ? 0 : 8), fill: (self, index) => colour(of(index).name) } },
      legend: { markers: {
        width: filled ? 0 : 2,
        stroke: (self, index) => `var(--${of(index).name})`,
        fill: (self, index) => (filled ? `var(--${of(index).name})` : 'none'),
        dash: (self, index) => LEGEND_DASHES[of(index).shape ?? 0],
      } },
      ...options,
    }, data, canvas);
    plots.push(plot);
    new ResizeObserver(() => {
      const width = canvas.clientWidth;
      if (width && width !== plot.width) plot.setSize({ width, height });
    }).observe(canvas);
  }

  function drawThroughput(area) {
    const labels = (plot, splits) => {
      let taken = -Infinity;
      return splits.map((split) => {
        const text = rates.find((rate) => rate.place === split).label;
        const middle = plot.valToPos(split, 'x'), half = textWidth(text) / 2 + 4;
        if (middle - half < taken) return '';
        taken = middle + half;
        return text;
      });
    };
    const ascending = [...rates.keys()].sort((a, b) => rates[a].place - rates[b].place);
    const places = ascending.map((rate) => rates[rate].place);
    settings.forEach((setting, index) => {
      const rows = medians.filter((row) => row.setting === index && row.tokens_per_second > 0);
      if (!rows.length) return;
      const value = (curve, rate) => rows.find((row) => row.curve === curve && row.rate === rate)?.tokens_per_second ?? null;
      figure(area, {
        title: titled('Tokens a second against link rate', setting),
        description: 'Measured tokens a second against the rate of the links, a line for each codec pair and schedule; '
          + 'the table below has the numbers',
        data: [places, ...curves.map((_, curve) => ascending.map((rate) => value(curve, rate)))],
        scales: { x: { time: false, distr: 3, range: (plot, least, most) => [least / 1.3, most * 1.3] },
          y: { distr: 3, range: logarithmicRange } },
        axes: [axis({ label: 'rate of every link, each way (log scale)', splits: () => places, filter: (plot, splits) => splits, values: labels }),
          axis({ label: 'tokens/s (log scale)', size: widthOfValues })],
        series: [{ label: 'rate', value: shown((value) => rates.find((rate) => rate.place === value).label) },
          ...curves.map((curve) => curveSeries(curve, { value: short }))],
      });
    });
  }

  function drawTime(area, rows, title) {
    const middles = rows.map((row, index) => index);
    const bases = PARTS.map(() => []), tops = PARTS.map(() => []);
    // Two places a row: the bar, and below it the thin one.
    rows.forEach(({ shares }, row) => {
      let end = 0;
      const rest = 1 - PARTS.reduce((sum, part) => sum + (part.thin ? 0 : shares[part.share] ?? 0), 0);
      PARTS.forEach((part, index) => {
        const begin = part.thin ? 0 : end;
        const top = Math.min(1, begin + (shares[part.share] ?? Math.max(0, rest)));
        const place = 2 * row + (part.thin ? 1 : 0);
        bases[index][place] = begin;
        tops[index][place] = top;
        tops[index][2 * row + (part.thin ? 0 : 1)] = null;
        if (!part.thin) end = top;
      });
    });
    const below = (BAR / 2 + THIN_BAR / 2 + 2) / ROW_HEIGHT;
    const share = (index, at) => {
      const place = 2 * Math.floor(at / 2) + (PARTS[index].thin ? 1 : 0);
      return perCent(tops[index][place] - bases[index][place]);
    };
    figure(area, {
      title, height: ROW_HEIGHT * rows.length + 40, filled: true,
      description: 'What the stages did, as shares of the step time; the table of stages has the numbers',
      data: [middles.flatMap((middle) => [middle, middle + below]), ...tops],
      scales: { x: { time: false, ori: 1, dir: -1, range: () => [-0.5, rows.length - 0.4] }, y: { ori: 0, range: () => [0, 1] } },
      axes: [axis({ side: 3, splits: () => middles, size: widthOfValues, grid: { show: false },
        values: (plot) => rows.map((row) => fitted(row.short_name, 0.4 * plot.width)) }),
        axis({ side: 2, splits: () => [0, 0.25, 0.5, 0.75, 1], values: (plot, splits) => splits.map((split) => `${100 * split} %`) })],
      series: [{ label: 'point', value: (plot, value, index, at) => (unknown(at) ? '–' : rows[Math.floor(at / 2)].name) },
        ...PARTS.map((part, index) => ({
          label: part.label, name: part.colour, fill: () => colour(part.colour), width: 0, points: { show: false },
          value: (plot, value, series, at) => (unknown(at) ? '–' : share(index, at)),
          paths: uPlot.paths.bars({ size: part.thin ? [1, THIN_BAR, THIN_BAR] : [1, BAR, BAR], disp: {
            y0: { unit: 1, values: () => bases[index] }, y1: { unit: 1, values: () => tops[index] } } }),
        }))],
    });
  }

  function drawTimes(area) {
    settings.forEach((setting, s) => rates.forEach((rate, r) => {
      const rows = points.filter((point) => point.setting === s && point.rate === r);
      if (rows.length) drawTime(area, rows, titled(rate.label, setting));
    }));
  }

  function drawPrediction(area) {
    const rows = points.filter((point) => point.simulated_seconds > 0 && point.step_seconds > 0);
    if (!rows.length) return;
    const values = rows.flatMap((row) => [row.simulated_seconds, row.step_seconds]);
    const range = logarithmicRange(null, Math.min(...values), Math.max(...values));
    // Two rows more, so that the diagonal goes from corner to corner.
    const ends = range.map((end) => ({ simulated_seconds: end }));
    const sorted = [...rows, ...ends].sort((a, b) => a.simulated_seconds - b.simulated_seconds);
    const x = sorted.map((row) => row.simulated_seconds);
    const lines = [{ label: '10 % above', times: 1.1, dash: [3, 3] }, { label: '10 % below', times: 0.9, dash: [3, 3] },
      { label: 'measured as predicted', times: 1 }];
    const time = (seconds) => `${short(seconds)} s`;
    const scale = { time: false, distr: 3, range: () => range };
    figure(area, {
      title: 'Measured against predicted step time',
      description: 'Every point’s measured step time against the simulator’s; on the diagonal both are equal, the band is 10 % on either side',
      data: [x, ...lines.map(({ times }) => x.map((value) => value * times)),
        ...curves.map((_, index) => sorted.map((row) => (row.curve === index ? row.step_seconds : null)))],
      scales: { x: scale, y: scale },
      axes: [axis({ label: 'predicted step, seconds (log scale)', filter: logarithmicTicks }),
        axis({ label: 'measured step, seconds (log scale)', size: widthOfValues })],
      series: [{ label: 'point', value: (plot, value, index, at) => (!sorted[at]?.name ? '–'
        : `${sorted[at].name}: predicted ${time(sorted[at].simulated_seconds)}, measured ${time(sorted[at].step_seconds)}`) },
      ...lines.map(({ label, dash }) => ({ label, name: 'dim', shape: dash ? 1 : 0, stroke: () => colour('dim'), width: 1, dash,
        points: { show: false }, value: () => '' })),
      ...curves.map((curve) => curveSeries(curve, { line: false, value: time }))],
      bands: [{ series: [1, 2], fill: () => colour('grid') }],
    });
  }

  // Hours of a long training, seconds of a short one.
  function timeUnit(longest) {
    if (longest >= 2 * 3600) return { name: 'hours', seconds: 3600 };
    return longest >= 2 * 60 ? { name: 'minutes', seconds: 60 } : { name: 'seconds', seconds: 1 };
  }

  // `unit` null: against steps.
  function drawLoss(area, rows, title, unit) {
    const runs = curves.map((curve, index) => rows.find((row) => row.curve === index));
    const tables = runs.map((run) => (run
      ? [unit ? run.losses.seconds.map((value) => value / unit.seconds) : run.losses.steps, run.losses.values] : [[], []]));
    const validation = points.some((point) => point.losses?.validation);
    figure(area, {
      title, description: unit ? 'Loss against time of training' : 'Loss against steps', zoom: true,
      data: tables.length > 1 ? uPlot.join(tables) : tables[0],
      scales: { x: { time: false } },
      axes: [axis({ label: unit ? `${unit.name} of training` : 'steps' }),
        axis({ label: `${validation ? 'validation' : 'training'} loss (nats a token)`, size: widthOfValues })],
      series: [{ label: unit ? unit.name : 'step', value: shown(short) },
        ...curves.map((curve, index) => curveSeries(curve, {
          markers: Boolean(runs[index]?.losses.validation), value: (value) => value.toFixed(4) }))],
    });
  }

  // What a link carries does not change what is computed: against steps, any rate's run will do.
  function drawLosses(area) {
    const trained = points.filter((point) => point.losses);
    settings.forEach((setting, s) => {
      const all = trained.filter((point) => point.setting === s);
      if (all.length) drawLoss(area, all, titled('Against steps', setting), null);
      rates.forEach((rate, r) => {
        const rows = all.filter((point) => point.rate === r);
        const longest = Math.max(0, ...rows.map((row) => row.losses.seconds.at(-1)));
        if (rows.length) drawLoss(area, rows, titled(`Against time, ${rate.label}`, setting), timeUnit(longest));
      });
    });
  }

  const redraw = () => plots.forEach((plot) => plot.redraw(true, true));
  const DRAW = { throughput: drawThroughput, time: drawTimes, prediction: drawPrediction, loss: drawLosses };
  document.querySelectorAll('.charts').forEach((area) => DRAW[area.dataset.charts](area));
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
  // Paper is light.
  for (const [event, printed] of [['beforeprint', true], ['afterprint', false]]) {
    addEventListener(event, () => {
      document.documentElement.classList.toggle('printed', printed);
      redraw();
    });
  }
})();
