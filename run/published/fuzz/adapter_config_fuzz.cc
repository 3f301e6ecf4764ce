// Any text as an adapter_config.json: refused, or read as adapters that a run can have.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/fuzz/target.h"
#include "run/published/adapters.h"

LH_FUZZ_TARGET(adapter_config) {
  longhaul::ModelSpec model;
  model.family = longhaul::ModelFamily::kLlama;
  model.layers = 1;
  model.hidden = model.intermediate = 8;
  model.heads = model.kv_heads = 2;
  model.context = 8;
  model.stacked_matrices = true;
  const auto lora = longhaul::published::ParseAdapterConfig(
      {reinterpret_cast<const char*>(data), size}, "adapter_config.json", model);
  if (!lora.ok()) return false;
  const bool sound = lora->rank > 0 && lora->alpha > 0 && lora->scale() > 0 && lora->dropout >= 0 &&
                     lora->dropout < 1 && !lora->targets.empty();
  if (!sound) std::abort();
  return true;
}
