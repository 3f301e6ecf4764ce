// longhaul-schedule-bench: what share of the lower bound each policy reaches, and what a simulation
// takes.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "base/schedule/simulator.h"
#include "base/schedule/tune.h"
#include "base/status.h"
#include "codec/codec.h"
#include "codec/registry.h"

namespace longhaul::bench {
namespace {

using schedule::PipelineCost;
using schedule::Simulation;

constexpr double kGoodput = 1448.0 / 1514.0;
constexpr double kChunkBytes = 64 << 10, kHeaderBytes = 160;

struct Setting {
  std::string name;
  uint32_t stages, microbatches;
  codec::Shape shape;
  absl::Duration forward, backward;
};

struct Codecs {
  std::string name, forward, backward;
};

double WireBytes(const std::string& text, const codec::Shape& shape) {
  const auto codec = codec::ParseCodec(text);
  if (!codec.ok()) {
    fmt::print(stderr, "{}: {}\n", text, Message(codec.status()));
    std::exit(1);
  }
  const auto bytes = static_cast<double>((*codec)->MaxEncodedBytes(shape));
  return bytes * (1 + kHeaderBytes / kChunkBytes);
}

PipelineCost CostOf(const Setting& setting, const Codecs& codecs, double mbit,
                    absl::Duration delay) {
  PipelineCost cost;
  cost.microbatches = setting.microbatches;
  const double rate = mbit * 1e6 / 8 * kGoodput;
  cost.stages.assign(setting.stages, {.forward = setting.forward,
                                      .backward = setting.backward,
                                      .egress_bytes_per_second = rate,
                                      .ingress_bytes_per_second = rate,
                                      .depth = setting.microbatches});
  cost.boundaries.assign(setting.stages - 1,
                         {.forward_bytes = WireBytes(codecs.forward, setting.shape),
                          .backward_bytes = WireBytes(codecs.backward, setting.shape),
                          .forward_latency = delay,
                          .backward_latency = delay});
  return cost;
}

struct Policy {
  ScheduleKind kind;
  uint32_t lead;
};

void Row(const Setting& setting, const Codecs& codecs, double mbit, absl::Duration delay) {
  const std::vector<Policy> policies = {{ScheduleKind::kGpipe, 0},
                                        {ScheduleKind::kOneFOneB, 0},
                                        {ScheduleKind::kLinkAware, 0},
                                        {ScheduleKind::kLinkAware, setting.microbatches - 1}};
  PipelineCost cost = CostOf(setting, codecs, mbit, delay);
  std::string shares;
  Simulation last;
  for (const Policy& policy : policies) {
    cost.schedule = policy.kind;
    for (size_t s = 1; s < cost.stages.size(); ++s) cost.stages[s].activation_lead = policy.lead;
    const auto result = schedule::Simulate(cost);
    if (!result.ok()) {
      shares += fmt::format(" {:>8}", "-");
      continue;
    }
    last = *result;
    shares += fmt::format(" {:7.2f}%", 100 * absl::FDivDuration(result->lower_bound, result->step));
  }
  PipelineCost tuned = cost;
  const auto begin = std::chrono::steady_clock::now();
  const auto tuning = schedule::Tune(tuned, {});
  const double ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  for (size_t s = 0; s < cost.stages.size(); ++s) {
    tuned.stages[s].depth = tuning->depths[s];
    tuned.stages[s].activation_lead = tuning->leads[s];
  }
  const auto result = schedule::Simulate(tuned);
  shares += fmt::format(" {:7.2f}% {} {} {} {:.0f}ms",
                        100 * absl::FDivDuration(result->lower_bound, result->step),
                        fmt::join(tuning->depths, ","), tuning->leads[1], tuning->simulations, ms);
  const double tokens = static_cast<double>(setting.shape.samples) *
                        static_cast<double>(setting.shape.tokens) * setting.microbatches;
  fmt::print("{:9} {:8} {:6.0f} {:>6} {:9.3f} {:9.0f}{}  {}\n", setting.name, codecs.name, mbit,
             absl::FormatDuration(delay), absl::ToDoubleSeconds(last.lower_bound),
             tokens / absl::ToDoubleSeconds(last.lower_bound), shares, last.bottleneck);
}

int Main(int argc, char** argv) {
  (void)argc;
  (void)argv;
  const Setting gpt2{
      "gpt2-xl", 8, 32, {1, 1024, 1600}, absl::Microseconds(5200), absl::Microseconds(10400)};
  const Setting nano{
      "nanogpt", 8, 64, {8, 1024, 1024}, absl::Milliseconds(10), absl::Milliseconds(20)};
  const std::vector<Codecs> pairs = {{"none", "none", "none"},
                                     {"bf16", "bf16", "bf16"},
                                     {"paper", "tah", "fixed:bits=6"},
                                     {"default", "tah", "fixed:bits=4,rounding=stochastic"},
                                     {"3bit", "tah", "fixed:bits=3,rounding=stochastic"}};
  for (const double delay : {0, 25}) {
    for (const Codecs& codecs : pairs) {
      for (const double mbit : {1000, 500, 300, 100}) {
        Row(gpt2, codecs, mbit, absl::Milliseconds(delay));
      }
    }
  }
  for (const size_t i : {1, 3}) Row(nano, pairs[i], 200, absl::Milliseconds(50));
  const PipelineCost cost = CostOf(nano, pairs[1], 200, absl::Milliseconds(50));
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 100; ++i) (void)schedule::Simulate(cost).ok();
  fmt::print(
      "one simulation: {:.3f} ms\n",
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count() /
          100);
  return 0;
}

}  // namespace
}  // namespace longhaul::bench

int main(int argc, char** argv) {
  return longhaul::bench::Main(argc, argv);
}
