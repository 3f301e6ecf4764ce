"""report.html of a sweep: one page that needs no network, with tables and charts for a screen of any size, light or dark, and for
paper. uPlot and a script of ours (page/report.js), both within the page, draw the charts. Pure."""
import base64
import hashlib
import html
import json
import pathlib
import statistics
import time

from .measure import SHARES
from .texts import percent, printable, rate, size, time_span, whole

HERE = pathlib.Path(__file__).resolve().parent.parent
REPLAYED = ' <span class="badge">replayed</span>'
KINDS = {"#": ' class="n"', "~": ' class="w"'}  # of a table's columns
BEYOND = 3  # how far right of all rates a link that is not shaped stands


def escape(text):
    return html.escape(printable(text))


def table(caption, columns, rows):
    """"" without rows. Columns are "title", "#title" for numbers and "~title" for sentences. Titles and cells are HTML; the first
    cell heads its row."""
    if not rows:
        return ""
    kinds = [KINDS.get(column[0], "") for column in columns]
    head = "".join(f'<th scope="col"{KINDS["#"] if column[0] == "#" else ""}>{column.lstrip("#~")}</th>' for column in columns)
    body = "".join("<tr>" + "".join(
        f"<td{kind}>{cell or '–'}</td>" if i else f'<th scope="row"{kind}>{cell or "–"}</th>'
        for i, (cell, kind) in enumerate(zip(row, kinds))) + "</tr>\n" for row in rows)
    return (f'<p class="caption">{escape(caption)}</p><div class="scroll" tabindex="0" role="region" '
            f'aria-label="{escape(caption)}"><table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>\n')


def section(heading, content):
    return f"<section><h2>{escape(heading)}</h2>\n{content}</section>\n" if content else ""


def details(summary, content):
    return f"<details><summary>{escape(summary)}</summary>\n{content}</details>\n" if content else ""


def charts(which, content):
    """Where page/report.js draws; `content` stands below."""
    return f'<div class="charts" data-charts="{which}"></div>\n{content}'


def error(point):
    """Error of the prediction, relative to what was measured."""
    return point["simulated_seconds"] / point["step_seconds"] - 1


class Model:
    """The sweep's dimensions, in the order of its points. A curve is a codec pair with a schedule: the pair has the colour, the
    schedule dash and marker. A setting is what is fixed in one plot, being neither its axis nor its curves."""

    def __init__(self, results):
        self.results, points = results, results["points"]
        self.done = [point for point in points if point["state"] == "done"]
        self.settings = list(dict.fromkeys((point["delay_seconds"], point["variant"]) for point in points))
        self.rates = sorted({point["rate_bits_per_second"] for point in points}, reverse=True)
        self.links = list(dict.fromkeys(point["links"] for point in points))
        self.schedules = list(dict.fromkeys(point["schedule"] for point in points))
        self.repeats = any(point["repeat"] > 1 for point in points)
        self.delays = any(delay > 0 for delay, _ in self.settings)
        self.shaped = self.rates != [0]

    def curves(self):
        return [(links, schedule) for links in self.links for schedule in self.schedules]

    def title(self, setting):
        """"25 ms one way, mbs2"; "" where there is nothing to say."""
        delay, variant = setting
        delays = [f"{time_span(delay)} one way" if delay > 0 else "no delay"] if self.delays else []
        return ", ".join([*delays, *([variant] if variant else [])])

    def at(self, setting, bits, links, schedule):
        """The measured points of all repeats."""
        return [point for point in self.done if (point["delay_seconds"], point["variant"]) == setting and
                (point["rate_bits_per_second"], point["links"], point["schedule"]) == (bits, links, schedule)]

    def tokens_per_second(self, *place):
        """Median over the repeats; None: none is done."""
        values = [point["tokens_per_second"] for point in self.at(*place)]
        return statistics.median(values) if values else None

    def short_name(self, point):
        """"paper, 1f1b, repeat 2": within a setting and a rate."""
        return ", ".join([point["links"], *([point["schedule"]] if len(self.schedules) > 1 else []),
                          *([f"repeat {point['repeat']}"] if self.repeats else [])])

    def long_name(self, point):
        delay = [f"{time_span(point['delay_seconds'])} one way"] if point["delay_seconds"] > 0 else []
        variant = [point["variant"]] if point["variant"] else []
        rates = [rate(point["rate_bits_per_second"])] if self.shaped else []
        return ", ".join([*rates, *delay, *variant, self.short_name(point)])

    def name(self, point):
        return escape(self.long_name(point)) + (REPLAYED if point["replayed"] else "")


