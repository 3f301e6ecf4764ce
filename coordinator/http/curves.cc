#include "coordinator/http/curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

namespace longhaul::coordinator {
namespace {

constexpr size_t kPage = 2048;
// A validation comes into the row of a step that was stored before: so many rows are read again.
constexpr uint64_t kAgain = 16;

struct Field {
  std::string_view name;
  bool (*has)(const v1::StepRecord&);
  double (*value)(const v1::StepRecord&);
};

bool IsStep(const v1::StepRecord& row) {
  return row.step() > 0;
}

constexpr Field kFields[] = {
    {"loss", [](const v1::StepRecord& row) { return row.has_loss(); },
     [](const v1::StepRecord& row) { return row.loss(); }},
    {"validation_loss", [](const v1::StepRecord& row) { return row.has_validation(); },
     [](const v1::StepRecord& row) { return row.validation_loss(); }},
    {"clean_validation_loss",
     [](const v1::StepRecord& row) { return row.has_clean_validation_loss(); },
     [](const v1::StepRecord& row) { return row.clean_validation_loss(); }},
    {"gradient_norm", IsStep, [](const v1::StepRecord& row) { return row.gradient_norm(); }},
    {"learning_rate", IsStep, [](const v1::StepRecord& row) { return row.learning_rate(); }},
    {"seconds", IsStep, [](const v1::StepRecord& row) { return row.seconds(); }},
    {"link_bytes", IsStep,
     [](const v1::StepRecord& row) { return static_cast<double>(row.link_bytes()); }},
};

std::vector<Curve> EmptyCurves() {
  std::vector<Curve> curves;
  for (const Field& field : kFields) curves.push_back({std::string(field.name), {}, {}});
  return curves;
}

// Removes the points from `step` on.
void CutFrom(uint64_t step, std::vector<Curve>* curves) {
  for (Curve& curve : *curves) {
    const auto from = std::ranges::lower_bound(curve.steps, step);
    curve.values.resize(static_cast<size_t>(from - curve.steps.begin()));
    curve.steps.erase(from, curve.steps.end());
  }
}

void Append(const v1::StepRecord& row, std::vector<Curve>* curves) {
  for (size_t i = 0; i < std::size(kFields); ++i) {
    if (!kFields[i].has(row)) continue;
    const double value = kFields[i].value(row);
    if (!std::isfinite(value)) continue;
    (*curves)[i].steps.push_back(row.step());
    (*curves)[i].values.push_back(value);
  }
}

}  // namespace

Curve Sample(const Curve& curve, const CurveWindow& window) {
  Curve sample{curve.name, {}, {}};
  const auto begin = std::ranges::lower_bound(curve.steps, window.first);
  const auto end = std::ranges::upper_bound(curve.steps, window.last);
  if (begin >= end) return sample;
  const auto first = static_cast<size_t>(begin - curve.steps.begin());
  const auto count = static_cast<size_t>(end - begin);
  const auto add = [&](size_t at) {
    sample.steps.push_back(curve.steps[at]);
    sample.values.push_back(curve.values[at]);
  };
  if (count <= window.points) {
    for (size_t at = first; at < first + count; ++at) add(at);
    return sample;
  }
  add(first);
  // What is between the first and the last point.
  const size_t inner = count - 2, parts = (window.points - 2) / 2;
  for (size_t part = 0; part < parts; ++part) {
    const size_t from = first + 1 + inner * part / parts;
    const size_t to = first + 1 + inner * (part + 1) / parts;
    if (from == to) continue;
    size_t least = from, greatest = from;
    for (size_t at = from; at < to; ++at) {
      if (curve.values[at] < curve.values[least]) least = at;
      if (curve.values[at] > curve.values[greatest]) greatest = at;
    }
    add(std::min(least, greatest));
    if (least != greatest) add(std::max(least, greatest));
  }
  add(first + count - 1);
  return sample;
}

std::shared_ptr<CurveBook::Kept> CurveBook::Find(const std::string& run) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Kept>& kept = runs_[run];
  if (kept == nullptr) kept = std::make_shared<Kept>();
  kept->used = ++uses_;
  std::shared_ptr<Kept> found = kept;
  if (runs_.size() > kRuns) {
    runs_.erase(
        std::ranges::min_element(runs_, {}, [](const auto& entry) { return entry.second->used; }));
  }
  return found;
}

Status CurveBook::ReadOn(const v1::RunStatus& run, Kept* kept) const {
  if (kept->epoch != run.epoch() || kept->curves.empty() || kept->next > run.step() + 1) {
    kept->epoch = run.epoch();
    kept->next = 0;
    kept->curves = EmptyCurves();
  }
  const uint64_t from = kept->next > kAgain ? kept->next - kAgain : 0;
  CutFrom(from, &kept->curves);
  kept->next = from;
  while (true) {
    LH_ASSIGN_OR_RETURN(const std::vector<v1::StepRecord> rows,
                        read_(RunId(run.run_id()), kept->next, kPage));
    for (const v1::StepRecord& row : rows) {
      // What is behind the newest step was given up.
      if (row.step() > run.step()) return absl::OkStatus();
      Append(row, &kept->curves);
      kept->next = row.step() + 1;
    }
    if (rows.size() < kPage) return absl::OkStatus();
  }
}

StatusOr<std::vector<Curve>> CurveBook::Of(const v1::RunStatus& run, const CurveWindow& window) {
  const std::shared_ptr<Kept> kept = Find(run.run_id());
  const std::lock_guard lock(kept->mutex);
  LH_RETURN_IF_ERROR(ReadOn(run, kept.get()));
  std::vector<Curve> samples;
  for (const Curve& curve : kept->curves) {
    Curve sample = Sample(curve, window);
    if (!sample.steps.empty()) samples.push_back(std::move(sample));
  }
  return samples;
}

std::string CurvesJson(const v1::RunStatus& run, const std::vector<Curve>& curves) {
  std::string text = fmt::format(R"({{"run":{},"step":{},"epoch":{},"curves":{{)",
                                 nlohmann::json(run.run_id()).dump(), run.step(), run.epoch());
  for (const Curve& curve : curves) {
    if (&curve != &curves.front()) text += ',';
    text += fmt::format(R"("{}":{{"steps":[{}],"values":[{:.7g}]}})", curve.name,
                        fmt::join(curve.steps, ","), fmt::join(curve.values, ","));
  }
  return text + "}}";
}

}  // namespace longhaul::coordinator
