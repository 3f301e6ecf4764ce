#include "deploy/sweep/report_model.h"

#include <fmt/core.h>

#include <algorithm>

#include "deploy/sweep/html.h"

namespace longhaul::cli {
namespace {

template <class T>
int IndexOf(std::vector<T>* values, const T& value) {
  const auto it = std::ranges::find(*values, value);
  if (it != values->end()) return static_cast<int>(it - values->begin());
  values->push_back(value);
  return static_cast<int>(values->size()) - 1;
}

}  // namespace

ReportModel::ReportModel(const SweepResults& results) : results_(results) {
  for (const PointResult& point : results.points) {
    IndexOf(&settings_, SettingOf(point));
    IndexOf(&rates_, point.rate_bits_per_second);
    IndexOf(&links_, point.links);
    IndexOf(&schedules_, point.schedule);
    repeats_ = repeats_ || point.repeat > 1;
  }
  std::ranges::sort(rates_, std::greater<>());
  for (size_t i = 0; i < links_.size(); ++i) {
    for (size_t j = 0; j < schedules_.size(); ++j) {
      curves_.push_back({.links = links_[i],
                         .schedule = schedules_[j],
                         .name = schedules_.size() > 1
                                     ? fmt::format("{}, {}", links_[i], schedules_[j])
                                     : links_[i],
                         .colour = static_cast<int>(i),
                         .shape = static_cast<int>(j)});
    }
  }
  const bool delays = std::ranges::any_of(
      settings_, [](const ReportSetting& setting) { return setting.delay_seconds > 0; });
  for (ReportSetting& setting : settings_) {
    if (delays) {
      setting.title = setting.delay_seconds > 0
                          ? fmt::format("{} one way", TimeSpanText(setting.delay_seconds))
                          : "no delay";
    }
    if (setting.variant.empty()) continue;
    setting.title += (setting.title.empty() ? "" : ", ") + setting.variant;
  }
}

ReportSetting ReportModel::SettingOf(const PointResult& point) {
  return {.delay_seconds = point.delay_seconds, .variant = point.variant, .title = ""};
}

std::vector<const PointResult*> ReportModel::Done(const ReportSetting& setting, uint64_t rate,
                                                  const std::string& links,
                                                  const std::string& schedule) const {
  std::vector<const PointResult*> points;
  for (const PointResult& point : results_.points) {
    if (point.state == PointState::kMeasured && point.rate_bits_per_second == rate &&
        point.links == links && point.schedule == schedule &&
        point.delay_seconds == setting.delay_seconds && point.variant == setting.variant) {
      points.push_back(&point);
    }
  }
  return points;
}

std::vector<const PointResult*> ReportModel::Done() const {
  std::vector<const PointResult*> points;
  for (const PointResult& point : results_.points) {
    if (point.state == PointState::kMeasured) points.push_back(&point);
  }
  return points;
}

std::optional<double> ReportModel::TokensPerSecond(const ReportSetting& setting, uint64_t rate,
                                                   const std::string& links,
                                                   const std::string& schedule) const {
  std::vector<double> values;
  for (const PointResult* point : Done(setting, rate, links, schedule)) {
    values.push_back(point->TokensPerSecond());
  }
  if (values.empty()) return std::nullopt;
  std::ranges::sort(values);
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

std::string ReportModel::ShortName(const PointResult& point) const {
  std::string name = point.links;
  if (schedules_.size() > 1) name += ", " + point.schedule;
  if (repeats_) name += fmt::format(", repeat {}", point.repeat);
  return name;
}

std::string ReportModel::LongName(const PointResult& point) const {
  std::string name = RateLabel(static_cast<double>(point.rate_bits_per_second));
  if (point.delay_seconds > 0) {
    name += fmt::format(", {} one way", TimeSpanText(point.delay_seconds));
  }
  if (!point.variant.empty()) name += ", " + point.variant;
  return name + ", " + ShortName(point);
}

}  // namespace longhaul::cli