def losses_of(point):
    """Validation losses where the run validates, else training losses. None: the run has neither."""
    validates = any(step["validation_loss"] is not None for step in point["curve"])
    passed, rows = 0, []
    for step in point["curve"]:
        passed += step["seconds"]
        loss = step["validation_loss" if validates else "loss"]
        if loss is not None:
            rows.append((step["step"], passed, loss))
    return {"validation": validates, **dict(zip(("steps", "seconds", "values"), zip(*rows)))} if rows else None


def shares_of(point):
    """The means of its stages."""
    names = {"codec_share": "codec_thread"}
    return {names.get(share, share.removesuffix("_share")):
            sum(stage[share] for stage in point["stages"]) / max(1, len(point["stages"])) for share in SHARES}


def chart_data(model):
    """What page/report.js draws from:
    {"curves": [{"name", "colour", "shape"}],
     "rates": [{"place": bits per second or what stands for them, "label"}],
     "settings": [title],
     "medians": [{"setting", "rate", "curve", "tokens_per_second"}],
     "points": [{"setting", "rate", "curve", "name", "short_name", "step_seconds",
                 "simulated_seconds", "shares": {part: of 1}, "losses": null or {"validation",
                 "steps": [], "seconds": [], "values": []}}]}
    Settings, rates and curves are named by their places in the lists. Measured points only."""
    most = model.rates[0] if model.rates else 0
    medians, points = [], []
    for s, setting in enumerate(model.settings):
        for r, bits in enumerate(model.rates):
            for c, curve in enumerate(model.curves()):
                place = {"setting": s, "rate": r, "curve": c}
                median = model.tokens_per_second(setting, bits, *curve)
                if median is not None:
                    medians.append({**place, "tokens_per_second": median})
                points += [{**place, "name": model.long_name(point), "short_name": model.short_name(point),
                            "step_seconds": point["step_seconds"], "simulated_seconds": point["simulated_seconds"],
                            "shares": shares_of(point), "losses": losses_of(point)}
                           for point in model.at(setting, bits, *curve)]
    return {"curves": [{"name": f"{links}, {schedule}" if len(model.schedules) > 1 else links,
                        "colour": model.links.index(links), "shape": model.schedules.index(schedule)}
                       for links, schedule in model.curves()],
            "rates": [{"place": bits or (BEYOND * most or 1e9), "label": rate(bits)} for bits in model.rates],
            "settings": [model.title(setting) for setting in model.settings], "medians": medians, "points": points}


def throughput_table(model, setting):
    several = len(model.schedules) > 1
    rows = []
    for bits in model.rates:
        for schedule in model.schedules:
            values = [model.tokens_per_second(setting, bits, links, schedule) for links in model.links]
            cells = ["" if value is None else whole(value) + (
                f' <span class="dim">{value / values[0]:.2f}×</span>' if i and values[0] else "")
                for i, value in enumerate(values)]
            rows.append([rate(bits), *([escape(schedule)] if several else []), *cells])
    if not any("".join(row[1 + several:]) for row in rows):
        return ""
    times = f", and how many times that of {model.links[0]}" if len(model.links) > 1 else ""
    title = model.title(setting)
    heads = ["link rate", *(["schedule"] if several else []), *(f"#{escape(links)}" for links in model.links)]
    return table(f"Tokens a second{times}{': ' if title else ''}{title}", heads, rows)


def prediction_summary(model):
    errors = {model.long_name(point): abs(error(point)) for point in model.done}
    if not errors:
        return ""
    worst = max(errors, key=errors.get)
    return ("<p>Predicted is the simulator's step time for the plan of the run on links as the sweep set them: the rate times "
            "95.6 %, which is what full frames leave for payload, and the delay. Its error is "
            f"{percent(statistics.median(errors.values()))} in the median of {len(errors)} points, and "
            f"{percent(errors[worst])} in the worst ({escape(worst)}).</p>\n")


