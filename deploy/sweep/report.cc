#include "deploy/sweep/report.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "absl/time/time.h"
#include "base/units.h"
#include "deploy/sweep/html.h"
#include "deploy/sweep/report_parts.h"
#include "deploy/sweep/report_style.h"

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

}  // namespace

std::string Report(const SweepResults& results) {
  const ReportModel model(results);
  const std::string title = EscapeHtml(results.title);
  std::string body = fmt::format("<h1>{}</h1>\n", title) + Facts(results) + Notes(results);
  body += Section("Throughput", ThroughputFigures(model) + ThroughputTables(model));
  body += Section("Where the time goes", AttributionFigures(model));
  body += Section("Predicted and measured", PredictionFigure(model) + PredictionSummary(model));
  body += Section("Loss", LossFigures(model) + LossTable(model));
  body += Section("Points", PointsTable(model) + UnmeasuredTable(model));
  body += Section("Details", Details("Bytes of every worker's link", BytesTable(model)) +
                                 Details("Shares of every stage", StagesTable(model)) +
                                 Details("What the plans say", Explanations(model)) +
                                 Details("The sweep", SetUp(model)));
  // Nothing may be fetched, by whatever came into a text.
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'; img-src data:\">\n"
      "<link rel=\"icon\" href=\"data:,\">\n<title>{}</title>\n<style>{}</style></head>\n"
      "<body><main>\n{}</main></body></html>\n",
      title, kReportStyle, body);
}

}  // namespace longhaul::cli
