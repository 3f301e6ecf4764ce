// longhaul-simulate: run/schedule's simulator as a filter, for benchmarks.
//
// Standard input, seconds and bytes a second (null: unlimited), as simulator.h has them:
//   {"microbatches", "slices", "stages": [{"forward", "backward", "optimizer", "depth",
//   "activation_lead",
//    "bytes_per_second"}],
//    "boundaries": [{"forward": {"bytes", "encode", "decode"}, "backward": as forward}]}
// Without "slices": 1. Standard output: {"step_seconds", "lower_bound_seconds", "bottleneck",
// "floor_seconds", "busiest"}.
#include <fmt/core.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "base/status.h"
#include "run/schedule/simulator.h"

namespace longhaul::bench {
namespace {

using nlohmann::json;

absl::Duration Seconds(const json& object, const char* key) {
  return absl::Seconds(object.at(key).get<double>());
}

schedule::FlowCost FlowFromJson(const json& flow) {
  return {.bytes = flow.at("bytes"),
          .encode = Seconds(flow, "encode"),
          .decode = Seconds(flow, "decode")};
}

schedule::PipelineCost FromJson(const json& input) {
  schedule::PipelineCost cost;
  cost.microbatches = input.at("microbatches");
  cost.slices = input.value("slices", 1u);
  for (const json& stage : input.at("stages")) {
    const json& rate = stage.at("bytes_per_second");
    const double bytes_per_second = rate.is_null() ? schedule::kUnlimited : rate.get<double>();
    cost.stages.push_back({.forward = Seconds(stage, "forward"),
                           .backward = Seconds(stage, "backward"),
                           .optimizer = Seconds(stage, "optimizer"),
                           .egress_bytes_per_second = bytes_per_second,
                           .ingress_bytes_per_second = bytes_per_second,
                           .depth = stage.at("depth"),
                           .activation_lead = stage.at("activation_lead")});
  }
  for (const json& boundary : input.at("boundaries")) {
    cost.boundaries.push_back({.forward = FlowFromJson(boundary.at("forward")),
                               .backward = FlowFromJson(boundary.at("backward"))});
  }
  return cost;
}

int Main() {
  schedule::PipelineCost cost;
  try {
    cost = FromJson(json::parse(std::cin));
  } catch (const json::exception& error) {
    fmt::print(stderr, "longhaul-simulate: {}\n", error.what());
    return 2;
  }
  const auto simulation = schedule::Simulate(cost);
  if (!simulation.ok()) {
    fmt::print(stderr, "longhaul-simulate: {}\n", Message(simulation.status()));
    return 1;
  }
  fmt::print("{}\n", json{{"step_seconds", absl::ToDoubleSeconds(simulation->step)},
                          {"lower_bound_seconds", absl::ToDoubleSeconds(simulation->lower_bound)},
                          {"bottleneck", simulation->bottleneck},
                          {"floor_seconds", absl::ToDoubleSeconds(simulation->busiest.step)},
                          {"busiest", simulation->busiest.name}}
                         .dump());
  return 0;
}

}  // namespace
}  // namespace longhaul::bench

int main() {
  return longhaul::bench::Main();
}