def points_table(model):
    rows = [[model.name(point), whole(point["tokens_per_second"]), time_span(point["step_seconds"]),
             f"{time_span(point['step_seconds_low'])} to {time_span(point['step_seconds_high'])}",
             time_span(point["simulated_seconds"]), f"{100 * error(point):+.1f} %", time_span(point["bound_seconds"]),
             percent(point["bound_seconds"] / point["step_seconds"]), time_span(point["floor_seconds"]),
             escape(point["bottleneck"]), size(point["link_bytes_per_step"])] for point in model.done]
    heads = ["point", "#tokens/s", "#step", "#middle half", "#predicted", "#error", "#lower bound", "#of bound",
             "#steady-state floor", "set by", "#bytes a step"]
    return rows and (
        "<p>Step: the median of the steps after warm-up, of each step that of the slowest stage. Of bound: the lower bound over "
        "the step. Steady-state floor: the lower bound without fill and drain. Bytes a step: "
        "all links, both directions, with the headers of longhaul's own.</p>\n"
        + table("All points that were measured", heads, rows)) or ""


def unmeasured_table(model):
    return table("Points without a measurement", ["point", "state", "~reason"],
                 [[escape(model.long_name(point)), point["state"], escape(point["reason"])]
                  for point in model.results["points"] if point["state"] != "done"])


def loss_table(model):
    rows = []
    for point in model.done:
        last = [next((f"{step[loss]:.4f}" for step in reversed(point["curve"]) if step[loss] is not None), "")
                for loss in ("loss", "validation_loss", "clean_validation_loss")]
        if last[0] or last[1]:
            rows.append([model.name(point), str(point["steps"]), *last, time_span(sum(step["seconds"] for step in point["curve"]))])
    return table("Last losses, in nats a token", [
        "point", "#steps", "#training loss", "#validation loss", "#clean validation loss", "#training time"], rows)


def codecs_table(model):
    rows = [[model.name(point), escape(point["forward"]), escape(point["backward"]), size(point["payload_bytes_per_step"]),
             time_span(point["step_seconds"])] for point in model.done]
    return table("What the runs sent between stages", ["point", "~activations", "~gradients", "#bytes a step", "#step"], rows)


def bytes_table(model):
    rows = []
    for point in model.done:
        for link in point["link_bytes"]:
            up, down = link["up_acknowledgements"], link["down_acknowledgements"]
            counts = [link["up"], link["down"], None if up is None or down is None else up + down]
            if link["up"] is not None and link["down"] is not None and point["steps"]:
                rows.append([model.name(point), escape(link["worker"]),
                             *("" if count is None else size(count / point["steps"]) for count in counts),
                             str(link["dropped_packets"])])
    heads = ["point", "worker", "#sent a step", "#received a step", "#of it acknowledgements", "#packets dropped"]
    return rows and ("<p>Counted by the queues that shape the links, Ethernet headers and all, over the whole run (validation and "
                     "the opening of the links too), divided by its steps.</p>\n"
                     + table("Bytes of every worker's link", heads, rows)) or ""


def stages_table(model):
    rows = []
    for point in model.done:
        replicas = any(stage["replica"] for stage in point["stages"])
        for stage in point["stages"]:
            name = f"{stage['replica']}:{stage['stage']}" if replicas else stage["stage"]
            rows.append([model.name(point), f"{name} ({escape(stage['worker'])})", str(stage["layers"]), str(stage["depth"]),
                         *(percent(stage[share]) for share in SHARES)])
    return table("Shares of the step time, of every stage", [
        "point", "stage", "#layers", "#depth", "#compute", "#optimizer", "#waiting for input", "#waiting for gradients",
        "#waiting for the codec", "#codec thread"], rows)


def definitions(pairs):
    """"" for none. Pairs of HTML."""
    return "<dl>\n" + "".join(f"<dt>{term}</dt><dd>{text}</dd>\n" for term, text in pairs) + "</dl>\n" if pairs else ""


def set_up(results):
    def shown(text):
        return f"<pre>{escape(text)}</pre>" if "\n" in text else escape(text)

    return definitions([("longhaul", escape(results["version"])),
                        *((escape(entry["what"]), shown(entry["text"])) for entry in results["identity"] if entry["text"])])


def facts(results):
    machine = results["machine"]
    done = [point for point in results["points"] if point["state"] == "done"]
    gpus = [machine["gpus"]] if machine["gpus"] else []
    text = (f"{len(done)} points done of {len(results['points'])}. Ran on {machine['cpu']}, {machine['cores']} cores, "
            + ", ".join([f"{size(machine['memory_bytes'])} of memory", *gpus, machine["system"], machine["kernel"]])
            + f"; longhaul {results['version']}.")
    if done:
        last = max(point["ended_unix_ms"] for point in done)
        text += time.strftime(" Last point measured %Y-%m-%d %H:%M UTC.", time.gmtime(last / 1000))
    return f'<p class="facts">{escape(text)}</p>\n'


