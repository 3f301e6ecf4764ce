// longhaul-planner-bench: what a plan takes of a model with many layers and experts; with
// --placement what is found of the best workers and their order (placement_rows.h).
//
// A published model on workers with GPUs that are all alike; nothing is measured. The search for
// depths is bound by a time of its own and the same for every model, so that a plan with a fixed
// depth is timed, too: that is what layers, experts and groups cost.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <string>

#include "absl/time/clock.h"
#include "base/status.h"
#include "planner/memory.h"
#include "planner/planner.h"
#include "run/model/share.h"
#include "tests/bench/planner/placement_rows.h"

namespace longhaul::bench {
namespace {

using coordinator::CandidateWorker;
using coordinator::PlanRequest;

struct Flags {
  std::string preset = "qwen3-30b-a3b";
  uint32_t stages = 8, devices = 8, microbatches = 32, context = 4096;
  // Where it is fixed.
  uint32_t depth() const { return std::min(8u, microbatches); }
};

template <class T>
T Need(StatusOr<T> value) {
  if (value.ok()) return *std::move(value);
  fmt::print(stderr, "longhaul-planner-bench: {}\n", Message(value.status()));
  std::exit(1);
}

PlanRequest RequestFor(const Flags& flags, const std::string& group, bool fixed_depth) {
  PlanRequest request;
  request.run = RunId("bench-1");
  request.epoch = Epoch(1);
  request.spec = Need(ParseRunSpec(
      fmt::format("name: bench\nmodel: {{ preset: {}, context: {} }}\ndata: {{ text: x.txt }}\n"
                  "train: {{ steps: 1, microbatches: {}, dtype: bf16 }}\n"
                  "pipeline: {{ stages: {}, depth: {} }}\nlinks: {{ forward: none, backward: none "
                  "}}\ngroup: {}\n",
                  flags.preset, flags.context, flags.microbatches, flags.stages,
                  fixed_depth ? fmt::format("{}", flags.depth()) : "auto", group),
      "bench.yaml", {}));
  request.data.vocabulary = request.spec.model.VocabularyOver(1);
  for (uint32_t stage = 0; stage < flags.stages; ++stage) {
    CandidateWorker worker;
    worker.id = WorkerId(fmt::format("id{}", stage));
    worker.name = fmt::format("w{}", stage);
    worker.memory_bytes = worker.host_memory_bytes = uint64_t{1} << 40;
    worker.on_gpu = true;
    worker.endpoints = {{"ucx", {"10.0.0.1:1"}}};
    worker.times.set_block_forward(0.01);
    worker.times.set_block_backward(0.02);
    worker.egress_bits_per_second = worker.ingress_bits_per_second = 1e9;
    for (uint32_t device = 0; device < flags.devices; ++device) {
      worker.devices.push_back(device);
      worker.device_memory_bytes.push_back(worker.memory_bytes);
    }
    for (uint32_t ranks = 2; ranks <= flags.devices; ++ranks) {
      for (const uint32_t parts : model::PartsOfExperts(request.spec.model, ranks)) {
        v1::GroupTimes& group_times = *worker.times.add_groups();
        group_times.set_tensor(ranks);
        group_times.set_expert(parts);
        group_times.mutable_block()->set_forward(0.01 / ranks);
        group_times.mutable_block()->set_backward(0.02 / ranks);
      }
    }
    request.workers.push_back(worker);
  }
  return request;
}

void TimePlan(const Flags& flags, const std::string& what, const std::string& group,
              bool fixed_depth) {
  const PlanRequest request = RequestFor(flags, group, fixed_depth);
  const absl::Time begin = absl::Now();
  const Plan plan = Need(coordinator::MakePlan(request));
  const double milliseconds = absl::ToDoubleMilliseconds(absl::Now() - begin);
  fmt::print("one plan of {} layers, {} experts, {} stages, {}, {}: {:.0f} ms\n",
             request.spec.model.layers, request.spec.model.experts, flags.stages, what,
             fixed_depth ? fmt::format("depth {}", flags.depth()) : "depth auto", milliseconds);
}

void TimeMemory(const Flags& flags) {
  const PlanRequest request = RequestFor(flags, "{}", /*fixed_depth=*/true);
  constexpr int kCalls = 20;
  const absl::Time begin = absl::Now();
  for (uint32_t i = 0; i < kCalls; ++i) {
    coordinator::MemoryOf(request.spec, request.data.vocabulary, 1 + i % 4, i % 2 == 0, i % 3 == 0,
                          /*on_gpu=*/true);
  }
  fmt::print("one stage's memory: {:.2f} ms\n",
             absl::ToDoubleMilliseconds(absl::Now() - begin) / kCalls);
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("What a plan takes of a model with many layers and experts");
  app.add_option("--preset", flags.preset, "The model")->capture_default_str();
  app.add_option("--stages", flags.stages, "Of the pipeline")->capture_default_str();
  app.add_option("--devices", flags.devices, "Of each worker")->capture_default_str();
  app.add_option("--microbatches", flags.microbatches, "Of a step")->capture_default_str();
  PlacementFlags placement;
  app.add_option("--placement", placement.folder,
                 "Place the workers of the files in tests/fixtures/placement, and nothing else");
  app.add_option(
         "--replicas", placement.replicas,
         "With --placement: place all workers as so many replicas that exchange in 4 bits; 0: as "
         "many as the plan chooses for 128 microbatches")
      ->check(CLI::Range(0, 8))
      ->capture_default_str();
  app.add_option("--restarts", placement.restarts, "From random chains, to compare with")
      ->capture_default_str();
  app.add_option("--times", placement.times, "Restarts go on so many times as long as the search")
      ->capture_default_str();
  app.add_option("--seeds", placement.seeds, "Of longer searches, for the best known")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  if (!placement.folder.empty()) return PrintPlacements(placement);
  TimeMemory(flags);
  const std::string all = fmt::format("{{ tensor: {} }}", flags.devices);
  for (const bool fixed_depth : {true, false}) {
    TimePlan(flags, "one rank", "{}", fixed_depth);
    TimePlan(flags, fmt::format("{} ranks", flags.devices), all, fixed_depth);
    TimePlan(flags, "all groups of as many devices", "{ tensor: auto, expert: auto }", fixed_depth);
  }
  return 0;
}

}  // namespace
}  // namespace longhaul::bench

int main(int argc, char** argv) {
  return longhaul::bench::Main(argc, argv);
}
