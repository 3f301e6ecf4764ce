#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/units.h"
#include "deploy/sweep/html.h"
#include "deploy/sweep/report_parts.h"

namespace longhaul::cli {
namespace {

using Column = HtmlTable::Column;

constexpr char kReplayed[] = " <span class=\"badge\">replayed</span>";

// Relative to what was measured.
double PredictionError(const PointResult& point) {
  return point.simulated_seconds / point.step_seconds - 1;
}

std::string Name(const ReportModel& model, const PointResult& point) {
  return EscapeHtml(model.LongName(point)) + (point.replayed ? kReplayed : "");
}

std::string LossText(const std::optional<double>& loss) {
  return loss ? fmt::format("{:.4f}", *loss) : "";
}

std::string BytesText(const std::optional<double>& bytes) {
  return bytes ? FormatBytes(*bytes) : "";
}

std::optional<double> PerStep(const std::optional<uint64_t>& bytes, const PointResult& point) {
  if (!bytes || point.steps == 0) return std::nullopt;
  return static_cast<double>(*bytes) / static_cast<double>(point.steps);
}

std::string ThroughputTable(const ReportModel& model, const ReportSetting& setting) {
  std::vector<Column> columns = {{"link rate"}};
  if (model.schedules().size() > 1) columns.push_back({"schedule"});
  for (const std::string& links : model.links()) columns.push_back({EscapeHtml(links), true});
  HtmlTable table(std::move(columns));
  bool anything = false;
  for (const uint64_t rate : model.rates()) {
    for (const std::string& schedule : model.schedules()) {
      std::vector<std::string> cells = {RateLabel(static_cast<double>(rate))};
      if (model.schedules().size() > 1) cells.push_back(EscapeHtml(schedule));
      const auto base = model.TokensPerSecond(setting, rate, model.links().front(), schedule);
      for (const std::string& links : model.links()) {
        const auto value = model.TokensPerSecond(setting, rate, links, schedule);
        anything = anything || value;
        std::string cell = value ? WholeText(*value) : "";
        if (value && base && links != model.links().front()) {
          cell += fmt::format(" <span class=\"dim\">{:.2f}×</span>", *value / *base);
        }
        cells.push_back(std::move(cell));
      }
      table.AddRow(std::move(cells));
    }
  }
  if (!anything) return "";
  const std::string what = fmt::format(
      "Tokens a second{}", model.links().size() > 1
                               ? fmt::format(", and how many times that of {}", model.links()[0])
                               : "");
  return table.ToHtml(setting.title.empty() ? what : what + ": " + setting.title);
}

}  // namespace

std::string Section(const std::string& heading, const std::string& content) {
  if (content.empty()) return "";
  return fmt::format("<section><h2>{}</h2>\n{}</section>\n", EscapeHtml(heading), content);
}

std::string ThroughputTables(const ReportModel& model) {
  std::string out;
  for (const ReportSetting& setting : model.settings()) out += ThroughputTable(model, setting);
  return out;
}

std::string PredictionSummary(const ReportModel& model) {
  std::vector<double> errors;
  const PointResult* worst = nullptr;
  for (const PointResult* point : model.Done()) {
    const double error = std::abs(PredictionError(*point));
    if (!std::isfinite(error)) continue;
    if (worst == nullptr || error > std::abs(PredictionError(*worst))) worst = point;
    errors.push_back(error);
  }
  if (worst == nullptr) return "";
  std::ranges::sort(errors);
  const size_t half = errors.size() / 2;
  const double median =
      errors.size() % 2 == 1 ? errors[half] : (errors[half - 1] + errors[half]) / 2;
  return fmt::format(
      "<p>Predicted is the simulator's step time for the plan of the run on links as the sweep set "
      "them: the rate times 95.6 %, which is what full frames leave for payload, and the delay. "
      "Its error is {} in the median of {} points, and {} in the worst ({}).</p>\n",
      PerCentText(median), errors.size(), PerCentText(errors.back()),
      EscapeHtml(model.LongName(*worst)));
}

std::string PointsTable(const ReportModel& model) {
  HtmlTable table({{"point"},
                   {"tokens/s", true},
                   {"step", true},
                   {"middle half", true},
                   {"predicted", true},
                   {"error", true},
                   {"lower bound", true},
                   {"of bound", true},
                   {"steady-state floor", true},
                   {"set by"},
                   {"bytes a step", true}});
  for (const PointResult* point : model.Done()) {
    table.AddRow({Name(model, *point), WholeText(point->TokensPerSecond()),
                  TimeSpanText(point->step_seconds),
                  fmt::format("{} to {}", TimeSpanText(point->step_seconds_low),
                              TimeSpanText(point->step_seconds_high)),
                  TimeSpanText(point->simulated_seconds),
                  fmt::format("{:+.1f} %", 100 * PredictionError(*point)),
                  TimeSpanText(point->bound_seconds),
                  PerCentText(point->bound_seconds / point->step_seconds),
                  point->floor_seconds > 0 ? TimeSpanText(point->floor_seconds) : "",
                  EscapeHtml(point->bottleneck), FormatBytes(point->link_bytes_per_step)});
  }
  if (table.empty()) return "";
  return "<p>Step: the median of the steps after warm-up, of each step that of the slowest stage. "
         "Of bound: the lower bound over the step. Steady-state floor: the lower bound without "
         "fill and drain. Bytes a step: all links, both directions, with "
         "the headers of longhaul's own.</p>\n" +
         table.ToHtml("All points that were measured");
}

std::string UnmeasuredTable(const ReportModel& model) {
  HtmlTable table({{"point"}, {"state"}, {.title = "reason", .prose = true}});
  for (const PointResult& point : model.results().points) {
    if (point.state == PointState::kMeasured) continue;
    table.AddRow({EscapeHtml(model.LongName(point)), std::string(ToString(point.state)),
                  EscapeHtml(point.reason)});
  }
  return table.empty() ? "" : table.ToHtml("Points without a measurement");
}

std::string LossTable(const ReportModel& model) {
  HtmlTable table({{"point"},
                   {"steps", true},
                   {"training loss", true},
                   {"validation loss", true},
                   {"clean validation loss", true},
                   {"training time", true}});
  for (const PointResult* point : model.Done()) {
    std::optional<double> loss, validation, clean;
    double seconds = 0;
    for (const StepResult& step : point->curve) {
      if (step.loss) loss = step.loss;
      if (step.validation_loss) validation = step.validation_loss;
      if (step.clean_validation_loss) clean = step.clean_validation_loss;
      seconds += step.seconds;
    }
    if (!loss && !validation) continue;
    table.AddRow({Name(model, *point), fmt::format("{}", point->steps), LossText(loss),
                  LossText(validation), LossText(clean), TimeSpanText(seconds)});
  }
  return table.empty() ? "" : table.ToHtml("Last losses, in nats a token");
}

std::string BytesTable(const ReportModel& model) {
  HtmlTable table({{"point"},
                   {"worker"},
                   {"sent a step", true},
                   {"received a step", true},
                   {"of it acknowledgements", true},
                   {"packets dropped", true}});
  for (const PointResult* point : model.Done()) {
    for (const LinkBytes& link : point->link_bytes) {
      if (!link.up || !link.down) continue;
      std::optional<uint64_t> acknowledgements;
      if (link.up_acknowledgements && link.down_acknowledgements) {
        acknowledgements = *link.up_acknowledgements + *link.down_acknowledgements;
      }
      table.AddRow({Name(model, *point), EscapeHtml(link.worker),
                    BytesText(PerStep(link.up, *point)), BytesText(PerStep(link.down, *point)),
                    BytesText(PerStep(acknowledgements, *point)),
                    fmt::format("{}", link.dropped_packets)});
    }
  }
  if (table.empty()) return "";
  return "<p>Counted by the queues that shape the links, Ethernet headers and all, over the whole "
         "run (validation and the opening of the links too), divided by its steps.</p>\n" +
         table.ToHtml("Bytes of every worker's link");
}

std::string StagesTable(const ReportModel& model) {
  HtmlTable table({{"point"},
                   {"stage"},
                   {"layers", true},
                   {"depth", true},
                   {"compute", true},
                   {"optimizer", true},
                   {"waiting for input", true},
                   {"waiting for gradients", true},
                   {"waiting for the codec", true},
                   {"codec thread", true}});
  for (const PointResult* point : model.Done()) {
    const bool of_replicas = !point->stages.empty() && point->stages.back().id.replica > 0;
    for (const StageResult& stage : point->stages) {
      table.AddRow(
          {Name(model, *point),
           fmt::format("{} ({})", ShortName(stage.id, of_replicas), EscapeHtml(stage.worker)),
           fmt::format("{}", stage.layers), fmt::format("{}", stage.depth),
           PerCentText(stage.compute_share), PerCentText(stage.optimizer_share),
           PerCentText(stage.wait_input_share), PerCentText(stage.wait_gradient_share),
           PerCentText(stage.codec_wait_share), PerCentText(stage.codec_share)});
    }
  }
  return table.empty() ? "" : table.ToHtml("Shares of the step time, of every stage");
}

std::string Explanations(const ReportModel& model) {
  std::string out;
  for (const PointResult* point : model.Done()) {
    if (point->explanation.empty()) continue;
    out += fmt::format("<dt>{}</dt><dd>{}</dd>\n", Name(model, *point),
                       EscapeHtml(point->explanation));
  }
  return out.empty() ? "" : fmt::format("<dl>{}</dl>\n", out);
}

std::string SetUp(const ReportModel& model) {
  const SweepResults& results = model.results();
  std::string out = "<dl>\n";
  const auto add = [&out](std::string_view what, std::string_view text) {
    const bool lines = text.find('\n') != std::string_view::npos;
    out += fmt::format("<dt>{}</dt><dd>{}</dd>\n", EscapeHtml(what),
                       lines ? fmt::format("<pre>{}</pre>", EscapeHtml(text)) : EscapeHtml(text));
  };
  add("longhaul", results.version);
  for (const auto& [what, text] : results.identity) {
    if (!text.empty()) add(what, text);
  }
  return out + "</dl>\n";
}

}  // namespace longhaul::cli