def notes(results):
    """What a reader must know before any number."""
    states = [point["state"] for point in results["points"]]
    total, waiting, failed, impossible = len(states), *(states.count(state) for state in ("waiting", "failed", "impossible"))
    texts = []
    if waiting:
        texts.append(f"<strong>Partial results:</strong> {waiting} of {total} points have not run yet. The same "
                     "<code>longhaul sweep</code> command goes on with them.")
    if failed + impossible:
        texts.append(f"<strong>{failed + impossible} of {total} points have no measurement:</strong> {failed} failed, {impossible} "
                     "could not run here. Their reasons stand below.")
    for source in sorted({point["replay_source"] for point in results["points"] if point.get("replayed")}):
        texts.append("<strong>Replayed:</strong> points marked so ran the real coordinator, transport and schedule, with compute "
                     f"replaced by sleeping for layer times that were measured elsewhere ({escape(source)}). They have no losses.")
    return "".join(f'<p class="note">{text}</p>\n' for text in texts)


def body(results, model):
    text = f"<h1>{escape(results['title'])}</h1>\n" + facts(results) + notes(results)
    if model.done:
        losses = loss_table(model)
        text += ('<noscript><p class="note">Charts are drawn by a script within this page, and scripts are off. The tables have '
                 "the numbers.</p></noscript>\n"
                 + section("Throughput", charts("throughput", "".join(throughput_table(model, one) for one in model.settings)))
                 + section("Where the time goes", charts("time", ""))
                 + section("Predicted and measured", charts("prediction", prediction_summary(model)))
                 + (section("Loss", charts("loss", losses)) if losses else ""))
    explanations = [(model.name(point), escape(point["explanation"])) for point in model.done if point["explanation"]]
    return (text + section("Points", points_table(model) + unmeasured_table(model))
            + section("Details", details("Bytes of every worker's link", bytes_table(model))
                      + details("Shares of every stage", stages_table(model))
                      + details("What the plans say", definitions(explanations)) + details("The sweep", set_up(results))))


def asset(name):
    """A file of the page. An installation has uPlot beside the page, a checkout in base/web."""
    places = [HERE / "page" / name, HERE.parent.parent / "base/web/uplot" / name]
    return next(place for place in places if place.exists()).read_text(encoding="utf-8")


def losses_page(results, remark):
    """A document that draws the losses of points against steps and time, and nothing else of them."""
    model = Model(results)
    return document(results["title"], f"<h1>{escape(results['title'])}</h1>\n{facts(results)}<p>{escape(remark)}</p>\n"
                    + section("Loss", charts("loss", loss_table(model))), chart_data(model))


def curves_page(results):
    """The document of `longhaul curves`: losses against steps and time, and what was not measured."""
    model = Model(results)
    losses = loss_table(model)
    content = f"<h1>{escape(results['title'])}</h1>\n" + facts(results) + notes(results)
    if losses:
        content += section("Loss", charts("loss", losses + codecs_table(model)))
    return document(results["title"], content + section("Runs that did not end well", unmeasured_table(model))
                    + section("Details", details("The sweep", set_up(results))), chart_data(model))


def page(results):
    """The whole document. Says so where points are missing, failed or replayed."""
    model = Model(results)
    return document(results["title"], body(results, model), chart_data(model))


def document(title, content, drawn):
    """`drawn`: chart_data of what `content` has places for."""
    scripts = [asset("uPlot.iife.min.js"), asset("report.js")]
    # Nothing may be fetched and no other script may run, whatever came into a text.
    allowed = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" for script in scripts)
    # In JSON '<' stands within strings alone. Escaped, no text can end the element around it.
    data = json.dumps(drawn, ensure_ascii=False).replace("<", "\\u003c")
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; script-src {allowed}; '
        'style-src \'unsafe-inline\'; img-src data:">\n'
        f'<link rel="icon" href="data:,">\n<title>{escape(title)}</title>\n'
        f'<!-- The charts are drawn by uPlot, https://github.com/leeoniya/uPlot\n{asset("LICENSE")}-->\n'
        f'<style>{asset("uPlot.min.css")}</style>\n<style>{asset("report.css")}</style></head>\n'
        f'<body><main>\n{content}</main>\n<script type="application/json" id="data">{data}</script>\n'
        + "".join(f"<script>{script}</script>\n" for script in scripts) + "</body></html>\n")
