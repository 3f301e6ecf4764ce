// What the simulator would choose for a pipeline: how many microbatches each stage keeps in flight,
// such that they still do where messages are a little late, and by how much activations go before
// gradients. Pure and deterministic.
#ifndef LONGHAUL_RUN_SCHEDULE_TUNE_H_
#define LONGHAUL_RUN_SCHEDULE_TUNE_H_

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/status.h"
#include "run/schedule/cost.h"

namespace longhaul::schedule {

// A step that is longer by this share than that of unlimited depths is as good.
inline constexpr double kDepthTolerance = 0.01;
// PipelineCost::shared_efficiency of the second opinion: a choice that is good only where shared
// interfaces lose nothing is not good. What TCP loses at 10 Mbit/s is more than this
// (docs/gotchas/transport.md), but not everywhere.
inline constexpr double kPessimisticEfficiency = 0.95;
// What messages may be longer under way than is known: threads that wait for a core, a proxy on the
// way. Two stages of 9 ms with no microbatch to spare took twice as long behind a proxy as with
// one.
inline constexpr absl::Duration kUnforeseenDelay = absl::Milliseconds(5);
// What links may be faster than was measured in a second or two: over a long way TCP takes longer
// to get up to speed. Too few microbatches in flight then leave idle what is there: planned for
// half the rate, eight stages at 25 ms took 2.6 times as long as they could have.
inline constexpr double kUnforeseenRate = 4.0 / 3;

// What a simulation costs, in slices of a step times stages squared: its events, and the stages
// that each of them looks at. 4,096 of it, eight stages with 64 microbatches whole, take one to two
// milliseconds.
uint64_t WorkOf(const PipelineCost& cost);

// Simulated work of one search, one to two seconds of it. 25 stages with 64 microbatches are
// searched to the end.
inline constexpr uint64_t kMostWork = 5'000'000;

struct TuneOptions {
  bool depths = true;            // else they are the cost's
  std::optional<uint32_t> lead;  // of all stages, where depths allow it; nullopt: the best
  // When the simulations took this, the best so far counts. A search that needs more is the same
  // on every machine, which it would not be with a limit of time.
  uint64_t most_work = kMostWork;
  std::stop_token stop;
};

struct Tuning {
  // One a stage. A lead is at most the least depth above.
  std::vector<uint32_t> depths, leads;
  // Steps as Simulate() has them:
  absl::Duration step;       // with these
  absl::Duration as_ready;   // with these depths and no lead
  absl::Duration limited;    // with the depths of `cost` and the best lead for them
  absl::Duration unlimited;  // with a depth of all microbatches and the best lead for it
  uint32_t simulations = 0;  // that it took
  // What was left out because the pipeline is large: a sentence for people, without its full stop.
  // "": nothing.
  std::string cut_short;
};

// `cost.stages[s].depth` is the most that stage s can hold. The depths that come out are the
// smallest (the last stage's first) with which a step takes at most kDepthTolerance longer than
// with unlimited ones, or no longer than with `cost`'s where those are worse. Leads are alike but
// for what depths above allow; of equally good ones the largest. Better is what is so on average of
// both opinions on shared interfaces. Large pipelines are searched coarsely: one depth for all
// stages, few leads. kCancelled once `stop` is requested.
StatusOr<Tuning> Tune(const PipelineCost& cost, const TuneOptions& options);

// The same pipeline where messages take kUnforeseenDelay longer, and where besides all rates are
// kUnforeseenRate of what they are.
struct Unforeseen {
  PipelineCost late, late_and_fast;
};
Unforeseen UnforeseenOf(const PipelineCost& cost);

// As plans have it: depths are the larger of those that Tune finds where every message takes
// kUnforeseenDelay longer, and where besides all rates are kUnforeseenRate of what they are, so
// that they still do there; leads and steps, `limited` and `unlimited` too, are those of these
// depths on `cost` itself. Each of the three searches may take `most_work`.
StatusOr<Tuning> TuneWithMargin(const PipelineCost& cost, const TuneOptions& options);

}  // namespace longhaul::schedule

#endif  // LONGHAUL_RUN_SCHEDULE_TUNE_H_
