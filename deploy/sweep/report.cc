#include "deploy/sweep/report.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <span>
#include <string_view>

#include "absl/strings/escaping.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "base/check.h"
#include "base/hash.h"
#include "base/units.h"
#include "base/web/assets.h"
#include "deploy/sweep/html.h"
#include "deploy/sweep/page/assets.h"
#include "deploy/sweep/report_parts.h"

namespace longhaul::cli {
namespace {

std::string Note(const std::string& text) {
  return fmt::format("<p class=\"note\">{}</p>\n", text);
}

// What a reader must know before any number.
std::string Notes(const SweepResults& results) {
  std::string out;
  const size_t waiting = results.Count(PointState::kWaiting);
  if (waiting > 0) {
    out += Note(
        fmt::format("<strong>Partial results:</strong> {} of {} points have not run yet. The same "
                    "<code>longhaul sweep</code> command goes on with them.",
                    waiting, results.points.size()));
  }
  const size_t failed = results.Count(PointState::kRunFailed);
  const size_t impossible = results.Count(PointState::kImpossible);
  if (failed + impossible > 0) {
    out += Note(fmt::format(
        "<strong>{} of {} points have no measurement:</strong> {} failed, {} could not run here. "
        "Their reasons stand below.",
        failed + impossible, results.points.size(), failed, impossible));
  }
  std::set<std::string> sources;
  for (const PointResult& point : results.points) {
    if (point.replayed) sources.insert(point.replay_source);
  }
  for (const std::string& source : sources) {
    out += Note(fmt::format(
        "<strong>Replayed:</strong> points marked so ran the real coordinator, transport and "
        "schedule, with compute replaced by sleeping for layer times that were measured elsewhere "
        "({}). They have no losses.",
        EscapeHtml(source)));
  }
  return out;
}

std::string Facts(const SweepResults& results) {
  int64_t last = 0;
  for (const PointResult& point : results.points) last = std::max(last, point.ended_unix_ms);
  const MachineInfo& machine = results.machine;
  std::string text = fmt::format(
      "{} points done of {}. Ran on {}, {} cores, {} of memory, {}{}{}, {}; longhaul {}.",
      results.Count(PointState::kMeasured), results.points.size(), machine.cpu, machine.cores,
      FormatBytes(static_cast<double>(machine.memory_bytes)), machine.gpus,
      machine.gpus.empty() ? "" : ", ", machine.system, machine.kernel, results.version);
  if (last > 0) {
    text +=
        " Last point measured " +
        absl::FormatTime("%Y-%m-%d %H:%M UTC.", absl::FromUnixMillis(last), absl::UTCTimeZone());
  }
  return fmt::format("<p class=\"facts\">{}</p>\n", EscapeHtml(text));
}

std::string Details(const std::string& summary, const std::string& content) {
  if (content.empty()) return "";
  return fmt::format("<details><summary>{}</summary>\n{}</details>\n", EscapeHtml(summary),
                     content);
}

std::string_view TextOf(std::span<const Asset> assets, std::string_view name) {
  const auto asset = std::ranges::find(assets, name, &Asset::name);
  LH_CHECK(asset != assets.end(), "an asset that is compiled in");
  return asset->text;
}

// Where page/report.js draws; `content` stands below.
std::string Charts(std::string_view which, const std::string& content) {
  return fmt::format("<div class=\"charts\" data-charts=\"{}\"></div>\n{}", which, content);
}

// How a Content-Security-Policy names a script that may run.
std::string ScriptSource(std::string_view script) {
  return fmt::format("'sha256-{}'", absl::Base64Escape(absl::HexStringToBytes(Sha256Hex(script))));
}

// In JSON '<' stands within strings alone. Escaped, no text can end the element around it.
std::string DataElement(const std::string& json) {
  return fmt::format("<script type=\"application/json\" id=\"data\">{}</script>\n",
                     absl::StrReplaceAll(json, {{"<", "\\u003c"}}));
}

std::string Body(const SweepResults& results, const ReportModel& model) {
  std::string body =
      fmt::format("<h1>{}</h1>\n", EscapeHtml(results.title)) + Facts(results) + Notes(results);
  if (!model.Done().empty()) {
    const std::string losses = LossTable(model);
    body +=
        "<noscript><p class=\"note\">Charts are drawn by a script within this page, and scripts "
        "are off. The tables have the numbers.</p></noscript>\n";
    body += Section("Throughput", Charts("throughput", ThroughputTables(model)));
    body += Section("Where the time goes", Charts("time", ""));
    body += Section("Predicted and measured", Charts("prediction", PredictionSummary(model)));
    if (!losses.empty()) body += Section("Loss", Charts("loss", losses));
  }
  body += Section("Points", PointsTable(model) + UnmeasuredTable(model));
  return body + Section("Details", Details("Bytes of every worker's link", BytesTable(model)) +
                                       Details("Shares of every stage", StagesTable(model)) +
                                       Details("What the plans say", Explanations(model)) +
                                       Details("The sweep", SetUp(model)));
}

}  // namespace

std::string Report(const SweepResults& results) {
  const ReportModel model(results);
  const std::string_view uplot = TextOf(UplotAssets(), "uPlot.iife.min.js");
  const std::string_view ours = TextOf(ReportAssets(), "report.js");
  // Nothing may be fetched and no other script may run, whatever came into a text.
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
      "script-src {} {}; style-src 'unsafe-inline'; img-src data:\">\n"
      "<link rel=\"icon\" href=\"data:,\">\n<title>{}</title>\n"
      "<!-- The charts are drawn by uPlot, https://github.com/leeoniya/uPlot\n{}-->\n"
      "<style>{}</style>\n<style>{}</style></head>\n<body><main>\n{}</main>\n{}"
      "<script>{}</script>\n<script>{}</script>\n</body></html>\n",
      ScriptSource(uplot), ScriptSource(ours), EscapeHtml(results.title),
      TextOf(UplotAssets(), "LICENSE"), TextOf(UplotAssets(), "uPlot.min.css"),
      TextOf(ReportAssets(), "report.css"), Body(results, model), DataElement(ChartData(model)),
      uplot, ours);
}

}  // namespace longhaul::cli
