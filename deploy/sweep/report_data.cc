#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "deploy/sweep/html.h"
#include "deploy/sweep/report_parts.h"

namespace longhaul::cli {
namespace {

using nlohmann::ordered_json;

// Where a link that is not shaped stands on the axis of rates: right of all others.
double RatePlace(const ReportModel& model, uint64_t rate) {
  if (rate > 0) return static_cast<double>(rate);
  const uint64_t most = model.rates().front();
  constexpr double kBeyond = 3;
  return most > 0 ? kBeyond * static_cast<double>(most) : 1e9;
}

// The mean of its stages.
ordered_json Shares(const PointResult& point) {
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
  return {{"compute", mean.compute_share},       {"optimizer", mean.optimizer_share},
          {"wait_input", mean.wait_input_share}, {"wait_gradient", mean.wait_gradient_share},
          {"codec_wait", mean.codec_wait_share}, {"codec_thread", mean.codec_share}};
}

// Validation losses where the run validates, else training losses. Null: the run has neither.
ordered_json Losses(const PointResult& point) {
  const bool validates = std::ranges::any_of(
      point.curve, [](const StepResult& step) { return step.validation_loss.has_value(); });
  ordered_json steps = ordered_json::array(), seconds = steps, values = steps;
  double passed = 0;
  for (const StepResult& step : point.curve) {
    passed += step.seconds;
    const std::optional<double> loss = validates ? step.validation_loss : step.loss;
    if (!loss) continue;
    steps.push_back(step.step);
    seconds.push_back(passed);
    values.push_back(*loss);
  }
  if (values.empty()) return nullptr;
  return {{"validation", validates}, {"steps", steps}, {"seconds", seconds}, {"values", values}};
}

}  // namespace

std::string ChartData(const ReportModel& model) {
  ordered_json curves = ordered_json::array(), rates = curves, settings = curves, medians = curves,
               points = curves;
  for (const ReportCurve& curve : model.curves()) {
    curves.push_back({{"name", curve.name}, {"colour", curve.colour}, {"shape", curve.shape}});
  }
  for (const uint64_t rate : model.rates()) {
    rates.push_back(
        {{"place", RatePlace(model, rate)}, {"label", RateLabel(static_cast<double>(rate))}});
  }
  for (const ReportSetting& setting : model.settings()) settings.push_back(setting.title);
  for (size_t s = 0; s < model.settings().size(); ++s) {
    for (size_t r = 0; r < model.rates().size(); ++r) {
      for (size_t c = 0; c < model.curves().size(); ++c) {
        const ReportSetting& setting = model.settings()[s];
        const ReportCurve& curve = model.curves()[c];
        const uint64_t rate = model.rates()[r];
        const ordered_json place = {{"setting", s}, {"rate", r}, {"curve", c}};
        const auto median = model.TokensPerSecond(setting, rate, curve.links, curve.schedule);
        if (!median) continue;
        medians.push_back(place);
        medians.back()["tokens_per_second"] = *median;
        for (const PointResult* point : model.Done(setting, rate, curve.links, curve.schedule)) {
          ordered_json row = place;
          row.update({{"name", model.LongName(*point)},
                      {"short_name", model.ShortName(*point)},
                      {"step_seconds", point->step_seconds},
                      {"simulated_seconds", point->simulated_seconds},
                      {"shares", Shares(*point)},
                      {"losses", Losses(*point)}});
          points.push_back(std::move(row));
        }
      }
    }
  }
  return ordered_json{{"curves", curves},
                      {"rates", rates},
                      {"settings", settings},
                      {"medians", medians},
                      {"points", points}}
      .dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace longhaul::cli
