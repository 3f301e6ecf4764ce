#include "deploy/sweep/points.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

namespace longhaul::cli {
namespace {

constexpr uint32_t kMostWorkers = 64;
constexpr size_t kMostPoints = 10'000;
// Longest part of the base run's name, so that "-p10000" fits behind it.
constexpr size_t kNamePrefix = 32;

std::string IdOf(const SweepPoint& point) {
  std::vector<std::string> parts = {RateText(point.rate_bits_per_second), DelayText(point.delay),
                                    point.links.name, std::string(ToString(point.schedule))};
  if (!point.variant.empty()) parts.push_back(point.variant);
  parts.push_back(fmt::format("r{}", point.repeat));
  return fmt::format("{}", fmt::join(parts, "/"));  // which no name has in it
}

std::vector<std::string> OverridesOf(const SweepPoint& point, const SweepSpec& sweep,
                                     const SweepVariant* variant,
                                     const std::vector<std::string>& more,
                                     const std::string& base_name) {
  std::vector<std::string> overrides = sweep.set;
  overrides.insert(overrides.end(), more.begin(), more.end());
  if (variant != nullptr) {
    overrides.insert(overrides.end(), variant->set.begin(), variant->set.end());
  }
  overrides.push_back(
      fmt::format("name={}-p{}", base_name.substr(0, kNamePrefix), point.index + 1));
  // Canonical codec strings have no quotes or backslashes in them.
  overrides.push_back(fmt::format("links.forward=\"{}\"", ToString(point.links.codecs.forward)));
  overrides.push_back(fmt::format("links.backward=\"{}\"", ToString(point.links.codecs.backward)));
  overrides.push_back(fmt::format("pipeline.schedule={}", ToString(point.schedule)));
  return overrides;
}

// Keys that the sweep sets for every point: changes must not set them. `schedule`: includes
// pipeline.schedule.
Status CheckChanges(const std::vector<std::string>& changes, std::string_view where,
                    bool schedule) {
  constexpr std::string_view kSchedule = "pipeline.schedule";
  constexpr std::pair<std::string_view, std::string_view> kSwept[] = {
      {"name", "the sweep names its runs"},
      {"links", "name codec pairs in the sweep's `links`, other keys one by one"},
      {"links.forward", "name codec pairs in the sweep's `links`"},
      {"links.backward", "name codec pairs in the sweep's `links`"},
      {"links.measure", "a sweep measures the links before each run"},
      {"pipeline", "give its keys one by one, such as pipeline.depth"},
      {kSchedule, "name it in the sweep's `schedules`"},
  };
  for (const std::string& change : changes) {
    const std::string_view key = std::string_view(change).substr(0, change.find('='));
    for (const auto& [swept, instead] : kSwept) {
      if (key != swept || (key == kSchedule && !schedule)) continue;
      return InvalidArgument("{} changes {}, which is the sweep's to say: {}", where, key, instead);
    }
  }
  return absl::OkStatus();
}

// What every run of the sweep needs and this one's spec does not allow, or "".
std::string Problem(const SweepPoint& point, const SweepSpec& sweep, uint32_t workers) {
  const RunSpec& spec = point.spec;
  if (spec.train.steps <= sweep.warm_up) {
    return fmt::format(
        "train.steps is {} and the first {} steps are warm-up, so none is left to measure; raise "
        "train.steps or lower warm_up",
        spec.train.steps, sweep.warm_up);
  }
  if (spec.replicas.count_auto) {
    return "pipeline.replicas is auto, and points of a sweep are compared at a number that each of "
           "them says; set pipeline.replicas, or make a variant of each number";
  }
  const uint32_t stages = spec.pipeline.stages.value_or(1), replicas = spec.replicas.count;
  if (stages * replicas > workers) {
    return fmt::format(
        "its {}{} stages need as many workers, and the sweep's cluster has {}; raise "
        "workers or lower pipeline.stages{}",
        replicas > 1 ? fmt::format("{} times ", replicas) : "", stages, workers,
        replicas > 1 ? " or pipeline.replicas" : "");
  }
  return "";
}

// As many as the runs that say it have stages in all replicas.
StatusOr<uint32_t> WorkersOf(const SweepSpec& sweep, const std::vector<SweepPoint>& points) {
  if (sweep.workers) return *sweep.workers;
  uint32_t workers = 1;
  for (const SweepPoint& point : points) {
    if (!point.impossible.empty()) continue;
    if (!point.spec.pipeline.stages) {
      return absl::InvalidArgumentError(
          "pipeline.stages of the base run is auto, so the sweep does not know how many workers "
          "its cluster shall have; add `workers: 4` to the sweep file, or set pipeline.stages");
    }
    workers = std::max(workers, *point.spec.pipeline.stages * point.spec.replicas.count);
  }
  // More are then impossible points.
  return std::min(workers, kMostWorkers);
}

}  // namespace

StatusOr<SweepPlan> MakeSweepPlan(const SweepSpec& sweep, std::string_view base_yaml,
                                  std::string_view base_file,
                                  const std::vector<std::string>& more) {
  const bool swept_schedule = !sweep.schedules.empty();
  LH_RETURN_IF_ERROR(CheckChanges(sweep.set, "the sweep's `set`", swept_schedule));
  LH_RETURN_IF_ERROR(CheckChanges(more, "--set", swept_schedule));
  for (const SweepVariant& variant : sweep.variants) {
    LH_RETURN_IF_ERROR(CheckChanges(
        variant.set, fmt::format("the sweep's variant '{}'", variant.name), /*schedule=*/true));
  }
  std::vector<std::string> always = sweep.set;
  always.insert(always.end(), more.begin(), more.end());
  SweepPlan plan;
  LH_ASSIGN_OR_RETURN(plan.base, ParseRunSpec(base_yaml, base_file, always));
  if (plan.base.topology) {
    return InvalidArgument(
        "{}: the base run of a sweep has a topology, and the sweep says itself what links are "
        "like, the same for all workers; remove the key 'topology'",
        base_file);
  }
  std::vector<ScheduleKind> schedules = sweep.schedules;
  if (schedules.empty()) schedules.push_back(plan.base.pipeline.schedule);
  std::vector<const SweepVariant*> variants;
  for (const SweepVariant& variant : sweep.variants) variants.push_back(&variant);
  if (variants.empty()) variants.push_back(nullptr);

  const size_t count = size_t{sweep.repeats} * variants.size() * sweep.delays.size() *
                       sweep.rates.size() * sweep.links.size() * schedules.size();
  if (count > kMostPoints) {
    return InvalidArgument(
        "the sweep has {} points and may have {}; leave out rates, delays, links, schedules, "
        "variants or repeats",
        count, kMostPoints);
  }
  const auto add = [&](uint32_t repeat, const SweepVariant* variant, absl::Duration delay,
                       uint64_t rate, const SweepCodecs& links, ScheduleKind schedule) {
    SweepPoint point;
    point.index = static_cast<uint32_t>(plan.points.size());
    point.rate_bits_per_second = rate;
    point.delay = delay;
    point.links = links;
    point.schedule = schedule;
    if (variant != nullptr) point.variant = variant->name;
    point.repeat = repeat;
    point.id = IdOf(point);
    point.overrides = OverridesOf(point, sweep, variant, more, plan.base.name);
    StatusOr<RunSpec> spec = ParseRunSpec(base_yaml, base_file, point.overrides);
    if (spec.ok()) {
      point.spec = *std::move(spec);
    } else {
      point.impossible = Message(spec.status());
    }
    plan.points.push_back(std::move(point));
  };
  // Repeats outermost: what drifts on the machine then hits all points alike.
  for (uint32_t repeat = 1; repeat <= sweep.repeats; ++repeat) {
    for (const SweepVariant* variant : variants) {
      for (const absl::Duration delay : sweep.delays) {
        for (const uint64_t rate : sweep.rates) {
          for (const SweepCodecs& links : sweep.links) {
            for (const ScheduleKind schedule : schedules) {
              add(repeat, variant, delay, rate, links, schedule);
            }
          }
        }
      }
    }
  }
  std::set<std::string_view> ids;
  for (const SweepPoint& point : plan.points) {
    if (ids.insert(point.id).second) continue;
    return InvalidArgument(
        "two points of the sweep are called {}: values of one list must differ by what "
        "is shown of them",
        point.id);
  }
  LH_ASSIGN_OR_RETURN(plan.workers, WorkersOf(sweep, plan.points));
  for (SweepPoint& point : plan.points) {
    if (point.impossible.empty()) point.impossible = Problem(point, sweep, plan.workers);
  }
  return plan;
}

std::string Describe(const SweepPoint& point, const SweepSpec& sweep) {
  std::vector<std::string> parts;
  if (sweep.shaped) parts.push_back(RateText(point.rate_bits_per_second));
  if (sweep.delays.size() > 1 || point.delay > absl::ZeroDuration()) {
    parts.push_back(DelayText(point.delay));
  }
  parts.push_back(point.links.name);
  if (sweep.schedules.size() > 1) parts.emplace_back(ToString(point.schedule));
  if (!point.variant.empty()) parts.push_back(point.variant);
  if (sweep.repeats > 1) parts.push_back(fmt::format("repeat {}", point.repeat));
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace longhaul::cli
