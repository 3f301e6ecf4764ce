// Forward and backward of one transformer block, in floating-point operations a second.
//
//   stage_bench --benchmark_filter=hidden:256
#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>
#include <vector>

#include "worker/stage/stage.h"

namespace longhaul::worker {
namespace {

// Multiplications and additions of the matrix products of a block, forward: 12 hidden^2 weights,
// and attention, counted in full although half of it is masked. Backward takes twice as many.
double ForwardOperations(double hidden, double context) {
  return 2 * context * (12 * hidden * hidden + 2 * context * hidden);
}

void BM_Block(benchmark::State& state) {
  StageOptions options;
  options.model.layers = 2;
  options.model.hidden = static_cast<uint32_t>(state.range(0));
  options.model.heads = options.model.hidden / 32;
  options.model.context = static_cast<uint32_t>(state.range(1));
  options.first = options.last = false;
  options.layers = 1;
  options.train.microbatches = 1;
  options.threads = static_cast<uint32_t>(state.range(2));
  auto stage = Stage::Create(options);
  if (!stage.ok()) return state.SkipWithError(stage.status().ToString().c_str());
  const std::vector<float> values(size_t{options.model.context} * options.model.hidden, 0.5f);
  const codec::TensorView view{
      values.data(), codec::Dtype::kF32, {1, options.model.context, options.model.hidden}};
  uint32_t microbatch = 0;
  for ([[maybe_unused]] auto _ : state) {  // NOLINT(clang-analyzer-deadcode.DeadStores)
    const bool ok = (*stage)->Forward(Microbatch(microbatch), {{}, view, {}}).ok() &&
                    (*stage)->Backward(Microbatch(microbatch), view).ok();
    if (!ok) return state.SkipWithError("a pass failed");
    ++microbatch;
  }
  state.counters["GFLOP/s"] =
      benchmark::Counter(3e-9 * ForwardOperations(options.model.hidden, options.model.context),
                         benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(BM_Block)
    ->ArgNames({"hidden", "context", "threads"})
    ->Args({64, 64, 1})
    ->Args({256, 256, 1})
    ->Args({256, 256, 2})
    ->Args({768, 512, 1})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace longhaul::worker

BENCHMARK_MAIN();
