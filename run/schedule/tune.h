// Chooses two numbers for each stage by simulation: its depth, the maximum number of microbatches
// in flight, and its lead, by how many microbatches activations go ahead of gradients
// (PolicyOptions::activation_lead). TuneWithMargin also allows for late messages. Pure and
// deterministic.
#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/status.h"
#include "run/schedule/cost.h"
#include "run/schedule/search_limit.h"

namespace longhaul::schedule {

// Depths are good enough if a step is at most this share longer than with unlimited depths.
inline constexpr double kDepthTolerance = 0.01;
// PipelineCost::shared_efficiency of the second simulation of a choice, because a choice must also
// be good if shared interfaces lose 5 % of their rate. At 10 Mbit/s TCP can lose more
// (docs/gotchas/transport.md).
inline constexpr double kPessimisticEfficiency = 0.95;
// Messages may take this much longer than measured, because threads wait for a core or a proxy adds
// delay. Example: two stages of 9 ms behind a proxy took twice as long with no microbatch to spare
// as with one to spare.
inline constexpr absl::Duration kUnforeseenDelay = absl::Milliseconds(5);
// Links may be faster than measured by this factor: a probe lasts a second or two, and over a long
// distance TCP takes longer to reach its full rate. A plan for the measured rate then has too few
// microbatches in flight, and the link is idle at times. Example: eight stages at 25 ms, planned
// for half the real rate, took 2.6 times as long as possible.
inline constexpr double kUnforeseenRate = 4.0 / 3;

// Returns the work of one simulation: slices of a step x stages x stages; if steps overlap, as many
// times this as it simulates steps. 4,096 units (eight stages, 64 microbatches of one slice) take
// one to two milliseconds.
uint64_t WorkOf(const PipelineCost& cost);

// Budget of one search in units of WorkOf: one to two seconds. A pipeline of 25 stages with 64
// microbatches is searched to the end.
inline constexpr uint64_t kMostWork = 5'000'000;

struct TuneOptions {
  bool depths = true;            // search depths; false: keep the depths of the cost
  std::optional<uint32_t> lead;  // of all stages, as far as depths allow; nullopt: search the best
  // Budget in units of WorkOf. When it is spent, the search returns the best choice so far. It is
  // not a time, so that the result is the same on all machines.
  uint64_t most_work = kMostWork;
  SearchLimit limit;  // once it is over, the search returns the best choice so far
  std::stop_token stop;
};

struct Tuning {
  // One value for each stage. A lead is at most the least depth of the stages above.
  std::vector<uint32_t> depths, leads;
  // Times of simulated steps:
  absl::Duration step;       // with these depths and leads
  absl::Duration as_ready;   // with these depths and no lead
  absl::Duration limited;    // with the depths of `cost` and the best lead for them
  absl::Duration unlimited;  // with all microbatches in flight and the best lead; if
                             // TuneOptions::depths is false: `step`
  uint32_t simulations = 0;  // number of simulations of the search
  // For people: why a large pipeline was not searched in full, a sentence without its full stop.
  // Empty: it was searched in full, or until TuneOptions::limit was over.
  std::string cut_short;
};

// Chooses depths and leads. `cost.stages[s].depth` is the maximum depth of stage s. Choices are
// compared by their score: the mean of two simulated steps, one without and one with loss at shared
// interfaces (kPessimisticEfficiency). The search lowers the depths of all stages together, then
// stage by stage from the last, as long as the score stays good enough: at most kDepthTolerance
// above that of unlimited depths, or at most that of the maximum depths if this is worse. All
// stages get the same lead, as far as depths above allow; of equally good leads the largest is
// taken. Large pipelines are searched coarsely: one depth for all stages, few leads. kCancelled
// once options.stop is requested; kInvalidArgument if Simulate() refuses `cost`. The same errors
// for TuneWithMargin.
StatusOr<Tuning> Tune(const PipelineCost& cost, const TuneOptions& options);

// The pipeline of `cost` under other conditions. `late`: messages take kUnforeseenDelay longer.
// `late_and_fast`: as `late`, and all rates are multiplied by kUnforeseenRate.
struct Unforeseen {
  PipelineCost late, late_and_fast;
};
Unforeseen UnforeseenOf(const PipelineCost& cost);

// Like Tune, but with a margin for unforeseen conditions. Two searches tune the two pipelines of
// Unforeseen; each stage gets the larger of its two depths. A third search on `cost` keeps these
// depths and finds the leads, so `limited` and `unlimited` are steps with these depths, too. Each
// of the three searches may spend `most_work`.
StatusOr<Tuning> TuneWithMargin(const PipelineCost& cost, const TuneOptions& options);

}  // namespace longhaul::schedule
