#include <fmt/core.h>

#include <algorithm>
#include <functional>

#include "deploy/sweep/html.h"
#include "deploy/sweep/report_parts.h"
#include "deploy/sweep/svg_plot.h"

namespace longhaul::cli {
namespace {

// Of the parts of a bar, in svg_plot's colours.
enum Part : int {
  kWaitInput = 0,
  kWaitGradient = 1,
  kCompute = 2,
  kCodec = 3,
  kOptimizer = 4,
  kRest = 7,
};

// The mean of its stages.
Bar AttributionBar(const PointResult& point, std::string label) {
  StageResult mean;
  const double weight = point.stages.empty() ? 0 : 1.0 / static_cast<double>(point.stages.size());
  for (const StageResult& stage : point.stages) {
    mean.compute_share += weight * stage.compute_share;
    mean.optimizer_share += weight * stage.optimizer_share;
    mean.wait_input_share += weight * stage.wait_input_share;
    mean.wait_gradient_share += weight * stage.wait_gradient_share;
    mean.codec_wait_share += weight * stage.codec_wait_share;
    mean.codec_share += weight * stage.codec_share;
  }
  const double rest = 1 - mean.compute_share - mean.optimizer_share - mean.wait_input_share -
                      mean.wait_gradient_share - mean.codec_wait_share;
  return {.label = std::move(label),
          .parts = {{"compute", kCompute, mean.compute_share},
                    {"optimizer", kOptimizer, mean.optimizer_share},
                    {"waiting for input", kWaitInput, mean.wait_input_share},
                    {"waiting for gradients", kWaitGradient, mean.wait_gradient_share},
                    {"waiting for the codec", kCodec, mean.codec_wait_share},
                    {"rest", kRest, std::max(0.0, rest)}},
          .below = {{"codec thread", kCodec, mean.codec_share}}};
}

std::string Legend(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string out = "<ul class=\"legend\">";
  for (const auto& [swatch, text] : entries) {
    out += fmt::format("<li>{} {}</li>", swatch, EscapeHtml(text));
  }
  return out + "</ul>\n";
}

std::string CurveLegend(const ReportModel& model) {
  std::vector<std::pair<std::string, std::string>> entries;
  for (const ReportCurve& curve : model.curves()) {
    entries.emplace_back(LineSwatch(curve.colour, curve.shape), curve.name);
  }
  return Legend(entries);
}

std::string Plots(const std::string& figures) {
  return figures.empty() ? "" : fmt::format("<div class=\"plots\">{}</div>\n", figures);
}

std::string Titled(const std::string& what, const std::string& setting) {
  return setting.empty() ? what : fmt::format("{}, {}", what, setting);
}

// Where a link that is not shaped stands on the axis of rates: right of all others.
double RatePlace(const ReportModel& model, uint64_t rate) {
  if (rate > 0) return static_cast<double>(rate);
  const uint64_t most = std::ranges::max(model.rates());
  constexpr double kBeyond = 3;
  return most > 0 ? kBeyond * static_cast<double>(most) : 1e9;
}

PlotAxis RateAxis(const ReportModel& model) {
  PlotAxis axis{.label = "rate of every link, each way (log scale)", .logarithmic = true};
  for (const uint64_t rate : model.rates()) {
    axis.fixed_ticks.emplace_back(RatePlace(model, rate), RateLabel(static_cast<double>(rate)));
  }
  return axis;
}

std::string Sentence(const PointResult& point, const ReportModel& model) {
  return fmt::format("{}: {} tokens/s, {} a step, lower bound {}{}", model.LongName(point),
                     WholeText(point.TokensPerSecond()), TimeSpanText(point.step_seconds),
                     TimeSpanText(point.bound_seconds), point.replayed ? ", replayed" : "");
}

// The run whose losses stand for a curve at a rate: the first repeat.
const PointResult* WithLosses(const ReportModel& model, const ReportSetting& setting, uint64_t rate,
                              const ReportCurve& curve) {
  for (const PointResult* point : model.Done(setting, rate, curve.links, curve.schedule)) {
    for (const StepResult& step : point->curve) {
      if (step.loss || step.validation_loss) return point;
    }
  }
  return nullptr;
}

bool Validates(const PointResult& point) {
  return std::ranges::any_of(
      point.curve, [](const StepResult& step) { return step.validation_loss.has_value(); });
}

// What the time axis of losses is in: a person reads 40 minutes, not 0.7 hours.
struct TimeUnit {
  const char* name;
  double seconds;
};

TimeUnit UnitFor(double longest_seconds) {
  if (longest_seconds >= 2 * 3600) return {"hours", 3600};
  if (longest_seconds >= 2 * 60) return {"minutes", 60};
  return {"seconds", 1};
}

// Validation losses with markers where the run validates, else training losses. x: in `unit`, or
// steps.
PlotSeries LossSeries(const PointResult& point, const ReportCurve& curve,
                      const std::optional<TimeUnit>& unit) {
  PlotSeries series{.name = curve.name,
                    .colour = curve.colour,
                    .shape = curve.shape,
                    .points = {},
                    .line = true,
                    .markers = Validates(point)};
  double seconds = 0;
  for (const StepResult& step : point.curve) {
    seconds += step.seconds;
    const std::optional<double> loss = series.markers ? step.validation_loss : step.loss;
    if (!loss) continue;
    series.points.push_back({.x = unit ? seconds / unit->seconds : static_cast<double>(step.step),
                             .y = *loss,
                             .hint = fmt::format("{}: {:.4f} at step {}, after {}", curve.name,
                                                 *loss, step.step, TimeSpanText(seconds))});
  }
  return series;
}

std::string LossLabel(const ReportModel& model) {
  const bool validates =
      std::ranges::any_of(model.Done(), [](const PointResult* point) { return Validates(*point); });
  return validates ? "validation loss (nats a token)" : "training loss (nats a token)";
}

// Of one run for each curve.
using LossRuns = std::vector<std::pair<const ReportCurve*, const PointResult*>>;

LossRuns RunsAt(const ReportModel& model, const ReportSetting& setting, uint64_t rate) {
  LossRuns runs;
  for (const ReportCurve& curve : model.curves()) {
    const PointResult* const point = WithLosses(model, setting, rate, curve);
    if (point != nullptr) runs.emplace_back(&curve, point);
  }
  return runs;
}

// What a link can carry does not change what is computed, so any rate's run will do.
LossRuns RunsAtAnyRate(const ReportModel& model, const ReportSetting& setting) {
  LossRuns runs;
  for (const ReportCurve& curve : model.curves()) {
    const PointResult* point = nullptr;
    for (const uint64_t rate : model.rates()) {
      if (point == nullptr) point = WithLosses(model, setting, rate, curve);
    }
    if (point != nullptr) runs.emplace_back(&curve, point);
  }
  return runs;
}

std::string LossFigure(const ReportModel& model, const LossRuns& runs, std::string title,
                       const std::optional<TimeUnit>& unit) {
  Plot plot{.title = std::move(title),
            .description = unit ? "Loss against time of training" : "Loss against steps",
            .x = {.label = unit ? fmt::format("{} of training", unit->name) : "steps"},
            .y = {.label = LossLabel(model)},
            .series = {}};
  for (const auto& [curve, point] : runs) plot.series.push_back(LossSeries(*point, *curve, unit));
  return SvgOf(plot);
}

double LongestSeconds(const LossRuns& runs) {
  double longest = 0;
  for (const auto& [curve, point] : runs) {
    double seconds = 0;
    for (const StepResult& step : point->curve) seconds += step.seconds;
    longest = std::max(longest, seconds);
  }
  return longest;
}

}  // namespace

std::string ThroughputFigures(const ReportModel& model) {
  std::string figures;
  for (const ReportSetting& setting : model.settings()) {
    Plot plot{.title = Titled("Tokens a second against link rate", setting.title),
              .description =
                  "Measured tokens a second against the rate of the links, a line for "
                  "each codec pair and schedule; the table below has the numbers",
              .x = RateAxis(model),
              .y = {.label = "tokens/s (log scale)", .logarithmic = true},
              .series = {}};
    for (const ReportCurve& curve : model.curves()) {
      PlotSeries series{.name = curve.name, .colour = curve.colour, .shape = curve.shape};
      for (const uint64_t rate : model.rates()) {
        const auto points = model.Done(setting, rate, curve.links, curve.schedule);
        const auto value = model.TokensPerSecond(setting, rate, curve.links, curve.schedule);
        if (!value) continue;
        series.points.push_back(
            {.x = RatePlace(model, rate),
             .y = *value,
             .hint = points.size() == 1
                         ? Sentence(*points[0], model)
                         : fmt::format("{}, {}: {} tokens/s, median of {} runs",
                                       RateLabel(static_cast<double>(rate)), curve.name,
                                       WholeText(*value), points.size())});
      }
      // From left to right, as the line is drawn.
      std::ranges::sort(series.points, {}, &PlotPoint::x);
      plot.series.push_back(std::move(series));
    }
    figures += SvgOf(plot);
  }
  if (figures.empty()) return "";
  return CurveLegend(model) + Plots(figures);
}

std::string AttributionFigures(const ReportModel& model) {
  std::string figures;
  for (const ReportSetting& setting : model.settings()) {
    for (const uint64_t rate : model.rates()) {
      BarPlot plot{.title = Titled(RateLabel(static_cast<double>(rate)), setting.title),
                   .description =
                       "What the stages did, as shares of the step time; the table of "
                       "stages has the numbers",
                   .bars = {}};
      for (const ReportCurve& curve : model.curves()) {
        for (const PointResult* point : model.Done(setting, rate, curve.links, curve.schedule)) {
          plot.bars.push_back(AttributionBar(*point, model.ShortName(*point)));
        }
      }
      figures += SvgOf(plot);
    }
  }
  if (figures.empty()) return "";
  return Legend({{ColourSwatch(kCompute), "compute"},
                 {ColourSwatch(kWaitInput), "waiting for input"},
                 {ColourSwatch(kWaitGradient), "waiting for gradients"},
                 {ColourSwatch(kOptimizer), "optimizer"},
                 {ColourSwatch(kCodec), "waiting for the codec; thin: the codec's own thread"},
                 {ColourSwatch(kRest), "rest"}}) +
         Plots(figures);
}

std::string LossFigures(const ReportModel& model) {
  std::string figures;
  for (const ReportSetting& setting : model.settings()) {
    figures += LossFigure(model, RunsAtAnyRate(model, setting),
                          Titled("Against steps", setting.title), std::nullopt);
    for (const uint64_t rate : model.rates()) {
      const LossRuns runs = RunsAt(model, setting, rate);
      const TimeUnit unit = UnitFor(LongestSeconds(runs));
      figures += LossFigure(
          model, runs,
          Titled("Against time, " + RateLabel(static_cast<double>(rate)), setting.title), unit);
    }
  }
  if (figures.empty()) return "";
  return CurveLegend(model) + Plots(figures);
}

std::string PredictionFigure(const ReportModel& model) {
  Plot plot{.title = "Measured against predicted step time",
            .description =
                "Every point's measured step time against the simulator's; on the "
                "diagonal both are equal, the band is 10 % on either side",
            .x = {.label = "predicted step, seconds (log scale)", .logarithmic = true},
            .y = {.label = "measured step, seconds (log scale)", .logarithmic = true},
            .series = {},
            .diagonal = true};
  for (const ReportCurve& curve : model.curves()) {
    PlotSeries series{.name = curve.name,
                      .colour = curve.colour,
                      .shape = curve.shape,
                      .points = {},
                      .line = false};
    for (const PointResult* point : model.Done()) {
      if (point->links != curve.links || point->schedule != curve.schedule) continue;
      series.points.push_back(
          {.x = point->simulated_seconds,
           .y = point->step_seconds,
           .hint = fmt::format("{}: predicted {}, measured {}", model.LongName(*point),
                               TimeSpanText(point->simulated_seconds),
                               TimeSpanText(point->step_seconds))});
    }
    plot.series.push_back(std::move(series));
  }
  const std::string figure = SvgOf(plot);
  if (figure.empty()) return "";
  return CurveLegend(model) + Plots(figure);
}

}  // namespace longhaul::cli
