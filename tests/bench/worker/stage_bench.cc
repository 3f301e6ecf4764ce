// Forward and backward of one transformer block, in floating-point operations a second.
//
//   stage_bench --benchmark_filter=hidden:256
#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>
#include <vector>

#include "run/model/family.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {
namespace {

// Keys and values have a quarter of the heads, and the MLP 8/3 of the channels, in family llama.
ModelSpec ModelOf(ModelFamily family, uint32_t hidden, uint32_t context) {
  ModelSpec model;
  model.family = family;
  model.layers = 2;
  model.hidden = hidden;
  model.heads = hidden / 32 < 4 ? 4 : hidden / 32;
  model.kv_heads = model.heads / 4;
  model.intermediate = hidden * 8 / 3;
  model.context = context;
  return model;
}

// Multiplications and additions of the matrix products of a block, forward, and of attention,
// counted in full although half of it is masked. Backward takes twice as many.
double ForwardOperations(const ModelSpec& model) {
  const double h = model.hidden, context = model.context;
  double weights = 0;
  for (const model::Parameter& parameter : model::FamilyOf(model).parameters(model, 0)) {
    const bool multiplied = parameter.in_product && parameter.shape.is_matrix();
    if (parameter.role != model::Role::kBlock || !multiplied) continue;
    weights += static_cast<double>(parameter.shape.elements());
  }
  return 2 * context * (weights + 2 * context * h);
}

void BM_Block(benchmark::State& state, ModelFamily family) {
  StageOptions options;
  options.model =
      ModelOf(family, static_cast<uint32_t>(state.range(0)), static_cast<uint32_t>(state.range(1)));
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
  state.counters["GFLOP/s"] = benchmark::Counter(3e-9 * ForwardOperations(options.model),
                                                 benchmark::Counter::kIsIterationInvariantRate);
}

void Sizes(benchmark::internal::Benchmark* block) {
  block->ArgNames({"hidden", "context", "threads"})
      ->Args({64, 64, 1})
      ->Args({256, 256, 1})
      ->Args({256, 256, 2})
      ->Args({768, 512, 1})
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
}
BENCHMARK_CAPTURE(BM_Block, gpt, ModelFamily::kGpt)->Apply(Sizes);
BENCHMARK_CAPTURE(BM_Block, llama, ModelFamily::kLlama)->Apply(Sizes);

}  // namespace
}  // namespace longhaul::worker

BENCHMARK_MAIN();
