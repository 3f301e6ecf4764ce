// The schedules that a run file may choose (pipeline.schedule), one row of traits each. Code that
// treats schedules differently asks for a trait, never for the kind. A new schedule is a value of
// the enum and its row here, and a change of run/schedule/policy.cc if no trait describes its
// behaviour.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace longhaul {

enum class ScheduleKind : uint8_t { kLinkAware, kOneFOneB, kGpipe, kTwoVersions };

// How many microbatches a stage keeps in flight (its depth).
enum class DepthRule : uint8_t {
  kAsLinksNeed,     // the planner searches: as many as keep the links busy and memory holds
  kStagesFromHere,  // at most the stages from this one to the last
  kWholeStep,       // all microbatches of a step
};

struct ScheduleTraits {
  ScheduleKind kind;
  std::string_view name;  // in run files
  DepthRule depth;
  std::string_view depth_words = "";  // the rule in words, for people; empty: planner searches
  // The first backward of a step waits for the last forward.
  bool forwards_first = false;
  // Activations may go ahead of gradients on the wire (pipeline.send_order). False: data leave as
  // soon as they are ready.
  bool orders_data = false;
  // PipeDream-2BW: the passes of a step compute with the parameters from before the last update,
  // so the passes of the next step begin while this one is not done.
  bool overlaps_steps = false;
  // The schedule with the same passes in one step, but without overlapping steps.
  ScheduleKind without_overlap = kind;

  // Properties that follow from the traits above.
  constexpr bool searches_depth() const { return depth == DepthRule::kAsLinksNeed; }
  constexpr bool may_hold_whole_step() const {
    return searches_depth() || depth == DepthRule::kWholeStep;
  }
  // Depths may change only between two steps, and overlapping steps have no such point.
  constexpr bool may_change_depth() const { return searches_depth() && !overlaps_steps; }
  constexpr uint32_t weight_versions() const { return overlaps_steps ? 2 : 1; }
};

inline constexpr std::array kSchedules = {
    ScheduleTraits{.kind = ScheduleKind::kLinkAware,
                   .name = "link-aware",
                   .depth = DepthRule::kAsLinksNeed,
                   .orders_data = true},
    ScheduleTraits{.kind = ScheduleKind::kOneFOneB,
                   .name = "1f1b",
                   .depth = DepthRule::kStagesFromHere,
                   .depth_words = "the stages from here on"},
    ScheduleTraits{.kind = ScheduleKind::kGpipe,
                   .name = "gpipe",
                   .depth = DepthRule::kWholeStep,
                   .depth_words = "all of a step",
                   .forwards_first = true,
                   .orders_data = true},
    ScheduleTraits{.kind = ScheduleKind::kTwoVersions,
                   .name = "2bw",
                   .depth = DepthRule::kAsLinksNeed,
                   .overlaps_steps = true,
                   .without_overlap = ScheduleKind::kLinkAware},
};

inline constexpr auto kScheduleKinds = [] {
  std::array<ScheduleKind, kSchedules.size()> kinds{};
  for (size_t i = 0; i < kinds.size(); ++i) kinds[i] = kSchedules[i].kind;
  return kinds;
}();

constexpr const ScheduleTraits& TraitsOf(ScheduleKind kind) {
  return kSchedules[static_cast<size_t>(kind)];
}
constexpr std::string_view ToString(ScheduleKind kind) {
  return TraitsOf(kind).name;
}

// The depth of a stage if none is requested. A schedule whose depth the planner searches gets 1,
// the least depth. `stages_from_here`: this stage and all after it. `microbatches`: of a step.
constexpr uint32_t UsualDepth(ScheduleKind kind, uint32_t stages_from_here, uint32_t microbatches) {
  switch (TraitsOf(kind).depth) {
    case DepthRule::kWholeStep:
      return microbatches;
    case DepthRule::kStagesFromHere:
      return stages_from_here;
    case DepthRule::kAsLinksNeed:
      break;
  }
  return 1;
}
// The depth that a stage uses if `asked` is requested, by the run file or the plan.
constexpr uint32_t AllowedDepth(ScheduleKind kind, uint32_t asked, uint32_t stages_from_here,
                                uint32_t microbatches) {
  if (TraitsOf(kind).searches_depth()) return asked;
  const uint32_t usual = UsualDepth(kind, stages_from_here, microbatches);
  return TraitsOf(kind).depth == DepthRule::kWholeStep ? usual : std::min(asked, usual);
}

static_assert(
    [] {
      for (const ScheduleTraits& row : kSchedules) {
        if (&row != &TraitsOf(row.kind)) return false;
      }
      return true;
    }(),
    "rows stand in the order of the enum");

}  // namespace longhaul
