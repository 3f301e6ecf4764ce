// Chooses by simulation how many microbatches each stage keeps in flight, and by how many
// microbatches activations go ahead of gradients (its lead). Depths keep a margin for messages that
// arrive a little late. Pure and deterministic.
#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/status.h"
#include "run/schedule/cost.h"

namespace longhaul::schedule {

// A step counts as good if it is at most this share longer than with unlimited depths.
inline constexpr double kDepthTolerance = 0.01;
// PipelineCost::shared_efficiency of a second simulation. A choice must be good also if shared
// interfaces lose some of their rate. TCP loses more than this at 10 Mbit/s
// (docs/gotchas/transport.md), but not everywhere.
inline constexpr double kPessimisticEfficiency = 0.95;
// Messages may take this much longer than measured, because threads wait for a core or a proxy adds
// delay. Behind a proxy, two stages of 9 ms took twice as long with no microbatch to spare as with
// one to spare.
inline constexpr absl::Duration kUnforeseenDelay = absl::Milliseconds(5);
// Links may be this many times as fast as measured: probes last a second or two, and over a long
// distance TCP takes longer to reach its rate. With too few microbatches in flight the link is then
// idle: eight stages at 25 ms that were planned for half the rate took 2.6 times as long as
// possible.
inline constexpr double kUnforeseenRate = 4.0 / 3;

// The work of a simulation in units of (slices of a step) x (stages squared): its events, times the
// stages that each event visits. 4,096 units (eight stages, 64 whole microbatches) take one to two
// milliseconds.
uint64_t WorkOf(const PipelineCost& cost);

// Budget of one search in units of WorkOf: one to two seconds. A pipeline of 25 stages with 64
// microbatches is searched to the end.
inline constexpr uint64_t kMostWork = 5'000'000;

struct TuneOptions {
  bool depths = true;            // false: keep the depths of the cost
  std::optional<uint32_t> lead;  // of all stages as far as depths allow; nullopt: the best
  // Budget in units of WorkOf; when it is spent, the best result so far counts. A time limit would
  // give other results on other machines.
  uint64_t most_work = kMostWork;
  std::stop_token stop;
};

struct Tuning {
  // One value a stage. A lead is at most the least depth above.
  std::vector<uint32_t> depths, leads;
  // Simulated steps:
  absl::Duration step;       // with these depths and leads
  absl::Duration as_ready;   // with these depths and no lead
  absl::Duration limited;    // with the depths of `cost` and the best lead for them
  absl::Duration unlimited;  // with a depth of all microbatches and the best lead; without a search
                             // of depths: `step`
  uint32_t simulations = 0;  // number of simulations of the search
  // What the search left out because the pipeline is large: a sentence for people, without its full
  // stop. Empty: nothing was left out.
  std::string cut_short;
};

// `cost.stages[s].depth` is the maximum of stage s. The chosen depths are the smallest (the last
// stage's first) with which a step takes at most kDepthTolerance longer than with unlimited depths;
// if the depths of `cost` are worse than that, a step takes no longer than with them. All stages
// have the same lead, as far as depths above allow; among equally good leads the largest is taken.
// The better one of two choices has the shorter mean of two steps: one simulated with and one
// without loss at shared interfaces. Large pipelines are searched coarsely: one depth for all
// stages, few leads. kCancelled once `stop` is requested.
StatusOr<Tuning> Tune(const PipelineCost& cost, const TuneOptions& options);

// The pipeline of `cost` under other conditions. `late`: messages take kUnforeseenDelay longer.
// `late_and_fast`: messages take as much longer, and all rates are multiplied by kUnforeseenRate.
struct Unforeseen {
  PipelineCost late, late_and_fast;
};
Unforeseen UnforeseenOf(const PipelineCost& cost);

// Tunes with a margin, for plans. Two searches tune the two pipelines of Unforeseen; each stage
// gets the larger of its two depths. A third search on `cost` itself keeps these depths and finds
// the leads and the steps; so `limited` and `unlimited` are steps with these depths, too. Each of
// the three searches may take `most_work`.
StatusOr<Tuning> TuneWithMargin(const PipelineCost& cost, const TuneOptions& options);

}  // namespace longhaul::schedule
